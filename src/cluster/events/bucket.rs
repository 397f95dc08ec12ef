//! How many requests may be sent: half of an hour's at once, the other half over the hour, so that no hour has more than all.

use std::time::Duration;

use crate::clock::Now;

/// A bucket of requests.
#[derive(Debug)]
pub(super) struct Bucket {
    per_hour: u32,
    /// What may be sent now, and when that was counted (uptime).
    tokens: f64,
    counted_at: Duration,
}

impl Bucket {
    pub(super) fn new(per_hour: u32) -> Self {
        let mut bucket = Self {
            per_hour,
            tokens: 0.0,
            counted_at: Duration::ZERO,
        };
        bucket.tokens = bucket.capacity();
        bucket
    }

    /// Whether it never has any.
    pub(super) fn is_none(&self) -> bool {
        self.per_hour == 0
    }

    fn capacity(&self) -> f64 {
        if self.is_none() {
            return 0.0;
        }
        (f64::from(self.per_hour) / 2.0).max(1.0)
    }

    fn per_second(&self) -> f64 {
        f64::from(self.per_hour) / 2.0 / 3600.0
    }

    /// Takes one out, if there is one.
    pub(super) fn take(&mut self, now: Now) -> bool {
        if self.free_at().is_none_or(|at| now.uptime < at) {
            return false;
        }
        let passed = now.uptime.saturating_sub(self.counted_at).as_secs_f64();
        // A hair more than it is: a deadline that was met must not miss its token by rounding.
        self.tokens = (self.tokens + passed * self.per_second() + 1e-6).min(self.capacity());
        self.counted_at = now.uptime;
        let is_there = self.tokens >= 1.0;
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }

    /// From when on (uptime) there is one.
    pub(super) fn free_at(&self) -> Option<Duration> {
        let missing = (1.0 - self.tokens).max(0.0);
        let wait = Duration::try_from_secs_f64(missing / self.per_second()).ok()?;
        Some(self.counted_at + wait)
    }
}
