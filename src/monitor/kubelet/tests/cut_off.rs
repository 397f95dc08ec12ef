//! A kubelet that answers and from which the control plane has not heard.

use super::*;

/// A kubelet that answers and has last renewed its Lease at second 100, on a Node with this status of `Ready`.
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
    story.lease_at(100, 140);
    is_healthy(&story);
    story.now += Duration::from_secs(59);
    story.lease_at(100, 199);
    is_healthy(&story);
    story.now += Duration::from_secs(1);
    story.lease_at(100, 200);
    let message = story.reports(Status::False, Reason::KubeletAPIConnectionStalled);
    assert!(message.starts_with("kubelet pid 812 answers on /healthz, but"), "{message}");
    story.ready("True");
    is_healthy(&story);
    assert!(!story.kubelet.running.cut_off.is_suspected());
}

#[test]
fn without_one_of_its_witnesses_there_is_no_stall() {
    let after = |ready: &str, lease: Option<(i64, i64)>, wait: u64| {
        let mut story = with_ready(ready);
        story.now += Duration::from_mins(1);
        if let Some((renewed, time)) = lease {
            story.lease_at(renewed, time);
        }
        story.now += Duration::from_secs(wait);
        story
    };
    after("Unknown", Some((100, 141)), 0).reports(Status::False, Reason::KubeletAPIConnectionStalled);
    is_healthy(&after("True", Some((100, 141)), 0));
    is_healthy(&after("Unknown", Some((100, 139)), 0));
    is_healthy(&after("Unknown", None, 0));
    is_healthy(&after("Unknown", Some((100, 141)), 30)); // it could not be read, and may have been renewed meanwhile

    // Read when it was 39 s old; that time has passed since makes no reading older.
    let mut late = after("Unknown", Some((100, 139)), 0);
    late.now += Duration::from_secs(5);
    let time = Timestamp::from_second(144).unwrap();
    late.kubelet.api_seen(&late.api, Some(time), late.now);
    is_healthy(&late);

    let mut before = with_ready("True");
    before.lease_at(100, 141);
    before.ready("Unknown");
    before.now += Duration::from_mins(1);
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
