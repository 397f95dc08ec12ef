//! A service that a package manager has stopped and not started again.

use std::time::Duration;

use crate::condition::Uptime;

/// After the package manager is done, its scripts or an administrator may still start the service for so long.
const START_WAIT: Duration = Duration::from_mins(10);
/// Time between two readings.
const READ_EVERY: Duration = Duration::from_secs(30);

/// What was read since a stop job has stopped the service.
#[derive(Debug, Default)]
pub enum Upgrade {
    #[default]
    Unread,
    /// No package manager held its lock then.
    None,
    Seen {
        read_at: Uptime,
        /// Since when no package manager has held it for the first time.
        free_since: Option<Uptime>,
        /// Whether a packaged unit was replaced until then. Without that, somebody else may have stopped it.
        is_replaced: bool,
    },
}

impl Upgrade {
    /// Whether another reading may tell more.
    pub fn is_wanted(&self, now: Uptime) -> bool {
        match self {
            Self::Unread => true,
            Self::None => false,
            Self::Seen { read_at, .. } => now >= *read_at + READ_EVERY,
        }
    }

    pub fn read(&mut self, is_locked: bool, is_replaced: bool, now: Uptime) {
        let (free_since, was_replaced) = match self {
            Self::Unread if !is_locked => return *self = Self::None,
            Self::Seen { free_since, is_replaced, .. } => (*free_since, *is_replaced),
            Self::Unread | Self::None => (None, false),
        };
        // What another upgrade replaces later shows nothing about this stop.
        let is_replaced = if free_since.is_some() { was_replaced } else { is_replaced };
        *self = Self::Seen { read_at: now, free_since: free_since.or((!is_locked).then_some(now)), is_replaced };
    }

    /// Whether an upgrade has stopped it, is done, and nobody has started the service since.
    pub fn has_left_it_stopped(&self, now: Uptime) -> bool {
        matches!(self, Self::Seen { free_since: Some(since), is_replaced: true, .. } if now >= *since + START_WAIT)
    }
}
