//! Small text files: read up to a limit, replaced as a whole, compared with what they were; who can have written one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;
/// The user to whom a credential must belong.
pub const ROOT_UID: u32 = 0;

/// The text of a file of at most `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the file is larger than {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8 text"))
}

/// Replaces a file: a reader finds the old text or the new one, also after a power failure. It waits for the disk.
pub fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let temporary = path.with_added_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
    let replaced = (|| {
        file.set_permissions(Permissions::from_mode(mode))?; // whatever the umask is
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if replaced.is_err() {
        fs::remove_file(temporary).ok();
    }
    replaced
}

/// State that changes when a file is written or replaced, or when the names in a directory change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    path: PathBuf,
    /// Its inode, and the time of its last change in seconds and nanoseconds; none if the file is not there.
    state: Option<(u64, i64, i64)>,
}

impl FileVersion {
    /// What is there now. It waits for the disk.
    pub fn of(path: &Path) -> Self {
        let state = fs::metadata(path).ok().map(|meta| (meta.ino(), meta.ctime(), meta.ctime_nsec()));
        Self { path: path.to_owned(), state }
    }

    /// Whether the file has changed since.
    pub fn has_changed(&self) -> bool {
        Self::of(&self.path) != *self
    }
}

/// Fails unless `path` is a file that `owner` alone can have written: the file, every directory and every link on the way
/// belong to `owner`, and only `owner` may write the file and the directories. `root` is used as `/`.
pub fn check_owner(root: &Path, path: &Path, owner: u32, links: usize) -> anyhow::Result<()> {
    let (mut at, mut rest) = (root.to_owned(), path.strip_prefix(root).unwrap_or(path).components());
    while let Some(component) = rest.next() {
        if component == Component::RootDir {
            continue;
        }
        at.push(component);
        let meta = fs::symlink_metadata(&at).with_context(|| at.display().to_string())?;
        if meta.uid() != owner {
            bail!("{} belongs to uid {} instead of uid {owner}: chown it", at.display(), meta.uid());
        }
        if meta.is_symlink() {
            if links == MAX_LINKS {
                bail!("{}: too many symbolic links", at.display());
            }
            let target = fs::read_link(&at).with_context(|| at.display().to_string())?;
            return check_owner(root, &at.with_file_name(target).join(rest), owner, links + 1);
        }
        if meta.mode() & 0o022 != 0 {
            let mode = meta.mode() & 0o7777;
            bail!("{} (mode {mode:04o}) is writable by users other than its owner: chmod go-w it", at.display());
        }
    }
    Ok(())
}

/// Fails if every user can read the file: its mode and that of every directory above it let them.
pub fn check_secret(path: &Path) -> anyhow::Result<()> {
    let at = |path: &Path| path.display().to_string();
    let real = fs::canonicalize(path).with_context(|| at(path))?;
    let mode = fs::metadata(&real).with_context(|| at(&real))?.mode();
    let is_open = |directory: &Path| fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o001 != 0);
    if mode & 0o004 != 0 && real.ancestors().skip(1).all(is_open) {
        bail!(
            "{} (mode {:04o}) has a key or a token, and every user can read it: chmod o-r it",
            at(path),
            mode & 0o7777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        replace(&path, 0o600, "old and longer").unwrap();
        replace(&path, 0o644, "new").unwrap();
        assert_eq!(read(&path, 3).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(read(&path, 2).unwrap_err().to_string(), "the file is larger than 2 bytes");
        fs::create_dir(directory.path().join("a")).unwrap();
        replace(&directory.path().join("a"), 0o600, "").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn a_secret_that_every_user_can_read_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let (directory, file) = (root.path(), root.path().join("token"));
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let check = || check_secret(&file).map_err(|error| error.to_string());
        set(directory, 0o755);
        set(&file, 0o644);
        let error = check().unwrap_err();
        assert!(error.contains("token (mode 0644) has a key or a token, and every user can read it"), "{error}");
        set(directory, 0o700);
        assert_eq!(check(), Ok(()), "nobody else gets to it");
        set(directory, 0o755);
        set(&file, 0o640);
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn a_file_that_another_user_could_have_written_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let owner = fs::metadata(root).unwrap().uid();
        let set = |path: &str, mode| fs::set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
        let fault = |path: &str| {
            check_owner(root, Path::new(path), owner, 0).map_or_else(|error| format!("{error:#}"), |()| "none".into())
        };
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("etc/file"), "").unwrap();
        symlink("../etc/file", root.join("etc/relative")).unwrap();
        symlink("/etc/file", root.join("etc/absolute")).unwrap();
        symlink("loop", root.join("etc/loop")).unwrap();
        let paths = ["/etc/file", "/etc/relative", "/etc/absolute", "/etc/../etc/file"];
        set("etc", 0o755);
        set("etc/file", 0o600);
        assert_eq!(paths.map(fault), ["none"; 4]);
        set("etc/file", 0o620);
        assert!(
            paths
                .map(fault)
                .iter()
                .all(|fault| fault.contains("etc/file (mode 0620) is writable by users other than its owner"))
        );
        set("etc/file", 0o600);
        set("etc", 0o777);
        assert!(
            paths
                .map(fault)
                .iter()
                .all(|fault| fault.contains("etc (mode 0777) is writable by users other than its owner"))
        );
        set("etc", 0o755);
        let other = check_owner(root, Path::new("/etc/file"), owner + 1, 0).unwrap_err().to_string();
        assert!(other.contains(&format!("belongs to uid {owner} instead of uid {}", owner + 1)), "{other}");
        assert!(fault("/etc/loop").contains("too many symbolic links"));
        assert!(fault("/etc/missing").contains("etc/missing: No such file"));
    }
}
