//! What is learnt of an end after it, and ends of which little can be learnt.

use super::{
    ends::{SECOND, dies, exit, lives, message},
    *,
};
use crate::helper::journal::LastWords;

fn words(run: &str, line: &str) -> Sign {
    let told = LastWords {
        line: Some(line.to_owned()),
        is_error: true,
        compressed: false,
    };
    Sign::Words(Run::Invocation(run.to_owned()), told)
}

#[test]
fn the_last_words_come_a_moment_later_and_are_asked_for_three_times_at_most() {
    let mut kubelet = healthy();
    dies(&mut kubelet, exit("a"), SECOND);
    assert_eq!(reason(&kubelet, SECOND + 1), Some(Reason::KubeletCrashed));
    assert_eq!(kubelet.take_wanted_words(at(SECOND + 10)), None);
    assert_eq!(
        kubelet.next_deadline(at(SECOND + 10)),
        Some(at(SECOND + 251).uptime)
    );
    let run = Some(Run::Invocation("a".to_owned()));
    assert_eq!(kubelet.take_wanted_words(at(SECOND + 251)), run);
    assert_eq!(kubelet.take_wanted_words(at(SECOND + 251)), None);
    assert_eq!(kubelet.take_wanted_words(at(3 * SECOND)), run, "once more");
    assert_eq!(kubelet.take_wanted_words(at(6 * SECOND)), None);
    assert_eq!(kubelet.take_wanted_words(at(7 * SECOND)), run, "at last");
    assert_eq!(kubelet.take_wanted_words(at(60 * SECOND)), None);
    kubelet.apply(words("a", "no such flag"), at(7 * SECOND));
    let told = message(&kubelet, 7 * SECOND);
    assert!(
        told.ends_with("(systemd: Result=exit-code); its last error: no such flag"),
        "{told}"
    );
    // Those of another run are not this one's.
    lives(&mut kubelet, "b", 8 * SECOND);
    dies(&mut kubelet, exit("b"), 9 * SECOND);
    assert!(!message(&kubelet, 10 * SECOND).contains("no such flag"));
    assert_eq!(
        kubelet.next_deadline(at(10 * SECOND)),
        Some(at(17 * SECOND).uptime),
        "ten seconds after the last question"
    );
    kubelet.apply(words("b", "no such flag"), at(10 * SECOND));
    assert_eq!(
        kubelet.next_deadline(at(10 * SECOND)),
        None,
        "they are there"
    );
}

#[test]
fn what_is_learnt_late_is_told_as_long_as_the_next_one_has_shown_no_health() {
    let url = || Endpoint::Known("u".into());
    let mut kubelet = healthy();
    dies(&mut kubelet, exit("a"), SECOND);
    lives(&mut kubelet, "b", SECOND + 100);
    kubelet.apply(Sign::Endpoint(PID, url()), at(SECOND + 100));
    kubelet.apply(Sign::Probed(PID, Probe::Refused), at(SECOND + 110));
    assert_eq!(
        reason(&kubelet, SECOND + 110),
        Some(Reason::KubeletStarting)
    );
    kubelet.apply(words("a", "no such flag"), at(SECOND + 300));
    assert_eq!(reason(&kubelet, SECOND + 300), Some(Reason::KubeletCrashed));
    assert!(message(&kubelet, SECOND + 300).contains("no such flag"));
    kubelet.apply(Sign::Probed(PID, Probe::Refused), at(SECOND + 400));
    assert_eq!(
        reason(&kubelet, SECOND + 400),
        Some(Reason::KubeletStarting)
    );
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(SECOND + 500));
    kubelet.apply(words("a", "something else"), at(SECOND + 600));
    assert_eq!(
        reason(&kubelet, SECOND + 600),
        Some(Reason::KubeletIsHealthy)
    );
}

#[test]
fn before_the_join_a_crash_loop_is_by_design() {
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::None(String::new())), at(0));
    for run in ["a", "b", "c", "d"] {
        kubelet.apply(Sign::Unit(exit(run)), at(SECOND));
    }
    let looping = Some(Reason::KubeletCrashLooping);
    assert_eq!(
        reason(&kubelet, SECOND),
        None,
        "the helper has not answered yet"
    );
    assert_eq!(
        reason_after(&kubelet, looping, SECOND),
        looping,
        "it has, in an earlier life"
    );
    assert_eq!(
        kubelet.next_deadline(at(SECOND)),
        Some(at(SECOND + 250).uptime)
    );
    assert_eq!(
        reason(&kubelet, 5 * SECOND),
        looping,
        "and is not waited for long"
    );
    kubelet.apply(Sign::AwaitsJoin(true), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletAwaitsJoin));
    kubelet.apply(Sign::AwaitsJoin(false), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), looping);
    // One that has answered has joined, whatever became of its files.
    let mut kubelet = healthy();
    kubelet.apply(Sign::AwaitsJoin(true), at(SECOND));
    dies(&mut kubelet, exit("a"), 2 * SECOND);
    assert_eq!(reason(&kubelet, 3 * SECOND), Some(Reason::KubeletCrashed));
}

#[test]
fn of_a_child_its_unit_tells_nothing() {
    let mut kubelet = healthy();
    let parent = || Carrier::Child("rke2".to_owned());
    kubelet.apply(Sign::Carrier(PID, parent()), at(10));
    assert!(message(&kubelet, 10).contains("a child of rke2"));
    kubelet.apply(Sign::Gone(PID), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletGone));
    assert!(message(&kubelet, SECOND).contains("its unit tells of rke2 alone"));
    let run = Some(Run::Rke2(PID));
    assert_eq!(kubelet.take_wanted_words(at(2 * SECOND)), run);
    for secs in [6, 12] {
        let process = Process {
            pid: PID,
            started: at(secs * SECOND).uptime,
        };
        kubelet.apply(Sign::Found(Found::One(process)), at(secs * SECOND));
        kubelet.apply(Sign::Carrier(PID, parent()), at(secs * SECOND));
        kubelet.apply(Sign::Gone(PID), at((secs + 1) * SECOND));
    }
    assert_eq!(
        reason(&kubelet, 13 * SECOND),
        Some(Reason::KubeletCrashLooping)
    );
}

#[test]
fn who_wakes_up_late_reads_before_the_wait_is_over() {
    let gone = || after(healthy(), [Sign::Gone(PID)]);
    let mut kubelet = gone();
    kubelet.tick(at(10_200));
    assert_eq!(reason(&kubelet, 10_200), None);
    assert_eq!(kubelet.next_deadline(at(10_200)), Some(at(10_203).uptime));
    kubelet.apply(Sign::Job(7, JobKind::Restart), at(10_201));
    kubelet.tick(at(10_203));
    assert_eq!(reason(&kubelet, 10_203), None);
    // Not for ever.
    let mut kubelet = gone();
    for millis in [10_200, 10_400, 10_600, 10_800, 11_000] {
        assert_eq!(reason(&kubelet, millis), None);
        kubelet.tick(at(millis));
    }
    assert_eq!(reason(&kubelet, 11_000), Some(Reason::KubeletGone));
}
