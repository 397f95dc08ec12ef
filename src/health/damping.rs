//! What keeps a condition from flapping: the minimum hold, and a healthy spell that grows with each relapse.

use std::time::Duration;

/// A return of the problem within so many healthy spells of the recovery is a relapse: the next spell is twice as long.
pub const RELAPSE_WITHIN_SPELLS: u32 = 10;
/// A problem that stayed away for so many healthy spells is a new story: the next spell has its first length again.
pub const CALM_SPELLS: u32 = 60;
/// The longest spell, in healthy spells …
pub const LONGEST_SPELLS: u32 = 15;
/// … and in time, unless the configured one is longer.
pub const LONGEST_SPELL: Duration = Duration::from_mins(15);

/// A condition's memory of its flips.
#[derive(Debug, Clone)]
pub(super) struct Damping {
    /// `healthy_for_secs`: the first healthy spell, and the minimum hold.
    base: Duration,
    /// How often the spell was doubled.
    doubled: u32,
    /// When it last flipped out of `False` (uptime).
    recovered_at: Option<Duration>,
    /// When it last flipped out of `False`, or by a reason that waits for the minimum hold (uptime).
    flipped_at: Option<Duration>,
}

impl Damping {
    pub(super) fn new(base: Duration) -> Self {
        Self {
            base,
            doubled: 0,
            recovered_at: None,
            flipped_at: None,
        }
    }

    /// A new story begins.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.base);
    }

    /// How long everything must have been good before a problem is over.
    pub(super) fn spell(&self) -> Duration {
        let longest = (self.base * LONGEST_SPELLS).min(LONGEST_SPELL);
        let factor = 1_u32.checked_shl(self.doubled).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(longest).max(self.base)
    }

    /// When a reason that waits for the minimum hold may flip the status (uptime); `None`: now.
    pub(super) fn held_until(&self, uptime: Duration) -> Option<Duration> {
        let until = self.flipped_at? + self.base;
        (until > uptime).then_some(until)
    }

    /// The status flips to `False`.
    pub(super) fn fell(&mut self, by_fact: bool, uptime: Duration) {
        if !by_fact {
            self.flipped_at = Some(uptime);
        }
        let Some(recovered_at) = self.recovered_at else {
            return;
        };
        let calm = uptime.saturating_sub(recovered_at);
        if calm <= self.base * RELAPSE_WITHIN_SPELLS {
            // More cannot be told apart from the longest.
            self.doubled = (self.doubled + 1).min(LONGEST_SPELLS);
        } else if calm > self.base * CALM_SPELLS {
            self.doubled = 0;
        }
    }

    /// The status flips out of `False`.
    pub(super) fn recovered(&mut self, uptime: Duration) {
        self.recovered_at = Some(uptime);
        self.flipped_at = Some(uptime);
    }

    /// The status flips between `True` and `Unknown` by what is sampled.
    pub(super) fn turned(&mut self, uptime: Duration) {
        self.flipped_at = Some(uptime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn relapses_double_the_spell_up_to_a_bound_and_calm_forgets_them() {
        let mut damping = Damping::new(60 * SECOND);
        let mut now = 1000 * SECOND;
        let mut spells = Vec::new();
        for _ in 0..7 {
            damping.fell(true, now);
            spells.push(damping.spell().as_secs());
            now += damping.spell();
            damping.recovered(now);
            now += 600 * SECOND;
        }
        assert_eq!(spells, [60, 120, 240, 480, 900, 900, 900]);
        // Neither soon nor long after: it stays as it is.
        damping.fell(true, now + SECOND);
        assert_eq!(damping.spell().as_secs(), 900);
        damping.recovered(now);
        damping.fell(true, now + 3601 * SECOND);
        assert_eq!(damping.spell().as_secs(), 60);
    }

    #[test]
    fn any_configured_spell_is_kept() {
        for base in [0, 1, 900, 3600] {
            let mut damping = Damping::new(base * SECOND);
            for round in 1..100 {
                damping.fell(false, round * SECOND);
                assert!(damping.spell() >= base * SECOND);
                let longest = (15 * base).min(900).max(base) * SECOND;
                assert!(damping.spell() <= longest);
                damping.recovered(round * SECOND);
            }
        }
    }
}
