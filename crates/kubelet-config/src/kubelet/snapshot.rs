//! Everything that the rules judge: what the kubelet will get, what it has got, and what the caller knows.

use std::collections::BTreeMap;

use super::config::Configuration;
use super::effective::Settings;
use super::flags::CommandLine;
use super::layers::KubeletCommand;
use super::machine::Machine;
use super::systemd::Unit;
use super::version::Version;

/// What the operator wants: "missing" is only wrong relative to an intent.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Intent {
    /// `external`, `none`; `None` where nothing was said.
    pub cloud_provider: Option<String>,
    /// Labels that the node should have.
    pub node_labels: BTreeMap<String, String>,
    /// The address that the node should have.
    pub node_ip: Option<String>,
    /// The `spec.providerID` that it should have.
    pub provider_id: Option<String>,
}

/// Where the kubelet is in its life when the question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifecycle {
    /// Before the kubelet's first start: no certificate, configuration or CNI is normal before `kubeadm join`.
    BeforeFirstStart,
    /// The kubelet runs, or should.
    #[default]
    Running,
}

/// What a running systemd has in its memory of the unit (D-Bus properties).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Loaded {
    /// `LoadState`.
    pub load_state: String,
    /// `FragmentPath`.
    pub fragment: String,
    /// `DropInPaths`.
    pub dropins: Vec<String>,
    /// argv of each `ExecStart`, variables not expanded.
    pub exec_start: Vec<Vec<String>>,
    /// `Environment`.
    pub environment: Vec<String>,
    /// `EnvironmentFiles`: path and whether it is optional.
    pub environment_files: Vec<(String, bool)>,
    /// `NeedDaemonReload`: a hint only.
    pub need_daemon_reload: bool,
    /// The manager's own environment.
    pub manager_environment: BTreeMap<String, String>,
    /// `UnitFileState`: `enabled`, `disabled`, `static`, ….
    pub unit_file_state: String,
    /// The manager's search path for units (`UnitPath`).
    #[serde(skip)]
    pub unit_path: Vec<String>,
    /// systemd's major version.
    pub systemd_version: Option<u32>,
}

/// The running kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its argument list.
    pub argv: Vec<String>,
    /// Seconds since it started.
    pub age_secs: Option<u64>,
}

/// What the API says, where the caller has asked it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct ClusterFacts {
    pub(crate) server_version: Option<String>,
    /// The static pod that says so; `None` if the caller does.
    #[serde(skip)]
    pub(crate) server_version_at: Option<super::location::Location>,
    /// Whether the Node exists; `None` where it was not asked.
    pub(crate) node_exists: Option<bool>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    pub(crate) taints: Option<Vec<String>>,
    pub(crate) node_age_secs: Option<u64>,
    /// Whether other nodes have a `spec.providerID`: a cloud controller is at work.
    pub(crate) others_have_provider_id: Option<bool>,
}

/// What the cloud says of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct CloudFacts {
    /// `hetzner`, `aws`, `gce`, `azure`, `openstack`, `vsphere`, `none`.
    pub(crate) provider: Option<String>,
    pub(crate) instance_id: Option<String>,
    /// The name that the cloud knows the machine by.
    pub name: Option<String>,
    pub(crate) zone: Option<String>,
    /// The file that says so; `None` if the caller does.
    #[serde(skip)]
    pub at: Option<super::location::Location>,
}

/// Everything that the rules judge.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The unit on disk.
    pub unit: Unit,
    /// The kubelet's own words.
    pub command: KubeletCommand,
    /// Its flags.
    pub flags: CommandLine,
    /// Its configuration.
    pub config: Configuration,
    /// What counts.
    pub settings: Settings,
    /// What it will find around it.
    pub machine: Machine,
    /// Its version: the caller's word, else what the host says.
    pub version: Option<Version>,
    /// What the operator wants.
    pub intent: Intent,
    /// Where the kubelet is in its life.
    pub lifecycle: Lifecycle,
    /// What the running host and its cluster say.
    pub observed: Observed,
    /// What the cloud says of the machine; else what is lacking to know it.
    pub cloud: Result<CloudFacts, &'static str>,
    /// Environment files and others near the unit that nothing reads, with the assignments in them.
    pub(crate) unread_files: Vec<UnreadFile>,
}

/// What the running host and its cluster say, where the caller has asked them.
#[derive(Debug, Clone)]
pub struct Observed {
    /// systemd's memory; `None` where no systemd was asked.
    pub loaded: Option<Loaded>,
    /// The running kubelet; `None` where there is none or it was not looked for.
    pub process: Option<Process>,
    /// The running kubelet's configuration, as its `/configz` answers; `None` where it was not asked.
    pub config: Option<serde_json::Value>,
    /// The API's facts.
    pub cluster: Option<ClusterFacts>,
    /// Now, in seconds since 1970; `None` if certificates cannot be judged.
    pub now_secs: Option<i64>,
    /// Whether the tree is the root of this running host: what lies in `/run` and `/proc` counts.
    pub(crate) live: bool,
}

/// A file that looks as if it were meant for the kubelet, and that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadFile {
    /// Its assignments, as an environment file's.
    pub assignments: Vec<super::systemd::Assignment>,
    /// The file.
    pub at: super::location::Location,
}
