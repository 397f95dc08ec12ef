//! The files below a root, of this host or of an image: no symbolic link leads outside the root, nothing
//! blocks, and only regular files and directories are opened.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, makedev, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::tree::{Kind, Meta, Tree, Unreadable};

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;
/// More than any directory of units or configuration has. It bounds memory and time.
const MAX_NAMES: usize = 10_000;
/// `openat2` is tried again this often when a directory was renamed meanwhile, anywhere on the host (openat2(2), `EAGAIN`).
const MAX_TRIES: usize = 16;
const NULL: &str = "/dev/null";
/// What replaces `/dev/null` in a root without devices, such as that of an image.
const NULL_META: Meta = Meta { kind: Kind::Null, size_bytes: 0, mode: 0o666, uid: 0, gid: 0 };

/// The files below a root.
#[derive(Debug)]
pub struct HostTree {
    root: File,
    is_this_host: bool,
    denied: RefCell<BTreeSet<PathBuf>>,
}

impl HostTree {
    /// The files below `root`, a directory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn new(root: &Path) -> Result<Self, Unreadable> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty()).map(File::from).map_err(|errno| match errno {
            Errno::NOTDIR => Unreadable::Io("not a directory".to_owned()),
            errno => unreadable(errno),
        })?;
        let identity = |meta: Metadata| (meta.dev(), meta.ino());
        let own = std::fs::metadata("/").map(identity).map_err(|error| io_error(&error))?;
        let is_this_host = root.metadata().is_ok_and(|meta| identity(meta) == own);
        Ok(Self { root, is_this_host, denied: RefCell::default() })
    }

    /// Whether it is the root of the host that we run on.
    pub const fn is_this_host(&self) -> bool {
        self.is_this_host
    }

    /// What this user may not read, of all that was asked for so far.
    pub fn denied(&self) -> BTreeSet<PathBuf> {
        self.denied.borrow().clone()
    }

    /// Opens what is at `path`; with `O_NOFOLLOW` its last link itself.
    fn open(&self, path: &Path, flags: OFlags) -> Result<File, Unreadable> {
        let opened = self.try_open(path, flags | OFlags::CLOEXEC);
        if matches!(opened, Err(Errno::ACCESS | Errno::PERM)) {
            self.denied.borrow_mut().insert(path.to_owned());
        }
        opened.map(File::from).map_err(unreadable)
    }

    fn try_open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.is_this_host {
            return openat(&self.root, path, flags, Mode::empty());
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let open = || openat2(&self.root, path, flags, Mode::empty(), resolve);
        let is_final = |opened: &Result<_, Errno>| !matches!(opened, Err(Errno::AGAIN | Errno::INTR));
        (1..MAX_TRIES).map(|_| open()).find(is_final).unwrap_or_else(open)
    }

    fn found(&self, path: &Path, flags: OFlags) -> Result<Meta, Unreadable> {
        let file = self.open(path, OFlags::PATH | flags)?;
        file.metadata().map(|metadata| meta(&metadata)).map_err(|error| io_error(&error))
    }

    /// Whether `path` is a link to `/dev/null`, over others or not. A root without devices has no such file.
    fn leads_to_null(&self, path: &Path) -> bool {
        let target = |link: &PathBuf| Some(link.parent()?.join(self.read_link(link).ok()?));
        let mut links = std::iter::successors(Some(path.to_owned()), target).take(MAX_LINKS);
        links.any(|path| path.ends_with("dev/null"))
    }
}

impl Tree for HostTree {
    fn lstat(&self, path: &Path) -> Result<Meta, Unreadable> {
        match self.found(path, OFlags::NOFOLLOW) {
            Err(Unreadable::NotFound) if path == Path::new(NULL) => Ok(NULL_META),
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
        // Before it is opened: opening a device may set it off.
        match self.stat(path)?.kind {
            Kind::File => {}
            Kind::Null => return Ok(Vec::new()),
            _ => return Err(Unreadable::NotAFile),
        }
        let file = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let metadata = file.metadata().map_err(|error| io_error(&error))?;
        if !metadata.is_file() {
            return Err(Unreadable::NotAFile); // replaced meanwhile
        }
        let too_large = Unreadable::TooLarge { max_bytes };
        if metadata.len() > max_bytes as u64 {
            return Err(too_large);
        }
        // Files below /proc have the size 0, and others grow.
        let mut bytes = Vec::new();
        file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(|error| io_error(&error))?;
        if bytes.len() > max_bytes { Err(too_large) } else { Ok(bytes) }
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, Unreadable> {
        if self.found(path, OFlags::empty())?.kind != Kind::Directory {
            return Err(Unreadable::Io("not a directory".to_owned()));
        }
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == MAX_NAMES {
                return Err(Unreadable::Io(format!("more than {MAX_NAMES} names")));
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        let link = self.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        if !link.metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(Unreadable::Io("no symbolic link".to_owned()));
        }
        let target = readlinkat(link, c"", Vec::new()).map_err(unreadable)?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, Unreadable> {
        let file = match self.open(path, OFlags::PATH) {
            Err(Unreadable::NotFound) if self.leads_to_null(path) => return Ok(PathBuf::from(NULL)),
            file => file?,
        };
        let path_of = |file: &File| std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let paths = path_of(&file).and_then(|path| Ok((path, path_of(&self.root)?)));
        let (real, root) = paths.map_err(|error| io_error(&error))?;
        let below = real.strip_prefix(root).map_err(|_| Unreadable::Io("outside of the root".to_owned()))?;
        Ok(Path::new("/").join(below))
    }
}

fn meta(metadata: &Metadata) -> Meta {
    let kind = match FileType::from_raw_mode(metadata.mode()) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::CharacterDevice if metadata.rdev() == makedev(1, 3) => Kind::Null,
        _ => Kind::Other,
    };
    Meta { kind, size_bytes: metadata.len(), mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() }
}

fn io_error(error: &io::Error) -> Unreadable {
    Errno::from_io_error(error).map_or_else(|| Unreadable::Io(error.to_string()), unreadable)
}

fn unreadable(errno: Errno) -> Unreadable {
    match errno {
        // A file in place of a directory: below it there is nothing.
        Errno::NOENT | Errno::NOTDIR => Unreadable::NotFound,
        Errno::LOOP => Unreadable::LinkLoop,
        Errno::NXIO => Unreadable::NotAFile,
        errno => Unreadable::Io(reason(&errno.into())),
    }
}

/// What an error says, without its number, such as `connection refused`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_stay_inside_the_root_and_only_files_are_read() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/file"), "inside").unwrap();
        fs::write(outside.path().join("secret"), "outside").unwrap();
        for (link, target) in [
            ("absolute", "/etc/file"),
            ("above", "../../../../etc/file"),
            ("escape", "../../secret"),
            ("loop", "loop"),
            ("masked", "../dev/null"),
            ("masked-too", "/etc/masked"),
        ] {
            symlink(target, root.join("etc").join(link)).unwrap();
        }
        let _socket = UnixListener::bind(root.join("etc/socket")).unwrap();
        let tree = HostTree::new(&root).unwrap();
        assert!(!tree.is_this_host());
        let read = |name: &str| tree.read_bounded(&Path::new("/etc").join(name), 6);
        for link in ["file", "absolute", "above"] {
            assert_eq!(read(link).unwrap(), b"inside", "{link}");
            assert_eq!(tree.real_path(&Path::new("/etc").join(link)).unwrap(), Path::new("/etc/file"));
        }
        assert_eq!(read("escape"), Err(Unreadable::NotFound));
        assert_eq!(read("loop"), Err(Unreadable::LinkLoop));
        assert_eq!(read("socket"), Err(Unreadable::NotAFile));
        for masked in ["masked", "masked-too"] {
            assert_eq!(read(masked), Ok(Vec::new()));
            let path = Path::new("/etc").join(masked);
            assert_eq!(tree.stat(&path).unwrap().kind, Kind::Null);
            assert_eq!(tree.lstat(&path).unwrap().kind, Kind::Link);
            assert_eq!(tree.real_path(&path).unwrap(), Path::new(NULL));
        }
        assert_eq!(tree.read_bounded(Path::new("/etc/file"), 5), Err(Unreadable::TooLarge { max_bytes: 5 }));
        assert_eq!(tree.list(Path::new("/etc/file")), Err(Unreadable::Io("not a directory".into())));
        assert_eq!(tree.list(Path::new("/")).unwrap(), ["etc"]);
    }

    #[test]
    fn the_running_host_is_recognised_and_its_proc_can_be_read() {
        let tree = HostTree::new(Path::new("/usr/..")).unwrap();
        assert!(tree.is_this_host());
        assert!(tree.read_text(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
        assert_eq!(HostTree::new(Path::new("/etc/passwd")).unwrap_err().to_string(), "cannot be read: not a directory");
    }
}
