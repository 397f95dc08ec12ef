//! YAML or JSON with the place of every key and value, scalars understood as Kubernetes' `sigs.k8s.io/yaml` does.
//!
//! Nesting, aliases and size are bounded. An error tells a place and never a word of the content: root's files are
//! read with this, and its errors are published.

mod build;
mod scalar;

pub use build::parse;

use crate::kubelet::location::Location;

/// The deepest nesting that is read: each level takes stack. A `KubeletConfiguration` or a kubeconfig has 7 levels.
pub(crate) const MAX_DEPTH: usize = 64;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins; what comes by an alias is where its anchor is.
    pub at: Location,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, nothing.
    Null,
    /// `true`, `false`, and YAML 1.1's `yes`, `no`, `on`, `off`, `y`, `n`.
    Bool(bool),
    /// A number, as JSON writes it: `0x10` is `16`, `010` is `8`.
    Number(String),
    /// Text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text; a key that is written twice is in it twice, and the last one counts.
    Map(Vec<Entry>),
}

/// A key of a map, with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub at: Location,
    /// Its value.
    pub node: Node,
}

/// Text that is neither YAML nor JSON, or more than we are ready to take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct BadDocument {
    /// Where.
    pub at: Location,
    /// Why.
    pub reason: String,
}

impl Node {
    /// The value of a key of a map; the last one, if it is there twice.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// A key of a map with its value; the last one, if it is there twice.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().rev().find(|entry| entry.key == key)
    }

    /// A key with its value, deeper down: the keys with dots between them.
    pub fn find(&self, path: &str) -> Option<&Entry> {
        let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
        parents
            .split('.')
            .filter(|parent| !parent.is_empty())
            .try_fold(self, |node, parent| node.get(parent))?
            .entry(key)
    }

    /// The entries of a map; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar: of a string, a number, a bool.
    pub fn text(&self) -> Option<String> {
        match &self.value {
            Value::String(text) | Value::Number(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// What kind of value it is, for messages: `a number`, `a list`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// As JSON; numbers that JSON does not know become text.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(text) => text.parse::<serde_json::Number>().map_or_else(|_| text.clone().into(), Into::into),
            Value::String(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

#[cfg(test)]
mod tests;
