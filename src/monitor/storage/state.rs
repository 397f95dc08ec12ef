//! What is known of the storage, from what was observed. Does no I/O and reads no clock: the caller passes the time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::{Directory, LastProbe, Owner, PROBE_LIMIT, Wait, probe_failed};
use crate::condition::{ConditionType, Uptime, View};
use crate::host::clock::next_multiple;
use crate::host::disk::Probe;
use crate::host::kmsg::Line;
use crate::host::mounts::{self, Mount};

/// Time between the starts of two probes of a healthy file system, and between two readings of the mounts. Each probe starts a child.
const PROBE_EVERY: Duration = Duration::from_mins(1);
/// The same when something may be wrong.
const PROBE_SOON: Duration = Duration::from_secs(5);
/// The least time between two readings for which lines of the kernel's log are the reason.
const PROMPTED_EVERY: Duration = Duration::from_secs(15);
/// What lines about a file system or a disk contain. Which one they are about is left to the probe.
const OF_STORAGE: [&str; 10] =
    ["XFS", "EXT4-fs", "JBD2", "journal", "BTRFS", "I/O", "error, dev ", "nvme", "device-mapper", "md/raid"];
/// The same for a directory that does not exist, or whose file system is probed for another directory.
const SEARCH_EVERY: Duration = Duration::from_mins(10);
/// Where a kubelet without --root-dir keeps its files: of kubeadm and most distributions, `MicroK8s`, k0s.
const KUBELET_DIRECTORIES: [&str; 3] =
    ["/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/k0s/kubelet"];
/// The state of containers and their logs. Without space there, no container starts, and the kubelet's eviction watches neither.
const NEEDED_BY_CONTAINERS: [&str; 2] = ["/run", "/var/log/pods"];

/// The kubelet's table of mounts, or that of PID 1 while no kubelet runs, and what the overdue probes wait for.
#[derive(Debug)]
pub(super) struct Reading {
    pub table: Result<String, String>,
    pub kubelet_runs: bool,
    pub overdue: Vec<(PathBuf, Option<Wait>)>,
}

#[derive(Debug)]
pub(super) struct Storage {
    /// The kubelet's directories first.
    directories: Vec<Directory>,
    kubelet_runs: bool,
    /// When the mounts and the state of the probes are read.
    pub next_reading: Uptime,
    read_at: Option<Uptime>,
    /// When they are to be read because of a line of the kernel's log.
    prompted: Option<Uptime>,
}

impl Storage {
    pub fn new(now: Uptime) -> Self {
        Self { directories: Vec::new(), kubelet_runs: false, next_reading: now, read_at: None, prompted: None }
    }

    /// Takes in the kubelet's --root-dir, and where the container runtime keeps its files.
    pub fn set_directories(&mut self, root_dir: Option<&Path>, runtimes: &[PathBuf]) {
        let kubelets =
            root_dir.map_or_else(|| KUBELET_DIRECTORIES.map(PathBuf::from).to_vec(), |path| vec![path.into()]);
        let kubelets = kubelets.into_iter().map(|path| (path, Owner::Kubelet));
        let runtimes = runtimes.iter().map(|path| (path.clone(), Owner::ContainerRuntime));
        let mut known = std::mem::take(&mut self.directories);
        let others = NEEDED_BY_CONTAINERS.map(|path| (path.into(), Owner::Both));
        for (path, owner) in kubelets.chain(runtimes).chain(others) {
            if self.directories.iter().any(|directory| directory.path == path) {
                continue;
            }
            let index = known.iter().position(|directory| directory.path == path);
            if index.is_none() {
                self.next_reading = Uptime::ZERO;
            }
            self.directories.push(index.map_or_else(|| Directory::new(path, owner), |index| known.swap_remove(index)));
        }
    }

    /// Takes in a line of the kernel's log: one about a file system or a disk is a reason to probe soon. Whether it is one.
    pub fn prompt(&mut self, line: &Line, now: Uptime) -> bool {
        let is_prompt = !line.is_old && line.level <= 4 && OF_STORAGE.iter().any(|words| line.text.contains(words));
        let at = self.read_at.map_or(now, |at| now.max(at + PROMPTED_EVERY));
        if is_prompt && self.prompted.is_none() {
            (self.prompted, self.next_reading) = (Some(at), self.next_reading.min(at));
        }
        is_prompt
    }

    /// The directories whose probe has run for too long, and their mounts.
    pub fn overdue(&self, now: Uptime) -> Vec<(PathBuf, Option<Mount>)> {
        let overdue = self.directories.iter().filter(|directory| directory.is_overdue(now));
        overdue.map(|directory| (directory.path.clone(), directory.mount.clone())).collect()
    }

    pub fn observe(&mut self, Reading { table, kubelet_runs, overdue }: Reading, now: Uptime) {
        (self.kubelet_runs, self.read_at) = (kubelet_runs, Some(now));
        // A line that came while the mounts were read may be younger than what was read.
        self.prompted = self.prompted.filter(|at| now < *at);
        for (path, wait) in overdue {
            if let Some(directory) = self.directories.iter_mut().find(|directory| directory.path == path) {
                directory.overdue(wait, now);
            }
        }
        for index in 0..self.directories.len() {
            let directory = &mut self.directories[index];
            match &table {
                Ok(table) => directory.mounted(mounts::find(table, &directory.real_path)),
                Err(error) => directory.impossible(error.clone(), now),
            }
            let is_distinct = self.is_distinct(index);
            let directory = &mut self.directories[index];
            let is_due =
                directory.last == LastProbe::NotProbed || is_distinct || now >= directory.probed_at + SEARCH_EVERY;
            directory.is_wanted |= is_due && table.is_ok();
        }
        self.next_reading = if self.is_calm(now) { self.next_calm(now) } else { now + PROBE_SOON };
    }

    /// Whether all is healthy and no probe is under way.
    fn is_calm(&self, now: Uptime) -> bool {
        self.distinct().all(|directory| {
            let view = directory.view(self.kubelet_runs, now);
            directory.running.is_none() && matches!(view, Some(View::Seen { findings, .. }) if findings.is_empty())
        })
    }

    /// The next directory to probe, if one is due: one a file system at a time.
    pub fn start(&mut self, now: Uptime) -> Option<PathBuf> {
        let device = |directory: &Directory| directory.mount.as_ref().map(|mount| mount.device.clone());
        let busy: Vec<_> =
            self.directories.iter().filter(|directory| directory.running.is_some()).map(device).collect();
        let is_due = |directory: &&mut Directory| {
            directory.is_wanted && directory.running.is_none() && !busy.contains(&device(directory))
        };
        let directory = self.directories.iter_mut().find(is_due)?;
        directory.started(now);
        let path = directory.path.clone();
        self.next_reading = self.next_reading.min(now + PROBE_LIMIT);
        Some(path)
    }

    pub fn ended(&mut self, path: &Path, probe: Result<Probe, String>, now: Uptime) {
        if let Some(directory) = self.directories.iter_mut().find(|directory| directory.path == path) {
            directory.ended(probe, now);
        }
        let soon = self.next_reading.min(now + PROBE_SOON);
        self.next_reading = if self.is_calm(now) { self.next_calm(now) } else { soon };
    }

    fn next_calm(&self, now: Uptime) -> Uptime {
        self.prompted.into_iter().fold(next_multiple(now, PROBE_EVERY), Uptime::min)
    }

    /// What to report now; none while nothing is known yet.
    pub fn view(&self, now: Uptime) -> Option<View> {
        let (mut healthy, mut findings, mut unclear, mut unknown) = (Vec::new(), Vec::new(), None, None);
        let mut is_complete = true;
        for directory in self.distinct() {
            match directory.view(self.kubelet_runs, now) {
                None => is_complete = false,
                Some(View::Seen { healthy: text, findings: found }) if found.is_empty() => healthy.push(text),
                Some(View::Seen { findings: found, .. }) => findings.extend(found),
                Some(view @ View::Unknown(_)) => unknown = unknown.or(Some(view)),
                Some(view) => unclear = unclear.or(Some(view)),
            }
        }
        findings.sort_by_key(|finding| finding.reason);
        let problem = ConditionType::NodeStorageHealthy.problem_status();
        if findings.iter().any(|finding| finding.status == problem) {
            return Some(View::Seen { healthy: String::new(), findings });
        }
        // A warning of one file system must not end the problem of another that cannot be probed.
        if let Some(view) = unknown.or(unclear) {
            return Some(view);
        }
        if !is_complete {
            return None;
        }
        let is_there = |directory: &Directory| directory.owner != Owner::Both && directory.last != LastProbe::Absent;
        if findings.is_empty() && !self.directories.iter().any(is_there) {
            return Some(probe_failed("no directory of a kubelet or a container runtime exists".into()));
        }
        let is_runtimes =
            |directory: &Directory| directory.owner == Owner::ContainerRuntime && directory.last != LastProbe::Absent;
        if !self.directories.iter().any(is_runtimes) {
            healthy.push("no directory of a container runtime was found ([storage] runtime_paths)".into());
        }
        Some(View::Seen { healthy: healthy.join("; "), findings })
    }

    /// The directories that there are, one a file system.
    fn distinct(&self) -> impl Iterator<Item = &Directory> {
        (0..self.directories.len()).filter(|index| self.is_distinct(*index)).map(|index| &self.directories[index])
    }

    /// Whether it is there, and the first on its file system. One that is mounted read-only at one path alone counts as two.
    fn is_distinct(&self, index: usize) -> bool {
        let Directory { last, mount, .. } = &self.directories[index];
        let is_same = |earlier: &Directory| earlier.last != LastProbe::Absent && earlier.mount == *mount;
        *last != LastProbe::Absent && (mount.is_none() || !self.directories[..index].iter().any(is_same))
    }
}
