//! Edits of the kubelet's configuration file: a field that is set or added.

use serde_json::Value;

use super::Finding;
use crate::{
    edit::Change,
    kubelet::{location::Location, snapshot::Snapshot},
};

/// The file of `--config` in which one may add a line: it is there, and begins with its first key, as no JSON does.
fn appendable(snapshot: &Snapshot) -> Option<Location> {
    let main = snapshot.config.files.iter().find(|file| !file.drop_in)?;
    let root = main.document.as_ref()?;
    let first = root.entries().first()?;
    ((first.at.line, first.at.column) == (root.at.line, root.at.column)).then(|| main.at.clone())
}

/// A value without quotes, where it is text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// With the edit that gives a field of the first level this value: where it is written, or in a new line.
pub(super) fn set(finding: Finding, snapshot: &Snapshot, field: &str, value: &Value) -> Finding {
    match snapshot.config.entry(field) {
        Some(entry) if entry.node.at.width > 0 => finding.edit(&entry.node.at, Change::Text(value.to_string())),
        Some(_) => finding,
        None => match appendable(snapshot) {
            Some(file) => finding.edit(&file, Change::Append(format!("{field}: {}", plain(value)))),
            None => finding,
        },
    }
}
