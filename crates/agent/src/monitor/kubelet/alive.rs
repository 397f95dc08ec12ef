//! A kubelet that runs: whether it answers, and if it does not, what else says that it does not work.

use std::time::Duration;

use super::{lease::LeaseReadings, stall::Stall};
use crate::{
    condition::{Finding, Reason, Uptime, View},
    host::{
        api::LeaseFacts,
        healthz::Probe,
        pressure::Pressure,
        process::{Listener, ProcessId, Sample},
    },
    monitor::service::samples::{FAILURES, Samples},
};

/// A thread in the same uninterruptible wait for so long, or a SIGKILL that is pending for so long, takes a reboot.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(10);
/// A busy host no longer excuses a kubelet after this time, if it does not renew its Lease either.
const STARVED_MAX: Duration = Duration::from_mins(5);
/// A kubelet that has never answered is judged only after the API server has answered for this long: a kubelet that cannot reach it may
/// not finish its start. The same holds for its connections: after an outage it takes a while to connect again.
pub(super) const API_NEEDED: Duration = Duration::from_mins(1);

/// A running kubelet.
#[derive(Debug)]
pub(super) struct Alive {
    pub(super) id: ProcessId,
    started: Uptime,
    /// `healthzPort: 0`: only its process is watched.
    is_unprobed: bool,
    has_answered: bool,
    last_probe: Option<Probe>,
    silence: Silence,
    pub(super) stall: Stall,
}

/// What was seen since the kubelet last answered.
#[derive(Debug, Default)]
struct Silence {
    failures: u32,
    /// When the first probe failed.
    since: Option<Uptime>,
    samples: Samples,
    lease: LeaseReadings,
    killed_since: Option<Uptime>,
}

impl Alive {
    pub(super) fn new(id: ProcessId, started: Uptime) -> Self {
        Self {
            id,
            started,
            is_unprobed: false,
            has_answered: false,
            last_probe: None,
            silence: Silence::default(),
            stall: Stall::default(),
        }
    }

    pub(super) fn probed(&mut self, probe: Probe, now: Uptime) {
        match &probe {
            Probe::Healthy => {
                self.has_answered = true;
                self.silence = Silence::default();
            }
            // It says nothing of the kubelet.
            Probe::Impossible(_) => {}
            Probe::Refused | Probe::TimedOut | Probe::NoHttp | Probe::Status(_) => {
                self.stall = Stall::default();
                self.silence.failures += 1;
                self.silence.since.get_or_insert(now);
            }
        }
        self.last_probe = Some(probe);
    }

    /// It serves no /healthz.
    pub(super) fn set_unprobed(&mut self) {
        self.is_unprobed = true;
    }

    pub(super) fn sampled(&mut self, sample: Sample, pressure: Pressure, now: Uptime) {
        if self.silence.failures == 0 {
            return;
        }
        self.silence.sampled(sample, pressure, now);
    }

    pub(super) fn lease_read(&mut self, lease: &LeaseFacts, now: Uptime) {
        if self.silence.since.is_some_and(|since| lease.read_at >= since) {
            self.silence.lease.read(lease);
        }
        self.stall.lease_read(lease, now);
    }

    /// Since how long probes have failed; none while they do not.
    pub(super) fn silent_for(&self, now: Uptime) -> Option<Duration> {
        self.silence.since.map(|since| now.saturating_sub(since))
    }

    pub(super) fn answers(&self) -> bool {
        let is_probed = !matches!(self.last_probe, Some(Probe::Impossible(_)));
        self.is_unprobed || (self.has_answered && self.silence.failures == 0 && is_probed)
    }

    /// Whether what its configuration says of /healthz is known for good: it has answered there, or serves none.
    pub(super) fn is_settled(&self) -> bool {
        self.is_unprobed || self.has_answered
    }

    /// Whether it may still be starting.
    pub(super) fn is_young(&self, start_grace: Duration, now: Uptime) -> bool {
        !self.has_answered && now < self.started + start_grace
    }

    fn healthy(&self) -> String {
        let who = self.who();
        if self.is_unprobed {
            format!("{who} runs; its /healthz is turned off (healthzPort: 0)")
        } else {
            format!("{who} answers on /healthz")
        }
    }

    /// What to report of a kubelet that answers.
    pub(super) fn answered_view(&self, now: Uptime) -> View {
        let findings = if self.stall.is_certain(now) {
            let message = format!(
                "{}, but it does not renew its Lease and the API server acknowledges nothing of what it sends; nodevigil reaches \
                 the API server",
                self.healthy()
            );
            vec![Finding::new(Reason::KubeletAPIConnectionStalled, message)]
        } else {
            Vec::new()
        };
        View::Seen { healthy: self.healthy(), findings }
    }

    /// What to report of a kubelet that does not answer; none before the third failed probe.
    pub(super) fn unanswered_view(&self, api_reached: Option<Uptime>, now: Uptime) -> Option<View> {
        let silence = &self.silence;
        if let Some(Probe::Impossible(why)) = &self.last_probe {
            let message = format!("{} runs, but its /healthz cannot be probed: {why}", self.who());
            return Some(View::CannotTell(Finding::new(Reason::KubeletHealthzSilent, message)));
        }
        if silence.failures < FAILURES {
            return None;
        }
        let what = self.what();
        let seen = |reason, evidence: String| {
            let findings = vec![Finding::new(reason, format!("{what}; {evidence}"))];
            Some(View::Seen { healthy: String::new(), findings })
        };
        if let Some(evidence) = silence.samples.suspended_by() {
            return seen(Reason::KubeletHung, evidence);
        }
        if silence.lease.is_renewed(now) {
            let evidence = match &self.last_probe {
                Some(Probe::Status(_)) => "but it renews its Lease, so it works",
                _ => "but it renews its Lease, so something such as a firewall keeps probes from it",
            };
            return seen(Reason::KubeletHealthzUnreachable, evidence.into());
        }
        if silence.excuse(now) {
            return seen(
                Reason::KubeletStarved,
                "but the host is too busy to run it (/proc/pressure, schedstat)".into(),
            );
        }
        let may_judge = self.has_answered || api_reached.is_some_and(|since| now >= since + API_NEEDED);
        if may_judge && let Some(evidence) = silence.unkillable(now) {
            return seen(Reason::KubeletUnkillable, evidence);
        }
        if may_judge && let Some(evidence) = self.evidence(now) {
            return seen(Reason::KubeletHung, evidence);
        }
        let message =
            format!("{what}; neither its process state, its listening socket nor its Lease says whether it works");
        Some(View::CannotTell(Finding::new(Reason::KubeletHealthzSilent, message)))
    }

    fn who(&self) -> String {
        format!("kubelet pid {}", self.id.pid)
    }

    fn what(&self) -> String {
        let who = self.who();
        match &self.last_probe {
            Some(Probe::Refused) => format!("{who} refuses connections to its /healthz"),
            Some(Probe::NoHttp) => format!("{who} accepts connections to its /healthz and does not speak HTTP"),
            Some(Probe::Status(status)) => format!("{who} answers HTTP {status} on /healthz"),
            _ => format!("{who} does not answer on /healthz"),
        }
    }

    /// What confirms, besides the probes, that it does not work.
    fn evidence(&self, now: Uptime) -> Option<String> {
        let silence = &self.silence;
        if let Some(tid) = silence.samples.stuck_for(Duration::ZERO, now) {
            return Some(format!("its thread {tid} waits in the kernel (state D)"));
        }
        // What another program has at a port that the kubelet never answered at proves nothing.
        if self.has_answered && silence.accepts_nothing() {
            return Some("connections wait at its port, and it accepts none".into());
        }
        let nobody_listens = silence.samples.last().is_some_and(|sample| sample.listener == Listener::Nobody);
        if self.has_answered && nobody_listens && self.last_probe == Some(Probe::Refused) {
            return Some("nothing listens at its port any more".into());
        }
        // The seconds so far are left out: each would be another message.
        silence.lease.is_old(now).then(|| "it does not renew its Lease".into())
    }
}

impl Silence {
    fn sampled(&mut self, sample: Sample, pressure: Pressure, now: Uptime) {
        self.killed_since = if sample.is_killed { self.killed_since.or(Some(now)) } else { None };
        self.samples.take_in(sample, pressure, now);
    }

    /// Whether the host's load excuses it.
    fn excuse(&self, now: Uptime) -> bool {
        let lasts_too_long = self.samples.starved_since().is_some_and(|since| now >= since + STARVED_MAX);
        self.samples.is_starved(now) && !(lasts_too_long && self.lease.is_old(now))
    }

    fn unkillable(&self, now: Uptime) -> Option<String> {
        if self.killed_since.is_some_and(|since| now >= since + UNKILLABLE_AFTER) {
            return Some("SIGKILL is pending for it, and it does not end".into());
        }
        let tid = self.samples.stuck_for(UNKILLABLE_AFTER, now)?;
        Some(format!("its thread {tid} has waited in the kernel (state D) for over {} s", UNKILLABLE_AFTER.as_secs()))
    }

    /// Whether connections wait at its port from one sample to the next, and none is accepted.
    fn accepts_nothing(&self) -> bool {
        let mut listeners = self.samples.newest_first().map(|sample| sample.listener);
        let (Some(Listener::Waiting(now)), Some(Listener::Waiting(before))) = (listeners.next(), listeners.next())
        else {
            return false;
        };
        before > 0 && now >= before
    }
}
