//! Who listens on the socket: the main process of a unit, a child of it, systemd, or another process.

use super::*;

#[test]
fn the_end_of_the_process_that_started_the_runtime_counts_when_no_process_listens_any_more() {
    let mut story = Story::k3s();
    let message = story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    assert!(message.ends_with("(pid 950)"), "{message}");
    story.end(812, unit("activating", 0, SIGKILL, "signal"));
    story.keeps_what_is_shown();
    story.answers();
    story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    for _ in 0..2 {
        story.probe(Probe::NoListener);
        story.keeps_what_is_shown();
    }
    // The one that it left behind.
    story.fails(&Probe::NotReady(String::new()));
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    story.probe(Probe::NoListener);
    story.probe(Probe::NoListener);
    story.probe(Probe::NoListener);
    let message = story.reports(Status::False, Reason::ContainerRuntimeDown);
    assert!(message.contains("k3s.service (pid 812) was killed by SIGKILL"), "{message}");

    // The child alone.
    let mut child = Story::k3s();
    child.fails(&Probe::NoListener);
    child.reports(Status::False, Reason::ContainerRuntimeDown);
}

#[test]
fn a_runtime_that_has_not_listened_since_its_unit_was_started_is_not_down() {
    // k3s starts its containerd only after it has reached a server.
    let mut story = Story::k3s();
    let before = story.now;
    story.restart("active");
    // A probe that had begun before the end.
    story.runtime.set_listener(Some(Listener { id: id(950), unit: None }), before);
    story.now += GRACE;
    story.fails(&Probe::NoListener);
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    story.listens(990, Some("k3s.service"));
    story.answers();
    story.fails(&Probe::NoListener);
    story.reports(Status::False, Reason::ContainerRuntimeDown);

    // A containerd with much to read, whose unit waits for its notification.
    let mut slow = Story::healthy();
    slow.restart("activating");
    slow.now += GRACE;
    slow.fails(&Probe::NoListener);
    slow.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
    slow.changed(running(900));
    slow.reports(Status::False, Reason::ContainerRuntimeDown);
}

#[test]
fn systemd_that_listens_for_a_socket_unit_stands_for_the_units_main_process() {
    let mut story = Story::new();
    story.listens(1, None);
    assert_eq!(story.runtime.process(), None);
    story.watch(812, Uptime::ZERO);
    story.answers();
    assert_eq!(story.runtime.process(), Some(id(812)));
    story.end(812, unit("failed", 0, SIGKILL, "signal"));
    story.reports(Status::False, Reason::ContainerRuntimeDown);
}

#[test]
fn another_runtime_at_the_socket_is_healthy_and_its_own_unit_is_watched() {
    let mut story = Story::healthy();
    story.end(812, unit("failed", 0, SIGKILL, "signal"));
    story.reports(Status::False, Reason::ContainerRuntimeDown);
    story.listens(990, Some("other.service"));
    assert_eq!(story.runtime.units, ["other.service"]);
    story.answers();
    story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    // A process that a user starts by hand belongs to no service: why it ends is not known.
    let mut by_hand = Story::new();
    by_hand.listens(990, None);
    by_hand.read("containerd.service", UnitState { was_started: false, ..unit("inactive", 0, SIGKILL, "success") });
    by_hand.answers();
    by_hand.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    by_hand.fails(&Probe::NoListener);
    by_hand.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
}
