//! What is known of the storage, from what was observed. Pure: the time is handed in.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::place::{Last, Owner, Place, Verdict, Wait};
use crate::{
    condition::{ConditionType, Finding, Reason, Uptime, View},
    host::{
        disk::Probe,
        mounts::{self, Mount},
    },
};

/// Time between the starts of two probes of a healthy file system, and between two looks at the mounts.
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// The same when something may be wrong.
const PROBE_SOON: Duration = Duration::from_secs(5);
/// The same of a folder that does not exist, or whose file system is probed for another one.
const LOOK_FOR_EVERY: Duration = Duration::from_mins(10);
/// Where a kubelet without --root-dir keeps its files: of kubeadm and most distributions, `MicroK8s`, k0s.
const KUBELET_FOLDERS: [&str; 3] =
    ["/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/k0s/kubelet"];

/// The storage as far as it is known.
#[derive(Debug)]
pub(super) struct Storage {
    /// The kubelet's folders first.
    places: Vec<Place>,
    /// Where a container runtime may keep its files.
    runtime_paths: Vec<PathBuf>,
    kubelet_runs: bool,
    next_look: Uptime,
}

impl Storage {
    pub fn new(runtime_paths: &[PathBuf], now: Uptime) -> Self {
        let runtime_paths = runtime_paths.to_vec();
        let mut storage = Self { places: Vec::new(), runtime_paths, kubelet_runs: false, next_look: now };
        storage.set_root_dir(None);
        storage
    }

    /// Takes in the kubelet's --root-dir.
    pub fn set_root_dir(&mut self, root_dir: Option<&Path>) {
        let kubelets = root_dir.map_or_else(|| KUBELET_FOLDERS.map(PathBuf::from).to_vec(), |path| vec![path.into()]);
        let kubelets = kubelets.into_iter().map(|path| (path, Owner::Kubelet));
        let runtimes = self.runtime_paths.iter().map(|path| (path.clone(), Owner::ContainerRuntime));
        let mut known = std::mem::take(&mut self.places);
        for (path, owner) in kubelets.chain(runtimes) {
            if self.places.iter().any(|place| place.path == path) {
                continue;
            }
            let index = known.iter().position(|place| place.path == path);
            self.places.push(index.map_or_else(|| Place::new(path, owner), |index| known.swap_remove(index)));
        }
    }

    /// When the mounts are to be read and the probes looked at.
    pub const fn next_look(&self) -> Uptime {
        self.next_look
    }

    /// The folders whose probe has run for too long, and their mounts.
    pub fn overdue(&self, now: Uptime) -> Vec<(PathBuf, Option<Mount>)> {
        let overdue = self.places.iter().filter(|place| place.is_overdue(now));
        overdue.map(|place| (place.path.clone(), place.mount.clone())).collect()
    }

    /// Takes in the kubelet's table of mounts, or that of PID 1 while no kubelet runs, and what the overdue probes wait for.
    pub fn looked(
        &mut self,
        table: Result<&str, &str>,
        kubelet_runs: bool,
        overdue: Vec<(PathBuf, Option<Wait>)>,
        now: Uptime,
    ) {
        self.kubelet_runs = kubelet_runs;
        for (path, wait) in overdue {
            if let Some(place) = self.places.iter_mut().find(|place| place.path == path) {
                place.overdue(wait, now);
            }
        }
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            match table {
                Ok(table) => place.mounted(mounts::find(table, &place.real_path)),
                Err(error) => place.impossible(error.to_owned(), now),
            }
            let is_rare = self.places[index].last == Last::Absent || self.is_duplicate(index);
            let place = &mut self.places[index];
            let is_due = place.last == Last::NotProbed || !is_rare || now >= place.probed_at + LOOK_FOR_EVERY;
            place.is_wanted |= is_due && table.is_ok();
        }
        self.next_look = now + self.interval(now);
    }

    /// The time until the next look.
    fn interval(&self, now: Uptime) -> Duration {
        let is_healthy = |place: &Place| matches!(place.verdict(self.kubelet_runs, now), Verdict::Healthy(_));
        let is_calm = self.distinct().all(|place| place.running.is_none() && is_healthy(place));
        if is_calm { PROBE_EVERY } else { PROBE_SOON }
    }

    /// The next folder to probe, if one is due: one a file system at a time.
    pub fn start(&mut self, now: Uptime) -> Option<PathBuf> {
        let device = |place: &Place| place.mount.as_ref().map(|mount| mount.device.clone());
        let busy: Vec<_> = self.places.iter().filter(|place| place.running.is_some()).map(device).collect();
        let is_due = |place: &&mut Place| place.is_wanted && place.running.is_none() && !busy.contains(&device(place));
        let place = self.places.iter_mut().find(is_due)?;
        place.started(now);
        Some(place.path.clone())
    }

    /// A probe has ended.
    pub fn ended(&mut self, path: &Path, probe: Result<Probe, String>, now: Uptime) {
        if let Some(place) = self.places.iter_mut().find(|place| place.path == path) {
            place.ended(probe, now);
        }
        self.next_look = self.next_look.min(now + self.interval(now));
    }

    /// What to report now; none while nothing is known yet.
    pub fn view(&self, now: Uptime) -> Option<View> {
        let cannot_tell = |text: String| Some(View::CannotTell(Finding::new(Reason::StorageProbeFailed, text)));
        let (mut healthy, mut findings, mut unclear, mut unknown) = (Vec::new(), Vec::new(), None, None);
        let mut is_complete = true;
        for place in self.distinct() {
            match place.verdict(self.kubelet_runs, now) {
                Verdict::NotProbed => is_complete = false,
                Verdict::Healthy(text) => healthy.push(text),
                Verdict::Found(finding) => findings.push(finding),
                Verdict::Unclear(text) => unclear = unclear.or(Some(text)),
                Verdict::CannotTell(text) => unknown = unknown.or(Some(text)),
            }
        }
        findings.sort_by_key(|finding| finding.reason);
        let problem = ConditionType::NodeStorageHealthy.problem_status();
        if findings.iter().any(|finding| finding.status == problem) {
            return Some(View::Seen { healthy: String::new(), findings });
        }
        // A warning of one file system must not end the problem of another that cannot be probed.
        match (unknown, unclear) {
            (Some(text), _) => cannot_tell(text),
            (None, Some(text)) => Some(View::Unchanged(Finding::new(Reason::StorageProbeFailed, text))),
            (None, None) if !is_complete => None,
            (None, None) if healthy.is_empty() && findings.is_empty() => {
                cannot_tell("there is no folder of a kubelet or a container runtime".into())
            }
            (None, None) => {
                let is_runtimes = |place: &Place| place.owner == Owner::ContainerRuntime && place.last != Last::Absent;
                if !self.places.iter().any(is_runtimes) {
                    healthy.push("no directory of a container runtime was found ([storage] runtime_paths)".into());
                }
                Some(View::Seen { healthy: healthy.join("; "), findings })
            }
        }
    }

    /// The folders that there are, one a file system.
    fn distinct(&self) -> impl Iterator<Item = &Place> {
        let is_distinct = |index: usize| self.places[index].last != Last::Absent && !self.is_duplicate(index);
        (0..self.places.len()).filter(move |index| is_distinct(*index)).map(|index| &self.places[index])
    }

    /// Whether an earlier folder is on the same file system. One that is mounted read-only at one place alone counts as two.
    fn is_duplicate(&self, index: usize) -> bool {
        let mount = &self.places[index].mount;
        let is_same = |earlier: &Place| earlier.last != Last::Absent && earlier.mount == *mount;
        mount.is_some() && self.places[..index].iter().any(is_same)
    }
}
