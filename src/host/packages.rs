//! Whether a package manager changes the host's programs: whether it holds its lock for writing.
//!
//! The kernel is asked (`F_GETLK` of fcntl(2)), and the lock is not tried, because for that moment the package manager could not take it.
//! /proc/locks has the same, but reading it waits for an RCU grace period, ten milliseconds (`locks_start` of fs/locks.c).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::blocking;
use crate::condition::Uptime;

/// The files that package managers lock while they install something (apt and dnf call dpkg and rpm).
const LOCK_FILES: [(&str, &str); 4] = [
    ("dpkg", "/var/lib/dpkg/lock-frontend"),
    ("dpkg", "/var/lib/dpkg/lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
];
/// Where packages have their units. Replacing one changes the directory.
const UNIT_DIRECTORIES: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];
/// Asking takes longer only if a disk or a file server does not answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Then it is asked again after this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The locks of this host's package managers.
#[derive(Debug, Default)]
pub struct PackageLocks {
    ask_again_at: Uptime,
    /// The last answer.
    holder: Option<&'static str>,
}

impl PackageLocks {
    /// The package manager that holds its lock. While that cannot be found out, the last answer holds: a host under load must not end
    /// the suppression of an upgrade.
    pub async fn holder(&mut self, now: Uptime) -> Option<&'static str> {
        if now < self.ask_again_at {
            return self.holder;
        }
        let asked = blocking::run("asking for a package manager's lock", TIMEOUT, || holder(Path::new("/"))).await;
        match asked {
            Ok(holder) => self.holder = holder,
            Err(_) => self.ask_again_at = now + ASK_AGAIN_AFTER,
        }
        self.holder
    }
}

/// Whether a package manager holds its lock, and whether it has replaced, added or removed a packaged unit since then. It waits for the
/// disk.
pub fn read(root: &Path, since: SystemTime) -> (bool, bool) {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_new = |path: &&str| {
        let meta = fs::metadata(root.join(path));
        meta.is_ok_and(|meta| u64::try_from(meta.ctime()).is_ok_and(|at| at >= since))
    };
    (holder(root).is_some(), UNIT_DIRECTORIES.iter().any(is_new))
}

/// The files are opened each time: scripts wait with fuser(1) until no process has them open.
fn holder(root: &Path) -> Option<&'static str> {
    let is_locked = |path: &str| {
        let file = File::open(root.join(path.trim_start_matches('/'))).ok()?;
        // What keeps others from reading: a lock for writing. A query of rpm's takes one for reading.
        let mut lock = whole_file(libc::F_RDLCK);
        fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
        Some(i32::from(lock.l_type) == libc::F_WRLCK)
    };
    LOCK_FILES.iter().find(|(_, path)| is_locked(path) == Some(true)).map(|(package_manager, _)| *package_manager)
}

fn whole_file(kind: i32) -> libc::flock {
    let short = |number| i16::try_from(number).unwrap_or_default();
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_directory_of_units_that_has_changed_since_then_was_replaced() {
        let root = tempfile::tempdir().unwrap();
        let units = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        let changed = fs::metadata(units).unwrap().ctime().cast_unsigned();
        let after = |secs| UNIX_EPOCH + Duration::from_secs(changed + secs);
        assert_eq!(read(root.path(), after(0)), (false, true));
        assert_eq!(read(root.path(), after(1000)), (false, false));
    }

    #[test]
    fn only_a_lock_for_writing_that_is_held_counts() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("var/lib/dpkg/lock-frontend");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(holder(root.path()), None);
        File::create(&path).unwrap();
        assert_eq!(holder(root.path()), None);
        for (kind, wanted) in [(libc::F_RDLCK, None), (libc::F_WRLCK, Some("dpkg"))] {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            // As another process's: a lock of the process's own would not be seen.
            fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(kind))).unwrap();
            assert_eq!(holder(root.path()), wanted);
            drop(file);
            assert_eq!(holder(root.path()), None);
        }
        // flock(2), which every process that may read the file can take.
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        assert_eq!(holder(root.path()), None);
    }
}
