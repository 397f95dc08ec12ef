//! Log lines to stderr, which is the journal's for a service, and lines with fields to journald's own socket. Both go through a bounded
//! queue: journald may hang, and then a write blocks.
//!
//! Only lines with fields use the socket. journald looks up the unit of a datagram's sender, and does not find it if the process has ended
//! meanwhile (<https://github.com/systemd/systemd/issues/2913>): `journalctl -u` would lack the line that explains an exit.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use systemd_journal_logger::{JournalLog, connected_to_journal};

/// Lines that wait while stderr blocks; more are dropped.
const QUEUE: usize = 256;
const MAX_LINE_BYTES: usize = 2048;
/// How long the end of the process waits for the last lines.
const FLUSH_WAIT: Duration = Duration::from_millis(200);

static QUEUED: OnceLock<SyncSender<Queued>> = OnceLock::new();
/// Lines that found the queue full.
static LOST: AtomicU64 = AtomicU64::new(0);

enum Queued {
    Line(Line),
    /// All lines before it are written.
    Flush(SyncSender<()>),
}

/// Bounded and without control characters.
struct Line {
    level: Level,
    text: String,
    /// The record's key-value pairs: fields of the journal (`systemd.journal-fields(7)`).
    fields: Vec<(String, String)>,
}

impl Line {
    fn new(record: &Record<'_>) -> Self {
        let mut fields = Fields::default();
        drop(record.key_values().visit(&mut fields));
        Self { level: record.level(), text: sanitize(&record.args().to_string()), fields: fields.0 }
    }
}

#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let value = sanitize(&value.to_string());
        if !value.is_empty() {
            self.0.push((key.as_str().to_owned(), value));
        }
        Ok(())
    }
}

fn sanitize(text: &str) -> String {
    redact::bounded(&redact::escape_controls(text), MAX_LINE_BYTES)
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
            let line = Queued::Line(Line::new(record));
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
    let is_journal = connected_to_journal();
    let journal = is_journal.then(|| JournalLog::new().ok()).flatten();
    let to_stderr = |level, text: &str| {
        // At once, as stderr has no buffer of its own.
        _ = io::stderr().write_all(format!("{}{text}\n", prefix(level, is_journal)).as_bytes());
    };
    for queued in lines {
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            to_stderr(Level::Warn, &format!("{lost} log lines before this are lost"));
        }
        match queued {
            Queued::Flush(done) => done.try_send(()).unwrap_or_default(),
            Queued::Line(line) => {
                let socket = journal.as_ref().filter(|_| !line.fields.is_empty());
                if socket.is_none_or(|socket| send(socket, &line).is_err()) {
                    to_stderr(line.level, &line.text);
                }
            }
        }
    }
}

fn send(socket: &JournalLog, line: &Line) -> io::Result<()> {
    // The crate maps `Info` to the priority `notice`, and `Debug` to `info`.
    let level = if line.level == Level::Info { Level::Debug } else { line.level };
    let record = |text| Record::builder().level(level).target("nodevigil").key_values(&line.fields).args(text).build();
    socket.journal_send(&record(format_args!("{}", line.text)))
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
