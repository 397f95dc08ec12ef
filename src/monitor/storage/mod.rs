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
    condition::ConditionType,
    host::{
        clock::uptime,
        disk::{self, Progress},
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

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    // So that the first report is not of directories that this kubelet does not use.
    let mut kubelet = inputs.kubelet.subscribe();
    timeout(FACTS_WAIT, kubelet.wait_for(Option::is_some)).await.ok();
    let mut storage = Storage::new(&inputs.settings.storage.runtime_paths, uptime());
    let mut reporter = Reporter::new(ConditionType::NodeStorageHealthy, inputs.reports);
    // Looks and probes run beside the loop: a dead disk must not stop reports.
    let (mut looks, mut probes) = (JoinSet::new(), JoinSet::<(PathBuf, _)>::new());
    // How far the probes have come.
    let mut progress = BTreeMap::<PathBuf, watch::Receiver<Progress>>::new();
    loop {
        let due = storage.next_look.min(reporter.due_at(uptime()));
        tokio::select! {
            Some(Ok(Looked { table, kubelet_runs, overdue })) = looks.join_next() => {
                storage.looked(table.as_deref().map_err(String::as_str), kubelet_runs, overdue, uptime());
            }
            Some(Ok((path, probe))) = probes.join_next() => {
                progress.remove(&path);
                storage.ended(&path, probe, uptime());
            }
            Ok(()) = kubelet.changed() => {}
            () = sleep(due.saturating_sub(uptime())), if looks.is_empty() => {}
        }
        let now = uptime();
        let root_dir = kubelet.borrow().as_ref().and_then(|facts| facts.root_dir.clone());
        storage.set_root_dir(root_dir.as_deref());
        if now >= storage.next_look && looks.is_empty() {
            let pid = inputs.watched.borrow().pid;
            let progress = |path: &PathBuf| progress.get(path).map(|progress| *progress.borrow());
            let overdue = storage.overdue(now).into_iter();
            let overdue = overdue.filter_map(|(path, mount)| Some((progress(&path)?, path, mount))).collect();
            looks.spawn_blocking(move || look(pid, overdue));
        }
        while let Some(path) = storage.start(now) {
            let (sender, receiver) = watch::channel(Progress::default());
            progress.insert(path.clone(), receiver);
            probes.spawn(async move {
                let probe = disk::probe(path.clone(), sender).await;
                (path, probe)
            });
        }
        // A look takes a moment. While one does not end, nothing is known, and silence says so.
        if looks.is_empty() && !reporter.report(storage.view(now), now).await {
            return;
        }
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
