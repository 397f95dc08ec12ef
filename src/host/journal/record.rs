//! One log line, owned and bounded, as it travels to the writer.

use std::fmt::{self, Debug, Write};

use jiff::Timestamp;
use tracing::{
    Event, Level,
    field::{Field, Visit},
};

use super::Kind;

/// What one line's message and fields may hold together; the rest is cut off. Ours stay far below: it bounds a
/// library's line.
pub(super) const MAX_BYTES: usize = 4096;

/// One log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) message: String,
    /// Without the message; names as in the source.
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Record {
    pub(super) fn of(event: &Event<'_>, at: Timestamp) -> Self {
        let meta = event.metadata();
        let mut fields = Fields {
            record: Self {
                at,
                level: *meta.level(),
                target: meta.target(),
                message: String::new(),
                fields: Vec::new(),
            },
            left: MAX_BYTES,
        };
        event.record(&mut fields);
        fields.record
    }

    /// The line about lines that are not there.
    pub(super) fn dropped(lines: u64, at: Timestamp) -> Self {
        Self {
            at,
            level: Level::WARN,
            target: "nodevigil",
            message: "log lines were dropped: they came faster than they could be written"
                .to_owned(),
            fields: vec![
                ("message_id", Kind::LogDropped.id().to_owned()),
                ("lines", lines.to_string()),
            ],
        }
    }
}

/// Takes an event's fields as text, together at most [`MAX_BYTES`].
struct Fields {
    record: Record,
    left: usize,
}

impl Fields {
    fn take(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let mut text = Bounded {
            text: String::new(),
            left: self.left,
        };
        if text.write_fmt(value).is_err() {
            text.text.push('…');
        }
        self.left = text.left;
        match field.name() {
            "message" => self.record.message = text.text,
            name => self.record.fields.push((name, text.text)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.take(field, format_args!("{value}"));
    }
}

/// Text that takes `left` more bytes and then refuses, so that nothing longer is ever held.
struct Bounded {
    text: String,
    left: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = more.floor_char_boundary(self.left.min(more.len()));
        self.text.push_str(&more[..fits]);
        self.left -= fits;
        if fits < more.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        Ok(())
    }
}
