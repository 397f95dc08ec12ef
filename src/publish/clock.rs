//! The API server's clock, by the `Date` header of its answers, set against the host's time since boot.
//!
//! The host's time of day may be wrong or may be set at any moment; what is written to the API server must not depend on it.

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::condition::Uptime;
use crate::host::clock::{Now, ServerClock, ServerTime, uptime};

/// Two clocks of the API server's, or ours and one of theirs, may differ by this much without being wrong.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

const DATE_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// The API server's clock after an answer with this `Date` header came at `uptime`; none if the header adds nothing to `known`.
pub fn server_clock(known: Option<ServerClock>, date: &str, uptime: Uptime) -> Option<ServerClock> {
    let time = ServerTime::of(DateTimeParser::new().parse_timestamp(date).ok()?);
    // `Date` has whole seconds, cut off: a time that is up to a second behind is not new. So the time between two transitions is
    // right, whatever fraction of a second each answer came at.
    let is_known = |known: ServerClock| {
        let behind = known.at(uptime).duration_since(time);
        !behind.is_negative() && behind < DATE_PRECISION
    };
    (!known.is_some_and(is_known)).then_some(ServerClock { time, uptime })
}

/// Kubernetes writes times in whole seconds; cut off, so that no time is in the future.
pub fn whole_seconds(time: ServerTime) -> ServerTime {
    Timestamp::from_second(time.timestamp().as_second()).map_or(time, ServerTime::of)
}

/// Whether a condition of a Node that was created at `created` can have had its transition at `transition`.
pub fn is_plausible(transition: ServerTime, created: ServerTime, now: Now) -> bool {
    let after_creation = transition.duration_since(created) >= -TOLERANCE;
    after_creation && now.server.duration_since(transition) >= -TOLERANCE
}

impl From<Time> for ServerTime {
    fn from(time: Time) -> Self {
        Self::of(time.0)
    }
}

impl From<ServerTime> for Time {
    fn from(time: ServerTime) -> Self {
        Self(time.timestamp())
    }
}

/// Waits until then; not at all if it is over.
pub async fn sleep_until(until: Uptime) {
    tokio::time::sleep(until - uptime()).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time(text: &str) -> ServerTime {
        ServerTime::of(text.parse().unwrap())
    }

    #[test]
    fn an_answer_late_in_a_second_does_not_set_the_clock_back() {
        let mut clock = None;
        let mut answered = |date: &str, millis| {
            clock = server_clock(clock, date, Uptime::ZERO + Duration::from_millis(millis)).or(clock);
            clock.map(|clock| clock.at(Uptime::from_secs(102)).timestamp().to_string()).unwrap_or_default()
        };
        assert_eq!(answered("no date", 100_000), "");
        assert_eq!(answered("Thu, 26 Nov 2026 06:17:00 GMT", 100_100), "2026-11-26T06:17:01.9Z");
        assert_eq!(answered("Thu, 26 Nov 2026 06:17:00 GMT", 100_900), "2026-11-26T06:17:01.9Z");
        assert_eq!(answered("Thu, 26 Nov 2026 06:17:01 GMT", 101_000), "2026-11-26T06:17:02Z", "it was later");
        assert_eq!(answered("Thu, 26 Nov 2026 06:10:00 GMT", 102_000), "2026-11-26T06:10:00Z", "it was set");
    }

    #[test]
    fn a_transition_lies_between_the_nodes_creation_and_now() {
        let server = "2026-11-26T06:17:00Z".parse().unwrap();
        let now = Now::of(Uptime::ZERO, server);
        let created = time("2026-11-26T05:00:00Z");
        for (transition, plausible) in [
            ("2026-11-26T05:00:00Z", true),
            ("2026-11-26T06:17:30Z", true),
            ("2026-11-26T06:57:00Z", false),
            ("2026-11-26T04:20:00Z", false),
            ("0001-01-01T00:00:00Z", false),
        ] {
            assert_eq!(is_plausible(time(transition), created, now), plausible, "{transition}");
        }
    }
}
