//! What the kernel's own tables say now: counters and flags of this boot, and which tasks wait. A line of the log is one
//! witness; these are the other.

use super::event::Meaning;

/// The taint of a kernel that has met a machine check (`M`, bit 4).
const TAINT_MACHINE_CHECK: u64 = 1 << 4;
/// The taint of a kernel that has met a fault of its own (`D`, bit 7).
const TAINT_DIE: u64 = 1 << 7;
/// The taint of a kernel one of whose CPUs stood still (`L`, bit 14).
const TAINT_SOFT_LOCKUP: u64 = 1 << 14;

/// Which tasks a look at the tables is to tell of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelAsk {
    /// Threads that the log has named.
    pub tids: Vec<i32>,
    /// Processes all of whose threads are looked at.
    pub processes: Vec<i32>,
}

impl KernelAsk {
    /// Whether no task is asked about.
    pub fn is_empty(&self) -> bool {
        self.tids.is_empty() && self.processes.is_empty()
    }
}

/// A thread that waits in the kernel and cannot be killed (state `D`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitingTask {
    /// Its thread id.
    pub tid: i32,
    /// The process that it belongs to.
    pub pid: i32,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// When it started, in the kernel's ticks: with the id, its identity.
    pub started: u64,
    /// How often it has given up the CPU or lost it: the same number at two looks is the same wait.
    pub switches: u64,
    /// The cgroup that it is in.
    pub cgroup: Option<String>,
}

/// What the kernel's tables say now; `None`: this kernel has no such table, or it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelState {
    /// `/proc/sys/kernel/tainted`.
    pub tainted: Option<u64>,
    /// `HardwareCorrupted` of `/proc/meminfo`: memory that was given up, in KiB.
    pub corrupted_kib: Option<u64>,
    /// Uncorrected errors that the memory controllers have counted (EDAC).
    pub uncorrected: Option<u64>,
    /// Faults of the kernel's own (since Linux 6.2).
    pub oopses: Option<u64>,
    /// Soft lockups, hard lockups, RCU stalls (since Linux 6.16).
    pub soft_lockups: Option<u64>,
    /// See above.
    pub hard_lockups: Option<u64>,
    /// See above.
    pub rcu_stalls: Option<u64>,
    /// `kernel.hung_task_timeout_secs`: 0 turns the detection off.
    pub hung_task_timeout_secs: Option<u64>,
    /// `kernel.hung_task_warnings`: how many hung tasks will still be logged; -1 for all.
    pub hung_task_warnings: Option<i64>,
    /// The tasks that were asked for and wait.
    pub waiting: Vec<WaitingTask>,
}

/// Why the kernel logs no hung task any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetectionOff {
    /// `kernel.hung_task_timeout_secs` is 0.
    NoTimeout,
    /// `kernel.hung_task_warnings` is 0.
    WarningsSpent,
}

impl DetectionOff {
    /// The setting that says so, and what follows, as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoTimeout => {
                "kernel.hung_task_timeout_secs is 0: the kernel does not look for hung tasks"
            }
            Self::WarningsSpent => {
                "kernel.hung_task_warnings is 0: the kernel has used up its warnings and logs no hung task any more (`sysctl kernel.hung_task_warnings=10` allows more, -1 all)"
            }
        }
    }
}

fn some(count: Option<u64>) -> bool {
    count.is_some_and(|count| count > 0)
}

impl KernelState {
    fn is_tainted(&self, taint: u64) -> bool {
        self.tainted.is_some_and(|taints| taints & taint != 0)
    }

    /// Whether it has met a fault of its own since it was booted.
    pub fn has_oopsed(&self) -> bool {
        self.is_tainted(TAINT_DIE) || some(self.oopses)
    }

    /// Whether memory has failed since it was booted.
    pub fn has_lost_memory(&self) -> bool {
        some(self.corrupted_kib) || some(self.uncorrected) || self.is_tainted(TAINT_MACHINE_CHECK)
    }

    /// Whether a counter or a taint of this boot says what a line with that meaning says. `false` where the kernel has
    /// neither.
    pub fn witnesses(&self, meaning: Meaning) -> bool {
        match meaning {
            Meaning::SoftLockup => self.is_tainted(TAINT_SOFT_LOCKUP) || some(self.soft_lockups),
            // Kernels before 6.16 count no hard lockups; a CPU that takes no interrupts soon stands still for others too.
            Meaning::HardLockup => match self.hard_lockups {
                Some(count) => count > 0,
                None => self.is_tainted(TAINT_SOFT_LOCKUP),
            },
            Meaning::RcuStall => some(self.rcu_stalls),
            Meaning::Oops => self.has_oopsed(),
            Meaning::HardwareLost | Meaning::HardwareFatal => self.has_lost_memory(),
            _ => false,
        }
    }

    /// Whether the kernel logs no hung task, and why; a kernel that was built without the detection says nothing.
    pub fn detection_off(&self) -> Option<DetectionOff> {
        match (self.hung_task_timeout_secs?, self.hung_task_warnings?) {
            (0, _) => Some(DetectionOff::NoTimeout),
            (_, 0) => Some(DetectionOff::WarningsSpent),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_witness_of_its_own() {
        let tainted = |bit: u32| KernelState {
            tainted: Some(1 << bit),
            ..KernelState::default()
        };
        let said = |state: &KernelState| {
            [
                Meaning::SoftLockup,
                Meaning::HardLockup,
                Meaning::RcuStall,
                Meaning::Oops,
                Meaning::HardwareLost,
                Meaning::HardwareFatal,
            ]
            .map(|meaning| state.witnesses(meaning))
        };
        let none = [false; 6];
        assert_eq!(said(&KernelState::default()), none);
        // Out of tree, a warning, a module: everyday taints.
        for bit in [0, 9, 12, 13] {
            assert_eq!(said(&tainted(bit)), none);
        }
        assert_eq!(said(&tainted(14)), [true, true, false, false, false, false]);
        assert_eq!(said(&tainted(7)), [false, false, false, true, false, false]);
        assert_eq!(said(&tainted(4)), [false, false, false, false, true, true]);
        let counted = KernelState {
            soft_lockups: Some(1),
            hard_lockups: Some(0),
            rcu_stalls: Some(2),
            oopses: Some(0),
            ..tainted(14)
        };
        let wanted = [true, false, true, false, false, false];
        assert_eq!(said(&counted), wanted, "it counts, and has none");
    }

    #[test]
    fn spent_warnings_and_no_timeout_are_off_and_a_kernel_without_is_neither() {
        let off = |timeout, warnings| {
            KernelState {
                hung_task_timeout_secs: timeout,
                hung_task_warnings: warnings,
                ..KernelState::default()
            }
            .detection_off()
        };
        assert_eq!(off(Some(120), Some(10)), None);
        assert_eq!(off(Some(120), Some(-1)), None);
        assert_eq!(off(Some(120), Some(0)), Some(DetectionOff::WarningsSpent));
        assert_eq!(off(Some(0), Some(10)), Some(DetectionOff::NoTimeout));
        assert_eq!(off(None, None), None);
    }
}
