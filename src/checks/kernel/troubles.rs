//! What the kernel has told of and is not over: tasks that hang, CPUs that stood still, faults of its own, memory that failed.
//!
//! Pure and bounded. Each trouble knows when it is over: by the kernel's own state where it has one (a task that no longer waits,
//! the taint, the pages that were given up), else after a quiet time without another line.

use std::{collections::VecDeque, time::Duration};

use super::event::{KernelLine, Meaning};

/// Hung tasks that are remembered.
const MAX_TASKS: usize = 16;
/// Moments of one kind that are remembered.
const MAX_MOMENTS: usize = 32;
/// Lines of one trouble come together: an oops has several, and a CPU that stands still is told by more than one watchdog.
const TOGETHER: Duration = Duration::from_secs(10);

/// The taint of a kernel that has met a fault of its own (`D`, bit 7).
const TAINT_DIE: u64 = 1 << 7;
/// The taint of a kernel that has met a machine check (`M`, bit 4).
const TAINT_MACHINE_CHECK: u64 = 1 << 4;

/// What the kernel's tables say now; `None`: this kernel has no such table, or it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelState {
    /// `/proc/sys/kernel/tainted`.
    pub tainted: Option<u64>,
    /// `HardwareCorrupted` of `/proc/meminfo`: memory that was given up, in KiB.
    pub corrupted_kib: Option<u64>,
    /// Uncorrected errors that the memory controllers have counted (EDAC).
    pub uncorrected: Option<u64>,
    /// Which of the tasks that were asked for still wait and cannot be killed.
    pub waiting: Vec<i32>,
}

impl KernelState {
    /// Whether it has met a fault of its own since it was booted.
    pub fn has_oopsed(&self) -> bool {
        self.tainted.is_some_and(|taint| taint & TAINT_DIE != 0)
    }

    /// Whether memory has failed since it was booted.
    pub fn has_lost_memory(&self) -> bool {
        self.corrupted_kib.is_some_and(|kib| kib > 0)
            || self.uncorrected.is_some_and(|errors| errors > 0)
            || self
                .tainted
                .is_some_and(|taint| taint & TAINT_MACHINE_CHECK != 0)
    }
}

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

/// A task that waits and cannot be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HungTask {
    /// Its thread id.
    pub(super) tid: i32,
    /// Its name.
    pub(super) comm: String,
    /// Since when it is known to hang.
    pub(super) since: Duration,
}

/// Everything that is not over.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    pub(super) tasks: Vec<HungTask>,
    /// Soft lockups and RCU stalls.
    pub(super) stalls: Moments,
    pub(super) hard_lockups: Moments,
    pub(super) oopses: Moments,
    pub(super) uncorrected: Moments,
    pub(super) fatal: Moments,
    /// The network device that cannot be taken away, and when that was said last.
    pub(super) netdevice: Option<(String, Duration)>,
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
            Meaning::TaskHung => self.hung(line, at),
            Meaning::SoftLockup | Meaning::RcuStall => self.stalls.add(at),
            Meaning::HardLockup => self.hard_lockups.add(at),
            Meaning::Oops => self.oopses.add(at),
            Meaning::HardwareLost => self.uncorrected.add(at),
            Meaning::HardwareFatal => self.fatal.add(at),
            Meaning::NetdeviceStuck => {
                self.netdevice = line.subject.clone().map(|device| (device, at));
            }
            _ => {}
        }
    }

    fn hung(&mut self, line: &KernelLine, at: Duration) {
        let Some((comm, tid)) = line.subject.as_deref().and_then(|s| s.rsplit_once(':')) else {
            return;
        };
        let Ok(tid) = tid.parse() else { return };
        if self.tasks.iter().any(|task| task.tid == tid) || self.tasks.len() == MAX_TASKS {
            return;
        }
        self.tasks.push(HungTask {
            tid,
            comm: comm.to_owned(),
            since: at,
        });
    }

    /// Takes in what the kernel's tables say, to a question about `asked`.
    pub(super) fn learn(&mut self, state: &KernelState, asked: &[i32]) {
        self.tasks
            .retain(|task| !asked.contains(&task.tid) || state.waiting.contains(&task.tid));
    }

    /// Lets go of what is over by time.
    pub(super) fn pass(&mut self, lasts: Lasts, now: Duration) {
        // As long as a stall counts towards the next, and no shorter than it is told.
        self.stalls
            .forget_before(lasts.stalls.max(lasts.quiet), now);
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

    /// The tasks whose state is to be read.
    pub(super) fn tids(&self) -> Vec<i32> {
        self.tasks.iter().map(|task| task.tid).collect()
    }
}
