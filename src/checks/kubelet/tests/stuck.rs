//! A kubelet that lives and cannot: stopping, frozen, stuck in the kernel, slow to start.

use super::*;

const SECOND: u64 = 1000;

fn stopping(sub_state: &str) -> Sign {
    unit("deactivating", sub_state, 100, (100, 0, 0))
}

fn silent(kubelet: &mut Kubelet, millis: u64) {
    for _ in 0..3 {
        kubelet.apply(Sign::Probed(PID, Probe::Timeout), at(millis));
    }
}

fn sampled(waiting: &[(i32, u64)], frozen_by: Option<&str>) -> Sign {
    let waiting = waiting.iter().map(|(tid, turns)| Waiting {
        tid: *tid,
        turns: *turns,
    });
    Sign::Sampled(
        PID,
        Sample {
            listening: Listening::Unknown,
            frozen_by: frozen_by.map(str::to_owned),
            waiting: waiting.collect(),
        },
    )
}

fn message(kubelet: &Kubelet, millis: u64) -> String {
    match kubelet.assess(None, at(millis)) {
        Assessment::Found(finding) => finding.message,
        Assessment::NothingNew => String::new(),
    }
}

#[test]
fn a_stop_that_hangs_is_told_with_who_asked_and_is_no_fault() {
    for (job, asker) in [
        (JobKind::Stop, "a stop job"),
        (JobKind::Restart, "a restart job"),
    ] {
        let mut kubelet = healthy();
        kubelet.apply(Sign::Job(7, job), at(SECOND));
        kubelet.apply(stopping("stop-sigterm"), at(SECOND));
        silent(&mut kubelet, 5 * SECOND);
        assert_eq!(reason(&kubelet, 5 * SECOND), None, "within its grace");
        assert_eq!(
            kubelet.next_deadline(at(5 * SECOND)),
            Some(at(21 * SECOND).uptime)
        );
        assert_eq!(
            reason(&kubelet, 21 * SECOND),
            Some(Reason::KubeletStopStuck)
        );
        assert!(message(&kubelet, 21 * SECOND).contains(asker));
        assert_eq!(
            Reason::KubeletStopStuck.status(),
            crate::health::Status::Unknown
        );
        // It gets what everyone gets in the end.
        kubelet.apply(Sign::Gone(PID), at(91 * SECOND));
        let expected = (job == JobKind::Stop).then_some(Reason::KubeletStoppedByOperator);
        assert_eq!(reason(&kubelet, 91 * SECOND), expected);
    }
}

#[test]
fn one_that_hangs_and_that_systemd_ends_by_itself_is_hung() {
    let mut kubelet = healthy();
    kubelet.apply(stopping("stop-watchdog"), at(SECOND));
    silent(&mut kubelet, 5 * SECOND);
    kubelet.apply(Sign::ProcessState(PID, 'T'), at(5 * SECOND));
    assert_eq!(reason(&kubelet, 60 * SECOND), Some(Reason::KubeletHung));
}

#[test]
fn who_outlives_sigkill_is_unkillable() {
    let mut kubelet = healthy();
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(SECOND));
    kubelet.apply(stopping("stop-sigkill"), at(SECOND));
    // The bus alone is nobody's word.
    assert_eq!(
        reason(&kubelet, 11 * SECOND),
        Some(Reason::KubeletIsHealthy)
    );
    kubelet.apply(Sign::Dying(PID, true), at(2 * SECOND));
    assert_eq!(
        reason(&kubelet, 10 * SECOND),
        Some(Reason::KubeletIsHealthy)
    );
    assert_eq!(
        reason(&kubelet, 11 * SECOND),
        Some(Reason::KubeletUnkillable)
    );
}

#[test]
fn a_thread_in_one_wait_makes_a_silent_kubelet_unkillable() {
    let mut kubelet = healthy();
    assert!(!kubelet.is_suspect());
    silent(&mut kubelet, 0);
    assert!(kubelet.is_suspect());
    kubelet.apply(Sign::ProcessState(PID, 'D'), at(0));
    for secs in 0..=10 {
        kubelet.apply(sampled(&[(7, 1), (8, secs)], None), at(secs * SECOND));
        let expected = if secs < 10 {
            Reason::KubeletHung
        } else {
            Reason::KubeletUnkillable
        };
        assert_eq!(reason(&kubelet, secs * SECOND), Some(expected), "{secs} s");
    }
    assert!(message(&kubelet, 10 * SECOND).contains("thread 7 "));
    // An answer clears it of all suspicion.
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(11 * SECOND));
    silent(&mut kubelet, 12 * SECOND);
    assert_eq!(reason(&kubelet, 12 * SECOND), Some(Reason::KubeletHung));
}

#[test]
fn ice_is_told_by_the_cgroups_own_file_and_a_missed_probe() {
    let mut kubelet = healthy();
    kubelet.apply(sampled(&[], Some("/ice")), at(10));
    assert_eq!(reason(&kubelet, 10), Some(Reason::KubeletIsHealthy));
    kubelet.apply(Sign::Probed(PID, Probe::Timeout), at(30));
    // On cgroup v1 the frozen are in state D.
    kubelet.apply(sampled(&[(7, 1)], Some("/ice")), at(40));
    assert_eq!(reason(&kubelet, 40), Some(Reason::KubeletFrozen));
    assert!(message(&kubelet, 40).contains("/ice"));
    kubelet.apply(sampled(&[(7, 1)], Some("/ice")), at(60 * SECOND));
    assert_eq!(reason(&kubelet, 60 * SECOND), Some(Reason::KubeletFrozen));
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(61 * SECOND));
    assert_eq!(
        reason(&kubelet, 61 * SECOND),
        Some(Reason::KubeletIsHealthy)
    );
}

#[test]
fn only_one_that_was_seen_starting_is_slow_to_start() {
    let found_at = |millis: u64| {
        let mut kubelet = Kubelet::new("kubelet.service");
        kubelet.apply(running(), at(millis));
        kubelet.apply(Sign::Found(Found::One(process(PID))), at(millis));
        let url = "http://127.0.0.1:10248/healthz".into();
        kubelet.apply(Sign::Endpoint(PID, Endpoint::Known(url)), at(millis));
        kubelet.apply(Sign::ProcessState(PID, 'D'), at(millis));
        for _ in 0..3 {
            kubelet.apply(Sign::Probed(PID, Probe::Refused), at(millis));
        }
        reason(&kubelet, 200 * SECOND)
    };
    assert_eq!(found_at(0), Some(Reason::KubeletStartSlow));
    assert_eq!(found_at(150 * SECOND), Some(Reason::KubeletHealthzDown));
}

#[test]
fn a_unit_that_is_long_busy_before_its_kubelet_starts_slowly() {
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::None(String::new())), at(0));
    let busy = || unit("activating", "start-pre", 0, (0, 0, 0));
    kubelet.apply(busy(), at(0));
    assert_eq!(
        reason(&kubelet, 119 * SECOND),
        Some(Reason::KubeletStarting)
    );
    assert_eq!(
        kubelet.next_deadline(at(119 * SECOND)),
        Some(at(120 * SECOND).uptime)
    );
    kubelet.apply(busy(), at(119 * SECOND));
    assert_eq!(
        reason(&kubelet, 120 * SECOND),
        Some(Reason::KubeletStartSlow)
    );
}
