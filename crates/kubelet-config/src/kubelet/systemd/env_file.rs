//! The files of `EnvironmentFile=`: systemd.exec(5), and the automaton of `src/basic/env-file.c`, whose corners the page
//! leaves open. No shell reads these files: nothing is expanded, and `export` is a part of a name.

use super::source::{Mapped, SourceFile, is_utf8, to_u32};
use super::syntax::event;
use super::{Assignment, Event, EventKind, Source};
use crate::kubelet::location::Location;

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
/// The most events of one file.
const MAX_EVENTS: usize = 2000;

/// Parses `bytes` as systemd `version` does.
pub fn parse(file: &Location, bytes: &[u8], version: u32) -> ParsedEnvFile {
    let mut parser = Parser {
        source: SourceFile::new(file.clone(), bytes.to_vec()),
        version,
        state: State::BeforeKey,
        key: Mapped::default(),
        key_blanks: None,
        value: Mapped::default(),
        value_blanks: None,
        quote_at: None,
        behind_quote: None,
        parsed: ParsedEnvFile::default(),
    };
    if bytes.contains(&0) {
        let what = "it contains a NUL byte (UTF-16?)";
        parser.parsed.unusable = Some(what.to_owned());
        return parser.parsed;
    }
    parser.encoding();
    for (at, byte) in (0..).zip(bytes) {
        parser.byte(*byte, at);
    }
    parser.end(to_u32(bytes.len()));
    if parser.parsed.unusable.is_some() {
        parser.parsed.assignments.clear();
    }
    parser.parsed
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
    /// Where the blanks at the key's end start.
    key_blanks: Option<usize>,
    value: Mapped,
    value_blanks: Option<usize>,
    /// The opening quote that was read last.
    quote_at: Option<u32>,
    /// Where the first text or quote after a closing quote starts: in the value and in the file.
    behind_quote: Option<(usize, u32)>,
    parsed: ParsedEnvFile,
}

fn is_blank(byte: u8) -> bool {
    super::source::is_blank(byte)
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
                    self.key_blanks = None;
                    self.key.push(byte, at);
                }
            }
            State::Key => self.key_byte(byte, at),
            State::BeforeValue | State::Value => self.value_byte(byte, at),
            State::ValueEscape => {
                self.state = State::Value;
                if !is_newline(byte) {
                    self.value.push(byte, at);
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
            self.value_blanks = None;
        } else {
            if !is_blank(byte) {
                self.key_blanks = None;
            } else if self.key_blanks.is_none() {
                self.key_blanks = Some(self.key.len());
            }
            self.key.push(byte, at);
        }
    }

    fn value_byte(&mut self, byte: u8, at: u32) {
        if is_newline(byte) {
            self.assignment();
            self.state = State::BeforeKey;
        } else if byte == b'\\' {
            self.behind(at);
            self.state = State::ValueEscape;
            self.value_blanks = None;
        } else if self.state == State::BeforeValue {
            match byte {
                b'\'' => self.open(State::SingleQuoted, at),
                b'"' => self.open(State::DoubleQuoted, at),
                byte if is_blank(byte) => {}
                byte => {
                    self.behind(at);
                    self.state = State::Value;
                    self.value.push(byte, at);
                }
            }
        } else {
            if !is_blank(byte) {
                self.value_blanks = None;
            } else if self.value_blanks.is_none() {
                self.value_blanks = Some(self.value.len());
            }
            self.value.push(byte, at);
        }
    }

    fn open(&mut self, quoted: State, at: u32) {
        self.behind(at);
        self.state = quoted;
        self.quote_at = Some(at);
    }

    /// More of the value starts; of interest if a quoted text is before it.
    fn behind(&mut self, at: u32) {
        if self.state == State::BeforeValue && self.quote_at.is_some() {
            self.behind_quote.get_or_insert((self.value.len(), at));
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
                self.event(EventKind::EnvCommentContinued, self.source.line(at + 1), &text);
            }
        }
    }

    fn event(&mut self, kind: EventKind, at: Location, text: &str) {
        if self.parsed.events.len() < MAX_EVENTS {
            self.parsed.events.push(event(kind, at, text));
        }
    }

    fn encoding(&mut self) {
        let start = self.source.file().at_line(1);
        if self.source.bytes().starts_with(b"\xEF\xBB\xBF") {
            let what = "byte order mark";
            self.event(EventKind::Encoding { what }, start.clone(), "");
        }
        if self.source.bytes().windows(2).any(|pair| pair == b"\r\n") {
            let what = "CRLF line ends";
            self.event(EventKind::Encoding { what }, start, "");
        }
    }

    fn without_assignment(&mut self) {
        let text = std::mem::take(&mut self.key).trim();
        if !text.is_empty() {
            let at = text.place(&self.source);
            self.event(EventKind::EnvLineWithoutAssignment, at, &text.text());
        }
    }

    /// The end of `NAME=value`.
    fn assignment(&mut self) {
        let mut key = std::mem::take(&mut self.key);
        let mut value = std::mem::take(&mut self.value);
        if let Some(blanks) = self.key_blanks.take() {
            key.truncate(blanks);
        }
        if let Some(blanks) = self.value_blanks.take()
            && self.state == State::Value
        {
            value.truncate(blanks);
        }
        let behind = self.behind_quote.take();
        self.quote_at = None;
        let at = key.place(&self.source);
        for (what, text) in [("name", &key), ("value", &value)] {
            if !is_utf8(&text.bytes) && self.parsed.unusable.is_none() {
                let line = text.place(&self.source).line;
                let reason = format!("the {what} of a variable is not valid UTF-8 (line {line})");
                self.parsed.unusable = Some(reason);
            }
        }
        let (name, text) = (key.text(), value.text());
        if !is_variable_name(&name) {
            let bom = name.starts_with('\u{FEFF}');
            let reason = why_no_name(&name).to_owned();
            let kind = EventKind::EnvLineIgnored { reason, bom };
            self.event(kind, at, &format!("{name}={text}"));
            return;
        }
        if let Some((behind, start)) = behind.filter(|(behind, _)| *behind < value.len()) {
            let tail = value.slice(behind..value.len());
            let place = self.source.span(start, tail.at.last().copied().unwrap_or(start));
            self.event(EventKind::EnvTextAfterQuote, place, &tail.text());
        }
        self.parsed.assignments.push(Assignment {
            name,
            value: text,
            source: Source::File { declared: self.source.file().clone() },
            marks: value.marks(&self.source),
            at,
        });
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
                    let text = self.value.text();
                    self.event(EventKind::EnvQuoteNotClosed { lines }, at, &text);
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
