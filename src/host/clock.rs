//! The only module that reads clocks.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::condition::Uptime;

/// Time since boot, suspended time included. No clock step changes it.
pub fn uptime() -> Uptime {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The next multiple of `every`, in whole seconds. What is periodic is due together then, because to wake up costs more than most of
/// what is done.
pub fn next_multiple(now: Uptime, every: Duration) -> Uptime {
    let secs = every.as_secs().max(1);
    Duration::from_secs((now.as_secs() / secs + 1) * secs)
}

/// The time of day by this host's clock, which may be wrong.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// A moment by the API server's clock and by the time since boot, which no clock step changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTime {
    pub time: Timestamp,
    pub uptime: Uptime,
}

impl ServerTime {
    /// The time by the API server's clock.
    pub fn at(self, uptime: Uptime) -> Timestamp {
        let since = SignedDuration::try_from(uptime.saturating_sub(self.uptime)).unwrap_or_default();
        self.time.checked_add(since).unwrap_or(self.time)
    }
}

/// The present moment by all clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub uptime: Uptime,
    /// By the host's clock.
    pub wall: Timestamp,
    /// By the API server's clock, as far as it is known.
    pub server: Timestamp,
}

impl Now {
    /// Reads the clocks; `server` is the API server's.
    pub fn read(server: Option<ServerTime>) -> Self {
        let (uptime, wall) = (uptime(), wall());
        Self { uptime, wall, server: server.map_or(wall, |time| time.at(uptime)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_multiple_is_never_now() {
        let next = |millis| next_multiple(Duration::from_millis(millis), Duration::from_secs(2)).as_secs();
        assert_eq!([0, 1999, 2000, 2001].map(next), [2, 2, 4, 4]);
    }
}
