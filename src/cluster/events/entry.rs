//! An Event of the book: a notice, and how often it happened.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Notice;
use crate::{clock::Now, health::news::Pace};

/// A series goes on within this time, as client-go has it …
const SERIES: Duration = Duration::from_mins(6);
/// … and within this, if it is of a kind that repeats.
const MERGED_SERIES: Duration = Duration::from_hours(1);
/// How soon the count of such a series is updated; twice as long each time …
const FIRST_UPDATE: Duration = Duration::from_mins(5);
/// … up to this: the API server forgets an Event that nobody has written to for an hour.
const LONGEST_UPDATE: Duration = Duration::from_mins(40);

/// A notice with its series.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) notice: Notice,
    pub(super) first: Now,
    pub(super) count: u32,
    pub(super) last: Now,
    /// What the API server has: 0 before the Event is made.
    pub(super) told: u32,
    /// When the API server took it last (uptime), and how often its count was updated.
    pub(super) told_at: Duration,
    pub(super) updates: u32,
}

impl Entry {
    /// When it happened first, and when last. By the uptime, reckoned back from a moment that has the cluster's time: what
    /// was recorded before the first answer of the API server has its time too.
    pub(super) fn times(&self, now: Now) -> (Timestamp, Timestamp) {
        let at = |then: Now| {
            let age = now.uptime.saturating_sub(then.uptime);
            let at = SignedDuration::try_from(age)
                .ok()
                .and_then(|age| now.wall.checked_sub(age).ok());
            at.unwrap_or(then.wall)
        };
        (at(self.first), at(self.last))
    }

    pub(super) fn again(&self, notice: &Notice, now: Now) -> bool {
        let series = match notice.pace {
            Pace::Urgent | Pace::Once | Pace::Ordinary => SERIES,
            Pace::Merged => MERGED_SERIES,
        };
        self.notice.is_the_same(notice) && now.uptime.saturating_sub(self.last.uptime) <= series
    }

    /// From when on (uptime) its count may be sent.
    pub(super) fn update_at(&self) -> Duration {
        if self.notice.pace != Pace::Merged || self.told == 0 {
            return Duration::ZERO;
        }
        let longer = FIRST_UPDATE * 2_u32.pow(self.updates.min(16));
        self.told_at + longer.min(LONGEST_UPDATE)
    }
}
