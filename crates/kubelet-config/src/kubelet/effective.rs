//! The settings that count: flags over files over defaults, each with where it came from.

mod defaults;
mod files;
mod flags;

use std::collections::BTreeMap;
use std::path::Path;

use super::location::Location;

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
    pub value: serde_json::Value,
    /// Where it comes from; of a map the place that was merged last.
    pub from: From,
    /// For maps: where each key comes from.
    pub keys: BTreeMap<String, From>,
}

/// The settings, by the path of their field (`authentication.anonymous.enabled`), or by the name of their flag with
/// two dashes where they have no field (`--node-ip`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(pub BTreeMap<String, Effective>);

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
    pub(crate) fn int(&self, path: &str) -> Option<i64> {
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
            .map(|list| list.iter().filter_map(serde_json::Value::as_str).collect())
            .unwrap_or_default()
    }
}

/// Settles what counts: flags over files over defaults, by the rules of each flag and of the kubelet's version. Without
/// a version the newest that the tables know is assumed.
///
/// ```
/// # use kubelet_config::*;
/// # let tree = MemoryTree::new().file("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --max-pods=50\n");
/// # let resolved = resolve(&tree, Inputs::default());
/// # let (flags, config) = (resolved.flags, resolved.config);
/// let settings = effective_settings(&flags, &config, None);
/// assert_eq!(settings.get("maxPods").unwrap().value, 50);
/// assert_eq!(settings.get("podPidsLimit").unwrap().value, -1, "the default");
/// ```
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
