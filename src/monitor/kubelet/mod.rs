//! The kubelet: its process, its unit, its /healthz, its connections to the API server and its client certificate.
//!
//! This file waits and reads. [`Kubelet`] records what was observed and decides what to report.

mod certificate;
mod child;
mod cut_off;
mod lease;
mod running;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::certificate::Certificate;
use self::state::{Kubelet, Observation};
use super::service::Bus;
use super::service::follow::{Follower, ServiceEvent};
use super::{Inputs, Reporter, set_hung};
use crate::condition::{ConditionType, Reason, Uptime};
use crate::host::clock::{Timer, next_multiple, uptime, wall};
use crate::host::healthz::{self, Probe, Prober};
use crate::host::kubelet::{Healthz, KubeletFacts, UNIT_NAMES, Watched};
use crate::host::process::{self, Process, ProcessId, Sample, holder};
use crate::host::{blocking, journal};

/// Time between the starts of two probes of a kubelet that answers, or samples of one that serves no /healthz.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// The interval between probes at which the agent checks whether a signal has stopped the kubelet. That costs a tenth of a probe.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The same for a kubelet that does not answer, and for one that has been silent for long, whose problem is known.
const PROBE_EVERY_SILENT: Duration = healthz::TIMEOUT;
const PROBE_EVERY_SILENT_LONG: Duration = Duration::from_secs(5);
const SILENT_LONG: Duration = Duration::from_mins(1);
const FIND_HOLDER_EVERY: Duration = Duration::from_secs(30);
/// Reading takes milliseconds if a thread is free.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// systemd announces a process before its exec; its command line is read after this time.
const EXEC_WAIT: Duration = Duration::from_millis(200);
/// The facts are read again after this time until the kubelet answers, and afterwards only for the client certificate.
const READ_FACTS_EVERY: Duration = Duration::from_secs(5);
/// The interval while the next child of the unit's main process is awaited.
const FIND_CHILD_EVERY: Duration = Duration::from_secs(1);

/// A result of the work outside the loop, which must not wait for a kubelet or a disk.
#[derive(Debug)]
enum Done {
    Probed { pid: i32, began: Uptime, probe: Probe, sample: Option<Sample> },
    Seen(Observation),
    Facts(i32, Result<KubeletFacts, String>),
    Usual(KubeletFacts),
}

/// What this monitor alone sends.
#[derive(Debug, Clone)]
pub struct Senders {
    /// The kubelet's configuration; none until it is known.
    pub facts: watch::Sender<Option<KubeletFacts>>,
    /// The kubelet that is watched.
    pub watched: watch::Sender<Watched>,
    /// Whether the publisher is to read the kubelet's Lease: while the kubelet does not answer, or its connections seem to be stuck.
    pub lease_wanted: watch::Sender<bool>,
    /// How long the kubelet took to answer probes.
    pub probe_seconds: Histogram,
}

struct Loop {
    inputs: Inputs,
    senders: Senders,
    kubelet: Kubelet,
    follower: Follower,
    /// The kubelet, where the unit's main process has started it.
    child: Option<Process>,
    reporter: Reporter,
    work: JoinSet<Done>,
    prober: Option<Prober>,
    certificate: Option<Certificate>,
    next: Next,
    /// The run whose last error was asked for.
    asked_error_of: String,
}

/// When work is due.
#[derive(Default)]
struct Next {
    /// The next probe; none while one is under way.
    probe: Option<Uptime>,
    /// The next check whether a signal has stopped the kubelet.
    look: Uptime,
    /// The next reading of the configuration; none while one is under way.
    facts: Option<Uptime>,
    /// After an end: the next search for the process that keeps the unit from ending.
    holder: Uptime,
}

/// Monitors the kubelet until the channel of reports is closed.
pub async fn run(inputs: Inputs, senders: Senders) {
    let settings = &inputs.settings.kubelet;
    let units = settings.unit.clone().map_or_else(|| UNIT_NAMES.map(str::to_owned).to_vec(), |unit| vec![unit]);
    let mut this = Loop {
        kubelet: Kubelet::new(settings.start_grace_secs.duration()),
        follower: Follower::new(ConditionType::KubeletHealthy, units, &inputs),
        reporter: Reporter::new(ConditionType::KubeletHealthy, inputs.reports.clone()),
        inputs,
        senders,
        child: None,
        work: JoinSet::new(),
        prober: None,
        certificate: None,
        next: Next { probe: Some(Uptime::ZERO), ..Next::default() },
        asked_error_of: String::new(),
    };
    let timer = Timer::new();
    loop {
        let wake = this.wake_at(uptime());
        tokio::select! {
            biased;
            event = this.follower.next() => this.observe(Observation::Service(event)),
            pid = ended(this.child.as_ref()) => this.child_exited(pid, uptime()),
            Some(Ok(done)) = this.work.join_next() => this.take_in(done, uptime()),
            Ok(()) = this.inputs.api.changed() => {}
            () = timer.at(wake) => {}
        }
        this.kubelet.api_seen(&this.inputs.api.borrow_and_update(), uptime());
        this.kubelet.service.settle(uptime());
        this.open_process(uptime());
        this.start_work(uptime());
        if !this.report(uptime()).await {
            return;
        }
    }
}

/// Returns the pid of the process when it has ended.
async fn ended(process: Option<&Process>) -> i32 {
    let Some(process) = process else { return std::future::pending().await };
    process.ended().await;
    process.id.pid
}

impl Loop {
    fn observe(&mut self, observation: Observation) {
        self.kubelet.observe(observation, uptime());
    }

    fn wake_at(&self, now: Uptime) -> Uptime {
        let process = self.kubelet.service.process();
        let is_probed = self.prober.is_some() || self.kubelet.running.is_unprobed;
        let probe = self.next.probe.filter(|_| process.is_some() && is_probed);
        let facts = self.next.facts.filter(|_| process.is_some());
        let open = self.follower.open_again_at(self.kubelet.service.process_to_open());
        let look = process.map(|_| self.next.look);
        let deadlines = [self.kubelet.service.deadline(now), self.kubelet.child.deadline(now)];
        let due = [probe, look, facts, open].into_iter().chain(deadlines);
        due.flatten().fold(self.reporter.due_at(now), Ord::min)
    }

    fn take_in(&mut self, done: Done, now: Uptime) {
        match done {
            Done::Probed { pid, began, probe, sample } => {
                if probe == Probe::Healthy && self.prober.is_some() {
                    self.senders.probe_seconds.observe((now - began).as_secs_f64());
                }
                self.inputs.timeline.note("probe of the kubelet", &probe.to_string(), now);
                if probe != Probe::Healthy && self.certificate.is_none() {
                    // The main process may have started another kubelet since.
                    self.next.facts = self.next.facts.map(|at| at.min(now + READ_FACTS_EVERY));
                }
                self.observe(Observation::Probed(pid, probe, sample));
                self.next.probe = Some(self.probe_after(began, now));
            }
            Done::Seen(observation) => self.observe(observation),
            Done::Facts(pid, facts) => self.facts_read(pid, facts, now),
            Done::Usual(facts) => self.set_facts(&facts),
        }
    }

    /// Records the configuration of the process.
    fn facts_read(&mut self, pid: i32, facts: Result<KubeletFacts, String>, now: Uptime) {
        if self.kubelet.service.process().is_none_or(|process| process.pid != pid) {
            self.next.facts.get_or_insert(now);
            return;
        }
        // Until its exec the process has another command line.
        self.next.facts =
            Some(now + if self.kubelet.child.is_awaited(now) { FIND_CHILD_EVERY } else { READ_FACTS_EVERY });
        let is_settled = self.kubelet.running.is_settled();
        match facts {
            Ok(mut facts) => {
                self.open_child(pid, facts.child);
                self.certificate = facts.certificate().cloned().map(|certificate| Certificate::new(certificate, now));
                if !is_settled {
                    self.set_prober(&facts);
                } else if let Some(known) = self.senders.facts.borrow().as_ref() {
                    // Files that were changed since it was started do not change where it answers.
                    facts.healthz = known.healthz.clone();
                }
                self.set_facts(&facts);
            }
            Err(error) if self.prober.is_none() => {
                self.observe(Observation::Probed(self.kubelet.running.id.pid, Probe::Impossible(error), None));
            }
            Err(_) => {}
        }
        if is_settled {
            let time = self.time(now);
            let wait = self.certificate.as_ref().map(|certificate| certificate.read_again_after(time));
            self.next.facts = Some(now + wait.unwrap_or(certificate::READ_EVERY));
        }
    }

    /// Opens the kubelet that the process of this pid has started, if it is not watched yet.
    fn open_child(&mut self, parent: i32, found: Option<ProcessId>) {
        let new = found.filter(|id| self.kubelet.child.running != Some(*id));
        // One that cannot be opened has ended, or will be found again.
        if let Some(child) = new.and_then(|id| Process::open(id.pid).ok().filter(|child| child.id == id)) {
            self.observe(Observation::ChildStarted(parent, child.id));
            self.child = Some(child);
        }
    }

    fn child_exited(&mut self, pid: i32, now: Uptime) {
        self.inputs.timeline.note("kubelet", &format!("pid {pid}, a child of its unit's main process, has ended"), now);
        self.child = None;
        self.observe(Observation::ChildExited(pid));
        self.next.facts = self.next.facts.map(|_| now + FIND_CHILD_EVERY);
    }

    fn set_prober(&mut self, facts: &KubeletFacts) {
        let pid = self.kubelet.running.id.pid;
        let url = match (self.inputs.settings.kubelet.healthz_url.as_deref(), &facts.healthz) {
            (Some(url), _) => url,
            (None, Healthz::Url(url)) => url.as_str(),
            (None, Healthz::Disabled) => {
                self.prober = None;
                return self.observe(Observation::NotProbed(pid));
            }
        };
        if self.prober.as_ref().is_some_and(|prober| prober.url == *url) {
            return;
        }
        match Prober::new(url) {
            Ok(prober) => self.prober = Some(prober),
            Err(error) => self.observe(Observation::Probed(pid, Probe::Impossible(error), None)),
        }
    }

    fn set_facts(&self, facts: &KubeletFacts) {
        self.senders.facts.send_if_modified(|known| known.replace(facts.clone()).as_ref() != Some(facts));
    }

    /// Opens the unit's main process, if it is not watched yet.
    fn open_process(&mut self, now: Uptime) {
        let Some(event) = self.follower.open(self.kubelet.service.process_to_open(), now) else { return };
        let is_opened = matches!(event, ServiceEvent::Opened(..));
        self.observe(Observation::Service(event));
        if is_opened {
            self.child = None;
            (self.prober, self.next.facts) = (None, Some(now + EXEC_WAIT));
        }
    }

    /// Starts the work outside the loop that is due.
    fn start_work(&mut self, now: Uptime) {
        self.follower.read_upgrade(&self.kubelet.service, now);
        if let Some(process) = self.kubelet.process() {
            self.look(process, now);
            self.probe(process, now);
        }
        match self.kubelet.service.process() {
            Some(process) => self.read_facts(process.pid, now),
            // Once the unit has been read, or cannot be.
            None if self.kubelet.service.bus != Bus::Connecting
                && self.senders.facts.borrow().is_none()
                && self.work.is_empty() =>
            {
                self.work.spawn(async { Done::Usual(KubeletFacts::without_process().await) });
            }
            None => {}
        }
        if let Some(invocation) = self.kubelet.wants_last_error().filter(|run| **run != self.asked_error_of) {
            let invocation = invocation.to_owned();
            self.asked_error_of.clone_from(&invocation);
            self.work.spawn(async move {
                let words = journal::last_words(&invocation).await;
                Done::Seen(Observation::LastWords { invocation, words })
            });
        }
        self.find_holder(now);
        let is_wanted = self.kubelet.running.silent_for(now).is_some() || self.kubelet.running.cut_off.is_suspected();
        self.senders.lease_wanted.send_if_modified(|wanted| std::mem::replace(wanted, is_wanted) != is_wanted);
    }

    /// Finds what keeps the unit of a kubelet that has ended from ending.
    fn find_holder(&mut self, now: Uptime) {
        let ended = self.kubelet.service.last_end.as_ref().map(|ended| ended.run.pid);
        let held = ended.zip(self.kubelet.service.held_cgroup(now).cloned());
        let Some((pid, cgroup)) = held.filter(|_| now >= self.next.holder) else { return };
        self.next.holder = now + FIND_HOLDER_EVERY;
        self.work.spawn(async move {
            let found = blocking::run("finding what holds the unit", READ_TIMEOUT, move || holder(&cgroup)).await;
            Done::Seen(Observation::HeldBy(pid, found.ok().flatten()))
        });
    }

    /// Has a kubelet that answered probed at once if a signal has stopped it since.
    fn look(&mut self, id: ProcessId, now: Uptime) {
        if now >= self.next.look {
            self.next.look = next_multiple(now, LOOK_EVERY);
            let is_due = self.kubelet.running.answers() && process::is_stopped(id);
            self.next.probe = self.next.probe.map(|at| if is_due { now } else { at });
        }
    }

    /// Probes the kubelet, and samples its process if the probe fails. One that serves no /healthz is sampled alone.
    fn probe(&mut self, id: ProcessId, began: Uptime) {
        let is_due = self.next.probe.is_some_and(|at| began >= at);
        let prober = self.prober.clone();
        if !is_due || (prober.is_none() && !self.kubelet.running.is_unprobed) {
            return;
        }
        self.next.probe = None;
        self.work.spawn(async move {
            let (probe, address) = match prober {
                Some(prober) => (prober.probe().await, Some(prober.address)),
                None => (Probe::Healthy, None),
            };
            let is_healthy = probe == Probe::Healthy;
            let mut sampled = None;
            if !is_healthy || address.is_none() || process::is_stopped(id) {
                sampled = process::sample_off_loop("kubelet", id, address).await;
            }
            let is_suspended =
                |sample: &Sample| sample.suspended_by().is_some() && (address.is_none() || !sample.is_traced());
            let sample = sampled.filter(|sample| !is_healthy || is_suspended(sample));
            Done::Probed { pid: id.pid, began, probe, sample }
        });
    }

    /// When the next probe is due after one that began then.
    fn probe_after(&self, began: Uptime, now: Uptime) -> Uptime {
        match self.kubelet.running.silent_for(now) {
            None if self.kubelet.running.answers() => next_multiple(began, PROBE_EVERY),
            Some(silent) if silent > SILENT_LONG => began + PROBE_EVERY_SILENT_LONG,
            _ => began + PROBE_EVERY_SILENT,
        }
    }

    fn read_facts(&mut self, pid: i32, now: Uptime) {
        if self.next.facts.is_some_and(|at| now >= at) {
            self.next.facts = None;
            let known = self.senders.facts.borrow().clone();
            self.work.spawn(async move { Done::Facts(pid, KubeletFacts::of_process(pid, known).await) });
        }
    }

    /// The earlier of the host's and the API server's time; none while the latter is not known.
    fn time(&self, now: Uptime) -> Option<Timestamp> {
        let server = self.inputs.api.borrow().server_clock?;
        Some(server.at(now).timestamp().min(wall()))
    }

    /// Reports the present view; `false` when the channel of reports is closed.
    async fn report(&mut self, now: Uptime) -> bool {
        let (process, unit) = (self.kubelet.process(), &self.kubelet.service.unit);
        let port = self.senders.facts.borrow().as_ref().and_then(|facts| facts.port.clone());
        let watched = Watched {
            // Until systemd has answered once, the unit has a description instead of its name.
            unit: (!unit.load_state.is_empty()).then(|| self.kubelet.service.name.clone()),
            pid: process.map(|process| process.pid),
            is_inactive: unit.active_state == "inactive",
            healthz_url: self.prober.as_ref().map(|prober| prober.url.clone()),
            port: process.filter(|_| self.kubelet.running.is_settled()).zip(port),
        };
        self.senders.watched.send_if_modified(|known| std::mem::replace(known, watched.clone()) != watched);
        let mut view = self.kubelet.view(now);
        if let (Some(view), Some(certificate)) = (&mut view, &self.certificate) {
            certificate.add_to(view, self.time(now), now);
        }
        let is_taken = self.reporter.report(view, now).await;
        let is_hung = self.reporter.has_reported(&[Reason::KubeletHung, Reason::KubeletUnkillable]);
        set_hung(&self.inputs.hung, "kubelet", process.filter(|_| is_hung), now);
        is_taken
    }
}
