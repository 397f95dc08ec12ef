//! Looks for what a node or a run may have left behind: processes, mounts, namespaces.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Result, ensure};
use procfs::process::{Process, all_processes};

/// Namespaces other than our own, as /proc names them (`net:[4026532281]`).
#[derive(Clone, Debug)]
pub struct Namespaces(BTreeSet<String>);

impl Namespaces {
    /// Those of a process (by its pid as we see it) and of all its descendants.
    pub fn of_tree(pid: i32) -> Result<Self> {
        let own = of(Process::myself()?.pid());
        let all: BTreeSet<String> = tree(pid)?.into_iter().flat_map(of).collect();
        Ok(Self(all.difference(&own).cloned().collect()))
    }

    /// The names of the processes that live in one of them. A zombie does not count: its parent has yet to reap it.
    pub fn processes(&self) -> Result<Vec<String>> {
        let inside = all_processes()?.flatten().filter(|process| !of(process.pid()).is_disjoint(&self.0));
        let stats = inside.filter_map(|process| process.stat().ok());
        Ok(stats.filter(|stat| stat.state != 'Z').map(|stat| stat.comm).collect())
    }

    /// Fails if a process or a mount keeps one of them alive.
    pub fn ensure_gone(&self) -> Result<()> {
        let left = self.processes()?;
        ensure!(left.is_empty(), "left running: {left:?}");
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let held = self.0.iter().find(|name| mounts.contains(name.as_str()));
        ensure!(held.is_none(), "a mount holds {held:?}");
        ensure!(!mounts.contains("/nodes/"), "a node's mount is left: {mounts}");
        Ok(())
    }
}

/// The mount, network and PID namespaces of a process; none, if it is gone.
fn of(pid: i32) -> BTreeSet<String> {
    let links = ["mnt", "net", "pid"].map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    links.into_iter().flatten().map(|link| link.to_string_lossy().into_owned()).collect()
}

/// A process and its descendants.
fn tree(root: i32) -> Result<BTreeSet<i32>> {
    let mut pids = BTreeSet::from([root]);
    loop {
        let before = pids.len();
        for process in all_processes()?.flatten() {
            if process.stat().is_ok_and(|stat| pids.contains(&stat.ppid)) {
                pids.insert(process.pid());
            }
        }
        if pids.len() == before {
            return Ok(pids);
        }
    }
}
