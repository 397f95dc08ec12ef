//! Log lines to the journal, through a bounded queue: journald may hang, and then a write to its socket blocks.

use std::{
    io::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use log::{Level, LevelFilter, Log, Metadata, Record};
use systemd_journal_logger::{JournalLog, connected_to_journal};

/// Lines that wait while journald does not read; more are dropped.
const QUEUE: usize = 256;
/// The longest line, in bytes.
const MAX_LINE: usize = 2048;

/// How long the end of the process waits for the last lines.
const FLUSH_WAIT: Duration = Duration::from_millis(200);

static QUEUED: OnceLock<SyncSender<Queued>> = OnceLock::new();
/// Lines that found the queue full, because journald did not read.
static LOST: AtomicU64 = AtomicU64::new(0);

enum Queued {
    Line {
        level: Level,
        target: String,
        text: String,
    },
    /// All lines before it are written.
    Flush(SyncSender<()>),
}

struct QueuedLog;

impl Log for QueuedLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        // kube logs each failed attempt; whether the API server answers is in `status` and in our own lines.
        let is_kube = target.starts_with("kube");
        !is_kube && metadata.level() <= if target.starts_with("nodevigil") { Level::Info } else { Level::Warn }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut text = record.args().to_string();
            text.truncate(text.floor_char_boundary(MAX_LINE));
            let line = Queued::Line { level: record.level(), target: record.target().to_owned(), text };
            if QUEUED.get().is_none_or(|queue| queue.try_send(line).is_err()) {
                LOST.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn flush(&self) {}
}

/// Sends log lines to the journal, or to stderr where that is not the journal's.
pub fn init() {
    let (sender, lines) = sync_channel(QUEUE);
    let spawned = thread::Builder::new().name("log".into()).spawn(move || write(&lines));
    if spawned.is_ok() && QUEUED.set(sender).is_ok() && log::set_logger(&QueuedLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Waits until the lines so far are written, but not for a journald that hangs.
pub fn flush() {
    let (done, is_done) = sync_channel(1);
    if QUEUED.get().is_some_and(|queue| queue.try_send(Queued::Flush(done)).is_ok()) {
        is_done.recv_timeout(FLUSH_WAIT).ok();
    }
}

fn write(lines: &Receiver<Queued>) {
    let journal = if connected_to_journal() { JournalLog::new().ok() } else { None };
    for queued in lines {
        match LOST.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => write_line(
                journal.as_ref(),
                Level::Warn,
                "nodevigil",
                &format!("{lost} log lines before this are lost"),
            ),
        }
        match queued {
            Queued::Flush(done) => done.try_send(()).unwrap_or_default(),
            Queued::Line { level, target, text } => write_line(journal.as_ref(), level, &target, &text),
        }
    }
}

fn write_line(journal: Option<&JournalLog>, level: Level, target: &str, text: &str) {
    match journal {
        Some(journal) => {
            journal.log(&Record::builder().level(level).target(target).args(format_args!("{text}")).build());
        }
        None => _ = writeln!(std::io::stderr(), "{}: {text}", level.as_str().to_lowercase()),
    }
}
