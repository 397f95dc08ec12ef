//! What keeps a condition from flapping: how trouble that is sampled enters again, and how long it must have been away.
//!
//! A fact enters at once, and leaves by the healthy spell as configured: it is damped by nothing. What is sampled enters as its
//! check counts it, if nothing sampled has ended within the hour. After that a short trouble is only noted: it enters when it has
//! lasted for [`LASTS`], or when a fifth of the last [`LATELY`] was bad; and each time the spell is twice as long. It leaves
//! after a spell without trouble, or, a spell after it entered, as soon as little of the last four spells was bad: so trouble
//! that is rare cannot add up to a lasting `False`, and trouble that is not does.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bad_time::{BadTime, Bin, HISTORY};

/// What is sampled and comes back within this time of its end must show that it is more than a moment's trouble.
pub const REMEMBERED: Duration = HISTORY;
/// What has lasted so long is more than a moment's; and what has been away so long is not just between two moments of it.
pub const LASTS: Duration = Duration::from_secs(20);
/// Trouble in pieces is more than a moment's if so much of this time …
pub const LATELY: Duration = Duration::from_mins(2);
/// … was bad: one part in so many.
pub const OFTEN: u32 = 5;
/// It is over, though no spell was without trouble, if less than one part in so many …
pub const SELDOM: u32 = 6;
/// … of so many spells was bad.
pub const SELDOM_SPELLS: u32 = 4;
/// The longest spell, unless the configured one is longer.
pub const LONGEST_SPELL: Duration = Duration::from_mins(15);
/// More doublings cannot be told apart: from a second it is 15 minutes after ten.
const MOST_DOUBLED: u32 = 10;

/// A condition's memory of what was sampled.
#[derive(Debug, Clone)]
pub(super) struct Damping {
    /// `healthy_for_secs`: the first healthy spell.
    base: Duration,
    kept: Kept,
    bad: BadTime,
}

/// What a restart of the agent must not forget; all times are uptimes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// How often the spell was doubled.
    doubled: u32,
    /// Since when something sampled stands as a problem.
    entered_at: Option<Duration>,
    /// When the last sampled trouble ended.
    ended_at: Option<Duration>,
    /// When the status last flipped out of `False`, or by something sampled between `True` and `Unknown`.
    flipped_at: Option<Duration>,
}

/// A condition's memory as it lies in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    kept: Kept,
    bad: Vec<Bin>,
}

impl Damping {
    pub(super) fn new(base: Duration) -> Self {
        Self {
            base,
            kept: Kept::default(),
            bad: BadTime::default(),
        }
    }

    /// A new story begins.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.base);
    }

    /// For the ledger; nothing if there is nothing to remember.
    pub(super) fn remembered(&self) -> Option<Remembered> {
        let remembered = Remembered {
            kept: self.kept.clone(),
            bad: self.bad.bins(),
        };
        (remembered.kept != Kept::default() || !remembered.bad.is_empty()).then_some(remembered)
    }

    /// What an earlier life of the agent knew, in this boot of the host.
    pub(super) fn remember(&mut self, remembered: &Remembered, uptime: Duration) {
        let past = |at: Option<Duration>| at.filter(|at| *at <= uptime);
        let kept = &remembered.kept;
        self.kept = Kept {
            doubled: kept.doubled.min(MOST_DOUBLED),
            entered_at: past(kept.entered_at),
            ended_at: past(kept.ended_at),
            flipped_at: past(kept.flipped_at),
        };
        self.bad = BadTime::of(&remembered.bad, uptime);
    }

    /// How long what is sampled must have been good before it is over.
    pub(super) fn spell(&self) -> Duration {
        let spell = self
            .base
            .saturating_mul(1 << self.kept.doubled.min(MOST_DOUBLED));
        spell.min(LONGEST_SPELL).max(self.base)
    }

    /// Whether something sampled is bad now.
    pub(super) fn note(&mut self, is_bad: bool, uptime: Duration) {
        self.bad.note(is_bad, uptime);
    }

    /// Whether it was bad at the last look.
    pub(super) fn is_bad(&self) -> bool {
        self.bad.since().is_some()
    }

    /// Whether something sampled stands as a problem.
    pub(super) fn stands(&self) -> bool {
        self.kept.entered_at.is_some()
    }

    /// What is sampled is bad now: when it may enter (uptime), at the latest.
    pub(super) fn enters_at(&self, uptime: Duration) -> Duration {
        let often = self.bad.within(LATELY, uptime) * OFTEN >= LATELY;
        if often || !self.is_again(uptime) {
            return uptime;
        }
        self.bad.since().unwrap_or(uptime) + LASTS
    }

    fn is_again(&self, uptime: Duration) -> bool {
        let ended = self.kept.ended_at;
        ended.is_some_and(|at| uptime < at + REMEMBERED)
    }

    /// Something sampled stands as a problem from now on.
    pub(super) fn entered(&mut self, uptime: Duration) {
        self.double(uptime);
        self.kept.entered_at = Some(uptime);
    }

    fn double(&mut self, uptime: Duration) {
        let doubled = (self.kept.doubled + 1).min(MOST_DOUBLED);
        self.kept.doubled = if self.is_again(uptime) { doubled } else { 0 };
    }

    /// Something sampled stands as a problem that an earlier life of the agent has told: nobody knows since when.
    pub(super) fn goes_on(&mut self, uptime: Duration) {
        self.kept.entered_at.get_or_insert(uptime);
    }

    /// Nothing sampled stands as a problem any more.
    pub(super) fn ended(&mut self, uptime: Duration) {
        self.kept.entered_at = None;
        self.kept.ended_at = Some(uptime);
    }

    /// Whether a problem is over that has been gone since then.
    pub(super) fn is_over(&self, is_fact: bool, gone_since: Duration, uptime: Duration) -> bool {
        let gone_for = uptime.saturating_sub(gone_since);
        if is_fact {
            return gone_for >= self.base;
        }
        let (spell, window) = (self.spell(), self.window());
        let stood = self.kept.entered_at.is_some_and(|at| uptime >= at + spell);
        let seldom = || self.bad.within(window, uptime) * SELDOM < window;
        gone_for >= spell || (stood && gone_for >= LASTS && seldom())
    }

    fn window(&self) -> Duration {
        (self.spell() * SELDOM_SPELLS).min(HISTORY)
    }

    /// When a problem is over that has been gone since then (uptime), if it stays away.
    pub(super) fn over_at(&self, is_fact: bool, gone_since: Duration) -> Duration {
        gone_since + if is_fact { self.base } else { self.spell() }
    }

    /// The status flips out of `False`.
    pub(super) fn recovered(&mut self, uptime: Duration) {
        self.kept.flipped_at = Some(uptime);
    }

    /// The status flips between `True` and `Unknown` by what is sampled.
    pub(super) fn turned(&mut self, is_good: bool, uptime: Duration) {
        if is_good {
            self.kept.ended_at = Some(uptime);
        } else {
            self.double(uptime);
        }
        self.kept.flipped_at = Some(uptime);
    }

    /// When what is sampled may flip the status between `True` and `Unknown` (uptime); `None`: now.
    pub(super) fn held_until(&self, uptime: Duration) -> Option<Duration> {
        let until = self.kept.flipped_at? + self.spell();
        (until > uptime).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_return_within_the_hour_doubles_the_spell_up_to_a_bound() {
        let mut damping = Damping::new(60 * SECOND);
        let mut now = 1000 * SECOND;
        let mut spells = Vec::new();
        for _ in 0..7 {
            damping.entered(now);
            spells.push(damping.spell().as_secs());
            now += damping.spell();
            damping.ended(now);
            now += 600 * SECOND;
        }
        assert_eq!(spells, [60, 120, 240, 480, 900, 900, 900]);
        damping.entered(now + 3600 * SECOND);
        assert_eq!(
            damping.spell().as_secs(),
            60,
            "an hour later it is a new story"
        );
    }

    #[test]
    fn any_configured_spell_is_kept() {
        for base in [0, 1, 900, 3600] {
            let mut damping = Damping::new(base * SECOND);
            for round in 1..100 {
                damping.entered(round * SECOND);
                assert!(damping.spell() >= base * SECOND);
                assert!(damping.spell() <= LONGEST_SPELL.max(base * SECOND));
                damping.ended(round * SECOND);
            }
        }
    }

    #[test]
    fn what_comes_back_must_last_or_come_often() {
        let mut damping = Damping::new(60 * SECOND);
        let now = |secs: u32| 10_000 * SECOND + secs * SECOND;
        damping.note(true, now(0));
        assert_eq!(damping.enters_at(now(0)), now(0), "the first of the hour");
        damping.entered(now(0));
        damping.note(false, now(5));
        damping.ended(now(65));
        damping.note(true, now(300));
        assert_eq!(damping.enters_at(now(300)), now(320));
        damping.note(false, now(310));
        damping.note(true, now(330));
        assert_eq!(damping.enters_at(now(330)), now(350));
        // 10 s and 14 s of the last two minutes.
        damping.note(true, now(344));
        assert_eq!(damping.enters_at(now(344)), now(344));
    }

    #[test]
    fn a_restart_forgets_nothing_and_believes_no_future() {
        let mut damping = Damping::new(60 * SECOND);
        assert_eq!(damping.remembered(), None);
        damping.note(true, 100 * SECOND);
        damping.entered(100 * SECOND);
        damping.note(false, 110 * SECOND);
        damping.ended(160 * SECOND);
        let remembered = damping.remembered().unwrap();
        let text = serde_json::to_string(&remembered).unwrap();
        let remembered: Remembered = serde_json::from_str(&text).unwrap();
        let mut next = Damping::new(60 * SECOND);
        next.remember(&remembered, 200 * SECOND);
        assert_eq!(next.remembered(), Some(remembered.clone()));
        next.entered(300 * SECOND);
        assert_eq!(next.spell(), 120 * SECOND);
        next.remember(&remembered, 90 * SECOND);
        assert_eq!((next.stands(), next.is_again(90 * SECOND)), (false, false));
        assert_eq!(next.bad.within(HISTORY, 90 * SECOND), Duration::ZERO);
    }
}
