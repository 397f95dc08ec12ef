//! From state to state: [`Machine::next`] (in [`next`]) is the one place that says when, [`Machine::enter`] the one that does it.

mod next;

use std::time::Duration;

use super::{
    history::{History, Point},
    limits::{CALM_EVERY, Limits, MAX_GAP, RISING_EVERY, WHOLE_EVERY},
    sample::{Depth, Level, Sample},
    signals::{self, Signals, real},
    state::{Raised, Since, Stage, State, Transition},
    why::{Cause, Why},
};
use crate::checks::kernel::event::Scope;

/// A kill that is only counted was the host's if so little was available, in percent, within that time.
const SHORT: (Duration, f64) = (Duration::from_secs(3), 10.0);
/// How far what is available may go from where it was judged last, in percent of the memory, without being judged anew.
const STEADY_PERCENT: f64 = 0.5;
/// How long waiting tasks are no reason to look closely again, after they were none: first, and at most.
const DEAF: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(8));

/// The states, and all that is remembered.
#[derive(Debug)]
pub struct Machine {
    limits: Limits,
    state: State,
    history: History,
    signals: Signals,
    /// What was available when that was judged last, in bytes.
    judged_available: f64,
    /// What zram takes of what is put in, if there is any: by the last look that read all.
    zram: Option<f64>,
    looks: u32,
    due_at: Duration,
    plunging: Since,
    plunging_looks: u32,
    recovered: Since,
    still: Since,
    flows: Since,
    imminent: Raised,
    thrashing: Raised,
    deaf_until: Duration,
    deaf_for: Duration,
}

impl Machine {
    /// Calm, and knows nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Calm {
                settled: None,
                pods: None,
            },
            history: History::default(),
            signals: Signals::default(),
            judged_available: 0.0,
            zram: None,
            looks: 0,
            due_at: Duration::ZERO,
            plunging: Since::default(),
            plunging_looks: 0,
            recovered: Since::default(),
            still: Since::default(),
            flows: Since::default(),
            imminent: Raised::default(),
            thrashing: Raised::default(),
            deaf_until: Duration::ZERO,
            deaf_for: DEAF.0,
        }
    }

    /// How memory stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What the last look said.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Whether the last look has two witnesses that the host is short of memory: the counters of reclaim, and either what is
    /// available or the time that tasks wait.
    pub fn is_sure_of_thrashing(&self) -> bool {
        self.signals.is_short_twice(&self.limits)
    }

    /// When it is to be looked at again (uptime).
    pub fn due_at(&self) -> Duration {
        self.due_at
    }

    /// How long from one look to the next.
    pub fn interval(&self) -> Duration {
        match self.state {
            State::Calm { .. } => CALM_EVERY,
            _ => RISING_EVERY,
        }
    }

    /// How much is to be read at the next look. In a calm that is little, and with plenty of memory even less; but where it is
    /// nearly gone all of it tells whether the host thrashes, and now and then all is read to see the pods' limit.
    pub fn depth(&self) -> Depth {
        let is_calm = matches!(self.state, State::Calm { .. });
        let is_low = self.signals.total > 0.0
            && self.signals.percent() <= 2.0 * self.limits.thrashing_percent;
        if !is_calm || is_low || self.looks.is_multiple_of(WHOLE_EVERY) {
            Depth::Whole
        } else if self.signals.is_ample() {
            Depth::Head
        } else {
            Depth::Level
        }
    }

    /// Takes in a look.
    pub fn look(&mut self, sample: &Sample) -> Option<Transition> {
        let transition = if self.remember(sample) {
            self.looks = self.looks.wrapping_add(1);
            if self.is_steady(sample) {
                self.follow(sample);
                None
            } else {
                self.judge(sample)
            }
        } else {
            None
        };
        self.due_at = sample.at + self.interval();
        transition
    }

    /// The kernel said that tasks wait for memory: that is a reason to look, and nothing else.
    pub fn wake(&mut self, at: Duration) -> Option<Transition> {
        let is_deaf = at < self.deaf_until && self.signals.is_ample();
        if is_deaf || !matches!(self.state, State::Calm { .. }) {
            return None;
        }
        (self.due_at, self.signals.at) = (at, at);
        self.enter(self.rising(true), Cause::Woken)
    }

    /// The kernel killed a process for memory. A kill at a group's own limit says nothing of the host's.
    pub fn killed(&mut self, at: Duration, scope: Scope) -> Option<Transition> {
        match scope {
            Scope::Host => self.die(at, Cause::Killed),
            Scope::Cgroup => None,
        }
    }

    /// Another kill was counted, and nobody says whose limit was reached: it is the host's if that was short.
    pub fn counted_kill(&mut self, at: Duration) -> Option<Transition> {
        let (within, percent) = SHORT;
        let few = self.signals.total * percent / 100.0;
        let is_short = self
            .history
            .points()
            .take_while(|point| at.saturating_sub(point.at) <= within)
            .any(|point| point.available <= few);
        let is_alarmed = matches!(self.state, State::Imminent | State::Thrashing);
        let is_lied_to = self.signals.is_in_vain();
        (is_short || is_alarmed || is_lied_to).then(|| self.die(at, Cause::CountedKill))?
    }

    fn die(&mut self, at: Duration, cause: Cause) -> Option<Transition> {
        // What was before has ended with the process.
        self.history.forget_trend(at);
        (self.due_at, self.signals.at) = (at + RISING_EVERY, at);
        (self.recovered, self.still) = (Since::default(), Since::default());
        self.enter(State::Oom { killed_at: at }, cause)
    }

    /// Puts a look into the history; `false` if it is none: no memory at all, or not after the last.
    fn remember(&mut self, sample: &Sample) -> bool {
        let last = self.history.newest().map(|point| point.at);
        if sample.level.total == 0 || last.is_some_and(|last| sample.at <= last) {
            return false;
        }
        let gap = last.map(|last| sample.at.saturating_sub(last));
        if gap.is_some_and(|gap| gap > MAX_GAP) {
            self.history.forget_trend(sample.at);
            (self.plunging, self.recovered) = (Since::default(), Since::default());
            (self.still, self.flows) = (Since::default(), Since::default());
        }
        if sample.reclaim.is_some() || sample.zram.is_some() {
            self.zram = signals::zram_ratio(sample);
        }
        let swap = signals::swap(sample, self.zram);
        let available = real(sample.level.available);
        self.history.push(Point {
            at: sample.at,
            available,
            headroom: swap.map(|swap| available + swap),
            pods_free: sample
                .pods
                .map(|pods| real(pods.limit.saturating_sub(pods.used))),
            stall: sample.stall,
            kubelet_full_us: sample.kubelet_full_us,
            runtime_full_us: sample.runtime_full_us,
            reclaim: sample.reclaim,
            speaks_for: gap.unwrap_or_default().min(CALM_EVERY),
            thrashes: false,
            in_vain: false,
        });
        true
    }

    /// Whether a look that read no more than the head finds plenty of memory where it was judged last: nothing can come of that,
    /// and to judge it is most of what such a look costs. Now and then all is read, and judged.
    fn is_steady(&self, sample: &Sample) -> bool {
        let Sample {
            stall: None,
            reclaim: None,
            pods: None,
            ..
        } = sample
        else {
            return false;
        };
        let moved = (real(sample.level.available) - self.judged_available).abs();
        matches!(self.state, State::Calm { .. })
            && self.signals.is_ample()
            && moved <= self.signals.total * STEADY_PERCENT / 100.0
    }

    /// Takes from a look what is there, and leaves how it moves as it was judged.
    fn follow(&mut self, sample: &Sample) {
        let Level {
            total, available, ..
        } = sample.level;
        self.signals = Signals {
            at: sample.at,
            total: real(total),
            available: real(available),
            swap: signals::swap(sample, self.zram),
            ..self.signals
        };
    }

    fn judge(&mut self, sample: &Sample) -> Option<Transition> {
        let swap = signals::swap(sample, self.zram);
        self.signals = signals::signals(sample, swap, &self.history);
        self.judged_available = self.signals.available;
        self.mark();
        let (state, cause) = self.next()?;
        self.enter(state, cause)
    }

    /// Counts for how long things have been as they are.
    fn mark(&mut self) {
        let (signals, at) = (&self.signals, self.signals.at);
        if let Some(point) = self.history.newest_mut() {
            point.thrashes = signals.thrashes(&self.limits);
            point.in_vain = signals.is_in_vain();
        }
        let plunges = signals.plunges(&self.limits);
        self.plunging.mark(plunges, at);
        self.plunging_looks = if plunges { self.plunging_looks + 1 } else { 0 };
        let still = signals.is_still();
        self.recovered
            .mark(still && signals.has_recovered(&self.limits), at);
        self.still.mark(still && signals.reclaims != Some(true), at);
        self.flows.mark(signals.flows(), at);
    }

    /// The one place that changes from one state to another.
    fn enter(&mut self, state: State, cause: Cause) -> Option<Transition> {
        let (from, to, at) = (self.state.stage(), state.stage(), self.signals.at);
        if let (State::Rising { only_waits, .. }, State::Calm { .. }) = (self.state, state)
            && (only_waits || self.signals.moves(&self.limits).is_some())
        {
            // Some group at its own limit: to look closely at that for hours would cost more than it tells.
            let is_new = at.saturating_sub(self.deaf_until) > DEAF.1;
            self.deaf_for = if is_new {
                DEAF.0
            } else {
                (self.deaf_for * 2).min(DEAF.1)
            };
            self.deaf_until = at + self.deaf_for;
        }
        self.state = state;
        if from == to {
            return None;
        }
        match to {
            Stage::Imminent if from < to => self.imminent.again(at),
            Stage::Thrashing if from < to => self.thrashing.again(at),
            _ => {}
        }
        let why = Why {
            cause,
            signals: self.signals,
        };
        Some(Transition { at, from, to, why })
    }
}

#[cfg(test)]
mod tests;
