//! Listens in on what the guest sends to the API server: when each packet leaves, by the kernel's own stamp, and how much is in it.

use std::fmt::Write as _;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

/// The heads of IP and TCP with all their options are no longer.
const HEAD_BYTES: usize = 120;
/// What a look takes at most; the rest waits for the next.
const MAX_PACKETS: usize = 500;
const TCP: u8 = 6;

/// Packets to one port.
pub(crate) struct Packets {
    socket: OwnedFd,
    port: u16,
}

impl Packets {
    /// From now on.
    pub(crate) fn to(port: u16) -> nix::Result<Self> {
        // What is sent is shown only to who listens to every protocol.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { socket, port })
    }

    /// A line for each packet that carried something since the last call.
    pub(crate) fn lines(&self, line: &mut String) -> std::fmt::Result {
        for _ in 0..MAX_PACKETS {
            let mut head = [0; HEAD_BYTES];
            let mut control = nix::cmsg_space!(TimeSpec);
            let mut parts = [IoSliceMut::new(&mut head)];
            let message = recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                MsgFlags::empty(),
            );
            let Ok(message) = message else {
                return Ok(()); // nothing is left
            };
            let stamp = message.cmsgs().ok().and_then(|mut all| {
                all.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(at) => Some(at),
                    _ => None,
                })
            });
            let length = message.bytes;
            if let (Some(at), Some(bytes)) =
                (stamp, carried(&head[..length.min(HEAD_BYTES)], self.port))
            {
                let at_us = at.tv_sec() * 1_000_000 + at.tv_nsec() / 1000;
                writeln!(line, "{{\"sent_us\":{at_us},\"bytes\":{bytes}}}")?;
            }
        }
        Ok(())
    }
}

/// What an IPv4 packet carries to that port over TCP; `None` if it is another's, or carries nothing.
fn carried(head: &[u8], port: u16) -> Option<u16> {
    let two = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let first = *head.first()?;
    if first >> 4 != 4 || *head.get(9)? != TCP {
        return None;
    }
    let tcp = usize::from(first & 15) * 4;
    if two(tcp + 2)? != port {
        return None;
    }
    let data = tcp + usize::from(*head.get(tcp + 12)? >> 4) * 4;
    let bytes = two(2)?.checked_sub(u16::try_from(data).ok()?)?;
    (bytes > 0).then_some(bytes)
}
