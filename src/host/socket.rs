//! Connections to Unix sockets: to ask over one, or to see whether somebody listens, when nothing is sent.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door that the ban on connecting points to"
)]

use std::{
    io,
    os::{
        fd::AsRawFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};

/// A connection to a socket whose queue is full waits.
const DEADLINE: Duration = Duration::from_secs(1);

/// Why there was no connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// A connection that does not block, made without waiting: a queue that is full is an error.
///
/// # Errors
/// The system's.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket.into())
}

/// Connects and hangs up.
pub fn takes_connections(path: &Path) -> Result<(), Refused> {
    let (answer, answers) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || answer.send(UnixStream::connect(path).map(drop)).ok());
    match answers.recv_timeout(DEADLINE) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Refused(words(&error))),
        Err(_) => Err(Refused(format!(
            "no answer within {} s",
            DEADLINE.as_secs()
        ))),
    }
}

/// Connects to a socket for datagrams; nothing is sent.
pub fn takes_datagrams(path: &Path) -> Result<(), Refused> {
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    connected.map_err(|error| Refused(words(&error)))
}

fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    words.to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_is_told_from_a_left_over_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(takes_connections(&path), Ok(()));
        drop(listener);
        assert_eq!(
            takes_connections(&path),
            Err(Refused("connection refused".to_owned()))
        );
        let path = dir.path().join("datagrams");
        let receiver = UnixDatagram::bind(&path).unwrap();
        assert_eq!(takes_datagrams(&path), Ok(()));
        drop(receiver);
        assert!(takes_datagrams(&path).is_err());
    }
}
