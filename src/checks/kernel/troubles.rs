//! What the kernel has told of and is not over: tasks that hang, CPUs that stood still, faults of its own, memory that failed.
//!
//! Pure and bounded. What was said before the agent came waits until a look at the present confirms it. Each trouble knows when it is over: by the kernel's own state where it has one (a task that no longer waits,
//! the taint, the pages that were given up), else after a quiet time without another line.

use std::{collections::VecDeque, time::Duration};

use super::{
    event::{KernelLine, Meaning},
    hung::HungTasks,
    state::KernelState,
};

/// Moments of one kind that are remembered.
const MAX_MOMENTS: usize = 32;
/// Lines of one trouble come together: an oops has several, and a CPU that stands still is told by more than one watchdog.
const TOGETHER: Duration = Duration::from_secs(10);

/// When something happened, lately.
#[derive(Debug, Default)]
pub(super) struct Moments(VecDeque<Duration>);

impl Moments {
    /// Takes one in; what belongs to the last one is not another.
    fn add(&mut self, at: Duration) {
        if self
            .0
            .back()
            .is_some_and(|last| at.saturating_sub(*last) < TOGETHER)
        {
            return;
        }
        if self.0.len() == MAX_MOMENTS {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    /// How many there were within `window` before `now`.
    pub(super) fn within(&self, window: Duration, now: Duration) -> usize {
        let lately = |at: &&Duration| now.saturating_sub(**at) < window;
        self.0.iter().filter(lately).count()
    }

    fn forget_before(&mut self, window: Duration, now: Duration) {
        while self
            .0
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= window)
        {
            self.0.pop_front();
        }
    }
}

/// Everything that is not over.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    pub(super) tasks: HungTasks,
    /// Soft lockups and RCU stalls.
    pub(super) stalls: Moments,
    /// The ones and the others of these.
    soft_lockups: Moments,
    rcu_stalls: Moments,
    pub(super) hard_lockups: Moments,
    pub(super) oopses: Moments,
    pub(super) uncorrected: Moments,
    pub(super) fatal: Moments,
    /// The network device that cannot be taken away, and when that was said last.
    pub(super) netdevice: Option<(String, Duration)>,
    /// What this boot has said before the agent came, with the kernel's stamps: nothing of it counts yet.
    past: VecDeque<(Meaning, Duration)>,
}

/// How long each trouble lasts without another line, where the kernel has no state of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasts {
    pub(super) stalls: Duration,
    pub(super) oopses: Duration,
    pub(super) hardware: Duration,
    pub(super) quiet: Duration,
}

impl Troubles {
    /// Takes in what the log says, and when.
    pub(super) fn take(&mut self, line: &KernelLine, at: Duration) {
        match line.pattern.meaning {
            Meaning::TaskHung => self.tasks.log(line.subject.as_deref().unwrap_or_default()),
            Meaning::NetdeviceStuck => {
                self.netdevice = line.subject.clone().map(|device| (device, at));
            }
            meaning => self.happened(meaning, at),
        }
    }

    fn happened(&mut self, meaning: Meaning, at: Duration) {
        let of_its_kind = match meaning {
            Meaning::SoftLockup => &mut self.soft_lockups,
            Meaning::RcuStall => &mut self.rcu_stalls,
            Meaning::HardLockup => return self.hard_lockups.add(at),
            Meaning::Oops => return self.oopses.add(at),
            Meaning::HardwareLost => return self.uncorrected.add(at),
            Meaning::HardwareFatal => return self.fatal.add(at),
            _ => return,
        };
        of_its_kind.add(at);
        self.stalls.add(at);
    }

    /// Takes in what was said before the agent came. A task may still hang, and is looked for; all else needs the word of
    /// the kernel's tables. (A device that is still stuck is named again within ten seconds.)
    pub(super) fn take_past(&mut self, line: &KernelLine) {
        match line.pattern.meaning {
            Meaning::TaskHung => self.tasks.log(line.subject.as_deref().unwrap_or_default()),
            Meaning::NetdeviceStuck => {}
            meaning => {
                if self.past.len() == MAX_MOMENTS {
                    self.past.pop_front();
                }
                self.past.push_back((meaning, line.at));
            }
        }
    }

    /// A look at the tables that was asked for after the log's past had been read: what they confirm of it counts from now
    /// on, and the rest never happened.
    pub(super) fn confirm_past(&mut self, state: &KernelState) {
        for (meaning, at) in std::mem::take(&mut self.past) {
            if state.witnesses(meaning) {
                self.happened(meaning, at);
            }
        }
    }

    /// How many stalls within `window` a counter or taint of their own kind stands behind.
    pub(super) fn witnessed_stalls(
        &self,
        state: &KernelState,
        window: Duration,
        now: Duration,
    ) -> usize {
        let soft = state.witnesses(Meaning::SoftLockup);
        match (soft, state.witnesses(Meaning::RcuStall)) {
            (true, true) => self.stalls.within(window, now),
            (true, false) => self.soft_lockups.within(window, now),
            (false, true) => self.rcu_stalls.within(window, now),
            (false, false) => 0,
        }
    }

    /// Lets go of what is over by time.
    pub(super) fn pass(&mut self, lasts: Lasts, now: Duration) {
        // As long as a stall counts towards the next, and no shorter than it is told.
        for stalls in [
            &mut self.stalls,
            &mut self.soft_lockups,
            &mut self.rcu_stalls,
        ] {
            stalls.forget_before(lasts.stalls.max(lasts.quiet), now);
        }
        self.hard_lockups.forget_before(lasts.quiet, now);
        self.oopses
            .forget_before(lasts.oopses.max(lasts.quiet), now);
        self.uncorrected.forget_before(lasts.hardware, now);
        self.fatal.forget_before(lasts.hardware, now);
        let is_over = |(_, at): &(String, Duration)| now.saturating_sub(*at) >= lasts.quiet;
        if self.netdevice.as_ref().is_some_and(is_over) {
            self.netdevice = None;
        }
    }

    /// Whether there is anything whose end is to be looked for.
    pub(super) fn is_any(&self) -> bool {
        let moments = [
            &self.stalls,
            &self.hard_lockups,
            &self.oopses,
            &self.uncorrected,
            &self.fatal,
        ];
        !self.tasks.is_empty()
            || self.netdevice.is_some()
            || moments.iter().any(|moments| !moments.0.is_empty())
    }
}
