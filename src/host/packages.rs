//! Whether a package manager changes the host's programs: whether it holds the lock on its file for writing.
//!
//! The kernel is asked (`F_GETLK` of fcntl(2)), and the lock is not tried, because for that moment the package manager could not take it.
//! /proc/locks says the same, but reading it waits for an RCU grace period, ten milliseconds (`locks_start` of fs/locks.c).

use std::{
    fs::File,
    path::Path,
    sync::{Arc, OnceLock},
    thread,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};

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
    /// It stays open, so that asking reads no disk.
    file: File,
}

impl PackageLocks {
    /// Looks for the lock files on a thread, because the disk may hang; nobody waits for it.
    pub fn find() -> Self {
        let locks = Self::default();
        let found = locks.clone();
        thread::spawn(move || found.0.set(find(Path::new("/"))));
        locks
    }

    /// The package manager that holds its lock, if one does.
    pub fn held(&self) -> Option<&'static str> {
        held(self.0.get()?)
    }
}

fn find(root: &Path) -> Vec<LockFile> {
    let find = |(package_manager, path): (&'static str, &str)| {
        let file = File::open(root.join(path.trim_start_matches('/'))).ok()?;
        Some(LockFile { package_manager, file })
    };
    LOCK_FILES.into_iter().filter_map(find).collect()
}

fn held(lock_files: &[LockFile]) -> Option<&'static str> {
    lock_files.iter().find(|lock| is_locked(&lock.file)).map(|lock| lock.package_manager)
}

/// Whether another process has locked any part of the file for writing. A query of rpm's takes a lock for reading.
fn is_locked(file: &File) -> bool {
    let mut lock = whole_file(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_GETLK(&mut lock)).is_ok() && i32::from(lock.l_type) == libc::F_WRLCK
}

fn whole_file(kind: i32) -> libc::flock {
    let short = |number| i16::try_from(number).unwrap_or_default();
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn only_a_lock_for_writing_that_is_held_counts() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("var/lib/dpkg/lock-frontend");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(find(root.path()).is_empty());
        File::create(&path).unwrap();
        let lock_files = find(root.path());
        assert_eq!(held(&lock_files), None);
        for (kind, holder) in [(libc::F_RDLCK, None), (libc::F_WRLCK, Some("dpkg"))] {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            // As another process's: a lock of the process's own would not be seen.
            fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(kind))).unwrap();
            assert_eq!(held(&lock_files), holder);
            drop(file);
            assert_eq!(held(&lock_files), None);
        }
        // flock(2), which everybody who may read the file can take.
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        assert_eq!(held(&lock_files), None);
    }
}
