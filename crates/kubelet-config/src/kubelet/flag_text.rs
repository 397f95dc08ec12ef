//! Flags in text: in a variable's value, in a line that systemd ignores, in a file that is not read.

use super::location::Location;
use super::systemd::Assignment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlagText<'a> {
    /// Its name without dashes, with `-` for `_`.
    pub(crate) name: String,
    /// What follows its `=`, without quotes around it.
    pub(crate) value: Option<&'a str>,
    /// The word after it, where it has no `=`: perhaps its value.
    pub(crate) next: Option<&'a str>,
    /// It as written, its value with it if that follows an `=`.
    pub(crate) text: &'a str,
    /// Where it starts in the text, in bytes.
    pub(crate) offset: usize,
}

/// The flags in a text, comment lines passed over. A flag is two dashes and a letter, at the start of a word, of a
/// quoted text or of an assignment's value.
pub(crate) fn flags_in(text: &str) -> Vec<FlagText<'_>> {
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
    let Some(quote) = text[plain..].chars().next().filter(|c| !c.is_whitespace()) else { return plain };
    if !text[..plain].ends_with('=') {
        return plain;
    }
    text[plain + 1..].find(quote).map_or(plain, |closing| plain + 1 + closing + 1)
}

/// The place of a flag in an assignment's value.
pub(crate) fn place_of(assignment: &Assignment, flag: &FlagText<'_>) -> Location {
    assignment.place_of(flag.offset, flag.offset + flag.text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_in_any_text() {
        let found = |text| -> Vec<(String, Option<String>, usize)> {
            flags_in(text)
                .into_iter()
                .map(|flag| (flag.name, flag.value.or(flag.next).map(str::to_owned), flag.offset))
                .collect()
        };
        let flag = |name: &str, value: &str, offset| (name.to_owned(), Some(value.to_owned()), offset);
        assert_eq!(found("--node_ip=1"), [flag("node-ip", "1", 0)]);
        assert_eq!(found("Environment=\"A=--x=1 --y 2\""), [flag("x", "1", 15), flag("y", "2", 21)]);
        assert_eq!(found("--x=\"a b\" c"), [flag("x", "a b", 0)]);
        assert_eq!(found("# --x=1\n; --y=1\nA='--z=1'"), [flag("z", "1", 19)]);
        assert_eq!(found("--a --b=1"), [("a".to_owned(), None, 0), flag("b", "1", 4)]);
        assert_eq!(found("a--b ---c --1 -- x=-- –-y"), []);
    }
}
