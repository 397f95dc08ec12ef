//! Files under a root: bounded reads, atomic writes, errors that name the path.
//!
//! The root is handed in, so that a test builds a little host in a folder and reads it with the real code.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the door that the ban on std::fs points to"
)]

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

/// By what a file that was changed or replaced is known: inode, and when it was last written.
pub type Stamp = (u64, i64, i64);

/// The folder that stands for `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

/// A file that could not be read or written, with the path as the operator knows it.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried: `read`, `list`, `write`.
    pub action: &'static str,
    /// The path below the root.
    pub path: PathBuf,
    /// The system's word.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Whether we may not do it, by the file's mode or on a file system that is read-only.
    pub fn is_forbidden(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self.source.kind(), PermissionDenied | ReadOnlyFilesystem)
    }

    /// Whether the file simply is not there.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// A folder that is kept open, so that to ask whether a name in it came, went or was replaced is one `fstat`: a walk along
/// the path costs several times as much, and an idle agent asks each second.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    open: Option<fs::File>,
    changed: Option<(i64, i64)>,
    /// The kernel's stamps are some milliseconds coarse: what changes right after a look may leave the stamp as it was.
    look_again: bool,
}

impl Folder {
    /// The folder `path`, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            open: None,
            changed: None,
            look_again: false,
        }
    }

    /// Whether its names may be others than at the last call; `true` at the first. Calls must be further apart than the
    /// kernel's stamps.
    pub fn may_have_changed(&mut self, root: &Root) -> bool {
        let stamp = self.stamp().or_else(|| {
            self.open = root.open(&self.path).ok();
            self.stamp()
        });
        let has_changed = stamp.is_none() || stamp != self.changed;
        self.changed = stamp;
        std::mem::replace(&mut self.look_again, has_changed) || has_changed
    }

    /// When its names last changed; `None` if it is not open, or was removed.
    fn stamp(&self) -> Option<(i64, i64)> {
        let stat = rustix::fs::fstat(self.open.as_ref()?).ok()?;
        let (secs, nanos) = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).ok()?);
        (stat.st_nlink > 0).then_some((secs, nanos))
    }
}

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// A root other than `/`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where `path` (absolute, as on the host) lies.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Reads a whole file, refusing one larger than `max_bytes` (which bounds our memory, whatever lies there).
    pub fn read(&self, path: impl AsRef<Path>, max_bytes: usize) -> Result<Vec<u8>, FileError> {
        let path = path.as_ref();
        read_bounded(&self.join(path), max_bytes).map_err(error("read", path))
    }

    /// As [`Root::read`], as text; bytes that are not UTF-8 become `U+FFFD`.
    pub fn read_text(&self, path: impl AsRef<Path>, max_bytes: usize) -> Result<String, FileError> {
        let bytes = self.read(path, max_bytes)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// Opens a file for reading again and again.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<fs::File, FileError> {
        let path = path.as_ref();
        fs::File::open(self.join(path)).map_err(error("open", path))
    }

    /// The names in a folder, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, FileError> {
        let path = path.as_ref();
        let mut names = fs::read_dir(self.join(path))
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
                    .collect::<io::Result<Vec<_>>>()
            })
            .map_err(error("list", path))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        let path = path.as_ref();
        fs::read_link(self.join(path)).map_err(error("read link", path))
    }

    /// Device and inode, by which a file that was replaced is known; `None` if it is not there.
    pub fn identity(&self, path: impl AsRef<Path>) -> Option<(u64, u64)> {
        let meta = fs::metadata(self.join(path)).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    /// What is different once the file was changed; `None` if it is not there.
    pub fn stamp(&self, path: impl AsRef<Path>) -> Option<Stamp> {
        let meta = fs::metadata(self.join(path)).ok()?;
        Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
    }

    /// Whether `path` is a folder.
    pub fn is_dir(&self, path: impl AsRef<Path>) -> bool {
        self.join(path).is_dir()
    }

    /// Replaces a file in one step: whoever reads it sees the old text or the new, never half.
    pub fn write_atomically(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), FileError> {
        let path = path.as_ref();
        let target = self.join(path);
        let mut temporary = target.clone().into_os_string();
        temporary.push(".new");
        fs::write(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, &target))
            .map_err(error("write", path))
    }

    /// As [`Root::write_atomically`], and on the disk when it returns: whoever reads it after a power loss does so too.
    pub fn write_durably(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), FileError> {
        let path = path.as_ref();
        let target = self.join(path);
        let mut temporary = target.clone().into_os_string();
        temporary.push(".new");
        let write = || {
            let mut file = fs::File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &target)?;
            // The new name too.
            let folder = target.parent().unwrap_or(&target);
            fs::File::open(folder)?.sync_all()
        };
        write().map_err(error("write", path))
    }

    /// As [`Root::write_atomically`], readable to all, in a folder that may belong to another user: who owns the folder
    /// can put links there, and root would write where they lead.
    pub fn write_in_foreign_folder(
        &self,
        path: impl AsRef<Path>,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        let path = path.as_ref();
        let target = self.join(path);
        let mut temporary = target.clone().into_os_string();
        temporary.push(".new");
        let write = || {
            remove(temporary.as_ref())?;
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true) // follows no link
                .mode(0o644)
                .open(&temporary)?;
            // Whatever the umask says.
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.write_all(bytes)?;
            fs::rename(&temporary, &target)
        };
        write().map_err(error("write", path))
    }

    /// Makes a new file that only its owner can read; refused if there is one, or a link.
    pub fn write_private(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), FileError> {
        let path = path.as_ref();
        let write = || {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.join(path))?;
            file.write_all(bytes)
        };
        write().map_err(error("write", path))
    }

    /// Removes a file; `false` if there is none.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool, FileError> {
        let path = path.as_ref();
        remove(&self.join(path)).map_err(error("remove", path))
    }

    /// Makes a folder and those above it.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        fs::create_dir_all(self.join(path)).map_err(error("create", path))
    }
}

/// `/etc/machine-id`; empty where there is none yet.
pub fn machine_id(root: &Root) -> String {
    let text = root.read_text("/etc/machine-id", 256).unwrap_or_default();
    text.trim().to_owned()
}

fn error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError {
        action,
        path,
        source,
    }
}

fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// A kubeconfig, a unit file, a row of `/proc`.
const USUAL_BYTES: usize = 4096;

/// A regular file, which those of `/proc` and `/sys` are, too. To open a FIFO would wait for a writer.
fn open_file(path: &Path) -> io::Result<fs::File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

fn read_bounded(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    // Most are smaller: one read for all of it, and one for the end.
    let mut bytes = Vec::with_capacity(max_bytes.min(USUAL_BYTES));
    open_file(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {max_bytes} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_folder_says_when_a_name_in_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::new(place.path());
        let mut folder = Folder::new("/run/ours");
        assert!(folder.may_have_changed(&root), "it is not there");
        root.create_dir_all("/run/ours").unwrap();
        let mut seconds = 0;
        // Twice after each change: the second is for what the stamp was too coarse for.
        let mut changes = |what: &str| {
            seconds += 1; // not the clock's, which may be too coarse for a test
            let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let dir = fs::File::open(root.join("/run/ours")).unwrap();
            dir.set_modified(stamp).unwrap();
            let looks = [(); 4].map(|()| folder.may_have_changed(&root));
            assert_eq!(looks, [true, true, false, false], "{what}");
        };
        changes("it is there");
        root.write_atomically("/run/ours/pause.json", b"x").unwrap();
        changes("a file came");
        root.remove("/run/ours/pause.json").unwrap();
        changes("a file went");
        fs::remove_dir(root.join("/run/ours")).unwrap();
        root.create_dir_all("/run/ours").unwrap();
        changes("it was made anew");
    }

    #[test]
    fn nothing_blocks_a_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        nix::unistd::mkfifo(&root.join("/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in ["/fifo", "/"] {
            let refused = root.read(path, 99).unwrap_err().to_string();
            assert!(refused.contains("regular file"), "{refused}");
        }
        let host = Root::default();
        assert!(host.read_text("/proc/self/stat", 4096).is_ok());
        assert!(host.read("/dev/zero", 99).is_err());
    }

    #[test]
    fn no_link_leads_a_write_astray() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        root.create_dir_all("/run").unwrap();
        root.write_atomically("/precious", b"as it was").unwrap();
        for link in ["/run/pause.json.new", "/run/pause.json"] {
            std::os::unix::fs::symlink(root.join("/precious"), root.join(link)).unwrap();
            root.write_in_foreign_folder("/run/pause.json", b"new")
                .unwrap();
            assert_eq!(root.read_text("/precious", 99).unwrap(), "as it was");
            assert_eq!(root.read_text("/run/pause.json", 99).unwrap(), "new");
            let before = root.stamp("/run/pause.json");
            assert!(before.is_some() && root.remove("/run/pause.json").unwrap());
            assert_eq!(root.stamp("/run/pause.json"), None);
        }
        assert!(!root.remove("/run/pause.json").unwrap());
    }
}
