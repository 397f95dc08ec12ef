//! The API server's clock, by the `Date` header of its answers, set against the host's time since boot.
//!
//! The host's time of day may be wrong or may be set at any moment; what is written to the API server must not depend on it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};

use crate::{condition::Uptime, host::api::ServerTime};

/// Two clocks of the API server's, or ours and one of theirs, may differ by this much without being wrong.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

const DATE_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// One moment by the two clocks that count.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub uptime: Uptime,
    /// The time of day by the API server's clock.
    pub server: Timestamp,
}

/// The API server's clock; the host's own time of day until the first answer.
#[derive(Debug, Default)]
pub struct ServerClock {
    last: Option<ServerTime>,
}

impl ServerClock {
    /// Takes in the `Date` header of an answer that came at `uptime`. One that is no date changes nothing.
    pub fn record_date(&mut self, date: &str, uptime: Uptime) {
        let Ok(date) = DateTimeParser::new().parse_timestamp(date) else { return };
        // `Date` has whole seconds, cut off: one that is up to a second behind says nothing new. So the time between two transitions is
        // right, whatever fraction of a second each answer came at.
        let says_nothing = |last: &ServerTime| {
            let behind = last.at(uptime).duration_since(date);
            !behind.is_negative() && behind < DATE_PRECISION
        };
        if !self.last.as_ref().is_some_and(says_nothing) {
            self.last = Some(ServerTime { time: date, uptime });
        }
    }

    /// The time of day by the API server's clock; `wall` is the host's.
    pub fn now(&self, uptime: Uptime, wall: Timestamp) -> Now {
        Now { uptime, server: self.last.map_or(wall, |last| last.at(uptime)) }
    }

    /// The last answer's; none before the first one.
    pub fn last(&self) -> Option<ServerTime> {
        self.last
    }
}

/// Kubernetes writes times in whole seconds; cut off, so that none lies in the future.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether a condition of a Node that was created at `created` can have had its transition at `transition`.
pub fn is_sane(transition: Timestamp, created: Timestamp, now: Now) -> bool {
    let after_creation = transition.duration_since(created) >= -TOLERANCE;
    after_creation && now.server.duration_since(transition) >= -TOLERANCE
}

/// How long it is until `until`; zero if it is over.
pub fn left(until: Uptime, now: Uptime) -> Duration {
    until.saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_wrong_or_a_set_host_clock_changes_nothing_once_the_api_server_has_answered() {
        let mut clock = ServerClock::default();
        let wrong = time("2026-11-26T06:57:00Z");
        assert_eq!(clock.now(Duration::from_secs(100), wrong).server, wrong);
        assert_eq!(clock.last(), None);

        clock.record_date("Thu, 26 Nov 2026 06:17:00 GMT", Duration::from_secs(100));
        clock.record_date("no date", Duration::from_secs(101));
        for wall in [wrong, time("1970-01-01T00:00:00Z")] {
            let now = clock.now(Duration::from_secs(130), wall);
            assert_eq!(now.server, time("2026-11-26T06:17:30Z"));
        }
    }

    #[test]
    fn an_answer_late_in_a_second_does_not_set_the_clock_back() {
        let mut clock = ServerClock::default();
        let now = |clock: &ServerClock, secs| clock.now(Duration::from_secs_f64(secs), Timestamp::UNIX_EPOCH).server;
        clock.record_date("Thu, 26 Nov 2026 06:17:00 GMT", Duration::from_millis(100_100));
        clock.record_date("Thu, 26 Nov 2026 06:17:00 GMT", Duration::from_millis(100_900));
        assert_eq!(now(&clock, 101.1), time("2026-11-26T06:17:01Z"));
        clock.record_date("Thu, 26 Nov 2026 06:17:01 GMT", Duration::from_secs(101));
        assert_eq!(now(&clock, 101.0), time("2026-11-26T06:17:01Z"), "it was later than it seemed");
        clock.record_date("Thu, 26 Nov 2026 06:10:00 GMT", Duration::from_secs(102));
        assert_eq!(now(&clock, 102.0), time("2026-11-26T06:10:00Z"), "it was set");
    }

    #[test]
    fn a_transition_lies_between_the_nodes_creation_and_now() {
        let now = Now { uptime: Duration::ZERO, server: time("2026-11-26T06:17:00Z") };
        let created = time("2026-11-26T05:00:00Z");
        for (transition, sane) in [
            ("2026-11-26T05:00:00Z", true),
            ("2026-11-26T06:17:30Z", true),
            ("2026-11-26T06:57:00Z", false),
            ("2026-11-26T04:20:00Z", false),
            ("0001-01-01T00:00:00Z", false),
        ] {
            assert_eq!(is_sane(time(transition), created, now), sane, "{transition}");
        }
    }
}
