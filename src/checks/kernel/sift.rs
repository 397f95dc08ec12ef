//! Records of the kernel's log in, events out: what nobody cares for goes no further, and costs no allocation.
//!
//! Bounded: a pattern hands on so many lines in a while; that there were more would tell nobody anything. The records' own stamps are the clock.

use std::time::Duration;

use super::{
    event::{KernelEvent, KernelLine, MAX_TEXT_BYTES, bounded},
    oom::OomLines,
    pattern::Pattern,
    patterns::PATTERNS,
    record::Record,
};

/// So many lines of one pattern are handed on …
const LINES: u32 = 16;
/// … in so long.
const WHILE: Duration = Duration::from_secs(10);
/// Bounds the name of whom a line is about.
const MAX_SUBJECT_BYTES: usize = 64;

/// How much of one pattern was handed on.
#[derive(Debug, Clone, Copy, Default)]
struct Throttle {
    since: Duration,
    handed_on: u32,
}

/// Takes records in.
#[derive(Debug)]
pub struct Sifter {
    oom: OomLines,
    throttles: Vec<Throttle>,
    /// The number of the record that came last.
    last: Option<u64>,
    /// Records that were overwritten before they were read.
    lost: u64,
}

impl Default for Sifter {
    fn default() -> Self {
        Self {
            oom: OomLines::default(),
            throttles: vec![Throttle::default(); PATTERNS.len()],
            last: None,
            lost: 0,
        }
    }
}

impl Sifter {
    /// Takes a record in, as one `read` gives it.
    pub fn take(&mut self, bytes: &[u8], out: &mut impl FnMut(KernelEvent)) {
        let Some(record) = Record::parse(bytes) else {
            return;
        };
        if let Some(last) = self.last.replace(record.sequence) {
            let between = record.sequence.saturating_sub(last).saturating_sub(1);
            self.lost = self.lost.saturating_add(between);
            if between > 0 {
                self.oom.have_missed();
            }
        }
        // User space can write records too; whatever they say, they are not the kernel's.
        if !record.is_kernels() || !begins_like_one(record.text) {
            return;
        }
        let mut kill = |kill| out(KernelEvent::OomKill(Box::new(kill)));
        self.oom.take(record.at, record.text, &mut kill);
        for (pattern, throttle) in PATTERNS.iter().zip(&mut self.throttles) {
            if pattern.knows(record.text) {
                if let Some(line) = throttle.line(pattern, &record) {
                    out(KernelEvent::Line(line));
                }
                return;
            }
        }
    }

    /// Whether something is half said, whose end is not far.
    pub fn waits(&self) -> bool {
        self.oom.waits()
    }

    /// Its end did not come.
    pub fn flush(&mut self, out: &mut impl FnMut(KernelEvent)) {
        let mut kill = |kill| out(KernelEvent::OomKill(Box::new(kill)));
        self.oom.flush(&mut kill);
    }

    /// How many records were overwritten before they were read, since that was asked last.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

impl Throttle {
    fn line(&mut self, pattern: &'static Pattern, record: &Record) -> Option<KernelLine> {
        if record.at.saturating_sub(self.since) > WHILE {
            self.since = record.at;
            self.handed_on = 0;
        }
        if self.handed_on >= LINES {
            return None;
        }
        self.handed_on += 1;
        let subject = pattern.subject(record.text);
        Some(KernelLine {
            at: record.at,
            pattern,
            subject: subject.map(|subject| bounded(subject, MAX_SUBJECT_BYTES)),
            text: bounded(record.text, MAX_TEXT_BYTES),
        })
    }
}

/// What the lines about a kill for memory begin with.
const OOM_STARTS: &[&str] = &[
    "oom-kill:",
    "Task",
    "Memory cgroup",
    "Out of memory",
    "Killed",
    "memory",
];

/// The first bytes of everything that is looked for.
const FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let mut pattern = 0;
    while pattern < PATTERNS.len() {
        let starts = PATTERNS[pattern].starts;
        let mut start = 0;
        while start < starts.len() {
            first[starts[start].as_bytes()[0] as usize] = true;
            start += 1;
        }
        pattern += 1;
    }
    let mut start = 0;
    while start < OOM_STARTS.len() {
        first[OOM_STARTS[start].as_bytes()[0] as usize] = true;
        start += 1;
    }
    first
};

fn begins_like_one(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|byte| FIRST[usize::from(byte)])
}

#[cfg(test)]
mod tests;
