//! The thresholds: the operator's, and those that nobody should have to think about.

use std::time::Duration;

use crate::config::Settings;

/// How often memory is looked at in a calm …
pub(super) const CALM_EVERY: Duration = Duration::from_secs(1);
/// … and while it moves.
pub(super) const RISING_EVERY: Duration = Duration::from_millis(100);
/// In a calm one look in so many reads all, to see the limit of all pods and what swap there is.
pub(super) const WHOLE_EVERY: u32 = 10;
/// Between two looks that are further apart nobody knows what memory did: what was before says nothing of where it goes.
pub(super) const MAX_GAP: Duration = Duration::from_millis(1500);

/// What the operator may change: `[memory]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// With more available than this share of the memory, in percent, exhaustion is not imminent …
    pub imminent_percent: f64,
    /// … nor with more than so many bytes.
    pub imminent_bytes: u64,
    /// Exhaustion that is further off, in seconds, is not imminent.
    pub imminent_secs: f64,
    /// Tasks that wait for memory for less of the time than this, in percent, do not count as waiting.
    pub stall_percent: f64,
    /// With more available than this, in percent, the host does not thrash.
    pub thrashing_percent: f64,
    /// Of the file pages so much must be read anew each second, in percent, for thrashing.
    pub refault_percent: f64,
}

impl Limits {
    /// What `[memory]` says.
    pub fn new(settings: &Settings) -> Self {
        let number = |name| f64::from(settings.number("memory", name));
        Self {
            imminent_percent: number("imminent_percent"),
            imminent_bytes: u64::from(settings.number("memory", "imminent_mib")) << 20,
            imminent_secs: number("imminent_secs"),
            stall_percent: number("stall_percent"),
            thrashing_percent: number("thrashing_percent"),
            refault_percent: number("refault_percent"),
        }
    }
}
