//! A kubelet that answers and does not reach the API server.

use super::*;
use crate::host::sockets::Connection;

const WORKING: Connection = Connection { is_opening: false, unacknowledged_bytes: 0, retransmits: 0 };
const STUCK: Connection = Connection { is_opening: false, unacknowledged_bytes: 90, retransmits: 5 };
const REFUSED: Connection = Connection { is_opening: true, unacknowledged_bytes: 0, retransmits: 2 };
const NEW: Connection = Connection { is_opening: true, unacknowledged_bytes: 0, retransmits: 0 };

/// A kubelet that answers, with an API server that has answered for long.
fn connected() -> Story {
    let mut story = Story::healthy();
    story.wait(Duration::ZERO);
    story
}

fn list(story: &mut Story, connections: &[Connection]) {
    story.see(Observation::Connections(812, Some(connections.to_vec())));
}

/// The Lease is read each ten seconds and shows the same renewal, for 40 seconds.
fn lease_grows_old(story: &mut Story) {
    for _ in 0..4 {
        story.lease(100);
        story.now += Duration::from_secs(10);
    }
    story.lease(100);
}

#[track_caller]
fn is_healthy(story: &Story) {
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn stuck_connections_and_an_old_lease_are_a_stall_until_a_connection_works() {
    let mut story = connected();
    assert!(!story.kubelet.running.stall.is_suspected(), "the Lease of a healthy kubelet is not read");
    list(&mut story, &[STUCK]);
    assert!(story.kubelet.running.stall.is_suspected());
    list(&mut story, &[]); // it connects again
    list(&mut story, &[REFUSED, NEW]);
    list(&mut story, &[STUCK, REFUSED]);
    is_healthy(&story);
    lease_grows_old(&mut story);
    let message = story.reports(Status::False, Reason::KubeletAPIConnectionStalled);
    assert!(message.starts_with("kubelet pid 812 answers on /healthz but does not renew its Lease"), "{message}");
    list(&mut story, &[STUCK, WORKING]);
    is_healthy(&story);
    assert!(!story.kubelet.running.stall.is_suspected());
}

#[test]
fn without_one_of_its_witnesses_there_is_no_stall() {
    let mut two_lists = connected();
    list(&mut two_lists, &[STUCK]);
    list(&mut two_lists, &[STUCK]);
    list(&mut two_lists, &[NEW]);
    lease_grows_old(&mut two_lists);
    is_healthy(&two_lists);

    let mut delayed = connected();
    (0..3).for_each(|_| list(&mut delayed, &[Connection { retransmits: 1, ..STUCK }]));
    lease_grows_old(&mut delayed);
    is_healthy(&delayed);

    let stuck = || {
        let mut story = connected();
        (0..3).for_each(|_| list(&mut story, &[STUCK]));
        story
    };
    let mut young = stuck();
    young.lease(100);
    young.now += Duration::from_secs(29);
    young.lease(100);
    is_healthy(&young);

    let mut renewed = stuck();
    renewed.lease(100);
    renewed.lease(110);
    lease_grows_old(&mut renewed);
    is_healthy(&renewed);

    let mut unread = stuck();
    unread.lease(100);
    unread.now += Duration::from_mins(2); // it may have been renewed meanwhile
    unread.lease(100);
    is_healthy(&unread);

    let mut unknown = stuck();
    unknown.see(Observation::Connections(812, None));
    lease_grows_old(&mut unknown);
    is_healthy(&unknown);

    let mut silent = stuck();
    silent.probe(812, Probe::TimedOut);
    silent.probe(812, Probe::Healthy);
    lease_grows_old(&mut silent);
    is_healthy(&silent);
}

#[test]
fn an_outage_of_the_api_server_is_no_stall_and_after_it_the_kubelet_has_a_minute_to_connect() {
    let mut story = connected();
    (0..3).for_each(|_| list(&mut story, &[STUCK]));
    story.reach(None);
    list(&mut story, &[STUCK]);
    assert!(!story.kubelet.running.stall.is_suspected());
    let back = story.now;
    story.reach(Some(back));
    (0..3).for_each(|_| list(&mut story, &[STUCK]));
    lease_grows_old(&mut story);
    is_healthy(&story);
    story.now = back + Duration::from_mins(1);
    (0..3).for_each(|_| list(&mut story, &[STUCK]));
    lease_grows_old(&mut story);
    story.reports(Status::False, Reason::KubeletAPIConnectionStalled);
}
