//! Keeps each node in control groups of its own and removes them afterwards.
//!
//! Namespaces do not take their control groups with them, and without own groups two nodes would share
//! `/system.slice/kubelet.service`: processes, limits and all. A run's groups are named after its outer process, so that
//! a later run can find those of a run that was killed.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use procfs::process::{MountInfo, Process, all_processes};

use super::{say, wait_until};

const PREFIX: &str = "nodevigil-e2e";
/// The inode of the first PID namespace, the same on every machine (`PROC_PID_INIT_INO` of the kernel). It alone sees
/// into all others.
const FIRST_PID_NAMESPACE: &str = "4026531836";

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Hierarchy {
    mount: PathBuf,
    /// What to mount it with: `cpu,cpuacct` or `name=systemd`; none for version 2.
    controllers: Option<String>,
}

/// The hierarchies of this machine, each once. Where version 1 has the controllers, systemd keeps track of its units in
/// version 2 all the same.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in Process::myself()?.mountinfo()? {
        if mount.fs_type != "cgroup" && mount.fs_type != "cgroup2" {
            continue;
        }
        let controllers = (mount.fs_type == "cgroup").then(|| controllers(&mount));
        if found.iter().all(|known| known.controllers != controllers) {
            found.push(Hierarchy { mount: mount.mount_point, controllers });
        }
    }
    ensure!(!found.is_empty(), "no cgroup file system is mounted on this machine");
    Ok(found)
}

/// Whether version 1 has the controllers.
fn is_hybrid(hierarchies: &[Hierarchy]) -> bool {
    hierarchies.iter().any(|hierarchy| hierarchy.controllers.is_some())
}

/// A mount's options without those that do not name a controller.
fn controllers(mount: &MountInfo) -> String {
    let flags = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "release_agent"];
    let options = mount.super_options.iter().filter(|(key, _)| !flags.contains(&key.as_str()));
    let mut names: Vec<String> = options
        .map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        })
        .collect();
    names.sort();
    names.join(",")
}

/// Next to version 1, systemd needs its named hierarchy and version 2; it would mount the latter itself, and the nodes
/// would share it. Mounts below `at` what the machine does not have.
pub fn ensure_systemd_hierarchies(at: &Path) -> Result<()> {
    let known = hierarchies()?;
    if !is_hybrid(&known) {
        return Ok(());
    }
    for (kind, controllers, options) in
        [("cgroup", Some("name=systemd"), Some("none,name=systemd")), ("cgroup2", None, None)]
    {
        if known.iter().all(|known| known.controllers.as_deref() != controllers) {
            let at = at.join(kind);
            fs::create_dir_all(&at)?;
            mount(Some(kind), &at, Some(kind), MsFlags::empty(), options)
                .with_context(|| format!("mounting {kind} for systemd"))?;
        }
    }
    Ok(())
}

/// The name of this process's run. The PID namespace is part of it: a run inside a run must not judge by its own /proc
/// whether the processes of others live.
pub fn run_name() -> Result<String> {
    let me = Process::myself()?.stat()?;
    let namespace = pid_namespace("self").context("reading our PID namespace")?;
    Ok(format!("{PREFIX}-{namespace}-{}-{}", me.pid, me.starttime))
}

/// The inode of a PID namespace, as text.
fn pid_namespace(pid: &str) -> Option<String> {
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect())
}

/// Removes the groups of runs whose outer process is gone.
pub fn sweep() -> Result<()> {
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy.mount)?.flatten() {
            if may_be_in_use(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let path = entry.path();
            if let Err(error) = remove_tree(&path) {
                say(&format!("left {}: {error}", path.display()));
            }
        }
    }
    Ok(())
}

/// Whether a directory is not a run's, or is that of a run which may still live.
fn may_be_in_use(directory: &str) -> bool {
    let run = directory.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-'));
    let parts: Vec<&str> = run.unwrap_or_default().split('-').collect();
    let [namespace, pid, start_time] = parts[..] else {
        return true;
    };
    let own = pid_namespace("self");
    if own.as_deref() == Some(namespace) {
        let process = pid.parse().ok().and_then(|pid| Process::new(pid).ok());
        let stat = process.and_then(|process| process.stat().ok());
        return stat.is_some_and(|stat| stat.starttime.to_string() == start_time);
    }
    own.as_deref() != Some(FIRST_PID_NAMESPACE) || has_process(namespace)
}

/// Whether anything runs in a PID namespace that we can see into.
fn has_process(namespace: &str) -> bool {
    let Ok(mut processes) = all_processes().map(Iterator::flatten) else {
        return true;
    };
    processes.any(|process| pid_namespace(&process.pid().to_string()).as_deref() == Some(namespace))
}

/// Makes `group` (`RUN/NODE`) in every hierarchy and moves this process into it.
pub fn join(group: &str) -> Result<()> {
    let hierarchies = hierarchies()?;
    let hybrid = is_hybrid(&hierarchies);
    for hierarchy in &hierarchies {
        let mut directory = hierarchy.mount.clone();
        for part in group.split('/') {
            let parent = directory.clone();
            directory.push(part);
            let made = match &hierarchy.controllers {
                Some(controllers) => make_version_1(controllers, &parent, &directory),
                None if hybrid => make(&directory),
                None => delegate(&parent).and_then(|()| make(&directory)),
            };
            made.with_context(|| format!("making the control group {}", directory.display()))?;
        }
        fs::write(directory.join("cgroup.procs"), "0")
            .with_context(|| format!("moving into {}", directory.display()))?;
    }
    Ok(())
}

/// The unified hierarchy has a controller where the parent enables it for its children.
fn delegate(parent: &Path) -> Result<()> {
    for controller in fs::read_to_string(parent.join("cgroup.controllers"))?.split_whitespace() {
        fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"))
            .with_context(|| format!("enabling the controller {controller}"))?;
    }
    Ok(())
}

fn make_version_1(controllers: &str, parent: &Path, directory: &Path) -> Result<()> {
    make(directory)?;
    if controllers.split(',').any(|controller| controller == "cpuset") {
        // A new group of version 1 has no processor and no memory node, and takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(directory.join(file), fs::read(parent.join(file))?)?;
        }
        fs::write(directory.join("cgroup.clone_children"), "1")?;
    }
    Ok(())
}

fn make(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Mounts below `root` what a node should see at /sys/fs/cgroup. The caller is in a cgroup namespace of its own.
pub fn mount_below(root: &Path, hierarchies: &[Hierarchy]) -> Result<()> {
    let base = root.join("sys/fs/cgroup");
    let attach = |kind: &str, at: &Path, options: Option<&str>| {
        fs::create_dir_all(at)?;
        mount(Some(kind), at, Some(kind), MsFlags::empty(), options)
            .with_context(|| format!("mounting {kind} ({options:?}) on {}", at.display()))
    };
    if !is_hybrid(hierarchies) {
        return attach("cgroup2", &base, None);
    }
    attach("tmpfs", &base, Some("mode=755"))?;
    for controllers in hierarchies.iter().filter_map(|hierarchy| hierarchy.controllers.as_deref()) {
        let (name, options) = match controllers.strip_prefix("name=") {
            Some(name) => (name, format!("none,{controllers}")),
            None => (controllers, controllers.to_owned()),
        };
        attach("cgroup", &base.join(name), Some(options.as_str()))?;
        for alias in name.split(',').filter(|alias| *alias != name) {
            std::os::unix::fs::symlink(name, base.join(alias))?;
        }
    }
    attach("cgroup2", &base.join("unified"), None)
}

/// The directories of `group` that exist.
pub fn directories(group: &str) -> Result<Vec<PathBuf>> {
    let all = hierarchies()?.into_iter().map(|hierarchy| hierarchy.mount.join(group));
    Ok(all.filter(|directory| directory.exists()).collect())
}

/// Removes `group` everywhere; waits while the last processes in it end.
pub fn remove(group: &str, timeout: Duration) -> Result<()> {
    let mut last = String::new();
    let removed = wait_until("control groups to become empty", timeout, || {
        for directory in directories(group)? {
            if let Err(error) = remove_tree(&directory) {
                last = format!("{}: {error}", directory.display());
                return Ok(None);
            }
        }
        Ok(Some(()))
    });
    if removed.is_err() {
        bail!("control groups cannot be removed: {last}");
    }
    Ok(())
}

/// `rmdir` from the leaves up: a group that holds a process refuses, so nothing that lives is harmed.
fn remove_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}
