//! YAML or JSON as the kubelet reads it, with errors that tell a place and never a word of the content.
//!
//! Root's files are read with this and its errors are published: a parser which quotes what it could not read would
//! publish secrets.

use serde::de::DeserializeOwned;

use super::{
    config::document::{self, Node, Value},
    location::Location,
};

/// Reads the first document of `text`, as the kubelet does; the parser bounds nesting, aliases and size. The error is
/// the place where the text stops making sense, without a file.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Location> {
    let node = document::parse(&Location::file(""), text).map_err(|error| error.at)?;
    // serde_json's own error would quote the value that it does not like.
    serde_json::from_value(node.to_json()).map_err(|_| culprit::<T>(&node))
}

/// The key at the top without which the rest could be read; the beginning, if there is no such one.
fn culprit<T: DeserializeOwned>(node: &Node) -> Location {
    let entries = node.entries();
    let without = |index: usize| {
        let mut rest = entries.to_vec();
        rest.remove(index);
        let rest = Node { value: Value::Map(rest), at: node.at.clone() };
        serde_json::from_value::<T>(rest.to_json()).is_ok()
    };
    // Each try costs as much as the whole: a document of that many keys is none of the kubelet's.
    let guilty = (0..entries.len().min(MAX_KEYS)).find(|index| without(*index));
    guilty.map_or(&node.at, |index| &entries[index].at).clone()
}

/// A `KubeletConfiguration` has some 120 fields at the top.
const MAX_KEYS: usize = 256;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Little {
        name: Option<String>,
    }

    #[test]
    fn the_first_document_counts() {
        let read = |text| read::<Little>(text).unwrap().name;
        assert_eq!(read("# c\n---\nname: a\n---\nname: b\n").unwrap(), "a");
        assert_eq!(read("name: a\n---\n").unwrap(), "a");
        assert_eq!(read("{\"name\": \"a\"}").unwrap(), "a");
        assert_eq!(read("name: a\nname: b\n").unwrap(), "b");
        assert_eq!(read("name:\n"), None);
    }

    #[test]
    fn an_error_is_a_place_and_quotes_nothing() {
        let error = read::<Little>("other: 1\nname: [s3cret]\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }

    #[test]
    fn deep_nesting_is_refused_on_a_small_stack() {
        const STACK_BYTES: usize = 1 << 20;
        let deep =
            |open: &str, close: &str, levels| format!("x: {}{}\nname: a\n", open.repeat(levels), close.repeat(levels));
        let indented: String = (0..200).map(|level| " ".repeat(level) + "a:\n").collect();
        for text in [
            deep("[", "]", 20_000),
            deep("{a: ", "}", 20_000),
            deep("[", "]", 60),
            deep("{a: ", "}", 60),
            "- ".repeat(20_000),
            indented,
        ] {
            let worker = thread::Builder::new().stack_size(STACK_BYTES);
            worker
                .spawn(move || {
                    let _ = read::<Little>(&text);
                    let _ = read::<BTreeMap<String, serde_json::Value>>(&text);
                })
                .unwrap()
                .join()
                .unwrap();
        }
    }
}
