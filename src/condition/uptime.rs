//! A point in time.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment, as time since boot (`CLOCK_BOOTTIME`), so that clock steps change nothing. A [`Duration`] is the time between two moments.
/// Arithmetic stops at the limits: no moment is before the boot, and there is no time from a later moment to an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(Duration);

impl Uptime {
    /// The boot.
    pub const ZERO: Self = Self(Duration::ZERO);
    pub const MAX: Self = Self(Duration::MAX);

    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl Add<Duration> for Uptime {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl AddAssign<Duration> for Uptime {
    fn add_assign(&mut self, time: Duration) {
        self.0 = self.0.saturating_add(time);
    }
}

impl Sub<Duration> for Uptime {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Sub for Uptime {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_boot_and_at_the_last_moment() {
        let (early, late, second) = (Uptime::from_secs(1), Uptime::from_secs(3), Duration::from_secs(1));
        assert_eq!((late - early, early - late), (2 * second, Duration::ZERO));
        assert_eq!((late - second, early - 2 * second), (Uptime::from_secs(2), Uptime::ZERO));
        assert_eq!((late + second, Uptime::MAX + second), (Uptime::from_secs(4), Uptime::MAX));
    }
}
