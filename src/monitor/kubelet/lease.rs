//! Readings of the kubelet's Lease. They are compared with one another and not with a clock, so that setting a clock changes nothing.

use std::time::Duration;

use crate::condition::Uptime;
use crate::facts::{LeaseFacts, Renewal};

/// A Lease that was seen unchanged for its own duration, and for at least this long, is not renewed: the kubelet renews it each quarter of
/// its duration, which is 40 s unless `nodeLeaseDurationSeconds` is set.
const OLD: Duration = Duration::from_secs(40);
/// The Lease is read every 2 s, later every 10 s. An older reading does not describe the present.
const READING_LASTS: Duration = Duration::from_secs(30);

/// The readings since some moment.
#[derive(Debug, Default)]
pub(super) struct LeaseReadings {
    /// The last renewal, since when it has been seen, and the Lease's duration.
    last: Option<(Renewal, Uptime, Duration)>,
    read_at: Uptime,
    is_renewed: bool,
}

impl LeaseReadings {
    pub(super) fn read(&mut self, lease: &LeaseFacts) {
        // A Lease that could not be read for a while may have been renewed and grown old meanwhile: what was seen before is forgotten.
        if lease.read_at > self.read_at + READING_LASTS {
            *self = Self::default();
        }
        self.read_at = lease.read_at;
        if self.last.is_none_or(|(renewed, ..)| renewed != lease.renewed) {
            self.is_renewed |= self.last.is_some();
            self.last = Some((lease.renewed, lease.read_at, lease.duration));
        }
    }

    /// Whether it was renewed, and is not old again.
    pub(super) fn is_renewed(&self, now: Uptime) -> bool {
        self.is_renewed && self.is_recent(now) && !self.is_old(now)
    }

    /// Whether it was seen unchanged for so long that it is not renewed.
    pub(super) fn is_old(&self, now: Uptime) -> bool {
        let Some((_, first, duration)) = self.last.filter(|_| self.is_recent(now)) else { return false };
        self.read_at - first >= OLD.max(duration)
    }

    fn is_recent(&self, now: Uptime) -> bool {
        now < self.read_at + READING_LASTS
    }
}
