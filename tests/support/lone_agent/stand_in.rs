//! A process in the kubelet's place: it has the kubelet's name, and says that it is healthy.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

const ADDRESS: &str = "127.0.0.1:10248";
/// Where it says so.
pub(super) const URL: &str = "http://127.0.0.1:10248/healthz";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Is the stand-in and never returns, if this program was started under the kubelet's name. Call it first in `main`.
pub(crate) fn serve_if_asked() {
    let name = std::env::args_os().next().unwrap_or_default();
    if !std::path::Path::new(&name).ends_with("kubelet") {
        return;
    }
    if let Ok(listener) = TcpListener::bind(ADDRESS) {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    }
    std::process::exit(1)
}

/// A request for each piece that comes in: the agent's are one packet long.
fn answer(mut stream: TcpStream) {
    let mut request = [0; 4096];
    while matches!(stream.read(&mut request), Ok(1..)) {
        if stream.write_all(ANSWER).is_err() {
            return;
        }
    }
}
