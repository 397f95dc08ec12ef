//! The write canary: a page is written, brought to the disk, read back from there, and leaves nothing behind.
//!
//! It may hang in the kernel for as long as the disk does: only [`super::lane`] may run it.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Advice, AtFlags, Mode, OFlags, fadvise, fsync, openat, unlinkat},
    io::{Errno, pread, pwrite},
};

/// As much as is written: a page, so that a file system that keeps small files in its inode needs a block for it.
const PAGE_BYTES: usize = 4096;

/// The file's name where there are no files without a name (`O_TMPFILE`). It has it for microseconds, and whoever is
/// ended meanwhile leaves this one file for the next to remove.
const NAME: &str = ".nodevigil-canary";

/// Where it failed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// What was done: `create`, `write`, `sync`, `read`, `compare`.
    pub step: &'static str,
    /// The kernel's word.
    pub errno: Errno,
}

/// Writes a page below `folder`, has it brought to the disk and reads it back.
pub(super) fn write(folder: BorrowedFd<'_>) -> Result<(), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    let file = create(folder).map_err(at("create"))?;
    let page = [0x5a_u8; PAGE_BYTES];
    put(&file, &page).map_err(at("write"))?;
    fsync(&file).map_err(at("sync"))?;
    // What is on the disk is no longer needed in memory, so that the read asks the disk. A file system that does not heed
    // this is read from memory.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut read = [0; PAGE_BYTES];
    get(&file, &mut read).map_err(at("read"))?;
    if read == page {
        Ok(())
    } else {
        Err(at("compare")(Errno::IO))
    }
}

/// Has what is known of `folder` brought to the disk: all that can be done where nothing may be written. It fails on a
/// file system that has been shut down, and hangs with most disks that hang.
pub(super) fn flush(folder: BorrowedFd<'_>) -> Result<(), Failure> {
    match fsync(folder) {
        // A file system that knows no such thing for folders is no fault.
        Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => Ok(()),
        Err(errno) => Err(Failure {
            step: "sync",
            errno,
        }),
    }
}

/// A file that has no name, or no longer.
fn create(folder: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        opened => return opened,
    }
    // One that was left behind. `O_EXCL` follows no link that lies there.
    let _ = unlinkat(folder, NAME, AtFlags::empty());
    let file = openat(folder, NAME, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    unlinkat(folder, NAME, AtFlags::empty())?;
    Ok(file)
}

fn put(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    let mut at = 0;
    while !bytes.is_empty() {
        match pwrite(&file, bytes, at) {
            // No progress and no reason: a file system that does that is full.
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                bytes = &bytes[count..];
                at += u64::try_from(count).unwrap_or(0);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn get(file: impl AsFd, mut bytes: &mut [u8]) -> Result<(), Errno> {
    let mut at = 0;
    while !bytes.is_empty() {
        match pread(&file, &mut *bytes, at) {
            // The file has become shorter than what was written to it.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &mut bytes[count..];
                at += u64::try_from(count).unwrap_or(0);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{CWD, readlinkat};

    use super::*;
    use crate::helper::testing::{host, write as put_file};

    fn folder(path: &Path) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).unwrap()
    }

    #[test]
    fn a_page_is_written_and_nothing_is_left_behind() {
        let (place, root) = host();
        let folder = folder(place.path());
        assert_eq!(write(folder.as_fd()), Ok(()));
        assert_eq!(flush(folder.as_fd()), Ok(()));
        assert!(root.list("/").unwrap().is_empty());
    }

    #[test]
    fn files_of_others_are_not_touched() {
        let (place, root) = host();
        put_file(&root, "/precious", "as it was");
        std::os::unix::fs::symlink(root.join("/precious"), root.join(NAME)).unwrap();
        let folder = folder(place.path());
        assert_eq!(write(folder.as_fd()), Ok(()));
        assert_eq!(root.read_text("/precious", 99).unwrap(), "as it was");
    }

    /// What has no name cannot be seen; that the other way leaves none either is seen on a file system without
    /// `O_TMPFILE`: `/proc` has no files to be made at all, and says so.
    #[test]
    fn where_nothing_can_be_made_the_step_and_the_kernels_word_are_told() {
        let folder = folder(Path::new("/proc/self"));
        let failure = write(folder.as_fd()).unwrap_err();
        assert_eq!(failure.step, "create");
        assert!(readlinkat(&folder, NAME, Vec::new()).is_err());
    }
}
