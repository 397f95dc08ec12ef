//! What keeps a flip back: somebody's hold, and the minimum hold.

use std::time::Duration;

use super::suppress::Suppressor;

/// Something keeps a problem back.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Until then (uptime).
    pub(super) until: Duration,
    /// Because or while.
    pub(super) why: String,
}

impl Held {
    /// By somebody's hold, until then (uptime).
    pub(super) fn by((who, until): (&Suppressor, Duration)) -> Self {
        Self {
            until,
            why: format!("while {who}"),
        }
    }
}

/// What keeps a flip back.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    /// Somebody's hold.
    pub(super) hold: Option<Held>,
    /// The minimum hold.
    pub(super) least: Option<Held>,
}

impl Waits {
    /// Health waits for the minimum hold alone.
    pub(super) fn to_worse(&self) -> Option<&Held> {
        self.hold.as_ref().or(self.least.as_ref())
    }
}
