//! Log lines to stderr, which is the journal's for a service, through a bounded queue: journald may hang, and then a write blocks.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{env, thread};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::fstat;

/// Lines that wait while stderr blocks; more are dropped.
const QUEUE: usize = 256;
const MAX_LINE_BYTES: usize = 2048;
/// How long the end of the process waits for the last lines.
const FLUSH_WAIT: Duration = Duration::from_millis(200);

static QUEUED: OnceLock<SyncSender<Queued>> = OnceLock::new();
/// Lines that found the queue full.
static LOST: AtomicU64 = AtomicU64::new(0);

enum Queued {
    Line(Level, String),
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
            let text = redact::bounded(&redact::escape_controls(&record.args().to_string()), MAX_LINE_BYTES);
            let line = Queued::Line(record.level(), text);
            if QUEUED.get().is_none_or(|queue| queue.try_send(line).is_err()) {
                LOST.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn flush(&self) {}
}

/// Sends log lines to stderr.
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
    let is_journal = is_journal();
    // At once, as stderr has no buffer of its own.
    let write =
        |level, text: &str| io::stderr().write_all(format!("{}{text}\n", prefix(level, is_journal)).as_bytes()).ok();
    for queued in lines {
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            write(Level::Warn, &format!("{lost} log lines before this are lost"));
        }
        match queued {
            Queued::Flush(done) => done.try_send(()).unwrap_or_default(),
            Queued::Line(level, text) => _ = write(level, &text),
        }
    }
}

/// Whether stderr is connected to the journal (`systemd.exec(5)`, `$JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stderr) = fstat(io::stderr()) else { return false };
    env::var("JOURNAL_STREAM").is_ok_and(|journal| journal == format!("{}:{}", stderr.st_dev, stderr.st_ino))
}

/// The level as the journal reads it at the beginning of a line (`sd-daemon(3)`), or as people do.
const fn prefix(level: Level, is_journal: bool) -> &'static str {
    match (level, is_journal) {
        (Level::Error, true) => "<3>",
        (Level::Warn, true) => "<4>",
        (_, true) => "<6>",
        (Level::Error, false) => "error: ",
        (Level::Warn, false) => "warning: ",
        (_, false) => "",
    }
}
