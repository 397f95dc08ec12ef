//! Follows the main process of a service, for the loop of a monitor.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use super::Service;
use super::ended::Run;
use crate::condition::{ConditionType, Uptime};
use crate::host::clock::{uptime, wall};
use crate::host::oom::OomKill;
use crate::host::process::{Cgroup, Process, ProcessId, cgroup};
use crate::host::systemd::{self, BusEvent, JobKind};
use crate::host::{blocking, packages};
use crate::monitor::Inputs;
use crate::timeline::Timeline;

/// A process that cannot be opened is tried again after this time.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// It takes longer only if a disk does not answer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// A package manager may have replaced a unit for so long before it stops the service.
const UPGRADES_TAKE: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub enum ServiceEvent {
    Bus(BusEvent),
    /// The unit's main process, which started then, was opened. systemd's properties of its run are not known here.
    Opened(ProcessId, Run, Uptime),
    /// The unit's main process cannot be watched, and why.
    Unwatchable(String),
    /// In which cgroup the process of this pid is.
    Placed(i32, Option<Cgroup>),
    /// After the process of this pid was stopped: whether a package manager holds its lock, and whether packaged units were replaced.
    Upgrade {
        pid: i32,
        is_locked: bool,
        is_replaced: bool,
    },
    /// The process of this pid, the unit's main process, has ended.
    Exited(i32),
    /// The kernel has OOM-killed a process, which may be another one.
    OomKill(OomKill),
}

/// The sources of these events.
#[derive(Debug)]
pub struct Follower {
    bus: mpsc::Receiver<BusEvent>,
    /// The reader of the bus, aborted when the follower is dropped.
    _reader: JoinSet<()>,
    kills: broadcast::Receiver<OomKill>,
    /// What is read outside the loop.
    reading: JoinSet<Option<ServiceEvent>>,
    process: Option<Process>,
    /// A main process that could not be opened, and when to try again.
    unopened: Option<(i32, Uptime)>,
    /// The condition that is about the service, and where it is noted what happens to it.
    kind: ConditionType,
    timeline: Timeline,
}

impl Follower {
    /// Follows the best of `units`: one that runs, else one that is enabled, else one that is there; the first of those.
    pub fn new(kind: ConditionType, units: Vec<String>, inputs: &Inputs) -> Self {
        let (events, bus) = mpsc::channel(64);
        let mut reader = JoinSet::new();
        if !units.is_empty() {
            reader.spawn(systemd::watch(units, events, inputs.troubles.clone()));
        }
        let kills = inputs.kernel_log.kills();
        let (process, unopened, timeline) = (None, None, inputs.timeline.clone());
        Self { bus, _reader: reader, kills, reading: JoinSet::new(), process, unopened, kind, timeline }
    }

    pub async fn next(&mut self) -> ServiceEvent {
        let event = self.wait().await;
        if let ServiceEvent::Bus(event) = &event {
            self.timeline.unit_seen(self.kind, event, uptime());
        }
        if let Some(text) = describe(&event) {
            self.timeline.note(self.kind.name(), &text, uptime());
        }
        event
    }

    async fn wait(&mut self) -> ServiceEvent {
        let ended = async {
            match &self.process {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
        };
        // In this order: systemd's events before the end that they explain.
        tokio::select! {
            biased;
            Some(event) = self.bus.recv() => ServiceEvent::Bus(event),
            Ok(kill) = self.kills.recv() => ServiceEvent::OomKill(kill),
            Some(Ok(Some(read))) = self.reading.join_next() => read,
            () = ended => ServiceEvent::Exited(self.process.take().map_or(0, |process| process.id.pid)),
        }
    }

    /// Reads whether a package manager has stopped the service, if that is to be known.
    pub fn read_upgrade(&mut self, service: &Service, now: Uptime) {
        let Some((pid, ago)) = service.wants_upgrade(now).filter(|_| self.reading.is_empty()) else { return };
        let since = SystemTime::from(wall()) - ago - UPGRADES_TAKE;
        self.reading.spawn(async move {
            let read = move || {
                let (is_locked, is_replaced) = packages::read(Path::new("/"), since);
                ServiceEvent::Upgrade { pid, is_locked, is_replaced }
            };
            blocking::run("finding out who has stopped a service", READ_TIMEOUT, read).await.ok()
        });
    }

    /// When to try again to open the main process of this pid.
    pub fn open_again_at(&self, pid: Option<i32>) -> Option<Uptime> {
        self.unopened.filter(|(unopened, _)| Some(*unopened) == pid).map(|(_, at)| at)
    }

    /// Opens the main process that systemd has and that is not watched yet.
    pub fn open(&mut self, pid: Option<i32>, now: Uptime) -> Option<ServiceEvent> {
        let again_at = self.open_again_at(pid);
        let pid = pid.filter(|_| again_at.is_none_or(|at| now >= at))?;
        match Process::open(pid) {
            Ok(process) => {
                let (id, started, name) = (process.id, process.id.started(), process.name.clone());
                (self.process, self.unopened) = (Some(process), None);
                self.reading.spawn(async move {
                    let read = move || ServiceEvent::Placed(pid, cgroup(pid));
                    blocking::run("reading a service's cgroup", READ_TIMEOUT, read).await.ok()
                });
                Some(ServiceEvent::Opened(id, Run { pid, name, ..Run::default() }, started))
            }
            Err(error) => {
                self.unopened = Some((pid, now + OPEN_AGAIN_AFTER));
                // It has ended, and systemd is about to report how, unless the next attempt has the same result.
                let is_about_to_end = error.kind() == io::ErrorKind::NotFound && again_at.is_none();
                (!is_about_to_end).then(|| ServiceEvent::Unwatchable(error.to_string()))
            }
        }
    }
}

/// An event as the timeline has it; none of what is of no interest later.
fn describe(event: &ServiceEvent) -> Option<String> {
    Some(match event {
        ServiceEvent::Bus(BusEvent::Read { unit, state, .. }) => format!("{unit} is {}", state.summary()),
        ServiceEvent::Bus(BusEvent::Changed(state)) => format!("the unit is {}", state.summary()),
        ServiceEvent::Bus(BusEvent::Job { id, kind: JobKind::Unread, .. }) => format!("job {id} is queued"),
        ServiceEvent::Bus(BusEvent::Job { id, kind, .. }) => format!("job {id} is of type {kind:?}"),
        ServiceEvent::Bus(BusEvent::JobRemoved { id, result }) => format!("job {id} has ended: {result}"),
        ServiceEvent::Bus(BusEvent::Lost) => "no D-Bus connection to systemd".to_owned(),
        ServiceEvent::Opened(id, ..) => format!("pid {} is its main process", id.pid),
        ServiceEvent::Exited(pid) => format!("pid {pid} has ended"),
        ServiceEvent::OomKill(OomKill { pid, name, .. }) => format!("the kernel has OOM-killed pid {pid} ({name})"),
        ServiceEvent::Unwatchable(error) => format!("its main process cannot be watched: {error}"),
        ServiceEvent::Bus(BusEvent::Reading | BusEvent::Declined)
        | ServiceEvent::Placed(..)
        | ServiceEvent::Upgrade { .. } => return None,
    })
}
