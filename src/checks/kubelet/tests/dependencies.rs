//! Stops that follow from another unit, and such as do not.

use super::*;
use crate::health::START_GRACE;

const OTHER: &str = "containerd.service";

fn tied(tie: Tie) -> Kubelet {
    let mut kubelet = healthy();
    let Sign::Unit(mut unit) = running() else {
        unreachable!()
    };
    unit.dependencies = vec![Dependency {
        unit: OTHER.to_owned(),
        tie,
    }];
    kubelet.apply(Sign::Unit(unit), at(5));
    let first = if tie == Tie::Conflicts {
        "inactive"
    } else {
        "active"
    };
    other(&mut kubelet, first, 6);
    kubelet
}

fn say(kubelet: &mut Kubelet, sign: Sign, millis: u64) {
    kubelet.apply(Sign::Other(OTHER.to_owned(), Box::new(sign)), at(millis));
}

fn other(kubelet: &mut Kubelet, active: &str, millis: u64) {
    say(kubelet, unit(active, "", 0, (0, 0, 0)), millis);
}

/// A stop job of that number for the kubelet, which ends by it.
fn stopped(kubelet: &mut Kubelet, id: u32, millis: u64) {
    kubelet.apply(Sign::Job(id, JobKind::Unasked), at(millis));
    kubelet.apply(Sign::Job(id, JobKind::Stop), at(millis + 1));
    kubelet.apply(Sign::Gone(PID), at(millis + 50));
    let Sign::Unit(mut down) = unit("inactive", "dead", 0, (100, 1, 0)) else {
        unreachable!()
    };
    down.dependencies = kubelet.unit.clone().unwrap_or_default().dependencies;
    kubelet.apply(Sign::Unit(down), at(millis + 51));
    kubelet.apply(Sign::JobDone(id), at(millis + 52));
}

fn message(kubelet: &Kubelet, millis: u64) -> String {
    match kubelet.assess(None, at(millis)) {
        Assessment::Found(finding) => finding.message,
        Assessment::NothingNew => String::new(),
    }
}

const GRACE: u64 = START_GRACE.as_secs() * 1000;
const WILLED: Option<Reason> = Some(Reason::KubeletStoppedByOperator);
const AWAITS: Option<Reason> = Some(Reason::KubeletAwaitsDependency);
const DOWN: Option<Reason> = Some(Reason::KubeletStoppedWithDependency);

#[test]
fn a_unit_that_dies_and_takes_the_kubelet_along_is_nobodys_will() {
    let mut kubelet = tied(Tie::BindsTo);
    other(&mut kubelet, "activating", 10_000);
    stopped(&mut kubelet, 7, 10_001);
    assert_eq!(reason(&kubelet, 10_100), AWAITS);
    // Its time counts from when the other one is back, the first time.
    other(&mut kubelet, "active", 15_000);
    let due = 15_000 + GRACE;
    assert_eq!(reason(&kubelet, due - 1), AWAITS);
    assert_eq!(kubelet.next_deadline(at(due - 1)), Some(at(due).uptime));
    assert_eq!(reason(&kubelet, due), DOWN);
    let mut looping = kubelet;
    other(&mut looping, "activating", due + 1000);
    other(&mut looping, "active", due + 6000);
    assert_eq!(reason(&looping, due + 7000), DOWN);
    // One that stays away: from its end.
    let mut kubelet = tied(Tie::BindsTo);
    other(&mut kubelet, "failed", 10_000);
    stopped(&mut kubelet, 7, 10_001);
    assert_eq!(reason(&kubelet, 10_000 + GRACE - 1), AWAITS);
    assert_eq!(reason(&kubelet, 10_000 + GRACE), DOWN);
    // Somebody stops it while it is away: it is in somebody's hands.
    say(&mut kubelet, Sign::Job(9, JobKind::Stop), 10_000 + GRACE);
    assert_eq!(reason(&kubelet, 10_001 + GRACE), WILLED);
    // Another kubelet ends by its own stop.
    kubelet.apply(Sign::Found(Found::One(process(PID + 1))), at(300_000));
    kubelet.apply(Sign::Job(11, JobKind::Stop), at(300_010));
    kubelet.apply(Sign::Gone(PID + 1), at(300_020));
    assert_eq!(reason(&kubelet, 900_000), WILLED);
}

#[test]
fn what_is_down_by_a_stop_job_excuses_the_kubelet_until_it_is_back() {
    for tie in [Tie::BindsTo, Tie::Requires, Tie::PartOf, Tie::Requisite] {
        for is_typed in [true, false] {
            let mut kubelet = tied(tie);
            say(&mut kubelet, Sign::Job(6, JobKind::Unasked), 10_000);
            if is_typed {
                say(&mut kubelet, Sign::Job(6, JobKind::Stop), 10_002);
            }
            stopped(&mut kubelet, 7, 10_000);
            other(&mut kubelet, "deactivating", 10_100);
            // It may end in a failure all the same.
            other(
                &mut kubelet,
                if is_typed { "failed" } else { "inactive" },
                10_110,
            );
            say(&mut kubelet, Sign::JobDone(6), 10_111);
            assert_eq!(reason(&kubelet, 10_200), WILLED, "{tie:?}");
            assert_eq!(reason(&kubelet, 10 * GRACE), WILLED, "{tie:?}");
            other(&mut kubelet, "active", 10 * GRACE);
            assert_eq!(reason(&kubelet, 11 * GRACE - 1), AWAITS, "{tie:?}");
            assert_eq!(reason(&kubelet, 11 * GRACE), DOWN, "{tie:?}");
            // Without the bus nobody knows how the other one is.
            kubelet.apply(Sign::BusLost, at(11 * GRACE + 1));
            assert_eq!(reason(&kubelet, 12 * GRACE), WILLED, "{tie:?}");
        }
    }
}

#[test]
fn a_stop_of_the_kubelet_is_not_put_down_to_what_is_stopped_after_it() {
    for tie in [Tie::BindsTo, Tie::Requires] {
        let mut kubelet = tied(tie);
        stopped(&mut kubelet, 7, 10_000);
        say(&mut kubelet, Sign::Job(8, JobKind::Stop), 10_100);
        other(&mut kubelet, "inactive", 10_200);
        say(&mut kubelet, Sign::JobDone(8), 10_201);
        other(&mut kubelet, "active", 11_000);
        assert_eq!(reason(&kubelet, 10 * GRACE), WILLED, "{tie:?}");
    }
    // Both are stopped by one command, and only the other is started again.
    for (ended_first, is_typed) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut kubelet = tied(Tie::BindsTo);
        say(&mut kubelet, Sign::Job(6, JobKind::Stop), 10_000);
        if !ended_first {
            // It gets the job that is there. Which type that has may be known later.
            kubelet.apply(Sign::Job(7, JobKind::Unasked), at(10_001));
            if is_typed {
                kubelet.apply(Sign::Job(7, JobKind::Stop), at(10_002));
            }
            kubelet.apply(Sign::JobAgain(7), at(10_003));
        }
        stopped(&mut kubelet, 7, 10_004);
        if ended_first {
            // It is down: it gets a job of its own, which is over at once.
            kubelet.apply(Sign::Job(8, JobKind::Unasked), at(10_060));
            if is_typed {
                kubelet.apply(Sign::Job(8, JobKind::Stop), at(10_061));
            }
            kubelet.apply(Sign::JobDone(8), at(10_062));
        }
        other(&mut kubelet, "inactive", 10_110);
        say(&mut kubelet, Sign::JobDone(6), 10_111);
        assert_eq!(reason(&kubelet, 10_200), WILLED);
        other(&mut kubelet, "active", 11_000);
        let case = format!("{ended_first} {is_typed}");
        assert_eq!(reason(&kubelet, 10 * GRACE), WILLED, "{case}");
    }
    // What was asked for again in an earlier life is over.
    let mut kubelet = tied(Tie::Requires);
    stopped(&mut kubelet, 7, 10_000);
    kubelet.apply(Sign::JobAgain(7), at(10_100));
    kubelet.apply(Sign::Found(Found::One(process(PID + 1))), at(20_000));
    say(&mut kubelet, Sign::Job(20, JobKind::Stop), 30_000);
    kubelet.apply(Sign::Job(21, JobKind::Stop), at(30_001));
    kubelet.apply(Sign::Gone(PID + 1), at(30_010));
    other(&mut kubelet, "inactive", 30_020);
    other(&mut kubelet, "active", 31_000);
    assert_eq!(reason(&kubelet, 32_000), AWAITS);
    // It ended long before, and the kubelet lived on.
    let mut kubelet = tied(Tie::Requires);
    other(&mut kubelet, "failed", 5_000);
    stopped(&mut kubelet, 7, 5_100);
    assert_eq!(reason(&kubelet, 10 * GRACE), WILLED);
}

#[test]
fn who_excludes_the_kubelet_has_it_stopped_while_it_runs() {
    let mut kubelet = tied(Tie::Conflicts);
    say(&mut kubelet, Sign::Job(6, JobKind::Start), 10_000);
    stopped(&mut kubelet, 7, 10_000);
    other(&mut kubelet, "active", 10_200);
    assert_eq!(reason(&kubelet, 10 * GRACE), WILLED);
    other(&mut kubelet, "failed", 10 * GRACE);
    assert_eq!(reason(&kubelet, 11 * GRACE - 1), AWAITS);
    assert_eq!(reason(&kubelet, 11 * GRACE), DOWN);
}

const FAR: &str = "far.service";

/// The kubelet depends on [`OTHER`], and that one so on [`FAR`].
fn chained(near: Tie, far: Tie) -> Kubelet {
    let mut kubelet = tied(near);
    // It is told of before anybody knows that the other one depends on it, as a container runtime is.
    far_says(&mut kubelet, unit("active", "", 0, (0, 0, 0)), 7);
    other_tied(&mut kubelet, "active", far, 8);
    kubelet
}

fn far_says(kubelet: &mut Kubelet, sign: Sign, millis: u64) {
    kubelet.apply(Sign::Other(FAR.to_owned(), Box::new(sign)), at(millis));
}

fn other_tied(kubelet: &mut Kubelet, active: &str, tie: Tie, millis: u64) {
    let Sign::Unit(mut word) = unit(active, "", 0, (0, 0, 0)) else {
        unreachable!()
    };
    let unit = FAR.to_owned();
    word.dependencies = vec![Dependency { unit, tie }];
    say(kubelet, Sign::Unit(word), millis);
}

/// systemd stops the other one by that job, and the kubelet with it by the next.
fn both_stopped(kubelet: &mut Kubelet, tie: Tie, id: u32, millis: u64) {
    say(kubelet, Sign::Job(id, JobKind::Unasked), millis);
    say(kubelet, Sign::Job(id, JobKind::Stop), millis + 1);
    stopped(kubelet, id + 1, millis);
    other_tied(kubelet, "inactive", tie, millis + 60);
    say(kubelet, Sign::JobDone(id), millis + 61);
}

#[test]
fn a_chain_of_units_is_followed_to_the_one_with_which_it_began() {
    for near in [Tie::BindsTo, Tie::Requires, Tie::PartOf] {
        let mut kubelet = chained(near, Tie::BindsTo);
        far_says(&mut kubelet, unit("activating", "", 0, (0, 0, 0)), 10_000);
        both_stopped(&mut kubelet, Tie::BindsTo, 7, 10_001);
        assert_eq!(reason(&kubelet, 10_200), AWAITS, "{near:?}");
        let text = message(&kubelet, 10_200);
        assert!(
            text.contains(OTHER) && text.contains("BindsTo=far.service"),
            "{text}"
        );
        far_says(&mut kubelet, unit("active", "", 0, (0, 0, 0)), 15_000);
        let due = 15_000 + GRACE;
        assert_eq!(reason(&kubelet, due - 1), AWAITS, "{near:?}");
        assert_eq!(kubelet.next_deadline(at(due - 1)), Some(at(due).uptime));
        assert_eq!(reason(&kubelet, due), DOWN, "{near:?}");
        // Somebody stops what is between: it is in somebody's hands.
        say(&mut kubelet, Sign::Job(30, JobKind::Stop), due + 1);
        assert_eq!(reason(&kubelet, due + 2), WILLED, "{near:?}");
    }
}

#[test]
fn a_chain_that_began_with_a_stop_job_excuses_the_kubelet_until_that_is_undone() {
    for far in [Tie::BindsTo, Tie::Requires, Tie::PartOf] {
        let mut kubelet = chained(Tie::BindsTo, far);
        far_says(&mut kubelet, Sign::Job(6, JobKind::Stop), 10_000);
        both_stopped(&mut kubelet, far, 7, 10_001);
        far_says(&mut kubelet, unit("inactive", "", 0, (0, 0, 0)), 10_100);
        far_says(&mut kubelet, Sign::JobDone(6), 10_101);
        assert_eq!(reason(&kubelet, 10 * GRACE), WILLED, "{far:?}");
        far_says(&mut kubelet, unit("active", "", 0, (0, 0, 0)), 10 * GRACE);
        assert_eq!(reason(&kubelet, 10 * GRACE + 1), AWAITS, "{far:?}");
        assert_eq!(reason(&kubelet, 11 * GRACE), DOWN, "{far:?}");
    }
    // The far one was there all the time: somebody has stopped the other one.
    let mut kubelet = chained(Tie::BindsTo, Tie::BindsTo);
    both_stopped(&mut kubelet, Tie::BindsTo, 7, 10_000);
    assert_eq!(reason(&kubelet, 10 * GRACE), WILLED);
    // It ended after the other one was stopped.
    let mut kubelet = chained(Tie::BindsTo, Tie::Requires);
    both_stopped(&mut kubelet, Tie::Requires, 7, 10_000);
    far_says(&mut kubelet, unit("failed", "", 0, (0, 0, 0)), 10_200);
    assert_eq!(reason(&kubelet, 10 * GRACE), WILLED);
}

#[test]
fn units_that_depend_on_each_other_make_no_endless_chain() {
    let mut kubelet = chained(Tie::BindsTo, Tie::BindsTo);
    let Sign::Unit(mut word) = unit("active", "", 0, (0, 0, 0)) else {
        unreachable!()
    };
    word.dependencies = vec![Dependency {
        unit: OTHER.to_owned(),
        tie: Tie::BindsTo,
    }];
    far_says(&mut kubelet, Sign::Unit(word), 9);
    far_says(&mut kubelet, Sign::Job(6, JobKind::Stop), 10_000);
    both_stopped(&mut kubelet, Tie::BindsTo, 7, 10_001);
    assert_eq!(reason(&kubelet, 10 * GRACE), WILLED);
}

#[test]
fn after_a_restart_of_ours_it_is_known_by_what_the_node_says() {
    let mut kubelet = Kubelet::new("kubelet.service");
    let Sign::Unit(mut word) = unit("inactive", "dead", 0, (100, 1, 0)) else {
        unreachable!()
    };
    word.dependencies = vec![Dependency {
        unit: OTHER.to_owned(),
        tie: Tie::BindsTo,
    }];
    kubelet.apply(Sign::Unit(word), at(0));
    kubelet.apply(Sign::Found(Found::None("none".to_owned())), at(0));
    other(&mut kubelet, "inactive", 1);
    assert_eq!(reason_after(&kubelet, AWAITS, 2 * GRACE), AWAITS);
    assert_eq!(reason_after(&kubelet, DOWN, 1), DOWN);
    assert_eq!(reason_after(&kubelet, WILLED, 2 * GRACE), WILLED);
    other(&mut kubelet, "active", 2);
    assert_eq!(reason_after(&kubelet, AWAITS, GRACE - 1), AWAITS);
    assert_eq!(reason_after(&kubelet, AWAITS, GRACE), DOWN);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut kubelet = tied(Tie::BindsTo);
    let Sign::Unit(mut word) = running() else {
        unreachable!()
    };
    let many = 0..1000;
    let named = |n| Dependency {
        unit: format!("{n}.service"),
        tie: Tie::Requires,
    };
    word.dependencies = many.clone().map(named).collect();
    kubelet.apply(Sign::Unit(word), at(10));
    for id in many {
        let job = Box::new(Sign::Job(id, JobKind::Stop));
        kubelet.apply(Sign::Other("7.service".to_owned(), job), at(11));
        let Sign::Unit(mut word) = unit("active", "", 0, (0, 0, 0)) else {
            unreachable!()
        };
        let of = format!("{}.service", id % 100);
        word.dependencies = (200..300).map(named).collect();
        kubelet.apply(Sign::Other(of, Box::new(Sign::Unit(word))), at(12));
    }
    assert!(kubelet.dependencies.size() <= 2 * MAX_DEPENDENCIES * 5 + 4 * MAX_DEPENDENCIES);
}
