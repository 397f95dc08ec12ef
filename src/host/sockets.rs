//! The machine's TCP sockets towards the API server, as the kernel lists them (`NETLINK_SOCK_DIAG`): whose they are by
//! user, and whether what was sent is acknowledged; and how many connections wait at a port of its own. Needs no rights; which process has a socket it does not say.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::checks::{
    kubelet::Listening,
    lease::{Server, TcpSocket},
};

/// `SOCK_DIAG_BY_FAMILY`, and how its answers end.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, for one socket, and with `NLM_F_DUMP`, for all.
const ONE: u16 = 0x1;
const ALL: u16 = 0x301;
/// `INET_DIAG_INFO`: the attribute that holds `struct tcp_info`; asked for as a bit.
const INFO: u16 = 2;
const TCP: u8 = 6;
/// `TCP_ESTABLISHED` and `TCP_SYN_SENT`.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;

/// Connections that are open or being opened.
const TOWARDS: u32 = 1 << ESTABLISHED | 1 << SYN_SENT;

/// Sizes of `struct nlmsghdr`, `inet_diag_req_v2`, `inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ROW_BYTES: usize = 72;

/// The kernel hands a list out in parts of up to 32 KiB, which it makes smaller if we have less room.
const PART_BYTES: usize = 16 * 1024;
/// Parts of one list that are read: some 2500 sockets towards one port.
const MAX_PARTS: usize = 64;

/// To list all sockets, the kernel walks a table that has a place for each of a quarter of a million: measured at 0.2 ms. To
/// ask for one by its name costs a hundredth of that. So those that a list had are asked for by name, so many at most …
const MAX_NAMED: usize = 8;
/// … and so often, until the next list shows whether there are others.
const NAMED_TIMES: u8 = 5;

/// A socket as the kernel names it: `inet_diag_sockid`, with its cookie, and its family.
type Name = ([u8; 48], u8);

/// The kernel's list of sockets.
pub struct SocketTable {
    netlink: OwnedFd,
    part: Box<[u8]>,
    sequence: u32,
    /// Those of the last list; none if they were too many.
    named: Vec<Name>,
    /// Whose list that was, and how often they were asked for by name since.
    of: Option<Server>,
    times: u8,
}

impl fmt::Debug for SocketTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketTable").finish_non_exhaustive()
    }
}

impl SocketTable {
    /// Opens the way to it.
    ///
    /// # Errors
    /// When there is none: the kernel is built without it, or our unit does not allow `AF_NETLINK`.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: netlink()?,
            part: vec![0; PART_BYTES].into_boxed_slice(),
            sequence: 0,
            named: Vec::with_capacity(MAX_NAMED),
            of: None,
            times: 0,
        })
    }

    /// Tells each connection of root's to the server that is open or being opened. The kernel answers at once. Of one that
    /// has just been opened beside others it may tell some looks later.
    ///
    /// # Errors
    /// When the kernel refuses. What was told before counts.
    pub fn of_root(&mut self, server: Server, tell: impl FnMut(TcpSocket)) -> io::Result<()> {
        if self.of == Some(server) && !self.named.is_empty() && self.times < NAMED_TIMES {
            self.times += 1;
            let mut found = [None; MAX_NAMED];
            if self.by_name(server, &mut found)? {
                found.into_iter().flatten().for_each(tell);
                return Ok(());
            }
        }
        self.list_all(server, tell)
    }

    /// `true` if each of them is still there.
    fn by_name(
        &mut self,
        server: Server,
        found: &mut [Option<TcpSocket>; MAX_NAMED],
    ) -> io::Result<bool> {
        for (index, slot) in (0..self.named.len()).zip(found) {
            let (name, family) = self.named[index];
            let request = self.request(ONE, family, &name, TOWARDS);
            send(self.netlink.as_raw_fd(), &request, MsgFlags::empty())?;
            let length = self.receive()?;
            let mut take_it = |_: &[u8], socket| *slot = Some(socket);
            // That it is not there any more comes as an error.
            let taken = take(&self.part[..length], self.sequence, server, &mut take_it);
            if taken.is_err() || slot.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn list_all(&mut self, server: Server, mut tell: impl FnMut(TcpSocket)) -> io::Result<()> {
        (self.of, self.times) = (Some(server), 0);
        let mut named = std::mem::take(&mut self.named);
        named.clear();
        let mut count = 0;
        let mut note = |row: &[u8], socket| {
            count += 1;
            if let (Some(name), true) = (row.get(4..52), count <= MAX_NAMED) {
                named.push((name.try_into().unwrap_or([0; 48]), row[0]));
            }
            tell(socket);
        };
        let families = match server.address {
            Some(IpAddr::V4(_)) => &[AddressFamily::Inet][..],
            Some(IpAddr::V6(_)) => &[AddressFamily::Inet6],
            None => &[AddressFamily::Inet, AddressFamily::Inet6],
        };
        for family in families {
            let family = u8::try_from(*family as i32).unwrap_or(0);
            let listed = self.list(family, server, &mut note);
            if !matches!(listed, Ok(true)) {
                // Part of the list is still to come, and would be taken for the next one's.
                self.netlink = netlink()?;
            }
            listed?;
        }
        if count > MAX_NAMED {
            named.clear();
        }
        self.named = named;
        Ok(())
    }

    /// `true` if the list was read to its end.
    fn list(
        &mut self,
        family: u8,
        server: Server,
        note: &mut impl FnMut(&[u8], TcpSocket),
    ) -> io::Result<bool> {
        let request = self.request(ALL, family, &anything_at(server.port), TOWARDS);
        send(self.netlink.as_raw_fd(), &request, MsgFlags::empty())?;
        for _ in 0..MAX_PARTS {
            let length = self.receive()?;
            if take(&self.part[..length], self.sequence, server, note)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn receive(&mut self) -> io::Result<usize> {
        let netlink = self.netlink.as_raw_fd();
        Ok(recv(netlink, &mut self.part, MsgFlags::MSG_DONTWAIT)?)
    }

    fn request(
        &mut self,
        flags: u16,
        family: u8,
        name: &[u8; 48],
        states: u32,
    ) -> [u8; HEADER_BYTES + REQUEST_BYTES] {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = [0; HEADER_BYTES + REQUEST_BYTES];
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        let body = &mut bytes[HEADER_BYTES..];
        (body[0], body[1], body[2]) = (family, TCP, 1 << (INFO - 1));
        body[4..8].copy_from_slice(&states.to_ne_bytes());
        body[8..56].copy_from_slice(name);
        bytes
    }
}

/// The name of any socket to that port: any address, any interface, any local port, no cookie.
fn anything_at(port: u16) -> [u8; 48] {
    let mut name = [0; 48];
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[40..48].fill(0xff); // INET_DIAG_NOCOOKIE
    name
}

fn netlink() -> io::Result<OwnedFd> {
    Ok(socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?)
}

/// Who listens at that port of this machine, whatever the address, and how many connections wait there: most of them where
/// several do.
///
/// # Errors
/// When the kernel does not list sockets, or lists too many.
pub fn listening(port: u16) -> io::Result<Listening> {
    let mut table = SocketTable::open()?;
    let mut name = anything_at(0);
    name[..2].copy_from_slice(&port.to_be_bytes());
    let mut found = Listening::Nobody;
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let family = u8::try_from(family as i32).unwrap_or(0);
        let request = table.request(ALL, family, &name, 1 << LISTEN);
        send(table.netlink.as_raw_fd(), &request, MsgFlags::empty())?;
        let mut is_whole = false;
        for _ in 0..MAX_PARTS {
            let length = table.receive()?;
            let mut note = |row: &[u8]| {
                let Some(fixed) = row.get(..ROW_BYTES) else {
                    return;
                };
                if fixed[1] == LISTEN && fixed[4..6] == port.to_be_bytes() {
                    let queue = Listening::Waiting(u32_at(fixed, 56));
                    found = match (found, queue) {
                        (Listening::Waiting(a), Listening::Waiting(b)) if a >= b => found,
                        _ => queue,
                    };
                }
            };
            if each(&table.part[..length], table.sequence, &mut note)? {
                is_whole = true;
                break;
            }
        }
        if !is_whole {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(found)
}

/// One part of a list; each socket is noted, with its row. `true` if it was the last.
#[doc(hidden)] // public for the fuzz target
pub fn take(
    part: &[u8],
    sequence: u32,
    server: Server,
    note: &mut impl FnMut(&[u8], TcpSocket),
) -> io::Result<bool> {
    each(part, sequence, &mut |message| {
        if let Some(found) = row(message, server) {
            note(message, found);
        }
    })
}

/// Each row of a part. `true` if it was the last part.
fn each(mut part: &[u8], sequence: u32, note: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some(header) = part.get(..HEADER_BYTES) {
        let length = usize::try_from(u32_at(header, 0)).unwrap_or(usize::MAX);
        let Some(message) = part.get(HEADER_BYTES..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if u32_at(header, 8) == sequence {
            match u16_at(header, 4) {
                DONE => return Ok(true),
                ERROR => {
                    let code = message.get(..4).map_or(0, |_| u32_at(message, 0));
                    let code = code.cast_signed().wrapping_neg();
                    return Err(io::Error::from_raw_os_error(code));
                }
                BY_FAMILY => note(message),
                _ => {}
            }
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// One socket, if it is root's and goes to the server.
fn row(message: &[u8], server: Server) -> Option<TcpSocket> {
    let (fixed, mut attributes) = message.split_at_checked(ROW_BYTES)?;
    let (uid, state) = (u32_at(fixed, 64), fixed[1]);
    if uid != 0
        || ![ESTABLISHED, SYN_SENT].contains(&state)
        || server
            .address
            .is_some_and(|wanted| Some(wanted) != destination(fixed))
    {
        return None;
    }
    while let Some(header) = attributes.get(..4) {
        let length = usize::from(u16_at(header, 0));
        if u16_at(header, 2) == INFO {
            return tcp_info(state, attributes.get(4..length)?);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

fn destination(fixed: &[u8]) -> Option<IpAddr> {
    let address = fixed.get(24..40)?;
    match i32::from(fixed[0]) {
        family if family == AddressFamily::Inet as i32 => {
            let octets: [u8; 4] = address.get(..4)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        _ => {
            let octets: [u8; 16] = address.try_into().ok()?;
            Some(Ipv6Addr::from(octets).to_canonical())
        }
    }
}

/// `struct tcp_info` as far as every kernel since 2.6 has it.
fn tcp_info(state: u8, info: &[u8]) -> Option<TcpSocket> {
    let known = info.get(..60)?;
    let millis = |at| Duration::from_millis(u32_at(known, at).into());
    Some(TcpSocket {
        is_connecting: state == SYN_SENT,
        retransmits: known[2],
        probes: known[3],
        unacknowledged: u32_at(known, 24),
        sent_ago: millis(44),
        received_ago: millis(52),
        acknowledged_ago: millis(56),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    use nix::unistd::Uid;
    use proptest::prelude::*;

    use super::*;

    fn sockets(server: Server) -> Vec<TcpSocket> {
        let mut found = Vec::new();
        let mut table = SocketTable::open().unwrap();
        for _ in 0..2 {
            found.clear();
            table.of_root(server, |socket| found.push(socket)).unwrap();
        }
        found
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test connects to itself")]
    fn a_connection_of_roots_is_listed_by_its_server() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else {
                continue; // no IPv6 here
            };
            let port = listener.local_addr().unwrap().port();
            let mut stream = TcpStream::connect((host, port)).unwrap();
            stream.write_all(b"x").unwrap();
            let of = |address: Option<&str>| Server {
                address: address.map(|text| text.parse().unwrap()),
                port,
            };
            let wanted = usize::from(Uid::current().is_root());
            for server in [of(Some(host)), of(None)] {
                let found = sockets(server);
                assert_eq!(found.len(), wanted, "{found:?}");
                assert!(found.iter().all(|one| !one.is_connecting));
            }
            assert_eq!(sockets(of(Some("192.0.2.1"))), []);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test connects to itself")]
    fn those_that_are_known_are_asked_for_by_name_until_one_is_gone() {
        if !Uid::current().is_root() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port,
        };
        let connect = || {
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            (client, listener.accept().unwrap())
        };
        let (first, second) = (connect(), connect());
        let mut table = SocketTable::open().unwrap();
        let count = |table: &mut SocketTable| {
            let mut count = 0;
            table.of_root(server, |_| count += 1).unwrap();
            (count, table.times)
        };
        assert_eq!(count(&mut table), (2, 0), "a list");
        assert_eq!(count(&mut table), (2, 1), "by name");
        let third = connect();
        for times in 2..=NAMED_TIMES {
            assert_eq!(count(&mut table), (2, times));
        }
        assert_eq!(count(&mut table), (3, 0), "a list again");
        drop(second);
        assert_eq!(count(&mut table), (2, 0), "one was gone");
        assert_eq!(count(&mut table), (2, 1));
        drop((first, third));
        assert_eq!(count(&mut table), (0, 0));
        let many: Vec<_> = (0..=MAX_NAMED).map(|_| connect()).collect();
        for _ in 0..2 {
            assert_eq!(count(&mut table), (many.len(), 0), "too many for names");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test connects to itself")]
    fn connections_that_nobody_takes_wait_at_their_port() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else {
                continue; // no IPv6 here
            };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(listening(port).unwrap(), Listening::Waiting(0));
            let first = TcpStream::connect((host, port)).unwrap();
            assert_eq!(listening(port).unwrap(), Listening::Waiting(1));
            // Who gives up still waits to be taken.
            drop(first);
            let _second = TcpStream::connect((host, port)).unwrap();
            assert_eq!(listening(port).unwrap(), Listening::Waiting(2));
            let _taken = [listener.accept().unwrap(), listener.accept().unwrap()];
            assert_eq!(listening(port).unwrap(), Listening::Waiting(0));
            drop(listener);
            assert_eq!(listening(port).unwrap(), Listening::Nobody);
        }
    }

    #[test]
    fn a_list_that_is_refused_is_an_error_and_the_next_one_works() {
        let mut error = vec![0_u8; 36];
        error[..4].copy_from_slice(&36_u32.to_ne_bytes());
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        error[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        let server = Server {
            address: None,
            port: 6443,
        };
        let refused = take(&error, 0, server, &mut |_, _| {}).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(2));
        // An answer to an earlier question is passed over.
        assert!(!take(&error, 1, server, &mut |_, _| {}).unwrap());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0..300_u32) {
            let server = Server { address: None, port: 1 };
            let mut bytes = bytes;
            if bytes.len() >= 16 {
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
                bytes[8..12].fill(0);
            }
            take(&bytes, 0, server, &mut |_, _| {}).ok();
            row(&bytes, server);
        }
    }
}
