//! What is known of the kubelet, from what was observed. Pure: the time is handed in.

use std::time::Duration;

use super::{
    alive::{API_NEEDED, Alive},
    observation::Observation,
};
use crate::{
    condition::Uptime,
    monitor::service::{Bus, Running, Service},
};

/// The kubelet as far as it is known.
#[derive(Debug)]
pub struct Kubelet {
    pub(super) service: Service,
    /// Whether it answers; none while no process is watched.
    pub(super) alive: Option<Alive>,
    pub(super) api_reached: Option<Uptime>,
}

impl Kubelet {
    pub fn new(start_grace: Duration) -> Self {
        Self { service: Service::new("the kubelet's unit", start_grace), alive: None, api_reached: None }
    }

    /// Whether the unit has been read, or cannot be.
    pub fn unit_is_known(&self) -> bool {
        self.service.bus != Bus::Connecting
    }

    /// Whether it answered the last probe.
    pub fn answers(&self) -> bool {
        self.alive.as_ref().is_some_and(Alive::answers)
    }

    /// Whether what its configuration says of /healthz is known for good.
    pub fn is_settled(&self) -> bool {
        self.alive.as_ref().is_some_and(Alive::is_settled)
    }

    /// Whether its connections to the API server seem to be stuck.
    pub fn is_stall_suspected(&self) -> bool {
        self.alive.as_ref().is_some_and(|alive| alive.stall.is_suspected())
    }

    /// The unit's name, once systemd was read.
    pub fn unit_name(&self) -> &str {
        &self.service.name
    }

    /// The main process that systemd has and that is not watched.
    pub fn process_to_open(&self) -> Option<i32> {
        self.service.process_to_open()
    }

    /// The run of the unit that has ended and whose last error is not known yet.
    pub fn wants_last_error(&self) -> Option<&str> {
        let ended = self.service.last_end()?;
        let is_wanted = ended.has_failed() && ended.last_error.is_none() && !ended.run.invocation.is_empty();
        is_wanted.then_some(ended.run.invocation.as_str())
    }

    /// Since how long probes have failed; none while they do not.
    pub fn silent_for(&self, now: Uptime) -> Option<Duration> {
        self.alive.as_ref()?.silent_for(now)
    }

    /// When the view changes by the passing of time alone, at the soonest.
    pub fn deadline(&self, now: Uptime) -> Option<Uptime> {
        self.service.deadline(now)
    }

    /// Takes in what was seen.
    pub fn observe(&mut self, observation: Observation, now: Uptime) {
        match observation {
            Observation::Bus(event) => self.service.bus_event(event, now),
            Observation::Opened { id, name, cgroup, started } => {
                if self.service.opened(Running::new(id, name, cgroup, started), now) {
                    self.alive = Some(Alive::new(id, started));
                }
            }
            Observation::Unwatchable(error) => self.service.unwatchable = Some(error),
            Observation::Exited(pid) => self.service.exited(pid, now),
            Observation::Probed(pid, probe) => self.with_alive(pid, |alive| alive.probed(probe, now)),
            Observation::NotProbed(pid) => self.with_alive(pid, Alive::set_unprobed),
            Observation::Sampled(pid, sample, pressure) => {
                self.with_alive(pid, |alive| alive.sampled(sample, pressure, now));
            }
            Observation::OomKill(kill) => self.service.oom_kill(kill, now),
            Observation::LastError { invocation, line } => {
                if let Some(ended) = self.service.last_end_mut().filter(|ended| ended.run.invocation == invocation) {
                    ended.last_error = line;
                }
            }
            Observation::Lease(lease) => {
                if let Some(alive) = &mut self.alive {
                    alive.lease_read(&lease, now);
                }
            }
            Observation::Connections(pid, connections) => {
                let is_reached = self.api_reached.is_some_and(|since| now >= since + API_NEEDED);
                let connections = connections.filter(|_| is_reached);
                self.with_alive(pid, |alive| alive.stall.looked(connections.as_deref()));
            }
            Observation::ApiReached(since) => self.api_reached = since,
        }
        if self.service.running().is_none() {
            self.alive = None;
        } else if self.answers() {
            self.service.answered();
        }
        self.service.settle(now);
    }

    fn with_alive(&mut self, pid: i32, change: impl FnOnce(&mut Alive)) {
        if let Some(alive) = self.alive.as_mut().filter(|alive| alive.id.pid == pid) {
            change(alive);
        }
    }
}
