//! A file's bytes with the place of each, and text cut from it that keeps the places of its bytes.

use std::ops::Range;

use crate::kubelet::location::Location;
use crate::kubelet::text::to_u32;

/// The most marks that an assignment carries: a hostile value changes its line with every other byte.
const MAX_MARKS: usize = 4096;

#[derive(Debug)]
pub(in crate::kubelet) struct SourceFile {
    file: Location,
    bytes: Vec<u8>,
    lines: Vec<u32>,
    /// The bytes that do not start a character, so that columns are counted in characters.
    tails: Vec<u32>,
}

impl SourceFile {
    pub(in crate::kubelet) fn new(file: Location, bytes: Vec<u8>) -> Self {
        let mut lines = vec![0];
        let mut tails = Vec::new();
        for (offset, byte) in (0u32..).zip(&bytes) {
            if *byte == b'\n' {
                lines.push(offset + 1);
            }
            if byte & 0xC0 == 0x80 {
                tails.push(offset);
            }
        }
        Self { file, bytes, lines, tails }
    }

    pub(in crate::kubelet) fn file(&self) -> &Location {
        &self.file
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn byte(&self, offset: u32) -> Option<u8> {
        self.bytes.get(offset as usize).copied()
    }

    /// The line of a byte and its column, both from 1.
    fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let tails =
            self.tails.partition_point(|tail| *tail <= offset) - self.tails.partition_point(|tail| *tail < start);
        let column = (offset + 1 - start).saturating_sub(to_u32(tails)).max(1);
        (to_u32(line), column)
    }

    /// The place of one byte, without a width.
    pub(in crate::kubelet) fn place(&self, offset: u32) -> Location {
        let (line, column) = self.line_column(offset);
        self.file.at(line, column, 0)
    }

    /// The line of a byte as a whole.
    pub(super) fn line(&self, offset: u32) -> Location {
        self.file.at_line(self.line_column(offset).0)
    }

    /// The place of the bytes from `first` to `last`, both included; of several lines the first.
    pub(in crate::kubelet) fn span(&self, first: u32, last: u32) -> Location {
        let (line, column) = self.line_column(first);
        let (last_line, last_column) = self.line_column(last.max(first));
        let width = if line == last_line {
            last_column + 1 - column
        } else {
            let end = self.lines.get(line as usize).copied().unwrap_or(first + 1);
            (self.line_column(end.saturating_sub(1).max(first)).1).saturating_sub(column)
        };
        self.file.at(line, column, width)
    }
}

/// Text of which each byte knows where it was taken from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) bytes: Vec<u8>,
    /// For each byte its offset in the source.
    pub(super) at: Vec<u32>,
}

impl Mapped {
    pub(super) fn plain(text: &[u8]) -> Self {
        Self { bytes: text.to_vec(), at: (0..to_u32(text.len())).collect() }
    }

    pub(super) fn push(&mut self, byte: u8, at: u32) {
        self.bytes.push(byte);
        self.at.push(at);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.at.truncate(length);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        Self {
            bytes: self.bytes.get(range.clone()).unwrap_or_default().to_vec(),
            at: self.at.get(range).unwrap_or_default().to_vec(),
        }
    }

    pub(super) fn trim(&self) -> Self {
        let start = self.bytes.iter().take_while(|byte| is_blank(**byte)).count();
        let end = self.bytes.len() - self.bytes[start..].iter().rev().take_while(|byte| is_blank(**byte)).count();
        self.slice(start..end)
    }

    /// The text; bytes that are not UTF-8 become `U+FFFD`.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Where it is, from its first byte to its last.
    pub(super) fn place(&self, source: &SourceFile) -> Location {
        match (self.at.first(), self.at.last()) {
            (Some(first), Some(last)) => source.span(*first, *last),
            _ => source.file().clone(),
        }
    }

    /// The places at which the text stops following its source: what [`super::Assignment::marks`] holds. Offsets
    /// count in the lossy text, because that is what the assignment's value is.
    pub(super) fn marks(&self, source: &SourceFile) -> Vec<(usize, Location)> {
        let mut marks = Vec::new();
        let mut previous: Option<u32> = None;
        for (offset, at) in self.at.iter().copied().enumerate() {
            let follows =
                previous.is_some_and(|before| (at == before + 1 && source.byte(before) != Some(b'\n')) || at == before);
            if !follows && marks.len() < MAX_MARKS {
                marks.push((offset, source.place(at)));
            }
            previous = Some(at);
        }
        if std::str::from_utf8(&self.bytes).is_err() {
            marks.truncate(1);
        }
        marks
    }
}

/// What systemd takes for UTF-8: without the noncharacters, which it refuses (`utf8_is_valid()`).
pub(super) fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.is_ascii() || !text.contains(is_noncharacter))
}

/// U+FDD0 to U+FDEF, and the last two of each plane.
pub(super) fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// A text cut to what an event may carry.
pub(super) fn bounded(text: &str) -> String {
    const MAX_BYTES: usize = 16 << 10;
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
