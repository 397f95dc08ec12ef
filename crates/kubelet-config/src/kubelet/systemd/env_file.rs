//! The files of `EnvironmentFile=`: systemd.exec(5), and the automaton of `src/basic/env-file.c`, whose corners the page
//! leaves open. No shell reads these files: nothing is expanded, and `export` is a part of a name.

use super::source::{Mapped, SourceFile, is_blank, is_utf8};
use super::{Assignment, Event, EventKind, Events, Source};
use crate::kubelet::location::Location;
use crate::kubelet::text::to_u32;

/// What systemd makes of an environment file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedEnvFile {
    /// Its assignments in order; of several to one name the last counts. Their `source` names the file itself as
    /// `declared`, which is replaced where an `EnvironmentFile=` line is known.
    pub assignments: Vec<Assignment>,
    /// What systemd ignores, and what looks unlike what was meant.
    pub(crate) events: Vec<Event>,
    /// Why systemd takes nothing of the file, if so.
    pub(crate) unusable: Option<String>,
}

/// systemd's version since which a comment that ends in a backslash does not swallow the next line.
const COMMENTS_END_SINCE: u32 = 254;

/// Parses `bytes` as systemd `version` does.
pub fn parse(file: &Location, bytes: &[u8], version: u32) -> ParsedEnvFile {
    if bytes.contains(&0) {
        let unusable = Some("it contains a NUL byte (UTF-16?)".to_owned());
        return ParsedEnvFile { unusable, ..ParsedEnvFile::default() };
    }
    let mut parser = Parser {
        source: SourceFile::new(file.clone(), bytes.to_vec()),
        version,
        state: State::BeforeKey,
        key: Mapped::default(),
        value: Mapped::default(),
        kept: 0,
        quote_at: None,
        after_quote: None,
        assignments: Vec::new(),
        events: Events::default(),
        unusable: None,
    };
    for (at, byte) in (0..).zip(bytes) {
        parser.byte(*byte, at);
    }
    parser.end(to_u32(bytes.len()));
    let assignments = if parser.unusable.is_some() { Vec::new() } else { parser.assignments };
    ParsedEnvFile { assignments, events: parser.events.into_vec(), unusable: parser.unusable }
}

/// Whether it is a name that systemd takes for a variable's.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    BeforeKey,
    Key,
    BeforeValue,
    Value,
    ValueEscape,
    SingleQuoted,
    DoubleQuoted,
    DoubleQuotedEscape,
    Comment,
    CommentEscape,
}

struct Parser {
    source: SourceFile,
    version: u32,
    state: State,
    key: Mapped,
    value: Mapped,
    /// How much of the value is not blanks at its end.
    kept: usize,
    /// The opening quote that was read last.
    quote_at: Option<u32>,
    /// Where the first text or quote after a closing quote starts: in the value and in the file.
    after_quote: Option<(usize, u32)>,
    assignments: Vec<Assignment>,
    events: Events,
    unusable: Option<String>,
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

impl Parser {
    fn byte(&mut self, byte: u8, at: u32) {
        match self.state {
            State::BeforeKey => {
                if b"#;".contains(&byte) {
                    self.state = State::Comment;
                } else if !is_blank(byte) {
                    self.state = State::Key;
                    self.key.push(byte, at);
                }
            }
            State::Key => self.key_byte(byte, at),
            State::BeforeValue | State::Value => self.value_byte(byte, at),
            State::ValueEscape => {
                self.state = State::Value;
                if !is_newline(byte) {
                    self.value.push(byte, at);
                    self.kept = self.value.len();
                }
            }
            State::SingleQuoted if byte == b'\'' => self.state = State::BeforeValue,
            State::DoubleQuoted if byte == b'"' => self.state = State::BeforeValue,
            State::DoubleQuoted if byte == b'\\' => self.state = State::DoubleQuotedEscape,
            State::SingleQuoted | State::DoubleQuoted => self.value.push(byte, at),
            State::DoubleQuotedEscape => {
                self.state = State::DoubleQuoted;
                if byte != b'\n' {
                    if !b"\"\\`$".contains(&byte) {
                        self.value.push(b'\\', at.saturating_sub(1));
                    }
                    self.value.push(byte, at);
                }
            }
            State::Comment => {
                if byte == b'\\' {
                    self.state = State::CommentEscape;
                } else if is_newline(byte) {
                    self.state = State::BeforeKey;
                }
            }
            State::CommentEscape => self.comment_escape(byte, at),
        }
    }

    fn key_byte(&mut self, byte: u8, at: u32) {
        if is_newline(byte) {
            self.without_assignment();
            self.state = State::BeforeKey;
        } else if byte == b'=' {
            self.state = State::BeforeValue;
        } else {
            self.key.push(byte, at);
        }
    }

    fn value_byte(&mut self, byte: u8, at: u32) {
        match byte {
            _ if is_newline(byte) => {
                self.assignment();
                self.state = State::BeforeKey;
            }
            b'\\' => {
                self.more(at);
                self.state = State::ValueEscape;
                self.kept = self.value.len();
            }
            b'\'' if self.state == State::BeforeValue => self.open(State::SingleQuoted, at),
            b'"' if self.state == State::BeforeValue => self.open(State::DoubleQuoted, at),
            _ if is_blank(byte) && self.state == State::BeforeValue => {}
            _ => {
                self.more(at);
                self.state = State::Value;
                self.value.push(byte, at);
                if !is_blank(byte) {
                    self.kept = self.value.len();
                }
            }
        }
    }

    fn open(&mut self, quoted: State, at: u32) {
        self.more(at);
        self.state = quoted;
        self.quote_at = Some(at);
    }

    /// More of the value starts; of interest if a quoted text is before it.
    fn more(&mut self, at: u32) {
        if self.state == State::BeforeValue && self.quote_at.is_some() {
            self.after_quote.get_or_insert((self.value.len(), at));
        }
    }

    fn comment_escape(&mut self, byte: u8, at: u32) {
        if self.version >= COMMENTS_END_SINCE {
            self.state = if is_newline(byte) { State::BeforeKey } else { State::Comment };
            return;
        }
        self.state = State::Comment;
        if is_newline(byte) {
            let rest = self.source.bytes().get(at as usize + 1..).unwrap_or_default();
            let line = rest.split(|byte| is_newline(*byte)).next().unwrap_or_default();
            let text = String::from_utf8_lossy(line).into_owned();
            if !text.trim().is_empty() {
                self.events.add(EventKind::EnvCommentContinued, self.source.line(at + 1), &text);
            }
        }
    }

    fn without_assignment(&mut self) {
        let text = std::mem::take(&mut self.key).trim();
        if !text.is_empty() {
            self.events.add(EventKind::EnvLineWithoutAssignment, text.place(&self.source), &text.text());
        }
    }

    /// The end of `NAME=value`.
    fn assignment(&mut self) {
        let key = std::mem::take(&mut self.key).trim();
        let mut value = std::mem::take(&mut self.value);
        let kept = std::mem::take(&mut self.kept);
        if self.state == State::Value {
            value.truncate(kept);
        }
        let after_quote = self.after_quote.take();
        self.quote_at = None;
        let at = key.place(&self.source);
        for (what, text) in [("name", &key), ("value", &value)] {
            if !is_utf8(&text.bytes) && self.unusable.is_none() {
                let line = text.place(&self.source).line;
                self.unusable = Some(format!("the {what} of a variable is not valid UTF-8 (line {line})"));
            }
        }
        let (name, text) = (key.text(), value.text());
        if !is_variable_name(&name) {
            let reason = why_no_name(&name).to_owned();
            let kind = EventKind::EnvLineIgnored { reason, bom: name.starts_with('\u{FEFF}') };
            self.events.add(kind, at, &format!("{name}={text}"));
            return;
        }
        if let Some((offset, start)) = after_quote.filter(|(offset, _)| *offset < value.len()) {
            let tail = value.slice(offset..value.len());
            let place = self.source.span(start, tail.at.last().copied().unwrap_or(start));
            self.events.add(EventKind::EnvTextAfterQuote, place, &tail.text());
        }
        let source = Source::File { declared: self.source.file().clone() };
        let marks = value.marks(&self.source);
        self.assignments.push(Assignment { name, value: text, source, marks, at });
    }

    fn end(&mut self, length: u32) {
        match self.state {
            State::BeforeKey | State::Comment | State::CommentEscape => {}
            State::Key => self.without_assignment(),
            State::BeforeValue | State::Value | State::ValueEscape => self.assignment(),
            State::SingleQuoted | State::DoubleQuoted | State::DoubleQuotedEscape => {
                if let Some(quote) = self.quote_at {
                    let at = self.source.place(quote);
                    let last = self.source.line(length.saturating_sub(1)).line;
                    let lines = last.saturating_sub(at.line) + 1;
                    self.events.add(EventKind::EnvQuoteNotClosed { lines }, at, &self.value.text());
                }
                self.assignment();
            }
        }
    }
}

/// What is wrong with a name.
fn why_no_name(name: &str) -> &'static str {
    if name.starts_with('\u{FEFF}') {
        "byte order mark"
    } else if name.starts_with("export ") || name.starts_with("export\t") {
        "export"
    } else if name.is_empty() || name.starts_with('=') {
        "the name is empty"
    } else if name.contains([' ', '\t']) {
        "there is a space in the name"
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        "the name starts with a digit"
    } else if name.contains('-') {
        "the name has a dash"
    } else if name.contains(['"', '\'']) {
        "the name has a quote"
    } else {
        "the name has a character other than letters, digits and underscores"
    }
}
