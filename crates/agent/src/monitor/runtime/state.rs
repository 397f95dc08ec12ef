//! What is known of the container runtime, from what was observed. Pure: the time is handed in.

use std::time::Duration;

use super::endpoint::Endpoint;
use crate::{
    condition::Uptime,
    host::{
        cri::Probe,
        oom::OomKill,
        pressure::Pressure,
        process::{Cgroup, ProcessId, Sample},
        systemd::BusEvent,
    },
    monitor::service::{Running, Service, samples::Samples},
};

/// Time from the start of one probe to that of the next.
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// The same of a runtime that does not answer, for a minute from its first failed probe, its start or its end on: more probes may tell
/// why, or it is about to answer.
const PROBE_EVERY_SILENT: Duration = Duration::from_secs(1);
const SILENT_FOR: Duration = Duration::from_mins(1);

/// Something that was seen.
#[derive(Debug)]
pub(super) enum Observation {
    Bus(BusEvent),
    /// The unit's main process was opened.
    Opened {
        id: ProcessId,
        name: String,
        cgroup: Option<Cgroup>,
        started: Uptime,
    },
    /// The process of this pid, the unit's main process, has ended.
    Exited(i32),
    /// A probe that began then; of one that was not answered, a look at the process that did not.
    Probed {
        began: Uptime,
        probe: Probe,
        sample: Option<(Sample, Pressure)>,
    },
    OomKill(OomKill),
    /// The message of the Node's condition `Ready`, if the kubelet says in it that the runtime is not ready.
    KubeletAgrees(Option<String>),
}

/// Who listens at the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) id: ProcessId,
    /// The system service that it belongs to.
    pub(super) unit: Option<String>,
}

/// The failed probes since the last good one.
#[derive(Debug, Default)]
pub(super) struct Silence {
    pub(super) failures: u32,
    /// Those since the last that found somebody who listens.
    pub(super) without_listener: u32,
    /// What was seen of the process meanwhile.
    pub(super) samples: Samples,
}

/// The container runtime as far as it is known.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) service: Service,
    /// The units of which the first that is loaded is watched.
    pub(super) units: Vec<String>,
    pub(super) endpoint: Option<Endpoint>,
    /// Who listened when a connection was made last, if one was made since the watched process ended.
    pub(super) listener: Option<Listener>,
    /// The last probe since the watched process ended, if one did.
    pub(super) last_probe: Option<Probe>,
    pub(super) silence: Silence,
    /// Whether it has answered since the watched process started.
    pub(super) has_answered: bool,
    /// When the unit's main process ended last.
    ended_at: Uptime,
    /// When it started or ended last, or a probe failed after a good one.
    changed_at: Uptime,
    /// Whether the unit's main process was the one that listened when it last answered. The containerd of k3s is a child of it.
    pub(super) main_process_listens: bool,
    pub(super) kubelet_agrees: Option<String>,
}

impl Runtime {
    pub(super) fn new(start_grace: Duration) -> Self {
        Self {
            service: Service::new("the container runtime's unit", start_grace),
            units: Vec::new(),
            endpoint: None,
            listener: None,
            last_probe: None,
            silence: Silence::default(),
            has_answered: false,
            ended_at: Uptime::ZERO,
            changed_at: Uptime::ZERO,
            main_process_listens: false,
            kubelet_agrees: None,
        }
    }

    /// Takes in which socket is probed; `true` if it is another one, of which nothing is known.
    pub(super) fn set_endpoint(&mut self, endpoint: Option<Endpoint>) -> bool {
        let socket = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(|endpoint| endpoint.socket.clone());
        let is_other = socket(&self.endpoint) != socket(&endpoint);
        if is_other {
            *self = Self::new(self.service.start_grace);
        }
        self.endpoint = endpoint;
        is_other
    }

    /// Takes in who listened at a probe that began then; none if that is not known.
    pub(super) fn set_listener(&mut self, listener: Option<Listener>, began: Uptime) {
        if listener.is_some() && listener != self.listener && began >= self.ended_at {
            (self.listener, self.silence.samples) = (listener, Samples::default());
        }
    }

    /// Chooses the units to watch; `false` if they are watched already. What is known of others is void. `given`: by the settings.
    pub(super) fn choose_units(&mut self, given: Option<&String>) -> bool {
        let of_listener = self.listener.as_ref().and_then(|listener| listener.unit.as_ref());
        let units = match given.or(of_listener) {
            // As systemd names it, whichever alias it was looked for by.
            Some(unit) if *unit == self.service.name => return false,
            Some(unit) => vec![unit.clone()],
            None if self.units.is_empty() => self.endpoint.as_ref().map(Endpoint::units).unwrap_or_default(),
            None => return false,
        };
        if self.units == units {
            return false;
        }
        self.service = Service::new("the container runtime's unit", self.service.start_grace);
        (self.units, self.main_process_listens) = (units, false);
        true
    }

    /// Whether it answered the last probe and has not ended since.
    pub(super) fn answers(&self) -> bool {
        matches!(self.last_probe, Some(Probe::Ready { .. }))
    }

    /// The process that answers, or does not: who listens, or of a socket unit's socket, where systemd does, the service's main process.
    pub(super) fn process(&self) -> Option<ProcessId> {
        let of_service = || self.service.running().map(|running| running.id);
        self.listener.as_ref().map(|listener| listener.id).filter(|id| id.pid != 1).or_else(of_service)
    }

    /// Whether somebody has listened since the watched process ended, or the unit's main process itself listens in each of its runs.
    pub(super) fn is_served(&self) -> bool {
        self.listener.is_some() || self.main_process_listens
    }

    /// Whether the socket is known to be the runtime's.
    pub(super) fn endpoint_is_known(&self) -> bool {
        self.is_served() || self.endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_guess)
    }

    /// Time from the start of the last probe to that of the next.
    pub(super) fn probe_interval(&self, now: Uptime) -> Duration {
        let is_soon = !self.answers() && now < self.changed_at + SILENT_FOR;
        if is_soon { PROBE_EVERY_SILENT } else { PROBE_EVERY }
    }

    /// Takes in what was seen.
    pub(super) fn observe(&mut self, observation: Observation, now: Uptime) {
        match observation {
            Observation::Bus(event) => self.service.bus_event(event, now),
            Observation::Opened { id, name, cgroup, started } => {
                let is_another = self.service.running().is_some_and(|former| former.id != id);
                self.service.opened(Running::new(id, name, cgroup, started), now);
                self.changed_at = now;
                if is_another {
                    self.forget_answers(now);
                }
            }
            Observation::Exited(pid) => {
                self.service.exited(pid, now);
                self.forget_answers(now);
            }
            // An answer from before the end says nothing of what came after it.
            Observation::Probed { began, .. } if began < self.ended_at => {}
            Observation::Probed { probe, sample, .. } => {
                match sample {
                    Some((sample, pressure)) => self.silence.samples.take_in(sample, pressure, now),
                    // What was sampled at an earlier probe explains nothing.
                    None => self.silence.samples = Samples::default(),
                }
                self.probed(probe, now);
            }
            Observation::OomKill(kill) => self.service.oom_kill(kill, now),
            Observation::KubeletAgrees(what) => self.kubelet_agrees = what,
        }
        if self.answers() {
            self.service.answered();
            if let (Some(listener), Some(running)) = (&self.listener, self.service.running()) {
                self.main_process_listens = [1, running.id.pid].contains(&listener.id.pid);
            }
        }
        self.service.settle(now);
    }

    /// The unit's main process has ended. Failed probes count on: it may end again and again before it answers.
    fn forget_answers(&mut self, now: Uptime) {
        (self.ended_at, self.changed_at) = (now, now);
        (self.last_probe, self.has_answered, self.listener) = (None, false, None);
        self.silence.samples = Samples::default();
    }

    fn probed(&mut self, probe: Probe, now: Uptime) {
        if let Probe::Ready { .. } = probe {
            self.has_answered = true;
            self.silence = Silence::default();
        } else {
            if self.silence.failures == 0 {
                self.changed_at = now;
            }
            self.silence.failures += 1;
            self.silence.without_listener =
                if probe == Probe::NoListener { self.silence.without_listener + 1 } else { 0 };
        }
        self.last_probe = Some(probe);
    }
}
