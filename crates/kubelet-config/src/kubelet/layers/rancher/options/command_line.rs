//! The options of the distribution's command line.

use std::collections::BTreeMap;

use super::{super::super::super::systemd::Arg, Values, known};

/// The options of the command line, in Go's way: one dash or two, the value behind `=` or in the next word.
pub(super) fn read(words: &[Arg]) -> Vec<(String, Values)> {
    let mut found: Vec<(String, Values)> = Vec::new();
    let mut index = BTreeMap::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text.strip_prefix('-') else {
            continue;
        };
        let text = text.strip_prefix('-').unwrap_or(text);
        if text.is_empty() {
            // `--` ends the options.
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let option = long_name(name).to_owned();
        let item = match value {
            Some(value) => with_text(word, value),
            None if known::is_switch(&option) => with_text(word, "true".to_owned()),
            None => match words.next() {
                Some(next) => next.clone(),
                None => break,
            },
        };
        let place = *index.entry(option.clone()).or_insert_with(|| {
            found.push((option, Values { at: word.at().clone(), items: Vec::new() }));
            found.len() - 1
        });
        if let Some((_, values)) = found.get_mut(place) {
            values.items.push(item);
        }
    }
    found
}

fn with_text(word: &Arg, text: String) -> Arg {
    Arg { text, ..word.clone() }
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
