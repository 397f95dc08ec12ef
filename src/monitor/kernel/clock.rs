//! The host's clock compared with the API server's: certificates, tokens and Leases depend on it.

use std::time::Duration;

use jiff::Timestamp;

use crate::condition::{Finding, Reason, Uptime};
use crate::host::clock::ServerClock;

/// The differences that messages name, in seconds. From the first one on, the clock is wrong.
const SECONDS: [u64; 7] = [30, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600];
/// How many readings in a row have to find it wrong.
const READINGS_IN_A_ROW: u32 = 3;

/// How many readings in a row have found it wrong.
#[derive(Debug, Default)]
pub(super) struct Clock(u32);

impl Clock {
    /// Records a reading of the host's clock. Without the API server's time there is nothing to compare it with.
    pub(super) fn observe(&mut self, server: Option<ServerClock>, wall: Timestamp, now: Uptime) -> Option<Finding> {
        let differs_by = server.map(|server| wall.duration_since(server.at(now).timestamp())).unwrap_or_default();
        // Not the exact difference: each second would be another message.
        let seconds = SECONDS.into_iter().rfind(|seconds| differs_by.unsigned_abs() > Duration::from_secs(*seconds));
        self.0 = if seconds.is_some() { self.0.saturating_add(1) } else { 0 };
        let seconds = seconds.filter(|_| self.0 >= READINGS_IN_A_ROW)?;
        let direction = if differs_by.is_positive() { "ahead of" } else { "behind" };
        let message =
            format!("the host's clock is more than {seconds} s {direction} the API server's clock; see timedatectl");
        Some(Finding::new(Reason::NodeClockWrong, message))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::host::clock::ServerTime;

    /// The message after three readings, a minute apart, of a clock that is wrong by so many milliseconds, which grow each time.
    fn message(offset_millis: i64, growth: i64) -> Option<String> {
        let (mut clock, started) = (Clock::default(), Timestamp::UNIX_EPOCH);
        let server = ServerClock { time: ServerTime::of(started), uptime: Uptime::from_secs(60) };
        let mut found = None;
        for index in 0..3 {
            assert_eq!(found, None);
            let now = Uptime::from_secs(60 * (2 + u64::try_from(index).unwrap()));
            let offset = SignedDuration::from_millis(offset_millis + growth * index);
            let wall = server.at(now).timestamp().checked_add(offset).unwrap();
            found = clock.observe(Some(server), wall, now);
        }
        found.map(|finding| finding.message)
    }

    #[test]
    fn a_clock_that_differs_by_more_than_thirty_seconds_in_three_readings_is_wrong() {
        assert_eq!(message(30_000, 0), None);
        assert_eq!(message(29_000, 1000), None, "twice alone");
        let wanted = "the host's clock is more than 30 s behind the API server's clock; see timedatectl";
        assert_eq!(message(-30_001, 0).as_deref(), Some(wanted));
        let wanted = "the host's clock is more than 3600 s ahead of the API server's clock; see timedatectl";
        assert_eq!(message(3_700_000, 1000).as_deref(), Some(wanted));
    }

    #[test]
    fn without_the_api_servers_time_nothing_is_wrong() {
        let (mut clock, wall) = (Clock::default(), Timestamp::UNIX_EPOCH);
        let server = ServerClock { time: ServerTime::of(Timestamp::MAX), uptime: Uptime::ZERO };
        let mut found = |server| clock.observe(server, wall, Uptime::from_secs(9)).is_some();
        assert_eq!([Some(server); 3].map(&mut found), [false, false, true]);
        assert!(!found(None));
    }
}
