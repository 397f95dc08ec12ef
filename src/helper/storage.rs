//! The verb `storage`: the file systems that the kubelet and the container runtime write to. What the kernel says of each,
//! and whether a page can be written to it and read back.
//!
//! All of it may hang on a dead disk, so it is done on the one [`Lane`]; what was known by then is told all the same, with
//! what hangs and for how long.

mod devices;
mod kubelets;
mod mounts;

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    fd::{AsFd as _, AsRawFd as _, OwnedFd},
    fs::{CWD, Mode, OFlags, StatVfs, StatVfsMountFlags, fstat, fstatvfs, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    boot, canary,
    lane::Lane,
    protocol::{Refusal, Verb},
};
use crate::{clock::Clock, config::KubeletSettings, host::files::Root};
use kubelets::Kubelets;
use mounts::Mount;
#[doc(hidden)] // public for the fuzz target
pub use mounts::mounts_in;

/// The verb.
pub const VERB: Verb = Verb {
    name: "storage",
    sentence: "Looks at the file systems of kubelet and runtime, and writes a page to each.",
    deadline: Duration::from_secs(4),
};

/// How long an answer waits for the disk; then it says what hangs.
const WAIT: Duration = Duration::from_secs(3);

/// The helper's own folder: root's, on the file system of `/var/lib`.
pub const OWN_FOLDER: &str = "/var/lib/nodevigil-helper";

/// Where a page may be written on a file system that is not that of [`OWN_FOLDER`]: a folder of root's in the kubelet's or
/// the runtime's own, for the operator to make, and to open in the helper's sandbox.
const CANARY_FOLDER: &str = ".nodevigil";

/// Where a kubelet keeps its files if it is not told otherwise: upstream, `MicroK8s`, k0s.
const KUBELET_ROOTS: &[&str] = &[
    "/var/lib/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
];

/// Where container runtimes keep theirs, and what is in there once one has run.
const RUNTIME_ROOTS: &[(&str, &str)] = &[
    ("/var/lib/containerd", "io.containerd.metadata.v1.bolt"),
    ("/var/lib/containers/storage", "overlay-containers"),
    (
        "/var/lib/rancher/k3s/agent/containerd",
        "io.containerd.metadata.v1.bolt",
    ),
    (
        "/var/lib/rancher/rke2/agent/containerd",
        "io.containerd.metadata.v1.bolt",
    ),
    ("/var/lib/k0s/containerd", "io.containerd.metadata.v1.bolt"),
];

/// What is known of the file systems.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageAnswer {
    /// Each once, [`MAX_FILE_SYSTEMS`] at most; those that come after one that hangs are not known.
    pub file_systems: Vec<FileSystem>,
    /// What hangs.
    pub stuck: Option<StuckAt>,
}

/// The most file systems that an answer holds: one for each place.
pub const MAX_FILE_SYSTEMS: usize = RUNTIME_ROOTS.len() + 1;

/// Something that the disk does not come back from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckAt {
    /// What is being done, and where: `write a page to /var/lib/kubelet`.
    pub what: String,
    /// For how long, in milliseconds.
    pub for_ms: u64,
}

/// Whose files lie there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The kubelet's.
    Kubelet,
    /// The container runtime's.
    Runtime,
}

/// One file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// The folder by which it was found.
    pub path: PathBuf,
    /// Whose folder that is; the kubelet's goes first.
    pub owner: Owner,
    /// Its kind, `ext4`; empty where its mount was not found.
    pub kind: String,
    /// The names by which the kernel speaks of its disk: partition, disk, what a mapped device lies on.
    pub devices: Vec<String>,
    /// By what it is known to be read-only.
    pub read_only: Option<String>,
    /// Its room, where it could be asked.
    pub room: Option<Room>,
    /// How writing to it went.
    pub canary: Canary,
}

/// How much room there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that are free, those kept for root included.
    pub free_bytes: u64,
    /// Bytes that are free for everybody.
    pub available_bytes: u64,
    /// Inodes in all; 0: it has no bound.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// How writing a page went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canary {
    /// It was written, brought to the disk and read back.
    Written,
    /// There is no folder for it. What was known of the folder was brought to the disk instead.
    Flushed,
    /// It failed.
    Failed {
        /// What was done.
        step: String,
        /// The kernel's word, as a number.
        errno: i32,
    },
    /// It could not be tried.
    NotTried {
        /// Why.
        why: String,
    },
}

/// What the helper keeps from one question to the next.
#[derive(Debug, Default)]
pub struct Disk {
    pub(super) lane: Arc<Lane>,
    pub(super) memory: boot::Memory,
    progress: Mutex<Progress>,
    /// The `--root-dir` of the kubelet that was seen last.
    root_dir: Mutex<Option<PathBuf>>,
}

/// How far the last look at the file systems has come.
#[derive(Debug, Default)]
struct Progress {
    done: Vec<FileSystem>,
    at: Option<(&'static str, PathBuf)>,
}

impl Disk {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self, step: &'static str, path: &Path) {
        self.progress().at = Some((step, path.to_owned()));
    }
}

/// Answers within [`WAIT`], whatever the disk does.
pub fn answer(
    disk: &Arc<Disk>,
    root: &Root,
    settings: &KubeletSettings,
) -> Result<StorageAnswer, Refusal> {
    Ok(answer_within(WAIT, disk, root, settings))
}

fn answer_within(
    wait: Duration,
    disk: &Arc<Disk>,
    root: &Root,
    settings: &KubeletSettings,
) -> StorageAnswer {
    let job = (Arc::clone(disk), root.clone(), settings.clone());
    let looked = disk.lane.run("the helper's disk thread", wait, move || {
        let (disk, root, settings) = job;
        look(&disk, &root, &Kubelets::find(&disk, &root, &settings));
        // The disk has just shown that it works.
        boot::keep_alive(&disk.memory, &root, Clock.now());
    });
    let progress = disk.progress();
    let stuck = looked.err().map(|stuck| StuckAt {
        what: progress.at.as_ref().map_or_else(
            || stuck.what.to_owned(),
            |(step, path)| format!("{step} {}", path.display()),
        ),
        for_ms: u64::try_from(stuck.for_so_long.as_millis()).unwrap_or(u64::MAX),
    });
    StorageAnswer {
        file_systems: progress.done.clone(),
        stuck,
    }
}

/// A folder that was found.
struct Place {
    owner: Owner,
    path: PathBuf,
    opened: Result<OwnedFd, Errno>,
    /// Where it lies once every link was followed, and its device.
    real: PathBuf,
    device: u64,
}

fn look(disk: &Disk, root: &Root, kubelets: &Kubelets) {
    *disk.progress() = Progress::default();
    let places = places(disk, root, kubelets);
    let paths: Vec<&Path> = places.iter().map(|place| place.real.as_path()).collect();
    // The kubelet's own view of the mounts, else that of the host: ours has every mount read-only by its sandbox.
    let whose = kubelets.pid.into_iter().chain([1]);
    let mounts = whose
        .map(|pid| format!("/proc/{pid}/mountinfo"))
        .find_map(|table| mounts::find(root, &table, &paths).ok())
        .unwrap_or_default();
    for (index, place) in places.iter().enumerate() {
        let mount = mounts.get(index).cloned().flatten();
        let found = look_at(disk, root, place, mount);
        disk.progress().done.push(found);
    }
    disk.progress().at = None;
}

/// The folders, each file system once: what of it cannot be opened counts, what is not there does not.
fn places(disk: &Disk, root: &Root, kubelets: &Kubelets) -> Vec<Place> {
    let roots: Vec<PathBuf> = match &kubelets.root_dir {
        Some(path) => vec![path.clone()],
        None => KUBELET_ROOTS.iter().map(PathBuf::from).collect(),
    };
    let kubelet = roots
        .into_iter()
        .find_map(|path| place(disk, root, Owner::Kubelet, path));
    let runtimes = RUNTIME_ROOTS.iter().filter_map(|(path, within)| {
        disk.goes_on("open", Path::new(path));
        // Without it no runtime has ever used that folder, and what it is on is nobody's.
        root.is_dir(Path::new(path).join(within)).then_some(())?;
        place(disk, root, Owner::Runtime, PathBuf::from(path))
    });
    let mut places: Vec<Place> = Vec::new();
    for place in kubelet.into_iter().chain(runtimes) {
        let known = |other: &Place| other.opened.is_ok() && other.device == place.device;
        if place.opened.is_err() || !places.iter().any(known) {
            places.push(place);
        }
    }
    places
}

fn place(disk: &Disk, root: &Root, owner: Owner, path: PathBuf) -> Option<Place> {
    disk.goes_on("open", &path);
    let opened = open_folder(&root.join(&path));
    if matches!(opened, Err(Errno::NOENT | Errno::NOTDIR)) {
        return None;
    }
    let stat = opened.as_ref().ok().and_then(|fd| fstat(fd).ok());
    let real = opened.as_ref().ok().and_then(|fd| real_path(root, fd));
    Some(Place {
        owner,
        real: real.unwrap_or_else(|| path.clone()),
        path,
        device: stat.map_or(0, |stat| stat.st_dev),
        opened,
    })
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(CWD, path, flags, Mode::empty())
}

/// Where an open folder lies, as seen below the root.
fn real_path(root: &Root, folder: &OwnedFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let target = rustix::fs::readlinkat(CWD, link, Vec::new()).ok()?;
    let target = PathBuf::from(std::ffi::OsStr::from_bytes(target.as_bytes()));
    let below = target.strip_prefix(root.join("/")).ok()?;
    Some(Path::new("/").join(below))
}

fn look_at(disk: &Disk, root: &Root, place: &Place, mount: Option<Mount>) -> FileSystem {
    let mount = mount.unwrap_or_default();
    let mut found = FileSystem {
        path: place.path.clone(),
        owner: place.owner,
        devices: devices::names(root, &mount),
        read_only: mount.read_only().map(str::to_owned),
        kind: mount.kind,
        room: None,
        canary: Canary::NotTried { why: String::new() },
    };
    found.canary = match &place.opened {
        Err(errno) => failed("open", *errno),
        Ok(folder) => {
            disk.goes_on("ask for the room of", &place.path);
            found.room = fstatvfs(folder).ok().map(|vfs| room(&vfs));
            disk.goes_on("write a page to", &place.path);
            write_page(root, place, folder, &found)
        }
    };
    if matches!(found.canary, Canary::Failed { errno, .. } if errno == Errno::ROFS.raw_os_error()) {
        found
            .read_only
            .get_or_insert_with(|| "a write was refused (EROFS)".to_owned());
    }
    found
}

fn write_page(root: &Root, place: &Place, folder: &OwnedFd, found: &FileSystem) -> Canary {
    let is_read_only = |folder: &OwnedFd| {
        fstatvfs(folder).is_ok_and(|vfs| vfs.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    // A folder that only our own sandbox has read-only is none to write to.
    let usable = |folder: &OwnedFd| found.read_only.is_some() || !is_read_only(folder);
    let done = match canary_folder(root, place, folder).filter(usable) {
        Some(own) => canary::write(own.as_fd()).map(|()| Canary::Written),
        None => canary::flush(folder.as_fd()).map(|()| Canary::Flushed),
    };
    done.unwrap_or_else(|failure| failed(failure.step, failure.errno))
}

/// A folder of ours on that file system.
fn canary_folder(root: &Root, place: &Place, folder: &OwnedFd) -> Option<OwnedFd> {
    let is_there = |own: &OwnedFd| fstat(own).is_ok_and(|stat| stat.st_dev == place.device);
    if let Ok(own) = open_folder(&root.join(OWN_FOLDER))
        && is_there(&own)
    {
        return Some(own);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = openat(folder, CANARY_FOLDER, flags, Mode::empty()).ok()?;
    let is_roots = fstat(&own).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    (is_roots && is_there(&own)).then_some(own)
}

fn failed(step: &str, errno: Errno) -> Canary {
    // That it is not for us is no fault of the disk's.
    if matches!(errno, Errno::ACCESS | Errno::PERM) {
        return Canary::NotTried {
            why: format!("{step}: {errno}"),
        };
    }
    Canary::Failed {
        step: step.to_owned(),
        errno: errno.raw_os_error(),
    }
}

fn room(vfs: &StatVfs) -> Room {
    let bytes = |blocks: u64| blocks.saturating_mul(vfs.f_frsize);
    Room {
        total_bytes: bytes(vfs.f_blocks),
        free_bytes: bytes(vfs.f_bfree),
        available_bytes: bytes(vfs.f_bavail),
        inodes: vfs.f_files,
        inodes_free: vfs.f_ffree,
    }
}

#[cfg(test)]
mod tests;
