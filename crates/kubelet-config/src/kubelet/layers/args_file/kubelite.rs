//! kubelite's reader: trims each line, passes over empty ones and those that start with `#`, deletes every quote, splits
//! at every single blank, and expands `$X` and `${X}` as Go's `os.ExpandEnv` does.

use super::{
    super::{super::location::Location, Oddity},
    Environment, Split, position,
};

/// The longest line that Go's `bufio.Scanner` takes: kubelite exits on a longer one.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Splits a file's text.
pub(in super::super) fn split(file: &Location, text: &str, environment: &Environment) -> Split {
    let mut split = Split::default();
    for (index, line) in text.split('\n').enumerate() {
        let at = file.at_line(position(index + 1));
        if line.len() >= MAX_LINE_BYTES {
            split.give_up(at, format!("has a line of more than {MAX_LINE_BYTES} bytes"));
            break;
        }
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if !words(&at, line, environment, &mut split) {
            break;
        }
    }
    split
}

/// A word of a line while it is read.
#[derive(Default)]
struct Raw {
    text: String,
    /// The column of its first character; 0 while there is none.
    first: usize,
    /// How many columns it takes, its deleted quotes with it.
    width: usize,
    has_quotes: bool,
}

/// Splits one line; false when there is more than we are ready to take.
fn words(at: &Location, line: &str, environment: &Environment, split: &mut Split) -> bool {
    let indent = line.chars().count() - line.trim_start().chars().count();
    let mut raw = Raw::default();
    let mut quote: Option<(char, usize)> = None;
    let mut column = indent;
    for character in line.trim().chars() {
        column += 1;
        if character == ' ' {
            if let Some((_, opened)) = quote {
                split.odd(Oddity::QuoteDeleted, at.at(at.line, position(opened), 1), line);
            }
            if !finish(at, column, &mut raw, line, environment, split) {
                return false;
            }
            continue;
        }
        if raw.first == 0 {
            raw.first = column;
        }
        raw.width += 1;
        match (character, quote) {
            ('"' | '\'', None) => quote = Some((character, column)),
            ('"' | '\'', Some((open, _))) if open == character => quote = None,
            _ => {}
        }
        if matches!(character, '"' | '\'') {
            raw.has_quotes = true;
        } else {
            raw.text.push(character);
        }
    }
    finish(at, column + 1, &mut raw, line, environment, split)
}

/// Ends a word at a blank or at the end of its line.
fn finish(at: &Location, end: usize, raw: &mut Raw, line: &str, environment: &Environment, split: &mut Split) -> bool {
    let raw = std::mem::take(raw);
    let first = if raw.first == 0 { end } else { raw.first };
    let place = at.at(at.line, position(first), position(raw.width.max(1)));
    let text = expand(&raw.text, environment);
    if text.is_empty() {
        let what = if !raw.text.is_empty() {
            Oddity::EmptyVariable
        } else if raw.has_quotes {
            Oddity::EmptyQuotes
        } else {
            Oddity::TwoBlanks
        };
        split.odd(what, place.clone(), line);
    }
    split.push(text, place)
}

/// Go's `os.ExpandEnv`: `$name`, `${name}`, the shell's one-letter parameters; what is not set becomes nothing. A name
/// that is none (`${}`, an open brace) loses its `$` and brace; a `$` before anything else stays.
fn expand(text: &str, environment: &Environment) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        expanded.push_str(&rest[..start]);
        let behind = &rest[start + 1..];
        let (name, taken) = name(behind);
        rest = &behind[taken..];
        match name {
            Some(name) => expanded.push_str(environment.get(name).map_or("", String::as_str)),
            None if taken == 0 => expanded.push('$'),
            None => {}
        }
        // One word alone must not fill the memory; `Split::push` then says so.
        if expanded.len() > super::MAX_EXPANDED_BYTES {
            break;
        }
    }
    expanded.push_str(rest);
    expanded
}

/// The name at the start of what follows a `$`, and how many bytes it takes.
fn name(text: &str) -> (Option<&str>, usize) {
    let Some(first) = text.chars().next() else {
        return (None, 0);
    };
    if first == '{' {
        return match text.find('}') {
            Some(1) => (None, 2),
            Some(end) => (text.get(1..end), end + 1),
            None => (None, 1),
        };
    }
    if matches!(first, '*' | '#' | '$' | '@' | '!' | '?' | '-' | '0'..='9') {
        return (text.get(..1), 1);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 { (None, 0) } else { (text.get(..end), end) }
}
