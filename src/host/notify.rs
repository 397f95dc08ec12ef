//! Tells systemd how the service is doing (`sd_notify(3)`), without ever waiting for it.
//!
//! Own code, because the usual crates send with a blocking socket: with a hung PID 1 its queue fills up, and the loop
//! that watches the kubelet would stand still. A message that does not fit is dropped and counted.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door to systemd's notification socket"
)]

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The longest status text in bytes; `systemctl status` shows one line.
const MAX_STATUS: usize = 512;

/// The way to systemd, or to nobody when the service was not started by it.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    failures: AtomicU64,
}

impl Notifier {
    /// A notifier that sends to `socket`, the value of `$NOTIFY_SOCKET`: a path, or an abstract name that begins with
    /// `@`. None or an empty one: every call does nothing.
    pub fn new(socket: Option<&OsStr>) -> io::Result<Self> {
        let socket = match socket.filter(|value| !value.is_empty()) {
            Some(value) => Some(open(value)?),
            None => None,
        };
        Ok(Self {
            socket,
            failures: AtomicU64::new(0),
        })
    }

    /// Whether somebody listens, as far as we were told.
    pub fn is_enabled(&self) -> bool {
        self.socket.is_some()
    }

    /// The service is up.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// What `systemctl status` shows: one line, cut off after 512 bytes.
    pub fn status(&self, text: &str) {
        let mut line = text.replace(['\n', '\r'], " ");
        line.truncate(line.floor_char_boundary(MAX_STATUS));
        self.send(&format!("STATUS={line}"));
    }

    /// The loop is alive.
    pub fn watchdog(&self) {
        self.send("WATCHDOG=1");
    }

    /// How long systemd is to wait for that from now on.
    pub fn watchdog_within(&self, time: Duration) {
        self.send(&format!("WATCHDOG_USEC={}", time.as_micros()));
    }

    /// The service is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// How many messages were lost since the start, because nobody took them.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        if socket.send_to_addr(message.as_bytes(), address).is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn open(value: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match value.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(value)?,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "NOTIFY_SOCKET={}: neither a path from / on nor a name that begins with @",
                    value.display()
                ),
            ));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// How often to call [`Notifier::watchdog`]: half the time that systemd allows. `usec` and `pid` are the values of
/// `$WATCHDOG_USEC` and `$WATCHDOG_PID`; `None` when no watchdog is set, or it is set for another process.
pub fn watchdog_interval(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let usec: u64 = usec?.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn says_what_systemd_expects() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str())).unwrap();
        notifier.ready();
        notifier.status(&format!("two\nlines {}", "ä".repeat(512)));
        notifier.watchdog();
        notifier.watchdog_within(Duration::from_mins(1));
        notifier.stopping();
        assert_eq!(received(&systemd), "READY=1");
        let status = received(&systemd);
        assert!(status.starts_with("STATUS=two lines ä") && status.len() <= 512 + 7);
        assert_eq!(received(&systemd), "WATCHDOG=1");
        assert_eq!(received(&systemd), "WATCHDOG_USEC=60000000");
        assert_eq!(received(&systemd), "STOPPING=1");
        assert_eq!(notifier.failures(), 0);
    }

    #[test]
    fn an_abstract_name_is_reached() {
        let name = format!("nodevigil-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let systemd = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::new(Some(OsStr::new(&format!("@{name}")))).unwrap();
        notifier.ready();
        assert_eq!(received(&systemd), "READY=1");
    }

    #[test]
    fn a_hung_systemd_stops_nobody() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("notify");
        let _never_read = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str())).unwrap();
        for _ in 0..10_000 {
            notifier.watchdog();
        }
        assert!(notifier.failures() > 0);
    }

    #[test]
    fn nobody_to_tell() {
        for socket in [None, Some(OsStr::new(""))] {
            let notifier = Notifier::new(socket).unwrap();
            notifier.ready();
            assert!(!notifier.is_enabled());
            assert_eq!(notifier.failures(), 0);
        }
        let gone = Notifier::new(Some(OsStr::new("/nowhere/notify"))).unwrap();
        gone.ready();
        assert_eq!(gone.failures(), 1);
        assert!(Notifier::new(Some(OsStr::new("vsock:2:1"))).is_err());
    }

    #[test]
    fn half_of_the_watchdog_and_only_ours() {
        let half = Some(Duration::from_secs(15));
        assert_eq!(watchdog_interval(Some("30000000"), None, 7), half);
        assert_eq!(watchdog_interval(Some("30000000"), Some("7"), 7), half);
        assert_eq!(watchdog_interval(Some("30000000"), Some("8"), 7), None);
        assert_eq!(watchdog_interval(Some("0"), None, 7), None);
        assert_eq!(watchdog_interval(Some("x"), None, 7), None);
        assert_eq!(watchdog_interval(None, Some("7"), 7), None);
    }
}
