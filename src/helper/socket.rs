//! The helper's own listening socket, where no systemd hands one over (a container, a foreign init).

use std::{
    os::{fd::AsRawFd, unix::net::UnixListener},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::AT_FDCWD,
    sys::{
        socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
        stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, lstat},
    },
    unistd::{Gid, chown, unlink},
};

/// The socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{action} socket {}: {source}; its folder must be there and writable", path.display())]
pub struct SocketError {
    /// What was tried.
    pub action: &'static str,
    /// The socket.
    pub path: PathBuf,
    /// The system's word.
    #[source]
    pub source: Errno,
}

/// Makes and opens the socket at `path`, mode 0660, owned by `group` if one is given. A socket that lies there is
/// replaced, because one is left behind whenever a helper ends; anything else that lies there is an error.
pub fn bind_at(path: &Path, group: Option<Gid>) -> Result<UnixListener, SocketError> {
    let failed = |action| {
        let path = path.to_owned();
        move |source| SocketError {
            action,
            path,
            source,
        }
    };
    if is_socket(path) {
        unlink(path).map_err(failed("replace"))?;
    }
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(failed("make"))?;
    // Linux gives the file the mode that the socket has when it is bound, less the umask: at no moment is it open to
    // others. What the umask took is given back below, once the group is right.
    let mode = Mode::from_bits_truncate(0o660);
    fchmod(&fd, mode).map_err(failed("make"))?;
    let address = UnixAddr::new(path).map_err(failed("bind"))?;
    bind(fd.as_raw_fd(), &address).map_err(failed("bind"))?;
    if group.is_some() {
        chown(path, None, group).map_err(failed("hand to the agent's group the"))?;
    }
    fchmodat(AT_FDCWD, path, mode, FchmodatFlags::FollowSymlink)
        .map_err(failed("open to the group the"))?;
    listen(&fd, Backlog::new(16).expect("16 is below SOMAXCONN")).map_err(failed("listen on"))?;
    Ok(UnixListener::from(fd))
}

fn is_socket(path: &Path) -> bool {
    lstat(path).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::testing::{host, write};

    #[test]
    fn the_socket_is_for_owner_and_group_and_replaces_a_leftover() {
        let (folder, _root) = host();
        let path = folder.path().join("helper.sock");
        for _ in 0..2 {
            let _listener = bind_at(&path, Some(Gid::current())).unwrap();
            assert_eq!(lstat(&path).unwrap().st_mode & 0o777, 0o660);
        }
    }

    #[test]
    fn a_file_in_the_way_stays_and_is_named() {
        let (folder, root) = host();
        write(&root, "/file", "kept");
        let path = folder.path().join("file");
        let error = bind_at(&path, None).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
        assert_eq!(root.read_text("/file", 10).unwrap(), "kept");
        assert!(bind_at(&folder.path().join("none/s"), None).is_err());
    }
}
