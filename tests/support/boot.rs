//! Turns a process into a node: over a copy-on-write view of this machine's root, the machine's own systemd as PID 1.
//!
//! `unshare` has given the process new mount, PID, UTS and IPC namespaces; it stays in the run's network. Everything
//! the node writes goes to a tmpfs in its own mount namespace and is gone with it.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use super::cgroups;

/// What to boot; handed to the boot stage as a JSON file.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Spec {
    /// The node's folder: where its tmpfs is mounted, unseen by all others.
    pub(crate) folder: PathBuf,
    /// Its control group, `RUN/NODE`.
    pub(crate) group: String,
    /// Folders to lay over this machine's root, topmost first.
    pub(crate) layers: Vec<PathBuf>,
    /// Its files.
    pub(crate) files: Vec<File>,
    /// The unit to boot into.
    pub(crate) target: String,
}

/// A file of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct File {
    /// Where, in the node.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) content: String,
    /// Its mode.
    pub(crate) mode: u32,
    /// Its group, by name, if not root: for files that a service's user reads.
    pub(crate) group: Option<String>,
}

/// Units of the machine's own that would touch the machine, or take time, and give a node nothing.
const MASKED: [&str; 14] = [
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-random-seed.service",
    "systemd-timesyncd.service",
    "systemd-remount-fs.service",
    "systemd-update-utmp.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-hwdb-update.service",
    "kmod-static-nodes.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
];

/// The kernel settings that a kubelet makes, and what it makes them. The node finds them made, over the machine's own,
/// which so stay as they are.
const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Boots the node described in the file `spec`; returns only if that fails.
pub(crate) fn boot(spec: &Path) -> Result<Infallible> {
    let spec: Spec =
        serde_json::from_slice(&fs::read(spec)?).context("reading the boot specification")?;
    let hierarchies = cgroups::hierarchies()?;
    cgroups::join(&spec.group)?;
    unshare(CloneFlags::CLONE_NEWCGROUP).context("unshare of the cgroup namespace")?;
    let root = overlay(&spec)?;
    file_systems(&root)?;
    cgroups::mount_below(&root, &hierarchies)?;
    kernel_settings(&spec.folder, &root)?;
    clear(&root)?;
    write(&root, &spec.files)?;
    enter_root(&root)?;
    // systemd hands credentials and other mounts to its units through shared mounts.
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SHARED,
        None::<&str>,
    )
    .context("sharing the root's mounts")?;
    let error = Command::new("/lib/systemd/systemd")
        .args(["--system", "--log-target=journal", "--show-status=no"])
        .arg(format!("--unit={}", spec.target))
        .env_clear()
        .exec();
    Err(error).context("starting systemd")
}

fn overlay(spec: &Spec) -> Result<PathBuf> {
    let none = MsFlags::empty();
    let folders = ["upper", "work", "root", "kernel"].map(|name| spec.folder.join(name));
    mount(
        Some("tmpfs"),
        &spec.folder,
        Some("tmpfs"),
        none,
        Some("mode=755"),
    )
    .context("the node's tmpfs")?;
    for folder in &folders {
        fs::create_dir(folder).context("making the node's folders")?;
    }
    let [upper, work, root, _] = &folders;
    let layers: Vec<String> = spec
        .layers
        .iter()
        .map(|layer| format!("{}:", layer.display()))
        .collect();
    let options = format!(
        "lowerdir={}/,upperdir={},workdir={}",
        layers.concat(),
        upper.display(),
        work.display()
    );
    mount(
        Some("overlay"),
        root,
        Some("overlay"),
        none,
        Some(options.as_str()),
    )
    .with_context(|| format!("mounting the node's root ({options})"))?;
    Ok(root.clone())
}

fn file_systems(root: &Path) -> Result<()> {
    let none = MsFlags::empty();
    // The kubelet measures its root folder's file system, and does not know an overlay's.
    for (kind, at, flags, options) in [
        ("tmpfs", "run", none, "mode=755"),
        ("tmpfs", "tmp", none, "mode=1777"),
        ("proc", "proc", none, ""),
        ("sysfs", "sys", MsFlags::MS_RDONLY, ""),
        ("tmpfs", "var/lib/kubelet", none, "mode=700"),
        ("tmpfs", "var/lib/containerd", none, "mode=711"),
    ] {
        let at = root.join(at);
        fs::create_dir_all(&at)?;
        let options = Some(options).filter(|options| !options.is_empty());
        mount(Some(kind), &at, Some(kind), flags, options)
            .with_context(|| format!("mounting {}", at.display()))?;
    }
    Ok(())
}

fn kernel_settings(folder: &Path, root: &Path) -> Result<()> {
    for (name, value) in KERNEL {
        let at = root.join("proc/sys").join(name);
        if at.exists() {
            let file = folder.join("kernel").join(name.replace('/', "."));
            fs::write(&file, format!("{value}\n"))?;
            mount(
                Some(&file),
                &at,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
            .with_context(|| format!("binding {}", at.display()))?;
        }
    }
    Ok(())
}

/// Takes away what the machine is configured to run.
fn clear(root: &Path) -> Result<()> {
    for path in [
        "etc/systemd/system",
        "etc/cni/net.d",
        "etc/kubernetes",
        "var/lib/cloud",
        "var/log/journal",
    ] {
        let path = root.join(path);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("clearing {}", path.display()))?;
        }
    }
    for path in [
        "etc/default/kubelet",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/machine-id",
    ] {
        let _ = fs::remove_file(root.join(path)); // may be a link to nowhere, or absent
    }
    let units = root.join("etc/systemd/system");
    fs::create_dir_all(&units)?;
    for unit in MASKED {
        symlink("/dev/null", units.join(unit))?;
    }
    Ok(())
}

fn write(root: &Path, files: &[File]) -> Result<()> {
    // Files of a service's user can be written only when there is that user.
    let (plain, grouped): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.group.is_none());
    for file in plain {
        write_file(root, file)?;
    }
    for (program, arguments) in [
        ("systemd-sysusers", &[][..]),
        (
            "systemd-tmpfiles",
            &["--create", "--exclude-prefix=/run"][..],
        ),
    ] {
        let folder = program.replace("systemd-", "");
        if !root
            .join(format!("usr/lib/{folder}.d/nodevigil.conf"))
            .exists()
        {
            continue;
        }
        let done = Command::new(program)
            .arg(format!("--root={}", root.display()))
            .args(arguments)
            .arg("nodevigil.conf")
            .output()
            .with_context(|| format!("starting {program}"))?;
        let refusal = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{program}: {}", refusal.trim());
    }
    for file in grouped {
        let path = write_file(root, file)?;
        let group = file.group.as_deref().unwrap_or("root");
        let gid = group_id(root, group)?;
        std::os::unix::fs::chown(&path, None, Some(gid))
            .with_context(|| format!("handing {} over", file.path))?;
    }
    Ok(())
}

fn write_file(root: &Path, file: &File) -> Result<PathBuf> {
    let path = root.join(file.path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(&path, &file.content).with_context(|| format!("writing the node's {}", file.path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    Ok(path)
}

fn group_id(root: &Path, name: &str) -> Result<u32> {
    let groups = fs::read_to_string(root.join("etc/group")).context("reading the node's groups")?;
    group_id_in(&groups, name)
}

/// The number of a group, by the text of `/etc/group`.
pub(crate) fn group_id_in(groups: &str, name: &str) -> Result<u32> {
    let line = groups
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let gid = line
        .and_then(|rest| rest.split(':').nth(1))
        .with_context(|| format!("no group {name}"))?;
    Ok(gid.parse()?)
}

/// Makes `root` the root of this mount namespace, so that the node sees no mount of ours.
fn enter_root(root: &Path) -> Result<()> {
    nix::unistd::chdir(root)?;
    nix::unistd::pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("leaving the old root")?;
    nix::unistd::chdir("/")?;
    Ok(())
}
