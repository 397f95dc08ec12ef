//! A kubelet that runs: whether it answers, and if it does not, what else says that it does not work.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;

use super::ended::{Ended, Run};
use crate::{
    condition::{Finding, Reason, Uptime, View},
    host::{
        api::LeaseFacts,
        healthz::Probe,
        pressure::Pressure,
        process::{Cgroup, Listener, ProcessId, Sample, ThreadWait},
    },
};

/// A kubelet is judged from the third failed probe in a row on.
const FAILURES: u32 = 3;
/// Samples that are kept: those of the last half minute.
const MAX_SAMPLES: usize = 32;
/// A thread in the same uninterruptible wait for so long, or a SIGKILL that is pending for so long, takes a reboot.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(10);
/// A Lease that was seen unchanged for its own duration, and for at least this long, is not renewed: the kubelet renews it each quarter of
/// its duration, which is 40 s unless `nodeLeaseDurationSeconds` is set.
const LEASE_OLD: Duration = Duration::from_secs(40);
/// The Lease is read every 2 s, later every 10 s. A reading older than this says nothing about the present.
const LEASE_READING_LASTS: Duration = Duration::from_secs(30);
/// Above these shares of the time, in percent, a host is too busy for a kubelet to answer in time. They were chosen on hosts that were
/// overloaded on purpose. Some task waits for a processor:
const STARVED_CPU_PERCENT: f32 = 60.0;
/// All tasks wait for memory:
const STARVED_MEMORY_PERCENT: f32 = 20.0;
/// The kubelet's own threads, summed up, wait for a processor; one that is stuck waits for none, however busy the host is:
const STARVED_OWN_PERCENT: u128 = 10;
/// The same, whatever the rest of the host does, as with a CPU limit of the kubelet's cgroup:
const STARVED_OWN_ALONE_PERCENT: u128 = 50;
/// A busy host is remembered for this long: a sample can miss it.
const STARVED_LASTS: Duration = Duration::from_secs(30);
/// A busy host no longer excuses a kubelet after this time, if it does not renew its Lease either.
const STARVED_MAX: Duration = Duration::from_mins(5);
/// A kubelet that has never answered is judged only after the API server has answered for this long: a kubelet that cannot reach it may
/// not finish its start.
const API_NEEDED: Duration = Duration::from_mins(1);

/// A running kubelet.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Alive {
    pub(super) id: ProcessId,
    pub(super) run: Run,
    pub(super) started: Uptime,
    /// The end of the one before it, until this one has answered.
    pub(super) after: Option<Ended>,
    /// Whether it was running when we came, or was restarted as planned: until it answers, what is shown stays.
    pub(super) keeps_what_is_shown: bool,
    /// Whether systemd is stopping it.
    pub(super) is_being_stopped: bool,
    /// `healthzPort: 0`: only its process is watched.
    is_unprobed: bool,
    has_answered: bool,
    last_probe: Option<Probe>,
    silence: Silence,
}

/// What was seen since the kubelet last answered.
#[derive(Debug, Default)]
struct Silence {
    failures: u32,
    /// When the first probe failed.
    since: Option<Uptime>,
    samples: VecDeque<(Uptime, Sample)>,
    /// The Lease's last renewal, since when it has been seen, and the Lease's duration.
    lease: Option<(Timestamp, Uptime, Duration)>,
    lease_read_at: Uptime,
    /// Whether the Lease was renewed meanwhile.
    is_renewed: bool,
    killed_since: Option<Uptime>,
    starved_since: Option<Uptime>,
    starved_at: Option<Uptime>,
}

impl Alive {
    pub(super) fn new(id: ProcessId, name: String, cgroup: Option<Cgroup>, started: Uptime) -> Self {
        Self {
            id,
            run: Run { pid: id.pid, name, cgroup, ..Run::default() },
            started,
            after: None,
            keeps_what_is_shown: false,
            is_being_stopped: false,
            is_unprobed: false,
            has_answered: false,
            last_probe: None,
            silence: Silence::default(),
        }
    }

    pub(super) fn probed(&mut self, probe: Probe, now: Uptime) {
        match &probe {
            Probe::Healthy => {
                self.has_answered = true;
                self.after = None;
                self.silence = Silence::default();
            }
            // It says nothing of the kubelet.
            Probe::Impossible(_) => {}
            Probe::Refused | Probe::TimedOut | Probe::NoHttp | Probe::Status(_) => {
                self.silence.failures += 1;
                self.silence.since.get_or_insert(now);
            }
        }
        self.last_probe = Some(probe);
    }

    /// It serves no /healthz.
    pub(super) fn set_unprobed(&mut self) {
        (self.is_unprobed, self.after) = (true, None);
    }

    pub(super) fn sampled(&mut self, sample: Sample, pressure: Pressure, now: Uptime) {
        if self.silence.failures == 0 {
            return;
        }
        self.silence.sampled(sample, pressure, now);
    }

    pub(super) fn lease_read(&mut self, lease: &LeaseFacts) {
        if self.silence.since.is_some_and(|since| lease.read_at >= since) {
            self.silence.lease_read(lease);
        }
    }

    /// Since how long probes have failed; none while they do not.
    pub(super) fn silent_for(&self, now: Uptime) -> Option<Duration> {
        self.silence.since.map(|since| now.saturating_sub(since))
    }

    pub(super) fn answers(&self) -> bool {
        let is_probed = !matches!(self.last_probe, Some(Probe::Impossible(_)));
        self.is_unprobed || (self.has_answered && self.silence.failures == 0 && is_probed)
    }

    /// Whether it may still be starting.
    pub(super) fn is_young(&self, start_grace: Duration, now: Uptime) -> bool {
        !self.has_answered && now < self.started + start_grace
    }

    pub(super) fn healthy(&self) -> String {
        let who = self.who();
        if self.is_unprobed {
            format!("{who} runs; its /healthz is turned off (healthzPort: 0)")
        } else {
            format!("{who} answers on /healthz")
        }
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
        if let Some(evidence) = silence.suspended_by() {
            return seen(Reason::KubeletHung, evidence);
        }
        if silence.is_renewed && silence.has_lease_reading(now) && silence.lease_is_old(now).is_none() {
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
        if let Some(tid) = silence.stuck_for(Duration::ZERO, now) {
            return Some(format!("its thread {tid} waits in the kernel (state D)"));
        }
        // What another program has at a port that the kubelet never answered at proves nothing.
        if self.has_answered && silence.accepts_nothing() {
            return Some("connections wait at its port, and it accepts none".into());
        }
        let is_unheard = silence.samples.back().is_some_and(|(_, sample)| sample.listener == Listener::Nobody);
        if self.has_answered && is_unheard && self.last_probe == Some(Probe::Refused) {
            return Some("nothing listens at its port any more".into());
        }
        // The seconds so far are left out: each would be another message.
        silence.lease_is_old(now).map(|_| "it does not renew its Lease".into())
    }
}

impl Silence {
    fn sampled(&mut self, sample: Sample, pressure: Pressure, now: Uptime) {
        if self.is_starved(&sample, pressure, now) {
            self.starved_since.get_or_insert(now);
            self.starved_at = Some(now);
        }
        self.killed_since = if sample.is_killed { self.killed_since.or(Some(now)) } else { None };
        self.samples.push_back((now, sample));
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
    }

    fn is_starved(&self, sample: &Sample, pressure: Pressure, now: Uptime) -> bool {
        let over = |percent: Option<f32>, limit: f32| percent.is_some_and(|percent| percent > limit);
        let own = self.samples.back().map(|(at, before)| {
            let waited = sample.run_delay.saturating_sub(before.run_delay);
            waited.as_millis() * 100 / now.saturating_sub(*at).as_millis().max(1)
        });
        let own_over = |limit| own.is_some_and(|percent| percent > limit);
        own_over(STARVED_OWN_ALONE_PERCENT)
            || (over(pressure.cpu_some_percent, STARVED_CPU_PERCENT) && own_over(STARVED_OWN_PERCENT))
            || over(pressure.memory_full_percent, STARVED_MEMORY_PERCENT)
    }

    fn lease_read(&mut self, lease: &LeaseFacts) {
        // A Lease that could not be read for a while may have been renewed and grown old meanwhile: what was seen before is forgotten.
        if lease.read_at > self.lease_read_at + LEASE_READING_LASTS {
            (self.lease, self.is_renewed) = (None, false);
        }
        self.lease_read_at = lease.read_at;
        match self.lease {
            Some((renewed, ..)) if renewed == lease.renewed => {}
            before => {
                self.is_renewed |= before.is_some();
                self.lease = Some((lease.renewed, lease.read_at, lease.duration));
            }
        }
    }

    /// Whether the Lease was read so recently that it says something about the present.
    fn has_lease_reading(&self, now: Uptime) -> bool {
        now < self.lease_read_at + LEASE_READING_LASTS
    }

    /// For how long the Lease was seen unchanged, if that is long enough to say that it is not renewed. Only readings are compared, no
    /// clocks: a host whose clock is set makes no old Lease.
    fn lease_is_old(&self, now: Uptime) -> Option<Duration> {
        let (_, first, duration) = self.lease.filter(|_| self.has_lease_reading(now))?;
        let unchanged = self.lease_read_at.saturating_sub(first);
        (unchanged >= LEASE_OLD.max(duration)).then_some(unchanged)
    }

    /// What keeps the process from running: a signal or a freezer. Then nothing else matters.
    fn suspended_by(&self) -> Option<String> {
        let (_, sample) = self.samples.back()?;
        match (&sample.frozen_by, sample.state) {
            (Some(cgroup), _) => Some(format!("its cgroup {cgroup} is frozen")),
            (None, 'T' | 't') => Some("it is stopped by a signal (state T)".into()),
            _ => None,
        }
    }

    /// Whether the host's load excuses it.
    fn excuse(&self, now: Uptime) -> bool {
        let is_recent = self.starved_at.is_some_and(|at| now < at + STARVED_LASTS);
        let lasts_too_long = self.starved_since.is_some_and(|since| now >= since + STARVED_MAX);
        is_recent && !(lasts_too_long && self.lease_is_old(now).is_some())
    }

    fn unkillable(&self, now: Uptime) -> Option<String> {
        if self.killed_since.is_some_and(|since| now >= since + UNKILLABLE_AFTER) {
            return Some("SIGKILL is pending for it, and it does not end".into());
        }
        let tid = self.stuck_for(UNKILLABLE_AFTER, now)?;
        Some(format!("its thread {tid} has waited in the kernel (state D) for over {} s", UNKILLABLE_AFTER.as_secs()))
    }

    /// A thread that has been in the same uninterruptible wait in at least three samples in a row, the first at least `time` ago.
    fn stuck_for(&self, time: Duration, now: Uptime) -> Option<i32> {
        let last = &self.samples.back()?.1.uninterruptible;
        let is_stuck = |wait: &ThreadWait| {
            let same = self.samples.iter().rev().take_while(|(_, sample)| sample.uninterruptible.contains(wait));
            let (count, first) = same.fold((0, now), |(count, _), (at, _)| (count + 1, *at));
            count >= FAILURES && now.saturating_sub(first) >= time
        };
        last.iter().find(|wait| is_stuck(wait)).map(|wait| wait.tid)
    }

    /// Whether connections wait at its port from one sample to the next, and none is accepted.
    fn accepts_nothing(&self) -> bool {
        let mut listeners = self.samples.iter().rev().map(|(_, sample)| sample.listener);
        let (Some(Listener::Waiting(now)), Some(Listener::Waiting(before))) = (listeners.next(), listeners.next())
        else {
            return false;
        };
        before > 0 && now >= before
    }
}
