//! Others than systemd speak to us over the bus.

use super::*;

fn among_foreign_signals(millis: u64) -> Kubelet {
    let mut kubelet = healthy();
    kubelet.apply(Sign::ForeignSignals, at(millis));
    kubelet
}

#[test]
fn an_end_waits_a_second_for_systemd_and_no_longer() {
    let mut kubelet = after(among_foreign_signals(5_000), [Sign::Gone(PID)]);
    assert_eq!(kubelet.next_deadline(at(10_000)), Some(at(11_000).uptime));
    kubelet.tick(at(10_999));
    assert_eq!(reason(&kubelet, 10_999), None);
    kubelet.tick(at(11_000));
    assert_eq!(reason(&kubelet, 11_000), Some(Reason::KubeletGone));

    let mut kubelet = after(among_foreign_signals(5_000), [Sign::Gone(PID)]);
    kubelet.apply(killed(), at(10_400));
    assert_eq!(reason(&kubelet, 10_400), Some(Reason::KubeletCrashed));
}

#[test]
fn a_stop_that_is_heard_late_is_a_stop() {
    let mut kubelet = after(among_foreign_signals(5_000), [Sign::Gone(PID)]);
    kubelet.apply(Sign::Job(7, JobKind::Unasked), at(10_600));
    kubelet.apply(unit("inactive", "dead", 0, (100, 2, 15)), at(10_601));
    assert_eq!(reason(&kubelet, 10_601), None);
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(10_700));
    let stopped = Some(Reason::KubeletStoppedByOperator);
    assert_eq!(reason(&kubelet, 10_700), stopped);
}

#[test]
fn a_stop_that_is_heard_too_late_takes_the_fault_back() {
    let mut kubelet = after(among_foreign_signals(5_000), [Sign::Gone(PID)]);
    kubelet.tick(at(11_000));
    assert_eq!(reason(&kubelet, 11_000), Some(Reason::KubeletGone));
    kubelet.apply(Sign::Job(7, JobKind::Unasked), at(12_000));
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(12_100));
    let stopped = Some(Reason::KubeletStoppedByOperator);
    assert_eq!(reason(&kubelet, 12_100), stopped);
}

#[test]
fn ten_seconds_after_the_last_of_them_all_is_as_ever() {
    let kubelet = after(among_foreign_signals(0), [Sign::Gone(PID)]);
    assert_eq!(kubelet.next_deadline(at(10_000)), Some(at(10_003).uptime));
    assert!(!kubelet.is_among_foreign_signals(at(10_000)));
}

#[test]
fn the_child_of_another_program_waits_too() {
    let mut kubelet = among_foreign_signals(5_000);
    kubelet.apply(
        Sign::Carrier(PID, Carrier::Child("rke2".to_owned())),
        at(5_000),
    );
    let mut kubelet = after(kubelet, [Sign::Gone(PID)]);
    assert_eq!(reason(&kubelet, 10_000), None);
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(10_500));
    let stopped = Some(Reason::KubeletStoppedByOperator);
    assert_eq!(reason(&kubelet, 10_500), stopped);
}

#[test]
fn open_jobs_are_bounded() {
    let jobs = (0..1000).map(|id| Sign::Job(id, JobKind::Start));
    let kubelet = after(healthy(), jobs);
    assert_eq!(kubelet.jobs.len(), MAX_JOBS);
    assert!(kubelet.jobs.contains_key(&999));
}
