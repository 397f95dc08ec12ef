//! The `KubeletConfiguration` that the kubelet gets: its file, the drop-ins of `--config-dir`, each field with its place.
//! Uses `flags` and `tree`, never `layers` or `machine`.

mod check;
pub mod document;
pub(crate) mod fields;
mod load;
mod merge;

pub(crate) use load::KIND;
pub use load::load_config;
pub(super) use load::load_config_from;

use std::collections::BTreeSet;

use document::{Entry, Node};

use super::location::Location;

/// What became of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFileState {
    /// It was merged.
    Read,
    /// It is not there.
    Missing,
    /// It is there and was not read: `--config-dir` takes `*.conf` alone.
    Ignored,
    /// The kubelet would exit: not YAML, the wrong kind, a wrong type.
    Bad {
        /// Where, as well as it is known.
        at: Location,
        /// Why.
        reason: String,
        /// The same value in the type that the field takes, where only the type is wrong.
        right: Option<String>,
    },
}

/// A file of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The file as a whole.
    pub at: Location,
    /// The flag that names it or its directory.
    pub declared: Location,
    /// Whether it comes from `--config-dir`.
    pub drop_in: bool,
    /// What became of it.
    pub state: ConfigFileState,
    /// Its content, where it could be parsed.
    pub document: Option<Node>,
    pub(crate) comment_lines: BTreeSet<u32>,
    /// Where a second document begins, which the kubelet does not read.
    pub(crate) second_document: Option<Location>,
}

impl ConfigFile {
    /// Whether it could be parsed, and is no `KubeletConfiguration` of `v1beta1`.
    pub(crate) fn lacks_kind(&self) -> bool {
        self.document.as_ref().is_some_and(|document| load::wrong_kind(&self.at, document).is_some())
    }

    /// Those of `kind` and `apiVersion` that are missing, each with its value.
    pub(crate) fn missing_kind(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_written = |key: &str| {
            let entries = self.document.as_ref().map_or(&[][..], Node::entries);
            entries.iter().any(|entry| entry.key.eq_ignore_ascii_case(key))
        };
        KIND.into_iter().filter(move |(key, _)| !is_written(key))
    }
}

/// A key that the kubelet does not take: of its main file it logs a warning, of a drop-in it says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Its path with dots, as written.
    pub path: String,
    /// Where the key is.
    pub at: Location,
    /// What was probably meant: the right case, the field of a flag, or the flag itself where it has none (`--node-ip`).
    pub(crate) meant: Option<&'static str>,
    /// The field above it that has such a key: it is not indented enough.
    pub(crate) below: Option<Location>,
    /// Whether the key is known but is there twice.
    pub(crate) duplicate: bool,
    /// The release that brought the field, where this kubelet is older.
    pub(crate) since: Option<super::version::Minor>,
}

/// The merged configuration.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Whether `--config` was given: the defaults depend on it.
    pub given: bool,
    /// Its files, in the order in which they are merged; those that were not, too.
    pub files: Vec<ConfigFile>,
    /// The fields, merged; each with the place that it comes from.
    pub(crate) merged: Option<Node>,
    /// What the kubelet does not take.
    pub unknown: Vec<UnknownField>,
}

impl Configuration {
    /// The file that `--config` names.
    pub(crate) fn main(&self) -> Option<&ConfigFile> {
        self.files.iter().find(|file| !file.drop_in)
    }

    /// The merged value of a field, its path with dots.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.entry(path).map(|entry| &entry.node)
    }

    /// The fields whose value the kubelet cannot decode.
    pub(crate) fn undecoded(&self) -> impl Iterator<Item = &'static str> {
        let is_wrong = |field: &&fields::Field| {
            self.get(field.path)
                .is_some_and(|node| node.value != document::Value::Null && !check::fits(node, field.kind))
        };
        fields::FIELDS.iter().filter(is_wrong).map(|field| field.path)
    }

    /// The merged entry of a field, its path with dots: key and value.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.merged.as_ref()?.find(path)
    }
}

#[cfg(test)]
mod tests;
