//! Edits of a configuration file, which is YAML or JSON: both are edited a line at a time.

use super::are_written_by_distribution;
use crate::kubelet::config::document::{Entry, Node, Value};
use crate::rules::flags::is_refused;
use crate::rules::{Location, Report, Snapshot, Step, cloud, flags_in, settings};

/// Takes back edits of files that something else writes, and those that would change more than the finding names.
pub(in crate::rules) fn withhold(snapshot: &Snapshot, report: &mut Report) {
    // There the Machine Config Operator writes all files.
    let is_openshift = cloud::is_openshift(snapshot);
    for finding in &mut report.findings {
        finding.remedy.by_hand |= is_openshift || finding.remedy.edits().any(|step| is_withheld(snapshot, step));
        let is_written = |flag: &str| finding.remedy.edits().any(|step| step.writes(flag));
        let is_refused = |text: &str| flags_in(text).iter().any(|flag| is_refused(snapshot, flag));
        let bad = finding.lost_flags.iter().find(|flag| is_written(flag) && is_refused(flag));
        if let Some(bad) = bad {
            finding.remedy.steps.push(Step::say(format!("First correct {bad}, which the kubelet does not take")));
            finding.remedy.by_hand = true;
        }
    }
}

fn is_withheld(snapshot: &Snapshot, step: &Step) -> bool {
    let Some(at) = step.at() else { return false };
    // Rancher writes this one.
    if at.file.ends_with("/50-rancher.yaml") || are_written_by_distribution(snapshot, at) {
        return true;
    }
    let Some(file) = snapshot.config.files.iter().find(|file| file.at.file == at.file) else { return false };
    let deletes_a_comment =
        matches!(step, Step::Delete { .. }) && at.column == 0 && file.comment_lines.contains(&at.line);
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

    /// Whether the entry has lines of its own, and its value is on the line of its key.
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

/// Gives a field this value: where it is written, or, of the first level, as a new one in the file of `--config`.
pub(in crate::rules) fn set(snapshot: &Snapshot, path: &str, value: &str) -> Step {
    let place = settings::place(snapshot, path);
    if let Some(entry) = snapshot.config.entry(path) {
        let at = &entry.node.at;
        let kept = format!("{}: ", quoted(entry, path.rsplit('.').next().unwrap_or(path)));
        return Step::write((at.width > 0).then(|| at.clone()), at, &kept, quoted(entry, value));
    }
    let file = snapshot.config.files.iter().find(|file| !file.drop_in && !path.contains('.'));
    let root = file.and_then(|file| file.document.as_ref());
    match root.and_then(|root| Some((root, &root.entries().first()?.at))) {
        Some((root, first)) if (first.line, first.column) == (root.at.line, root.at.column) => {
            Step::Append { to: place, lines: format!("{path}: {value}") }
        }
        Some((_, first)) => addition(snapshot, first, path, value),
        None => Step::say_at(&place, format!("set {path} to {value}")),
    }
}

/// Deletes the field at this place: by edits if it has one line of its own.
pub(in crate::rules) fn deletion(snapshot: &Snapshot, key: &Location, name: &str) -> Vec<Step> {
    let by_hand = || vec![Step::delete(None, key, name)];
    let Some(found) = find(snapshot, key).filter(Found::has_own_line) else { return by_hand() };
    let delete = |at: &Location, name: &str| Step::delete(Some(at.at_line(at.line)), at, name);
    let is_last = found.index + 1 == found.map.entries().len();
    let before = found.index.checked_sub(1).and_then(|index| found.map.entries().get(index));
    match (found.is_in_braces(), before, found.holder) {
        // The comma after the entry before it goes, too.
        (true, Some(before), _) if is_last && before.node.at.width == 0 => by_hand(),
        (true, Some(before), _) if is_last => {
            let at = &before.node.at;
            let comma = at.at(at.line, at.column + at.width, 1);
            vec![delete(key, name), Step::delete(Some(comma), at, ",")]
        }
        (false, None, Some(holder)) if is_last && holder.at.line + 1 == key.line => {
            vec![delete(key, name), delete(&holder.at, &holder.key)]
        }
        _ => vec![delete(key, name)],
    }
}

/// Adds a field before the one at this place.
pub(in crate::rules) fn addition(snapshot: &Snapshot, key: &Location, field: &str, value: &str) -> Step {
    let field = written(snapshot, key, field, value);
    let what = format!("add `{field}`");
    let Some(found) = find(snapshot, key).filter(|_| key.column > 0) else { return Step::say_at(key, what) };
    let indent = " ".repeat(usize::try_from(key.column - 1).unwrap_or_default());
    let above = key.at(key.line, 1, 0);
    let (at, new) = match found.is_in_braces() {
        true if found.has_own_line() => (above, format!("{indent}{field},\n")),
        true => (key.at(key.line, key.column, 0), format!("{field}, ")),
        false if found.holder.is_none() || found.has_own_line() => (above, format!("{indent}{field}\n")),
        false => return Step::say_at(key, what),
    };
    Step::replace(Some(at), key, what, new)
}

/// Renames the field at this place.
pub(in crate::rules) fn renaming(snapshot: &Snapshot, key: &Location, old: &str, new: &str) -> Step {
    let found = find(snapshot, key).filter(|_| key.width > 0);
    let new = found.as_ref().map_or_else(|| new.to_owned(), |found| quoted(found.entry(), new));
    Step::rename(found.map(|_| key.clone()), key, old, new)
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
