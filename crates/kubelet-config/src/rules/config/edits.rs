//! Edits of a configuration file, which is YAML or JSON: both are edited a line at a time.

use super::are_written_by_distribution;
use crate::edit::{Change, Edit};
use crate::kubelet::config::document::{Entry, Node, Value};
use crate::kubelet::location::Location;
use crate::kubelet::snapshot::Snapshot;
use crate::rules::{Report, cloud};

/// Takes back the edits of files that something else writes, and those that would change or delete more than the
/// finding names.
pub(in crate::rules) fn withhold(snapshot: &Snapshot, report: &mut Report) {
    // There the Machine Config Operator writes all files.
    let is_openshift = cloud::is_openshift(snapshot);
    for finding in &mut report.findings {
        if is_openshift || finding.edits.iter().any(|edit| is_withheld(snapshot, edit)) {
            finding.edits.clear();
        }
    }
}

fn is_withheld(snapshot: &Snapshot, edit: &Edit) -> bool {
    let at = &edit.at;
    // Rancher writes this one.
    if at.file.ends_with("/50-rancher.yaml") || are_written_by_distribution(snapshot, at) {
        return true;
    }
    let Some(file) = snapshot.config.files.iter().find(|file| file.at.file == at.file) else { return false };
    let deletes_a_comment = edit.change == Change::Lines(Vec::new()) && file.comment_lines.contains(&at.line);
    deletes_a_comment || file.document.as_ref().is_some_and(|document| has_alias(document, at))
}

/// Whether an alias repeats what is there: it keeps the place of its anchor.
fn has_alias(document: &Node, at: &Location) -> bool {
    let is_there = |other: &Location| (other.line, other.column) == (at.line, at.column);
    let (mut nodes, mut found) = (vec![document], 0);
    while let Some(node) = nodes.pop() {
        found += usize::from(
            matches!(node.value, Value::Bool(_) | Value::Number(_) | Value::String(_)) && is_there(&node.at),
        );
        found += node.entries().iter().filter(|entry| is_there(&entry.at)).count();
        nodes.extend(node.entries().iter().map(|entry| &entry.node));
        nodes.extend(node.items());
    }
    found > 1
}

/// An entry of a map in a file as it is written: the map, the key that holds the map, the entry's place in it.
struct Found<'a> {
    map: &'a Node,
    holder: Option<&'a Entry>,
    index: usize,
}

/// The entry that has its key at this place. Entries in lists are not searched.
fn find<'a>(snapshot: &'a Snapshot, at: &Location) -> Option<Found<'a>> {
    let mut files = snapshot.config.files.iter().filter(|file| file.at.file == at.file);
    let mut maps = vec![(files.next()?.document.as_ref()?, None)];
    while let Some((map, holder)) = maps.pop() {
        for (index, entry) in map.entries().iter().enumerate() {
            if entry.at == *at {
                return Some(Found { map, holder, index });
            }
            maps.push((&entry.node, Some(entry)));
        }
    }
    None
}

impl Found<'_> {
    fn entry(&self) -> &Entry {
        &self.map.entries()[self.index]
    }

    /// Whether the map is in braces: its entries then have commas between them.
    fn is_in_braces(&self) -> bool {
        let first = self.map.entries().first().map(|entry| (entry.at.line, entry.at.column));
        first != Some((self.map.at.line, self.map.at.column))
    }

    /// Whether the entry has lines of its own, and its value is beside its key.
    fn has_own_line(&self) -> bool {
        let entry = self.entry();
        let line = |index: Option<usize>| Some(self.map.entries().get(index?)?.at.line);
        let is_scalar = !matches!(entry.node.value, Value::Map(_) | Value::List(_));
        is_scalar
            && entry.node.at.line == entry.at.line
            && (entry.node.at.width > 0 || entry.node.value == Value::Null)
            && line(self.index.checked_sub(1)) != Some(entry.at.line)
            && line(Some(self.index + 1)) != Some(entry.at.line)
            && self.holder.is_none_or(|holder| holder.at.line < entry.at.line)
            && (!self.is_in_braces() || self.map.at.line < entry.at.line)
    }
}

/// What gives a field this value: where it is written, or, of the first level, as a new one in the file of `--config`.
pub(in crate::rules) fn set(snapshot: &Snapshot, path: &str, value: &str) -> Option<(Location, Change)> {
    if let Some(entry) = snapshot.config.entry(path) {
        let at = &entry.node.at;
        return (at.width > 0).then(|| (at.clone(), Change::Text(quoted(entry, value))));
    }
    let file = snapshot.config.files.iter().find(|file| !file.drop_in && !path.contains('.'))?;
    let root = file.document.as_ref()?;
    let first = &root.entries().first()?.at;
    if (first.line, first.column) == (root.at.line, root.at.column) {
        Some((file.at.clone(), Change::Append(format!("{path}: {value}"))))
    } else {
        addition(snapshot, first, path, value)
    }
}

/// The edits that delete the field at this place; none if it has more than one line.
pub(in crate::rules) fn deletion(snapshot: &Snapshot, key: &Location) -> Vec<(Location, Change)> {
    let Some(found) = find(snapshot, key).filter(Found::has_own_line) else { return Vec::new() };
    let delete = |at: &Location| (at.clone(), Change::Lines(Vec::new()));
    let is_last = found.index + 1 == found.map.entries().len();
    let before = found.index.checked_sub(1).and_then(|index| found.map.entries().get(index));
    match (found.is_in_braces(), before, found.holder) {
        // The comma behind the entry before it goes, too.
        (true, Some(before), _) if is_last => {
            let at = &before.node.at;
            let comma = at.at(at.line, at.column + at.width, 1);
            if at.width == 0 { Vec::new() } else { vec![delete(key), (comma, Change::Text(String::new()))] }
        }
        (false, None, Some(holder)) if is_last && holder.at.line + 1 == key.line => {
            vec![delete(key), delete(&holder.at)]
        }
        _ => vec![delete(key)],
    }
}

/// The edit that adds a field before the one at this place.
pub(in crate::rules) fn addition(
    snapshot: &Snapshot,
    key: &Location,
    field: &str,
    value: &str,
) -> Option<(Location, Change)> {
    let found = find(snapshot, key)?;
    let indent = " ".repeat(usize::try_from(key.column).ok()?.checked_sub(1)?);
    let field = written(snapshot, key, field, value);
    Some(match found.is_in_braces() {
        true if found.has_own_line() => (key.clone(), Change::Above(format!("{indent}{field},"))),
        true => (key.at(key.line, key.column, 0), Change::Text(format!("{field}, "))),
        false if found.holder.is_none() || found.has_own_line() => {
            (key.clone(), Change::Above(format!("{indent}{field}")))
        }
        false => return None,
    })
}

/// The edit that renames the field at this place.
pub(in crate::rules) fn renaming(snapshot: &Snapshot, key: &Location, name: &str) -> Option<(Location, Change)> {
    let found = find(snapshot, key)?;
    (key.width > 0).then(|| (key.clone(), Change::Text(quoted(found.entry(), name))))
}

/// A field as one writes it into the file of a place.
pub(in crate::rules) fn written(snapshot: &Snapshot, at: &Location, key: &str, value: &str) -> String {
    let mut files = snapshot.config.files.iter().filter(|file| file.at.file == at.file);
    match files.find_map(|file| file.document.as_ref()?.entries().first()) {
        Some(first) => format!("{}: {}", quoted(first, key), quoted(first, value)),
        None => format!("{key}: {value}"),
    }
}

/// A key or a value in the style of the entry's file: in JSON every text is quoted, as the entry's own key is.
fn quoted(entry: &Entry, text: &str) -> String {
    let is_in_quotes = usize::try_from(entry.at.width).is_ok_and(|width| width > entry.key.chars().count());
    let is_text = serde_json::from_str::<serde_json::Value>(text).is_err();
    if is_in_quotes && is_text { format!("\"{text}\"") } else { text.to_owned() }
}
