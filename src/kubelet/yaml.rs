//! YAML or JSON as the kubelet reads it, with errors that tell a place and never a word of the content.
//!
//! The helper reads root's files with this and its errors leave the process, so that a parser which quotes what it
//! could not read would carry secrets out.

use serde::de::DeserializeOwned;
use serde_saphyr::DuplicateKeyPolicy;

/// The deepest nesting that is read: each level takes stack, and a `KubeletConfiguration` or a kubeconfig has 7.
const MAX_DEPTH: usize = 16;

/// Where a text stopped making sense: line and column, counted from 1; 0 where the parser does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}")]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

/// Reads the first document of `text`, as the kubelet does. Nesting, aliases and size are bounded by the parser's
/// budget, so that it fits a thread with a small stack.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Place> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(first_document(text), options).map_err(|error| {
        let place = error.location();
        Place {
            line: place.map_or(0, |place| place.line()),
            column: place.map_or(0, |place| place.column()),
        }
    })
}

/// `text` up to the `---` that begins a second document.
fn first_document(text: &str) -> &str {
    let mut end = 0;
    let mut has_content = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if has_content && (bare == "---" || bare.starts_with("--- ")) {
            return &text[..end];
        }
        has_content |= !bare.is_empty() && bare != "---" && !bare.starts_with('#');
        end += line.len();
    }
    text
}

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
    fn deep_nesting_is_refused_on_the_helpers_small_stack() {
        let deep = |open: &str, close: &str, levels| {
            format!(
                "x: {}{}\nname: a\n",
                open.repeat(levels),
                close.repeat(levels)
            )
        };
        let indented: String = (0..200).map(|level| " ".repeat(level) + "a:\n").collect();
        for text in [
            deep("[", "]", 20_000),
            deep("{a: ", "}", 20_000),
            deep("[", "]", MAX_DEPTH - 1),
            deep("{a: ", "}", MAX_DEPTH - 1),
            "- ".repeat(20_000),
            indented,
        ] {
            let worker = thread::Builder::new().stack_size(crate::helper::server::STACK_BYTES);
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
