//! The kernel's tables that the recorder reads: a number after a name, without allocating.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// A table that is kept open and read anew from its beginning.
#[derive(Debug)]
pub(crate) struct Table {
    file: Option<File>,
    buffer: Vec<u8>,
    length: usize,
}

impl Table {
    /// A table that may be absent: then nothing is in it.
    pub(crate) fn open(path: &str, room: usize) -> Self {
        Self {
            file: File::open(path).ok(),
            buffer: vec![0; room],
            length: 0,
        }
    }

    /// Reads it again.
    pub(crate) fn read(&mut self) {
        self.length = 0;
        let Some(file) = &self.file else { return };
        while self.length < self.buffer.len() {
            let at = u64::try_from(self.length).unwrap_or(u64::MAX);
            match file.read_at(&mut self.buffer[self.length..], at) {
                Ok(more @ 1..) => self.length += more,
                Ok(0) | Err(_) => return,
            }
        }
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.buffer[..self.length].split(|byte| *byte == b'\n')
    }

    /// The number after `name` at the beginning of a line.
    pub(crate) fn value(&self, name: &str) -> Option<u64> {
        self.lines()
            .find_map(|line| number(line.strip_prefix(name.as_bytes())?))
    }

    /// The sum of the numbers of all lines that begin with `prefix`.
    pub(crate) fn sum(&self, prefix: &str) -> u64 {
        let rest = self
            .lines()
            .filter_map(|line| line.strip_prefix(prefix.as_bytes()));
        rest.filter_map(|rest| {
            number(&rest[rest.iter().position(|byte| *byte == b' ').unwrap_or(0)..])
        })
        .sum()
    }

    /// The stall so far in a pressure table, in microseconds; `kind` is `some` or `full`.
    pub(crate) fn stalled_us(&self, kind: &str) -> Option<u64> {
        let line = self
            .lines()
            .find(|line| line.starts_with(kind.as_bytes()))?;
        let at = line.windows(6).position(|part| part == b"total=")?;
        number(&line[at + 6..])
    }

    /// The number in a table of one, at this place; `None` if it says `max` or is absent.
    pub(crate) fn nth(&self, place: usize) -> Option<u64> {
        let words = self.buffer[..self.length].split(u8::is_ascii_whitespace);
        number(words.filter(|word| !word.is_empty()).nth(place)?)
    }
}

/// The decimal number that the bytes begin with, after spaces and a colon.
fn number(bytes: &[u8]) -> Option<u64> {
    let start = bytes
        .iter()
        .position(|byte| !matches!(byte, b' ' | b':' | b'\t'))?;
    let digits = &bytes[start..];
    let end = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    let digits = &digits[..end];
    (!digits.is_empty()).then(|| {
        digits
            .iter()
            .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
    })
}

/// `MemAvailable`, from an open `/proc/meminfo`.
pub(crate) fn available_mib(meminfo: &mut File) -> std::io::Result<u64> {
    let mut text = [0_u8; 256];
    let length = meminfo.read_at(&mut text, 0)?;
    let found = text[..length]
        .split(|byte| *byte == b'\n')
        .find_map(|line| number(line.strip_prefix(b"MemAvailable")?));
    Ok(found.unwrap_or(u64::MAX) / 1024)
}
