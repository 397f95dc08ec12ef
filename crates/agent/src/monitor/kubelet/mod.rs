//! The kubelet: its process, its unit, its /healthz, its connections to the API server and its client certificate.
//!
//! This file waits and reads. What is seen goes into [`Kubelet::observe`], and [`Kubelet::view`] says what to report.

mod alive;
mod certificate;
mod lease;
mod observation;
mod stall;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::{io, time::Duration};

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::{certificate::Certificate, observation::Observation, state::Kubelet};
use super::{Inputs, Reporter};
use crate::{
    condition::{ConditionType, Reason, Uptime},
    host::{
        api::Reach,
        clock::{uptime, wall},
        healthz::{self, Prober},
        journal,
        kubelet::{Healthz, KubeletFacts},
        oom::OomKill,
        pressure::{self, Pressure},
        process::{Process, Sample, sample},
        sockets::{self, Connection, Server},
        systemd::{self, BusEvent},
    },
};

/// The units that run a kubelet, of kubeadm and the distributions; the first that is loaded is watched.
pub const UNITS: [&str; 6] = [
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
/// systemd announces a process before its exec; its command line is read after this time.
const EXEC_WAIT: Duration = Duration::from_millis(200);
/// It is read again after this time, until the kubelet answers. From then on it is read again for the client certificate alone.
const READ_FACTS_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at the connections to the API server; the second while they seem to be stuck.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_EVERY_SUSPECTED: Duration = Duration::from_secs(3);
/// A process that cannot be opened is tried again after this time.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The kubelet that is watched, for `status`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    pub unit: Option<String>,
    pub pid: Option<i32>,
    /// Whether its unit is inactive, as after `systemctl stop`; one that systemd restarts, or that has failed, is not.
    pub is_inactive: bool,
    /// Where it is probed.
    pub healthz_url: Option<String>,
}

/// The monitor's task.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub inputs: Inputs,
    pub facts: watch::Sender<Option<KubeletFacts>>,
    pub watched: watch::Sender<Watched>,
    /// Whether the publisher is to read the kubelet's Lease: while the kubelet does not answer, or its connections seem to be stuck.
    pub lease_wanted: watch::Sender<bool>,
    pub probe_seconds: Histogram,
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
    /// None if they could not be listed.
    Connections(i32, Option<Vec<Connection>>),
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
    probing: Probing,
    /// When to look at the connections to the API server; none while a look is under way.
    next_look: Option<Uptime>,
    work: JoinSet<Done>,
    /// When the kubelet's configuration is read; none while it is being read.
    read_facts_at: Option<Uptime>,
    has_asked_usual: bool,
    certificate: Option<Certificate>,
    reporter: Reporter,
    /// The run whose last error was asked for.
    asked_error_of: String,
    /// A main process that could not be opened, and when to try again.
    unopened: Option<(i32, Uptime)>,
}

/// The probes of /healthz.
#[derive(Default)]
struct Probing {
    prober: Option<Prober>,
    is_under_way: bool,
    next_at: Uptime,
    is_sampling: bool,
}

impl Monitor {
    /// Watches the kubelet until nobody takes reports.
    pub async fn run(self) {
        let (bus_events, bus) = mpsc::channel(64);
        let kills = self.inputs.kernel_log.kills();
        let units = match &self.inputs.settings.kubelet.unit {
            Some(unit) => vec![unit.clone()],
            None => UNITS.map(str::to_owned).to_vec(),
        };
        // Aborted when this task ends.
        let mut readers = JoinSet::new();
        readers.spawn(systemd::watch(units, bus_events, self.inputs.troubles.clone()));
        Loop::new(self).run(bus, kills).await;
    }
}

impl Loop {
    fn new(monitor: Monitor) -> Self {
        Self {
            kubelet: Kubelet::new(monitor.inputs.settings.kubelet.start_grace_secs.duration()),
            reporter: Reporter::new(ConditionType::KubeletHealthy, monitor.inputs.reports.clone()),
            monitor,
            process: None,
            probing: Probing::default(),
            next_look: Some(Uptime::ZERO),
            work: JoinSet::new(),
            read_facts_at: None,
            has_asked_usual: false,
            certificate: None,
            asked_error_of: String::new(),
            unopened: None,
        }
    }

    async fn run(mut self, mut bus: mpsc::Receiver<BusEvent>, mut kills: broadcast::Receiver<OomKill>) {
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
                Ok(kill) = kills.recv() => Some(Done::Seen(Observation::OomKill(kill))),
                () = ended => self.process.take().map(|process| Done::Seen(Observation::Exited(process.id.pid))),
                Some(done) = self.work.join_next() => done.ok(),
                Ok(()) = self.monitor.inputs.api.changed() => None,
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
        let report = self.reporter.due_at(uptime());
        let may_probe = self.process.is_some() && self.probing.prober.is_some() && !self.probing.is_under_way;
        let probe = may_probe.then_some(self.probing.next_at);
        let is_wanted = |(pid, _): &(i32, _)| self.kubelet.process_to_open() == Some(*pid);
        let open = self.unopened.filter(is_wanted).map(|(_, again)| again);
        [probe, open, self.facts_due(), self.kubelet.deadline(uptime())].into_iter().flatten().fold(report, Ord::min)
    }

    fn take_in(&mut self, done: Option<Done>) {
        let now = uptime();
        match done {
            None => {}
            Some(Done::Seen(observation)) => self.kubelet.observe(observation, now),
            Some(Done::Sampled(sampled)) => {
                self.probing.is_sampling = false;
                if let Some((pid, sample, pressure)) = sampled {
                    self.kubelet.observe(Observation::Sampled(pid, sample, pressure), now);
                }
            }
            Some(Done::Probed { pid, probe, took }) => {
                self.probing.is_under_way = false;
                if probe == healthz::Probe::Healthy {
                    self.monitor.probe_seconds.observe(took.as_secs_f64());
                }
                self.kubelet.observe(Observation::Probed(pid, probe), now);
                self.look_closer();
            }
            Some(Done::Connections(pid, connections)) => {
                self.kubelet.observe(Observation::Connections(pid, connections), now);
                let is_suspected = self.kubelet.is_stall_suspected();
                self.next_look = Some(now + if is_suspected { LOOK_EVERY_SUSPECTED } else { LOOK_EVERY });
            }
            Some(Done::Facts { pid, facts }) => self.learn(pid, facts, now),
            Some(Done::Usual(facts)) => self.set_facts(&facts),
        }
        let (reach, lease) = {
            let api = self.monitor.inputs.api.borrow_and_update();
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
        let mut facts = match facts {
            Ok(facts) => facts,
            Err(error) => {
                if self.probing.prober.is_none() {
                    self.kubelet.observe(Observation::Probed(pid, healthz::Probe::Impossible(error)), now);
                }
                if self.kubelet.is_settled() {
                    self.read_facts_at = Some(now + certificate::READ_EVERY);
                }
                return;
            }
        };
        self.certificate = facts.certificate.clone().map(|certificate| Certificate::new(certificate, now));
        if self.kubelet.is_settled() {
            // Files that were changed since it was started do not change where it answers.
            if let Some(known) = self.monitor.facts.borrow().as_ref() {
                facts.healthz = known.healthz.clone();
            }
        } else {
            self.set_prober(pid, &facts, now);
        }
        self.set_facts(&facts);
    }

    fn set_prober(&mut self, pid: i32, facts: &KubeletFacts, now: Uptime) {
        let url = match (&self.monitor.inputs.settings.kubelet.healthz_url, &facts.healthz) {
            (Some(url), _) | (None, Healthz::Url(url)) => Some(url.clone()),
            (None, Healthz::Disabled) => None,
        };
        match url {
            None => self.kubelet.observe(Observation::NotProbed(pid), now),
            Some(url) if self.probing.prober.as_ref().is_some_and(|prober| prober.is_for(&url)) => {}
            Some(url) => match Prober::new(&url) {
                Ok(prober) => self.probing.prober = Some(prober),
                Err(error) => {
                    self.kubelet.observe(Observation::Probed(pid, healthz::Probe::Impossible(error)), now);
                }
            },
        }
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
        (self.process, self.probing.prober, self.unopened) = (Some(process), None, None);
        self.read_facts_at = Some(now + EXEC_WAIT);
    }

    /// When the kubelet's configuration is to be read: once it has answered, for the certificate alone.
    fn facts_due(&self) -> Option<Uptime> {
        let at = self.read_facts_at?;
        Some(match &self.certificate {
            _ if !self.kubelet.is_settled() => at,
            Some(certificate) => at.max(certificate.read_again_at(self.time(uptime()))),
            None => at + certificate::READ_EVERY,
        })
    }

    /// Reads what the kubelet's configuration says, when that is due.
    fn read_facts(&mut self) {
        let now = uptime();
        let is_due = self.facts_due().is_some_and(|at| now >= at);
        let known = self.monitor.facts.borrow().clone();
        if let Some(pid) = self.process.as_ref().map(|process| process.id.pid) {
            if is_due {
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
        let probing = &mut self.probing;
        if let (Some(process), Some(prober), false) = (&self.process, &probing.prober, probing.is_under_way)
            && now >= probing.next_at
        {
            let (pid, prober) = (process.id.pid, prober.clone());
            self.work.spawn(async move {
                let started = Instant::now();
                let probe = prober.probe().await;
                Done::Probed { pid, probe, took: started.elapsed() }
            });
            probing.is_under_way = true;
            self.probing.next_at = now + self.probe_interval(now);
        }
        if let Some(invocation) = self.kubelet.wants_last_error().filter(|run| **run != self.asked_error_of) {
            let invocation = invocation.to_owned();
            self.asked_error_of.clone_from(&invocation);
            self.work.spawn(async move {
                let line = journal::last_error(&invocation).await;
                Done::Seen(Observation::LastError { invocation, line })
            });
        }
        self.look_at_connections(now);
        let is_wanted = self.kubelet.silent_for(now).is_some() || self.kubelet.is_stall_suspected();
        self.monitor.lease_wanted.send_if_modified(|wanted| std::mem::replace(wanted, is_wanted) != is_wanted);
    }

    /// Looks at the connections of a kubelet that answers to the API server, when that is due.
    fn look_at_connections(&mut self, now: Uptime) {
        let Some(pid) = self.process.as_ref().map(|process| process.id.pid) else { return };
        if !self.kubelet.answers() || self.next_look.is_none_or(|at| now < at) {
            return;
        }
        let addresses = self.probing.prober.as_ref().map(Prober::address).zip(self.common_server());
        self.next_look = None;
        self.work.spawn_blocking(move || {
            let list = |(healthz, server)| sockets::connections(pid, healthz, &server).ok();
            Done::Connections(pid, addresses.and_then(list))
        });
    }

    /// The kubelet's API server, if it is the one that we publish to.
    fn common_server(&self) -> Option<Server> {
        let of_kubelet =
            self.monitor.facts.borrow().as_ref().and_then(|facts| Server::of_url(facts.api_server.as_ref()?));
        let ours = self.monitor.inputs.api.borrow().server.as_deref().and_then(Server::of_url);
        of_kubelet.filter(|server| Some(server) == ours.as_ref())
    }

    /// The earlier of the host's and the API server's time; none while the latter is not known.
    fn time(&self, now: Uptime) -> Option<Timestamp> {
        let server = self.monitor.inputs.api.borrow().server_time?;
        Some(server.at(now).min(wall()))
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
        self.probing.next_at = self.probing.next_at.min(now + self.probe_interval(now));
        if !std::mem::replace(&mut self.probing.is_sampling, true) {
            let (id, address) = (process.id, self.probing.prober.as_ref().map(Prober::address));
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
            is_inactive: self.kubelet.service.unit.active_state == "inactive",
            healthz_url: self.probing.prober.as_ref().map(|prober| prober.url().to_owned()),
        };
        self.monitor.watched.send_if_modified(|known| std::mem::replace(known, watched.clone()) != watched);
        // Without a new view the last one still holds.
        let with_certificate = |view| match &self.certificate {
            Some(certificate) => certificate.add_to(view, self.time(now), now),
            None => view,
        };
        let view = self.kubelet.view(now).map(with_certificate).or_else(|| self.reporter.last().cloned());
        let Some(view) = view else { return true };
        let process = self.process.as_ref().map(|process| process.id);
        let hung = process.filter(|_| view.has(&[Reason::KubeletHung, Reason::KubeletUnkillable]));
        self.monitor.inputs.hung.set("kubelet", hung, now);
        self.reporter.report(view, now).await
    }
}
