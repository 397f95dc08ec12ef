//! Small text files: read up to a limit, replaced as a whole, compared with what they were.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
    file.set_permissions(Permissions::from_mode(mode))?; // whatever the umask is
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

/// What differs once a file has been written or replaced, or a name in a directory has come or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    path: PathBuf,
    /// Its inode, and the time of its last change in seconds and nanoseconds; none if the file is not there.
    state: Option<(u64, i64, i64)>,
}

impl FileState {
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

#[cfg(test)]
mod tests {
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
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
