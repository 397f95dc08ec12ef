//! The host's clock beside the API server's: certificates, tokens and Leases are judged by it.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    condition::{Finding, Reason, Uptime},
    host::api::ServerTime,
};

/// The differences that messages name, in seconds. From the first one on, the clock is wrong.
const SECONDS: [u64; 7] = [30, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600];
/// So many looks in a row have to find it wrong.
const LOOKS_IN_A_ROW: u32 = 3;

/// What the last looks found.
#[derive(Debug, Default)]
pub(super) struct Clock {
    looks: u32,
    is_ahead: bool,
    differs_by: Duration,
}

impl Clock {
    /// Takes in a look at the host's clock; without a time of the API server's there is nothing to compare it with.
    pub(super) fn looked(&mut self, server: Option<ServerTime>, wall: Timestamp, now: Uptime) {
        let differs_by = server.map(|server| wall.duration_since(server.at(now))).unwrap_or_default();
        (self.is_ahead, self.differs_by) = (differs_by.is_positive(), differs_by.unsigned_abs());
        self.looks = if self.least_seconds().is_some() { self.looks.saturating_add(1) } else { 0 };
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let seconds = self.least_seconds().filter(|_| self.looks >= LOOKS_IN_A_ROW)?;
        let direction = if self.is_ahead { "ahead of" } else { "behind" };
        let message = format!("the host's clock is over {seconds} s {direction} the API server's; see timedatectl");
        Some(Finding::new(Reason::NodeClockWrong, message))
    }

    /// The greatest of [`SECONDS`] by which it differs. Not the exact difference: each second would be another message.
    fn least_seconds(&self) -> Option<u64> {
        SECONDS.into_iter().rfind(|seconds| self.differs_by > Duration::from_secs(*seconds))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    /// The message after three looks, a minute apart, at a clock that is off by so many milliseconds, which grow each time.
    fn message(offset_millis: i64, growth: i64) -> Option<String> {
        let (mut clock, started) = (Clock::default(), Timestamp::UNIX_EPOCH);
        let server = ServerTime { time: started, uptime: Duration::from_mins(1) };
        for look in 0..3 {
            assert_eq!(clock.finding(), None);
            let now = Duration::from_mins(2 + u64::try_from(look).unwrap());
            let offset = SignedDuration::from_millis(offset_millis + growth * look);
            let wall = server.at(now).checked_add(offset).unwrap();
            clock.looked(Some(server), wall, now);
        }
        clock.finding().map(|finding| finding.message)
    }

    #[test]
    fn a_clock_that_differs_by_more_than_thirty_seconds_in_three_looks_is_wrong() {
        assert_eq!(message(30_000, 0), None);
        assert_eq!(message(29_000, 1000), None, "twice alone");
        let wanted = "the host's clock is over 30 s behind the API server's; see timedatectl";
        assert_eq!(message(-30_001, 0).as_deref(), Some(wanted));
        let wanted = "the host's clock is over 3600 s ahead of the API server's; see timedatectl";
        assert_eq!(message(3_700_000, 1000).as_deref(), Some(wanted));
    }

    #[test]
    fn without_the_api_servers_time_nothing_is_wrong() {
        let (mut clock, wall) = (Clock::default(), Timestamp::UNIX_EPOCH);
        let server = ServerTime { time: Timestamp::MAX, uptime: Duration::ZERO };
        (0..3).for_each(|_| clock.looked(Some(server), wall, Duration::from_secs(9)));
        assert!(clock.finding().is_some());
        clock.looked(None, wall, Duration::from_secs(9));
        assert_eq!(clock.finding(), None);
    }
}
