//! Services that cannot go on because one of their threads never returns from the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::condition::{Finding, Reason, Uptime};
use crate::host::process::{ProcessId, Sample};
use crate::monitor::service::samples::Samples;

/// How long a thread has to be in the same wait. At least three samples have to show it, because a suspend of the host separates two samples.
const DEADLOCKED_AFTER: Duration = Duration::from_mins(2);
/// Samples that follow sooner are ignored: a storm of log lines causes more of them than [`Samples`] keeps.
const READINGS_APART: Duration = Duration::from_secs(10);
/// systemd, or what else is the host's init.
pub(super) const INIT_PID: i32 = 1;

/// A sample of a service that does not answer, or of PID 1.
#[derive(Debug, Clone)]
pub(super) struct Suspect {
    /// What it is to the host, in messages.
    pub(super) name: &'static str,
    pub(super) process: ProcessId,
    /// Since when its monitor has reported that it hangs; zero for PID 1, which has no monitor.
    pub(super) hung_since: Uptime,
    pub(super) sample: Sample,
}

#[derive(Debug, Default)]
pub(super) struct Deadlocks {
    /// The last samples in a row of each process, by its name.
    seen: BTreeMap<&'static str, (ProcessId, Uptime, Samples)>,
    next_reading: Uptime,
}

impl Deadlocks {
    /// Records samples. A process that is not sampled again no longer counts.
    pub(super) fn observe(&mut self, suspects: Vec<Suspect>, now: Uptime) -> Option<Finding> {
        if now < self.next_reading {
            return self.found(now);
        }
        self.next_reading = now + READINGS_APART;
        let mut before = std::mem::take(&mut self.seen);
        for Suspect { name, process, hung_since, mut sample } in suspects {
            if process.pid == INIT_PID {
                // Its main thread alone starts and stops units and answers: while that waits, nothing does.
                sample.uninterruptible.retain(|wait| wait.tid == INIT_PID);
            } else {
                // A restart of the service ends the others.
                sample.uninterruptible.retain(|wait| !wait.is_killable());
            }
            let same = before.remove(name).filter(|(known, since, _)| (*known, *since) == (process, hung_since));
            let mut samples = same.map(|(.., samples)| samples).unwrap_or_default();
            samples.take_in(sample, now);
            // A signal that has stopped it or a freezer explains why it does not answer.
            if samples.suspended_by().is_none() {
                self.seen.insert(name, (process, hung_since, samples));
            }
        }
        self.found(now)
    }

    fn found(&self, now: Uptime) -> Option<Finding> {
        self.seen.iter().find_map(|(name, (process, _, samples))| {
            let (pid, wait) = (process.pid, samples.stuck_for(DEADLOCKED_AFTER, now)?);
            let waits = format!("waited in the kernel {} for over 2 minutes", wait.state());
            let message = if pid == INIT_PID {
                format!("{name} has {waits}: systemd starts and stops no unit until the host is rebooted")
            } else {
                format!("{name} pid {pid} does not answer, and its thread {} has {waits}", wait.tid)
            };
            Some(Finding::new(Reason::KernelDeadlocked, message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::ThreadWait;

    fn secs(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    fn sample(waits: &[(i32, u64)]) -> Sample {
        let uninterruptible =
            waits.iter().map(|&(tid, switches)| ThreadWait { tid, switches, ..ThreadWait::default() }).collect();
        Sample { uninterruptible, ..Sample::default() }
    }

    fn seen(hung_since: u64, sample: Sample) -> Vec<Suspect> {
        let process = ProcessId { pid: 812, start_ticks: 9 };
        vec![Suspect { name: "kubelet", process, hung_since: secs(hung_since), sample }]
    }

    fn kubelet(hung_since: u64, waits: &[(i32, u64)]) -> Vec<Suspect> {
        seen(hung_since, sample(waits))
    }

    fn init(waits: &[(i32, u64)]) -> Vec<Suspect> {
        let process = ProcessId { pid: 1, start_ticks: 0 };
        vec![Suspect { name: "PID 1", process, hung_since: Uptime::ZERO, sample: sample(waits) }]
    }

    /// Looks each 30 s at what `seen` returns for that second; returns when a deadlock is found first.
    fn found(seen: impl Fn(u64) -> Vec<Suspect>) -> Option<(u64, String)> {
        let mut deadlocks = Deadlocks::default();
        (1000..2000)
            .step_by(30)
            .find_map(|second| deadlocks.observe(seen(second), secs(second)).map(|finding| (second, finding.message)))
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
            let found = deadlocks.observe(kubelet(990, &[(820, 5)]), secs(second));
            assert_eq!(found.is_some(), is_found, "{second}");
        }
        assert_eq!(deadlocks.observe(vec![], secs(1540)), None, "it answers again");
        let mut findings =
            (2000..2300).step_by(2).map(|second| deadlocks.observe(kubelet(1990, &[(820, 5)]), secs(second)));
        assert_eq!(findings.position(|found| found.is_some()), Some(60), "each 2 s, in a storm of log lines");
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
        for sample in [frozen, stopped] {
            assert_eq!(found(|_| seen(990, sample.clone())), None);
        }
    }

    #[test]
    fn a_wait_that_sigkill_ends_needs_no_reboot() {
        let waits = |function: &str| {
            let wait = ThreadWait { tid: 820, switches: 5, function: function.into() };
            found(|_| seen(990, Sample { uninterruptible: vec![wait.clone()], ..Sample::default() }))
        };
        assert_eq!(waits("rpc_wait_bit_killable"), None);
        let (_, message) = waits("folio_wait_bit_common").unwrap();
        assert!(message.contains("(state D, folio_wait_bit_common)"), "{message}");
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
