//! The far end of the queue: writes records to the journal or to stderr, and may block there.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use jiff::Timestamp;
use systemd_journal_logger::JournalLog;
use tracing::Level;

use super::{Sink, record::Record};

/// How a line on stderr looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// For a file or a pipe.
    Plain,
    /// For a terminal.
    Colour,
    /// For a stderr that is the journal: `<4>message key=value`, where the digit is the priority (`sd-daemon(3)`).
    Prefix,
}

/// The function that writes one record to `sink`, to be called on the writer's thread alone: it may block.
pub(super) fn writer(sink: Sink) -> impl FnMut(&Record) {
    let mut journal = None;
    move |record| match sink {
        Sink::Journal => {
            if to_journal(&mut journal, record).is_err() {
                journal = None;
                to_stderr(record, Style::Prefix);
            }
        }
        Sink::Stderr { colour: true } => to_stderr(record, Style::Colour),
        Sink::Stderr { colour: false } => to_stderr(record, Style::Plain),
    }
}

fn to_stderr(record: &Record, style: Style) {
    // Nobody is left to be told when stderr is gone.
    let _ = io::stderr().write_all(line(record, style).as_bytes());
}

/// Sends to journald, after connecting if that did not work before.
fn to_journal(journal: &mut Option<JournalLog>, record: &Record) -> io::Result<()> {
    let journal = match journal {
        Some(journal) => journal,
        None => journal
            .insert(JournalLog::empty()?.with_syslog_identifier(env!("CARGO_PKG_NAME").to_owned())),
    };
    with_log_record(record, |record| journal.journal_send(record))
}

/// Hands the record over as the `log` crate has it: the fields become key-values, which the journal gets as fields
/// (upper case; `message_id` so becomes `MESSAGE_ID`).
pub(super) fn with_log_record<T>(record: &Record, send: impl FnOnce(&log::Record<'_>) -> T) -> T {
    let level = match record.level {
        Level::ERROR => log::Level::Error,
        Level::WARN => log::Level::Warn,
        Level::INFO => log::Level::Info,
        Level::DEBUG => log::Level::Debug,
        Level::TRACE => log::Level::Trace,
    };
    let fields = record.fields.as_slice();
    send(
        &log::Record::builder()
            .args(format_args!("{}", record.message))
            .level(level)
            .target(record.target)
            .key_values(&fields)
            .build(),
    )
}

/// A line for people, with its newline.
pub(super) fn line(record: &Record, style: Style) -> String {
    let mut line = String::new();
    let written = match style {
        Style::Prefix => write!(line, "<{}>", priority(record.level)),
        Style::Plain => write!(line, "{} {} ", seconds(record.at), record.level),
        Style::Colour => {
            let colour = colour(record.level);
            let at = seconds(record.at);
            write!(line, "\x1b[2m{at}\x1b[0m {colour}{}\x1b[0m ", record.level)
        }
    };
    written.expect("writing to a String cannot fail");
    push_escaped(&mut line, &record.message);
    for (name, value) in &record.fields {
        if *name == "message_id" {
            continue; // for machines, which read the journal
        }
        let (on, off) = match style {
            Style::Colour => ("\x1b[2m", "\x1b[0m"),
            Style::Plain | Style::Prefix => ("", ""),
        };
        let bare = !value.is_empty()
            && value
                .chars()
                .all(|c| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=');
        if bare {
            write!(line, " {on}{name}={off}{value}")
        } else {
            write!(line, " {on}{name}={off}{value:?}")
        }
        .expect("writing to a String cannot fail");
    }
    line.push('\n');
    line
}

/// Control characters are spelt out: a line is a line, and a terminal is not to be steered by what is logged.
fn push_escaped(line: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
}

fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn priority(level: Level) -> u8 {
    // As the journal's crate maps them, so that both ways look the same.
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5,
        Level::DEBUG => 6,
        Level::TRACE => 7,
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG | Level::TRACE => "\x1b[2m",
    }
}
