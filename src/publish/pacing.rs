//! How often something may be tried or done. Pure; the time is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use crate::condition::Uptime;

const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Failures are forgotten if none follows for this time after the delay.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// The delay after a refusal for lack of permission: a person has to change something.
const LONGEST_DENIED: Duration = Duration::from_mins(1);
/// Such a refusal counts as this many failures, so the first delay is 8 to 16 seconds.
const DENIED_COUNTS: u32 = 6;

/// Exponential backoff with jitter, so that the nodes of a cluster do not retry all at once.
#[derive(Debug)]
pub struct Backoff {
    longest: Duration,
    failures: u32,
    is_denied: bool,
    until: Option<Uptime>,
}

impl Backoff {
    /// No failure so far; waits `longest` at most.
    pub const fn new(longest: Duration) -> Self {
        Self { longest, failures: 0, is_denied: false, until: None }
    }

    /// Takes in a failure. `at_least` is what the other side asked for (`Retry-After`).
    pub fn failed(&mut self, now: Uptime, at_least: Duration) {
        if self.until.is_some_and(|until| now > until + FORGOTTEN_AFTER) {
            (self.failures, self.is_denied) = (0, false);
        }
        self.failures = self.failures.saturating_add(1);
        self.wait(now, at_least);
    }

    /// Takes in that the request was not allowed.
    pub fn denied(&mut self, now: Uptime) {
        self.failed(now, Duration::ZERO);
        (self.failures, self.is_denied) = (self.failures.max(DENIED_COUNTS + 1), true);
        self.wait(now, Duration::ZERO);
    }

    /// Takes in a success: nothing waits any more. Whether the attempt before it had failed.
    pub fn succeeded(&mut self) -> bool {
        (self.until, self.is_denied) = (None, false);
        std::mem::take(&mut self.failures) > 0
    }

    /// When the next attempt may be made; none if now.
    pub fn until(&self, now: Uptime) -> Option<Uptime> {
        self.until.filter(|&until| now < until)
    }

    /// Takes in that an attempt begins. After a failure the next one waits as well, even while this one has not ended.
    pub fn attempt(&mut self, now: Uptime) {
        if self.failures > 0 {
            self.wait(now, Duration::ZERO);
        }
    }

    fn wait(&mut self, now: Uptime, at_least: Duration) {
        let doublings = (self.failures - 1).min(16);
        let longest = if self.is_denied { self.longest.max(LONGEST_DENIED) } else { self.longest };
        let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(longest);
        self.until = Some(now + delay.mul_f64(0.5 + fastrand::f64() / 2.0).max(at_least));
    }
}

/// Spreads requests that can wait over time when all agents of a cluster have a reason for them at the same moment: after a start, and
/// when the API server fails and comes back.
#[derive(Debug, Default)]
pub struct Spread {
    pub longest: Duration,
    /// Whether there is something that cannot wait.
    pub is_urgent: bool,
    /// When the next request may be sent, and until when those after it are apart.
    next: Uptime,
    until: Uptime,
}

impl Spread {
    /// Takes in such a moment.
    pub fn begin(&mut self, now: Uptime) {
        self.next = now + self.longest.mul_f64(fastrand::f64());
        self.until = self.next + self.longest;
    }

    /// When the next request may be sent; none if now.
    pub fn until(&self, now: Uptime) -> Option<Uptime> {
        self.event_until(now).filter(|_| !self.is_urgent)
    }

    /// The same for an Event. Even one about a problem can wait, because the condition says the same.
    pub fn event_until(&self, now: Uptime) -> Option<Uptime> {
        (now < self.next).then_some(self.next)
    }

    /// Takes in that a request is sent. An agent sends several in turn, and they would make peaks.
    pub fn sent(&mut self, now: Uptime) {
        if now < self.until {
            self.next = now + self.longest.mul_f64(fastrand::f64() / 2.0);
        }
    }
}

/// A number of times within any period of this length.
#[derive(Debug)]
pub struct Budget {
    times: usize,
    period: Duration,
    spent: VecDeque<Uptime>,
}

impl Budget {
    pub const fn new(times: usize, period: Duration) -> Self {
        Self { times, period, spent: VecDeque::new() }
    }

    /// Until when none of the times is left; none if one is left now.
    pub fn spent_until(&self, now: Uptime) -> Option<Uptime> {
        let first = self.spent.front().filter(|_| self.spent.len() >= self.times);
        first.map(|&at| at + self.period).filter(|&until| now < until)
    }

    /// Spends one of the times; `false` if none is left.
    pub fn take(&mut self, now: Uptime) -> bool {
        let is_left = self.spent_until(now).is_none();
        if is_left {
            self.spent.retain(|&at| now < at + self.period);
            self.spent.push_back(now);
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn requests_are_spread_after_a_common_moment_unless_one_is_urgent() {
        let mut spread = Spread { longest: secs(90), ..Spread::default() };
        assert_eq!(spread.until(at(100)), None);
        let mut waits: Vec<_> = (0..1000)
            .map(|_| {
                spread.begin(at(100));
                spread.until(at(100)).map_or(0, |until| (until - at(100)).as_secs())
            })
            .collect();
        waits.sort_unstable();
        assert!(waits[100] < 15 && waits[900] > 75 && waits[999] <= 90, "{waits:?}");
        let next = spread.until(at(100)).unwrap();
        spread.sent(next);
        assert!(spread.until(next).is_none_or(|until| until <= next + secs(45)));
        spread.is_urgent = true;
        assert_eq!(spread.until(at(100)), None);
        assert!(spread.event_until(at(100)).is_some(), "an Event waits");
        spread.is_urgent = false;
        spread.sent(at(300));
        assert_eq!(spread.until(at(300)), None, "it is over");
    }

    #[test]
    fn each_failure_waits_longer_up_to_the_longest_and_a_success_ends_it() {
        let mut backoff = Backoff::new(secs(15));
        assert_eq!(backoff.until(at(0)), None);
        for (failure, shortest, longest) in [(1, 125, 250), (2, 250, 500), (3, 500, 1000)] {
            backoff.failed(at(100), Duration::ZERO);
            let delay = (backoff.until(at(100)).unwrap() - at(100)).as_millis();
            assert!((shortest..=longest).contains(&delay), "failure {failure}: {delay} ms");
        }
        (0..100).for_each(|_| backoff.failed(at(100), Duration::ZERO));
        assert!(backoff.until(at(100)).unwrap() <= at(115));
        backoff.failed(at(100), secs(40));
        assert_eq!(backoff.until(at(100)), Some(at(140)), "Retry-After is honored");
        backoff.succeeded();
        assert_eq!(backoff.until(at(100)), None);
    }

    #[test]
    fn a_failure_long_after_the_last_one_counts_as_the_first() {
        let mut backoff = Backoff::new(secs(600));
        (0..20).for_each(|_| backoff.failed(at(0), Duration::ZERO));
        let until = backoff.until(at(0)).unwrap();
        backoff.failed(until, Duration::ZERO);
        assert!(backoff.until(until).unwrap() >= until + secs(300), "it came at once");
        let later = backoff.until(until).unwrap() + secs(61);
        backoff.failed(later, Duration::ZERO);
        assert!(backoff.until(later).unwrap() < later + secs(1));
    }

    #[test]
    fn a_refused_credential_is_tried_about_once_a_minute() {
        let (mut backoff, mut now, mut tries) = (Backoff::new(secs(15)), at(1000), [0; 5]);
        while now < at(1300) {
            tries[usize::try_from((now - at(1000)).as_secs() / 60).unwrap()] += 1;
            backoff.denied(now);
            now = backoff.until(now).unwrap();
            backoff.attempt(now);
        }
        assert!(tries[0] <= 4 && tries[1..].iter().all(|tries| *tries <= 2), "{tries:?}");
        backoff.succeeded();
        backoff.failed(now, Duration::ZERO);
        assert!(backoff.until(now).unwrap() <= now + secs(1), "an outage is tried at once again");
    }

    #[test]
    fn while_attempts_fail_they_are_made_one_after_the_other() {
        let mut backoff = Backoff::new(secs(15));
        backoff.attempt(at(1));
        assert_eq!(backoff.until(at(1)), None, "nothing has failed");
        backoff.failed(at(1), Duration::ZERO);
        backoff.attempt(at(5));
        assert!(backoff.until(at(5)).is_some());
    }

    #[test]
    fn a_budget_is_full_again_when_its_period_is_over() {
        let mut budget = Budget::new(2, secs(60));
        assert!(budget.take(at(0)) && budget.take(at(10)) && !budget.take(at(59)));
        assert!(budget.take(at(60)) && !budget.take(at(61)));
        assert_eq!([61, 70].map(|secs| budget.spent_until(at(secs))), [Some(at(70)), None]);
    }
}
