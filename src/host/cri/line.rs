//! A socket, and the few futures that talk on it, driven by the thread at hand with `poll(2)`: for a question or two every quarter
//! of a minute a runtime of tokio's would cost more than the questions. Between two of them nobody drives it.

use std::{
    cell::{Cell, RefCell},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
        sockopt::PeerCredentials,
    },
};

use crate::clock::Clock;

/// So much is read at once; both answers have some hundred bytes.
const CHUNK_BYTES: usize = 4 * 1024;

/// A connected socket.
pub(super) struct Line {
    stream: UnixStream,
    wants: Cell<PollFlags>,
}

impl Line {
    /// Connects at once or not at all: `WouldBlock` if nobody has taken a connection from the listener's queue for long.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            &UnixAddr::new(path)?,
        )?;
        Ok(Self {
            stream: socket.into(),
            wants: Cell::new(PollFlags::empty()),
        })
    }

    /// The process that listens.
    pub(super) fn peer(&self) -> Option<i32> {
        let peer = getsockopt(&self.stream, PeerCredentials).ok()?;
        (peer.pid() != 0).then_some(peer.pid())
    }

    /// Readable when the other end has said something, or closed.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What came of trying; if it has to wait, for what.
    fn tried<T>(&self, done: io::Result<T>, wants: PollFlags) -> Poll<io::Result<T>> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wants.set(self.wants.get() | wants);
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}

/// The half that a connection reads and writes; the other is waited on.
pub(super) struct End(pub(super) Rc<Line>);

impl Read for End {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK_BYTES];
        let room = into.remaining().min(CHUNK_BYTES);
        let read = retried(|| (&self.0.stream).read(&mut chunk[..room]));
        self.0.tried(read, PollFlags::POLLIN).map_ok(|bytes| {
            into.put_slice(&chunk[..bytes]);
        })
    }
}

impl Write for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = retried(|| (&self.0.stream).write(bytes));
        self.0.tried(written, PollFlags::POLLOUT)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = retried(|| (&self.0.stream).write_vectored(bytes));
        self.0.tried(written, PollFlags::POLLOUT)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.stream.shutdown(std::net::Shutdown::Write))
    }
}

fn retried<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What is to be driven beside the questions.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<RefCell<Vec<Task>>>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}

impl Tasks {
    /// Ends them. What a task holds may be a clone of these, so they do not end by themselves.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *self.0.borrow_mut());
        drop(all);
    }

    /// Whether all are done.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Polls each once, and those that came up meanwhile.
    fn poll(&self, context: &mut Context<'_>) {
        let mut pending = Vec::new();
        loop {
            let batch = std::mem::take(&mut *self.0.borrow_mut());
            if batch.is_empty() {
                break;
            }
            for mut task in batch {
                if task.as_mut().poll(context).is_pending() {
                    pending.push(task);
                }
            }
        }
        *self.0.borrow_mut() = pending;
    }
}

/// Set when a future can go on though the socket did nothing.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drives `talk`, and what goes on beside it, until it is done; `None` if that is not before `until` (uptime).
pub(super) fn drive<F: Future>(
    line: &Line,
    tasks: &Tasks,
    until: Duration,
    talk: F,
) -> io::Result<Option<F::Output>> {
    let mut talk = pin!(talk);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        line.wants.set(PollFlags::empty());
        woken.0.store(false, Ordering::Relaxed);
        if let Poll::Ready(done) = talk.as_mut().poll(&mut context) {
            return Ok(Some(done));
        }
        tasks.poll(&mut context);
        if woken.0.load(Ordering::Relaxed) {
            continue;
        }
        let left = until.saturating_sub(Clock.now().uptime);
        if left.is_zero() {
            return Ok(None);
        }
        let mut ready = [PollFd::new(line.stream.as_fd(), line.wants.get())];
        // A millisecond more, so that what is left of the last one is not waited for in a circle.
        let timeout = left.saturating_add(Duration::from_millis(1));
        match poll(
            &mut ready,
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
