//! The gate alone; hours of failures are played to the whole state in `agent::link`.

use jiff::Timestamp;

use super::*;

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn network() -> ApiError {
    ApiError::Network("refused".to_owned())
}

fn wait(gate: &Gate, kind: RequestKind, now: Now) -> f64 {
    gate.opens_at(kind).saturating_sub(now.uptime).as_secs_f64()
}

#[test]
fn one_request_goes_when_it_is_time_and_opens_for_all() {
    let mut gate = Gate::new("n1");
    assert!(gate.is_open(RequestKind::Apply, at(0)));
    gate.answered(RequestKind::Apply, Err(&network()), at(0));
    for kind in [RequestKind::Apply, RequestKind::Events, RequestKind::Watch] {
        assert!(!gate.is_open(kind, at(499)));
        assert!(gate.is_open(kind, at(1000)));
    }
    gate.sent(RequestKind::Watch, at(1000));
    assert!(!gate.is_open(RequestKind::Apply, at(1001)), "one");
    gate.answered(RequestKind::Watch, Ok(()), at(1002));
    assert!(gate.is_open(RequestKind::Apply, at(1002)));
    assert_eq!(gate.failure(), None);
}

#[test]
fn two_that_fail_together_are_one_trouble() {
    let mut gate = Gate::new("n1");
    gate.answered(RequestKind::Apply, Err(&network()), at(0));
    gate.answered(RequestKind::Taints, Err(&network()), at(1));
    assert!(wait(&gate, RequestKind::Apply, at(0)) <= 1.0);
    assert_eq!(gate.failure(), Some((&network(), 2)));
}

#[test]
fn news_does_not_wait_for_what_the_watch_alone_was_refused() {
    let mut gate = Gate::new("n1");
    gate.answered(RequestKind::Watch, Err(&network()), at(0));
    assert!(gate.is_open(RequestKind::Apply, at(1)));
    assert!(!gate.is_open(RequestKind::Events, at(1)));
    gate.sent(RequestKind::Apply, at(1));
    gate.answered(RequestKind::Apply, Err(&network()), at(2));
    assert!(!gate.is_open(RequestKind::Apply, at(3)), "once");
    let told = ApiError::TooMany(Some(Duration::from_secs(9)));
    let mut gate = Gate::new("n1");
    gate.answered(RequestKind::Watch, Err(&told), at(0));
    assert!(wait(&gate, RequestKind::Apply, at(0)) >= 9.0);
}

#[test]
fn a_refusal_holds_its_own_kind_up() {
    for error in [
        ApiError::Forbidden("no".to_owned()),
        ApiError::Refused {
            code: 422,
            message: "no".to_owned(),
        },
    ] {
        let mut gate = Gate::new("n1");
        gate.answered(RequestKind::Taints, Err(&error), at(0));
        assert!(!gate.is_open(RequestKind::Taints, at(10)));
        assert!(gate.is_open(RequestKind::Apply, at(10)));
        assert!(gate.is_open(RequestKind::Watch, at(10)));
        gate.answered(RequestKind::Apply, Ok(()), at(20));
        assert_eq!(
            gate.failure(),
            Some((&error, 1)),
            "it is no cure for the other"
        );
        assert!(!gate.is_open(RequestKind::Taints, at(21)));
    }
}

#[test]
fn what_all_were_refused_and_one_is_granted_all_try_again() {
    for error in [ApiError::Forbidden(String::new()), ApiError::NotFound] {
        let mut gate = Gate::new("n1");
        for millis in 0..4 {
            for kind in [RequestKind::Events, RequestKind::Watch] {
                gate.answered(kind, Err(&error), at(millis));
            }
        }
        assert!(!gate.is_open(RequestKind::Events, at(5)));
        gate.answered(RequestKind::Watch, Ok(()), at(6));
        assert!(gate.is_open(RequestKind::Events, at(6)));
    }
}

#[test]
fn retry_after_is_honoured_and_bounded() {
    let told = |secs| ApiError::TooMany(Some(Duration::from_secs(secs)));
    for (secs, from, to) in [(20, 20.5, 21.0), (86_400, 300.5, 301.0)] {
        let mut gate = Gate::new("n1");
        gate.answered(RequestKind::Watch, Err(&told(secs)), at(0));
        let wait = wait(&gate, RequestKind::Apply, at(0));
        assert!((from..=to).contains(&wait), "{wait}");
    }
}

#[test]
fn a_credential_is_read_anew_once() {
    let mut gate = Gate::new("n1");
    let refused = ApiError::Unauthorized;
    let remedy = gate.answered(RequestKind::Watch, Err(&refused), at(0));
    assert_eq!(remedy, Remedy::ReadCredential);
    assert!(wait(&gate, RequestKind::Apply, at(0)) >= 60.0);
    gate.credential_renewed(at(5));
    assert!(gate.is_open(RequestKind::Apply, at(5)));
    gate.sent(RequestKind::Apply, at(5));
    let remedy = gate.answered(RequestKind::Apply, Err(&refused), at(10));
    assert_eq!(remedy, Remedy::Wait);
    let wait = wait(&gate, RequestKind::Apply, at(10));
    assert!((60.0..=110.0).contains(&wait), "{wait}");
}

#[test]
fn a_request_that_is_never_heard_of_again_does_not_shut_for_ever() {
    let mut gate = Gate::new("n1");
    gate.answered(RequestKind::Apply, Err(&network()), at(0));
    gate.sent(RequestKind::Apply, at(2000));
    assert!(!gate.is_open(RequestKind::Apply, at(10_000)));
    assert!(gate.is_open(RequestKind::Apply, at(17_000)));
    gate.sent(RequestKind::Apply, at(17_000));
    gate.forget_in_flight();
    assert!(gate.is_open(RequestKind::Apply, at(17_001)));
}

#[test]
fn a_watch_that_ends_in_time_is_opened_soon_and_one_that_does_not_ever_more_slowly() {
    let mut gate = Gate::new("n1");
    gate.watch_ended(at(0).uptime, false, at(290_000));
    assert!(wait(&gate, RequestKind::Watch, at(290_000)) <= 1.0);
    assert!(gate.is_open(RequestKind::Apply, at(290_000)));
    let mut last = 0.0;
    for turn in 0..6 {
        let now = at(300_000 + turn * 20_000);
        gate.watch_ended(now.uptime, false, now);
        last = wait(&gate, RequestKind::Watch, now);
    }
    assert!((8.0..=23.0).contains(&last), "{last}");
    assert_eq!(gate.failure(), None, "nothing to complain of");
}
