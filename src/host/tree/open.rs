//! Opening regular files of a tree, and reading the end of one that is too long to be read as a whole.

use std::path::Path;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{OFlags, fstat},
    io::Errno,
};

use super::{HostTree, Kind, Unreadable, meta, unreadable};
use crate::kubelet::tree::{Meta, Tree as _};

impl HostTree {
    /// Opens a regular file for reading, inside the root whatever links lead to it.
    ///
    /// # Errors
    /// When there is none; a FIFO or a device is not opened.
    pub fn open_file(&self, path: &Path) -> Result<OwnedFd, Unreadable> {
        let opened = self.open_regular(path)?;
        opened.map(|(file, _)| file).ok_or(Unreadable::NotAFile)
    }

    /// The same, with what the file is like; `None` for `/dev/null`, which stands for an empty file.
    pub(super) fn open_regular(&self, path: &Path) -> Result<Option<(OwnedFd, Meta)>, Unreadable> {
        // Looked at before it is opened: opening a device may set it off, opening a FIFO would wait.
        match self.stat(path)?.kind {
            Kind::File => {}
            Kind::Null => return Ok(None),
            _ => return Err(Unreadable::NotAFile),
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open(path, flags).map_err(unreadable)?;
        // It may have been replaced meanwhile.
        let meta = meta(&fstat(&file).map_err(unreadable)?);
        match meta.kind {
            Kind::File => Ok(Some((file, meta))),
            _ => Err(Unreadable::NotAFile),
        }
    }

    /// The end of a regular file, `max_bytes` at most.
    ///
    /// # Errors
    /// As [`HostTree::open_file`].
    pub fn read_end(&self, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Unreadable> {
        let (file, meta) = self.open_regular(path)?.ok_or(Unreadable::NotAFile)?;
        let size = meta.size_bytes;
        let start = size.saturating_sub(max_bytes as u64);
        let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(max_bytes)];
        let mut read = 0;
        while read < bytes.len() {
            let at = start + read as u64;
            match rustix::io::pread(file.as_fd(), &mut bytes[read..], at) {
                // It became shorter meanwhile.
                Ok(0) => break,
                Ok(count) => read += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(unreadable(errno)),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::files::Root;

    #[test]
    fn the_end_of_a_file_is_read_inside_the_root_alone() {
        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::new(folder.path());
        root.create_dir_all("/var/log").unwrap();
        root.write_atomically("/var/log/a", b"0123456789").unwrap();
        root.write_atomically("/var/log/empty", b"").unwrap();
        Root::new(outside.path())
            .write_atomically("/canary", b"canary")
            .unwrap();
        let link = |to: &Path, name: &str| symlink(to, root.join(name)).unwrap();
        link(&outside.path().join("canary"), "/var/log/b");
        link(outside.path(), "/var/log/folder");
        link(Path::new("/var/log/a"), "/var/log/inside");
        link(
            Path::new("../../../../../../../../../var/log/a"),
            "/var/log/above",
        );
        nix::unistd::mkfifo(&root.join("/var/log/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut tree = HostTree::new(folder.path()).unwrap();
        for has_openat2 in [tree.has_openat2, false] {
            tree.has_openat2 = has_openat2;
            let end = |path: &str, max| tree.read_end(Path::new(path), max);
            for path in ["/var/log/a", "/var/log/inside", "/var/log/above"] {
                assert_eq!(end(path, 4).unwrap(), b"6789", "{path}");
                assert_eq!(end(path, 99).unwrap(), b"0123456789", "{path}");
            }
            assert_eq!(end("/var/log/empty", 9).unwrap(), b"");
            for path in ["/var/log/b", "/var/log/folder/canary", "/var/log/none"] {
                assert_eq!(end(path, 99), Err(Unreadable::NotFound), "{path}");
            }
            for path in ["/var/log/fifo", "/var/log"] {
                assert_eq!(end(path, 99), Err(Unreadable::NotAFile), "{path}");
            }
        }
    }
}
