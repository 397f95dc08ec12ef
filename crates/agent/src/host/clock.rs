//! The one place that reads clocks.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::condition::Uptime;

/// Time since boot, suspended time included. No clock step changes it.
pub fn uptime() -> Uptime {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The time of day by this host's clock, which may be wrong.
pub fn wall() -> Timestamp {
    Timestamp::now()
}
