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
    say(&mut tainter, reason);
    tainter
}

fn say(tainter: &mut Tainter, reason: Reason) {
    let verdict = Verdict {
        status: reason.status(),
        reason,
        message: String::new(),
        since: jiff::Timestamp::UNIX_EPOCH,
    };
    let verdicts = [(ConditionType::KubeletHealthy, &verdict)];
    let wished = wished(tainter.rules(), verdicts.into_iter(), false);
    tainter.want(wished);
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
    say(&mut tainter, Reason::KubeletIsHealthy);
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
