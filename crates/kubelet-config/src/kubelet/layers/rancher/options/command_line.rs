//! The options of the distribution's command line.

use std::collections::BTreeMap;

use super::{super::super::super::systemd::Arg, Values, known};

/// The options of the command line, in Go's way: one dash or two, the value behind `=` or in the next word.
pub(super) fn read(words: &[Arg]) -> BTreeMap<String, Values> {
    let mut found = BTreeMap::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text.strip_prefix('-') else { continue };
        let text = text.strip_prefix('-').unwrap_or(text);
        if text.is_empty() {
            // `--` ends the options.
            break;
        }
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let option = long_name(name);
        let item = match value.or_else(|| known::is_switch(option).then_some("true")) {
            Some(value) => Arg { text: value.to_owned(), ..word.clone() },
            None => match words.next() {
                Some(next) => next.clone(),
                None => break,
            },
        };
        let first = || Values { at: word.at().clone(), items: Vec::new() };
        found.entry(option.to_owned()).or_insert_with(first).items.push(item);
    }
    found
}

/// The options that have a letter of their own.
pub(super) fn long_name(name: &str) -> &str {
    match name {
        "c" => "config",
        "d" => "data-dir",
        "i" => "node-ip",
        "l" => "log",
        "s" => "server",
        "t" => "token",
        name => name,
    }
}
