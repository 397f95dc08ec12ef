//! The lines of a unit file: sections, assignments, comments, continuations; systemd.syntax(7), and
//! `src/shared/conf-parser.c` for what the page leaves open.

use std::ops::Range;

use super::source::{Mapped, SourceFile, bounded, is_blank, is_utf8};
use super::{EventKind, Events, LoadState};
use crate::kubelet::location::Location;
use crate::kubelet::text::to_u32;

/// The longest line that systemd reads, continued lines counted together.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The most ignored lines of one file that become events.
const MAX_IGNORED_LINES: usize = 2000;
pub(super) const SERVICE: &[&str] = &["Unit", "Service", "Install"];

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

/// Takes an assignment of a unit file. As in all of the parser, an error ends the file, and is the state that a fragment
/// gives the unit by it: [`LoadState::BadSetting`] or [`LoadState::Error`].
type Each<'a> = &'a mut dyn FnMut(Pair, &mut Events) -> Result<(), LoadState>;

/// Parses a unit file, or a configuration of systemd's own, which has other sections.
pub(super) fn parse(
    source: &SourceFile,
    sections: &'static [&'static str],
    events: &mut Events,
    each: Each<'_>,
) -> Result<(), LoadState> {
    let mut parser = Parser { source, sections, events, each, section: Section::None, ignored: 0 };
    let mut continued: Option<Mapped> = None;
    let mut bom_seen = false;
    let mut offset = 0;
    while let Some((mut line, next)) = next_line(source.bytes(), offset) {
        offset = next;
        let start = to_u32(line.start);
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
        for (at, byte) in line.clone().zip(&source.bytes()[line]) {
            text.push(*byte, to_u32(at));
        }
        if had > 0 && first.is_none() {
            parser.events.add(EventKind::ContinuationEnded, source.line(start), "");
        }
        if let Some(last) = continues(&text) {
            text.bytes[last] = b' ';
            continued = Some(text);
            continue;
        }
        parser.line(&text)?;
    }
    match continued {
        Some(text) => parser.line(&text),
        None => Ok(()),
    }
}

/// The index of the backslash that continues a line: the last byte, and not escaped itself.
fn continues(text: &Mapped) -> Option<usize> {
    let backslashes = text.bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
    (backslashes % 2 == 1).then(|| text.len() - 1)
}

/// The next line, and where the one after it starts. `\n`, `\r` and NUL end a line, each once (`read_line()`).
fn next_line(bytes: &[u8], start: usize) -> Option<(Range<usize>, usize)> {
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
    Some((start..start + length, start + length + seen.len()))
}

enum Section {
    None,
    Known(&'static str),
    Unknown,
    /// `[X-…]`: for other programs.
    Foreign,
}

struct Parser<'a> {
    source: &'a SourceFile,
    sections: &'static [&'static str],
    events: &'a mut Events,
    each: Each<'a>,
    section: Section,
    ignored: usize,
}

impl Parser<'_> {
    fn lost(&self, offset: u32, reason: &str) -> LoadState {
        LoadState::Error { at: self.source.line(offset), reason: reason.to_owned() }
    }

    fn line(&mut self, line: &Mapped) -> Result<(), LoadState> {
        let text = line.trim();
        let (Some(start), Some(first)) = (text.at.first().copied(), text.bytes.first()) else { return Ok(()) };
        if !is_utf8(&text.bytes) {
            return Err(self.lost(start, "the line is not valid UTF-8"));
        }
        if *first == b'[' {
            return self.header(&text);
        }
        let at = self.source.line(start);
        let equals = text.bytes.iter().position(|byte| *byte == b'=').filter(|equals| *equals > 0);
        let ignored = match (&self.section, equals) {
            (Section::Known(section), Some(equals)) => {
                if let Some(blanks) = trailing_backslash(line) {
                    let place = line.slice(line.len() - blanks..line.len()).place(self.source);
                    self.events.add(EventKind::BackslashBlank, place, &text.text());
                }
                let key = text.slice(0..equals).trim();
                let value = text.slice(equals + 1..text.len()).trim();
                let pair = Pair { section, key: key.text(), key_at: key.place(self.source), value, at };
                return (self.each)(pair, self.events);
            }
            (Section::Foreign, _) => return Ok(()),
            (Section::Known(_), None) => EventKind::MalformedLine,
            (Section::None, _) => EventKind::OutsideSection,
            (Section::Unknown, _) => EventKind::InUnknownSection,
        };
        self.ignore(ignored, at, &text);
        Ok(())
    }

    fn ignore(&mut self, kind: EventKind, at: Location, text: &Mapped) {
        self.ignored += 1;
        if self.ignored <= MAX_IGNORED_LINES {
            let place = text.place(self.source);
            let at = if place.line == at.line { place } else { at };
            self.events.add(kind, at, &text.text());
        }
    }

    fn header(&mut self, text: &Mapped) -> Result<(), LoadState> {
        let place = text.place(self.source);
        let name = text.slice(1..text.len().saturating_sub(1).max(1)).text();
        let unsafe_byte = |byte: u8| byte < 0x20 || b"\"'\\\x7F".contains(&byte);
        if text.len() < 2 || !text.bytes.ends_with(b"]") || name.bytes().any(unsafe_byte) {
            let reason = format!("the section header '{}' is malformed", bounded(&text.text()));
            return Err(LoadState::Error { at: place, reason });
        }
        self.section = if let Some(known) = self.sections.iter().copied().find(|known| *known == name) {
            Section::Known(known)
        } else if name.starts_with("X-") {
            Section::Foreign
        } else {
            self.ignore(EventKind::UnknownSection, place, text);
            Section::Unknown
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
