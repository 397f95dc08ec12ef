//! A kubelet that runs: whether it answers, and if it does not, the second witness that it does not work.

use std::time::Duration;

use super::cut_off::CutOff;
use super::lease::LeaseReadings;
use crate::condition::{Finding, Reason, Uptime, View};
use crate::facts::LeaseFacts;
use crate::host::healthz::Probe;
use crate::host::process::{Listener, ProcessId, Sample};
use crate::monitor::service::samples::{FAILURES_IN_A_ROW, Samples};

/// A SIGKILL that is pending for so long takes a reboot; a thread in the same uninterruptible wait for so long is stuck.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(10);
/// A kubelet whose pages the host reads again accepts nothing for some seconds, until the host's memory pressure shows why.
const ACCEPTS_AFTER: Duration = Duration::from_secs(10);
/// A busy host no longer excuses a kubelet after this time, if it does not renew its Lease either.
const STARVED_MAX: Duration = Duration::from_mins(5);
/// A kubelet that has never answered is judged only after the API server has answered for this long: a kubelet that cannot reach it may
/// not finish its start. The same holds for its connections: after an outage it takes a while to connect again.
pub(super) const API_NEEDED: Duration = Duration::from_mins(1);

/// A kubelet that runs; with pid 0 none does.
#[derive(Debug, Default)]
pub(super) struct RunningKubelet {
    pub(super) id: ProcessId,
    /// `healthzPort: 0`: only its process is watched.
    pub(super) is_unprobed: bool,
    has_answered: bool,
    last_probe: Option<Probe>,
    failed: FailedProbes,
    pub(super) cut_off: CutOff,
    /// Whether it says that its sync loop does not run, and no other reason.
    pub(super) is_loop_stalled: bool,
}

/// What was seen since the kubelet last answered.
#[derive(Debug, Default)]
struct FailedProbes {
    count: u32,
    /// When the first one failed.
    since: Option<Uptime>,
    samples: Samples,
    lease: LeaseReadings,
    killed_since: Option<Uptime>,
}

impl RunningKubelet {
    /// Takes in a probe, and a sample of the process if the probe failed or the process is suspended.
    pub(super) fn probed(&mut self, probe: Probe, sample: Option<Sample>, now: Uptime) {
        match &probe {
            // Another process answers for one that is suspended.
            Probe::Healthy if sample.is_none() => {
                self.has_answered |= !self.is_unprobed;
                self.failed = FailedProbes::default();
            }
            // This does not depend on the kubelet.
            Probe::Impossible(_) => {}
            Probe::Healthy | Probe::Refused | Probe::TimedOut | Probe::NoHttp | Probe::Status(_) => {
                self.failed.count += 1;
                self.failed.since.get_or_insert(now);
                if let Some(sample) = sample {
                    let killed_since = self.failed.killed_since.unwrap_or(now);
                    self.failed.killed_since = sample.is_killed.then_some(killed_since);
                    self.failed.samples.take_in(sample, now);
                }
            }
        }
        self.last_probe = Some(probe);
    }

    pub(super) fn lease_read(&mut self, lease: &LeaseFacts) {
        if self.failed.since.is_some_and(|since| lease.read_at >= since) {
            self.failed.lease.read(lease);
        }
    }

    /// Since how long probes have failed; none while they do not.
    pub(super) fn silent_for(&self, now: Uptime) -> Option<Duration> {
        self.failed.since.map(|since| now - since)
    }

    pub(super) fn answers(&self) -> bool {
        self.failed.since.is_none() && (self.is_unprobed || self.last_probe == Some(Probe::Healthy))
    }

    /// Whether its /healthz is known for good: it has answered there, or serves none.
    pub(super) fn is_settled(&self) -> bool {
        self.is_unprobed || self.has_answered
    }

    fn name(&self) -> String {
        format!("kubelet pid {}", self.id.pid)
    }

    /// What to report of a kubelet that answers.
    pub(super) fn answered_view(&self, now: Uptime) -> View {
        let name = self.name();
        let state =
            if self.is_unprobed { "runs; its /healthz is disabled (healthzPort: 0)" } else { "answers on /healthz" };
        if self.is_loop_stalled {
            let why = "its sync loop has not run for over 5 minutes (its own /healthz/syncloop), so that it starts and stops no pods";
            return View::found(Reason::KubeletHung, format!("{name} {state}, but {why}"));
        }
        if self.cut_off.is_certain(now) {
            let message = format!(
                "{name} {state}, but the control plane has not heard from it (Ready=Unknown), and it does not renew its \
                 Lease; nodevigil reaches the API server"
            );
            return View::found(Reason::KubeletAPIConnectionStalled, message);
        }
        View::healthy(format!("{name} {state}"))
    }

    /// How it does not answer; none before the third failed probe.
    fn silence(&self) -> Option<String> {
        let name = self.name();
        Some(match &self.last_probe {
            Some(Probe::Impossible(why)) => format!("{name} runs, but its /healthz cannot be probed: {why}"),
            _ if self.failed.count < FAILURES_IN_A_ROW => return None,
            _ if self.is_unprobed => format!("{name} does not run; its /healthz is disabled (healthzPort: 0)"),
            Some(Probe::Healthy) => format!("a process other than {name} answers on its /healthz"),
            Some(Probe::Refused) => format!("{name} refuses connections to its /healthz"),
            Some(Probe::NoHttp) => format!("{name} accepts connections to its /healthz and does not speak HTTP"),
            Some(Probe::Status(status)) => format!("{name} answers HTTP {status} on /healthz"),
            _ => format!("{name} does not answer on /healthz"),
        })
    }

    /// What to report of a kubelet that does not answer; none before the third failed probe, and while it may be unkillable.
    pub(super) fn unanswered_view(&self, api_reached: Option<Uptime>, now: Uptime) -> Option<View> {
        let (failed, what) = (&self.failed, self.silence()?);
        let silent = |why: String| Some(View::Unknown(Finding::new(Reason::KubeletHealthzSilent, why)));
        if let Some(Probe::Impossible(_)) = &self.last_probe {
            return silent(what);
        }
        let found = |reason, evidence: String| Some(View::found(reason, format!("{what}; {evidence}")));
        if let Some(evidence) = failed.samples.suspended_by() {
            let is_traced = failed.samples.last().is_some_and(Sample::is_traced);
            return if is_traced {
                silent(format!("{what}; {evidence}"))
            } else {
                found(Reason::KubeletHung, evidence)
            };
        }
        let is_stuck = failed.killed_since.is_some() || failed.samples.stuck_for(UNKILLABLE_AFTER, now).is_some();
        if let Some(limit) = failed.samples.limited_by().filter(|_| !is_stuck) {
            let (reason, evidence) = failed.limited(limit, now);
            return found(reason, evidence);
        }
        if !is_stuck && failed.samples.last().is_some_and(|sample| sample.is_connection_table_full) {
            return silent(format!(
                "{what}; the kernel can track no more connections (net.netfilter.nf_conntrack_max)"
            ));
        }
        if failed.lease.is_renewed(now) {
            let evidence = match &self.last_probe {
                Some(Probe::Status(_)) => "but it renews its Lease, so it works",
                _ => "but it renews its Lease, so something such as a firewall blocks the probes",
            };
            return found(Reason::KubeletHealthzUnreachable, evidence.into());
        }
        if failed.are_excused(now) {
            return found(
                Reason::KubeletStarved,
                "but the host is too busy to run it (/proc/pressure, schedstat)".into(),
            );
        }
        if self.has_answered || api_reached.is_some_and(|since| now >= since + API_NEEDED) {
            if let Some(since) = failed.killed_since {
                // Whether it ends is known within seconds.
                let evidence =
                    (now >= since + UNKILLABLE_AFTER).then_some("SIGKILL is pending for it, and it does not end");
                return found(Reason::KubeletUnkillable, evidence?.into());
            }
            if let Some(wait) = failed.samples.stuck_for(UNKILLABLE_AFTER, now) {
                let (tid, secs) = (wait.tid, UNKILLABLE_AFTER.as_secs());
                let evidence = format!("its thread {tid} has waited in the kernel {} for over {secs} s", wait.state());
                return found(Reason::KubeletHung, evidence);
            }
            if failed.samples.stuck_for(Duration::ZERO, now).is_some() || self.may_accept_again(now) {
                return None;
            }
            if let Some(evidence) = self.hang_evidence(now) {
                return found(Reason::KubeletHung, evidence);
            }
        }
        silent(format!("{what}; neither its process state, its listening socket nor its Lease shows whether it works"))
    }

    /// Whether connections wait at the port where it has answered, from one sample to the next, and none is accepted.
    fn accepts_nothing(&self) -> bool {
        let samples = &self.failed.samples;
        let mut listeners = samples.newest_first().map(|sample| sample.listener);
        let is_same = matches!((listeners.next(), listeners.next()),
            (Some(Listener::Waiting(now)), Some(Listener::Waiting(before))) if before > 0 && now >= before);
        // A host that waits for memory looks the same.
        self.has_answered && samples.knows_memory_pressure && is_same
    }

    /// Whether it accepts nothing, and that is no witness yet.
    fn may_accept_again(&self, now: Uptime) -> bool {
        let is_early = self.failed.since.is_some_and(|since| now < since + ACCEPTS_AFTER);
        is_early && self.accepts_nothing()
    }

    /// The second witness, in addition to the failed probes, that it does not work.
    fn hang_evidence(&self, now: Uptime) -> Option<String> {
        let failed = &self.failed;
        // What another program has at a port that the kubelet never answered at proves nothing.
        if self.accepts_nothing() {
            return Some("it does not accept the connections that wait at its port".into());
        }
        let nobody_listens = failed.samples.last().is_some_and(|sample| sample.listener == Listener::Nobody);
        if self.has_answered && nobody_listens && self.last_probe == Some(Probe::Refused) {
            return Some("nothing listens on its port any more".into());
        }
        // The seconds so far are left out: each would be another message.
        failed.lease.is_old(now).then(|| "it does not renew its Lease".into())
    }
}

impl FailedProbes {
    /// What to report of a kubelet that a limit of its unit slows down.
    fn limited(&self, limit: &str, now: Uptime) -> (Reason, String) {
        if self.lease.is_old(now) {
            (Reason::KubeletHung, format!("{limit}, and it does not renew its Lease"))
        } else {
            (Reason::KubeletStarved, limit.into())
        }
    }

    /// Whether the host's load excuses them.
    fn are_excused(&self, now: Uptime) -> bool {
        let lasts_too_long = self.samples.starved_since.is_some_and(|since| now >= since + STARVED_MAX);
        self.samples.is_starved(now) && !(lasts_too_long && self.lease.is_old(now))
    }
}
