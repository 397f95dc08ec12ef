//! The metrics as a file for `node_exporter`'s textfile collector, in memory only.
//!
//! A write to a disk that hangs cannot be timed out, and would keep even SIGKILL from ending us: a folder that is not on
//! tmpfs is refused. The collector follows links and takes more than one folder.

use std::path::Path;

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};

use super::files::Root;

/// The file's name: the collector reads `*.prom`.
pub const FILE_NAME: &str = "nodevigil.prom";

/// Linux' `RAMFS_MAGIC`, which nix does not have.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Replaces the file in `dir`. May block: not for the loop.
///
/// # Errors
/// In a sentence, why it was not written.
pub fn write(root: &Root, dir: &Path, text: &str) -> Result<(), String> {
    let shown = dir.display();
    let kind = statfs(&root.join(dir))
        .map_err(|e| format!("look at [metrics] textfile_dir {shown}: {e}"))?
        .filesystem_type();
    if !is_memory(kind) {
        return Err(format!(
            "[metrics] textfile_dir {shown} is not on tmpfs, and a write to a disk that hangs would hang the agent; set it to \
             /run/nodevigil, and add that folder to node_exporter's --collector.textfile.directory or link \
             /run/nodevigil/{FILE_NAME} into the one it reads"
        ));
    }
    root.write_atomically(dir.join(FILE_NAME), text.as_bytes())
        .map_err(|e| e.to_string())
}

fn is_memory(kind: FsType) -> bool {
    kind == TMPFS_MAGIC || u64::try_from(kind.0).is_ok_and(|kind| kind == RAMFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_to_and_a_disk_is_not() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = Root::default();
        write(&root, folder.path(), "a 1\n").unwrap();
        write(&root, folder.path(), "a 2\n").unwrap();
        let read = root.read_text(folder.path().join(FILE_NAME), 99).unwrap();
        assert_eq!(read, "a 2\n");
        assert_eq!(root.list(folder.path()).unwrap(), [FILE_NAME]);
        let error = write(&root, Path::new("/proc"), "a 1\n").unwrap_err();
        assert!(error.contains("/proc is not on tmpfs"), "{error}");
        let error = write(&root, Path::new("/no/such"), "a 1\n").unwrap_err();
        assert!(error.contains("textfile_dir /no/such"), "{error}");
    }
}
