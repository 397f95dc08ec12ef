//! Follows the main process of a service, for the loop of a monitor.

use std::io;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use super::ended::Run;
use crate::condition::Uptime;
use crate::host::oom::OomKill;
use crate::host::process::{Process, ProcessId};
use crate::host::systemd::{self, BusEvent};
use crate::monitor::Inputs;

/// A process that cannot be opened is tried again after this time.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub enum ServiceEvent {
    Bus(BusEvent),
    /// The unit's main process, which started then, was opened. systemd's properties of its run are not known here.
    Opened(ProcessId, Run, Uptime),
    /// The unit's main process cannot be watched, and why.
    Unwatchable(String),
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
    process: Option<Process>,
    /// A main process that could not be opened, and when to try again.
    unopened: Option<(i32, Uptime)>,
}

impl Follower {
    /// Follows the best of `units`: one that runs, else one that is enabled, else one that is there; the first of those.
    pub fn new(units: Vec<String>, inputs: &Inputs) -> Self {
        let (events, bus) = mpsc::channel(64);
        let mut reader = JoinSet::new();
        if !units.is_empty() {
            reader.spawn(systemd::watch(units, events, inputs.troubles.clone()));
        }
        Self { bus, _reader: reader, kills: inputs.kernel_log.kills(), process: None, unopened: None }
    }

    pub async fn next(&mut self) -> ServiceEvent {
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
            () = ended => ServiceEvent::Exited(self.process.take().map_or(0, |process| process.id.pid)),
        }
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
                let (name, cgroup) = process.name_and_cgroup();
                let (id, started) = (process.id, process.id.started());
                (self.process, self.unopened) = (Some(process), None);
                Some(ServiceEvent::Opened(id, Run { pid, name, cgroup, ..Run::default() }, started))
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
