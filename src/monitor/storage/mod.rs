//! The file systems of the kubelet and the container runtime: read-only, full, failing or hanging.
//!
//! This file waits and reads. What is seen goes into [`Storage`], whose view is reported.

mod directory;
mod state;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{directory::Wait, state::Storage};
use super::{Inputs, Reporter};
use crate::{
    condition::{ConditionType, Uptime},
    host::{
        clock::uptime,
        disk::{self, Probe, Progress},
        mounts::{self, Mount},
    },
};

/// At the start the kubelet's --root-dir is waited for this long. Without D-Bus it stays unknown.
const FACTS_WAIT: Duration = Duration::from_secs(2);

/// The table of mounts, whether it is the kubelet's, and what the overdue probes wait for.
struct Looked {
    table: Result<String, String>,
    kubelet_runs: bool,
    overdue: Vec<(PathBuf, Option<Wait>)>,
}

/// Looks and probes run beside the loop: a dead disk must not stop reports.
struct Loop {
    inputs: Inputs,
    reporter: Reporter,
    storage: Storage,
    looks: JoinSet<Looked>,
    probes: JoinSet<(PathBuf, Result<Probe, String>)>,
    /// How far the probes have come.
    progress: BTreeMap<PathBuf, watch::Receiver<Progress>>,
}

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    // So that the first report is not of directories that this kubelet does not use.
    let mut kubelet = inputs.kubelet.subscribe();
    timeout(FACTS_WAIT, kubelet.wait_for(Option::is_some)).await.ok();
    let storage = Storage::new(&inputs.settings.storage.runtime_paths, uptime());
    let (looks, probes, progress) = (JoinSet::new(), JoinSet::new(), BTreeMap::new());
    let reporter = Reporter::new(ConditionType::NodeStorageHealthy, inputs.reports.clone());
    let mut monitor = Loop { inputs, reporter, storage, looks, probes, progress };
    loop {
        let due = monitor.storage.next_look.min(monitor.reporter.due_at(uptime()));
        let wait = sleep(due.saturating_sub(uptime()));
        tokio::select! {
            Some(Ok(Looked { table, kubelet_runs, overdue })) = monitor.looks.join_next() => {
                monitor.storage.looked(table.as_deref().map_err(String::as_str), kubelet_runs, overdue, uptime());
            }
            Some(Ok((path, probe))) = monitor.probes.join_next() => {
                monitor.progress.remove(&path);
                monitor.storage.ended(&path, probe, uptime());
            }
            Ok(()) = kubelet.changed() => {}
            () = wait, if monitor.looks.is_empty() => {}
        }
        monitor.start_work(uptime());
        if !monitor.report().await {
            return;
        }
    }
}

impl Loop {
    fn start_work(&mut self, now: Uptime) {
        let root_dir = self.inputs.kubelet.borrow().as_ref().and_then(|facts| facts.root_dir.clone());
        self.storage.set_root_dir(root_dir.as_deref());
        if now >= self.storage.next_look && self.looks.is_empty() {
            let kubelet = self.inputs.watched.borrow().pid;
            let progress = |path: &PathBuf| self.progress.get(path).map(|progress| *progress.borrow());
            let overdue = self.storage.overdue(now).into_iter();
            let overdue = overdue.filter_map(|(path, mount)| Some((progress(&path)?, path, mount))).collect();
            self.looks.spawn_blocking(move || look(kubelet, overdue));
        }
        while let Some(path) = self.storage.start(now) {
            let (progress, receiver) = watch::channel(Progress::default());
            self.progress.insert(path.clone(), receiver);
            self.probes.spawn(async move {
                let probe = disk::probe(path.clone(), progress).await;
                (path, probe)
            });
        }
    }

    /// Reports the present view; `false` when nobody takes reports.
    async fn report(&mut self) -> bool {
        // A look takes a moment. While one does not end, nothing is known, and silence says so.
        if !self.looks.is_empty() {
            return true;
        }
        self.reporter.report(self.storage.view(uptime()), uptime()).await
    }
}

/// Reads the mounts as the kubelet sees them, because in the agent's own sandbox all are read-only, and looks at overdue probes.
fn look(kubelet: Option<i32>, overdue: Vec<(Progress, PathBuf, Option<Mount>)>) -> Looked {
    let kubelets = kubelet.and_then(|pid| mounts::read(pid).ok());
    let kubelet_runs = kubelets.is_some();
    let wait = |progress: Progress, mount: Option<Mount>| {
        let (step, switches) = (progress.step?, disk::uninterruptible_wait(progress.pid?)?);
        Some(Wait { step, switches, requests: mount.as_ref().and_then(disk::requests) })
    };
    let overdue = overdue.into_iter().map(|(progress, path, mount)| (path, wait(progress, mount))).collect();
    Looked { table: kubelets.map_or_else(|| mounts::read(1), Ok), kubelet_runs, overdue }
}
