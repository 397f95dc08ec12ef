//! TCP connections, as the kernel lists them (`sock_diag(7)`): whether what was sent is acknowledged, and to which cgroup they belong.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use hyper::http::uri::Scheme;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage, TCP_SYN_SENT};
use procfs::process::Process;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// `INET_DIAG_CGROUP_ID` of `linux/inet_diag.h`, since Linux 5.9.
const CGROUP_ID: u16 = 21;
/// Where a message has `idiag_retrans` of `struct inet_diag_msg`, which the crate gives for one kind of timer alone.
const RETRANSMITS: usize = 16 + 3;
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

/// The connections to the server that belong to the cgroup of process `pid`, which listens at `healthz`. The kernel lists a socket's
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
    let listeners =
        list(&StateFlags::LISTEN, healthz.port(), 0)?.into_iter().filter(listens).map(|socket| socket.cgroup);
    let mut owners: Vec<_> = listeners.collect();
    owners.dedup();
    let [Some(owner)] = owners[..] else {
        return Err(io::Error::other(format!("the kernel names no cgroup for what listens at {healthz}")));
    };
    let found = list(&(StateFlags::ESTABLISHED | StateFlags::SYN_SENT), 0, server.port)?.into_iter();
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
fn list(states: &StateFlags, local_port: u16, remote_port: u16) -> io::Result<Vec<Socket>> {
    let (mut found, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
        let socket_id = SocketId { source_port: local_port, destination_port: remote_port, ..any };
        let (states, extensions) = (states.clone(), ExtensionFlags::empty());
        let request = InetRequest { family, protocol: IPPROTO_TCP, extensions, states, socket_id };
        send(&netlink, &bytes(request), SendFlags::empty())?;
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

fn bytes(request: InetRequest) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Takes in a part of a list; `true` if it is the last one.
fn take(mut part: &[u8], found: &mut Vec<Socket>) -> io::Result<bool> {
    while !part.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(part)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                let retransmits = part.get(RETRANSMITS).copied().unwrap_or_default();
                found.push(socket(&response, retransmits));
            }
            _ => {}
        }
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX).next_multiple_of(4);
        part = part.get(length..).unwrap_or_default();
    }
    Ok(false)
}

fn socket(InetResponse { header, nlas }: &InetResponse, retransmits: u8) -> Socket {
    let id = &header.socket_id;
    let cgroup = nlas.iter().filter(|attribute| attribute.kind() == CGROUP_ID).find_map(|attribute| {
        let mut value = [0; 8];
        (attribute.value_len() == value.len()).then(|| attribute.emit_value(&mut value))?;
        Some(u64::from_ne_bytes(value))
    });
    let connection =
        Connection { is_opening: header.state == TCP_SYN_SENT, retransmits, unacknowledged_bytes: header.send_queue };
    Socket {
        local: SocketAddr::new(id.source_address, id.source_port),
        remote: SocketAddr::new(id.destination_address, id.destination_port),
        cgroup,
        connection,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listener_and_a_connection_are_listed_with_their_cgroup_and_what_waits() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let address = listener.local_addr().unwrap();
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"x").unwrap();
            let listeners = list(&StateFlags::LISTEN, address.port(), 0).unwrap();
            assert_eq!(listeners.iter().map(|socket| socket.local).collect::<Vec<_>>(), [address]);
            let open = list(&(StateFlags::ESTABLISHED | StateFlags::SYN_SENT), 0, address.port()).unwrap();
            assert_eq!(open.iter().map(|socket| socket.remote).collect::<Vec<_>>(), [address]);
            let (listener, open) = (&listeners[0], &open[0]);
            assert!(open.cgroup.is_some() && open.cgroup == listener.cgroup);
            assert_eq!((open.connection.is_opening, open.connection.retransmits), (false, 0));
        }
    }

    #[test]
    fn connections_of_a_process_without_a_cgroup_of_its_own_are_an_error() {
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
    fn what_is_sent_again_is_counted_whatever_the_timer_is() {
        let request = InetRequest {
            family: AF_INET,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::ESTABLISHED,
            socket_id: SocketId::new_v4(),
        };
        // The header of the message; then struct inet_diag_msg: family, state, timer 4 (of window probes), three probes.
        let mut message = bytes(request)[..16].to_vec();
        message[0] = 16 + 72;
        message.extend([AF_INET, 1, 4, 3]);
        message.resize(16 + 72, 0);
        let mut found = Vec::new();
        assert!(!take(&message, &mut found).unwrap());
        assert_eq!(found.iter().map(|socket| socket.connection.retransmits).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_list_that_is_refused_or_breaks_off_is_an_error() {
        let mut error = 36_u32.to_ne_bytes().to_vec();
        error.extend(netlink_packet_core::NLMSG_ERROR.to_ne_bytes());
        error.extend([0; 10]);
        error.extend((-2_i32).to_ne_bytes());
        error.extend([0; 16]);
        let refused = take(&error, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(take(&error[..30], &mut Vec::new()).is_err());
    }
}
