//! Test writes to the file systems of directories. They may hang in the kernel for as long as the disks do, so a child makes them:
//! `nodevigil probe-disk PATH…`, with a thread for each directory.

use std::collections::BTreeMap;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use procfs::DiskStat;
use procfs::process::Process;
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, CWD, Mode, OFlags, StatVfs, fadvise, fstat, fstatvfs, fsync, makedev, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::mpsc::UnboundedSender;

use super::child;
use super::mounts::Mount;
use super::process::switches;

/// The hidden subcommand that probes.
pub const SUBCOMMAND: &str = "probe-disk";
/// The agent's own directory, for the test file of the file system that it is on.
const OWN_DIRECTORY: &str = "/var/lib/nodevigil";
/// A directory of root's in the probed one, for the test file of any other file system. An administrator who wants test writes there creates it.
const TEST_DIRECTORY: &str = ".nodevigil";
/// A page, so that a file system that keeps small files in their inodes needs a block.
const PAGE: [u8; 4096] = [0x5a; 4096];
/// What the child prints beyond this is not read.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;

/// What a probe does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    Open,
    Create,
    Write,
    Fsync,
    Read,
}

impl Step {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Write => "write",
            Self::Fsync => "fsync",
            Self::Read => "read",
        }
    }
}

/// A line of JSON that the child prints, about the directory of this index.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    directory: usize,
    event: Event,
}

/// What becomes of a probe.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A thread of the child begins with a step, which may hang.
    Begins(i32, Step),
    /// An error has the reason why there is no result.
    Ended(Result<Probe, String>),
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The path without symbolic links, if it could be read.
    pub real_path: Option<PathBuf>,
    /// The file system has no free block, not even for root (`statvfs(3)`).
    pub is_full: bool,
    /// The same of inodes.
    pub is_without_inodes: bool,
    pub outcome: Outcome,
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A page was written, brought to the disk and read back.
    Written,
    /// No test file may be made there; fsync of the directory itself succeeded.
    Synced,
    /// There is no such directory.
    Absent,
    /// A step failed with this error number.
    Failed(Step, i32),
}

/// Probes the file systems of directories in one child, which waits for as long as their disks do. `events` gets what becomes of each.
pub async fn probe(paths: Vec<PathBuf>, events: UnboundedSender<(PathBuf, Event)>) {
    let mut command = child::own_command();
    command.arg(SUBCOMMAND).args(&paths);
    let mut open: BTreeMap<_, _> = paths.into_iter().enumerate().collect();
    let read = async {
        let mut child = child::start(command).await?;
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout.take(MAX_OUTPUT_BYTES)).lines();
            while let Some(line) = lines.next_line().await? {
                let Line { directory, event } = serde_json::from_str(&line)?;
                let is_over = matches!(event, Event::Ended(_));
                if let Some(path) = open.get(&directory) {
                    events.send((path.clone(), event)).ok();
                }
                open.retain(|index, _| !is_over || *index != directory);
            }
        }
        child.wait().await
    };
    let read: io::Result<_> = read.await;
    let why = read.map_or_else(|error| error.to_string(), |status| format!("ended without a result ({status})"));
    for path in open.into_values() {
        events.send((path, Event::Ended(Err(format!("{SUBCOMMAND}: {why}"))))).ok();
    }
}

/// The context switches so far of a thread that waits in the kernel and takes no signal (state D): the same number means the same
/// wait. None for a thread in another state.
pub fn uninterruptible_wait(tid: i32) -> Option<u64> {
    let thread = Process::new(tid).ok()?;
    let status = thread.status().ok()?;
    (thread.stat().ok()?.state == 'D').then(|| switches(&status))
}

/// The requests of a device (Documentation/admin-guide/iostats.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// How many have been completed since boot.
    pub completed: u64,
    /// Whether there are others.
    pub is_any_in_progress: bool,
}

/// The requests of a mount's device; none if the file system has no block device.
pub fn requests(mount: &Mount) -> Option<Requests> {
    // A file system of several devices, such as btrfs, has a number of its own.
    let source = Some(&mount.source).filter(|source| source.starts_with("/dev/"));
    let source = source.and_then(|source| fs::metadata(source).ok()).map(|device| device.st_rdev());
    let numbers = [parse_device(&mount.device), source];
    let disks = procfs::diskstats().ok()?;
    let number = |disk: &DiskStat| Some(makedev(disk.major.try_into().ok()?, disk.minor.try_into().ok()?));
    let disk = disks.iter().find(|disk| number(disk).is_some_and(|number| numbers.contains(&Some(number))))?;
    let completed = disk.reads + disk.writes + disk.discards.unwrap_or_default() + disk.flushes.unwrap_or_default();
    Some(Requests { completed, is_any_in_progress: disk.in_progress > 0 })
}

fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// What the child does: probes all directories at once, and tells what becomes of each.
pub fn probe_here(paths: &[PathBuf], tell: impl Fn(&Line) + Sync) {
    let tell = &tell;
    thread::scope(|scope| {
        for (directory, path) in paths.iter().enumerate() {
            let tell = move |event| tell(&Line { directory, event });
            scope.spawn(move || {
                let tid = gettid().as_raw_nonzero().get();
                let probe = probe_with(Path::new(OWN_DIRECTORY), path, |step| tell(Event::Begins(tid, step)));
                tell(Event::Ended(Ok(probe)));
            });
        }
    });
}

fn probe_with(own_directory: &Path, path: &Path, mut begins: impl FnMut(Step)) -> Probe {
    begins(Step::Open);
    let directory = open_directory(path);
    let space = directory.as_ref().ok().and_then(|directory| fstatvfs(directory).ok());
    let has = |is_so: fn(&StatVfs) -> bool| space.as_ref().is_some_and(is_so);
    Probe {
        real_path: fs::canonicalize(path).ok(),
        is_full: has(|space| space.f_blocks > 0 && space.f_bfree == 0),
        // A file system without a limit of inodes has 0 of 0.
        is_without_inodes: has(|space| space.f_files > 0 && space.f_ffree == 0),
        outcome: match directory {
            Err(Errno::NOENT | Errno::NOTDIR) => Outcome::Absent,
            Err(error) => Outcome::Failed(Step::Open, error.raw_os_error()),
            Ok(directory) => {
                let written = write(own_directory, &directory, &mut begins);
                written.unwrap_or_else(|(step, error)| Outcome::Failed(step, error))
            }
        },
    }
}

/// Writes a page, or without a directory for that brings the directory itself to the disk.
fn write(own_directory: &Path, directory: &OwnedFd, begins: &mut impl FnMut(Step)) -> Result<Outcome, (Step, i32)> {
    let failed = |step| move |error: io::Error| (step, error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    begins(Step::Create);
    let file = test_directory(own_directory, directory).map_or(Ok(None), |directory| create(&directory));
    let Some(file) = file.map_err(failed(Step::Create))? else {
        begins(Step::Fsync);
        return match fsync(directory) {
            // A file system that has no fsync of directories.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(Outcome::Synced),
            Err(error) => Err((Step::Fsync, error.raw_os_error())),
        };
    };
    begins(Step::Write);
    file.write_all_at(&PAGE, 0).map_err(failed(Step::Write))?;
    begins(Step::Fsync);
    file.sync_all().map_err(failed(Step::Fsync))?;
    begins(Step::Read);
    // So that the disk is read and not the page cache, as far as the file system follows the advice.
    fadvise(&file, 0, None, Advice::DontNeed).ok();
    let mut page = [0; PAGE.len()];
    file.read_exact_at(&mut page, 0).map_err(failed(Step::Read))?;
    // "Bad message": so file systems with checksums report it too.
    if page == PAGE { Ok(Outcome::Written) } else { Err((Step::Read, Errno::BADMSG.raw_os_error())) }
}

/// The directory for the test file: one of ours on the same file system.
fn test_directory(own_directory: &Path, directory: &OwnedFd) -> Option<OwnedFd> {
    let device = fstat(directory).ok()?.st_dev;
    let is_usable = |directory: &OwnedFd| {
        fstat(directory).is_ok_and(|stat| stat.st_dev == device && stat.st_uid == geteuid().as_raw())
    };
    let own = open_directory(own_directory).ok().filter(is_usable);
    // A link might lead elsewhere.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    own.or_else(|| openat(directory, TEST_DIRECTORY, flags, Mode::empty()).ok().filter(is_usable))
}

/// A file without a name, which no other process sees and which leaves nothing on the disk; none where the file system has no such files, or the
/// agent's own sandbox forbids it. Whether the file system is read-only is read from the kubelet's mounts, not here.
fn create(directory: &OwnedFd) -> io::Result<Option<fs::File>> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn outcome(own_directory: &Path, path: &Path) -> Outcome {
        probe_with(own_directory, path, |_| ()).outcome
    }

    #[test]
    fn a_page_is_written_where_there_is_a_directory_for_it_and_nothing_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let none = Path::new("/no/such/directory");
        let probed = directory.path().join("kubelet");
        fs::create_dir(&probed).unwrap();
        assert_eq!(outcome(none, &probed), Outcome::Synced);
        assert_eq!(outcome(directory.path(), &probed), Outcome::Written);
        fs::create_dir(probed.join(TEST_DIRECTORY)).unwrap();
        assert_eq!(outcome(none, &probed), Outcome::Written);
        assert_eq!(fs::read_dir(probed.join(TEST_DIRECTORY)).unwrap().count(), 0);
        // /proc is another file system, and has no files to be made.
        assert_eq!(outcome(directory.path(), Path::new("/proc")), Outcome::Synced);
    }

    #[test]
    fn links_are_followed_to_the_probed_directory_but_not_to_the_one_of_the_test_file() {
        let directory = tempfile::tempdir().unwrap();
        let (elsewhere, probed, link) =
            (directory.path().join("a"), directory.path().join("b"), directory.path().join("c"));
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir(&probed).unwrap();
        symlink(&elsewhere, probed.join(TEST_DIRECTORY)).unwrap();
        symlink(&probed, &link).unwrap();
        let probe = probe_with(Path::new("/no/such/directory"), &link, |_| ());
        assert_eq!((probe.outcome, probe.real_path), (Outcome::Synced, Some(fs::canonicalize(&probed).unwrap())));
    }

    #[test]
    fn what_is_no_directory_is_absent() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(outcome(Path::new("/"), file.path()), Outcome::Absent);
        assert_eq!(outcome(Path::new("/"), Path::new("/no/such/directory")), Outcome::Absent);
    }
}
