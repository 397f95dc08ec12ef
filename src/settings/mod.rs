//! The settings: /etc/nodevigil/config.toml and drop-ins, one struct a section.
//!
//! Uses `condition` for the names of conditions and reasons.

pub mod accepted;
pub mod custom;
mod load;
pub mod rule;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use custom::CustomSettings;
use custom::TypeName;
pub use load::*;
pub use rule::RuleName;
pub use values::{HealthzUrl, NodeIp, ProviderId, ProxyUrl, Secs, SocketUrl, UploadUrl};

use crate::condition::profile::{ConditionNames, Profile};
use crate::condition::{Reason, ShownAs};

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
    pub check: CheckSettings,
    pub taints: TaintSettings,
    pub records: RecordSettings,
    /// Reasons that are published as a warning or not at all, by name.
    #[serde(deserialize_with = "values::reasons")]
    pub reasons: BTreeMap<Reason, ReasonSettings>,
    /// Checks that an administrator defines, by name.
    #[serde(deserialize_with = "custom::checks")]
    pub custom: BTreeMap<String, CustomSettings>,
}

impl Settings {
    /// The reasons of `[reasons]`, and how each is published.
    pub fn downgraded(&self) -> BTreeMap<Reason, ShownAs> {
        self.reasons.iter().map(|(reason, settings)| (*reason, settings.shown_as)).collect()
    }
}

/// `[conditions]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionSettings {
    /// A problem ends after its monitor has reported no such problem for this many seconds.
    pub healthy_for_secs: Secs<1, 3600, 60>,
}

/// `[kubelet]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubeletSettings {
    /// The unit that runs the kubelet. Default: the first known unit that systemd has loaded.
    #[serde(deserialize_with = "values::service")]
    pub unit: Option<String>,
    /// The URL at which nodevigil probes the kubelet: `http://`, an IP address or `localhost`, a port and a path. Default: from the
    /// kubelet's configuration.
    pub healthz_url: Option<HealthzUrl>,
    /// How long the kubelet and the container runtime may take after a start until they answer, in seconds.
    pub start_grace_secs: Secs<1, 3600, 120>,
}

/// `[kubernetes]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    /// What nodevigil writes to the API server. `conditions`: conditions, Events and the taints of `[taints]`. `none`: nothing. This is a
    /// dry run: nodevigil reads the Node and the Lease, and `nodevigil status` and the metrics show what it would publish.
    pub publish: Publish,
    /// The kubeconfig that nodevigil uses. Default: the first that exists of /etc/nodevigil/kubeconfig, the pod's service account and
    /// the kubelet's kubeconfig.
    #[serde(deserialize_with = "values::path")]
    pub kubeconfig: Option<PathBuf>,
    /// The Node's name. Default: the name in the credential. In a pod: the name of the pod's Node. Otherwise: the name with which the kubelet
    /// registers.
    #[serde(deserialize_with = "values::node_name")]
    pub node_name: Option<String>,
    /// The longest random wait, in seconds, before a request that can wait. The agent waits after its start, and during and after a
    /// failure of the API server, so that the agents of a cluster do not send their requests at once. A problem does not wait, but its
    /// Event does.
    pub spread_secs: Secs<0, 600, 90>,
    /// Additional names under which conditions are published: `native` (none), `eks` or `npd`.
    pub profile: Profile,
    /// Whether nodevigil publishes only the names of `profile`, without its own. No effect with `native`.
    pub profile_only: bool,
}

impl KubernetesSettings {
    /// Under which names conditions are written.
    pub const fn names(&self) -> ConditionNames {
        ConditionNames { profile: self.profile, profile_only: self.profile_only }
    }
}

/// What nodevigil writes to the API server.
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
    /// Whether nodevigil serves metrics.
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
    /// The longest pause, and how long a maintenance signal on the Node suppresses new problems, in seconds.
    pub max_pause_secs: Secs<60, 604_800, 86_400>,
}

/// `[runtime]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSettings {
    /// The container runtime's socket, such as `unix:///run/crio/crio.sock`. Default: from the kubelet's configuration.
    pub endpoint: Option<SocketUrl>,
    /// The unit that runs the container runtime. Default: the unit of the process that listens on the socket.
    #[serde(deserialize_with = "values::service")]
    pub unit: Option<String>,
}

/// `[storage]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSettings {
    /// Where the container runtime keeps its files. Default: the usual directory of the runtime at the kubelet's socket. nodevigil probes
    /// the file systems of these directories and of the kubelet's.
    #[serde(deserialize_with = "values::paths")]
    pub runtime_paths: Vec<PathBuf>,
}

/// `[bootstrap]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootstrapSettings {
    /// How long a new Node may take to become ready, in seconds. Choose less than the time after which a controller replaces the Node: by
    /// default 10 minutes for Cluster API, 15 for cluster-autoscaler and Karpenter.
    pub deadline_secs: Secs<60, 86_400, 600>,
}

/// `[intent]`: the values that the kubelet's configuration should give the Node. `nodevigil check` reports a value as missing only if it
/// is set here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntentSettings {
    /// The kubelet's --cloud-provider: `external` or `none`.
    pub cloud_provider: Option<CloudProvider>,
    /// The kubelet's --node-ip.
    pub node_ip: Option<NodeIp>,
    /// The Node's `spec.providerID`.
    pub provider_id: Option<ProviderId>,
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

/// `[check]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckSettings {
    /// Rules that `nodevigil check` and `KubeletConfigValid` ignore: ids, names or the start of ids.
    pub ignore: Vec<RuleName>,
}

/// `[taints]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaintSettings {
    /// The conditions for which nodevigil taints the Node while they show a problem. This needs an identity of nodevigil's own.
    pub conditions: BTreeSet<TypeName>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`. `NoExecute` evicts every pod that does not tolerate the taint and ignores
    /// disruption budgets. packaging/kubernetes/policy.yaml denies it until you list it there.
    pub effect: TaintEffect,
}

/// The effect of a taint, as in the Kubernetes API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    #[default]
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// `[records]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordSettings {
    /// Whether nodevigil keeps a record of each problem of the kubelet, the container runtime, storage, kernel and memory.
    pub enabled: bool,
    /// Where nodevigil uploads each record with an HTTP PUT request: `https://`, with `{record}` and optionally `{node}` in the path.
    /// Default: nowhere.
    pub upload_url: Option<UploadUrl>,
    /// A file with a bearer token for the upload.
    #[serde(deserialize_with = "values::path")]
    pub upload_token_file: Option<PathBuf>,
    /// A file with headers for the upload, one on each line: `Name: value`.
    #[serde(deserialize_with = "values::path")]
    pub upload_headers_file: Option<PathBuf>,
    /// A PEM file with the certificate authorities of the server. Default: those of the host.
    #[serde(deserialize_with = "values::path")]
    pub upload_ca_file: Option<PathBuf>,
    /// The URL of a proxy for the upload.
    pub upload_proxy: Option<ProxyUrl>,
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            upload_url: None,
            upload_token_file: None,
            upload_headers_file: None,
            upload_ca_file: None,
            upload_proxy: None,
        }
    }
}

/// `[reasons.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonSettings {
    /// `warning`: a problem with this reason is published as a warning: the condition stays healthy, and nodevigil creates a Warning Event.
    /// `off`: the problem is not published.
    #[serde(rename = "as")]
    pub shown_as: ShownAs,
}
