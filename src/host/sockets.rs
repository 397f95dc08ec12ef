//! TCP connections, as the kernel lists them (`sock_diag(7)`): whether what was sent is acknowledged, and to which cgroup they belong.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use hyper::{Uri, http::uri::Scheme};
use procfs::process::Process;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SOCK_DIAG, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`, and the messages with which a list ends (`netlink(7)`).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x301;
/// `INET_DIAG_CGROUP_ID` of `linux/inet_diag.h`, since Linux 5.9.
const CGROUP_ID: u16 = 21;
const IPPROTO_TCP: u8 = 6;
/// States of `include/net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;
/// Sizes of `struct nlmsghdr` and `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const SOCKET_BYTES: usize = 72;
/// A list comes in parts. One that has more of them, several thousand sockets, is not read to its end.
const PART_BYTES: usize = 16 * 1024;
const MAX_PARTS: usize = 64;

/// Where an API server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

impl Server {
    /// That of a URL; none if it is no URL with a host.
    pub fn of_url(url: &str) -> Option<Self> {
        let url: Uri = url.parse().ok()?;
        let usual_port = if *url.scheme()? == Scheme::HTTP { 80 } else { 443 };
        Some(Self { host: url.host()?.to_owned(), port: url.port_u16().unwrap_or(usual_port) })
    }

    /// Whether a socket is connected to it. A server that has a name is known by its port alone.
    fn is_at(&self, address: SocketAddr) -> bool {
        let ip = self.host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        address.port() == self.port && ip.is_none_or(|ip| ip == address.ip().to_canonical())
    }
}

/// A connection that is open or being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Whether the other side has not answered yet (`SYN_SENT`).
    pub is_opening: bool,
    /// Bytes that were written to it and not acknowledged.
    pub unacknowledged_bytes: u32,
    /// How often the kernel has sent the oldest of them again without an answer.
    pub retransmits: u8,
}

/// The connections to the server that belong to the cgroup of process `pid`, which listens at `healthz`. The kernel says of a socket its
/// cgroup, and not its process.
///
/// # Errors
/// When that cannot be found out: without cgroup v2 or Linux 5.9, in a cgroup that the agent shares, in another network namespace.
pub fn connections(pid: i32, healthz: SocketAddr, server: &Server) -> io::Result<Vec<Connection>> {
    if unified_cgroup(Process::new(pid)) == unified_cgroup(Process::myself()) {
        return Err(io::Error::other("the kubelet has no cgroup (v2) of its own"));
    }
    let listens = |socket: &Socket| {
        let local = socket.local;
        local.port() == healthz.port() && (local.ip() == healthz.ip() || local.ip().is_unspecified())
    };
    let listeners = list(&[LISTEN], healthz.port(), 0)?.into_iter().filter(listens).map(|socket| socket.cgroup);
    let mut owners: Vec<_> = listeners.collect();
    owners.dedup();
    let [Some(owner)] = owners[..] else {
        return Err(io::Error::other(format!("the kernel names no cgroup for what listens at {healthz}")));
    };
    let found = list(&[ESTABLISHED, SYN_SENT], 0, server.port)?.into_iter();
    let found = found.filter(|socket| socket.cgroup == Some(owner) && server.is_at(socket.remote));
    Ok(found.map(|socket| socket.connection).collect())
}

fn unified_cgroup(process: procfs::ProcResult<Process>) -> Option<String> {
    let cgroups = process.ok()?.cgroups().ok()?;
    cgroups.into_iter().find(|cgroup| cgroup.hierarchy == 0).map(|cgroup| cgroup.pathname)
}

/// A socket of the list.
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    cgroup: Option<u64>,
    connection: Connection,
}

/// All TCP sockets of these states and ports; port 0 is any.
fn list(states: &[u8], local_port: u16, remote_port: u16) -> io::Result<Vec<Socket>> {
    let (mut found, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
        send(&netlink, &request(family, states, local_port, remote_port), SendFlags::empty())?;
        let mut parts = 0..MAX_PARTS;
        loop {
            parts.next().ok_or(io::ErrorKind::FileTooLarge)?;
            // The kernel has the next part ready.
            let (length, _) = recv(&netlink, &mut part[..], RecvFlags::DONTWAIT)?;
            if take(&part[..length], &mut found)? {
                break;
            }
        }
    }
    Ok(found)
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: AddressFamily, states: &[u8], local_port: u16, remote_port: u16) -> Vec<u8> {
    let family = u8::try_from(family.as_raw()).unwrap_or_default();
    let states = states.iter().fold(0_u32, |all, state| all | 1 << state);
    let mut body = vec![family, IPPROTO_TCP, 0, 0];
    body.extend(states.to_ne_bytes());
    body.extend(local_port.to_be_bytes());
    body.extend(remote_port.to_be_bytes());
    body.extend([0; 36]); // any address and interface
    body.extend([0xff; 8]); // INET_DIAG_NOCOOKIE
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or_default();
    let mut request = length.to_ne_bytes().to_vec();
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_ALL.to_ne_bytes());
    request.extend([0; 8]); // sequence number and port
    request.extend(body);
    request
}

/// Takes in a part of a list; `true` if it is the last one.
fn take(mut part: &[u8], found: &mut Vec<Socket>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(part, 0), u16_at(part, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let message = part.get(HEADER_BYTES..length).ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(message, 0).unwrap_or_default().cast_signed();
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            SOCK_DIAG_BY_FAMILY => found.extend(socket(message)),
            _ => {}
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct inet_diag_msg` and its attributes.
fn socket(message: &[u8]) -> Option<Socket> {
    let (fixed, mut attributes) = message.split_at_checked(SOCKET_BYTES)?;
    let address = |port: usize, at: usize| {
        let ip = if i32::from(fixed[0]) == i32::from(AddressFamily::INET.as_raw()) {
            IpAddr::from(Ipv4Addr::from(*fixed.get(at..)?.first_chunk::<4>()?))
        } else {
            IpAddr::from(Ipv6Addr::from(*fixed.get(at..)?.first_chunk::<16>()?))
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes(*fixed.get(port..)?.first_chunk()?)))
    };
    let mut cgroup = None;
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length).max(4);
        if kind == CGROUP_ID {
            cgroup = attributes.get(4..)?.first_chunk().map(|id| u64::from_ne_bytes(*id));
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let connection = Connection {
        is_opening: fixed[1] == SYN_SENT,
        retransmits: fixed[3],
        unacknowledged_bytes: u32_at(fixed, 60)?,
    };
    Some(Socket { local: address(4, 8)?, remote: address(6, 24)?, cgroup, connection })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_listener_and_a_connection_are_listed_with_their_cgroup_and_what_waits() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let address = listener.local_addr().unwrap();
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"x").unwrap();
            let listeners = list(&[LISTEN], address.port(), 0).unwrap();
            assert_eq!(listeners.iter().map(|socket| socket.local).collect::<Vec<_>>(), [address]);
            let open = list(&[ESTABLISHED, SYN_SENT], 0, address.port()).unwrap();
            assert_eq!(open.iter().map(|socket| socket.remote).collect::<Vec<_>>(), [address]);
            let (listener, open) = (&listeners[0], &open[0]);
            assert!(open.cgroup.is_some() && open.cgroup == listener.cgroup);
            assert_eq!((open.connection.is_opening, open.connection.retransmits), (false, 0));
        }
    }

    #[test]
    fn connections_of_a_process_without_a_cgroup_of_its_own_are_not_told_apart() {
        let own = i32::try_from(std::process::id()).unwrap();
        let server = Server::of_url("https://10.0.0.1").unwrap();
        assert!(connections(own, "127.0.0.1:10248".parse().unwrap(), &server).is_err());
    }

    #[test]
    fn a_server_is_known_by_its_address_and_one_with_a_name_by_its_port() {
        let is_at = |url: &str, address: &str| Server::of_url(url).unwrap().is_at(address.parse().unwrap());
        assert!(is_at("https://10.0.0.1:6443/", "10.0.0.1:6443") && is_at("https://[::1]", "[::1]:443"));
        assert!(is_at("https://10.0.0.1", "[::ffff:10.0.0.1]:443") && !is_at("https://10.0.0.1", "10.0.0.2:443"));
        assert!(is_at("https://api.example", "10.0.0.2:443") && !is_at("https://api.example", "10.0.0.2:80"));
        assert_eq!(Server::of_url("10.0.0.1"), None);
    }

    #[test]
    fn a_list_that_is_refused_or_breaks_off_is_an_error() {
        let mut error = 36_u32.to_ne_bytes().to_vec();
        error.extend(NLMSG_ERROR.to_ne_bytes());
        error.extend([0; 10]);
        error.extend((-2_i32).to_ne_bytes());
        error.extend([0; 16]);
        let refused = take(&error, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(take(&error[..30], &mut Vec::new()).is_err());
        assert!(socket(&[0; 71]).is_none());
    }
}
