//! Text of files: as messages show it, and its lines and words with their places.

use std::path::Path;

use super::location::{Located, Location};
use super::tree::Tree;

/// The most characters of a text in a message.
const MAX_CHARS: usize = 160;

/// A text on one line, without control characters, and not longer than a line or two.
pub fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown = String::new();
    for letter in letters.by_ref().take(MAX_CHARS) {
        match letter {
            '\n' => shown.push(' '),
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A name without what people write otherwise: case, dashes, underscores.
pub(crate) fn bare(name: &str) -> String {
    name.replace(['-', '_'], "").to_lowercase()
}

/// The name that is meant by one with a slip, or two if it is long.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const MAX_NAME_BYTES: usize = 64;
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let written = bare(name);
    let known = known.filter(|known| known.len() <= MAX_NAME_BYTES);
    let words = |name: &str| {
        let mut words: Vec<String> = name.split(['-', '_']).map(str::to_lowercase).collect();
        words.sort();
        words
    };
    let own = words(name);
    let slips = |known: &'a str| {
        // The same words in another order are no slip.
        if own.len() > 1 && words(known) == own {
            return Some((0, known));
        }
        let bare = bare(known);
        let most = match written.len().min(bare.len()) {
            ..3 => 0,
            3..8 => 1,
            _ => 2,
        };
        Some((strsim::osa_distance(&written, &bare), known)).filter(|(slips, _)| *slips <= most)
    };
    known.filter_map(slips).min().map(|(_, known)| known)
}

/// The largest small file that is read; those of `/proc` and `/etc` have a few lines.
const MAX_SMALL_BYTES: usize = 256 << 10;

/// The text of a small file; `None` if it cannot be had.
pub(crate) fn small(tree: &dyn Tree, path: &str) -> Option<String> {
    let bytes = tree.read_bounded(Path::new(path), MAX_SMALL_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines of a text, counted from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (u32, &str)> {
    (1..).zip(text.lines())
}

/// `word`, which is in `line`, with its place.
pub(crate) fn word(file: &Location, number: u32, line: &str, word: &str) -> Located<String> {
    let before = line.find(word).and_then(|start| line.get(..start)).unwrap_or_default();
    let column = chars(before).saturating_add(1);
    Located { value: word.to_owned(), at: file.at(number, column, chars(word)) }
}

/// How many characters a text has, as a column counts them.
pub(crate) fn chars(text: &str) -> u32 {
    to_u32(text.chars().count())
}

/// A number of lines, characters or bytes as places count them; no file that is read has more.
pub(crate) fn to_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The text that `find` finds in a line of a small file, of the first such line, with its place.
pub(crate) fn find_word(tree: &dyn Tree, path: &str, find: impl Fn(&str) -> Option<&str>) -> Option<Located<String>> {
    let text = small(tree, path)?;
    numbered(&text).find_map(|(number, line)| Some(word(&Location::file(path), number, line, find(line)?)))
}

/// The value of a file that holds one, as those of `/proc/sys` do.
pub(crate) fn first_word(tree: &dyn Tree, path: &str) -> Option<Located<String>> {
    find_word(tree, path, |line| Some(line.trim())).filter(|found| !found.value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_knows_its_column_in_characters() {
        let line = "é\tnameserver 10.0.0.1";
        let part = line.split_whitespace().nth(2).unwrap();
        let found = word(&Location::file("/f"), 3, line, part);
        assert_eq!((found.at.line, found.at.column, found.at.width), (3, 14, 8));
        assert_eq!(found.value, "10.0.0.1");
    }
}
