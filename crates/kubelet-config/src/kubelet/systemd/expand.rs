//! Variables in the words of `ExecStart=`: `$X`, `${X}`, `$$`; systemd.service(5), `replace_env()` of `env-util.c`.

use std::collections::BTreeMap;

use super::exec::MAX_WORDS;
use super::source::Mapped;
use super::words::{Flags, Split, next_word};
use super::{Arg, Assignment, Exec, ExecWord, Origin, Variable};
use crate::kubelet::location::Location;

/// What the kernel takes for arguments and environment together, at the usual limit of the stack (execve(2)).
const MAX_ARGV_BYTES: usize = 2 << 20;

enum Part<'a> {
    Text(&'a str),
    /// `${NAME}`
    Braces(&'a str),
}

/// Splits a word as `replace_env()` in `src/basic/env-util.c` reads it: `$$` is a dollar, `${NAME}` a variable; a colon
/// in the braces, or none that closes them, leaves the text as it is.
fn parts(word: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(dollar) = word[at..].find('$').map(|found| at + found) {
        let rest = &word[dollar + 1..];
        if rest.starts_with('$') {
            parts.push(Part::Text(&word[start..=dollar]));
            at = dollar + 2;
            start = at;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let Some(end) = inner.find(['}', ':']) else { break };
            at = dollar + 2 + end + 1;
            if inner[end..].starts_with('}') {
                parts.push(Part::Text(&word[start..dollar]));
                parts.push(Part::Braces(&inner[..end]));
                start = at;
            }
        } else {
            // What follows a dollar is passed over, be it the first byte of something or not.
            at = dollar + 1 + rest.chars().next().map_or(0, char::len_utf8);
        }
    }
    parts.push(Part::Text(&word[start..]));
    parts
}

fn lone(word: &str) -> Option<&str> {
    word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$']))
}

impl Exec {
    /// The variables that it refers to, each with its word's place and whether by `${X}`.
    pub(crate) fn references(&self) -> Vec<(String, Location, bool)> {
        let mut found = Vec::new();
        for word in self.words.iter().filter(|_| self.expands) {
            let mut add = |name: &str, braces: bool| found.push((name.to_owned(), word.at.clone(), braces));
            if let Some(name) = lone(&word.text) {
                add(name, false);
                continue;
            }
            for part in parts(&word.text) {
                if let Part::Braces(name) = part {
                    add(name, true);
                }
            }
        }
        found
    }
}

pub(super) fn argv(exec: &Exec, environment: &BTreeMap<String, Variable>) -> Vec<Arg> {
    let mut expansion = Expansion { environment, words: Vec::new(), bytes: 0, split: BTreeMap::new() };
    for word in &exec.words {
        // As much as the kernel takes; the rest is not shown.
        if expansion.full() {
            break;
        }
        match lone(&word.text).filter(|_| exec.expands) {
            Some(name) => expansion.lone(word, name),
            None if exec.expands => expansion.braces(word),
            None => expansion.push(word.text.clone(), word, Vec::new()),
        }
    }
    expansion.words
}

struct Expansion<'a> {
    environment: &'a BTreeMap<String, Variable>,
    words: Vec<Arg>,
    bytes: usize,
    /// The words of variables that were split before.
    split: BTreeMap<String, Vec<Split>>,
}

impl<'a> Expansion<'a> {
    fn full(&self) -> bool {
        self.bytes > MAX_ARGV_BYTES || self.words.len() > MAX_WORDS
    }

    fn push(&mut self, text: String, declared: &ExecWord, origins: Vec<Origin>) {
        self.bytes += text.len() + 1;
        self.words.push(Arg { origins, ..Arg::new(text, declared.at.clone()) });
    }

    /// A variable, and where the value begins in it. systemd compares `NAME=` with the start of each assignment, so that
    /// of `A=b=c` also `$A=b` is set.
    fn value(&self, name: &str) -> Option<(&'a Assignment, usize)> {
        let (variable, rest) = name.split_at(name.find('=').unwrap_or(name.len()));
        let assignment = &self.environment.get(variable)?.effective;
        let Some(rest) = rest.strip_prefix('=') else { return Some((assignment, 0)) };
        let value = assignment.value.strip_prefix(rest)?.strip_prefix('=')?;
        Some((assignment, assignment.value.len() - value.len()))
    }

    fn lone(&mut self, word: &ExecWord, name: &str) {
        let Some((assignment, offset)) = self.value(name) else { return };
        let words = self.split.entry(name.to_owned()).or_insert_with(|| split_value(&assignment.value[offset..]));
        for split in words.clone() {
            if self.full() {
                return;
            }
            let at = assignment.place_of(offset + split.place.start, offset + split.place.end);
            let origin = Origin { variable: assignment.name.clone(), at, braces: false };
            self.push(split.text.text(), word, vec![origin]);
        }
    }

    fn braces(&mut self, word: &ExecWord) {
        let mut text = String::new();
        let mut origins = Vec::new();
        for part in parts(&word.text) {
            let name = match part {
                Part::Text(plain) => {
                    text.push_str(plain);
                    continue;
                }
                Part::Braces(name) => name,
            };
            let Some((assignment, offset)) = self.value(name) else { continue };
            if self.bytes + text.len() > MAX_ARGV_BYTES {
                break;
            }
            text.push_str(&assignment.value[offset..]);
            let at = assignment.place_of(offset, assignment.value.len());
            origins.push(Origin { variable: assignment.name.clone(), at, braces: true });
        }
        self.push(text, word, origins);
    }
}

/// The words of a value: quotes are removed, a backslash protects, an unclosed quote ends with the text.
fn split_value(value: &str) -> Vec<Split> {
    let flags = Flags { c_escapes: false, keep_unknown_escapes: false, relaxed: true };
    let input = Mapped::plain(value.as_bytes());
    let mut position = 0;
    let mut words = Vec::new();
    while words.len() < MAX_WORDS
        && let Ok(Some(word)) = next_word(&input, &mut position, flags)
    {
        words.push(word);
    }
    words
}
