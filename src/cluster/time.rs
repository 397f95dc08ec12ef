//! The cluster's time: what the API server's clock says now, learnt from the `Date` of its answers.
//!
//! Controllers compare the times on the Node with a clock of the cluster. The node's own may be wrong by any amount: a clock in
//! local time, a dead battery, a resumed image. So what is published is `CLOCK_BOOTTIME` plus an offset, and the wall clock serves
//! only until the first answer.
//!
//! `Date` has whole seconds and is written at some moment between the request and its answer. An answer therefore gives an
//! interval for the offset. Intervals of several answers are intersected. The result widens with time, because no two clocks run
//! alike. An answer that contradicts it replaces it: the newest wins, for a server's clock may be set, and there may be
//! several servers.
//!
//! Published is the interval's lower end: a time that the API server's clock has certainly reached.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

use crate::clock::Now;

/// How far two clocks may drift apart, in parts per million: adjtimex(2) slews each by at most 500.
const DRIFT_PPM: u32 = 1000;
/// `Date` is cut to whole seconds (RFC 9110, 5.6.7).
const GRAIN: SignedDuration = SignedDuration::from_secs(1);
/// Answers that wait for the loop; it takes them at each of its turns.
const MAX_WAITING: usize = 8;

/// An answer of the API server that carried a `Date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatedAnswer {
    /// When the request was sent (uptime).
    pub sent: Duration,
    /// When the answer's headers were there (uptime).
    pub received: Duration,
    /// Its `Date`.
    pub date: Timestamp,
}

impl DatedAnswer {
    /// The answer with these headers; `None` without a `Date` that can be read.
    pub fn new(sent: Duration, received: Duration, headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(DATE)?.to_str().ok()?;
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Self {
            sent,
            received,
            date,
        })
    }

    /// The offset that it allows.
    fn offset(&self) -> Option<Interval> {
        let date = self.date.duration_since(Timestamp::UNIX_EPOCH);
        Some(Interval {
            low: date.checked_sub(signed(self.received)?)?,
            high: date.checked_add(GRAIN)?.checked_sub(signed(self.sent)?)?,
        })
    }
}

/// The answers that the loop has not taken in yet: requests end on tasks of their own.
#[derive(Debug, Clone, Default)]
pub struct DatedAnswers(Arc<Mutex<Vec<DatedAnswer>>>);

impl DatedAnswers {
    /// Keeps the answer; of too many the oldest goes.
    pub fn push(&self, answer: DatedAnswer) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == MAX_WAITING {
            waiting.remove(0);
        }
        waiting.push(answer);
    }

    /// Hands all of them to `learn`, the oldest first.
    pub fn drain(&self, learn: impl FnMut(DatedAnswer)) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain(..).for_each(learn);
    }
}

/// By how much the cluster's time is ahead of the uptime, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    low: SignedDuration,
    high: SignedDuration,
}

impl Interval {
    /// `None` where the two contradict each other.
    fn intersect(self, other: Self) -> Option<Self> {
        let both = Self {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        };
        (both.low <= both.high).then_some(both)
    }

    /// The same, so much later.
    fn widened(self, passed: Duration) -> Self {
        let drift = signed(passed * DRIFT_PPM / 1_000_000).unwrap_or(SignedDuration::MAX);
        Self {
            low: self.low.saturating_sub(drift),
            high: self.high.saturating_add(drift),
        }
    }
}

/// What is known of the cluster's time.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterTime {
    /// The offset, and the uptime for which it holds.
    known: Option<(Interval, Duration)>,
}

impl ClusterTime {
    /// Learns from an answer.
    pub fn learn(&mut self, answer: &DatedAnswer) {
        let Some(fresh) = answer.offset() else {
            return;
        };
        let offset = match self.known {
            // Its clock was read before what is known already.
            Some((_, at)) if at > answer.received => return,
            Some((known, at)) => {
                let known = known.widened(answer.received.saturating_sub(at));
                known.intersect(fresh).unwrap_or(fresh)
            }
            None => fresh,
        };
        self.known = Some((offset, answer.received));
    }

    /// The latest time that the API server's clock has certainly reached; `None` before the first answer.
    pub fn at(&self, uptime: Duration) -> Option<Timestamp> {
        let (offset, known_at) = self.known?;
        let low = offset.widened(uptime.saturating_sub(known_at)).low;
        let since_epoch = low.checked_add(signed(uptime)?)?;
        Timestamp::UNIX_EPOCH.checked_add(since_epoch).ok()
    }

    /// The moment with the cluster's time in the place of the wall clock's, for all that is published. Before the first
    /// answer it is as it was: nothing waits for a `Date`.
    pub fn of(&self, now: Now) -> Now {
        Now {
            wall: self.at(now.uptime).unwrap_or(now.wall),
            ..now
        }
    }

    /// By how much the node's wall clock is ahead of the cluster's; `None` before the first answer.
    pub fn wall_is_ahead_by(&self, now: Now) -> Option<SignedDuration> {
        Some(now.wall.duration_since(self.at(now.uptime)?))
    }
}

fn signed(duration: Duration) -> Option<SignedDuration> {
    SignedDuration::try_from(duration).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH_MS: i64 = 1_800_000_000_000;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// An answer of a server whose clock is `EPOCH_MS` ahead of the uptime.
    fn answer(sent: u64, dated: u64, received: u64) -> DatedAnswer {
        let date = EPOCH_MS + i64::try_from(dated).unwrap();
        DatedAnswer {
            sent: millis(sent),
            received: millis(received),
            date: Timestamp::from_second(date.div_euclid(1000)).unwrap(),
        }
    }

    fn behind_ms(time: &ClusterTime, uptime: u64) -> i64 {
        let published = time.at(millis(uptime)).unwrap().as_millisecond();
        EPOCH_MS + i64::try_from(uptime).unwrap() - published
    }

    #[test]
    fn nothing_is_known_before_the_first_answer_and_the_wall_clock_serves() {
        let time = ClusterTime::default();
        let now = Now {
            uptime: millis(5),
            wall: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(time.of(now), now);
        assert_eq!(time.wall_is_ahead_by(now), None);
    }

    #[test]
    fn answers_narrow_the_interval_and_time_widens_it() {
        let mut time = ClusterTime::default();
        time.learn(&answer(1000, 1990, 2000));
        assert_eq!(behind_ms(&time, 2000), 1000, "the second was nearly over");
        time.learn(&answer(2995, 3001, 3010));
        assert!(behind_ms(&time, 3010) <= 10, "it had just begun");
        let hour = 3_600_000;
        assert_eq!(behind_ms(&time, 3010 + hour), 10 + 3600);
    }

    #[test]
    fn the_newest_wins_when_a_clock_was_set() {
        let mut time = ClusterTime::default();
        time.learn(&answer(0, 1, 2));
        let mut set = answer(1000, 1001, 1002);
        set.date = set.date.checked_sub(SignedDuration::from_hours(1)).unwrap();
        time.learn(&set);
        assert!(behind_ms(&time, 1002) >= 3_600_000);
        // What was on its way before says nothing of it.
        time.learn(&answer(500, 501, 502));
        assert!(behind_ms(&time, 1002) >= 3_600_000);
    }

    #[test]
    fn an_answer_without_a_date_teaches_nothing() {
        let mut headers = HeaderMap::new();
        assert_eq!(DatedAnswer::new(millis(1), millis(2), &headers), None);
        headers.insert(DATE, "yesterday".parse().unwrap());
        assert_eq!(DatedAnswer::new(millis(1), millis(2), &headers), None);
        headers.insert(DATE, "Fri, 15 Jan 2027 08:00:00 GMT".parse().unwrap());
        let dated = DatedAnswer::new(millis(1), millis(2), &headers).unwrap();
        assert_eq!(dated.date.as_millisecond(), EPOCH_MS);
    }

    #[test]
    fn few_answers_wait() {
        let answers = DatedAnswers::default();
        for millis in 0..100 {
            answers.push(answer(millis, millis, millis));
        }
        let mut seen = Vec::new();
        answers.drain(|answer| seen.push(answer.received.as_millis()));
        assert_eq!(seen, (92..100).collect::<Vec<_>>());
        answers.drain(|_| panic!("all were taken"));
    }

    proptest! {
        /// Whatever the answers, their delays and the drift of the clocks: never in the cluster's future, and behind it by no
        /// more than a second, the way back of the best answer and the drift since.
        #[test]
        fn the_published_time_is_reached_and_near(
            answers in prop::collection::vec((1..400_000_u64, 0..3000_u64, 0..3000_u64), 1..40),
            drift_ppm in -900..900_i64,
        ) {
            let cluster_ms = |uptime: u64| {
                let uptime = i64::try_from(uptime).unwrap();
                EPOCH_MS + uptime + uptime * drift_ppm / 1_000_000
            };
            let (mut time, mut now) = (ClusterTime::default(), 1000);
            for (wait, there, back) in answers {
                let dated = now + wait + there;
                let received = dated + back;
                time.learn(&DatedAnswer {
                    sent: millis(now + wait),
                    received: millis(received),
                    date: Timestamp::from_second(cluster_ms(dated).div_euclid(1000)).unwrap(),
                });
                now = received;
                for later in [0, 1000, 600_000] {
                    let published = time.at(millis(received + later)).unwrap().as_millisecond();
                    let reached = cluster_ms(received + later);
                    prop_assert!(published <= reached, "{published} > {reached}");
                    let most = 1001 + i64::try_from(back + later / 500 + 1).unwrap();
                    prop_assert!(reached - published <= most, "{} ms behind", reached - published);
                }
            }
        }
    }
}
