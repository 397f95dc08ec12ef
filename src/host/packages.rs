//! Whether a package manager changes the host's programs: whether it holds its lock, by /proc/locks
//! (<https://man7.org/linux/man-pages/man5/proc_locks.5.html>).
//!
//! The lock is not tried, because for that moment the package manager could not take it.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, OnceLock},
    thread,
};

use rustix::fs::{major, minor};

/// The files that package managers lock while they install something (apt and dnf call dpkg and rpm).
const LOCK_FILES: [(&str, &str); 4] = [
    ("dpkg", "/var/lib/dpkg/lock-frontend"),
    ("dpkg", "/var/lib/dpkg/lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
];

/// The lock files of this host, once they have been looked for.
#[derive(Debug, Clone, Default)]
pub struct PackageLocks(Arc<OnceLock<Vec<LockFile>>>);

#[derive(Debug)]
struct LockFile {
    package_manager: &'static str,
    device: u64,
    inode: u64,
}

impl PackageLocks {
    /// Looks for the lock files on a thread, because the disk may hang; nobody waits for it.
    pub fn find() -> Self {
        let locks = Self::default();
        let found = locks.clone();
        thread::spawn(move || found.0.set(find(Path::new("/"))));
        locks
    }

    /// The package manager that holds its lock, if one does. This reads no disk.
    pub fn held(&self) -> Option<&'static str> {
        let lock_files = self.0.get().filter(|files| !files.is_empty())?;
        held(lock_files, BufReader::new(File::open("/proc/locks").ok()?))
    }
}

fn find(root: &Path) -> Vec<LockFile> {
    let find = |(package_manager, path): (&'static str, &str)| {
        let meta = fs::metadata(root.join(path.trim_start_matches('/'))).ok()?;
        Some(LockFile { package_manager, device: meta.dev(), inode: meta.ino() })
    };
    LOCK_FILES.into_iter().filter_map(find).collect()
}

fn held(lock_files: &[LockFile], table: impl BufRead) -> Option<&'static str> {
    let locked = table.lines().map_while(Result::ok).filter_map(|line| write_lock(&line));
    let mut holder = locked.filter_map(|lock| lock_files.iter().find(|file| file.is(lock)));
    holder.next().map(|file| file.package_manager)
}

impl LockFile {
    /// On overlayfs and btrfs, stat(2) and the table show different devices. All of them have major 0.
    fn is(&self, (table_major, table_minor, inode): (u32, u32, u64)) -> bool {
        let (major, minor) = (major(self.device), minor(self.device));
        self.inode == inode && ((major, minor) == (table_major, table_minor) || (major, table_major) == (0, 0))
    }
}

/// Device and inode of a lock for writing that is held: `1: POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF`. In the line of a lock that
/// somebody waits for, `->` comes before `POSIX`. Package managers take no lock of another class, and everybody who may read a file can
/// take a `FLOCK`.
fn write_lock(line: &str) -> Option<(u32, u32, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (class, mode, file) = (words.nth(1)?, words.nth(1)?, words.nth(1)?);
    let (device, inode) = file.rsplit_once(':')?;
    let (major, minor) = device.split_once(':')?;
    let hex = |number| u32::from_str_radix(number, 16).ok();
    ((class, mode) == ("POSIX", "WRITE")).then_some((hex(major)?, hex(minor)?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, fcntl_lock};

    use super::*;

    #[test]
    fn only_a_lock_for_writing_that_is_held_counts() {
        let is_held = |line: &str| {
            let lock_files =
                [LockFile { package_manager: "dpkg", device: rustix::fs::makedev(0xfe, 0), inode: 5_406_755 }];
            held(&lock_files, line.as_bytes()) == Some("dpkg")
        };
        assert!(is_held("1: POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF"));
        for other in [
            "1: -> POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF",
            "1: POSIX  ADVISORY  READ 25921 fe:00:5406755 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF",
            "1: POSIX  ADVISORY  WRITE 25921 fe:01:5406755 0 EOF",
            "1: POSIX  ADVISORY  WRITE 25921 fe:00:5406756 0 EOF",
            "1: POSIX  ADVISORY  WRITE 1 fe:zz:1 0 EOF",
            "1: POSIX  ADVISORY  WRITE",
            "",
        ] {
            assert!(!is_held(other), "{other}");
        }
    }

    #[test]
    fn a_lock_of_this_host_is_seen_while_it_is_held() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("var/lib/dpkg/lock-frontend");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(find(root.path()).is_empty());
        let file = File::create(&path).unwrap();
        let lock_files = find(root.path());
        let is_held = || held(&lock_files, BufReader::new(File::open("/proc/locks").unwrap()));
        assert_eq!(is_held(), None);
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(is_held(), Some("dpkg"));
        drop(file);
        assert_eq!(is_held(), None);
    }
}
