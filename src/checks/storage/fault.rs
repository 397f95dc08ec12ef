//! What is wrong with a file system, by one look at it.

use nix::errno::Errno;

use crate::helper::storage::{Canary, FileSystem};

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is read-only, and by what that is known.
    ReadOnly(String),
    /// The disk, or the file system on it, fails; and how.
    Io(String),
    /// There is no room.
    Full,
    /// There is no inode.
    NoInodes,
    /// It could not be looked at, and why.
    NotKnown(String),
}

/// What is wrong with it; nothing, if it can be written to as far as that was tried.
pub(super) fn of(file_system: &FileSystem) -> Option<Fault> {
    if let Some(why) = &file_system.read_only {
        return Some(Fault::ReadOnly(why.clone()));
    }
    let room = file_system.room.unwrap_or_default();
    let no_inodes = room.inodes > 0 && room.inodes_free == 0;
    match &file_system.canary {
        Canary::Written => None,
        // Where nothing may be written, the file system's own word is all there is.
        Canary::Flushed if no_inodes => Some(Fault::NoInodes),
        Canary::Flushed => (room.total_bytes > 0 && room.free_bytes == 0).then_some(Fault::Full),
        Canary::NotTried { why } => Some(Fault::NotKnown(why.clone())),
        Canary::Failed { step, errno } => {
            let errno = Errno::from_raw(*errno);
            Some(match errno {
                Errno::ENOSPC if no_inodes => Fault::NoInodes,
                Errno::ENOSPC | Errno::EDQUOT => Fault::Full,
                Errno::EIO
                | Errno::ENXIO
                | Errno::ENODEV
                | Errno::EREMOTEIO
                | Errno::EUCLEAN
                | Errno::EBADMSG
                | Errno::ESTALE
                | Errno::ENOTCONN
                | Errno::ESHUTDOWN => Fault::Io(format!("{} fails ({errno})", of_step(step))),
                _ => Fault::NotKnown(format!("{} fails ({errno})", of_step(step))),
            })
        }
    }
}

fn of_step(step: &str) -> &str {
    match step {
        "open" => "opening it",
        "create" => "making a file",
        "write" => "writing a page",
        "sync" => "bringing a page to the disk (fsync)",
        "read" => "reading back a page",
        "compare" => "a page that was read back is not what was written: reading it",
        other => other,
    }
}
