//! Notifications for systemd (`sd_notify(3)`).

use std::env;
use std::os::unix::net::UnixDatagram;

/// Tells systemd about the agent, as in `READY=1`, and returns whether that was sent. It never waits, because PID 1 may hang: what finds
/// its queue full is lost.
pub fn notify(state: &str) -> bool {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return true };
    let send = || {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(state.as_bytes(), path)
    };
    send().is_ok()
}
