//! The settings: /etc/nodevigil/config.toml and drop-ins, one struct a section.

pub mod accepted;
mod load;
mod values;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use load::*;
pub use values::Secs;

use crate::condition::{Reason, ShownAs};

/// All settings, each with its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub kubelet: KubeletSettings,
    pub kubernetes: KubernetesSettings,
    pub metrics: MetricsSettings,
    pub maintenance: MaintenanceSettings,
    /// Reasons that are turned down, by name.
    #[serde(deserialize_with = "values::reasons")]
    pub reasons: BTreeMap<Reason, ReasonSettings>,
}

/// `[kubelet]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeletSettings {
    /// The unit that runs the kubelet; the first known one that is loaded if it is not set.
    pub unit: Option<String>,
    /// Where the kubelet answers probes; from the kubelet's own configuration if it is not set.
    pub healthz_url: Option<String>,
    /// A problem ends when the kubelet has been healthy for this long.
    pub healthy_for_secs: Secs<1, 3600>,
    /// A start may take this long until /healthz answers.
    pub start_grace_secs: Secs<1, 3600>,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self { unit: None, healthz_url: None, healthy_for_secs: Secs::new(60), start_grace_secs: Secs::new(120) }
    }
}

/// `[kubernetes]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    pub publish: Publish,
    /// The kubeconfig to use; /etc/nodevigil/kubeconfig, the pod's service account or the kubelet's own if it is not set.
    pub kubeconfig: Option<PathBuf>,
    /// The Node's name; as the kubelet has it if it is not set.
    pub node_name: Option<String>,
}

/// What is written to the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Publish {
    /// Conditions and Events.
    #[default]
    Conditions,
    /// Nothing, and nothing is read from it either: `status` and metrics only.
    None,
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    pub enabled: bool,
    /// The address of /metrics and /healthz.
    #[serde(deserialize_with = "values::address")]
    pub listen: SocketAddr,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::from(([127, 0, 0, 1], 20258)) }
    }
}

/// `[maintenance]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceSettings {
    /// The longest pause that counts.
    pub max_pause_secs: Secs<60, 604_800>,
}

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self { max_pause_secs: Secs::new(86_400) }
    }
}

/// `[reasons.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonSettings {
    #[serde(rename = "as")]
    pub shown_as: ShownAs,
}
