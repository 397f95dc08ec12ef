//! The files below a root, as the resolver reads them: no symbolic link leads outside, nothing blocks, nothing is
//! opened but regular files and folders.
//!
//! The kernel does the work where it can: `openat2` with `RESOLVE_IN_ROOT` (Linux 5.6). Where it is not to be had (an
//! older kernel, a sandbox that forbids it), and where the resolved path itself is asked for, each component is opened
//! below the one before it, and the text of each link is followed from there.

mod open;

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
    },
    io::Errno,
};

use crate::kubelet::tree::{Kind, Meta, Tree, Unreadable};

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;
/// More names than any folder of units or configuration holds; it bounds memory and time.
const MAX_NAMES: usize = 10_000;
/// How often `openat2` is asked again when a folder above the file was renamed meanwhile.
const MAX_RACES: usize = 16;
/// Read at once.
const CHUNK_BYTES: usize = 64 * 1024;
const NULL: &str = "/dev/null";

/// The files below a root.
#[derive(Debug)]
pub struct HostTree {
    root: OwnedFd,
    has_openat2: bool,
}

/// Where a path leads, even if nothing is there.
struct Walked {
    real: PathBuf,
    /// The folders on the way and the end itself; shorter than `real` where something is missing.
    fds: Vec<OwnedFd>,
    missing: Option<Errno>,
}

impl HostTree {
    /// The files below `root`, which has to be a folder.
    pub fn new(root: &Path) -> Result<Self, Unreadable> {
        let root = openat(
            CWD,
            root,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| match errno {
            Errno::NOTDIR => Unreadable::Io("is not a folder".to_owned()),
            errno => unreadable(errno),
        })?;
        let mut tree = Self {
            root,
            has_openat2: true,
        };
        tree.has_openat2 = tree.open_in_root(Path::new("/"), OFlags::PATH).is_ok();
        Ok(tree)
    }

    /// Opens what is at `path`; with `O_NOFOLLOW` its last link itself.
    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.has_openat2 {
            return self.open_in_root(path, flags);
        }
        let mut walked = self.walk(path, !flags.contains(OFlags::NOFOLLOW))?;
        if let Some(errno) = walked.missing {
            return Err(errno);
        }
        let end = walked.fds.pop();
        let parent = walked.fds.last().map_or(self.root.as_fd(), AsFd::as_fd);
        match (end, walked.real.file_name()) {
            (Some(end), Some(_)) if flags.contains(OFlags::PATH) => Ok(end),
            (Some(_), Some(name)) => below(parent, name, flags),
            _ => below(self.root.as_fd(), OsStr::new("."), flags),
        }
    }

    fn open_in_root(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..MAX_RACES {
            result = openat2(
                &self.root,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            );
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result
    }

    /// Follows the links of `path` below the root; its last one too, if `follow_last`.
    fn walk(&self, path: &Path, follow_last: bool) -> Result<Walked, Errno> {
        let mut walked = Walked {
            real: PathBuf::from("/"),
            fds: Vec::new(),
            missing: None,
        };
        let mut links = 0;
        let mut rest = components(path);
        while let Some(name) = rest.pop() {
            if name == ".." {
                if let Some(errno) = walked.missing {
                    return Err(errno);
                }
                walked.real.pop();
                walked.fds.pop();
                continue;
            }
            if walked.missing.is_some() {
                walked.real.push(name);
                continue;
            }
            let parent = walked.fds.last().map_or(self.root.as_fd(), AsFd::as_fd);
            match below(parent, &name, OFlags::PATH) {
                Ok(fd) if is_link(&fd)? && (follow_last || !rest.is_empty()) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let target = link_target(&fd)?;
                    if target.is_absolute() {
                        walked.real = PathBuf::from("/");
                        walked.fds.clear();
                    }
                    rest.extend(components(&target));
                }
                Ok(fd) => {
                    walked.real.push(name);
                    walked.fds.push(fd);
                }
                Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
                    walked.real.push(name);
                    walked.missing = Some(errno);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(walked)
    }

    /// Whether `path` leads to `/dev/null`, though the root has no devices: an image's tree.
    fn leads_to_null(&self, path: &Path) -> bool {
        self.walk(path, true)
            .is_ok_and(|walked| walked.real == Path::new(NULL))
    }

    fn found(&self, path: &Path, flags: OFlags) -> Result<Meta, Unreadable> {
        self.open(path, OFlags::PATH | flags)
            .and_then(fstat)
            .map(|stat| meta(&stat))
            .map_err(unreadable)
    }
}

impl Tree for HostTree {
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        match self.found(path, OFlags::NOFOLLOW) {
            Err(Unreadable::NotFound) if is_null(path) => Ok(NULL_META),
            found => found,
        }
    }

    fn stat(&self, path: &Path) -> Result<Meta, Unreadable> {
        match self.found(path, OFlags::empty()) {
            Err(Unreadable::NotFound) if self.leads_to_null(path) => Ok(NULL_META),
            found => found,
        }
    }

    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        match self.open_regular(path)? {
            Some((file, meta)) => read_up_to(file.as_fd(), max_bytes, meta.size_bytes),
            None => Ok(Vec::new()),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let folder = match self.open(path, flags) {
            Ok(folder) => folder,
            Err(Errno::NOTDIR) if self.stat(path).is_ok() => {
                return Err(Unreadable::Io("is not a folder".to_owned()));
            }
            Err(errno) => return Err(unreadable(errno)),
        };
        let mut names = Vec::new();
        for entry in Dir::new(folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == MAX_NAMES {
                let why = format!("holds more than {MAX_NAMES} names");
                return Err(Unreadable::Io(why));
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        let fd = self
            .open(path, OFlags::PATH | OFlags::NOFOLLOW)
            .map_err(unreadable)?;
        if !is_link(&fd).map_err(unreadable)? {
            return Err(Unreadable::Io("is no symbolic link".to_owned()));
        }
        link_target(&fd).map_err(unreadable)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        let walked = self.walk(path, true).map_err(unreadable)?;
        match walked.missing {
            Some(errno) if !is_null(&walked.real) => Err(unreadable(errno)),
            _ => Ok(walked.real),
        }
    }
}

/// What stands for `/dev/null` in a root without devices.
const NULL_META: Meta = Meta {
    kind: Kind::Null,
    size_bytes: 0,
    mode: 0o666,
    uid: 0,
    gid: 0,
    modified_nanos: 0,
};

fn is_null(path: &Path) -> bool {
    path == Path::new(NULL)
}

pub(super) fn below(parent: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Symlink)
}

pub(super) fn link_target(fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let target = readlinkat(fd, c"", Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// The names of a path, the first one last.
pub(super) fn components(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

fn meta(stat: &Stat) -> Meta {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        FileType::CharacterDevice if stat.st_rdev == rustix::fs::makedev(1, 3) => Kind::Null,
        _ => Kind::Other,
    };
    Meta {
        kind,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_nanos: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
    }
}

/// Reads to the end. Files below `/proc` have the size 0, and others grow while they are read: the size is a hint.
pub(super) fn read_up_to(
    file: BorrowedFd<'_>,
    max_bytes: usize,
    size_hint: u64,
) -> Result<Vec<u8>, Unreadable> {
    let hint = usize::try_from(size_hint).unwrap_or(usize::MAX);
    if hint > max_bytes {
        return Err(Unreadable::TooLarge { max_bytes });
    }
    let mut bytes = Vec::with_capacity(hint);
    let mut chunk = vec![0; CHUNK_BYTES.min(hint.max(4096))];
    loop {
        match rustix::io::read(file, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend(chunk.iter().take(count)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
        if bytes.len() > max_bytes {
            return Err(Unreadable::TooLarge { max_bytes });
        }
    }
}

fn unreadable(errno: Errno) -> Unreadable {
    match errno {
        // A file where a folder was wanted: below it there is nothing.
        Errno::NOENT | Errno::NOTDIR => Unreadable::NotFound,
        Errno::LOOP => Unreadable::LinkLoop,
        Errno::NXIO => Unreadable::NotAFile,
        errno => {
            let text = io::Error::from(errno).to_string();
            let words = text.split(" (os error").next().unwrap_or(&text);
            Unreadable::Io(words.to_lowercase())
        }
    }
}

#[cfg(test)]
mod tests;
