//! The settings that count: flags over files over defaults, each with where it came from.

mod defaults;
mod files;
mod flags;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::flags::duration_nanos;
use super::location::Location;
use super::quantity;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// A flag.
    Flag(Location),
    /// A file of the configuration: the place of the key.
    File(Location),
    /// Nobody set it.
    Default {
        /// Whether it is the default of a kubelet that was given no `--config`.
        legacy: bool,
    },
    /// The distribution sets it itself (k3s, RKE2).
    Distribution,
}

/// A setting and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// Its value, as JSON.
    pub value: Value,
    /// Where it comes from; of a map the place that was merged last.
    pub from: From,
    /// For maps: where each key comes from.
    pub keys: BTreeMap<String, From>,
}

impl Effective {
    pub(super) fn new(value: Value, from: From) -> Self {
        Self { value, from, keys: BTreeMap::new() }
    }
}

/// The settings, by the path of their field (`authentication.anonymous.enabled`), or by the name of their flag with
/// two dashes where they have no field (`--node-ip`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(pub BTreeMap<String, Effective>);

/// Whether two values of a setting are the same to the kubelet: `4m` is `4m0s`, `1Gi` is `1024Mi`, and what is empty is not set.
pub fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => {
            let amount = |text: &str| quantity::parse(text).map(|quantity| quantity.amount().to_bits());
            let is_equal = |one: Option<_>, other| one.is_some() && one == other;
            one == other
                || is_equal(duration_nanos(one).map(i64::cast_unsigned), duration_nanos(other).map(i64::cast_unsigned))
                || is_equal(amount(one), amount(other))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys());
            let of = |map: &serde_json::Map<String, Value>, name| map.get(name).cloned().unwrap_or_default();
            names.all(|name| is_same(&of(one, name), &of(other, name)))
        }
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Null, value) | (value, Value::Null) => is_zero(value),
        (one, other) => one == other,
    }
}

/// Whether it is what Go has where nothing was set.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || duration_nanos(text) == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

impl Settings {
    /// A setting.
    pub fn get(&self, path: &str) -> Option<&Effective> {
        self.0.get(path)
    }

    /// The same with the paths of flags as they are for a process that is started in this directory.
    pub(super) fn in_directory(&self, directory: &Path) -> Self {
        let mut settings = self.clone();
        for flag in ["--kubeconfig", "--bootstrap-kubeconfig", "--cert-dir", "--root-dir"] {
            if let (Some(path), Some(setting)) = (self.text(flag), settings.0.get_mut(flag)) {
                setting.value = directory.join(path).to_string_lossy().into_owned().into();
            }
        }
        settings
    }

    /// A setting that is text, and not empty.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.value.as_str().filter(|text| !text.is_empty())
    }

    /// A setting that is true or false.
    pub fn bool(&self, path: &str) -> Option<bool> {
        self.get(path)?.value.as_bool()
    }

    /// A setting that is a whole number.
    pub fn int(&self, path: &str) -> Option<i64> {
        self.get(path)?.value.as_i64()
    }

    /// A setting that is a map of texts; empty if it is not set.
    pub fn map(&self, path: &str) -> BTreeMap<&str, &str> {
        self.get(path)
            .and_then(|setting| setting.value.as_object())
            .map(|map| map.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect())
            .unwrap_or_default()
    }

    /// A setting that is a list of texts; empty if it is not set.
    pub fn list(&self, path: &str) -> Vec<&str> {
        self.get(path)
            .and_then(|setting| setting.value.as_array())
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }
}

/// Settles what counts: flags over files over defaults, by the rules of each flag and of the kubelet's version. Without
/// a version the newest that the tables know is assumed.
pub fn effective_settings(
    flags: &super::flags::CommandLine,
    config: &super::config::Configuration,
    version: Option<&super::version::Version>,
) -> Settings {
    let mut settings = Settings(defaults::defaults(config.given, version));
    files::lay_over(&mut settings, config, version);
    flags::lay_over(&mut settings, flags, version);
    settings
}

#[cfg(test)]
mod tests;
