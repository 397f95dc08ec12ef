//! The kubelet: its process, its /healthz and its unit.
//!
//! This file waits and reads. What is seen goes into [`Kubelet::observe`], and [`Kubelet::view`] says what to report.

mod alive;
mod ended;
mod jobs;
mod observation;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::{io, time::Duration};

use prometheus_client::metrics::histogram::Histogram;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::{observation::Observation, state::Kubelet};
use super::Reports;
use crate::{
    condition::{ConditionType, Uptime, View},
    host::{
        api::{ApiFacts, Reach},
        clock::uptime,
        healthz::{self, Prober},
        journal, kmsg,
        kubelet::{Healthz, KubeletFacts},
        oom::OomKill,
        pressure::{self, Pressure},
        process::{Process, Sample, sample},
        systemd::{self, BusEvent},
        trouble::Troubles,
    },
    settings::KubeletSettings,
};

/// The units that run a kubelet, of kubeadm and the distributions; the first that is loaded is watched.
const UNITS: [&str; 6] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
];
/// Time between the starts of two probes of a kubelet that answers.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// The same for one that does not, and for one that has not for long: then the problem is known, and nothing is to be found out fast.
const PROBE_EVERY_SILENT: Duration = healthz::TIMEOUT;
const PROBE_EVERY_SILENT_LONG: Duration = Duration::from_secs(5);
const SILENT_LONG: Duration = Duration::from_mins(1);
/// A view is reported again after this time even if it is the same.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// systemd announces a process before its exec; its command line is read after this time.
const EXEC_WAIT: Duration = Duration::from_millis(200);
/// It is read again after this time, until the kubelet answers.
const READ_FACTS_EVERY: Duration = Duration::from_secs(5);
/// A process that cannot be opened is tried again after this time.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The kubelet that is watched, for `status`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    pub unit: Option<String>,
    pub pid: Option<i32>,
    /// Where it is probed.
    pub healthz_url: Option<String>,
}

/// The monitor's task.
#[derive(Debug)]
pub struct Monitor {
    pub settings: KubeletSettings,
    pub reports: Reports,
    pub facts: watch::Sender<Option<KubeletFacts>>,
    pub watched: watch::Sender<Watched>,
    pub api: watch::Receiver<ApiFacts>,
    /// Whether the publisher is to read the kubelet's Lease: while the kubelet does not answer.
    pub lease_wanted: watch::Sender<bool>,
    pub probe_seconds: Histogram,
    pub troubles: Troubles,
}

/// What runs beside the loop, and comes back to it.
#[derive(Debug)]
enum Done {
    Seen(Observation),
    Probed {
        pid: i32,
        probe: healthz::Probe,
        took: Duration,
    },
    /// None if the process was gone.
    Sampled(Option<(i32, Sample, Pressure)>),
    Facts {
        pid: i32,
        facts: Result<KubeletFacts, String>,
    },
    /// What holds for most kubelets.
    Usual(KubeletFacts),
}

/// What the loop holds.
struct Loop {
    monitor: Monitor,
    kubelet: Kubelet,
    process: Option<Process>,
    prober: Option<Prober>,
    work: JoinSet<Done>,
    is_probing: bool,
    next_probe: Uptime,
    is_sampling: bool,
    /// When the kubelet's configuration is read; none while it is being read, and once the kubelet has answered.
    read_facts_at: Option<Uptime>,
    has_asked_usual: bool,
    /// The view that was reported last, and when.
    reported: Option<(View, Uptime)>,
    /// The run whose last error was asked for.
    asked_error_of: String,
    /// A main process that could not be opened, and when to try again.
    unopened: Option<(i32, Uptime)>,
}

impl Monitor {
    /// Watches the kubelet until nobody takes reports.
    pub async fn run(self) {
        let (bus_events, bus) = mpsc::channel(64);
        let (kills, killed) = mpsc::channel(16);
        let units = match &self.settings.unit {
            Some(unit) => vec![unit.clone()],
            None => UNITS.map(str::to_owned).to_vec(),
        };
        // Aborted when this task ends.
        let mut readers = JoinSet::new();
        readers.spawn(systemd::watch(units, bus_events, self.troubles.clone()));
        readers.spawn(kmsg::follow(kills, self.troubles.clone()));
        Loop::new(self).run(bus, killed).await;
    }
}

impl Loop {
    fn new(monitor: Monitor) -> Self {
        Self {
            kubelet: Kubelet::new(monitor.settings.start_grace_secs.duration()),
            monitor,
            process: None,
            prober: None,
            work: JoinSet::new(),
            is_probing: false,
            next_probe: Uptime::ZERO,
            is_sampling: false,
            read_facts_at: None,
            has_asked_usual: false,
            reported: None,
            asked_error_of: String::new(),
            unopened: None,
        }
    }

    async fn run(mut self, mut bus: mpsc::Receiver<BusEvent>, mut kills: mpsc::Receiver<OomKill>) {
        loop {
            let wake = Instant::now() + self.wake_at().saturating_sub(uptime());
            let ended = async {
                match &self.process {
                    Some(process) => process.ended().await,
                    None => std::future::pending().await,
                }
            };
            // In this order: what systemd has said counts before the end that it explains.
            let done = tokio::select! {
                biased;
                Some(event) = bus.recv() => Some(Done::Seen(Observation::Bus(event))),
                Some(kill) = kills.recv() => Some(Done::Seen(Observation::OomKill(kill))),
                () = ended => self.process.take().map(|process| Done::Seen(Observation::Exited(process.id.pid))),
                Some(done) = self.work.join_next() => done.ok(),
                Ok(()) = self.monitor.api.changed() => None,
                () = sleep_until(wake) => None,
            };
            self.take_in(done);
            self.open_process();
            self.read_facts();
            self.start_work();
            if !self.report().await {
                return;
            }
        }
    }

    /// When there is something to do, if nothing happens before.
    fn wake_at(&self) -> Uptime {
        let report = self.reported.as_ref().map_or(uptime() + REPORT_EVERY, |(_, at)| *at + REPORT_EVERY);
        let may_probe = self.process.is_some() && self.prober.is_some() && !self.is_probing;
        let probe = may_probe.then_some(self.next_probe);
        let is_wanted = |(pid, _): &(i32, _)| self.kubelet.process_to_open() == Some(*pid);
        let open = self.unopened.filter(is_wanted).map(|(_, again)| again);
        [probe, open, self.read_facts_at, self.kubelet.deadline(uptime())].into_iter().flatten().fold(report, Ord::min)
    }

    fn take_in(&mut self, done: Option<Done>) {
        let now = uptime();
        match done {
            None => {}
            Some(Done::Seen(observation)) => self.kubelet.observe(observation, now),
            Some(Done::Sampled(sampled)) => {
                self.is_sampling = false;
                if let Some((pid, sample, pressure)) = sampled {
                    self.kubelet.observe(Observation::Sampled(pid, sample, pressure), now);
                }
            }
            Some(Done::Probed { pid, probe, took }) => {
                self.is_probing = false;
                if probe == healthz::Probe::Healthy {
                    self.monitor.probe_seconds.observe(took.as_secs_f64());
                }
                self.kubelet.observe(Observation::Probed(pid, probe), now);
                self.look_closer();
            }
            Some(Done::Facts { pid, facts }) => self.learn(pid, facts, now),
            Some(Done::Usual(facts)) => self.set_facts(&facts),
        }
        let (reach, lease) = {
            let api = self.monitor.api.borrow_and_update();
            (api.reach.clone(), api.lease.clone())
        };
        let since = if let Reach::Reached { since } = reach { Some(since) } else { None };
        self.kubelet.observe(Observation::ApiReached(since), now);
        if let Some(lease) = lease {
            self.kubelet.observe(Observation::Lease(lease), now);
        }
    }

    /// Takes in what the configuration of the process says.
    fn learn(&mut self, pid: i32, facts: Result<KubeletFacts, String>, now: Uptime) {
        if self.process.as_ref().is_none_or(|process| process.id.pid != pid) {
            return;
        }
        // Read again until the kubelet answers: until its exec the process has another command line.
        self.read_facts_at = Some(now + READ_FACTS_EVERY);
        let facts = match facts {
            Ok(facts) => facts,
            Err(error) => {
                if self.prober.is_none() {
                    self.kubelet.observe(Observation::Probed(pid, healthz::Probe::Impossible(error)), now);
                }
                return;
            }
        };
        let url = match (&self.monitor.settings.healthz_url, &facts.healthz) {
            (Some(url), _) | (None, Healthz::Url(url)) => Some(url.clone()),
            (None, Healthz::Disabled) => None,
        };
        match url {
            None => self.kubelet.observe(Observation::NotProbed(pid), now),
            Some(url) if self.prober.as_ref().is_some_and(|prober| prober.is_for(&url)) => {}
            Some(url) => match Prober::new(&url) {
                Ok(prober) => self.prober = Some(prober),
                Err(error) => {
                    self.kubelet.observe(Observation::Probed(pid, healthz::Probe::Impossible(error)), now);
                }
            },
        }
        self.set_facts(&facts);
    }

    fn set_facts(&self, facts: &KubeletFacts) {
        self.monitor.facts.send_if_modified(|known| known.replace(facts.clone()).as_ref() != Some(facts));
    }

    /// Opens the unit's main process, if it is not watched yet.
    fn open_process(&mut self) {
        let now = uptime();
        let may_try = |pid: i32| match self.unopened {
            Some((unopened, again)) if unopened == pid => now >= again,
            _ => true,
        };
        let Some(pid) = self.kubelet.process_to_open().filter(|pid| may_try(*pid)) else { return };
        let process = match Process::open(pid) {
            Ok(process) => process,
            // It has ended, and systemd is about to say how, unless it says the same the next time.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.unopened.is_none_or(|(last, _)| last != pid) =>
            {
                self.unopened = Some((pid, now + OPEN_AGAIN_AFTER));
                return;
            }
            Err(error) => {
                self.unopened = Some((pid, now + OPEN_AGAIN_AFTER));
                return self.kubelet.observe(Observation::Unwatchable(error.to_string()), now);
            }
        };
        let (name, cgroup) = process.name_and_cgroup();
        let (id, started) = (process.id, process.started());
        self.kubelet.observe(Observation::Opened { id, name, cgroup, started }, now);
        (self.process, self.prober, self.unopened) = (Some(process), None, None);
        self.read_facts_at = Some(now + EXEC_WAIT);
    }

    /// Reads what the kubelet's configuration says, when that is due.
    fn read_facts(&mut self) {
        let now = uptime();
        let is_due = self.read_facts_at.is_some_and(|at| now >= at);
        let known = self.monitor.facts.borrow().clone();
        if let Some(pid) = self.process.as_ref().map(|process| process.id.pid) {
            if self.kubelet.answers() {
                self.read_facts_at = None;
            } else if is_due {
                self.read_facts_at = None;
                self.work.spawn(async move { Done::Facts { pid, facts: KubeletFacts::of_process(pid, known).await } });
            }
        } else if self.kubelet.unit_is_known() && known.is_none() && !self.has_asked_usual {
            self.has_asked_usual = true;
            self.work.spawn_blocking(|| Done::Usual(KubeletFacts::usual()));
        } else if is_due {
            self.read_facts_at = None;
        }
    }

    /// Starts what is due beside the loop.
    fn start_work(&mut self) {
        let now = uptime();
        if let (Some(process), Some(prober), false) = (&self.process, &self.prober, self.is_probing)
            && now >= self.next_probe
        {
            let (pid, prober) = (process.id.pid, prober.clone());
            self.work.spawn(async move {
                let started = Instant::now();
                let probe = prober.probe().await;
                Done::Probed { pid, probe, took: started.elapsed() }
            });
            self.is_probing = true;
            self.next_probe = now + self.probe_interval(now);
        }
        if let Some(invocation) = self.kubelet.wants_last_error().filter(|run| **run != self.asked_error_of) {
            let invocation = invocation.to_owned();
            self.asked_error_of.clone_from(&invocation);
            self.work.spawn(async move {
                let line = journal::last_error(&invocation).await;
                Done::Seen(Observation::LastError { invocation, line })
            });
        }
        let is_silent = self.kubelet.silent_for(now).is_some();
        self.monitor.lease_wanted.send_if_modified(|wanted| std::mem::replace(wanted, is_silent) != is_silent);
    }

    /// Time between the starts of two probes.
    fn probe_interval(&self, now: Uptime) -> Duration {
        match self.kubelet.silent_for(now) {
            None if self.kubelet.answers() => PROBE_EVERY,
            Some(silent) if silent > SILENT_LONG => PROBE_EVERY_SILENT_LONG,
            _ => PROBE_EVERY_SILENT,
        }
    }

    /// Samples a process whose last probe failed.
    fn look_closer(&mut self) {
        let now = uptime();
        let Some(process) = self.process.as_ref().filter(|_| self.kubelet.silent_for(now).is_some()) else { return };
        self.next_probe = self.next_probe.min(now + self.probe_interval(now));
        if !std::mem::replace(&mut self.is_sampling, true) {
            let (id, address) = (process.id, self.prober.as_ref().map(Prober::address));
            self.work.spawn_blocking(move || {
                Done::Sampled(sample(id, address).map(|sample| (id.pid, sample, pressure::read())))
            });
        }
    }

    /// Reports the present view if it is new or due; `false` when nobody takes reports.
    async fn report(&mut self) -> bool {
        let now = uptime();
        let watched = Watched {
            unit: self.kubelet.unit_is_known().then(|| self.kubelet.unit_name().to_owned()),
            pid: self.process.as_ref().map(|process| process.id.pid),
            healthz_url: self.prober.as_ref().map(|prober| prober.url().to_owned()),
        };
        self.monitor.watched.send_if_modified(|known| std::mem::replace(known, watched.clone()) != watched);
        // Without a new view the last one still holds.
        let view = self.kubelet.view(now).or_else(|| self.reported.as_ref().map(|(view, _)| view.clone()));
        let Some(view) = view else { return true };
        let is_due = self.reported.as_ref().is_none_or(|(last, at)| *last != view || now >= *at + REPORT_EVERY);
        if !is_due {
            return true;
        }
        self.reported = Some((view.clone(), now));
        self.monitor.reports.send((ConditionType::KubeletHealthy, view)).await.is_ok()
    }
}
