//! Which state comes next, and why.

use std::time::Duration;

use super::Machine;
use crate::checks::memory::{history::Point, state::State, why::Cause};

/// How long it is looked at closely after the last that moved.
const RISING_FOR: Duration = Duration::from_secs(5);
/// A change of what is available, in percent of the memory, that counts as a movement …
const MOVED_PERCENT: f64 = 1.0;
/// … and one below where it had settled, in a calm.
const SETTLED_PERCENT: f64 = 2.0;
/// How long a plunge is watched before it is believed, and how often.
const PLUNGE_FOR: Duration = Duration::from_millis(250);
const PLUNGE_LOOKS: u32 = 3;
/// Thrashing is this share of the last seconds.
const THRASHING: (Duration, f64) = (Duration::from_secs(5), 0.6);
/// How long memory must have been plenty before exhaustion is no longer imminent, …
const RECOVERED_FOR: Duration = Duration::from_mins(1);
/// … still where it is not plenty, …
const STILL_FOR: Duration = Duration::from_mins(5);
/// … and without thrashing before it thrashes no longer.
const FLOWS_FOR: Duration = Duration::from_secs(30);
/// After a kill the kernel has its memory back a moment later.
const AFTER_KILL: Duration = Duration::from_secs(5);

impl Machine {
    /// Which state comes next, if another one does, and why. An alarm is never raised from a calm: it takes several looks.
    pub(super) fn next(&self) -> Option<(State, Cause)> {
        let at = self.signals.at;
        match self.state {
            State::Calm { settled, pods } => {
                let cause = self.stirs(settled, pods)?;
                Some((self.rising(cause == Cause::Waits), cause))
            }
            State::Rising {
                moved_at,
                anchor,
                only_waits,
            } => self
                .thrashing()
                .or_else(|| self.imminent())
                .or_else(|| self.settles(moved_at, anchor, only_waits)),
            State::Imminent => self
                .thrashing()
                .or_else(|| self.ends(self.imminent.held_until)),
            State::Thrashing => {
                if at < self.thrashing.held_until || !self.flows.lasts(FLOWS_FOR, at) {
                    return None;
                }
                if self.signals.has_recovered(&self.limits) {
                    Some((self.rising(false), Cause::Recovered))
                } else {
                    Some((State::Imminent, Cause::StillLow))
                }
            }
            State::Oom { killed_at } => {
                if at.saturating_sub(killed_at) < AFTER_KILL {
                    return None;
                }
                self.thrashing()
                    .or_else(|| self.imminent())
                    .or_else(|| self.ends(Duration::ZERO))
            }
        }
    }

    /// Whether a calm ends.
    fn stirs(&self, settled: Option<f64>, pods: Option<f64>) -> Option<Cause> {
        let (signals, at) = (&self.signals, self.signals.at);
        let is_deaf = at < self.deaf_until && signals.is_ample();
        if let Some(cause) = signals.moves(&self.limits)
            && !(is_deaf && cause == Cause::Waits)
        {
            return Some(cause);
        }
        let fell = |settled: Option<f64>, now: f64| {
            settled.is_none_or(|settled| now < settled - SETTLED_PERCENT)
        };
        if signals.is_low(&self.limits) && fell(settled, signals.percent()) {
            return Some(Cause::Low);
        }
        let pods_fell = signals.pods_percent.is_some_and(|now| fell(pods, now));
        (signals.pods_are_low() && pods_fell).then_some(Cause::PodsNearLimit)
    }

    /// Whether what moved has come to rest.
    fn settles(&self, moved_at: Duration, anchor: f64, only_waits: bool) -> Option<(State, Cause)> {
        let (signals, at) = (self.signals, self.signals.at);
        let cause = signals.moves(&self.limits);
        let waits = cause == Some(Cause::Waits) && signals.is_ample();
        let drifted = (signals.percent() - anchor).abs() > MOVED_PERCENT;
        if drifted || (cause.is_some() && !waits) {
            let only_waits = only_waits && !drifted && cause.is_none_or(|c| c == Cause::Waits);
            return Some((self.rising(only_waits), cause.unwrap_or(Cause::Low)));
        }
        if at.saturating_sub(moved_at) < RISING_FOR {
            return None;
        }
        Some((self.calm(), Cause::Still))
    }

    fn imminent(&self) -> Option<(State, Cause)> {
        let at = self.signals.at;
        let plunges = self.plunging.lasts(PLUNGE_FOR, at) && self.plunging_looks >= PLUNGE_LOOKS;
        let cause = self.signals.imminent(&self.limits);
        let cause = cause.or_else(|| plunges.then_some(Cause::Plunges))?;
        Some((State::Imminent, cause))
    }

    fn thrashing(&self) -> Option<(State, Cause)> {
        let (window, most) = THRASHING;
        let is_most = |is_so: fn(&Point) -> bool| {
            self.history
                .share(window, is_so)
                .is_some_and(|share| share >= most)
        };
        let cause = if is_most(|point| point.thrashes) {
            Cause::Thrashes
        } else if is_most(|point| point.in_vain) {
            Cause::InVain
        } else if self.signals.platform_suffers(&self.limits) {
            Cause::PlatformWaits
        } else {
            return None;
        };
        Some((State::Thrashing, cause))
    }

    /// Whether an alarm is over that is not held until then.
    fn ends(&self, held_until: Duration) -> Option<(State, Cause)> {
        let at = self.signals.at;
        if at < held_until {
            return None;
        }
        if self.recovered.lasts(RECOVERED_FOR, at) {
            Some((self.calm(), Cause::Recovered))
        } else if self.still.lasts(STILL_FOR, at) {
            Some((self.calm(), Cause::Still))
        } else {
            None
        }
    }

    fn calm(&self) -> State {
        let percent = self.signals.percent();
        State::Calm {
            settled: self.signals.is_low(&self.limits).then_some(percent),
            pods: self
                .signals
                .pods_percent
                .filter(|_| self.signals.pods_are_low()),
        }
    }

    pub(super) fn rising(&self, only_waits: bool) -> State {
        State::Rising {
            moved_at: self.signals.at,
            anchor: self.signals.percent(),
            only_waits,
        }
    }
}
