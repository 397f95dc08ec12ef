//! Whether the daemon runs on this host, by what it wrote of itself.

use std::path::Path;

use crate::{host::files::Root, status::StatusFile};

/// What the kernel calls it.
const COMM: &str = "nodevigil";

/// The pid of the daemon whose runtime folder that is, if it lives. (Its status file outlives it.)
pub(super) fn pid(root: &Root, dir: &Path) -> Option<u32> {
    let pid = StatusFile::read(root, dir).ok()?.pid?;
    let comm = root.read_text(format!("/proc/{pid}/comm"), 64).ok()?;
    (comm.trim_end() == COMM).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_outlives_its_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let dir = Path::new("/run/nodevigil");
        root.create_dir_all(dir).unwrap();
        root.create_dir_all("/proc/7").unwrap();
        assert_eq!(pid(&root, dir), None);
        let mut status = StatusFile::new(jiff::Timestamp::UNIX_EPOCH);
        status.pid = Some(7);
        status.write(&root, dir).unwrap();
        assert_eq!(pid(&root, dir), None);
        for (comm, lives) in [("sshd\n", None), ("nodevigil\n", Some(7))] {
            root.write_atomically("/proc/7/comm", comm.as_bytes())
                .unwrap();
            assert_eq!(pid(&root, dir), lives);
        }
    }
}
