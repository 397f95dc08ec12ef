//! Logging that never blocks: each line goes through a bounded queue to a thread of its own, which writes to the
//! journal with every field as a journal field, or to stderr in words.
//!
//! Why a thread: sending to the journal's socket blocks once its queue is full, and a journald that hangs must not keep
//! the agent from saying on the Node that the kubelet is dead. What does not fit is dropped and counted, and the count
//! is said as soon as the queue is empty again.

mod ids;
mod record;
mod writer;

use std::{
    io::{self, IsTerminal},
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    layer::{Context, SubscriberExt},
};

pub use self::ids::Kind;
use self::record::Record;
use crate::clock::Clock;

/// Lines that may wait for the writer; with [`record::MAX_BYTES`] a line this is at most a megabyte.
const QUEUE: usize = 256;
/// The writer formats one line at a time; the default of 2 MiB would be locked into memory.
const STACK: usize = 256 * 1024;
/// How long an orderly exit waits for the lines that are still queued: 40 looks, 5 ms apart.
const FLUSH_LOOKS: usize = 40;
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// Where the lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// To journald's own socket, with fields; to stderr as long as journald cannot be reached.
    Journal,
    /// To stderr, as `2026-11-21T09:00:00Z WARN message key=value`.
    Stderr {
        /// With colours.
        colour: bool,
    },
}

impl Sink {
    /// The journal when stderr is connected to it (as in a systemd service), else stderr: with colours on a terminal,
    /// unless `no_color` (whether `$NO_COLOR` is set and not empty).
    pub fn detect(no_color: bool) -> Self {
        if systemd_journal_logger::connected_to_journal() {
            Self::Journal
        } else {
            Self::Stderr {
                colour: !no_color && io::stderr().is_terminal(),
            }
        }
    }
}

/// Logging that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error(
        "log level {filter:?}: {reason}; wants error, warn, info, debug, trace or off, or a list of TARGET=LEVEL, such \
         as warn,nodevigil=debug"
    )]
    Filter {
        /// As handed in.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The writer's thread could not be started.
    #[error("log: start the writer's thread: {0}")]
    Thread(io::Error),
    /// It was started before in this process.
    #[error("log: started twice in one process")]
    Twice,
}

/// What happened to the lines so far.
#[derive(Debug, Default)]
struct Counts {
    dropped: AtomicU64,
    /// Queued or being written.
    pending: AtomicUsize,
}

static COUNTS: Counts = Counts {
    dropped: AtomicU64::new(0),
    pending: AtomicUsize::new(0),
};

/// How many lines were dropped since the start because the writer could not keep up.
pub fn dropped() -> u64 {
    COUNTS.dropped.load(Ordering::Relaxed)
}

/// Starts logging for the whole process: `sink` says where to, `filter` what (`--log-level`; see [`LogError::Filter`]).
/// A level alone is meant for nodevigil's own lines: the libraries' are shown from `warn` on.
///
/// Keep the guard until the end: dropping it waits for the queued lines, at most 200 ms.
pub fn init(sink: Sink, filter: &str) -> Result<Guard, LogError> {
    let targets = parse_filter(filter)?;
    let queue = Queue::start(&COUNTS, move || writer::writer(sink))?;
    let subscriber = Registry::default().with(targets).with(queue);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(Guard { counts: &COUNTS })
}

/// Waits, when dropped, for the lines that are still queued.
#[derive(Debug)]
#[must_use = "dropping it waits for the last lines; keep it until the end"]
pub struct Guard {
    counts: &'static Counts,
}

impl Drop for Guard {
    fn drop(&mut self) {
        for _ in 0..FLUSH_LOOKS {
            if self.counts.pending.load(Ordering::Acquire) == 0 {
                return;
            }
            thread::sleep(FLUSH_PAUSE);
        }
    }
}

fn parse_filter(filter: &str) -> Result<Targets, LogError> {
    let is_level = filter.parse::<tracing::level_filters::LevelFilter>();
    let text = match is_level {
        Ok(level) if level == tracing::level_filters::LevelFilter::OFF => "off".to_owned(),
        Ok(level) => format!("warn,nodevigil={level}"),
        Err(_) => filter.to_owned(),
    };
    text.parse().map_err(
        |error: tracing_subscriber::filter::ParseError| LogError::Filter {
            filter: filter.to_owned(),
            reason: error.to_string(),
        },
    )
}

/// The near end of the queue, as a layer of tracing.
struct Queue {
    sender: SyncSender<Record>,
    counts: &'static Counts,
}

impl Queue {
    /// Starts the thread; `make` makes the sink there, because reaching for the journal may block too.
    fn start<S: FnMut(&Record)>(
        counts: &'static Counts,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Self, LogError> {
        let (sender, receiver) = sync_channel::<Record>(QUEUE);
        let run = move || {
            let mut sink = make();
            let mut said = 0;
            loop {
                let record = match receiver.try_recv() {
                    Ok(record) => record,
                    Err(TryRecvError::Disconnected) => break,
                    Err(TryRecvError::Empty) => {
                        // All that was queued is written: what was lost was lost before now.
                        let dropped = counts.dropped.load(Ordering::Relaxed);
                        if dropped > said {
                            sink(&Record::dropped(dropped - said, Clock.now().wall));
                            said = dropped;
                        }
                        let Ok(record) = receiver.recv() else { break };
                        record
                    }
                };
                sink(&record);
                counts.pending.fetch_sub(1, Ordering::Release);
            }
        };
        thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(STACK)
            .spawn(run)
            .map_err(LogError::Thread)?;
        Ok(Self { sender, counts })
    }

    fn push(&self, record: Record) {
        self.counts.pending.fetch_add(1, Ordering::Relaxed);
        if self.sender.try_send(record).is_err() {
            self.counts.pending.fetch_sub(1, Ordering::Release);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.push(Record::of(event, Clock.now().wall));
    }
}

#[cfg(test)]
mod tests;
