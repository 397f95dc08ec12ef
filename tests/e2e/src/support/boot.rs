//! Turns a process into a node: over a copy-on-write view of this machine's root, the machine's own systemd as PID 1.
//!
//! unshare(1) has given the process new mount, PID, UTS and IPC namespaces; it stays in the run's network. Everything
//! that the node writes goes to a tmpfs in its own mount namespace and is gone with it.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use super::{cgroups, output};

/// What to boot; handed to the process as a JSON file.
#[derive(Debug, Deserialize, Serialize)]
pub struct Spec {
    /// The node's directory: where its tmpfs is mounted, unseen by all others.
    pub directory: PathBuf,
    /// Its control group, `RUN/NODE`.
    pub group: String,
    /// Directories to lay over this machine's root, topmost first.
    pub layers: Vec<PathBuf>,
    /// Its files; a later one replaces an earlier one.
    pub files: Vec<File>,
    /// The unit to boot into.
    pub target: String,
}

/// A file of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct File {
    /// Where, on the node.
    pub path: String,
    /// What is in it.
    pub content: String,
    /// Its mode.
    pub mode: u32,
}

/// Units of the machine's own that would touch the machine or take time, and that a node does not need.
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

/// What this machine is configured to run, which a node does not have.
const REMOVED: [&str; 11] = [
    "etc/systemd/system",
    "etc/cni/net.d",
    "etc/kubernetes",
    "etc/nodevigil",
    "var/lib/cloud",
    "var/lib/nodevigil",
    "var/log/journal",
    "etc/default/kubelet",
    "etc/hostname",
    "etc/resolv.conf",
    "etc/machine-id",
];

/// The kernel settings that a kubelet makes, and their values. They are bind-mounted over the machine's own, which so
/// stay as they are.
const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Boots the node described in the file `spec`; returns only if that fails.
pub fn boot(spec: &Path) -> Result<Infallible> {
    let spec: Spec = serde_json::from_slice(&fs::read(spec)?).context("reading the boot specification")?;
    let hierarchies = cgroups::hierarchies()?;
    cgroups::join(&spec.group)?;
    unshare(CloneFlags::CLONE_NEWCGROUP).context("unshare of the cgroup namespace")?;
    let root = overlay(&spec)?;
    file_systems(&root)?;
    cgroups::mount_below(&root, &hierarchies)?;
    kernel_settings(&spec.directory, &root)?;
    clear(&root)?;
    for file in &spec.files {
        write(&root, file)?;
    }
    // tmpfiles.d of the agent; systemd's own run at boot takes care of /run.
    if root.join("usr/lib/tmpfiles.d/nodevigil.conf").exists() {
        let root = format!("--root={}", root.display());
        let arguments = ["--create", "--exclude-prefix=/run", "nodevigil.conf"];
        output(Command::new("systemd-tmpfiles").arg(root).args(arguments))?;
    }
    enter_root(&root)?;
    // systemd hands credentials and other mounts to its units through shared mounts.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)
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
    let directories = ["upper", "work", "root", "kernel"].map(|name| spec.directory.join(name));
    mount(Some("tmpfs"), &spec.directory, Some("tmpfs"), none, Some("mode=755")).context("the node's tmpfs")?;
    for directory in &directories {
        fs::create_dir(directory).context("making the node's directories")?;
    }
    let [upper, work, root, _] = &directories;
    let mut lower: Vec<String> = spec.layers.iter().map(|layer| layer.display().to_string()).collect();
    lower.push("/".to_owned());
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    mount(Some("overlay"), root, Some("overlay"), none, Some(options.as_str()))
        .with_context(|| format!("mounting the node's root ({options})"))?;
    Ok(root.clone())
}

fn file_systems(root: &Path) -> Result<()> {
    let none = MsFlags::empty();
    // The kubelet measures the file system of its root directory, and does not know an overlay's.
    for (kind, at, flags, options) in [
        ("tmpfs", "run", none, Some("mode=755")),
        ("tmpfs", "tmp", none, Some("mode=1777")),
        ("proc", "proc", none, None),
        ("sysfs", "sys", MsFlags::MS_RDONLY, None),
        ("tmpfs", "var/lib/kubelet", none, Some("mode=700")),
        ("tmpfs", "var/lib/containerd", none, Some("mode=711")),
    ] {
        let at = root.join(at);
        fs::create_dir_all(&at)?;
        mount(Some(kind), &at, Some(kind), flags, options).with_context(|| format!("mounting {}", at.display()))?;
    }
    Ok(())
}

fn kernel_settings(directory: &Path, root: &Path) -> Result<()> {
    for (name, value) in KERNEL {
        let at = root.join("proc/sys").join(name);
        if at.exists() {
            let file = directory.join("kernel").join(name.replace('/', "."));
            fs::write(&file, format!("{value}\n"))?;
            mount(Some(&file), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .with_context(|| format!("binding {}", at.display()))?;
        }
    }
    Ok(())
}

fn clear(root: &Path) -> Result<()> {
    for path in REMOVED.map(|path| root.join(path)) {
        let removed = match path.symlink_metadata() {
            Err(_) => continue,
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    let units = root.join("etc/systemd/system");
    fs::create_dir_all(&units)?;
    for unit in MASKED {
        symlink("/dev/null", units.join(unit))?;
    }
    Ok(())
}

/// Writes a file below `root`.
pub fn write(root: &Path, file: &File) -> Result<()> {
    let path = root.join(file.path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    fs::write(&path, &file.content).with_context(|| format!("writing the node's {}", file.path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    Ok(())
}

/// Makes `root` the root of this mount namespace, so that the node sees no mount of ours.
fn enter_root(root: &Path) -> Result<()> {
    nix::unistd::chdir(root)?;
    nix::unistd::pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("leaving the old root")?;
    nix::unistd::chdir("/")?;
    Ok(())
}
