//! RFC 7396, JSON merge patch, on nodes with places: maps merge, everything else is replaced, `null` deletes.

use std::collections::BTreeMap;

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
    let (entries, at) = match target {
        Some(Node { value: Value::Map(entries), at }) => (entries, at),
        _ => (Vec::new(), patch.at),
    };
    let mut merged = by_key(entries);
    for change in changes {
        let before = merged.remove(&change.key).map(|entry| entry.node);
        if change.node.value != Value::Null {
            let node = self::patch(before, change.node);
            merged.insert(change.key.clone(), Entry { node, ..change });
        }
    }
    Node { value: Value::Map(merged.into_values().collect()), at }
}

/// The fields of a main configuration that count: of equal keys the last one, known ones alone.
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
    let entries = by_key(entries).into_values().filter_map(|mut entry| {
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

/// The entries by their keys; of equal keys the last one.
fn by_key(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect()
}
