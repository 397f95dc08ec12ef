//! The file systems of the kubelet and the container runtime: read-only, full, failing or hanging.
//!
//! This file waits and reads. [`Storage`] records what was observed and decides what to report.

mod directory;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::directory::Wait;
use self::state::{Reading, Storage};
use super::{Inputs, Reporter};
use crate::condition::ConditionType;
use crate::host::clock::{Timer, uptime};
use crate::host::disk::{self, Event, Step};
use crate::host::mounts::{self, Mount};

/// At the start the kubelet's --root-dir is waited for this long. Without D-Bus it stays unknown.
const FACTS_WAIT: Duration = Duration::from_secs(2);

/// The thread and the step of a probe that runs; none until it has begun.
type ProbeThread = Option<(i32, Step)>;

/// Monitors until the channel of reports is closed.
pub async fn run(inputs: Inputs) {
    let (mut kubelet, mut runtimes) = (inputs.kubelet, inputs.runtime_directories);
    // So that the first report is not of directories that this kubelet does not use.
    timeout(FACTS_WAIT, kubelet.wait_for(Option::is_some)).await.ok();
    let (mut storage, mut lines) = (Storage::new(uptime()), inputs.kernel_log.lines());
    let mut reporter = Reporter::new(ConditionType::NodeStorageHealthy, inputs.reports);
    // Readings and probes run outside the loop: a dead disk must not stop reports.
    let (mut readings, mut probes) = (JoinSet::new(), JoinSet::new());
    let (sender, mut events) = mpsc::unbounded_channel();
    let (mut running, timer) = (BTreeMap::<PathBuf, ProbeThread>::new(), Timer::new());
    loop {
        let due = storage.next_reading.min(reporter.due_at(uptime()));
        tokio::select! {
            Some(Ok(reading)) = readings.join_next() => storage.observe(reading, uptime()),
            Some((path, event)) = events.recv() => match event {
                Event::Begins(tid, step) => {
                    running.insert(path, Some((tid, step)));
                    continue;
                }
                Event::Ended(probe) => {
                    running.remove(&path);
                    storage.ended(&path, probe, uptime());
                }
            },
            Some(_) = probes.join_next() => continue,
            Ok(()) = kubelet.changed() => {}
            Ok(()) = runtimes.changed() => {}
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => if !line.is_ok_and(|line| storage.prompt(&line, uptime())) { continue },
            () = timer.at(due), if readings.is_empty() => {}
        }
        let now = uptime();
        let root_dir = kubelet.borrow().as_ref().and_then(|facts| facts.root_dir.clone());
        let given = &inputs.settings.storage.runtime_paths;
        let runtimes = if given.is_empty() { runtimes.borrow_and_update().clone() } else { given.clone() };
        storage.set_directories(root_dir.as_deref(), &runtimes);
        if now >= storage.next_reading && readings.is_empty() {
            let pid = inputs.watched.borrow().pid;
            let overdue = storage.overdue(now).into_iter();
            let overdue = overdue.filter_map(|(path, mount)| Some((*running.get(&path)?, path, mount))).collect();
            readings.spawn_blocking(move || read(pid, overdue));
        }
        let due: Vec<_> = std::iter::from_fn(|| storage.start(now)).collect();
        if !due.is_empty() {
            running.extend(due.iter().map(|path| (path.clone(), None)));
            probes.spawn(disk::probe(due, sender.clone()));
        }
        // A reading takes a moment. While one hangs, nothing is reported, and the engine reports `MonitorSilent`.
        if readings.is_empty() && !reporter.report(storage.view(now), now).await {
            return;
        }
    }
}

/// Reads the kubelet's mounts, because in the agent's own sandbox all are read-only, and the state of overdue probes.
fn read(kubelet: Option<i32>, overdue: Vec<(ProbeThread, PathBuf, Option<Mount>)>) -> Reading {
    let kubelets = kubelet.and_then(|pid| mounts::read(pid).ok());
    let kubelet_runs = kubelets.is_some();
    let wait = |running: ProbeThread, mount: Option<Mount>| {
        let (tid, step) = running?;
        let switches = disk::uninterruptible_wait(tid)?;
        Some(Wait { step, switches, requests: mount.as_ref().and_then(disk::requests) })
    };
    let overdue = overdue.into_iter().map(|(running, path, mount)| (path, wait(running, mount))).collect();
    Reading { table: kubelets.map_or_else(|| mounts::read(1), Ok), kubelet_runs, overdue }
}
