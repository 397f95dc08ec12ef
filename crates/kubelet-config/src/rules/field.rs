//! Edits of the kubelet's configuration file: a field that is set or added.

use serde_json::Value;

use super::{Finding, config::are_written_by_distribution};
use crate::{
    edit::Change,
    kubelet::{
        config::document::{Node, Value as Written},
        location::Location,
        snapshot::Snapshot,
    },
};

/// The file of `--config` in which one may add a line: it is there, and no JSON.
fn appendable(snapshot: &Snapshot) -> Option<Location> {
    let main = snapshot.config.files.iter().find(|file| !file.drop_in)?;
    let root = main.document.as_ref()?;
    is_block(root).then(|| main.at.clone()).filter(|at| !are_written_by_distribution(snapshot, at))
}

/// Whether a map is written without braces: it begins with its first key.
fn is_block(map: &Node) -> bool {
    map.entries().first().is_some_and(|first| (first.at.line, first.at.column) == (map.at.line, map.at.column))
}

/// A value without quotes, where it is text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// With the edit that gives a field of the first level this value: where it is written, or in a new line.
pub(super) fn set(finding: Finding, snapshot: &Snapshot, field: &str, value: &Value) -> Finding {
    match snapshot.config.entry(field) {
        Some(entry) if are_written_by_distribution(snapshot, &entry.at) => finding,
        Some(entry) if entry.node.at.width > 0 => finding.edit(&entry.node.at, Change::Text(value.to_string())),
        Some(_) => finding,
        None => match appendable(snapshot) {
            Some(file) => finding.edit(&file, Change::Append(format!("{field}: {}", plain(value)))),
            None => finding,
        },
    }
}

/// With the edits that give a map of the first level these keys, which it does not have.
pub(super) fn add_keys(finding: Finding, snapshot: &Snapshot, field: &str, keys: &[(&str, &str)]) -> Finding {
    let Some(entry) = snapshot.config.entry(field).filter(|entry| entry.node.value != Written::Null) else {
        let lines: Vec<String> = keys.iter().map(|(key, value)| format!("\n  {key}: {value}")).collect();
        return match appendable(snapshot) {
            Some(file) => finding.edit(&file, Change::Append(format!("{field}:{}", lines.concat()))),
            None => finding,
        };
    };
    let (Some(first), false) = (entry.node.entries().first(), are_written_by_distribution(snapshot, &entry.at)) else {
        return finding;
    };
    let indent = usize::try_from(first.at.column.saturating_sub(1)).unwrap_or(0);
    keys.iter().fold(finding, |finding, (key, value)| {
        if is_block(&entry.node) {
            finding.edit(&first.at, Change::Above(format!("{}{key}: {value}", " ".repeat(indent))))
        } else {
            // JSON wants the quotes.
            let pair = format!("{}: {}, ", Value::from(*key), Value::from(*value));
            finding.edit(&first.at.at(first.at.line, first.at.column, 0), Change::Text(pair))
        }
    })
}
