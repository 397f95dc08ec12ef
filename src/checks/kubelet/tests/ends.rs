//! Ends that come again and again, and who brought them about.

use super::*;

pub(super) const SECOND: u64 = 1000;

/// A run of the unit that has ended: `result` and how, by code and status.
pub(super) fn ended(run: &str, result: &str, (code, status): (i32, i32)) -> Unit {
    Unit {
        load_state: "loaded".to_owned(),
        active_state: "activating".to_owned(),
        sub_state: "auto-restart".to_owned(),
        exec_main_pid: 100,
        exec_main_code: code,
        exec_main_status: status,
        result: result.to_owned(),
        control_group: "/system.slice/kubelet.service".to_owned(),
        invocation: run.to_owned(),
        ever_started: true,
        ..Unit::default()
    }
}

pub(super) fn exit(run: &str) -> Unit {
    ended(run, "exit-code", (1, 1))
}

pub(super) fn failed(run: &str, result: &str) -> Unit {
    Unit {
        active_state: "failed".to_owned(),
        sub_state: "failed".to_owned(),
        start_limit_burst: 5,
        start_limit_interval_usec: 10_000_000,
        ..ended(run, result, (1, 1))
    }
}

/// The kubelet of `run` has ended so, under our eyes.
pub(super) fn dies(kubelet: &mut Kubelet, unit: Unit, millis: u64) {
    kubelet.apply(Sign::Gone(PID), at(millis));
    kubelet.apply(Sign::Unit(unit), at(millis + 1));
}

/// The next one is there; it has not answered yet.
pub(super) fn lives(kubelet: &mut Kubelet, run: &str, millis: u64) {
    let running = Unit {
        active_state: "active".to_owned(),
        sub_state: "running".to_owned(),
        main_pid: 100,
        exec_main_code: 0,
        ..exit(run)
    };
    kubelet.apply(Sign::Unit(running), at(millis));
    let process = Process {
        pid: PID,
        started: at(millis).uptime,
    };
    kubelet.apply(Sign::Found(Found::One(process)), at(millis));
}

pub(super) fn message(kubelet: &Kubelet, millis: u64) -> String {
    match kubelet.assess(None, at(millis)) {
        Assessment::Found(finding) => finding.message,
        Assessment::NothingNew => String::new(),
    }
}

/// Where the kubelet's cgroup is, when it is running.
pub(super) fn running_in_group() -> Sign {
    Sign::Unit(Unit {
        active_state: "active".to_owned(),
        sub_state: "running".to_owned(),
        main_pid: 100,
        exec_main_code: 0,
        ..exit("a")
    })
}

#[test]
fn the_third_end_within_five_minutes_is_a_crash_loop() {
    let mut kubelet = healthy();
    for (run, millis) in [("a", 10), ("b", 100), ("c", 310)] {
        dies(&mut kubelet, exit(run), millis * SECOND);
        // What systemd says twice, or of the same run again, is one end.
        kubelet.apply(Sign::Unit(exit(run)), at(millis * SECOND + 5));
        assert_eq!(
            reason(&kubelet, millis * SECOND + 5),
            Some(Reason::KubeletCrashed),
            "{run}: the first is five minutes ago by the third"
        );
        lives(&mut kubelet, "next", millis * SECOND + 100);
    }
    dies(&mut kubelet, exit("d"), 320 * SECOND);
    assert_eq!(
        reason(&kubelet, 321 * SECOND),
        Some(Reason::KubeletCrashLooping)
    );
    let told = message(&kubelet, 321 * SECOND);
    assert!(
        told.contains("3 times or more within 5 min; the last one exited with code 1"),
        "{told}"
    );
    // The same sentence until the next round number.
    for run in ["e", "f", "g", "h", "i"] {
        lives(&mut kubelet, run, 322 * SECOND);
        dies(&mut kubelet, exit(run), 323 * SECOND);
        assert_eq!(message(&kubelet, 324 * SECOND), told);
    }
    for run in ["j", "k"] {
        lives(&mut kubelet, run, 325 * SECOND);
        dies(&mut kubelet, exit(run), 326 * SECOND);
    }
    assert!(message(&kubelet, 327 * SECOND).contains("10 times or more"));
}

#[test]
fn the_run_that_we_found_alive_counts_and_an_end_before_us_does_not() {
    for (first, expected) in [
        (running_in_group(), Reason::KubeletCrashLooping),
        (Sign::Unit(exit("a")), Reason::KubeletCrashed),
    ] {
        let mut kubelet = Kubelet::new("kubelet.service");
        kubelet.apply(Sign::AwaitsJoin(false), at(0));
        kubelet.apply(Sign::Found(Found::None(String::new())), at(0));
        kubelet.apply(first, at(0));
        for run in ["a", "b", "c"] {
            kubelet.apply(Sign::Unit(exit(run)), at(SECOND));
        }
        assert_eq!(reason(&kubelet, SECOND), Some(expected));
    }
}

#[test]
fn ends_that_somebody_asked_for_are_not_counted() {
    let mut kubelet = healthy();
    for (run, secs) in [("a", 10), ("b", 20), ("c", 30), ("d", 40)] {
        kubelet.apply(Sign::Job(7, JobKind::Restart), at(secs * SECOND));
        let down = Unit {
            active_state: "inactive".to_owned(),
            sub_state: "dead".to_owned(),
            ..ended(run, "success", (1, 0))
        };
        dies(&mut kubelet, down, secs * SECOND);
        kubelet.apply(Sign::JobDone(7), at(secs * SECOND + 50));
        lives(&mut kubelet, run, secs * SECOND + 60);
    }
    dies(&mut kubelet, exit("e"), 50 * SECOND);
    assert_eq!(reason(&kubelet, 51 * SECOND), Some(Reason::KubeletCrashed));
}

#[test]
fn ends_too_fast_to_be_seen_are_counted_by_systemds_own_restarts() {
    let mut kubelet = healthy();
    for restarts in 1..=3_u32 {
        let running = Unit {
            active_state: "active".to_owned(),
            sub_state: "running".to_owned(),
            main_pid: 100 + restarts,
            exec_main_code: 0,
            restarts,
            ..exit(&format!("run{restarts}"))
        };
        kubelet.apply(Sign::Unit(running), at(SECOND));
    }
    dies(&mut kubelet, exit("run3"), 2 * SECOND);
    // The run that was there when the bus was heard first, and three more.
    assert_eq!(
        reason(&kubelet, 3 * SECOND),
        Some(Reason::KubeletCrashLooping)
    );
}

#[test]
fn a_start_limit_is_told_with_its_numbers_even_after_restarts_by_hand() {
    let mut kubelet = healthy();
    kubelet.apply(Sign::Job(7, JobKind::Restart), at(SECOND));
    kubelet.apply(Sign::Gone(PID), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), None, "planned");
    kubelet.apply(Sign::Unit(failed("a", "start-limit-hit")), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletStartLimitHit));
    assert!(message(&kubelet, SECOND).contains("more than 5 within 10 s"));
    // After failures of its own the unit keeps their result: it has failed for a moment before each wait, too.
    let mut kubelet = healthy();
    dies(&mut kubelet, failed("a", "exit-code"), SECOND);
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletCrashed));
    kubelet.apply(Sign::Unit(exit("a")), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletCrashed));
    kubelet.apply(Sign::Unit(failed("a", "exit-code")), at(2 * SECOND));
    let limit = Some(Reason::KubeletStartLimitHit);
    assert_eq!(reason(&kubelet, 2 * SECOND), limit);
    assert!(message(&kubelet, 2 * SECOND).contains("the last kubelet exited with code 1"));
    // Started by hand, it fails as before.
    lives(&mut kubelet, "b", 3 * SECOND);
    dies(&mut kubelet, failed("b", "exit-code"), 4 * SECOND);
    assert_eq!(reason(&kubelet, 4 * SECOND), Some(Reason::KubeletCrashed));
    // A stop that ends by SIGKILL leaves a failed unit, and is the operator's.
    let mut kubelet = healthy();
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(SECOND));
    dies(&mut kubelet, failed("a", "timeout"), SECOND);
    kubelet.apply(Sign::JobDone(7), at(SECOND));
    let stopped = Some(Reason::KubeletStoppedByOperator);
    assert_eq!(reason(&kubelet, 2 * SECOND), stopped);
    // What an earlier life of ours has seen lasts.
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::None(String::new())), at(0));
    kubelet.apply(Sign::Unit(failed("a", "exit-code")), at(0));
    assert_eq!(reason_after(&kubelet, limit, 0), limit);
    // The same, found so at our start.
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::None(String::new())), at(0));
    kubelet.apply(Sign::Unit(failed("a", "start-limit-hit")), at(0));
    assert_eq!(reason(&kubelet, 0), Some(Reason::KubeletStartLimitHit));
}

#[test]
fn systemds_watchdog_is_named_with_its_time() {
    let mut kubelet = healthy();
    let unit = Unit {
        watchdog_usec: 20_000_000,
        ..ended("a", "watchdog", (3, 6))
    };
    dies(&mut kubelet, unit, SECOND);
    assert_eq!(
        reason(&kubelet, 2 * SECOND),
        Some(Reason::KubeletWatchdogKilled)
    );
    assert!(message(&kubelet, 2 * SECOND).contains("WatchdogSec=20 s"));
    assert_eq!(
        kubelet.take_wanted_words(at(10 * SECOND)),
        None,
        "it had no last words"
    );
}
