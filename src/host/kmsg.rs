//! The kernel's log, `/dev/kmsg`: read as it comes, sifted, and handed on as [`KernelEvent`]s.
//!
//! One record a read into one buffer. A calm log costs nothing: the kernel wakes us when it says something. A storm is read in
//! batches with the loop's turn between them, at most fifty a second; what the kernel overwrites meanwhile is counted.

use std::{collections::VecDeque, io, os::fd::OwnedFd, time::Duration};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc::{self, error::TrySendError},
};
use tracing::debug;

use crate::{
    checks::kernel::{event::KernelEvent, record::Record, sift::Sifter},
    clock::Clock,
    host::files::Root,
};

/// Where the log is.
const PATH: &str = "/dev/kmsg";
/// Events that wait for the loop; what finds no room is counted as lost.
pub const QUEUE: usize = 64;
/// A record is shorter: the kernel refuses to hand out one in part (its own bound is 8 KiB, and 2 KiB since 6.6).
const MAX_RECORD_BYTES: usize = 8 * 1024;
/// Records read before the loop has its turn.
const BATCH: usize = 64;
/// In a storm we look once in so long; until then the kernel's ring gathers. (128 KiB, the smallest that is usual, hold twice of
/// what 20 000 lines a second bring in that time.)
const PACE: Duration = Duration::from_millis(20);
/// So many looks may come without a pause before it is a storm: a kill for memory, which is told in a burst, is not held back.
const AHEAD: u32 = 8;
/// How long the end of what is half said is waited for.
const HALF_SAID: Duration = Duration::from_millis(100);
/// A storm's losses are said once in so long.
const LOSSES: Duration = Duration::from_secs(10);
/// What this boot has said before we came: so many of the last lines that matter are handed on.
const KEPT: usize = QUEUE / 2;
/// And no more records than this are looked at; the largest ring that is usual holds fewer.
const MAX_PAST: usize = 64 * 1024;
/// A log that cannot be read is tried again after that time.
const RETRY: Duration = Duration::from_mins(5);

/// Reads the log until nobody listens any more.
pub async fn follow(root: Root, clock: Clock, events: mpsc::Sender<KernelEvent>) {
    loop {
        let log = match open(&root) {
            Ok(log) => log,
            Err(error) => {
                let why = format!("open {PATH}: {error}");
                if events.send(KernelEvent::Unreadable(why)).await.is_err() {
                    return;
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let mut reader = Reader::new(log, clock, events.clone());
        let Err(error) = reader.run().await else {
            return;
        };
        let why = format!("read {PATH}: {error}");
        if events.send(KernelEvent::Unreadable(why)).await.is_err() {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// What this boot has said so far, each line with the kernel's stamp, of what is `wanted`: the last `max` of them.
///
/// # Errors
/// When the log cannot be read.
pub fn so_far(
    root: &Root,
    max: usize,
    wanted: impl Fn(&Record<'_>) -> bool,
) -> io::Result<VecDeque<String>> {
    let log = opened(root)?;
    let mut buffer = [0; MAX_RECORD_BYTES];
    let mut lines = VecDeque::new();
    for _ in 0..MAX_PAST {
        let bytes = match rustix::io::read(&log, &mut buffer) {
            Ok(count) => &buffer[..count],
            Err(Errno::AGAIN) => break,
            Err(Errno::PIPE | Errno::INTR | Errno::INVAL) => continue, // overwritten, or too long
            Err(error) => return Err(error.into()),
        };
        if let Some(record) = Record::parse(bytes).filter(&wanted) {
            let secs = record.at.as_secs_f64();
            lines.push_back(format!("[{secs:12.6}] {}", record.text));
            if lines.len() > max {
                lines.pop_front();
            }
        }
    }
    Ok(lines)
}

fn open(root: &Root) -> io::Result<AsyncFd<OwnedFd>> {
    // The right to read is asked for at the first read on some kernels, at the open on others.
    watched(opened(root)?)
}

fn opened(root: &Root) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root.join(PATH), flags, Mode::empty())?)
}

fn watched(log: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe and asks for what an OwnedFd promises by its type: one file, open while it lives"
    )]
    AsyncFd::with_interest(log, Interest::READABLE)
}

/// What one look at the log found.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// Everything was read.
    All,
    /// Something was handed on; there may be more.
    Told,
    /// There is more.
    More,
    /// Nobody listens any more.
    Unheard,
}

struct Reader {
    log: AsyncFd<OwnedFd>,
    clock: Clock,
    events: mpsc::Sender<KernelEvent>,
    sifter: Sifter,
    buffer: Box<[u8; MAX_RECORD_BYTES]>,
    pace: Pace,
    losses: Losses,
}

impl Reader {
    fn new(log: AsyncFd<OwnedFd>, clock: Clock, events: mpsc::Sender<KernelEvent>) -> Self {
        Self {
            log,
            clock,
            events,
            sifter: Sifter::default(),
            buffer: Box::new([0; MAX_RECORD_BYTES]),
            pace: Pace::default(),
            losses: Losses::default(),
        }
    }

    /// Ends well when nobody listens any more.
    async fn run(&mut self) -> io::Result<()> {
        self.read_past().await?;
        loop {
            self.wait().await?;
            let now = self.clock.now().uptime;
            if let Some(pause) = self.pace.look(now) {
                tokio::time::sleep(pause).await;
            }
            loop {
                match self.look()? {
                    Looked::All => break,
                    // What comes of a kill goes first, up to the wire: the loop, and then whoever sends.
                    Looked::Told => {
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                    }
                    Looked::More => tokio::task::yield_now().await,
                    Looked::Unheard => return Ok(()),
                }
            }
            self.say_losses();
        }
    }

    /// What this boot has said before we came: the last of what matters.
    async fn read_past(&mut self) -> io::Result<()> {
        let mut kept = VecDeque::with_capacity(KEPT);
        let mut keep = |event| {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(event);
        };
        for read in 1..=MAX_PAST {
            match rustix::io::read(&self.log, &mut self.buffer[..]) {
                Ok(length) => self.sifter.take(&self.buffer[..length], &mut keep),
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE | Errno::INTR | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
            if read % BATCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        self.sifter.flush(&mut keep);
        // What was overwritten before we came is nobody's loss.
        self.sifter.take_lost();
        for event in kept {
            if self.events.send(event).await.is_err() {
                return Ok(());
            }
        }
        self.events.send(KernelEvent::Readable).await.ok();
        Ok(())
    }

    /// Until there is something to read, to flush or to say.
    async fn wait(&mut self) -> io::Result<()> {
        let until = if self.sifter.waits() {
            HALF_SAID
        } else if self.losses.are_unsaid() {
            LOSSES
        } else {
            self.log.readable().await?.retain_ready();
            return Ok(());
        };
        if let Ok(ready) = tokio::time::timeout(until, self.log.readable()).await {
            ready?.retain_ready();
        } else {
            let (events, losses, clock) = (&self.events, &mut self.losses, self.clock);
            self.sifter
                .flush(&mut |event| losses.hand_on(events, heard_at(event, clock)));
        }
        Ok(())
    }

    /// Reads a batch.
    fn look(&mut self) -> io::Result<Looked> {
        for _ in 0..BATCH {
            let buffer = &mut self.buffer[..];
            let read = self.log.try_io(Interest::READABLE, |log| {
                Ok(rustix::io::read(log, &mut *buffer)?)
            });
            match read {
                Ok(length) => {
                    let (events, losses, clock) = (&self.events, &mut self.losses, self.clock);
                    let record = &self.buffer[..length];
                    let mut is_told = false;
                    self.sifter.take(record, &mut |event| {
                        losses.hand_on(events, heard_at(event, clock));
                        is_told = true;
                    });
                    if is_told && !events.is_closed() {
                        return Ok(Looked::Told);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Looked::All),
                // Overwritten: the next read goes on with what is there, and its number says how many are missing. A record
                // that no buffer of ours could hold is passed over by the kernel.
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::PIPE | Errno::INTR | Errno::INVAL)
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        if self.events.is_closed() {
            return Ok(Looked::Unheard);
        }
        Ok(Looked::More)
    }

    fn say_losses(&mut self) {
        self.losses.add(self.sifter.take_lost());
        let now = self.clock.now().uptime;
        if let Some(records) = self.losses.due(now) {
            debug!(records, "records of the kernel's log were lost");
            let lost = KernelEvent::Lost { records };
            if self.events.try_send(lost).is_err() {
                self.losses.add(records);
            }
        }
    }
}

/// What is said now has our time. The kernel stamps its records by another clock, which nobody sets right: it leaves out what
/// the host slept, is a minute off after a month, and on some virtual machines stands still while nothing is said.
fn heard_at(mut event: KernelEvent, clock: Clock) -> KernelEvent {
    let now = clock.now().uptime;
    match &mut event {
        KernelEvent::OomKill(kill) => kill.at = now,
        KernelEvent::Line(line) => line.at = now,
        KernelEvent::Lost { .. } | KernelEvent::Unreadable(_) | KernelEvent::Readable => {}
    }
    event
}

/// How often the log is looked at.
#[derive(Debug, Default)]
struct Pace {
    /// Until when the looks so far have used up their time.
    used_until: Duration,
}

impl Pace {
    /// A look is wanted: how long to pause before it.
    fn look(&mut self, now: Duration) -> Option<Duration> {
        self.used_until = self.used_until.max(now) + PACE;
        let ahead = self.used_until.saturating_sub(now);
        let pause = ahead.saturating_sub(PACE * AHEAD);
        (!pause.is_zero()).then_some(pause)
    }
}

/// What was lost, and when that was said.
#[derive(Debug, Default)]
struct Losses {
    records: u64,
    said_at: Option<Duration>,
}

impl Losses {
    fn add(&mut self, records: u64) {
        self.records = self.records.saturating_add(records);
    }

    fn are_unsaid(&self) -> bool {
        self.records > 0
    }

    /// What to say now: at once after a calm, else once in a while.
    fn due(&mut self, now: Duration) -> Option<u64> {
        let waited = self
            .said_at
            .is_none_or(|at| now.saturating_sub(at) >= LOSSES);
        (waited && self.records > 0).then(|| {
            self.said_at = Some(now);
            std::mem::take(&mut self.records)
        })
    }

    /// A full queue does not hold the reader up: the loop's turn may be far.
    fn hand_on(&mut self, events: &mpsc::Sender<KernelEvent>, event: KernelEvent) {
        if let Err(TrySendError::Full(_)) = events.try_send(event) {
            self.add(1);
        }
    }
}

#[cfg(test)]
mod tests;
