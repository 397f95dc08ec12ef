//! The files of `EnvironmentFile=`: systemd.exec(5), and `src/basic/env-file.c` for what the page leaves open. No shell
//! reads these files: nothing is expanded, and `export` is a part of a name.

use super::source::{Mapped, SourceFile, is_blank, is_utf8};
use super::{Assignment, Event, EventKind, Events, Source};
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

/// Parses `bytes` as systemd `version` does.
pub fn parse(file: &Location, bytes: &[u8], version: u32) -> ParsedEnvFile {
    if bytes.contains(&0) {
        let unusable = Some("it contains a NUL byte (UTF-16?)".to_owned());
        return ParsedEnvFile { unusable, ..ParsedEnvFile::default() };
    }
    let mut parser = Parser {
        source: SourceFile::new(file.clone(), bytes.to_vec()),
        version,
        next: 0,
        assignments: Vec::new(),
        events: Events::default(),
        unusable: None,
    };
    while let Some((byte, at)) = parser.take() {
        match byte {
            b'#' | b';' => parser.comment(),
            _ if is_blank(byte) => {}
            _ => parser.line(byte, at),
        }
    }
    let assignments = if parser.unusable.is_some() { Vec::new() } else { parser.assignments };
    ParsedEnvFile { assignments, events: parser.events.into_vec(), unusable: parser.unusable }
}

/// Whether it is a name that systemd takes for a variable's.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct Parser {
    source: SourceFile,
    version: u32,
    /// The place of the next byte.
    next: u32,
    assignments: Vec<Assignment>,
    events: Events,
    unusable: Option<String>,
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

impl Parser {
    fn take(&mut self) -> Option<(u8, u32)> {
        let at = self.next;
        let byte = self.source.byte(at)?;
        self.next += 1;
        Some((byte, at))
    }

    /// The same within a line, whose end is taken as well.
    fn take_in_line(&mut self) -> Option<(u8, u32)> {
        self.take().filter(|(byte, _)| !is_newline(*byte))
    }

    fn comment(&mut self) {
        while let Some((byte, _)) = self.take_in_line() {
            if byte == b'\\' && self.take().is_some_and(|(escaped, _)| is_newline(escaped)) {
                if self.version >= COMMENTS_END_SINCE {
                    return;
                }
                self.tell_of_swallowed_line();
            }
        }
    }

    fn tell_of_swallowed_line(&mut self) {
        let rest = self.source.bytes().get(self.next as usize..).unwrap_or_default();
        let line = rest.split(|byte| is_newline(*byte)).next().unwrap_or_default();
        let text = String::from_utf8_lossy(line).into_owned();
        if !text.trim().is_empty() {
            self.events.add(EventKind::EnvCommentContinued, self.source.line(self.next), &text);
        }
    }

    /// The rest of a line that begins with this byte, and of those on which its value goes on.
    fn line(&mut self, first: u8, at: u32) {
        let mut text = Mapped::default();
        text.push(first, at);
        while let Some((byte, at)) = self.take_in_line() {
            if byte == b'=' {
                return self.assignment(&text.trim());
            }
            text.push(byte, at);
        }
        let text = text.trim();
        self.events.add(EventKind::EnvLineWithoutAssignment, text.place(&self.source), &text.text());
    }

    /// A value, and where the first text or quote after a closing quote starts: in the value and in the file.
    fn value(&mut self) -> (Mapped, Option<(usize, u32)>) {
        let mut value = Mapped::default();
        let mut has_quotes = false;
        let mut after_quote = None;
        // The end of the text outside quotes, without blanks; after such text quotes are text as well.
        let mut plain_end = None;
        while let Some((byte, at)) = self.take_in_line() {
            if plain_end.is_none() && is_blank(byte) {
                continue;
            }
            // Behind empty quotes another quote adds nothing: `"""` opens one.
            if plain_end.is_none() && has_quotes && (!value.is_empty() || !matches!(byte, b'\'' | b'"')) {
                after_quote.get_or_insert((value.len(), at));
            }
            match byte {
                b'\'' | b'"' if plain_end.is_none() => {
                    has_quotes = true;
                    self.quoted(byte, at, &mut value);
                    continue;
                }
                b'\\' => {
                    if let Some((escaped, at)) = self.take_in_line() {
                        value.push(escaped, at);
                    }
                }
                _ => value.push(byte, at),
            }
            if !is_blank(byte) {
                plain_end = Some(value.len());
            }
        }
        value.truncate(plain_end.unwrap_or(value.len()));
        (value, after_quote)
    }

    fn quoted(&mut self, quote: u8, opened: u32, value: &mut Mapped) {
        while let Some((byte, at)) = self.take() {
            if byte == quote {
                return;
            }
            if byte != b'\\' || quote == b'\'' {
                value.push(byte, at);
            } else if let Some((escaped, escaped_at)) = self.take().filter(|(escaped, _)| *escaped != b'\n') {
                if !b"\"\\`$".contains(&escaped) {
                    value.push(byte, at);
                }
                value.push(escaped, escaped_at);
            }
        }
        let at = self.source.place(opened);
        let last = self.source.line(self.next.saturating_sub(1)).line;
        let lines = last.saturating_sub(at.line) + 1;
        self.events.add(EventKind::EnvQuoteNotClosed { lines }, at, &value.text());
    }

    /// `NAME=value`, of which the value follows.
    fn assignment(&mut self, key: &Mapped) {
        let (value, after_quote) = self.value();
        let at = key.place(&self.source);
        for (what, text) in [("name", key), ("value", &value)] {
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
}

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
