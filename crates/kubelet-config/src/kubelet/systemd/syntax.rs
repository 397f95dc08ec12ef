//! The lines of a unit file: sections, assignments, comments, continuations; systemd.syntax(7), and
//! `src/shared/conf-parser.c` for what the page leaves open.

use super::source::{Mapped, SourceFile, bounded, is_blank, is_utf8, to_u32};
use super::{Event, EventKind, Events};
use crate::kubelet::location::Location;

/// The longest line that systemd reads, continued lines counted together.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The most ignored lines of one file that become events.
const MAX_IGNORED_LINES: usize = 2000;
const SECTIONS: [&str; 3] = ["Unit", "Service", "Install"];

/// `key=value` in a known section.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) section: &'static str,
    pub(super) key: String,
    pub(super) value: Mapped,
    /// The line as a whole, of a continued one the first.
    pub(super) at: Location,
    pub(super) key_at: Location,
}

/// Why the rest of a file does not count.
#[derive(Debug)]
pub(super) struct ParseAbort {
    pub(super) at: Location,
    pub(super) reason: String,
    /// Whether it is a setting's fault, which makes a fragment `bad-setting`; else `error`.
    pub(super) bad_setting: bool,
}

/// Parses a unit file; `each` takes an assignment and may stop the parsing.
pub(super) fn parse(
    source: &SourceFile,
    events: &mut Events,
    each: &mut dyn FnMut(Pair, &mut Events) -> Result<(), ParseAbort>,
) -> Result<(), ParseAbort> {
    let mut parser = Parser { source, section: Section::None, ignored: 0 };
    let mut continued: Option<Mapped> = None;
    let mut bom_seen = false;
    let mut offset = 0;
    encoding_events(source, events);
    while let Some((start, end, next)) = next_line(source.bytes(), offset) {
        offset = next;
        let mut line = start..end;
        let first = source.bytes()[line.clone()].iter().find(|byte| !is_blank(**byte));
        if first.is_some_and(|byte| b"#;".contains(byte)) {
            continue;
        }
        if !bom_seen && source.bytes()[line.clone()].starts_with(b"\xEF\xBB\xBF") {
            bom_seen = true;
            line.start += 3;
        }
        let mut text = continued.take().unwrap_or_default();
        let had = text.len();
        if had + line.len() > MAX_LINE_BYTES {
            return Err(parser.lost(start, "the line is longer than 1 MiB"));
        }
        for (at, byte) in line.clone().zip(&source.bytes()[line.clone()]) {
            text.push(*byte, to_u32(at));
        }
        if had > 0 && first.is_none() {
            let kind = EventKind::ContinuationEnded;
            events.push(event(kind, source.line(to_u32(start)), ""));
        }
        if let Some(last) = continues(&text) {
            text.bytes[last] = b' ';
            continued = Some(text);
            continue;
        }
        parser.line(&text, events, each)?;
    }
    match continued {
        Some(text) => parser.line(&text, events, each),
        None => Ok(()),
    }
}

/// The index of the backslash that continues a line: the last byte, and not escaped itself.
fn continues(text: &Mapped) -> Option<usize> {
    let backslashes = text.bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
    (backslashes % 2 == 1).then(|| text.len() - 1)
}

/// The next line: where it starts and ends, and where the next one starts. `\n`, `\r` and NUL end a line, each of
/// them once (`read_line()` in `src/basic/fileio.c`).
fn next_line(bytes: &[u8], start: usize) -> Option<(usize, usize, usize)> {
    let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
    let is_end = |byte: u8| matches!(byte, b'\n' | b'\r' | 0);
    let length = rest.iter().position(|byte| is_end(*byte)).unwrap_or(rest.len());
    let mut seen: Vec<u8> = Vec::with_capacity(3);
    for byte in &rest[length..] {
        if !is_end(*byte) || seen.contains(byte) || seen.contains(&0) {
            break;
        }
        seen.push(*byte);
    }
    Some((start, start + length, start + length + seen.len()))
}

fn encoding_events(source: &SourceFile, events: &mut Events) {
    let place = source.file().at_line(1);
    if source.bytes().starts_with(b"\xEF\xBB\xBF") {
        let what = "byte order mark";
        events.push(event(EventKind::Encoding { what }, place.clone(), ""));
    }
    if source.bytes().windows(2).any(|pair| pair == b"\r\n") {
        let what = "CRLF line ends";
        events.push(event(EventKind::Encoding { what }, place, ""));
    }
}

pub(super) fn event(kind: EventKind, at: Location, text: &str) -> Event {
    Event { kind, at, text: bounded(text) }
}

enum Section {
    None,
    Known(&'static str),
    Unknown(String),
    /// `[X-…]`: for other programs.
    Foreign,
}

struct Parser<'a> {
    source: &'a SourceFile,
    section: Section,
    ignored: usize,
}

impl Parser<'_> {
    fn lost(&self, offset: usize, reason: &str) -> ParseAbort {
        ParseAbort { at: self.source.line(to_u32(offset)), reason: reason.to_owned(), bad_setting: false }
    }

    fn line(
        &mut self,
        line: &Mapped,
        events: &mut Events,
        each: &mut dyn FnMut(Pair, &mut Events) -> Result<(), ParseAbort>,
    ) -> Result<(), ParseAbort> {
        let text = line.trim();
        let (Some(start), Some(first)) = (text.at.first().copied(), text.bytes.first().copied()) else { return Ok(()) };
        let at = self.source.line(start);
        if !is_utf8(&text.bytes) {
            return Err(self.lost(start as usize, "the line is not valid UTF-8"));
        }
        if first == b'[' {
            return self.header(&text, events);
        }
        let section = match &self.section {
            Section::Foreign => return Ok(()),
            Section::Known(section) => *section,
            Section::None => {
                self.ignore(EventKind::OutsideSection, at, &text, events);
                return Ok(());
            }
            Section::Unknown(section) => {
                let section = section.clone();
                self.ignore(EventKind::InUnknownSection { section }, at, &text, events);
                return Ok(());
            }
        };
        let equals = text.bytes.iter().position(|byte| *byte == b'=');
        let Some(equals) = equals.filter(|equals| *equals > 0) else {
            self.ignore(EventKind::MalformedLine, at, &text, events);
            return Ok(());
        };
        if let Some(blanks) = trailing_backslash(line) {
            let place = line.slice(line.len() - blanks..line.len()).place(self.source);
            events.push(event(EventKind::BackslashBlank, place, &text.text()));
        }
        let key = text.slice(0..equals).trim();
        let value = text.slice(equals + 1..text.len()).trim();
        let pair = Pair { section, key: key.text(), key_at: key.place(self.source), value, at };
        each(pair, events)
    }

    fn ignore(&mut self, kind: EventKind, at: Location, text: &Mapped, events: &mut Events) {
        self.ignored += 1;
        if self.ignored <= MAX_IGNORED_LINES {
            let place = text.place(self.source);
            let at = if place.line == at.line { place } else { at };
            events.push(event(kind, at, &text.text()));
        }
    }

    fn header(&mut self, text: &Mapped, events: &mut Events) -> Result<(), ParseAbort> {
        let place = text.place(self.source);
        let name = text.slice(1..text.len().saturating_sub(1).max(1)).text();
        let unsafe_byte = |byte: u8| byte < 0x20 || b"\"'\\\x7F".contains(&byte);
        if text.len() < 2 || !text.bytes.ends_with(b"]") || name.bytes().any(unsafe_byte) {
            return Err(ParseAbort {
                at: place,
                reason: format!("the section header '{}' is malformed", bounded(&text.text())),
                bad_setting: false,
            });
        }
        self.section = if let Some(known) = SECTIONS.into_iter().find(|known| *known == name) {
            Section::Known(known)
        } else if name.starts_with("X-") {
            Section::Foreign
        } else {
            self.ignore(EventKind::UnknownSection, place, text, events);
            Section::Unknown(name)
        };
        Ok(())
    }
}

/// How many blanks are after a backslash at the end of the line, which then continues nothing.
fn trailing_backslash(line: &Mapped) -> Option<usize> {
    let blanks = line.bytes.iter().rev().take_while(|byte| is_blank(**byte)).count();
    // The blank that stands for a continuation was a backslash in the file, and nothing is after it there.
    let before = &line.bytes[..line.len() - blanks];
    (blanks > 0 && before.ends_with(b"\\") && !before.ends_with(b"\\\\")).then_some(blanks)
}
