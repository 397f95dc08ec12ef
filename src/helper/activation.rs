//! The listening socket that systemd hands over (`sd_listen_fds(3)`), taken over once.

use std::os::{
    fd::{AsRawFd, OwnedFd},
    unix::net::UnixListener,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::socket::{SockType, UnixAddr, getsockname, getsockopt, sockopt},
};

use crate::door;

/// What systemd says in the environment; read in `cli/` and handed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activation {
    /// `$LISTEN_PID`: the process that the sockets are for.
    pub listen_pid: Option<String>,
    /// `$LISTEN_FDS`: how many there are.
    pub listen_fds: Option<String>,
}

/// Why there is no socket to take over.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// systemd handed nothing to this process.
    #[error(
        "listening socket: none was handed over ($LISTEN_FDS is not for this process); {advice}"
    )]
    Absent {
        /// What to do.
        advice: &'static str,
    },
    /// Not exactly one was handed over.
    #[error(
        "listening socket: wanted $LISTEN_FDS=1, got `{0}`; give the socket unit one ListenStream="
    )]
    Count(String),
    /// It was taken before.
    #[error("listening socket: it was taken over already; take it once")]
    Taken,
    /// It is something else.
    #[error(
        "listening socket: descriptor 3 is no listening Unix stream socket; use ListenStream=/PATH and Accept=no"
    )]
    WrongKind,
}

impl Activation {
    /// Takes over the one listening socket, once. The `advice` is for whoever started this without one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(&self, advice: &'static str) -> Result<UnixListener, ActivationError> {
        self.check(std::process::id(), advice)?;
        into_listener(door::take_first_fd().ok_or(ActivationError::Taken)?)
    }

    /// Whether the environment says that this process was handed exactly one socket.
    fn check(&self, own_pid: u32, advice: &'static str) -> Result<(), ActivationError> {
        let pid = self.listen_pid.as_deref().and_then(|pid| pid.parse().ok());
        if pid != Some(own_pid) {
            return Err(ActivationError::Absent { advice });
        }
        match self.listen_fds.as_deref() {
            None | Some("" | "0") => Err(ActivationError::Absent { advice }),
            Some("1") => Ok(()),
            Some(count) => Err(ActivationError::Count(count.to_owned())),
        }
    }
}

/// `fd` as a listener, if it is a listening Unix stream socket.
fn into_listener(fd: OwnedFd) -> Result<UnixListener, ActivationError> {
    let is_stream = getsockopt(&fd, sockopt::SockType) == Ok(SockType::Stream);
    let listens = getsockopt(&fd, sockopt::AcceptConn) == Ok(true);
    // A socket of another family has no Unix address.
    let is_unix = getsockname::<UnixAddr>(fd.as_raw_fd()).is_ok();
    if is_stream && listens && is_unix {
        let listener = UnixListener::from(fd);
        // Whether it blocks is shared with whoever held the socket before. systemd passes it so that a program that is
        // started would have it, too.
        let closes = fcntl(&listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).is_ok();
        if closes && listener.set_nonblocking(false).is_ok() {
            return Ok(listener);
        }
    }
    Err(ActivationError::WrongKind)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn said(pid: &str, fds: &str) -> Result<(), ActivationError> {
        let activation = Activation {
            listen_pid: Some(pid.into()),
            listen_fds: Some(fds.into()),
        };
        activation.check(42, "ADVICE")
    }

    #[test]
    fn only_one_socket_meant_for_this_process_is_taken() {
        assert!(said("42", "1").is_ok());
        for (pid, fds) in [("41", "1"), ("", "1"), ("x", "1"), ("42", "0"), ("42", "")] {
            assert!(
                matches!(said(pid, fds), Err(ActivationError::Absent { .. })),
                "{pid} {fds}"
            );
        }
        for fds in ["2", "-1", "one"] {
            assert!(
                matches!(said("42", fds), Err(ActivationError::Count(_))),
                "{fds}"
            );
        }
        let nothing = Activation::default().check(42, "ADVICE").unwrap_err();
        assert!(nothing.to_string().contains("ADVICE"));
    }

    #[test]
    fn only_a_listening_unix_stream_socket_is_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty())).unwrap(); // as systemd hands it over
        let taken = into_listener(listener.into()).unwrap();
        assert_eq!(fcntl(&taken, FcntlArg::F_GETFD), Ok(1), "FD_CLOEXEC");
        let (connected, _other) = UnixStream::pair().unwrap();
        assert!(into_listener(connected.into()).is_err());
        let (datagram, _other) = UnixDatagram::pair().unwrap();
        assert!(into_listener(datagram.into()).is_err());
        let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(into_listener(tcp.into()).is_err());
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(into_listener(reader.into()).is_err());
    }
}
