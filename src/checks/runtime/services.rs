//! The units of which one is the runtime's, each with the life of what it runs.

use std::time::Duration;

use crate::{
    checks::kubelet::{Kubelet, Sign, Terms, Unit, service::Standing},
    clock::Now,
};

/// Units of which one may be the runtime's, until its process says which.
pub const UNITS: &[&str] = &["containerd.service", "crio.service"];

/// Every unit that may run a container runtime, beside the configured one: which of them is this host's does not matter.
pub const ALL_UNITS: &[&str] = &[
    "containerd.service",
    "crio.service",
    "docker.service",
    "cri-docker.service",
    "cri-o.service",
    "snap.docker.dockerd.service",
    "snap.microk8s.daemon-containerd.service",
    "snap.k8s.containerd.service",
];

/// How long systemd is waited for to say how the runtime ended. containerd obeys a SIGTERM within milliseconds: on a host
/// that is busy its end is seen before the stop job is heard of that asked for it.
const CAUSE_WAIT: Duration = Duration::from_secs(1);
/// How many units are remembered: as many as systemd is asked about.
const MAX_SERVICES: usize = 8;

/// A unit, and the life of what it runs.
#[derive(Debug)]
pub(super) struct Service {
    name: String,
    pub(super) life: Kubelet,
}

/// What systemd's word on a unit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It has the process that it had, or none as before.
    None,
    /// It has another process.
    Began,
    /// Its process has ended.
    Ended,
}

/// Every unit that has been heard of.
#[derive(Debug)]
pub(super) struct Services {
    list: Vec<Service>,
    /// The one whose process the runtime is, if that is known.
    chosen: Option<String>,
    pub(super) bus_is_lost: bool,
}

impl Service {
    /// Whether systemd has a process of it.
    pub(super) fn is_up(&self) -> bool {
        let unit = self.life.service_unit();
        unit.is_some_and(|unit| unit.main_pid != 0)
    }

    fn is_loaded(&self) -> bool {
        let unit = self.life.service_unit();
        unit.is_some_and(|unit| unit.load_state == "loaded")
    }
}

impl Services {
    pub(super) fn new(chosen: Option<String>, bus_is_lost: bool) -> Self {
        Self {
            list: Vec::new(),
            chosen,
            bus_is_lost,
        }
    }

    /// The unit whose process the runtime is.
    pub(super) fn choose(&mut self, unit: String) {
        self.chosen = Some(unit);
    }

    /// Its name as far as is known; `socket` is where it was asked last.
    pub(super) fn name(&self, socket: &str) -> &str {
        if let Some(unit) = &self.chosen {
            return unit;
        }
        let is_loaded = |name: &&&str| self.get(name).is_some_and(Service::is_loaded);
        let by_socket = UNITS.iter().find(|name| {
            let stem = name.trim_end_matches(".service");
            socket.contains(stem) && is_loaded(name)
        });
        let any = || UNITS.iter().find(is_loaded);
        by_socket.or_else(any).unwrap_or(&UNITS[0])
    }

    pub(super) fn get(&self, name: &str) -> Option<&Service> {
        self.list.iter().find(|service| service.name == name)
    }

    fn get_mut(&mut self, name: &str, now: Now) -> Option<&mut Service> {
        if let Some(index) = self.list.iter().position(|one| one.name == name) {
            return self.list.get_mut(index);
        }
        if self.list.len() >= MAX_SERVICES {
            return None;
        }
        let mut life = Kubelet::new(name).with(Terms {
            cause_wait: CAUSE_WAIT,
            ..Terms::default()
        });
        if self.bus_is_lost {
            life.apply(Sign::BusLost, now);
        }
        let name = name.to_owned();
        self.list.push(Service { name, life });
        self.list.last_mut()
    }

    pub(super) fn apply(&mut self, name: &str, sign: Sign, now: Now) {
        if let Some(service) = self.get_mut(name, now) {
            service.life.apply(sign, now);
        }
    }

    /// systemd's word on a unit, if that may be the runtime's.
    pub(super) fn said(&mut self, name: &str, sign: &Sign, now: Now) -> Change {
        let may_be = UNITS.contains(&name) || self.chosen.as_deref() == Some(name);
        if self.get(name).is_none() && !may_be {
            return Change::None;
        }
        let Some(service) = self.get_mut(name, now) else {
            return Change::None;
        };
        let main_pid = |life: &Kubelet| life.service_unit().map(|unit: &Unit| unit.main_pid);
        let before = main_pid(&service.life);
        service.life.apply(sign.clone(), now);
        let after = main_pid(&service.life);
        match (before, after) {
            _ if before == after => Change::None,
            (Some(_), Some(0)) => Change::Ended,
            (None, Some(0)) | (_, None) => Change::None,
            _ => Change::Began,
        }
    }

    pub(super) fn bus_lost(&mut self, now: Now) {
        self.bus_is_lost = true;
        for service in &mut self.list {
            service.life.apply(Sign::BusLost, now);
        }
    }

    pub(super) fn tick(&mut self, now: Now) {
        for service in &mut self.list {
            service.life.tick(now);
        }
    }

    /// When to look again though nothing is said (uptime).
    pub(super) fn deadlines(&self, now: Now) -> impl Iterator<Item = Duration> {
        let lives = self.list.iter().map(|service| &service.life);
        lives.filter_map(move |life| life.next_deadline(now))
    }

    pub(super) fn standing(&self, name: &str) -> Standing<'_> {
        self.get(name)
            .map_or(Standing::Unseen, |service| service.life.standing())
    }

    /// Whether systemd knows none of them.
    pub(super) fn are_none(&self) -> bool {
        !self.list.iter().any(Service::is_loaded)
    }
}
