//! The socket to the system bus. What is longer than any word of systemd's is read past and never held: on this bus anybody may send
//! anybody a signal of 32 MiB, and the agent has 64 MiB in all.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
};
use zbus::{
    address::transport::{Transport, UnixSocket},
    connection::{
        Builder,
        socket::{ReadHalf, Socket, Split, WriteHalf},
    },
    export::async_trait::async_trait,
};

use super::{
    dropped::{Cause, drop_one},
    signals::BUS,
};

/// A longer message is none of systemd's: all properties of a unit are some 30 KiB.
pub(super) const MAX_MESSAGE: usize = 1024 * 1024;
/// Read at once: a flood of small messages costs one call of the kernel for hundreds.
const BUFFER: usize = 64 * 1024;
/// The fixed part of a message's header.
const HEAD: usize = 16;

/// A header's fields; those of systemd's signals take some 200 bytes.
const MAX_FIELDS: usize = 4096;
/// A message's type, in its header.
const SIGNAL: u8 = 4;
/// How the field begins that names the sender: its number, and that it is a string. Fields begin at multiples of 8.
const SENDER: [u8; 4] = [7, 1, b's', 0];

/// Who is to be heard, and that somebody else was.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// systemd's unique name; while it is not known all is handed on. What is handed on is not believed for that.
    pub(super) owner: Mutex<Option<String>>,
    /// Told when messages were read past.
    pub(super) dropped: Notify,
}

impl Ear {
    /// A first, cheap look at a signal: whether a sender stands there that may be believed.
    fn hears(&self, fields: &[u8]) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(owner) = owner.as_deref() else {
            return true;
        };
        let is_from = |field: &[u8], name: &str| {
            let text = field.strip_prefix(&SENDER).and_then(|rest| rest.get(4..));
            let end = text.and_then(|text| text.strip_prefix(name.as_bytes()));
            end.is_some_and(|end| end.first() == Some(&0))
        };
        (0..fields.len())
            .step_by(8)
            .any(|at| is_from(&fields[at..], owner) || is_from(&fields[at..], BUS))
    }

    fn read_past(&self, cause: Cause) {
        drop_one(cause);
        self.dropped.notify_one();
    }
}

/// A connection to the system bus that is yet to be built.
#[expect(
    clippy::disallowed_methods,
    reason = "host/ is where the agent talks to this machine"
)]
pub(super) async fn builder(ear: Arc<Ear>) -> zbus::Result<Builder<'static>> {
    let address = zbus::Address::system()?;
    let Transport::Unix(unix) = address.transport() else {
        return Ok(Builder::address(address));
    };
    let UnixSocket::File(path) = unix.path() else {
        return Ok(Builder::address(address));
    };
    let (from, to) = UnixStream::connect(path).await?.into_split();
    Ok(Builder::socket(Wire {
        reader: Reader::new(from, ear),
        writer: Writer(to),
    }))
}

#[derive(Debug)]
struct Wire {
    reader: Reader<OwnedReadHalf>,
    writer: Writer,
}

impl Socket for Wire {
    type ReadHalf = Reader<OwnedReadHalf>;
    type WriteHalf = Writer;

    fn split(self) -> Split<Self::ReadHalf, Self::WriteHalf> {
        Split::new(self.reader, self.writer)
    }
}

/// What the next bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// A line of the handshake; whether it has just begun.
    Line(bool),
    /// A message that begins here.
    Head,
    /// A message that is handed on, and how much of it is left.
    Body(usize),
    /// One that is not.
    Skipped(usize),
}

/// The half that is read: what comes through it is whole messages of at most [`MAX_MESSAGE`].
#[derive(Debug)]
pub(super) struct Reader<R> {
    from: R,
    buffer: Box<[u8]>,
    /// What of the buffer has been read and not handed on.
    start: usize,
    end: usize,
    at: At,
    ear: Arc<Ear>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(from: R, ear: Arc<Ear>) -> Self {
        Self {
            from,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            at: At::Line(true),
            ear,
        }
    }

    /// Hands on what may be, and reads past what may not; 0 when more is to be read first.
    fn take(&mut self, into: &mut [u8]) -> usize {
        loop {
            let held = &self.buffer[self.start..self.end];
            let Some(first) = held.first() else { return 0 };
            match self.at {
                // A message begins with the letter of its byte order; no line of the bus's does.
                At::Line(true) if matches!(first, b'l' | b'B') => self.at = At::Head,
                At::Line(_) => {
                    let line = held.iter().position(|byte| *byte == b'\n');
                    let length = line.map_or(held.len(), |at| at + 1).min(into.len());
                    into[..length].copy_from_slice(&held[..length]);
                    self.at = At::Line(into[..length].last() == Some(&b'\n'));
                    self.start += length;
                    return length;
                }
                At::Head => {
                    let Some(head) = held.first_chunk() else {
                        return 0;
                    };
                    let (fields, length) = lengths(head);
                    if length > MAX_MESSAGE || fields > MAX_FIELDS {
                        self.ear.read_past(Cause::Size);
                        self.at = At::Skipped(length);
                        continue;
                    }
                    let is_signal = head[1] == SIGNAL;
                    let Some(fields) = held.get(HEAD..HEAD + fields) else {
                        return 0;
                    };
                    self.at = if is_signal && !self.ear.hears(fields) {
                        self.ear.read_past(Cause::Sender);
                        At::Skipped(length)
                    } else {
                        At::Body(length)
                    };
                }
                At::Body(left) => {
                    let length = left.min(held.len()).min(into.len());
                    into[..length].copy_from_slice(&held[..length]);
                    self.start += length;
                    self.at = match left - length {
                        0 => At::Head,
                        left => At::Body(left),
                    };
                    return length;
                }
                At::Skipped(left) => {
                    let length = left.min(held.len());
                    self.start += length;
                    self.at = match left - length {
                        0 => At::Head,
                        left => At::Skipped(left),
                    };
                }
            }
        }
    }
}

/// How long the fields are of the message that begins so, and all of it. Of what says no byte order zbus makes an error.
fn lengths(head: &[u8; HEAD]) -> (usize, usize) {
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let number = if head[0] == b'B' {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        };
        usize::try_from(number).unwrap_or(usize::MAX / 4)
    };
    let (body, fields) = (number(4), number(12));
    let all = fields.saturating_add(7) / 8 * 8 + HEAD;
    (fields, all.saturating_add(body))
}

#[async_trait]
impl<R> ReadHalf for Reader<R>
where
    R: AsyncRead + Unpin + std::fmt::Debug + Send + Sync + 'static,
{
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if buffer.is_empty() {
            return Ok((0, Vec::new()));
        }
        loop {
            let length = self.take(buffer);
            if length > 0 {
                return Ok((length, Vec::new()));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.from.read(&mut self.buffer[self.end..]).await? {
                0 => return Ok((0, Vec::new())),
                read => self.end += read,
            }
        }
    }
}

/// The half that is written. No file descriptors either way: nobody has any for us.
#[derive(Debug)]
struct Writer(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_another_sender_is_read_past() {
        let signal = |sender: &str| {
            let message = zbus::Message::signal("/org/freedesktop/systemd1", "a.b", "JobNew");
            let message = message.sender(sender).build(&"x").unwrap();
            message.data().to_vec()
        };
        let (own, bus, other) = (signal(":1.1"), signal(BUS), signal(":1.11"));
        let sent = [&b"OK 1\r\n"[..], &other, &own, &other, &bus, &other].concat();
        let wanted = [&b"OK 1\r\n"[..], &own, &bus].concat();
        for piece in [1, 1000] {
            assert!(read_with(&sent, piece, Some(":1.1")) == wanted);
            assert!(read_with(&sent, piece, None) == sent);
        }
    }

    fn message(order: u8, body: u32) -> Vec<u8> {
        let number = |n: u32| {
            if order == b'B' {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let mut bytes = vec![order, 4, 0, 1];
        bytes.extend(number(body));
        bytes.extend(number(1));
        bytes.extend(number(5)); // of header fields, padded to 8
        bytes.resize(HEAD + 8 + body as usize, b'\n');
        bytes
    }

    fn read(sent: &[u8], piece: usize) -> Vec<u8> {
        read_with(sent, piece, None)
    }

    fn read_with(sent: &[u8], piece: usize, owner: Option<&str>) -> Vec<u8> {
        let ear = Ear {
            owner: Mutex::new(owner.map(str::to_owned)),
            ..Ear::default()
        };
        let mut reader = Reader::new(io::Cursor::new(sent.to_vec()), Arc::new(ear));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
            loop {
                let (length, fds) = reader.recvmsg(&mut buffer).await.unwrap();
                assert!(fds.is_empty());
                if length == 0 {
                    return all;
                }
                all.extend(&buffer[..length]);
            }
        })
    }

    #[test]
    fn what_is_too_long_is_read_past_and_the_rest_comes_as_it_was_sent() {
        let handshake = b"OK 0123\r\nlost\r\n".to_vec();
        let handshake = [&handshake[..9], b"AGREE_UNIX_FD\r\n"].concat();
        let (small, large) = (message(b'l', 40), message(b'l', 2_000_000));
        let (big_endian, exact) = (message(b'B', 0), message(b'l', 1_048_552));
        assert_eq!(exact.len(), MAX_MESSAGE);
        let huge_claim = {
            let mut bytes = message(b'l', 0);
            bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
            bytes
        };
        let sent = [
            &handshake[..],
            &small,
            &large,
            &big_endian,
            &message(b'B', 3_000_000),
            &exact,
            &small,
            &huge_claim,
        ]
        .concat();
        let wanted = [&handshake[..], &small, &big_endian, &exact, &small].concat();
        for piece in [1, 16, 1000, 1 << 20] {
            assert!(read(&sent, piece) == wanted, "in pieces of {piece}");
        }
    }
}
