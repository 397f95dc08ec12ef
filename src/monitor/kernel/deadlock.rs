//! Services that cannot go on because one of their threads never returns from the kernel.

use std::time::Duration;

use crate::{
    condition::{Finding, Reason, Uptime},
    host::process::{ProcessId, Sample, ThreadWait},
    monitor::HungProcess,
};

/// How long a thread has to be in the same wait, and in how many looks: a suspend of the host makes two looks far apart.
const DEADLOCKED_AFTER: Duration = Duration::from_mins(2);
const LOOKS_IN_A_ROW: u32 = 3;
/// systemd, or what else is the host's init.
pub(super) const INIT_PID: i32 = 1;

/// A thread that waits in the kernel, of a process that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// What the process is to the host, in messages.
    name: &'static str,
    process: ProcessId,
    /// Since when its monitor has reported that it hangs; zero for PID 1, which has no monitor.
    hung_since: Uptime,
    thread: ThreadWait,
}

/// The waits of a service that does not answer: its monitor says so, and any of its threads may be the reason. Not if a signal has stopped
/// it or its cgroup is frozen, as that explains it.
pub(super) fn of_service(name: &'static str, hung: HungProcess, sample: Sample) -> Vec<Wait> {
    if sample.frozen_by.is_some() || matches!(sample.state, 'T' | 't') {
        return Vec::new();
    }
    let wait = |thread| Wait { name, process: hung.process, hung_since: hung.since, thread };
    sample.uninterruptible.into_iter().map(wait).collect()
}

/// The wait of PID 1. Its main thread is the only one that starts and stops units and answers: while that waits, nothing does.
pub(super) fn of_init(process: ProcessId, sample: Sample) -> Vec<Wait> {
    let main = sample.uninterruptible.into_iter().filter(|thread| thread.tid == INIT_PID);
    main.map(|thread| Wait { name: "PID 1", process, hung_since: Uptime::ZERO, thread }).collect()
}

/// All waits that the last look has seen, each with the time of the first look that saw it, and the number of looks.
#[derive(Debug, Default)]
pub(super) struct Deadlocks {
    waits: Vec<(Wait, Uptime, u32)>,
    looked_at: Uptime,
}

impl Deadlocks {
    /// Takes in a look. A wait that it does not see again is over.
    pub(super) fn looked(&mut self, waits: &[Wait], now: Uptime) {
        let before = std::mem::take(&mut self.waits);
        let known = |wait: &Wait| before.iter().find(|(known, ..)| known == wait);
        let looks = |wait: &Wait| known(wait).map_or((*wait, now, 1), |(_, first, looks)| (*wait, *first, looks + 1));
        (self.waits, self.looked_at) = (waits.iter().map(looks).collect(), now);
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let is_long = |(_, first, looks): &&(Wait, Uptime, u32)| {
            *looks >= LOOKS_IN_A_ROW && self.looked_at >= *first + DEADLOCKED_AFTER
        };
        let (Wait { name, process, thread, .. }, ..) = self.waits.iter().find(is_long)?;
        let (pid, tid, waits) = (process.pid, thread.tid, "waited in the kernel (state D) for over 2 minutes");
        let message = if pid == INIT_PID {
            format!("{name} has {waits}: it starts and stops no unit, and only a reboot helps")
        } else {
            format!("{name} pid {pid} does not answer, and its thread {tid} has {waits}")
        };
        Some(Finding::new(Reason::KernelDeadlocked, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Uptime {
        Duration::from_secs(secs)
    }

    fn sample(waits: &[(i32, u64)]) -> Sample {
        let uninterruptible = waits.iter().map(|&(tid, switches)| ThreadWait { tid, switches }).collect();
        Sample { uninterruptible, ..Sample::default() }
    }

    fn kubelet(hung_since: u64, waits: &[(i32, u64)]) -> Vec<Wait> {
        let process = ProcessId { pid: 812, start_ticks: 9 };
        of_service("kubelet", HungProcess { process, since: secs(hung_since) }, sample(waits))
    }

    fn init(waits: &[(i32, u64)]) -> Vec<Wait> {
        of_init(ProcessId { pid: 1, start_ticks: 0 }, sample(waits))
    }

    /// Looks each 30 s at what `seen` returns for that second; returns when a deadlock is found first.
    fn found(seen: impl Fn(u64) -> Vec<Wait>) -> Option<(u64, String)> {
        let mut deadlocks = Deadlocks::default();
        (1000..2000).step_by(30).find_map(|second| {
            deadlocks.looked(&seen(second), secs(second));
            deadlocks.finding().map(|finding| (second, finding.message))
        })
    }

    #[test]
    fn a_service_that_hangs_with_a_thread_in_the_same_wait_for_two_minutes_is_deadlocked() {
        let (second, message) = found(|_| kubelet(990, &[(820, 5), (821, 7)])).unwrap();
        assert_eq!(second, 1120);
        let wanted =
            "kubelet pid 812 does not answer, and its thread 820 has waited in the kernel (state D) for over 2 minutes";
        assert_eq!(message, wanted);
        let mut deadlocks = Deadlocks::default();
        for (second, is_found) in [(1000, false), (1500, false), (1510, true)] {
            deadlocks.looked(&kubelet(990, &[(820, 5)]), secs(second));
            assert_eq!(deadlocks.finding().is_some(), is_found, "{second}");
        }
        deadlocks.looked(&[], secs(1540));
        assert_eq!(deadlocks.finding(), None, "it answers again");
    }

    #[test]
    fn a_thread_that_has_run_or_a_service_that_has_answered_in_between_is_not() {
        assert_eq!(found(|second| kubelet(990, &[(820, second)])), None, "another wait each time");
        assert_eq!(found(|second| kubelet(990, &[(second.try_into().unwrap(), 5)])), None, "other threads");
        assert_eq!(found(|second| kubelet(second - second % 90, &[(820, 5)])), None, "it answered each 90 s");
        assert_eq!(found(|second| if second % 60 == 40 { vec![] } else { kubelet(990, &[(820, 5)]) }), None);
    }

    #[test]
    fn a_service_that_is_stopped_by_a_signal_or_frozen_is_not() {
        let frozen = Sample { frozen_by: Some("/system.slice/kubelet.service".into()), ..sample(&[(820, 5)]) };
        let stopped = Sample { state: 'T', ..sample(&[(820, 5)]) };
        let hung = HungProcess { process: ProcessId { pid: 812, start_ticks: 9 }, since: secs(990) };
        for sample in [frozen, stopped] {
            assert_eq!(found(|_| of_service("kubelet", hung, sample.clone())), None);
        }
    }

    #[test]
    fn of_pid_1_the_main_thread_alone_counts() {
        let (second, message) = found(|_| init(&[(1, 5)])).unwrap();
        assert_eq!(second, 1120);
        assert!(message.starts_with("PID 1 has waited in the kernel"), "{message}");
        assert_eq!(found(|_| init(&[(77, 5)])), None);
        assert_eq!(found(|second| init(&[(1, second)])), None);
    }
}
