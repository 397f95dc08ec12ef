//! Root's connections to the API server, as the kernel shows them.

use std::{net::IpAddr, time::Duration};

/// A connection on which nothing was acknowledged for so long, although it was sent again and again.
const STALLED: (Duration, u8) = (Duration::from_secs(5), 3);

/// Where the API server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Its address; `None` if it has a name, which is not looked up.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
}

/// One of root's connections to the API server, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// Whether it is still being opened.
    pub is_connecting: bool,
    /// How often what was sent last was sent again.
    pub retransmits: u8,
    /// How often it was asked in vain whether the peer is there, or takes data again.
    pub probes: u8,
    /// Segments that were sent and not acknowledged.
    pub unacknowledged: u32,
    /// How long ago something was sent.
    pub sent_ago: Duration,
    /// How long ago data came.
    pub received_ago: Duration,
    /// How long ago an acknowledgement came.
    pub acknowledged_ago: Duration,
}

/// What one look at the sockets comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Open connections.
    pub open: u32,
    /// Those, and such as are being opened, on which nothing gets through.
    pub stalled: u32,
    /// Those on which something is sent again.
    pub sending_again: u32,
}

impl Sockets {
    /// Takes one in.
    pub fn count(&mut self, socket: TcpSocket) {
        self.open += u32::from(!socket.is_connecting);
        // What our own firewall drops counts as never sent: there is nothing to send again, and probes go out instead.
        let has_sent = socket.unacknowledged > 0;
        let tries = socket
            .probes
            .max(if has_sent { socket.retransmits } else { 0 });
        self.sending_again += u32::from(tries > 0);
        // The third SYN goes out after three seconds.
        let cannot_open = socket.is_connecting && socket.retransmits >= 2;
        let is_silent = tries >= STALLED.1 && socket.acknowledged_ago >= STALLED.0;
        self.stalled += u32::from(cannot_open || is_silent);
    }
}
