//! Files that only root can have written: every folder and every link on the way is looked at before it is followed.
//!
//! What is read as root on somebody's word must not be chosen by somebody else. So each component is opened below the one
//! before it, and has to be root's and writable by nobody else; so has what a link leads to. The kernel opens no component by
//! way of a link (`openat2(2)`, `RESOLVE_NO_SYMLINKS`), so neither `/proc/PID/root` nor `/proc/PID/fd` leads anywhere: the texts
//! of links are followed here, in this process's own mounts. Mount points are crossed. Nothing blocks: what is no regular file
//! is not opened.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat, openat2},
    io::Errno,
};

use super::{
    files::Root,
    tree::{self, HostTree, components, link_target, read_up_to},
};
use crate::kubelet::tree::{Meta, Tree, Unreadable};

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;
/// `PROC_SUPER_MAGIC` of `linux/magic.h`: what lies there is a process's, not somebody's file.
const PROC_FS: i64 = 0x9fa0;

/// Why a file is not read as root's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct NotTrusted {
    /// The file that was wanted.
    pub path: PathBuf,
    /// Why not.
    pub why: Why,
}

/// The kinds of [`NotTrusted`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is not there.
    #[error("not there")]
    Missing,
    /// A folder, a link or the file itself belongs to another user.
    #[error("{} belongs to uid {uid}; wanted root's, as every folder above it", at.display())]
    Foreign {
        /// The folder, link or file.
        at: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// A folder or the file itself can be written by others than its owner.
    #[error("{} can be written by others than root (mode {mode:04o}); take group's and others' right to write", at.display())]
    Writable {
        /// The folder or file.
        at: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is a folder, a FIFO, a device, a socket.
    #[error("{} is no regular file", at.display())]
    NotAFile {
        /// What stands there.
        at: PathBuf,
    },
    /// It lies below a mount of procfs, as a process's files and root folder do.
    #[error("{} lies in procfs, where processes' files are", at.display())]
    InProc {
        /// Where the way led into it.
        at: PathBuf,
    },
    /// It could not be opened or read.
    #[error("{0}")]
    Io(String),
}

impl NotTrusted {
    /// Whether there simply is no such file.
    pub fn is_missing(&self) -> bool {
        self.why == Why::Missing
    }
}

/// A file that only root can have written.
#[derive(Debug)]
pub struct Trusted {
    file: OwnedFd,
    /// Where it lies, every link followed.
    pub real: PathBuf,
}

/// Reads a file that only root can have written; a larger one than `max_bytes` is refused.
///
/// # Errors
/// Which folder or file is not root's alone, or why it cannot be read.
pub fn read(root: &Root, path: &Path, max_bytes: usize) -> Result<Vec<u8>, NotTrusted> {
    let found = find(root, path)?;
    let io = |why: String| NotTrusted {
        path: path.to_owned(),
        why: Why::Io(why),
    };
    read_up_to(found.file.as_fd(), max_bytes, 0).map_err(|error: Unreadable| io(error.to_string()))
}

/// As [`read`], as text; bytes that are not UTF-8 become `U+FFFD`.
///
/// # Errors
/// As of [`read`].
pub fn read_text(root: &Root, path: &Path, max_bytes: usize) -> Result<String, NotTrusted> {
    let bytes = read(root, path, max_bytes)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Opens a file that only root can have written. (`root` is the host's `/`; its owner is who is called root here.)
///
/// # Errors
/// As of [`read`].
pub fn find(root: &Root, path: &Path) -> Result<Trusted, NotTrusted> {
    let walked = Walk::begin(root).and_then(|walk| walk.along(path));
    walked.map_err(|why| NotTrusted {
        path: path.to_owned(),
        why,
    })
}

/// The files of a host, of which those alone are read that only root can have written.
#[derive(Debug)]
pub struct RootsTree {
    root: Root,
    host: HostTree,
}

impl RootsTree {
    /// The files below `root`.
    ///
    /// # Errors
    /// If it is no folder.
    pub fn new(root: &Root) -> Result<Self, Unreadable> {
        Ok(Self {
            root: root.clone(),
            host: HostTree::new(&root.join("/"))?,
        })
    }
}

impl Tree for RootsTree {
    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        read(&self.root, path, max_bytes).map_err(|error| match error.why {
            Why::Missing => Unreadable::NotFound,
            Why::NotAFile { .. } => Unreadable::NotAFile,
            why => Unreadable::Io(format!("is not read: {why}")),
        })
    }

    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.host.lstat(path)
    }

    fn stat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.host.stat(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        self.host.list(path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.host.read_link(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        self.host.real_path(path)
    }
}

/// How far the way was followed.
struct Walk {
    root: OwnedFd,
    owner: u32,
    real: PathBuf,
    /// The folders from below the root on.
    folders: Vec<OwnedFd>,
    links: usize,
}

impl Walk {
    fn begin(root: &Root) -> Result<Self, Why> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, root.join("/"), flags, Mode::empty()).map_err(why)?;
        let stat = fstat(&fd).map_err(why)?;
        let walk = Self {
            root: fd,
            owner: stat.st_uid,
            real: PathBuf::from("/"),
            folders: Vec::new(),
            links: 0,
        };
        walk.is_owners(&stat, Path::new("/"))?;
        Ok(walk)
    }

    fn along(mut self, path: &Path) -> Result<Trusted, Why> {
        let mut rest = components(path);
        while let Some(name) = rest.pop() {
            if name == ".." {
                self.real.pop();
                self.folders.pop();
                continue;
            }
            let at = self.real.join(&name);
            let fd = below(self.here(), &name, OFlags::PATH).map_err(why)?;
            if fstatfs(&fd).map_err(why)?.f_type == PROC_FS {
                return Err(Why::InProc { at });
            }
            let stat = fstat(&fd).map_err(why)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow(&fd, &stat, at, &mut rest)?,
                FileType::Directory if !rest.is_empty() => {
                    self.is_owners(&stat, &at)?;
                    self.real = at;
                    self.folders.push(fd);
                }
                FileType::RegularFile if rest.is_empty() => {
                    self.is_owners(&stat, &at)?;
                    return self.open(&name, &stat, at);
                }
                // A file where a folder was wanted: below it there is nothing.
                FileType::RegularFile => return Err(Why::Missing),
                _ => return Err(Why::NotAFile { at }),
            }
        }
        Err(Why::NotAFile { at: self.real })
    }

    /// A link has no mode of its own: it cannot be changed, only replaced, by whoever can write its folder.
    fn follow(
        &mut self,
        link: &OwnedFd,
        stat: &Stat,
        at: PathBuf,
        rest: &mut Vec<OsString>,
    ) -> Result<(), Why> {
        if stat.st_uid != self.owner {
            let uid = stat.st_uid;
            return Err(Why::Foreign { at, uid });
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(why(Errno::LOOP));
        }
        let target = link_target(link).map_err(why)?;
        if target.is_absolute() {
            self.real = PathBuf::from("/");
            self.folders.clear();
        }
        rest.extend(components(&target));
        Ok(())
    }

    /// The folders on the way are root's alone, so that it is still the file that was looked at; that is looked at again.
    fn open(&self, name: &OsStr, before: &Stat, at: PathBuf) -> Result<Trusted, Why> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = below(self.here(), name, flags).map_err(why)?;
        let stat = fstat(&file).map_err(why)?;
        if (stat.st_dev, stat.st_ino) != (before.st_dev, before.st_ino) {
            return Err(Why::Io("replaced while it was read; try again".to_owned()));
        }
        Ok(Trusted { file, real: at })
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root.as_fd(), AsFd::as_fd)
    }

    fn is_owners(&self, stat: &Stat, at: &Path) -> Result<(), Why> {
        let at = || at.to_owned();
        if stat.st_uid != self.owner {
            let uid = stat.st_uid;
            return Err(Why::Foreign { at: at(), uid });
        }
        // An access control list that lets somebody write shows in the group's bits.
        if stat.st_mode & 0o022 != 0 {
            let mode = stat.st_mode & 0o7777;
            return Err(Why::Writable { at: at(), mode });
        }
        Ok(())
    }
}

/// One component below a folder, itself and not what it leads to.
fn below(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(folder, name, flags, Mode::empty(), resolve) {
        // Before Linux 5.6, or in a sandbox that forbids it. One component that is not followed leads nowhere else either.
        Err(Errno::NOSYS | Errno::PERM) => tree::below(folder, name, flags),
        opened => opened,
    }
}

fn why(errno: Errno) -> Why {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Why::Missing,
        errno => Why::Io(io::Error::from(errno).to_string()),
    }
}

#[cfg(test)]
mod tests;
