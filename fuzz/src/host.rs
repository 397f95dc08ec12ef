//! What the machine and its programs say: the container runtime, the kubelet, the system bus, the kernel, who asks for metrics.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use nodevigil::{
    checks::lease::Server,
    helper::protocol::Heard,
    host::{cri, kubelet, sockets, systemd::stream, unix_sockets},
    metrics::http::{self, Asked},
};

/// What is kept of a runtime's text.
const MAX_CRI_TEXT: usize = 400;

/// A runtime's two messages as they are (a NUL NUL parts them), or with a first byte of 0 all that it says on its socket.
pub fn cri(bytes: &[u8]) {
    let texts = if let Some(wire) = bytes.strip_prefix(&[0]) {
        texts_of(talk(wire))
    } else {
        let middle = bytes.windows(2).position(|pair| pair == [0, 0]);
        let (version, status) = bytes.split_at(middle.unwrap_or(bytes.len()));
        let status = status.get(2..).unwrap_or_default();
        let status = cri::status_in(version, status);
        status
            .map(|status| texts_of(Heard::Status(status)))
            .unwrap_or_default()
    };
    for text in texts {
        assert!(text.len() <= MAX_CRI_TEXT, "{} bytes", text.len());
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

fn texts_of(heard: Heard) -> Vec<String> {
    match heard {
        Heard::Status(status) => [status.not_ready, status.network_not_ready]
            .into_iter()
            .flatten()
            .chain([status.name, status.version])
            .collect(),
        Heard::Error { code, message } => vec![code, message],
        Heard::Broken(why) => vec![why],
        _ => Vec::new(),
    }
}

/// A runtime that says this to whoever connects, and no more.
fn talk(wire: &[u8]) -> Heard {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("nodevigil-fuzz-{}-{count}.sock", std::process::id());
    let path = Removed(std::env::temp_dir().join(name));
    let listener = UnixListener::bind(&path.0).expect("a socket in the temporary folder");
    thread::scope(|scope| {
        scope.spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(wire)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            // Closed only when the other side has gone: a reset would take what it has not read yet.
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            while stream.read(&mut [0; 4096])? > 0 {}
            Ok(())
        });
        let asked = cri::Asker::default().ask(&path.0, Duration::from_secs(5));
        let heard = asked.expect("nothing of our own is missing").heard;
        // What is said is at its end: to wait for more is to hang.
        assert!(!matches!(heard, Heard::TimedOut { .. }));
        heard
    })
}

/// A file that goes with it.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// What a client of the metrics' socket sends.
pub fn scrape(bytes: &[u8]) {
    let asked = http::read(bytes);
    let ends = |end: &[u8]| {
        let at = bytes.windows(end.len()).position(|part| part == end);
        at.map(|at| at + end.len())
    };
    let end = [ends(b"\r\n\r\n"), ends(b"\n\n")]
        .into_iter()
        .flatten()
        .min();
    match (asked, end) {
        // What follows the head changes nothing.
        (asked, Some(end)) => assert_eq!(http::read(&bytes[..end]), asked),
        (Asked::More, None) => assert!(bytes.len() < http::MAX_HEAD_BYTES),
        (asked, None) => assert!(bytes.len() >= http::MAX_HEAD_BYTES, "{asked:?}"),
    }
    if let Asked::Refused(refusal) = asked {
        let answer = http::refusal(refusal);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.ends_with("Connection: close"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    }
}

/// What a kubelet's healthz answers.
pub fn healthz(bytes: &[u8]) {
    let answer = &bytes[..bytes.len().min(4096)];
    let ended = kubelet::status_in(answer, true);
    let open = kubelet::status_in(answer, false);
    assert_eq!(open, ended, "that it has ended changes no status");
    let Some((status, is_whole)) = open else {
        return;
    };
    assert!((100..=999).contains(&status), "{status}");
    // More of the body changes nothing but whether it is whole.
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.expect("there is a head") + 4;
    for cut in [end, usize::midpoint(end, answer.len())] {
        let read = kubelet::status_in(&answer[..cut], false);
        let (before, was_whole) = read.expect("the head is there");
        assert_eq!(before, status);
        assert!(!was_whole || !is_whole || cut == answer.len());
    }
}

/// What comes from the system bus: messages one after another.
pub fn dbus(bytes: &[u8]) {
    let heard = stream::heard(bytes, ":1.1");
    assert!(heard.counted <= heard.messages);
    assert!(heard.messages <= bytes.len() / 16);
    let unit = &heard.unit;
    let kept = [
        &unit.load_state,
        &unit.active_state,
        &unit.sub_state,
        &unit.result,
        &unit.control_group,
        &unit.invocation,
    ];
    // Two digits are written for each byte of an id.
    assert!(kept.iter().map(|text| text.len()).sum::<usize>() <= 2 * bytes.len());
}

/// A part of the kernel's list of sockets, in answer to the question 1.
pub fn netlink(bytes: &[u8]) {
    let servers = [None, Some(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    for address in servers {
        let server = Server {
            address,
            port: 6443,
        };
        let mut count = 0;
        let mut note = |row: &[u8], _| {
            assert!(row.len() >= 72);
            count += 1;
        };
        let _ = sockets::take(bytes, 1, server, &mut note);
        assert!(count <= bytes.len() / (16 + 72), "{count}");
    }
}

/// A row of the kernel's list of Unix sockets.
pub fn unix_sockets(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for row in text.lines() {
        if let Some(path) = unix_sockets::bound_to(row) {
            assert!(row.ends_with(path));
        }
    }
}
