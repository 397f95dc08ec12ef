//! RFC 7396, JSON merge patch, on nodes with places: maps merge, everything else is replaced, `null` deletes.

use std::collections::BTreeMap;

use super::document::{Entry, Node, Value};
use super::fields::{self, Kind};
use crate::kubelet::version::Version;

pub(super) fn patch(target: Option<Node>, patch: Node) -> Node {
    let Value::Map(changes) = patch.value else { return patch };
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

/// The fields that the kubelet of that version knows; of a drop-in also those of another case.
pub(super) fn known(node: Node, prefix: &str, version: Option<&Version>, any_case: bool) -> Node {
    let Value::Map(entries) = node.value else { return node };
    let entries = by_key(entries).into_values().filter_map(|mut entry| {
        let path = format!("{prefix}{}", entry.key);
        let field = fields::of_key(&path, any_case).filter(|field| field.is_known_in(version))?;
        if field.kind == Kind::Object {
            entry.node = known(entry.node, &format!("{}.", field.path), version, any_case);
        } else if let (Kind::List(Kind::Object), Value::List(items)) = (field.kind, &mut entry.node.value) {
            let prefix = format!("{}[].", field.path);
            *items = std::mem::take(items).into_iter().map(|item| known(item, &prefix, version, any_case)).collect();
        }
        Some(entry)
    });
    Node { value: Value::Map(entries.collect()), at: node.at }
}

/// The entries by their keys; of equal keys the last one.
fn by_key(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect()
}
