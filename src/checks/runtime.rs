//! The container runtime: its process, its unit, and what it answers over CRI.
//!
//! The helper asks it at its socket, and says which process listens there and in which unit's cgroup that is: so whatever
//! runs it (containerd, CRI-O, k3s' own containerd) is found by what is, and not by a name. Its process is then watched like
//! the kubelet's, by its pidfd and systemd's jobs. Pure.

mod assess;
mod outcome;
mod services;
mod socket;

use std::{path::PathBuf, time::Duration};

use crate::{
    checks::{
        Check, Question, Reading, Spec, Unasked,
        kernel::{
            event::{KernelEvent, OomKill},
            place::may_be_own_unit,
        },
        kubelet::{Found, Probe, Process, Sign, service::Standing},
    },
    clock::Now,
    config::{RuntimeSettings, Settings},
    health::{ConditionType, Finding, timing::Window},
    helper::protocol::{Heard, Listener, RuntimeAnswer, RuntimeRequest},
};

pub use services::{ALL_UNITS, UNITS};

use outcome::Outcome;
use services::{Change, Service, Services};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "runtime",
    condition: ConditionType::ContainerRuntimeHealthy,
    doc: "The container runtime's process, its unit, and its answers over CRI.",
};

/// At least so long from one question to the next: a socket without a listener says so at once.
const BETWEEN: Duration = Duration::from_secs(1);
/// After so many failures in a row the verdict is out, and a dead socket need not be asked more often than a live one.
const FAST: u32 = 5;
/// How often a host without a runtime is asked whether it has one by now.
const NONE_EVERY: Duration = Duration::from_mins(1);
/// The kernel's word that it killed the runtime and the end of its process belong together if they are no further apart.
const OOM_NEAR: Duration = Duration::from_secs(10);
/// The kernel's stamps may be off by that much; what is older is of another death.
const OOM_OLD: Duration = Duration::from_mins(5);
/// Names of runtimes' processes, for a host whose kernel counts pids otherwise than we do.
const COMMS: &[&str] = &["containerd", "crio", "cri-dockerd"];

/// What is known of the container runtime.
#[derive(Debug)]
pub struct Runtime {
    settings: RuntimeSettings,
    every: Duration,
    timeout: Duration,
    io_full_percent: u32,
    /// The kubelet's word on the socket.
    kubelets: Option<PathBuf>,
    services: Services,
    /// Whether there was a socket or a process in this life of ours.
    seen: bool,
    /// How the last question ended.
    last: Option<Outcome>,
    /// Whether the runtime whose answers are counted has answered once.
    answered: bool,
    /// Which of its last answers were bad, and since when they all were (uptime).
    window: Window,
    failing_since: Option<Duration>,
    /// Whether the kubelet says on the Node that its runtime is not well.
    kubelet_blames: bool,
    /// The process's state, if it is one in which it cannot work.
    state: Option<char>,
    /// The kernel's word that it killed it, and when that came (uptime).
    killed_for_memory: Option<(OomKill, Duration)>,
    /// When systemd last said that the unit's process had ended (uptime): one that never listened is not seen otherwise.
    unit_ended_at: Option<Duration>,
    /// When the last question began; when the next is due (uptime).
    asked_at: Duration,
    ask_at: Option<Duration>,
    /// When to look at what is known again (uptime).
    look_at: Option<Duration>,
    findings: Vec<Finding>,
}

impl Runtime {
    /// A runtime of which nothing is known.
    pub fn new(settings: &Settings) -> Self {
        let id = SPEC.id;
        Self {
            settings: settings.runtime.clone(),
            every: settings.seconds(id, "probe_secs"),
            timeout: settings.seconds(id, "timeout_secs"),
            io_full_percent: settings.number(id, "io_full_percent"),
            kubelets: None,
            // systemd is not asked about a kubelet that it does not run, nor about anything else then.
            services: Services::new(
                settings.runtime.unit.clone(),
                settings.kubelet.pid_file.is_some(),
            ),
            seen: false,
            last: None,
            answered: false,
            window: Window::default(),
            failing_since: None,
            kubelet_blames: false,
            state: None,
            killed_for_memory: None,
            unit_ended_at: None,
            asked_at: Duration::ZERO,
            ask_at: settings.runtime.enabled.then_some(Duration::ZERO),
            look_at: None,
            findings: Vec::new(),
        }
    }

    /// The unit whose process the runtime is, as far as is known.
    fn unit_name(&self) -> &str {
        let socket = self.last.as_ref().and_then(|last| last.socket.to_str());
        self.services.name(socket.unwrap_or_default())
    }

    fn current(&self) -> Option<&Service> {
        self.services.get(self.unit_name())
    }

    fn standing(&self) -> Standing<'_> {
        self.services.standing(self.unit_name())
    }

    fn apply(&mut self, sign: Sign, now: Now) {
        let name = self.unit_name().to_owned();
        self.services.apply(&name, sign, now);
    }

    fn heard(&mut self, answer: &RuntimeAnswer, now: Now) {
        if self.is_of_another(answer) {
            return self.unasked(&socket::not_known(), now);
        }
        let ended = match self.standing() {
            Standing::Ended { pid, .. } => Some(pid),
            _ => None,
        };
        // It was given before the end that we know of already.
        if ended.is_some() && answer.listener.as_ref().map(|one| one.pid) == ended {
            self.ask_at = Some(now.uptime + BETWEEN);
            return;
        }
        if let Some(listener) = &answer.listener {
            self.found(listener, now);
        }
        self.seen |= answer.heard != Heard::NoSocket;
        let outcome = Outcome::of(answer, self.is_guess());
        if outcome.is_good() {
            self.answered = true;
        }
        if let Some(listener) = &answer.listener {
            let probe = if outcome.is_good() {
                Probe::Ok
            } else {
                Probe::Timeout
            };
            self.apply(Sign::Probed(listener.pid, probe), now);
        }
        self.count(outcome, now);
    }

    fn unasked(&mut self, unasked: &Unasked, now: Now) {
        let socket = self.socket().unwrap_or_default();
        self.count(Outcome::unasked(socket, unasked), now);
    }

    fn count(&mut self, outcome: Outcome, now: Now) {
        let is_good = outcome.is_good();
        // Three of one kind make a problem, not one each of three kinds.
        let is_same = self
            .last
            .as_ref()
            .is_some_and(|last| last.is_like(&outcome));
        if is_good || !is_same {
            self.window = Window::default();
            self.failing_since = None;
        }
        self.window.push(!is_good);
        if !is_good {
            self.failing_since.get_or_insert(now.uptime);
        }
        self.ask_at = Some(self.next_question(&outcome, now));
        self.last = Some(outcome);
    }

    /// When to ask again.
    fn next_question(&self, last: &Outcome, now: Now) -> Duration {
        if last.is_good() {
            return self.asked_at + self.every;
        }
        let rest = match self.window.in_a_row() {
            // On its way: it is found as soon as it listens.
            _ if self.is_on_its_way(now) => BETWEEN,
            _ if last.is_none() && !self.seen => NONE_EVERY,
            0..FAST => self.timeout,
            _ => self.every,
        };
        (self.asked_at + rest).max(now.uptime)
    }

    /// Whether it has just ended, or systemd has just started it.
    fn is_on_its_way(&self, now: Now) -> bool {
        let since = match self.standing() {
            Standing::Ended { at, .. } => at,
            Standing::Alive { process, .. } if !self.answered => process.started,
            Standing::Unseen if self.current().is_some_and(Service::is_up) => {
                self.failing_since.unwrap_or(now.uptime)
            }
            _ => return false,
        };
        now.uptime < since + Duration::from_mins(1)
    }

    fn found(&mut self, listener: &Listener, now: Now) {
        if self.settings.unit.is_none()
            && let Some(unit) = &listener.unit
        {
            self.services.choose(unit.clone());
        }
        let process = Process {
            pid: listener.pid,
            started: listener.started,
        };
        let is_new =
            !matches!(self.standing(), Standing::Alive { process: p, .. } if *p == process);
        if is_new {
            self.forget_answers();
            self.apply(Sign::Found(Found::One(process)), now);
        }
    }

    /// What was counted was another's.
    fn forget_answers(&mut self) {
        self.answered = false;
        self.window = Window::default();
        (self.failing_since, self.state) = (None, None);
    }

    fn killed(&mut self, kill: &OomKill, now: Now) {
        // At the agent's start the kernel's log is read from the boot on.
        if kill.at + OOM_OLD < now.uptime {
            return;
        }
        let pid = match self.standing() {
            Standing::Alive { process, .. } => Some(process.pid),
            Standing::Ended { pid, .. } => Some(pid),
            Standing::Unseen => None,
        };
        let is_units = |group| may_be_own_unit(group, |unit| unit == self.unit_name());
        let in_unit = COMMS.contains(&kill.comm.as_str()) && kill.place().is_some_and(is_units);
        if !kill.is_of_pods() && (pid == Some(kill.pid) || in_unit) {
            self.killed_for_memory = Some((kill.clone(), now.uptime));
        }
    }

    fn unit_said(&mut self, name: &str, sign: &Sign, now: Now) {
        let change = self.services.said(name, sign, now);
        if name != self.unit_name() {
            return;
        }
        match change {
            Change::None => {}
            // It is asked for as soon as it may listen.
            Change::Began => self.hasten(BETWEEN),
            Change::Ended => self.unit_ended_at = Some(now.uptime),
        }
    }

    /// Asks at once, but not within `rest` of the last question.
    fn hasten(&mut self, rest: Duration) {
        if let Some(at) = &mut self.ask_at {
            *at = (*at).min(self.asked_at + rest);
        }
    }

    /// Whether this host has no runtime at all.
    fn is_none(&self) -> bool {
        if !self.last.as_ref().is_some_and(Outcome::is_none) {
            return false;
        }
        let awaited = (self.current()).is_none_or(|service| service.life.awaits_systemd());
        let known = !awaited || self.services.bus_is_lost;
        !self.seen && known && self.services.are_none()
    }

    /// Makes of it what there is to be said.
    fn settle(&mut self, now: Now) {
        self.services.tick(now);
        if let Some(finding) = self.assess(now)
            && self.findings.first() != Some(&finding)
        {
            self.findings = vec![finding];
        }
        let ahead = self
            .services
            .deadlines(now)
            .chain(self.grace_ends())
            .filter(|at| *at > now.uptime);
        self.look_at = ahead.min();
    }
}

impl Check for Runtime {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        if !self.settings.enabled {
            return;
        }
        match reading {
            Reading::Facts(facts) => self.learn_socket(facts.runtime_socket.as_ref()),
            Reading::Runtime(Ok(answer)) => self.heard(answer, now),
            Reading::Runtime(Err(unasked)) => self.unasked(unasked, now),
            Reading::RuntimeGone(pid) => {
                self.apply(Sign::Gone(*pid), now);
                self.forget_answers();
                self.hasten(BETWEEN);
            }
            Reading::RuntimeState(pid, state) => {
                if matches!(self.standing(), Standing::Alive { process, .. } if process.pid == *pid)
                {
                    self.state = assess::is_stuck(*state).then_some(*state);
                    self.hasten(BETWEEN);
                }
            }
            Reading::Unit(name, sign) => self.unit_said(name, sign, now),
            Reading::Sight(sight) if sight.blames_runtime != self.kubelet_blames => {
                self.kubelet_blames = sight.blames_runtime;
            }
            Reading::BusLost => self.services.bus_lost(now),
            Reading::Kernel(KernelEvent::OomKill(kill)) => self.killed(kill, now),
            _ => return,
        }
        self.settle(now);
    }

    fn due_at(&self) -> Option<Duration> {
        [self.ask_at, self.look_at].into_iter().flatten().min()
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        // The loop does a little early what is due soon: it is for asking if that is due first.
        let is_for_asking = self.ask_at.is_some() && self.ask_at == self.due_at();
        self.settle(now);
        if !is_for_asking {
            return None;
        }
        self.asked_at = now.uptime;
        self.ask_at = Some(now.uptime + self.every);
        Some(Question::Runtime(RuntimeRequest {
            timeout_millis: u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX),
        }))
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn applies(&self) -> bool {
        self.settings.enabled && !self.is_none()
    }
}

#[cfg(test)]
mod tests;
