//! The only reader of any clock: everything else takes a [`Now`].
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on reading clocks points to"
)]

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

/// One moment, read once an event, handed to every pure function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time since boot, suspended time included (`CLOCK_BOOTTIME`): what every duration is measured with, because
    /// it survives a restart of the agent and does not jump when the wall clock is set.
    pub uptime: Duration,
    /// Wall clock: only for timestamps that are published.
    pub wall: Timestamp,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock;

impl Clock {
    /// Reads both clocks.
    pub fn now(self) -> Now {
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME)
            .map(Duration::from)
            .expect("CLOCK_BOOTTIME is there since Linux 2.6.39");
        Now {
            uptime,
            wall: Timestamp::now(),
        }
    }
}

impl Now {
    /// The tokio instant at which `uptime` is reached, for a timer.
    pub fn instant_at(self, uptime: Duration) -> tokio::time::Instant {
        tokio::time::Instant::now() + uptime.saturating_sub(self.uptime)
    }
}
