//! The file systems of the kubelet and the container runtime: read-only, full, failing or hanging.
//!
//! This file waits and reads. What is seen goes into [`Storage`], whose view is reported.

mod place;
mod state;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{place::Wait, state::Storage};
use super::Inputs;
use crate::{
    condition::ConditionType,
    host::{
        clock::uptime,
        disk::{self, Probe, Progress},
        mounts::{self, Mount},
    },
};

/// At the start the kubelet's --root-dir is waited for this long. Without D-Bus it stays unknown.
const FACTS_WAIT: Duration = Duration::from_secs(2);

/// What runs beside the loop, and comes back to it.
#[derive(Debug)]
enum Done {
    Looked { table: Result<String, String>, kubelet_runs: bool, overdue: Vec<(PathBuf, Option<Wait>)> },
    Probed(PathBuf, Result<Probe, String>),
}

/// What the loop holds.
struct Loop {
    inputs: Inputs,
    storage: Storage,
    work: JoinSet<Done>,
    is_looking: bool,
    /// How far the probes have come, by folder.
    running: BTreeMap<PathBuf, watch::Receiver<Progress>>,
}

/// Watches until nobody takes reports.
pub async fn run(mut inputs: Inputs) {
    // So that the first report is not of folders that this kubelet does not use.
    timeout(FACTS_WAIT, inputs.kubelet.wait_for(Option::is_some)).await.ok();
    let storage = Storage::new(&inputs.settings.storage.runtime_paths, uptime());
    let mut monitor = Loop { inputs, storage, work: JoinSet::new(), is_looking: false, running: BTreeMap::new() };
    loop {
        let (is_looking, next_look) = (monitor.is_looking, monitor.storage.next_look());
        let wait = sleep(next_look.saturating_sub(uptime()));
        let done = tokio::select! {
            Some(done) = monitor.work.join_next() => done.ok(),
            Ok(()) = monitor.inputs.kubelet.changed() => None,
            () = wait, if !is_looking => None,
        };
        monitor.take_in(done);
        monitor.start_work();
        if !monitor.report().await {
            return;
        }
    }
}

impl Loop {
    fn take_in(&mut self, done: Option<Done>) {
        let now = uptime();
        match done {
            None => {}
            Some(Done::Looked { table, kubelet_runs, overdue }) => {
                self.is_looking = false;
                self.storage.looked(table.as_deref().map_err(String::as_str), kubelet_runs, overdue, now);
            }
            Some(Done::Probed(path, probe)) => {
                self.running.remove(&path);
                self.storage.ended(&path, probe, now);
            }
        }
        let root_dir = self.inputs.kubelet.borrow_and_update().as_ref().and_then(|facts| facts.root_dir.clone());
        self.storage.set_root_dir(root_dir.as_deref());
    }

    /// Starts what is due beside the loop.
    fn start_work(&mut self) {
        let now = uptime();
        if now >= self.storage.next_look() && !std::mem::replace(&mut self.is_looking, true) {
            let kubelet = self.inputs.watched.borrow().pid;
            let progress = |path: &PathBuf| self.running.get(path).map(|progress| *progress.borrow());
            let overdue = self.storage.overdue(now).into_iter();
            let overdue = overdue.filter_map(|(path, mount)| Some((progress(&path)?, path, mount))).collect();
            self.work.spawn_blocking(move || look(kubelet, overdue));
        }
        while let Some(path) = self.storage.start(now) {
            let (progress, receiver) = watch::channel(Progress::default());
            self.running.insert(path.clone(), receiver);
            self.work.spawn(async move {
                let probe = disk::probe(path.clone(), progress).await;
                Done::Probed(path, probe)
            });
        }
    }

    /// Reports the present view; `false` when nobody takes reports.
    async fn report(&self) -> bool {
        // A look takes a moment. While one does not end, nothing is known, and silence says so.
        let Some(view) = self.storage.view(uptime()).filter(|_| !self.is_looking) else { return true };
        self.inputs.reports.send((ConditionType::NodeStorageHealthy, view)).await.is_ok()
    }
}

/// Reads the mounts as the kubelet sees them, because in the agent's own sandbox all are read-only, and looks at overdue probes.
fn look(kubelet: Option<i32>, overdue: Vec<(Progress, PathBuf, Option<Mount>)>) -> Done {
    let kubelets = kubelet.and_then(|pid| mounts::read(pid).ok());
    let kubelet_runs = kubelets.is_some();
    let wait = |progress: Progress, mount: Option<Mount>| {
        let (step, switches) = (progress.step?, disk::uninterruptible_wait(progress.pid?)?);
        Some(Wait { step, switches, requests: mount.as_ref().and_then(disk::requests) })
    };
    let overdue = overdue.into_iter().map(|(progress, path, mount)| (path, wait(progress, mount))).collect();
    Done::Looked { table: kubelets.map_or_else(|| mounts::read(1), Ok), kubelet_runs, overdue }
}
