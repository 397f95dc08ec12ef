//! TOML with the places of its values, as the container runtimes' configuration has it.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::kubelet::location::{Located, Location};
use crate::kubelet::systemd::SourceFile;
use crate::kubelet::text::to_u32;

/// How many items of a list or tables of a kind are taken: the column of each is counted from the start.
const MAX_ITEMS: usize = 256;

pub(super) struct TomlFile<'t> {
    source: SourceFile,
    root: Spanned<DeTable<'t>>,
}

impl<'t> TomlFile<'t> {
    /// Parses `text`. An error tells a place and nothing of the text, which may hold a registry's password. It tells no
    /// place where this parser refuses what a runtime's takes: those of containerd 1.x and CRI-O let dotted keys and
    /// headers add to one table, and containerd's, which is not `strict`, takes some characters and numbers that are none.
    pub(super) fn parse(path: &Path, text: &'t str, strict: bool) -> Result<Self, Option<Location>> {
        let source = SourceFile::new(Location::file(path), text.as_bytes().to_vec());
        match DeTable::parse(text) {
            Ok(root) => Ok(Self { source, root }),
            Err(error) if is_taken_by_some(text, &error) || !strict && is_of_letters(&error) => Err(None),
            Err(error) => Err(Some(error.span().map_or_else(|| source.file().clone(), |span| at(&source, &span)))),
        }
    }

    pub(super) fn table(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    pub(super) fn at(&self, span: &Range<usize>) -> Location {
        at(&self.source, span)
    }

    /// A text that is not empty.
    pub(super) fn string(&self, table: &DeTable<'t>, path: &[&str]) -> Option<Located<String>> {
        let found = get(table, path)?;
        let value = found.get_ref().as_str().filter(|text| !text.is_empty())?;
        Some(Located { value: value.to_owned(), at: self.at(&found.span()) })
    }

    pub(super) fn bool(&self, table: &DeTable<'t>, path: &[&str]) -> Option<Located<bool>> {
        let found = get(table, path)?;
        Some(Located { value: found.get_ref().as_bool()?, at: self.at(&found.span()) })
    }

    /// The texts of a list, its first [`MAX_ITEMS`] items.
    pub(super) fn strings(&self, table: &DeTable<'t>, path: &[&str]) -> Vec<Located<String>> {
        let list = get(table, path).and_then(|found| found.get_ref().as_array());
        list.into_iter()
            .flatten()
            .take(MAX_ITEMS)
            .filter_map(|item| Some(Located { value: item.get_ref().as_str()?.to_owned(), at: self.at(&item.span()) }))
            .collect()
    }
}

pub(super) fn get<'a, 't>(table: &'a DeTable<'t>, path: &[&str]) -> Option<&'a Spanned<DeValue<'t>>> {
    let (last, parents) = path.split_last()?;
    parents.iter().try_fold(table, |table, key| table.get(*key)?.get_ref().as_table())?.get(*last)
}

pub(super) fn table<'a, 't>(table: &'a DeTable<'t>, path: &[&str]) -> Option<&'a DeTable<'t>> {
    get(table, path)?.get_ref().as_table()
}

/// Whether the error is of a table that is defined in two ways. A key or a header that is there twice is none.
fn is_taken_by_some(text: &str, error: &toml::de::Error) -> bool {
    let before = error.span().and_then(|span| text.get(..span.end)).unwrap_or_default();
    let (earlier, written) = before.rsplit_once('\n').unwrap_or(("", before));
    let is_again = |line: &str| {
        line.trim().strip_prefix(written.trim()).is_some_and(|rest| rest.trim_start().starts_with(['=', ']']))
    };
    match error.message() {
        "duplicate key" => !earlier.lines().any(is_again),
        message => message.starts_with("cannot extend value"),
    }
}

/// Whether a character of a comment, or a zero in front of a number, is the error.
fn is_of_letters(error: &toml::de::Error) -> bool {
    let starts = ["invalid comment character", "unexpected leading zero", "carriage return must be"];
    starts.iter().any(|start| error.message().starts_with(start))
}

fn at(source: &SourceFile, span: &Range<usize>) -> Location {
    let (start, end) = (to_u32(span.start), to_u32(span.end));
    if start < end { source.span(start, end - 1) } else { source.place(start) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_places() {
        let text = "# é\n[a.b]\n  yes = true\nlist = [\n 'x',\n \"yy\", 3]\nempty = ''\n";
        let file = TomlFile::parse(Path::new("/c.toml"), text, true).unwrap();
        let yes = file.bool(file.table(), &["a", "b", "yes"]).unwrap();
        assert!(yes.value);
        assert_eq!((yes.at.line, yes.at.column, yes.at.width), (3, 9, 4));
        let list = file.strings(file.table(), &["a", "b", "list"]);
        assert_eq!(list.len(), 2);
        assert_eq!((list[1].at.line, list[1].at.column), (6, 2));
        assert_eq!(file.string(file.table(), &["a", "b", "empty"]), None);
        assert_eq!(file.string(file.table(), &["a", "yes", "b"]), None);
    }

    #[test]
    fn what_is_no_toml_is_a_place() {
        let place = |text| TomlFile::parse(Path::new("/c"), text, true).err().unwrap().unwrap();
        assert_eq!(place("a = 1\nb = s3cret\n").to_string(), "/c:2");
        for twice in ["[a]\n[a]\n", "k = 1\nk = 2\n", "a.b = 1\na.b = 2\n"] {
            assert_eq!(place(twice).to_string(), "/c:2", "{twice}");
        }
        let deep = format!("a = {}", "[".repeat(100_000));
        assert_eq!(place(&deep).file.as_ref(), "/c");
    }

    #[test]
    fn a_table_in_two_ways_is_no_error_to_every_parser() {
        // containerd 1.6.20 loads the first two, CRI-O's parser all of them.
        for text in ["[c]\nr.p = 1\n[c.r]\nf = 1\n", "[c.r]\nf = 1\n[c]\nr.p = 1\n", "[c]\nr.m = 's'\n[c.r]\np = 1\n"] {
            assert_eq!(TomlFile::parse(Path::new("/c"), text, true).err(), Some(None), "{text}");
        }
    }
}
