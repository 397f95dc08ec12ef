//! Asks the agent for its metrics: the image has no curl.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::Outcome;

/// `scrape SOCKET`: prints the answer.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Outcome {
    let socket = words.next().ok_or("scrape SOCKET")?;
    let mut stream = UnixStream::connect(&socket).map_err(|why| format!("{socket}: {why}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    print!("{answer}");
    Ok(())
}
