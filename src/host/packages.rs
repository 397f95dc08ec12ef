//! Whether a package manager is at work: whether somebody holds its lock, which the kernel lists in `/proc/locks`.
//!
//! A lock file alone says nothing, since it stays for ever. Which files these are is looked up once, where a disk may
//! hang; to ask the kernel reads no disk.

use rustix::fs::{major, minor};

use super::files::Root;

/// Package managers and the files that they lock while they change the system.
const LOCKS: &[(&str, &str)] = &[
    ("dpkg", "/var/lib/dpkg/lock-frontend"), // apt, all the time
    ("dpkg", "/var/lib/dpkg/lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
];
/// A line is some 60 bytes. A host with more locks than fit is not read to the end of it: no hold then.
const MAX_BYTES: usize = 256 * 1024;

/// The lock files that this host has.
#[derive(Debug, Default)]
pub struct LockFiles(Vec<LockFile>);

#[derive(Debug)]
struct LockFile {
    manager: &'static str,
    device: u64,
    inode: u64,
}

impl LockFiles {
    /// Looks them up, on a disk that may hang.
    pub fn find(root: &Root) -> Self {
        let of = |(manager, path): &(&'static str, &str)| {
            let (device, inode) = root.identity(path)?;
            Some(LockFile {
                manager,
                device,
                inode,
            })
        };
        Self(LOCKS.iter().filter_map(of).collect())
    }

    /// Which package manager is at work.
    pub fn held(&self, root: &Root) -> Option<&'static str> {
        if self.0.is_empty() {
            return None;
        }
        let table = root.read_text("/proc/locks", MAX_BYTES).ok()?;
        let mut held = table.lines().filter_map(write_lock);
        held.find_map(|lock| Some(self.0.iter().find(|file| file.is(lock))?.manager))
    }
}

impl LockFile {
    /// Overlay and btrfs have device numbers for `stat` that are not those of the table; all of these have major 0.
    fn is(&self, (table_major, table_minor, inode): (u32, u32, u64)) -> bool {
        let ours = (major(self.device), minor(self.device));
        let same_device = ours == (table_major, table_minor) || (ours.0, table_major) == (0, 0);
        self.inode == inode && same_device
    }
}

/// A lock for writing that somebody has: `1: POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF`. One that is waited for has
/// an arrow.
fn write_lock(line: &str) -> Option<(u32, u32, u64)> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(6).collect();
    let [_, _, _, "WRITE", _, file] = words[..] else {
        return None;
    };
    let mut parts = file.split(':');
    let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    Some((major, minor, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use nix::{
        fcntl::{FcntlArg, OFlag, fcntl, open},
        sys::stat::Mode,
    };

    use super::*;

    #[test]
    fn only_a_lock_that_somebody_has_counts() {
        let lines = [
            ("1: POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF", true),
            (
                "1: -> POSIX  ADVISORY  WRITE 25921 fe:00:5406755 0 EOF",
                false,
            ),
            ("3: FLOCK  ADVISORY  READ 25921 fe:00:10053874 0 EOF", false),
            ("4: POSIX  ADVISORY  WRITE 1 fe:zz:1 0 EOF", false),
            ("5: POSIX  ADVISORY  WRITE 1 fe:00", false),
            ("", false),
        ];
        for (line, counts) in lines {
            assert_eq!(write_lock(line).is_some(), counts, "{line}");
        }
        assert_eq!(write_lock(lines[0].0), Some((0xfe, 0, 5_406_755)));
    }

    /// A little host whose `/proc/locks` is this machine's.
    #[test]
    fn a_real_lock_is_seen_while_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        root.create_dir_all("/var/lib/dpkg").unwrap();
        root.create_dir_all("/proc").unwrap();
        std::os::unix::fs::symlink("/proc/locks", root.join("/proc/locks")).unwrap();
        assert_eq!(LockFiles::find(&root).held(&root), None);
        root.write_atomically("/var/lib/dpkg/lock", b"").unwrap();
        let files = LockFiles::find(&root);
        assert_eq!(files.held(&root), None);
        let path = root.join("/var/lib/dpkg/lock");
        let file = open(&path, OFlag::O_RDWR, Mode::empty()).unwrap();
        let lock = nix::libc::flock {
            l_type: i16::try_from(nix::libc::F_WRLCK).unwrap(),
            l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap(),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_SETLK(&lock)).unwrap();
        assert_eq!(files.held(&root), Some("dpkg"));
        drop(file);
        assert_eq!(files.held(&root), None);
    }
}
