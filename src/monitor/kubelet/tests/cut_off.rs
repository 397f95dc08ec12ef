//! A kubelet that answers and from which the control plane has not heard.

use super::*;

/// A kubelet that answers, on a Node with this status of `Ready`.
fn with_ready(status: &str) -> Story {
    let mut story = Story::healthy();
    story.wait(Duration::ZERO);
    story.ready(status);
    story
}

#[track_caller]
fn is_healthy(story: &Story) {
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn an_unknown_node_and_an_old_lease_are_a_stall_until_the_control_plane_hears_from_the_kubelet() {
    let mut story = with_ready("True");
    assert!(!story.kubelet.running.cut_off.is_suspected(), "the Lease of a healthy kubelet is not read");
    story.ready("Unknown");
    assert!(story.kubelet.running.cut_off.is_suspected());
    for _ in 0..6 {
        story.lease(100);
        is_healthy(&story);
        story.now += Duration::from_secs(10);
    }
    story.lease(100);
    let message = story.reports(Status::False, Reason::KubeletAPIConnectionStalled);
    assert!(message.starts_with("kubelet pid 812 answers on /healthz, but"), "{message}");
    story.ready("True");
    is_healthy(&story);
    assert!(!story.kubelet.running.cut_off.is_suspected());
}

#[test]
fn without_one_of_its_witnesses_there_is_no_stall() {
    // A reading each ten seconds of when the Lease was last renewed.
    let after = |ready: &str, renewals: [i64; 7], wait: u64| {
        let mut story = with_ready(ready);
        for renewed in renewals {
            story.lease(renewed);
            story.now += Duration::from_secs(10);
        }
        story.now += Duration::from_secs(wait);
        story
    };
    after("Unknown", [100; 7], 0).reports(Status::False, Reason::KubeletAPIConnectionStalled);
    is_healthy(&after("True", [100; 7], 0));
    is_healthy(&after("Unknown", [100, 100, 100, 110, 110, 110, 110], 0));
    is_healthy(&after("Unknown", [100; 7], 20)); // it could not be read, and may have been renewed meanwhile

    let mut unread = with_ready("Unknown");
    unread.wait(Duration::from_mins(2));
    is_healthy(&unread);

    let mut before = with_ready("True");
    before.lease(100);
    before.ready("Unknown");
    before.wait(Duration::from_mins(2));
    is_healthy(&before);
}

#[test]
fn an_outage_of_the_api_server_is_no_stall_and_after_it_the_kubelet_has_a_minute_to_connect() {
    let mut story = with_ready("Unknown");
    story.reach(None);
    assert!(!story.kubelet.running.cut_off.is_suspected());
    let back = story.now;
    story.reach(Some(back));
    assert!(!story.kubelet.running.cut_off.is_suspected());
    story.now = back + Duration::from_mins(1);
    story.reach(Some(back));
    assert!(story.kubelet.running.cut_off.is_suspected());
}

/// kubernetes/kubernetes#90217, open-policy-agent/gatekeeper#3829: a webhook that is gone is asked about each Lease. No kubelet of the cluster
/// can renew its own; each writes `Ready=True` again as soon as it sees the `Unknown` of the node controller.
#[test]
fn a_cluster_that_takes_no_renewal_of_a_lease_is_no_stall() {
    let mut story = with_ready("True");
    for second in 0..600 {
        story.ready(if second % 60 < 40 { "True" } else { "Unknown" });
        story.lease(100);
        is_healthy(&story);
        story.now += Duration::from_secs(1);
    }
}
