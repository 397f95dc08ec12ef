//! What the signals mean. Each rule is a function of one look's signals; whether it has held for long enough is the
//! [`super::machine`]'s to count.

use super::{limits::Limits, signals::Signals, why::Cause};

/// Below this the host is worth a closer look, in percent; above the level of [`Limits`] by as much for a large host.
const RISING_ABOVE_PERCENT: f64 = 5.0;
/// Exhaustion that is this near, in seconds, is worth a closer look.
const RISING_SECS: f64 = 60.0;
/// Above this, in percent, waiting tasks that nothing else goes with are some group's at its own limit.
const AMPLE_PERCENT: f64 = 50.0;
/// How near exhaustion must be, in seconds, if the kernel reclaims and nobody is known to wait for it …
const RECLAIMED_SECS: f64 = 30.0;
/// … while there is swap to fill yet …
const SWAP_SECS: f64 = 5.0;
/// … and if nothing shows yet but the fall: to wait for more would be too late.
const SHEER_SECS: f64 = 3.0;
/// With this little left to all pods, in percent of their limit and in seconds, the limit is near.
const PODS_PERCENT: f64 = 10.0;
const PODS_SECS: f64 = 15.0;
/// Where the disk is slow few pages are read anew, and all tasks wait for these, in percent.
const SLOW_DISK_REFAULT_PERCENT: f64 = 10.0;
const SLOW_DISK_WAIT_PERCENT: f64 = 10.0;
/// kswapd that gets less of what it looks at than this, in percent, works in vain.
const IN_VAIN_PERCENT: f64 = 10.0;
/// So much of the time the kubelet or the runtime must wait for memory, in percent …
const PLATFORM_PERCENT: f64 = 50.0;
/// … while swap has room.
const PLATFORM_SWAPS_PERCENT: f64 = 75.0;
/// It is quiet when tasks wait for less than this, in percent of the time, …
const QUIET_WAIT_PERCENT: f64 = 2.0;
/// … fewer file pages than this are read anew, in percent a second, …
const QUIET_REFAULT_PERCENT: f64 = 10.0;
/// … and, at the speed of now, memory would last for so long, in seconds.
const QUIET_SECS: f64 = 300.0;
/// By how much more must be available than where exhaustion counts as imminent, in percent.
const CLEAR_ABOVE_PERCENT: f64 = 5.0;

impl Signals {
    /// What is available where exhaustion may be imminent, in percent.
    fn level(&self, limits: &Limits) -> f64 {
        let bytes = super::signals::real(limits.imminent_bytes);
        limits
            .imminent_percent
            .min(100.0 * bytes / self.total.max(1.0))
    }

    /// Whether little is available: by the level alone that is worth a closer look.
    pub(super) fn is_low(&self, limits: &Limits) -> bool {
        self.percent() < self.level(limits) + RISING_ABOVE_PERCENT
    }

    /// Whether so much is available that waiting tasks alone say nothing of the host.
    pub(super) fn is_ample(&self) -> bool {
        self.percent() >= AMPLE_PERCENT && self.reclaims != Some(true)
    }

    /// Whether tasks wait for memory.
    fn is_waited_for(&self, limits: &Limits) -> Option<bool> {
        self.waits.map(|waits| waits >= limits.stall_percent)
    }

    /// Something moves that is worth ten looks a second, other than the level.
    pub(super) fn moves(&self, limits: &Limits) -> Option<Cause> {
        if self.left.is_some_and(|left| left < RISING_SECS) {
            return Some(Cause::Falls);
        }
        if self.pods_are_short() {
            return Some(Cause::PodsNearLimit);
        }
        let waited = self.is_waited_for(limits) == Some(true);
        (waited || (self.reclaims == Some(true) && self.is_low(limits))).then_some(Cause::Waits)
    }

    /// Whether exhaustion is imminent. The nearer it is the less proof is asked for: at its end the fall alone is enough.
    pub(super) fn imminent(&self, limits: &Limits) -> Option<Cause> {
        if self.pods_are_short() && self.is_waited_for(limits) != Some(false) {
            return Some(Cause::PodsAtLimit);
        }
        let left = self.left?;
        if self.percent() > self.level(limits) {
            return None;
        }
        let within = match (self.reclaims, self.is_waited_for(limits)) {
            (Some(true), Some(true) | None) => limits.imminent_secs,
            (Some(true), Some(false)) | (None, Some(true)) => RECLAIMED_SECS,
            _ => return None,
        };
        let within = if self.swap_has_room() {
            within.min(SWAP_SECS)
        } else {
            within
        };
        (left <= within).then_some(Cause::Imminent)
    }

    /// Whether it falls so fast that nothing else can be waited for.
    pub(super) fn plunges(&self, limits: &Limits) -> bool {
        let near = self.left.is_some_and(|left| left <= SHEER_SECS);
        near && self.still_falls && self.percent() <= self.level(limits)
    }

    /// Whether the limit of all pods is near.
    pub(super) fn pods_are_low(&self) -> bool {
        self.pods_percent.is_some_and(|free| free <= PODS_PERCENT)
    }

    fn pods_are_short(&self) -> bool {
        self.pods_are_low() && self.pods_left.is_some_and(|left| left <= PODS_SECS)
    }

    /// Whether this look looks like thrashing: what was dropped is read anew at once.
    pub(super) fn thrashes(&self, limits: &Limits) -> bool {
        let refaults = self.refaults.unwrap_or(0.0);
        // While swap has room it is that which all wait for.
        let slow = !self.swap_has_room()
            && refaults >= SLOW_DISK_REFAULT_PERCENT
            && self
                .all_wait
                .is_some_and(|wait| wait >= SLOW_DISK_WAIT_PERCENT);
        self.percent() <= limits.thrashing_percent
            && self.reclaims == Some(true)
            && (refaults >= limits.refault_percent || slow)
    }

    /// Whether the kernel looks for memory in vain, whatever it says is available.
    pub(super) fn is_in_vain(&self) -> bool {
        self.stalls == Some(true) && self.efficiency.is_some_and(|got| got < IN_VAIN_PERCENT)
    }

    /// Whether the kubelet or the runtime waits for memory that the host lacks.
    pub(super) fn platform_suffers(&self, limits: &Limits) -> bool {
        let most = if self.swap_has_room() {
            PLATFORM_SWAPS_PERCENT
        } else {
            PLATFORM_PERCENT
        };
        self.percent() <= self.level(limits)
            && self.platform_waits.is_some_and(|waits| waits >= most)
    }

    /// Whether the counters of reclaim and one of level and pressure both say that the host is short. A limit that a group of its
    /// own has met moves the first, and what is available is an estimate.
    pub(super) fn is_short_twice(&self, limits: &Limits) -> bool {
        let is_low = self.percent() <= self.level(limits);
        (self.reclaims == Some(true) || self.is_in_vain())
            && (is_low || self.is_waited_for(limits) == Some(true))
    }

    /// Nobody waits for the host's memory. (Who waits while the kernel reclaims for nobody is at a limit of his own.)
    fn is_smooth(&self) -> bool {
        self.reclaims == Some(false) || self.waits.is_none_or(|waits| waits < QUIET_WAIT_PERCENT)
    }

    /// It goes nowhere.
    pub(super) fn is_still(&self) -> bool {
        self.is_smooth() && self.left.is_none_or(|left| left > QUIET_SECS) && !self.pods_are_short()
    }

    /// Much is available again.
    pub(super) fn has_recovered(&self, limits: &Limits) -> bool {
        self.percent() >= self.level(limits) + CLEAR_ABOVE_PERCENT
    }

    /// It no longer thrashes.
    pub(super) fn flows(&self) -> bool {
        self.is_smooth()
            && self
                .refaults
                .is_none_or(|refaults| refaults < QUIET_REFAULT_PERCENT)
            && !self.is_in_vain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn counters_alone_and_a_level_alone_are_one_witness() {
        let limits = Limits::new(&Settings::default());
        let ample = Signals {
            total: 8e9,
            available: 6e9,
            waits: Some(0.0),
            ..Signals::default()
        };
        let in_vain = Signals {
            stalls: Some(true),
            efficiency: Some(1.0),
            ..ample
        };
        let low = Signals {
            available: 8e7,
            ..ample
        };
        assert!(!in_vain.is_short_twice(&limits) && !low.is_short_twice(&limits));
        let (waits, available) = (Some(80.0), 8e7);
        for both in [
            Signals { waits, ..in_vain },
            Signals {
                available,
                ..in_vain
            },
            Signals {
                reclaims: Some(true),
                ..low
            },
        ] {
            assert!(both.is_short_twice(&limits), "{both:?}");
        }
    }
}
