//! What confirms lines about processors and hardware. It has to have come since the line: what has counted since boot may be months old.

use std::time::Duration;

use crate::condition::Uptime;
use crate::host::kernel::Counters;

/// The least time between two readings of a processor's time.
const READINGS_APART: Duration = Duration::from_secs(10);
/// A stall is logged after it has begun, and a reading may be older than the line.
const STALL_BEGAN: Duration = Duration::from_mins(1);
/// The kernel's function that has logged a line. It also sets a counter and a flag, which therefore do not confirm its own line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detector {
    Hardware,
    SoftLockup,
    HardLockup,
    Rcu,
}

type Rise = (Detector, fn(&Counters) -> u64, &'static str);

/// Counters and flags of the kernel that confirm a line if they have risen since.
const RISES: [Rise; 7] = [
    (Detector::Hardware, |now| now.corrupted_bytes, "HardwareCorrupted in /proc/meminfo has risen"),
    (Detector::Hardware, |now| now.uncorrected_errors, "ue_count of a memory controller (EDAC) has risen"),
    (Detector::Hardware, |now| now.tainted & (1 << 4), "kernel.tainted has a new flag M (machine check)"),
    (Detector::SoftLockup, |now| now.tainted & (1 << 14), "kernel.tainted has a new flag L (soft lockup)"),
    (Detector::SoftLockup, |now| now.soft_lockups, "softlockup_count in /sys/kernel has risen"),
    (Detector::HardLockup, |now| now.hard_lockups, "hardlockup_count in /sys/kernel has risen"),
    (Detector::Rcu, |now| now.rcu_stalls, "rcu_stall_count in /sys/kernel has risen"),
];

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// None before the first reading.
    pub(super) counters: Option<Counters>,
    /// [`crate::host::kernel::released`], and when.
    released: (Vec<u64>, Uptime),
    /// When a processor was last found to have done nothing else for ten seconds.
    stuck_at: Option<Uptime>,
    /// The service that does not answer.
    hung: Option<&'static str>,
}

impl Witnesses {
    pub(super) fn read(&mut self, counters: Counters, released: Vec<u64>, hung: Option<&'static str>, now: Uptime) {
        (self.counters, self.hung) = (Some(counters), hung);
        let (before, at) = &self.released;
        if now >= *at + READINGS_APART {
            let is_stuck =
                before.len() == released.len() && before.iter().zip(&released).any(|(before, now)| before == now);
            self.stuck_at = if is_stuck { Some(now) } else { self.stuck_at };
            self.released = (released, now);
        }
    }

    /// What confirms an uncorrected error of the hardware, before which `before` was read.
    pub(super) fn of_hardware(&self, before: Counters) -> Option<&'static str> {
        self.risen(before, |detector| detector == Detector::Hardware)
    }

    /// What confirms a lockup that was logged since then by this detector alone, if by one, and before which `before` was read.
    pub(super) fn of_lockup(&self, by: Option<Detector>, since: Uptime, before: Option<Counters>) -> Option<String> {
        if self.stuck_at.is_some_and(|at| at + STALL_BEGAN >= since) {
            return Some("a processor ran no program and was not idle for 10 s (/proc/stat)".into());
        }
        if let Some(service) = self.hung {
            return Some(format!("the {service} does not answer"));
        }
        self.risen(before?, |detector| detector != Detector::Hardware && by != Some(detector)).map(str::to_owned)
    }

    fn risen(&self, before: Counters, is_witness: impl Fn(Detector) -> bool) -> Option<&'static str> {
        let now = self.counters?;
        let has_risen = |(detector, value, _): &&Rise| is_witness(*detector) && value(&now) > value(&before);
        RISES.iter().find(has_risen).map(|(.., text)| *text)
    }
}
