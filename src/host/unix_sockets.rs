//! The kernel's list of Unix sockets: whether somebody listens at a path.

use std::path::Path;

use super::files::{FileError, Root};

const LIST: &str = "/proc/net/unix";
/// A row has some 100 bytes; a node with thousands of pods has tens of thousands of sockets.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// `__SO_ACCEPTCON`: it listens.
const LISTENS: u32 = 1 << 16;

/// Whether the kernel lists somebody who listens at that path, whatever lies there by now.
///
/// # Errors
/// When the list cannot be read.
pub fn is_listening(root: &Root, path: &Path) -> Result<bool, FileError> {
    let list = root.read_text(LIST, MAX_BYTES)?;
    // `/var/run` is a link to `/run`, and the list has the name that it was bound to.
    let folder = path.parent().map(Path::canonicalize).and_then(Result::ok);
    let real = folder.zip(path.file_name()).map(|(at, name)| at.join(name));
    Ok(list.lines().any(|row| {
        let bound = bound_to(row).map(Path::new);
        bound.is_some_and(|bound| bound == path || Some(bound) == real.as_deref())
    }))
}

/// Where the socket of that row listens: `Num RefCount Protocol Flags Type St Inode Path`.
#[doc(hidden)] // public for the fuzz target
pub fn bound_to(row: &str) -> Option<&str> {
    let mut rest = row;
    let mut flags = 0;
    for column in 0..7 {
        let (word, after) = rest.trim_start().split_once(' ')?;
        if column == 3 {
            flags = u32::from_str_radix(word, 16).ok()?;
        }
        rest = after;
    }
    (flags & LISTENS != 0).then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_is_listed_though_its_file_is_gone_and_a_file_without_one_is_not() {
        let root = Root::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket.sock");
        assert!(!is_listening(&root, &path).unwrap());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_listening(&root, &path).unwrap());
        rustix::fs::unlink(&path).unwrap();
        assert!(is_listening(&root, &path).unwrap());
        drop(listener);
        assert!(!is_listening(&root, &path).unwrap());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(is_listening(&root, &link.join("a socket.sock")).unwrap());
    }

    #[test]
    fn a_connected_socket_is_no_listener() {
        let connected = "ffff8881: 00000003 00000000 00000000 0001 03 4242 /run/c.sock";
        assert_eq!(bound_to(connected), None);
        let listens = "ffff8881: 00000002 00000000 00010000 0001 01 4242 /run/c.sock";
        assert_eq!(bound_to(listens), Some("/run/c.sock"));
        assert_eq!(
            bound_to("Num RefCount Protocol Flags Type St Inode Path"),
            None
        );
    }
}
