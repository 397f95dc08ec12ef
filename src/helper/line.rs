//! A line to or from a peer of the helper's: each within a deadline of its own, however slowly the peer's bytes come or go.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use super::protocol::{Code, MAX_REQUEST_BYTES, Refusal};
use crate::clock::Clock;

/// How long a peer may take to say what it wants.
pub(super) const READ_DEADLINE: Duration = Duration::from_secs(1);

/// How long a peer may take to read the answer.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(2);

/// As much is written at once, so that the deadline is looked at in between.
const WRITE_CHUNK_BYTES: usize = 16 * 1024;

/// The bytes up to the first newline, and that.
///
/// # Errors
/// A refusal that says what is wrong with it.
pub(super) fn read(mut stream: &UnixStream) -> Result<Vec<u8>, Refusal> {
    let bad = |what: String| {
        Refusal::new(
            Code::BadRequest,
            format!("request: {what}; wanted one line of JSON"),
        )
    };
    let end = Clock.now().uptime + READ_DEADLINE;
    let mut line = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let left = end.saturating_sub(Clock.now().uptime);
        if left.is_zero() {
            return Err(bad(format!("no whole line within {READ_DEADLINE:?}")));
        }
        // A timeout is looked at again at the top: the deadline is for the whole line, not for each byte.
        let read = stream
            .set_read_timeout(Some(left))
            .and_then(|()| stream.read(&mut chunk));
        match read {
            Ok(0) => return Err(bad("the connection was closed in the middle".into())),
            Ok(count) => line.extend_from_slice(&chunk[..count]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(bad(error.to_string())),
        }
        if let Some(newline) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(newline + 1);
        } else if line.len() < MAX_REQUEST_BYTES {
            continue;
        }
        if line.len() > MAX_REQUEST_BYTES || line.last() != Some(&b'\n') {
            return Err(bad(format!("longer than {MAX_REQUEST_BYTES} bytes")));
        }
        return Ok(line);
    }
}

/// Writes it whole.
///
/// # Errors
/// The stream's, and `TimedOut` when the peer does not take it within [`WRITE_DEADLINE`].
pub(super) fn write(mut stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    let end = Clock.now().uptime + WRITE_DEADLINE;
    let mut rest = line;
    while !rest.is_empty() {
        let left = end.saturating_sub(Clock.now().uptime);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(&rest[..rest.len().min(WRITE_CHUNK_BYTES)]) {
            Ok(count) => rest = &rest[count..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let start = Clock.now().uptime;
        let error = write(&ours, &vec![b'x'; 8 * 1024 * 1024]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Clock.now().uptime.saturating_sub(start) < WRITE_DEADLINE * 2);
    }
}
