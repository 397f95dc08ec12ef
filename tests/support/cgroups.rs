//! Keeps each node in control groups of its own and removes them afterwards.
//!
//! Namespaces do not take their control groups with them, and without own groups two nodes would share
//! `/system.slice/kubelet.service`, processes, limits and all. A run's groups are named after its outer process, so
//! that a later run can tell which are of a run that was killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use procfs::process::{MountInfo, Process};

use super::{say, wait_until};

const PREFIX: &str = "nodevigil-lab";

/// A mounted hierarchy.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// What to mount it with: `cpu,cpuacct` or `name=systemd`; none for version 2.
    pub(crate) controllers: Option<String>,
}

/// The hierarchies that systemd would use here: those of version 1 if there are any, else the unified one.
pub(crate) fn hierarchies() -> Result<Vec<Hierarchy>> {
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
    if found.iter().any(|hierarchy| hierarchy.controllers.is_some()) {
        found.retain(|hierarchy| hierarchy.controllers.is_some());
    }
    ensure!(!found.is_empty(), "no cgroup file system is mounted on this machine");
    Ok(found)
}

/// A mount's options without those that do not name a controller.
fn controllers(mount: &MountInfo) -> String {
    let flags = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "release_agent"];
    let mut names: Vec<String> = mount
        .super_options
        .iter()
        .filter(|(key, _)| !flags.contains(&key.as_str()))
        .map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        })
        .collect();
    names.sort();
    names.join(",")
}

/// systemd on version 1 needs its named hierarchy; mounts it at `at` where the machine has none.
pub(crate) fn ensure_systemd_hierarchy(at: &Path) -> Result<()> {
    let known = hierarchies()?;
    let version_2 = known.iter().any(|hierarchy| hierarchy.controllers.is_none());
    if version_2 || known.iter().any(|known| known.controllers.as_deref() == Some("name=systemd")) {
        return Ok(());
    }
    fs::create_dir_all(at)?;
    mount(Some("cgroup"), at, Some("cgroup"), MsFlags::empty(), Some("none,name=systemd"))
        .context("mounting the cgroup hierarchy name=systemd")
}

/// The name of this process's run. The PID namespace is part of it: a run inside a run must not judge by its own
/// /proc whether the processes of others live.
pub(crate) fn run_name() -> Result<String> {
    let me = Process::myself()?.stat()?;
    Ok(format!("{}-{}-{}", own_prefix()?, me.pid, me.starttime))
}

fn own_prefix() -> Result<String> {
    let namespace = fs::read_link("/proc/self/ns/pid").context("reading our PID namespace")?;
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok(format!("{PREFIX}-{digits}"))
}

/// Removes the groups of runs whose outer process is gone.
pub(crate) fn sweep() -> Result<()> {
    let prefix = own_prefix()?;
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy.mount)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.strip_prefix(&prefix).is_some_and(|rest| !alive(rest)) {
                let path = entry.path();
                if let Err(error) = remove_tree(&path) {
                    say(&format!("left {}: {error}", path.display()));
                }
            }
        }
    }
    Ok(())
}

/// Whether `-PID-STARTTIME` is a living process.
fn alive(rest: &str) -> bool {
    let mut numbers = rest.split('-').skip(1);
    let (Some(pid), Some(start)) = (numbers.next(), numbers.next()) else {
        return true;
    };
    let Ok(pid) = pid.parse() else { return true };
    let stat = Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime.to_string() == start)
}

/// Makes `group` (`RUN/NODE`) in every hierarchy and moves this process into it.
pub(crate) fn join(group: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut folder = hierarchy.mount.clone();
        for part in group.split('/') {
            let parent = folder.clone();
            folder.push(part);
            prepare(&hierarchy, &parent, &folder)
                .with_context(|| format!("making the control group {}", folder.display()))?;
        }
        fs::write(folder.join("cgroup.procs"), "0")
            .with_context(|| format!("moving into {}", folder.display()))?;
    }
    Ok(())
}

fn prepare(hierarchy: &Hierarchy, parent: &Path, folder: &Path) -> Result<()> {
    match &hierarchy.controllers {
        None => {
            // The unified hierarchy hands controllers down by name; those it does not have are not wanted.
            let available = fs::read_to_string(parent.join("cgroup.controllers"))?;
            for controller in available.split_whitespace() {
                fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"))
                    .with_context(|| format!("handing {controller} down"))?;
            }
            make(folder)
        }
        Some(controllers) => {
            make(folder)?;
            if controllers.split(',').any(|controller| controller == "cpuset") {
                // A new group of version 1 has no processor and no memory node, and takes no process.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(folder.join(file), fs::read(parent.join(file))?)?;
                }
                fs::write(folder.join("cgroup.clone_children"), "1")?;
            }
            Ok(())
        }
    }
}

fn make(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Mounts below `root` what a node should see at /sys/fs/cgroup. The caller is in a cgroup namespace of its own.
pub(crate) fn mount_below(root: &Path, hierarchies: &[Hierarchy]) -> Result<()> {
    let base = root.join("sys/fs/cgroup");
    if hierarchies.iter().all(|hierarchy| hierarchy.controllers.is_none()) {
        return mount(Some("cgroup2"), &base, Some("cgroup2"), MsFlags::empty(), None::<&str>)
            .context("mounting cgroup2");
    }
    mount(Some("tmpfs"), &base, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).context("tmpfs for cgroups")?;
    for controllers in hierarchies.iter().filter_map(|hierarchy| hierarchy.controllers.as_deref()) {
        let name = controllers.strip_prefix("name=").unwrap_or(controllers);
        let at = base.join(name);
        fs::create_dir(&at)?;
        let options = if name == controllers { name.to_owned() } else { format!("none,{controllers}") };
        mount(Some("cgroup"), &at, Some("cgroup"), MsFlags::empty(), Some(options.as_str()))
            .with_context(|| format!("mounting the cgroup hierarchy {controllers}"))?;
        for alias in name.split(',').filter(|alias| *alias != name) {
            std::os::unix::fs::symlink(name, base.join(alias))?;
        }
    }
    // An empty folder: systemd looks whether a hybrid machine has version 2 here.
    fs::create_dir(base.join("unified")).context("making the folder unified")
}

/// The folders of `group` that exist.
pub(crate) fn folders(group: &str) -> Result<Vec<PathBuf>> {
    let all = hierarchies()?.into_iter().map(|hierarchy| hierarchy.mount.join(group));
    Ok(all.filter(|folder| folder.exists()).collect())
}

/// Removes `group` everywhere; waits while the last processes in it end.
pub(crate) fn remove(group: &str, timeout: Duration) -> Result<()> {
    let mut last = String::new();
    let removed = wait_until("control groups to empty", timeout, || {
        for folder in folders(group)? {
            if let Err(error) = remove_tree(&folder) {
                last = format!("{}: {error}", folder.display());
                return Ok(None);
            }
        }
        Ok(Some(()))
    });
    if removed.is_err() {
        bail!("control groups stayed: {last}");
    }
    Ok(())
}

/// `rmdir` from the leaves up: a group that holds a process refuses, so nothing living is harmed.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
