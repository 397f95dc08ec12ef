//! Looking for the kubelet's process: in the cgroup of its unit, or in a pid file.

use std::path::{Path, PathBuf};

use procfs::process::Process as ProcProcess;

use super::{COMM, MAX_BYTES, since_boot};
use crate::{
    checks::kubelet::{Found, Process},
    host::{files::Root, trusted},
};

/// Programs of which the kubelet is a part. (RKE2 and k0s are none: theirs is a child, which may be away for a moment.)
const WITH_KUBELET_INSIDE: &[&str] = &["k3s-server", "k3s-agent", "k3s", "kubelite", "hyperkube"];
/// Names that a pid file may point to: the kubelet, or a program that carries it inside.
const COMM_PREFIXES: &[&str] = &["kubelet", "kubelite", "k3s", "k0s", "rke2", "hyperkube"];

/// Where to look for the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// In the cgroup of its unit: `/system.slice/kubelet.service`.
    ControlGroup(String),
    /// In a pid file, for a kubelet outside systemd.
    PidFile(PathBuf),
}

/// Looks for the kubelet's process.
pub fn find_kubelet(root: &Root, place: &Where) -> Found {
    match place {
        Where::PidFile(path) => {
            let found = by_pid_file(root, path);
            found.map_or_else(Found::None, |candidate| Found::One(candidate.process))
        }
        Where::ControlGroup(group) => find_in_cgroup(root, group),
    }
}

/// The process that the pid file names, or why it names no kubelet.
fn by_pid_file(root: &Root, path: &Path) -> Result<Candidate, String> {
    let shown = path.display();
    let text = root
        .read_text(path, MAX_BYTES)
        .map_err(|e| format!("no kubelet: {e}"))?;
    let Ok(pid) = text.trim().parse::<i32>() else {
        return Err(format!("no kubelet: {shown} holds no pid"));
    };
    let Some(candidate) = Candidate::read(root, pid) else {
        return Err(format!(
            "no kubelet: {shown} says pid {pid}, which does not live"
        ));
    };
    // A pid file outlives its process, and the pid is given to another one.
    if !COMM_PREFIXES
        .iter()
        .any(|prefix| candidate.comm.starts_with(prefix))
    {
        return Err(format!(
            "no kubelet: {shown} says pid {pid}, which is `{}`",
            candidate.comm
        ));
    }
    Ok(candidate)
}

fn find_in_cgroup(root: &Root, group: &str) -> Found {
    let Some(pids) = cgroup_pids(root, group) else {
        return Found::None(format!("no kubelet: the cgroup {group} does not exist"));
    };
    let hosts: Vec<Candidate> = pids
        .into_iter()
        .filter_map(|pid| Candidate::read(root, pid))
        .filter(Candidate::is_of_host)
        .collect();
    let named = |is_it: fn(&str) -> bool| -> Vec<Process> {
        let those = hosts.iter().filter(|candidate| is_it(&candidate.comm));
        those.map(|candidate| candidate.process.clone()).collect()
    };
    let mut found = named(|comm| comm == COMM);
    if found.is_empty() {
        found = named(|comm| WITH_KUBELET_INSIDE.contains(&comm));
    }
    match (found.pop(), found.is_empty()) {
        (None, _) => Found::None(format!(
            "no kubelet: no process named {COMM} in the cgroup {group}"
        )),
        (Some(one), true) => Found::One(one),
        (Some(last), false) => Found::Many(
            found
                .iter()
                .map(|process| process.pid)
                .chain([last.pid])
                .collect(),
        ),
    }
}

/// The processes of a cgroup, on cgroup v2, v1 and both together.
fn cgroup_pids(root: &Root, group: &str) -> Option<Vec<i32>> {
    ["", "systemd", "unified"].iter().find_map(|hierarchy| {
        let path = Path::new("/sys/fs/cgroup")
            .join(hierarchy)
            .join(group.trim_start_matches('/'))
            .join("cgroup.procs");
        let text = root.read_text(path, MAX_BYTES).ok()?;
        Some(text.lines().filter_map(|line| line.parse().ok()).collect())
    })
}

/// Slices in which no service of the host's is: pods, users' sessions, virtual machines and containers.
const FOREIGN_SLICES: &[&str] = &[PODS, "user", "machine"];
const PODS: &str = "kubepods";
/// Where containers and sessions are if they are in no such slice: scopes of systemd's, folders of engines without systemd.
const FOREIGN_GROUPS: &[&str] = &[PODS, "docker", "libpod", "lxc", "podman"];
/// Slices within slices are few; these bounds are never met.
const MAX_SLICE_DEPTH: usize = 6;
const MAX_SLICES: usize = 256;

/// The cgroups of the service `unit`, whichever slice it is in: a service of the system's is in slices alone, so nothing else
/// is gone into. Nobody is asked, and a process of another owner cannot move itself there.
fn groups_of(root: &Root, unit: &str) -> Vec<String> {
    let mut found = Vec::new();
    for hierarchy in ["", "systemd", "unified"] {
        let base = Path::new("/sys/fs/cgroup").join(hierarchy);
        let mut slices = vec![(PathBuf::new(), 0)];
        let mut looked_at = 0;
        while let Some((slice, depth)) = slices.pop() {
            looked_at += 1;
            let Ok(names) = root.list(base.join(&slice)) else {
                continue;
            };
            for name in names {
                let group = slice.join(&name);
                if name == unit && root.is_dir(base.join(&group)) {
                    found.push(format!("/{}", group.display()));
                } else if is_slice_of_hosts(&name)
                    && depth < MAX_SLICE_DEPTH
                    && looked_at < MAX_SLICES
                {
                    slices.push((group, depth + 1));
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Slices are named by the whole way to them: `kubepods-burstable.slice` is within `kubepods.slice`.
fn is_slice_of_hosts(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".slice") else {
        return false;
    };
    let mut parts = stem.split('-');
    let first = parts.next().unwrap_or(stem);
    // `kubelet-kubepods.slice`, where the kubelet was given a `--cgroup-root`.
    !FOREIGN_SLICES.contains(&first) && !parts.any(|part| part == PODS)
}

/// Whether the process is neither in a pod or another container, nor in a user's session, by the names of its cgroups.
fn is_service_of_hosts(root: &Root, pid: i32) -> bool {
    let Ok(text) = root.read_text(format!("/proc/{pid}/cgroup"), MAX_BYTES) else {
        return false;
    };
    let mut folders = (text.lines())
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|path| path.split('/'));
    let is_foreign = |folder: &str| {
        folder.strip_suffix(".scope").is_some()
            || folder.strip_suffix(".slice").is_some() && !is_slice_of_hosts(folder)
            || FOREIGN_GROUPS.iter().any(|name| folder.starts_with(name))
    };
    !folders.any(is_foreign)
}

/// Looks for the kubelet as root's files are to be read for it: in the cgroups of `units`, the first that has one, or the one
/// in a pid file, if it is a service of the host's.
pub fn find_roots_kubelet(root: &Root, units: &[String], pid_file: Option<&Path>) -> Found {
    if let Some(path) = pid_file {
        let found = roots_by_pid_file(root, path);
        return found.map_or_else(Found::None, Found::One);
    }
    let mut why = None;
    for unit in units {
        for group in groups_of(root, unit) {
            match find_in_cgroup(root, &group) {
                Found::None(none) => why = why.or(Some(none)),
                found => return found,
            }
        }
    }
    let none = || format!("no kubelet: no cgroup of {}", units.join(", "));
    Found::None(why.unwrap_or_else(none))
}

/// The process that root's pid file names, if it is a service of the host's.
fn roots_by_pid_file(root: &Root, path: &Path) -> Result<Process, String> {
    trusted::find(root, path).map_err(|error| format!("no kubelet: {error}"))?;
    let candidate = by_pid_file(root, path)?;
    let pid = candidate.process.pid;
    if candidate.is_of_host() && is_service_of_hosts(root, pid) {
        return Ok(candidate.process);
    }
    Err(format!(
        "no kubelet: {} says pid {pid}, which is no service of root's on this host",
        path.display()
    ))
}

pub(super) struct Candidate {
    pub(super) process: Process,
    comm: String,
    /// Real, effective, saved, and of the file system. (A setuid program that asks for a password has some of its caller's.)
    uids: [u32; 4],
    /// How many PID namespaces it is in, counted from ours: more than one is a container's.
    pid_namespaces: usize,
}

impl Candidate {
    pub(super) fn read(root: &Root, pid: i32) -> Option<Self> {
        let process = ProcProcess::new_with_root(root.join(format!("/proc/{pid}"))).ok()?;
        let stat = process.stat().ok()?;
        let status = process.status().ok()?;
        Some(Self {
            process: Process {
                pid,
                started: since_boot(stat.starttime),
            },
            comm: stat.comm,
            uids: [status.ruid, status.euid, status.suid, status.fuid],
            // Kernels before 4.1 have no such line: then no container can be told from the host.
            pid_namespaces: status.nspid.map_or(1, |pids| pids.len()),
        })
    }

    /// Whether it is root's, and in no container.
    fn is_of_host(&self) -> bool {
        self.uids == [0; 4] && self.pid_namespaces == 1
    }
}
