//! What was ignored or lost on the way: the explanation of a lost flag is a search among these.

use std::path::PathBuf;

use super::source::bounded;
use crate::kubelet::location::Location;

/// Why a file that looks like a drop-in is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotADropIn {
    /// Its name does not end in `.conf`.
    Suffix,
    /// Its name starts with a dot.
    Hidden,
    /// It lies in a prefix directory (`kubelet-.service.d`) and the unit's name has no such dash.
    Prefix,
    /// It lies in a directory that is no drop-in directory of this unit (`kubelet.d`, `kubelet.service.d/sub`, …).
    Directory,
}

/// Something that was ignored or lost on the way, or that the reader of a finding should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) at: Location,
    /// The text that was ignored: a line, a word, a file's content (bounded), for the search of lost flags.
    pub(crate) text: String,
}

/// What happened to an [`Event`]'s text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// `[service]`: unknown section, what follows is ignored.
    UnknownSection,
    /// An unknown key in a known section.
    UnknownKey { section: String, key: String },
    /// A line in an unknown section.
    InUnknownSection,
    /// An assignment before the first section.
    OutsideSection,
    /// A line that is neither section nor assignment, or a malformed header.
    MalformedLine,
    /// The rest of the file was not parsed (not UTF-8, a malformed header, a bad `ExecStart=` in a drop-in).
    RestOfFileLost { reason: String },
    /// `Environment=A=--x --y`: a word that is no assignment. `first` is the variable that the line's first assignment
    /// sets, and its value: the usual victim.
    InvalidAssignment { first: Option<(String, String)> },
    /// A specifier that systemd does not know: the assignment (or the unit) is lost.
    BadSpecifier { letter: char },
    /// Specifiers that were expanded.
    Specifiers,
    /// A quote that is not closed, or an escape that systemd does not take: the rest of the line is lost.
    BadQuoting,
    /// A command line that systemd refuses.
    BadCommand,
    /// A backslash followed by blanks: no continuation.
    BackslashBlank,
    /// A continued line that an empty line ends.
    ContinuationEnded,
    /// `EnvironmentFile=` with a path that systemd refuses.
    BadEnvironmentFile { reason: &'static str },
    /// A list that an empty assignment cleared; `text` is what was lost.
    Reset { key: String, by: Location },
    /// A variable that a word of `UnsetEnvironment=` takes out; `text` is the value that it had.
    Unset { name: String, by: Location },
    /// A drop-in in whose place one of the same name is read.
    DropInShadowed { by: PathBuf },
    /// A drop-in that is hidden by `what` of its name: a `link to /dev/null`, an `empty file` and others.
    DropInMasked { by: PathBuf, what: &'static str },
    /// A file near the unit's drop-ins that is none.
    DropInNotRead { reason: NotADropIn },
    /// A drop-in or a fragment that could not be read.
    FileUnreadable { reason: String },
    /// A line of an environment file that is no assignment for systemd, and why: `export`, `there is a space in the
    /// name`, …. `bom`: a byte order mark is the cause.
    EnvLineIgnored { reason: String, bom: bool },
    /// Text of an environment file without `=`, which systemd passes over in silence.
    EnvLineWithoutAssignment,
    /// A line of an environment file that a comment ending in a backslash swallows (before systemd 254).
    EnvCommentContinued,
    /// A quote in an environment file that is never closed, so that this many lines went into the value.
    EnvQuoteNotClosed { lines: u32 },
    /// Text after a closing quote, which becomes a part of the value.
    EnvTextAfterQuote,
}

/// The events of a unit, of which a hostile tree could make any number.
#[derive(Debug, Default)]
pub(super) struct Events {
    list: Vec<Event>,
    bytes: usize,
}

const MAX_EVENTS: usize = 10_000;
/// The most bytes that the texts of its events take.
const MAX_EVENT_BYTES: usize = 8 << 20;

impl Events {
    /// Adds an event with its text, cut to what an event may carry.
    pub(super) fn add(&mut self, kind: EventKind, at: Location, text: &str) {
        self.push(Event { kind, at, text: bounded(text) });
    }

    pub(super) fn push(&mut self, event: Event) {
        self.bytes += event.text.len();
        if self.list.len() < MAX_EVENTS && self.bytes < MAX_EVENT_BYTES {
            self.list.push(event);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Event> {
        self.list
    }
}
