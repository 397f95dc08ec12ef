//! Races, refusals, and what is not even tried.

use serde_json::json;

use super::*;
use crate::{
    desired::taints::DEFAULT_PREFIX,
    health::{ConditionType, Reason, Verdict},
};

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_millis(millis),
        wall: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn tainter(reason: Reason) -> Tainter {
    let mut tainter = Tainter::new(
        Rules {
            conditions: vec![ConditionType::KubeletHealthy],
            ..Rules::default()
        },
        "n1",
    );
    tainter.seen(Some(("u1", &Value::Null)));
    say(&mut tainter, reason, at(0));
    tainter
}

fn say(tainter: &mut Tainter, reason: Reason, now: Now) {
    let verdict = Verdict {
        status: reason.status(),
        reason,
        message: String::new(),
        since: jiff::Timestamp::UNIX_EPOCH,
        others: Vec::new(),
        next: None,
    };
    let verdicts = [(ConditionType::KubeletHealthy, &verdict)];
    let wished = wished(tainter.rules(), verdicts.into_iter(), Suppression::None);
    tainter.want(wished, now);
}

fn list() -> Value {
    json!([{"key": format!("{DEFAULT_PREFIX}kubelet-unhealthy"), "value": "KubeletGone", "effect": "NoSchedule"}])
}

#[test]
fn one_try_when_it_is_needed_and_none_when_it_is_not() {
    let mut tainter = tainter(Reason::KubeletCrashed);
    let first = tainter.next(at(1)).unwrap();
    assert_eq!((first.uid.as_str(), tainter.next(at(1))), ("u1", None));
    assert_eq!(tainter.to_add().len(), 1);
    let done = Ok(Tainted::Done(list()));
    assert_eq!(tainter.done(first.attempt, done, at(2)), Some(Ok(())));
    assert_eq!(tainter.next(at(3)), None);
    assert_eq!((tainter.to_add().len(), tainter.shown().count()), (0, 1));
    say(&mut tainter, Reason::KubeletIsHealthy, at(3));
    assert!(tainter.next(at(4)).is_some());
}

#[test]
fn nothing_comes_or_goes_before_a_check_has_spoken() {
    let rules = Rules {
        conditions: vec![ConditionType::KubeletHealthy],
        ..Rules::default()
    };
    let mut tainter = Tainter::new(rules, "n1");
    tainter.seen(Some(("u1", &list())));
    assert_eq!(tainter.next(at(1)), None);
    // But what nobody asks for any more goes.
    let mut tainter = Tainter::new(Rules::default(), "n1");
    assert_eq!(tainter.next(at(1)), None, "no Node");
    tainter.seen(Some(("u1", &list())));
    assert!(tainter.next(at(1)).is_some());
}

#[test]
fn five_tries_in_a_race_and_then_it_is_a_failure() {
    let mut tainter = tainter(Reason::KubeletCrashed);
    let (mut now, mut tries) = (1, 0);
    loop {
        let Some(task) = tainter.next(at(now)) else {
            now += 10;
            continue;
        };
        tries += 1;
        match tainter.done(task.attempt, Ok(Tainted::Raced), at(now)) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                assert_eq!(error.code(), 422);
                break;
            }
            None => panic!("it was in flight"),
        }
    }
    assert_eq!(tries, 5);
    assert!(now < 3_000, "{now} ms");
    assert!(tainter.problem().unwrap().contains("policy"));
}

#[test]
fn an_answer_to_what_was_given_up_counts_for_nothing() {
    let mut tainter = tainter(Reason::KubeletCrashed);
    let given_up = tainter.next(at(1)).unwrap().attempt;
    tainter.forget_in_flight();
    tainter.next(at(2)).unwrap();
    let done = Ok(Tainted::Done(list()));
    assert_eq!(tainter.done(given_up, done, at(3)), None);
    assert_eq!(tainter.shown().count(), 0);
}

#[test]
fn what_the_identity_may_not_do_is_said_once_and_only_where_it_is_asked_for() {
    let mut tainter = tainter(Reason::KubeletCrashed);
    assert!(tainter.refuse(Some("no")));
    assert!(!tainter.refuse(Some("no")));
    assert_eq!(tainter.next(at(1)), None);
    assert_eq!(tainter.problem().as_deref(), Some("no"));
    assert!(!tainter.refuse(None));
    assert!(tainter.next(at(2)).is_some());
    let mut unasked = Tainter::new(Rules::default(), "n1");
    assert!(!unasked.refuse(Some("no")) && unasked.problem().is_none());
}

#[test]
fn a_sampled_reason_waits_and_a_fact_does_not() {
    let mut tainter = tainter(Reason::KubeletIsHealthy);
    let minute = 60_000;
    say(&mut tainter, Reason::KubeletHung, at(1000));
    assert_eq!(tainter.next(at(1000)), None);
    assert_eq!(tainter.to_add().len(), 1, "it is to come");
    let due = at(1000 + minute).uptime;
    assert_eq!(tainter.next_deadline(at(1000)), Some(due));
    // What is found again and again does not begin anew, and what is over does.
    say(&mut tainter, Reason::KubeletHealthzDown, at(30_000));
    assert_eq!(tainter.next_deadline(at(30_000)), Some(due));
    assert_eq!(tainter.next(at(999 + minute)), None);
    say(&mut tainter, Reason::KubeletIsHealthy, at(40_000));
    assert_eq!(tainter.next_deadline(at(40_000)), None);
    say(&mut tainter, Reason::KubeletHung, at(50_000));
    assert_eq!(tainter.next(at(1000 + minute)), None);
    let task = tainter.next(at(50_000 + minute)).unwrap();
    let list = plan(&task.rules, &task.wished, &Value::Null, at(0).wall).unwrap();
    assert_eq!(list[0]["value"], "KubeletHung");
    // A fact that comes in the meantime taints at once.
    tainter.forget_in_flight();
    say(&mut tainter, Reason::KubeletIsHealthy, at(200_000));
    say(&mut tainter, Reason::KubeletHung, at(210_000));
    assert_eq!(tainter.next(at(210_000)), None);
    say(&mut tainter, Reason::KubeletCrashed, at(211_000));
    assert!(tainter.next(at(211_000)).is_some());
}

#[test]
fn a_restart_counts_anew_and_leaves_what_is_there() {
    let mut there = tainter(Reason::KubeletHung);
    there.seen(Some(("u1", &list())));
    assert_eq!(there.next_deadline(at(1)), None);
    assert_eq!(there.next(at(100_000)), None);
    // Not there yet: the whole wait, from the first verdict of this life on.
    let mut missing = tainter(Reason::KubeletHung);
    assert_eq!(missing.next(at(59_999)), None);
    assert!(missing.next(at(60_000)).is_some());
}

#[test]
fn a_suppression_in_between_starts_the_wait_anew() {
    let mut tainter = tainter(Reason::KubeletHung);
    let kept = wished(tainter.rules(), std::iter::empty(), Suppression::NoNew);
    tainter.want(kept, at(30_000));
    assert_eq!(tainter.next_deadline(at(30_000)), None);
    say(&mut tainter, Reason::KubeletHung, at(50_000));
    assert_eq!(tainter.next(at(109_999)), None);
    assert!(tainter.next(at(110_000)).is_some());
}
