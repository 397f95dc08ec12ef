//! RFC 7396, JSON merge patch, on nodes with places: maps merge, everything else is replaced, `null` deletes.

use std::collections::HashMap;

use super::{
    super::version::Version,
    document::{Entry, Node, Value},
    fields::{self, FieldDefault, Kind},
};

/// What `patch` makes of `target`.
pub(super) fn patch(target: Option<Node>, patch: Node) -> Node {
    let Value::Map(changes) = patch.value else {
        return patch;
    };
    let (mut entries, at) = match target {
        Some(Node { value: Value::Map(entries), at }) => (entries, at),
        _ => (Vec::new(), patch.at),
    };
    let mut places: HashMap<String, usize> =
        entries.iter().enumerate().map(|(index, entry)| (entry.key.clone(), index)).collect();
    let mut kept: Vec<Option<Entry>> = entries.drain(..).map(Some).collect();
    for change in last_of_each_key(changes) {
        let index = *places.entry(change.key.clone()).or_insert_with(|| {
            kept.push(None);
            kept.len() - 1
        });
        let slot = &mut kept[index];
        *slot = if change.node.value == Value::Null {
            None
        } else {
            let before = slot.take().map(|entry| entry.node);
            Some(Entry { node: self::patch(before, change.node), ..change })
        };
    }
    Node { value: Value::Map(kept.into_iter().flatten().collect()), at }
}

/// The fields of a main configuration that count: of equal keys the last one, known ones alone, no `null`.
pub(super) fn base(root: Node, version: Option<&Version>) -> Node {
    known(root, "", version, |_, _| None)
}

/// The fields of a drop-in: Go's own JSON decoder reads the merge, and takes a key of another case for the field's,
/// unless the right one, which sorts behind it, is there too: written or by a default that is always written out.
pub(super) fn drop_in(root: Node, merged: &Node, version: Option<&Version>) -> Node {
    known(root, "", version, |prefix, key| {
        let field = fields::find_in_any_case(prefix, key)?;
        let is_written = merged.find(field.path).is_some();
        (field.default == FieldDefault::Nothing && field.kind != Kind::Object && !is_written).then_some(field.path)
    })
}

fn known(
    node: Node,
    prefix: &str,
    version: Option<&Version>,
    rename: impl Fn(&str, &str) -> Option<&'static str> + Copy,
) -> Node {
    let Value::Map(entries) = node.value else {
        return node;
    };
    let entries = last_of_each_key(entries).filter_map(|mut entry| {
        let mut path = format!("{prefix}{}", entry.key);
        if fields::find(&path).is_none() {
            path = rename(prefix, &entry.key)?.to_owned();
            path.strip_prefix(prefix)?.clone_into(&mut entry.key);
        }
        let field = fields::find(&path).filter(|field| field.is_known_in(version))?;
        if field.kind == Kind::Object {
            entry.node = known(entry.node, &format!("{path}."), version, rename);
        }
        Some(entry)
    });
    Node { value: Value::Map(entries.collect()), at: node.at }
}

/// Of equal keys the last one, where the first stood.
fn last_of_each_key(entries: Vec<Entry>) -> impl Iterator<Item = Entry> {
    let mut last: HashMap<String, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        last.insert(entry.key.clone(), index);
    }
    entries
        .into_iter()
        .enumerate()
        .filter(move |(index, entry)| last.get(&entry.key) == Some(index))
        .map(|(_, entry)| entry)
}
