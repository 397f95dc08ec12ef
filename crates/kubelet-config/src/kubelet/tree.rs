//! The files that the resolver reads, handed in: [`HostTree`](super::host_tree::HostTree) has the real ones, tests and fuzzers have
//! [`MemoryTree`].
//!
//! Paths are absolute, as on the host. Symbolic links resolve inside the tree, whatever they point to.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (only where the last link is not followed).
    Link,
    /// `/dev/null`, by its device numbers: a mask.
    Null,
    /// A FIFO, a socket, another device: nothing that may be opened.
    Other,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    pub(crate) size_bytes: u64,
    /// Permission bits, as `chmod` takes them.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    pub(crate) gid: u32,
}

/// Why something could not be had, said of its path: `X does not exist`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing is there, or a link leads nowhere.
    #[error("does not exist")]
    NotFound,
    /// Links that lead in a circle.
    #[error("has too many levels of symbolic links")]
    LinkLoop,
    /// A directory where a file was wanted, a FIFO, a socket, a device.
    #[error("is not a regular file")]
    NotAFile,
    /// Larger than we are ready to read.
    #[error("is larger than {max_bytes} bytes")]
    TooLarge {
        /// What we were ready to read.
        max_bytes: usize,
    },
    /// Whatever else the system said.
    #[error("cannot be read: {0}")]
    Io(String),
}

impl Unreadable {
    /// Whether there is simply nothing there.
    pub(crate) fn is_not_found(&self) -> bool {
        *self == Self::NotFound
    }

    /// The same as a sentence, for after a colon.
    pub(crate) fn sentence(&self) -> String {
        format!("it {self}")
    }
}

/// The most that is read of one file. systemd's own bound for a unit file is 1 MiB and for an environment file there
/// is none; a kubelet's files have a few kilobytes.
pub(crate) const MAX_FILE_BYTES: usize = 4 << 20;

/// The files under a root.
pub trait Tree {
    /// What lies at `path`, the last link not followed.
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable>;
    /// What lies at `path`, links followed inside the root.
    fn stat(&self, path: &Path) -> Result<Meta, Unreadable>;
    /// A regular file's content; never blocks on a FIFO, never reads more than `max_bytes`.
    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable>;
    /// The names in a directory, sorted bytewise.
    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable>;
    /// The target of the link at `path`, as it is written.
    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable>;
    /// `path` with every link resolved inside the root.
    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable>;

    /// A file's content, if it has at most `MAX_FILE_BYTES`.
    fn read(&self, path: &Path) -> Result<Vec<u8>, Unreadable> {
        self.read_bounded(path, MAX_FILE_BYTES)
    }

    /// As [`Tree::read`], as text; bytes that are not UTF-8 become `U+FFFD`.
    fn read_text(&self, path: &Path) -> Result<String, Unreadable> {
        let bytes = self.read(path)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Whether something is at `path`, links followed.
    fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_ok()
    }
}

#[derive(Debug, Clone)]
enum Entry {
    File(Vec<u8>),
    Link(PathBuf),
    Directory,
    Other,
}

/// A tree in memory.
#[must_use]
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    entries: BTreeMap<PathBuf, Entry>,
    modes: BTreeMap<PathBuf, u32>,
}

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;

/// As long a path as Linux takes (`PATH_MAX` in `linux/limits.h`).
const MAX_PATH_BYTES: usize = 4095;

impl MemoryTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, and the directories above it.
    pub fn file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.entries.insert(path.into(), Entry::File(content.into()));
        self
    }

    /// Adds a symbolic link.
    pub fn link(mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.entries.insert(path.into(), Entry::Link(target.into()));
        self
    }

    /// Adds an empty directory.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.entries.insert(path.into(), Entry::Directory);
        self
    }

    /// Adds a socket or a FIFO.
    pub fn other(mut self, path: impl Into<PathBuf>) -> Self {
        self.entries.insert(path.into(), Entry::Other);
        self
    }

    /// Gives a file other permission bits than 0644.
    pub fn mode(mut self, path: impl Into<PathBuf>, mode: u32) -> Self {
        self.modes.insert(path.into(), mode);
        self
    }

    /// Removes what is at `path`.
    pub fn without(mut self, path: impl AsRef<Path>) -> Self {
        self.entries.remove(path.as_ref());
        self
    }

    #[cfg(test)]
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::File(_))).map(|(path, _)| path)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path == Path::new("/")
            || self.entries.range(path.to_owned()..).any(|(entry, _)| entry != path && entry.starts_with(path))
    }

    /// Resolves the links of `path`; its last component too, if `follow_last`.
    fn resolve(&self, path: &Path, follow_last: bool) -> Result<PathBuf, Unreadable> {
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(Unreadable::Io("the path is too long".to_owned()));
        }
        let mut links = 0;
        let mut resolved = PathBuf::from("/");
        let mut rest: Vec<OsString> = names_reversed(path).collect();
        while let Some(name) = rest.pop() {
            if name.as_bytes() == b".." {
                resolved.pop();
                continue;
            }
            let next = resolved.join(&name);
            match self.entries.get(&next) {
                Some(Entry::Link(target)) if follow_last || !rest.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Unreadable::LinkLoop);
                    }
                    if target.is_absolute() {
                        resolved = PathBuf::from("/");
                    }
                    rest.extend(names_reversed(target));
                }
                _ => resolved = next,
            }
        }
        Ok(resolved)
    }

    fn meta(&self, path: &Path) -> Result<Meta, Unreadable> {
        let (kind, size) = match self.entries.get(path) {
            Some(Entry::File(content)) => (Kind::File, content.len()),
            Some(Entry::Link(_)) => (Kind::Link, 0),
            Some(Entry::Directory) => (Kind::Directory, 0),
            Some(Entry::Other) => (Kind::Other, 0),
            None if path == Path::new("/dev/null") => (Kind::Null, 0),
            None if self.is_directory(path) => (Kind::Directory, 0),
            None => return Err(Unreadable::NotFound),
        };
        let default_mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
        let mode = self.modes.get(path).copied().unwrap_or(default_mode);
        Ok(Meta { kind, size_bytes: size as u64, mode, uid: 0, gid: 0 })
    }
}

/// The names in a path, `..` too, the last one first.
fn names_reversed(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().rev().filter(|name| matches!(name, Component::Normal(_) | Component::ParentDir));
    names.map(|name| name.as_os_str().to_owned())
}

impl Tree for MemoryTree {
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.meta(&self.resolve(path, false)?)
    }

    fn stat(&self, path: &Path) -> Result<Meta, Unreadable> {
        self.meta(&self.resolve(path, true)?)
    }

    fn read_bounded(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        let path = self.resolve(path, true)?;
        match self.entries.get(&path) {
            Some(Entry::File(content)) if content.len() > max_bytes => Err(Unreadable::TooLarge { max_bytes }),
            Some(Entry::File(content)) => Ok(content.clone()),
            _ => match self.meta(&path)?.kind {
                Kind::Null => Ok(Vec::new()),
                _ => Err(Unreadable::NotAFile),
            },
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        let path = self.resolve(path, true)?;
        if self.meta(&path)?.kind != Kind::Directory {
            return Err(Unreadable::Io("not a directory".to_owned()));
        }
        let below = self.entries.keys().filter_map(|entry| entry.strip_prefix(&path).ok()?.components().next());
        let names: BTreeSet<OsString> = below.map(|name| name.as_os_str().to_owned()).collect();
        Ok(names.into_iter().collect())
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        match self.entries.get(&self.resolve(path, false)?) {
            Some(Entry::Link(target)) => Ok(target.clone()),
            Some(_) => Err(Unreadable::Io("no symbolic link".to_owned())),
            None => Err(Unreadable::NotFound),
        }
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        let real = self.resolve(path, true)?;
        self.meta(&real).map(|_| real)
    }
}
