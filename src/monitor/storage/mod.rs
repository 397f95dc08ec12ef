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

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::directory::Wait;
use self::state::Storage;
use super::{Inputs, Reporter};
use crate::condition::ConditionType;
use crate::host::clock::uptime;
use crate::host::disk::{self, Progress};
use crate::host::mounts::{self, Mount};

/// At the start the kubelet's --root-dir is waited for this long. Without D-Bus it stays unknown.
const FACTS_WAIT: Duration = Duration::from_secs(2);

/// The table of mounts, whether it is the kubelet's, and what the overdue probes wait for.
struct Reading {
    table: Result<String, String>,
    kubelet_runs: bool,
    overdue: Vec<(PathBuf, Option<Wait>)>,
}

/// Monitors until the channel of reports is closed.
pub async fn run(inputs: Inputs) {
    // So that the first report is not of directories that this kubelet does not use.
    let mut kubelet = inputs.kubelet.subscribe();
    timeout(FACTS_WAIT, kubelet.wait_for(Option::is_some)).await.ok();
    let (mut runtimes, mut lines) = (inputs.runtime_directories.subscribe(), inputs.kernel_log.lines());
    let mut storage = Storage::new(uptime());
    let mut reporter = Reporter::new(ConditionType::NodeStorageHealthy, inputs.reports);
    // Readings and probes run outside the loop: a dead disk must not stop reports.
    let (mut readings, mut probes) = (JoinSet::new(), JoinSet::<(PathBuf, _)>::new());
    // How far the probes have come.
    let mut progress = BTreeMap::<PathBuf, watch::Receiver<Progress>>::new();
    loop {
        let due = storage.next_reading.min(reporter.due_at(uptime()));
        tokio::select! {
            Some(Ok(Reading { table, kubelet_runs, overdue })) = readings.join_next() => {
                storage.observe(table.as_deref().map_err(String::as_str), kubelet_runs, overdue, uptime());
            }
            Some(Ok((path, probe))) = probes.join_next() => {
                progress.remove(&path);
                storage.ended(&path, probe, uptime());
            }
            Ok(()) = kubelet.changed() => {}
            Ok(()) = runtimes.changed() => {}
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => if !line.is_ok_and(|line| storage.prompt(&line, uptime())) { continue },
            () = sleep(due.saturating_sub(uptime())), if readings.is_empty() => {}
        }
        let now = uptime();
        let root_dir = kubelet.borrow().as_ref().and_then(|facts| facts.root_dir.clone());
        let given = &inputs.settings.storage.runtime_paths;
        let runtimes = if given.is_empty() { runtimes.borrow_and_update().clone() } else { given.clone() };
        storage.set_directories(root_dir.as_deref(), &runtimes);
        if now >= storage.next_reading && readings.is_empty() {
            let pid = inputs.watched.borrow().pid;
            let progress = |path: &PathBuf| progress.get(path).map(|progress| *progress.borrow());
            let overdue = storage.overdue(now).into_iter();
            let overdue = overdue.filter_map(|(path, mount)| Some((progress(&path)?, path, mount))).collect();
            readings.spawn_blocking(move || read(pid, overdue));
        }
        while let Some(path) = storage.start(now) {
            let (sender, receiver) = watch::channel(Progress::default());
            progress.insert(path.clone(), receiver);
            probes.spawn(async move {
                let probe = disk::probe(path.clone(), sender).await;
                (path, probe)
            });
        }
        // A reading takes a moment. While one hangs, nothing is reported, and the engine reports `MonitorSilent`.
        if readings.is_empty() && !reporter.report(storage.view(now), now).await {
            return;
        }
    }
}

/// Reads the kubelet's mounts, because in the agent's own sandbox all are read-only, and the state of overdue probes.
fn read(kubelet: Option<i32>, overdue: Vec<(Progress, PathBuf, Option<Mount>)>) -> Reading {
    let kubelets = kubelet.and_then(|pid| mounts::read(pid).ok());
    let kubelet_runs = kubelets.is_some();
    let wait = |progress: Progress, mount: Option<Mount>| {
        let (step, switches) = (progress.step?, disk::uninterruptible_wait(progress.pid?)?);
        Some(Wait { step, switches, requests: mount.as_ref().and_then(disk::requests) })
    };
    let overdue = overdue.into_iter().map(|(progress, path, mount)| (path, wait(progress, mount))).collect();
    Reading { table: kubelets.map_or_else(|| mounts::read(1), Ok), kubelet_runs, overdue }
}
