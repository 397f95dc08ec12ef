//! Services that cannot go on because one of their threads never returns from the kernel.

use std::time::Duration;

use crate::{
    condition::{Finding, Reason, Uptime},
    host::process::{ProcessId, Sample, ThreadWait},
    monitor::hung::HungProcess,
};

/// How long a thread has to be in the same wait, and in how many looks: a suspend of the host makes two looks far apart.
const DEADLOCKED_AFTER: Duration = Duration::from_mins(2);
const LOOKS: u32 = 3;
/// systemd, or what else is the host's init.
pub(super) const INIT_PID: i32 = 1;
const INIT: &str = "PID 1";

/// A look at a process that may be deadlocked.
#[derive(Debug)]
pub(super) struct Seen {
    /// What it is to the host, in messages.
    name: &'static str,
    process: ProcessId,
    /// Since when its monitor has reported that it hangs; zero for PID 1, which has no monitor.
    hung_since: Uptime,
    waits: Vec<ThreadWait>,
}

impl Seen {
    /// A service that does not answer: its monitor says so, and any of its threads may be the reason. Not if a signal has stopped it or its
    /// cgroup is frozen, as that explains it.
    pub(super) fn service(name: &'static str, hung: HungProcess, sample: Sample) -> Self {
        let is_suspended = sample.frozen_by.is_some() || matches!(sample.state, 'T' | 't');
        let waits = if is_suspended { Vec::new() } else { sample.uninterruptible };
        Self { name, process: hung.process, hung_since: hung.since, waits }
    }

    /// PID 1. Its main thread is the only one that starts and stops units and answers: while that waits, nothing does.
    pub(super) fn init(process: ProcessId, sample: Sample) -> Self {
        let waits = sample.uninterruptible.into_iter().filter(|wait| wait.tid == INIT_PID).collect();
        Self { name: INIT, process, hung_since: Uptime::ZERO, waits }
    }
}

/// A thread's wait, as one look after the other has seen it.
#[derive(Debug)]
struct Wait {
    name: &'static str,
    process: ProcessId,
    hung_since: Uptime,
    thread: ThreadWait,
    first: Uptime,
    last: Uptime,
    looks: u32,
}

/// All waits that the last look has seen.
#[derive(Debug, Default)]
pub(super) struct Deadlocks(Vec<Wait>);

impl Deadlocks {
    /// Takes in a look. A wait that it does not see again is over.
    pub(super) fn looked(&mut self, seen: &[Seen], now: Uptime) {
        let before = std::mem::take(&mut self.0);
        for Seen { name, process, hung_since, waits } in seen {
            for thread in waits {
                let is_same =
                    |wait: &&Wait| (wait.process, wait.hung_since, wait.thread) == (*process, *hung_since, *thread);
                let (first, looks) = before.iter().find(is_same).map_or((now, 0), |wait| (wait.first, wait.looks));
                let (name, process, hung_since, thread) = (*name, *process, *hung_since, *thread);
                self.0.push(Wait { name, process, hung_since, thread, first, last: now, looks: looks + 1 });
            }
        }
    }

    /// The first deadlock, if there is one.
    pub(super) fn finding(&self) -> Option<Finding> {
        let is_long = |wait: &&Wait| wait.looks >= LOOKS && wait.last >= wait.first + DEADLOCKED_AFTER;
        let wait = self.0.iter().find(is_long)?;
        let (name, pid, tid) = (wait.name, wait.process.pid, wait.thread.tid);
        let message = if pid == INIT_PID {
            format!("{name} has waited in the kernel (state D) for over 2 minutes: systemd starts and stops nothing")
        } else {
            format!(
                "{name} pid {pid} does not answer, and its thread {tid} has waited in the kernel (state D) for over 2 minutes"
            )
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

    fn kubelet(hung_since: u64, waits: &[(i32, u64)]) -> Seen {
        let process = ProcessId { pid: 812, start_ticks: 9 };
        Seen::service("kubelet", HungProcess { process, since: secs(hung_since) }, sample(waits))
    }

    fn init(waits: &[(i32, u64)]) -> Seen {
        Seen::init(ProcessId { pid: 1, start_ticks: 0 }, sample(waits))
    }

    /// Looks each 30 s at what `seen` returns for that second; returns when a deadlock is found first.
    fn found(seen: impl Fn(u64) -> Vec<Seen>) -> Option<(u64, String)> {
        let mut deadlocks = Deadlocks::default();
        (1000..2000).step_by(30).find_map(|second| {
            deadlocks.looked(&seen(second), secs(second));
            deadlocks.finding().map(|finding| (second, finding.message))
        })
    }

    #[test]
    fn a_service_that_hangs_with_a_thread_in_the_same_wait_for_two_minutes_is_deadlocked() {
        let (second, message) = found(|_| vec![kubelet(990, &[(820, 5), (821, 7)])]).unwrap();
        assert_eq!(second, 1120);
        let wanted =
            "kubelet pid 812 does not answer, and its thread 820 has waited in the kernel (state D) for over 2 minutes";
        assert_eq!(message, wanted);
        let mut deadlocks = Deadlocks::default();
        for (second, is_found) in [(1000, false), (1500, false), (1510, true)] {
            deadlocks.looked(&[kubelet(990, &[(820, 5)])], secs(second));
            assert_eq!(deadlocks.finding().is_some(), is_found, "{second}");
        }
        deadlocks.looked(&[], secs(1540));
        assert_eq!(deadlocks.finding(), None, "it answers again");
    }

    #[test]
    fn a_thread_that_has_run_or_a_service_that_has_answered_in_between_is_not() {
        assert_eq!(found(|second| vec![kubelet(990, &[(820, second)])]), None, "another wait each time");
        assert_eq!(found(|second| vec![kubelet(990, &[(second.try_into().unwrap(), 5)])]), None, "other threads");
        assert_eq!(found(|second| vec![kubelet(second - second % 90, &[(820, 5)])]), None, "it answered each 90 s");
        assert_eq!(found(|second| if second % 60 == 40 { vec![] } else { vec![kubelet(990, &[(820, 5)])] }), None);
    }

    #[test]
    fn a_service_that_is_stopped_by_a_signal_or_frozen_is_not() {
        let frozen = Sample { frozen_by: Some("/system.slice/kubelet.service".into()), ..sample(&[(820, 5)]) };
        let stopped = Sample { state: 'T', ..sample(&[(820, 5)]) };
        let hung = HungProcess { process: ProcessId { pid: 812, start_ticks: 9 }, since: secs(990) };
        for sample in [frozen, stopped] {
            assert_eq!(found(|_| vec![Seen::service("kubelet", hung, sample.clone())]), None);
        }
    }

    #[test]
    fn of_pid_1_the_main_thread_alone_counts() {
        let (second, message) = found(|_| vec![init(&[(1, 5)])]).unwrap();
        assert_eq!(second, 1120);
        assert!(message.starts_with("PID 1 has waited in the kernel"), "{message}");
        assert_eq!(found(|_| vec![init(&[(77, 5)])]), None);
        assert_eq!(found(|second| vec![init(&[(1, second)])]), None);
    }
}
