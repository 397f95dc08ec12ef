//! Flags in text: in a variable's value, in a line that systemd ignores, in a file that nobody reads.

use super::{
    super::{
        location::Location,
        systemd::{Assignment, Event},
    },
    ExpectedFlag,
};

/// A flag in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagText<'a> {
    /// Its name without dashes, with `-` for `_`.
    pub name: String,
    /// What follows its `=`, without quotes around it.
    pub value: Option<&'a str>,
    /// The word behind it, where it has no `=`: perhaps its value.
    pub next: Option<&'a str>,
    /// It as written, its value with it if that follows an `=`.
    pub text: &'a str,
    /// Where it starts in the text, in bytes.
    pub offset: usize,
}

/// The flags in a text, comment lines passed over. A flag is two dashes and a letter, at the start of a word, of a
/// quoted text or of an assignment's value.
pub fn flags_in(text: &str) -> Vec<FlagText<'_>> {
    let mut flags = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim_start().starts_with(['#', ';']) {
            flags_in_line(line, start, &mut flags);
        }
        start += line.len();
    }
    flags
}

fn flags_in_line<'a>(line: &'a str, start: usize, flags: &mut Vec<FlagText<'a>>) {
    let mut from = 0;
    while let Some(found) = line[from..].find("--") {
        let at = from + found;
        let before = line[..at].chars().next_back();
        let begins = before.is_none_or(|c| c.is_whitespace() || matches!(c, '"' | '\'' | '='));
        let is_name = line[at + 2..].starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || !is_name {
            from = at + 2;
            continue;
        }
        let end = at + flag_length(&line[at..]);
        let written = &line[at..end];
        let (name, value) = match written.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches(['"', '\'']))),
            None => (written, None),
        };
        let next = line[end..]
            .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'))
            .find(|word| !word.is_empty())
            .filter(|word| value.is_none() && !word.starts_with('-'));
        flags.push(FlagText { name: name[2..].replace('_', "-"), value, next, text: written, offset: start + at });
        from = end;
    }
}

/// How many bytes a flag takes: up to a blank or a quote, a quoted value included.
fn flag_length(text: &str) -> usize {
    let stop = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
    let plain = text.find(stop).unwrap_or(text.len());
    let Some(quote) = text[plain..].chars().next().filter(|c| !c.is_whitespace()) else {
        return plain;
    };
    if !text[..plain].ends_with('=') {
        return plain;
    }
    text[plain + 1..].find(quote).map_or(plain, |closing| plain + 1 + closing + 1)
}

/// The place of a flag in an assignment's value.
pub fn place_of(assignment: &Assignment, flag: &FlagText<'_>) -> Location {
    assignment.place_of(flag.offset, flag.offset + flag.text.len())
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

/// Where an event's text holds the flag, if it does. The text of an event may be a whole file, from its first line on.
pub(super) fn event_place(event: &Event, wanted: &ExpectedFlag) -> Option<Location> {
    let flag = flags_in(&event.text).into_iter().find(|flag| wanted.matches(flag))?;
    let before = event.text.get(..flag.offset)?;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let lines = u32::try_from(before.matches('\n').count()).unwrap_or(u32::MAX);
    if lines == 0 {
        return Some(event.at.clone());
    }
    let line = event.at.line.max(1).saturating_add(lines);
    let column = count(&before[line_start..]).saturating_add(1);
    Some(event.at.at(line, column, count(flag.text)))
}
