//! What writers were told, against what the Node went through: whether an acknowledged value was overwritten by
//! anybody else than its own writer.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A write that the API server acknowledged. Each key has one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) writer: &'static str,
    /// A condition's type or a taint's key.
    pub(crate) key: String,
    /// What stands there from then on; `None` if it was taken away.
    pub(crate) value: Option<String>,
    /// The Node's resource version in the answer.
    pub(crate) version: u64,
}

/// The Node as a watch saw it.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    values: BTreeMap<String, String>,
}

/// An acknowledged write, and the first version that should show it and does not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) write: Acknowledged,
    pub(crate) at: u64,
    pub(crate) instead: Option<String>,
}

impl Version {
    /// Reads a Node: of each condition its status and message, of each taint its value.
    pub(crate) fn read(node: &Value) -> Result<Self> {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let list = |pointer: &str| {
            node.pointer(pointer)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let conditions = list("/status/conditions").map(|c| {
            (
                text(c, "type"),
                format!("{} {}", text(c, "status"), text(c, "message")),
            )
        });
        let taints = list("/spec/taints").map(|taint| (text(taint, "key"), text(taint, "value")));
        Ok(Self {
            number: number(node)?,
            values: conditions.chain(taints).collect(),
        })
    }
}

/// The resource version of a Node, as a number: so the API defines it since Kubernetes 1.35.
pub(crate) fn number(node: &Value) -> Result<u64> {
    let version = node
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str);
    version
        .context("a Node has a version")?
        .parse()
        .context("the version of a Node")
}

/// The writes that did not stand until their writer's next one. `versions` must be in their order, and all of them:
/// see [`unseen`].
pub(crate) fn lost(writes: &[Acknowledged], versions: &[Version]) -> Vec<Lost> {
    let mut by_key = BTreeMap::<&str, Vec<&Acknowledged>>::new();
    for write in writes {
        by_key.entry(&write.key).or_default().push(write);
    }
    let mut lost = Vec::new();
    for (key, mut writes) in by_key {
        writes.sort_by_key(|write| write.version);
        for (at, write) in writes.iter().enumerate() {
            let next = writes.get(at + 1).map_or(u64::MAX, |next| next.version);
            let first = versions.partition_point(|version| version.number < write.version);
            let stands = versions[first..]
                .iter()
                .take_while(|version| version.number < next);
            let mut wrong =
                stands.filter(|version| version.values.get(key) != write.value.as_ref());
            if let Some(version) = wrong.next() {
                lost.push(Lost {
                    write: (*write).clone(),
                    at: version.number,
                    instead: version.values.get(key).cloned(),
                });
            }
        }
    }
    lost
}

/// The writes whose version is not among `versions`: of those the watch would be no witness.
pub(crate) fn unseen(writes: &[Acknowledged], versions: &[Version]) -> usize {
    let seen: BTreeSet<u64> = versions.iter().map(|version| version.number).collect();
    writes
        .iter()
        .filter(|write| !seen.contains(&write.version))
        .count()
}
