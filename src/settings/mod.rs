//! The settings: /etc/nodevigil/config.toml and drop-ins, one struct a section.
//!
//! Uses `condition` for the names of conditions and reasons.

pub mod accepted;
mod load;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

pub use load::*;
pub use values::Secs;

use crate::condition::{ConditionType, Reason, ShownAs, profile::Profile};

/// All settings, each with its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub conditions: ConditionSettings,
    pub kubelet: KubeletSettings,
    pub kubernetes: KubernetesSettings,
    pub metrics: MetricsSettings,
    pub maintenance: MaintenanceSettings,
    pub runtime: RuntimeSettings,
    pub storage: StorageSettings,
    pub bootstrap: BootstrapSettings,
    pub intent: IntentSettings,
    pub taints: TaintSettings,
    /// Reasons that are turned down, by name.
    #[serde(deserialize_with = "values::reasons")]
    pub reasons: BTreeMap<Reason, ReasonSettings>,
}

/// `[conditions]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionSettings {
    /// A problem ends when its monitor has reported without it for this long.
    pub healthy_for_secs: Secs<1, 3600, 60>,
}

/// `[kubelet]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeletSettings {
    /// The unit that runs the kubelet; the first known one that is loaded if it is not set.
    pub unit: Option<String>,
    /// Where the kubelet answers probes; from the kubelet's own configuration if it is not set.
    pub healthz_url: Option<String>,
    /// A start of the kubelet, or of the container runtime, may take this long until it answers.
    pub start_grace_secs: Secs<1, 3600, 120>,
}

/// `[kubernetes]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    /// What is written to the API server: `conditions` for conditions, Events and, with `[taints]`, taints; `none` for nothing, which is a
    /// dry run: nothing is read from it either, and `nodevigil status` and the metrics show what is found.
    pub publish: Publish,
    /// The kubeconfig to use; /etc/nodevigil/kubeconfig, the pod's service account or the kubelet's own if it is not set.
    pub kubeconfig: Option<PathBuf>,
    /// The Node's name; as the kubelet has it if it is not set.
    pub node_name: Option<String>,
    /// Names under which conditions are written beside their own: `native` for none, `eks` or `npd`.
    pub profile: Profile,
}

/// What is written to the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Publish {
    #[default]
    Conditions,
    None,
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// Whether metrics are served.
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceSettings {
    /// The longest pause that counts, and for how long a sign of maintenance on the Node counts.
    pub max_pause_secs: Secs<60, 604_800, 86_400>,
}

/// `[runtime]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSettings {
    /// The container runtime's socket, such as `unix:///run/crio/crio.sock`; from the kubelet's own configuration if it is not set.
    #[serde(deserialize_with = "values::endpoint")]
    pub endpoint: Option<String>,
    /// The unit that runs the container runtime; that of the process which listens at the socket if it is not set.
    pub unit: Option<String>,
}

/// `[storage]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSettings {
    /// Where a container runtime may keep its files. Of these directories those that exist are probed, beside the kubelet's.
    pub runtime_paths: Vec<PathBuf>,
}

impl Default for StorageSettings {
    /// Of containerd, CRI-O, Docker, and of containerd of k3s, RKE2, k0s and `MicroK8s`.
    fn default() -> Self {
        let paths = [
            "/var/lib/containerd",
            "/var/lib/containers/storage",
            "/var/lib/docker",
            "/var/lib/rancher/k3s/agent/containerd",
            "/var/lib/rancher/rke2/agent/containerd",
            "/var/lib/k0s/containerd",
            "/var/snap/microk8s/common/var/lib/containerd",
        ];
        Self { runtime_paths: paths.map(PathBuf::from).to_vec() }
    }
}

/// `[bootstrap]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootstrapSettings {
    /// A new Node that is not ready after this time is stuck. It should be shorter than what replaces nodes waits: Cluster API 10 minutes,
    /// the cluster-autoscaler and Karpenter 15.
    pub deadline_secs: Secs<60, 86_400, 600>,
}

/// `[intent]`: what the kubelet's configuration is to give the Node. `nodevigil check` reports a missing value only if it is set here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntentSettings {
    /// The kubelet's --cloud-provider: `external` or `none`.
    pub cloud_provider: Option<CloudProvider>,
    /// The kubelet's --node-ip.
    #[serde(deserialize_with = "values::node_ip")]
    pub node_ip: Option<String>,
    /// The Node's `spec.providerID`.
    #[serde(deserialize_with = "values::provider_id")]
    pub provider_id: Option<String>,
    /// Labels of the Node.
    pub node_labels: BTreeMap<String, String>,
}

/// A value of --cloud-provider. Since Kubernetes 1.31 there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudProvider {
    /// A cloud controller initializes the Node.
    External,
    None,
}

/// `[taints]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaintSettings {
    /// The conditions of which the Node gets a taint while they show a problem. That needs a kubeconfig of nodevigil's own.
    pub conditions: BTreeSet<ConditionType>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`. The last one deletes every pod that does not tolerate the taint, whatever its disruption
    /// budget says, and packaging/kubernetes/policy.yaml refuses it until it is listed there.
    pub effect: TaintEffect,
}

/// What a taint does, by the names that Kubernetes has for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    #[default]
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// `[reasons.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonSettings {
    /// `warning` shows a problem with this reason with the status of health and a Warning Event; `off` does not show it.
    #[serde(rename = "as")]
    pub shown_as: ShownAs,
}
