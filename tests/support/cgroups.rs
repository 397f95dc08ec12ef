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
use procfs::process::{MountInfo, Process, all_processes};

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

/// The hierarchies of this machine, each once. Where version 1 has the controllers, systemd keeps track of its units in
/// version 2 all the same.
pub(crate) fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in Process::myself()?.mountinfo()? {
        if mount.fs_type != "cgroup" && mount.fs_type != "cgroup2" {
            continue;
        }
        let controllers = (mount.fs_type == "cgroup").then(|| controllers(&mount));
        if found.iter().all(|known| known.controllers != controllers) {
            found.push(Hierarchy {
                mount: mount.mount_point,
                controllers,
            });
        }
    }
    ensure!(
        !found.is_empty(),
        "no cgroup file system is mounted on this machine"
    );
    Ok(found)
}

/// Whether version 1 has the controllers.
fn hybrid(hierarchies: &[Hierarchy]) -> bool {
    hierarchies
        .iter()
        .any(|hierarchy| hierarchy.controllers.is_some())
}

/// A mount's options without those that do not name a controller.
fn controllers(mount: &MountInfo) -> String {
    let flags = [
        "rw",
        "ro",
        "xattr",
        "noprefix",
        "clone_children",
        "cpuset_v2_mode",
        "release_agent",
    ];
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

/// Beside version 1, systemd needs its named hierarchy and version 2; it would mount the latter itself, and the nodes
/// would meet there. Mounts below `at` what the machine has not.
pub(crate) fn ensure_systemd_hierarchies(at: &Path) -> Result<()> {
    let known = hierarchies()?;
    if !hybrid(&known) {
        return Ok(());
    }
    for (kind, controllers, options) in [
        ("cgroup", Some("name=systemd"), Some("none,name=systemd")),
        ("cgroup2", None, None),
    ] {
        if known
            .iter()
            .all(|known| known.controllers.as_deref() != controllers)
        {
            let at = at.join(kind);
            fs::create_dir_all(&at)?;
            mount(Some(kind), &at, Some(kind), MsFlags::empty(), options)
                .with_context(|| format!("mounting {kind} for systemd"))?;
        }
    }
    Ok(())
}

/// The name of this process's run. The PID namespace is part of it: a run inside a run must not judge by its own
/// /proc whether the processes of others live.
pub(crate) fn run_name() -> Result<String> {
    let me = Process::myself()?.stat()?;
    let namespace = pid_namespace("self").context("reading our PID namespace")?;
    Ok(format!("{PREFIX}-{namespace}-{}-{}", me.pid, me.starttime))
}

/// The inode of a PID namespace, as text.
fn pid_namespace(pid: &str) -> Option<String> {
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(
        namespace
            .to_string_lossy()
            .chars()
            .filter(char::is_ascii_digit)
            .collect(),
    )
}

/// Removes the groups of runs whose outer process is gone.
pub(crate) fn sweep() -> Result<()> {
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy.mount)?.flatten() {
            if alive(&entry.file_name().to_string_lossy()) {
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

/// Whether a folder is not a run's, or is that of a run which may still live.
fn alive(folder: &str) -> bool {
    /// The first PID namespace has the same inode on every machine; it alone sees into all others.
    const FIRST: &str = "4026531836";
    let Some(run) = folder
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix('-'))
    else {
        return true;
    };
    let [namespace, pid, birth] = run.split('-').collect::<Vec<_>>()[..] else {
        return true;
    };
    let own = pid_namespace("self");
    if own.as_deref() == Some(namespace) {
        let process = pid.parse().ok().and_then(|pid| Process::new(pid).ok());
        let stat = process.and_then(|process| process.stat().ok());
        return stat.is_some_and(|stat| stat.starttime.to_string() == birth);
    }
    own.as_deref() != Some(FIRST) || has_process(namespace)
}

/// Whether anything runs in a PID namespace that we can see into.
fn has_process(namespace: &str) -> bool {
    let Ok(mut processes) = all_processes().map(Iterator::flatten) else {
        return true;
    };
    processes.any(|process| pid_namespace(&process.pid().to_string()).as_deref() == Some(namespace))
}

/// Makes `group` (`RUN/NODE`) in every hierarchy and moves this process into it.
pub(crate) fn join(group: &str) -> Result<()> {
    let hierarchies = hierarchies()?;
    let hybrid = hybrid(&hierarchies);
    for hierarchy in &hierarchies {
        let mut folder = hierarchy.mount.clone();
        for part in group.split('/') {
            let parent = folder.clone();
            folder.push(part);
            let made = match &hierarchy.controllers {
                Some(controllers) => make_version_1(controllers, &parent, &folder),
                None if hybrid => make(&folder),
                None => hand_down(&parent).and_then(|()| make(&folder)),
            };
            made.with_context(|| format!("making the control group {}", folder.display()))?;
        }
        fs::write(folder.join("cgroup.procs"), "0")
            .with_context(|| format!("moving into {}", folder.display()))?;
    }
    Ok(())
}

/// The unified hierarchy has a controller where the parent hands it down.
fn hand_down(parent: &Path) -> Result<()> {
    for controller in fs::read_to_string(parent.join("cgroup.controllers"))?.split_whitespace() {
        fs::write(
            parent.join("cgroup.subtree_control"),
            format!("+{controller}"),
        )
        .with_context(|| format!("handing {controller} down"))?;
    }
    Ok(())
}

fn make_version_1(controllers: &str, parent: &Path, folder: &Path) -> Result<()> {
    make(folder)?;
    if controllers
        .split(',')
        .any(|controller| controller == "cpuset")
    {
        // A new group of version 1 has no processor and no memory node, and takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(folder.join(file), fs::read(parent.join(file))?)?;
        }
        fs::write(folder.join("cgroup.clone_children"), "1")?;
    }
    Ok(())
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
    let unified = |at: &Path| {
        mount(
            Some("cgroup2"),
            at,
            Some("cgroup2"),
            MsFlags::empty(),
            None::<&str>,
        )
        .context("mounting cgroup2")
    };
    if !hybrid(hierarchies) {
        return unified(&base);
    }
    mount(
        Some("tmpfs"),
        &base,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=755"),
    )
    .context("tmpfs for cgroups")?;
    for controllers in hierarchies
        .iter()
        .filter_map(|hierarchy| hierarchy.controllers.as_deref())
    {
        let name = controllers.strip_prefix("name=").unwrap_or(controllers);
        let at = base.join(name);
        fs::create_dir(&at)?;
        let options = if name == controllers {
            name.to_owned()
        } else {
            format!("none,{controllers}")
        };
        mount(
            Some("cgroup"),
            &at,
            Some("cgroup"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .with_context(|| format!("mounting the cgroup hierarchy {controllers}"))?;
        for alias in name.split(',').filter(|alias| *alias != name) {
            std::os::unix::fs::symlink(name, base.join(alias))?;
        }
    }
    fs::create_dir(base.join("unified"))?;
    unified(&base.join("unified"))
}

/// The folders of `group` that exist.
pub(crate) fn folders(group: &str) -> Result<Vec<PathBuf>> {
    let all = hierarchies()?
        .into_iter()
        .map(|hierarchy| hierarchy.mount.join(group));
    Ok(all.filter(|folder| folder.exists()).collect())
}

/// The processes in `group`, by their pids as we see them, in the hierarchy where systemd keeps track of its units.
pub(crate) fn members(group: &str) -> Result<Vec<i32>> {
    let all = hierarchies()?;
    let unified = all
        .iter()
        .find(|known| known.controllers.is_none())
        .context("no cgroup2 is mounted")?;
    let file = unified.mount.join(group).join("cgroup.procs");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    text.lines()
        .map(|line| line.parse().with_context(|| format!("a pid: {line}")))
        .collect()
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
