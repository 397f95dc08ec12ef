//! A document held against the table of fields: what the kubelet takes, what it passes over, what makes it exit.

use std::collections::HashSet;

use super::document::{Entry, Node, Value};
use super::fields::{self, FIELDS, Field, Kind};
use super::{ConfigFileState, UnknownField};
use crate::kubelet::flags::table::FLAGS;
use crate::kubelet::flags::{self};
use crate::kubelet::quantity;
use crate::kubelet::text::{bare, nearest, shortened};
use crate::kubelet::version::Version;

const MAX_FINDINGS: usize = 200;

/// Holds a document, or the merge of several, against the table. Keys that the kubelet does not take are added to
/// `unknown`; values that it cannot decode come back, each as the state of its file. The merge is decoded by Go's own
/// decoder, which takes keys of any case.
pub(super) fn check(
    root: &Node,
    version: Option<&Version>,
    any_case: bool,
    unknown: &mut Vec<UnknownField>,
) -> Vec<ConfigFileState> {
    let mut checked = Checked { any_case, unknown, wrong: Vec::new() };
    checked.structure(root, "", version);
    checked.wrong
}

struct Checked<'a> {
    any_case: bool,
    unknown: &'a mut Vec<UnknownField>,
    wrong: Vec<ConfigFileState>,
}

impl Checked<'_> {
    fn structure(&mut self, node: &Node, prefix: &str, version: Option<&Version>) {
        let mut seen = HashSet::new();
        let mut above: Option<(&Entry, &Field)> = None;
        for entry in node.entries() {
            let path = format!("{prefix}{}", entry.key);
            let field = fields::of_key(&path, self.any_case);
            let known = field.filter(|field| field.is_known_in(version));
            let duplicate = !seen.insert(entry.key.as_str());
            if (duplicate || known.is_none()) && self.unknown.len() < MAX_FINDINGS {
                self.unknown.push(UnknownField {
                    meant: field.map_or_else(|| meant(prefix, &entry.key), |field| Some(field.path)),
                    below: above.filter(|(_, above)| has_key(above, &entry.key)).map(|(above, _)| above.at.clone()),
                    since: field.filter(|_| known.is_none()).and_then(|field| field.since),
                    ..UnknownField::new(entry, &path, duplicate)
                });
            }
            if let Some(field) = known {
                above = Some((entry, field));
                self.value(&entry.node, &path, field.kind, version);
            }
        }
    }

    fn value(&mut self, node: &Node, path: &str, kind: Kind, version: Option<&Version>) {
        let refuses_null = || fields::of_key(path, self.any_case).is_some_and(Field::refuses_null);
        if node.value == Value::Null && !refuses_null() {
            return;
        }
        if !fits(node, kind) {
            if self.wrong.len() < MAX_FINDINGS {
                self.wrong.push(ConfigFileState::Bad {
                    at: node.at.clone(),
                    reason: format!("{path} takes {}, not {}", wanted(kind), got(node, kind)),
                    // Of most texts a number is not what was meant.
                    right: right(node, kind).filter(|_| kind != Kind::String || is_amount(path)),
                });
            }
            return;
        }
        match kind {
            Kind::Object => {
                let path = fields::of_key(path, self.any_case).map_or(path, |field| field.path);
                self.structure(node, &format!("{path}."), version);
            }
            Kind::List(of) => {
                let path = format!("{path}[]");
                for item in node.items() {
                    self.value(item, &path, *of, version);
                }
            }
            Kind::Map(of) => {
                let mut seen = HashSet::new();
                for entry in node.entries() {
                    let path = format!("{path}.{}", shortened(&entry.key));
                    let duplicate = !seen.insert(entry.key.as_str());
                    if duplicate && self.unknown.len() < MAX_FINDINGS {
                        self.unknown.push(UnknownField::new(entry, &path, duplicate));
                    }
                    self.value(&entry.node, &path, *of, version);
                }
            }
            _ => {}
        }
    }
}

impl UnknownField {
    fn new(entry: &Entry, path: &str, duplicate: bool) -> Self {
        Self { path: path.to_owned(), at: entry.at.clone(), meant: None, below: None, duplicate, since: None }
    }
}

/// Whether Go's decoder takes the value itself; what is in lists and maps is not looked at.
pub(super) fn fits(node: &Node, kind: Kind) -> bool {
    match (kind, &node.value) {
        (Kind::Bool, Value::Bool(_))
        | (Kind::String, Value::String(_))
        | (Kind::Float, Value::Number(_))
        | (Kind::Object | Kind::Map(_), Value::Map(_))
        | (Kind::List(_), Value::List(_)) => true,
        (Kind::Int32, Value::Number(text)) => text.parse::<i32>().is_ok(),
        (Kind::Uint32, Value::Number(text)) => text.parse::<u32>().is_ok(),
        (Kind::Int64 | Kind::Flexible, Value::Number(text)) => text.parse::<i64>().is_ok(),
        (Kind::Duration | Kind::Flexible, Value::String(text)) => flags::duration_nanos(text).is_some(),
        (Kind::Quantity, Value::String(text) | Value::Number(text)) => quantity::parse(text.trim()).is_some(),
        _ => false,
    }
}

fn is_amount(path: &str) -> bool {
    ["kubeReserved.", "systemReserved.", "evictionHard.", "evictionMinimumReclaim."]
        .iter()
        .any(|map| path.starts_with(map))
}

/// A number or a boolean without its quotes, a number as text.
fn right(node: &Node, kind: Kind) -> Option<String> {
    let (text, right) = match (kind, &node.value) {
        (Kind::Bool, Value::String(text)) => (text, Value::Bool(text == "true")),
        (Kind::Int32 | Kind::Int64 | Kind::Uint32, Value::String(text)) => (text, Value::Number(text.clone())),
        (Kind::String, Value::Number(text)) if node.at.width as usize == text.len() => {
            return Some(format!("\"{text}\""));
        }
        _ => return None,
    };
    let right = Node { value: right, at: node.at.clone() };
    (node.at.width > 0 && right.text().as_ref() == Some(text) && fits(&right, kind)).then(|| text.clone())
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::Int32 => "a whole number of 32 bits",
        Kind::Int64 => "a whole number",
        Kind::Uint32 => "a whole number from 0",
        Kind::Float => "a number",
        Kind::String => "text (a number, yes, no, on and off need quotes)",
        Kind::Duration => "a duration such as 1m30s",
        Kind::Flexible => "a duration such as 5s, or nanoseconds",
        Kind::Quantity => "a quantity such as 100Mi",
        Kind::Object | Kind::Map(_) => "a map",
        Kind::List(_) => "a list",
    }
}

fn got(node: &Node, kind: Kind) -> &'static str {
    match (&node.value, kind) {
        (Value::String(_), Kind::Duration | Kind::Flexible | Kind::Quantity) => "text that is none",
        (Value::Number(_), Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Flexible) => "another number",
        _ => node.kind(),
    }
}

/// Flags that have no field, and that people write into the file.
const OWN_FLAGS: &str = "--bootstrap-kubeconfig --cert-dir --cloud-provider --hostname-override \
    --image-credential-provider-config --kubeconfig --node-ip --node-labels --root-dir";

/// Whether a key belongs below a field: a field of its own, an eviction signal, a resource.
fn has_key(above: &Field, key: &str) -> bool {
    match above.kind {
        Kind::Object => fields::find(&format!("{}.{key}", above.path)).is_some(),
        Kind::Map(_) if above.path.starts_with("eviction") => {
            key.ends_with(".available") || key.ends_with(".inodesFree")
        }
        Kind::Map(_) if above.path.ends_with("Reserved") => {
            ["cpu", "memory", "ephemeral-storage", "pid"].contains(&key)
        }
        _ => false,
    }
}

/// The field that a key which is none was probably meant to be.
fn meant(prefix: &str, key: &str) -> Option<&'static str> {
    let written = bare(key);
    let name_of = |field: &Field| field.path.rsplit('.').next().map(bare).unwrap_or_default();
    let siblings = || {
        let names = FIELDS.iter().filter_map(|field| field.path.strip_prefix(prefix));
        names.filter(|name| !name.contains('.'))
    };
    let sibling = |name: &str| fields::find(&format!("{prefix}{name}")).map(|field| field.path);
    if let Some(name) = siblings().find(|name| bare(name) == written) {
        return sibling(name);
    }
    if let Some(flag) = FLAGS.iter().find(|flag| flag.field.is_some() && bare(flag.name) == written) {
        return flag.field;
    }
    if let Some(flag) = OWN_FLAGS.split(' ').find(|flag| bare(flag) == written) {
        return Some(flag);
    }
    let mut elsewhere = FIELDS.iter().filter(|field| name_of(field) == written);
    if let (Some(field), None) = (elsewhere.next(), elsewhere.next()) {
        return Some(field.path);
    }
    nearest(key, siblings()).and_then(sibling)
}
