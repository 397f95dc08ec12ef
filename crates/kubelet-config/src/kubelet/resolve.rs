//! From a tree to a [`Snapshot`]: unit → arguments → flags → configuration → settings → machine.

use std::path::Path;

use super::layers::{self, KubeletCommand};
use super::location::{Located, Location};
use super::machine::{self, Known, Packages};
use super::snapshot::{CloudFacts, ClusterFacts, Intent, Lifecycle, Loaded, Observed, Process, Snapshot};
use super::systemd::{self, Manager};
use super::tree::Tree;
use super::version::Version;
use super::{cloud, config, control_plane, effective, flags, unread};

/// What the caller knows in addition to the tree.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The unit; `None` to look for it.
    pub unit: Option<String>,
    /// What is known of systemd.
    pub manager: Manager,
    /// The kubelet's version.
    pub version: Option<Version>,
    /// The host's name, where `/etc/hostname` is not to be believed.
    pub hostname: Option<String>,
    /// What the operator wants.
    pub intent: Intent,
    /// Where the kubelet is in its life.
    pub lifecycle: Lifecycle,
    /// systemd's memory.
    pub loaded: Option<Loaded>,
    /// The running kubelet.
    pub process: Option<Process>,
    /// The API's facts.
    pub cluster: Option<ClusterFacts>,
    /// What the cloud says of the machine, over what cloud-init has written down.
    pub cloud: Option<CloudFacts>,
    /// Settings of the machine that a tree cannot hold, over what the tree says.
    pub overrides: Overrides,
    /// Whether the tree is the root of this running host, so that what is not in `/run` and `/proc` is not there; else
    /// it is an image or a copy, in which it never is.
    pub live: bool,
}

/// Facts of the machine that the caller knows better than the tree.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Whether the host has cgroup v2 as its only hierarchy.
    pub cgroup_v2: Option<bool>,
    /// The runtime's version.
    pub runtime_version: Option<String>,
    /// Addresses of this host's interfaces.
    pub addresses: Option<Vec<String>>,
    /// Now, in seconds since 1970.
    pub now_secs: Option<i64>,
}

/// Resolves everything: unit, arguments, flags, configuration, settings, and what the kubelet finds around it.
pub fn resolve(tree: &dyn Tree, inputs: Inputs) -> Snapshot {
    let name = inputs.unit.clone().unwrap_or_else(|| layers::candidate_units(tree).swap_remove(0));
    let unit = systemd::resolve_unit(tree, &name, &inputs.manager);
    let command: KubeletCommand = layers::resolve_command(tree, &unit, inputs.hostname.as_deref());
    let words = command.args.get(1..).unwrap_or_default();
    let flags = flags::parse::parse_flags(words);
    let packages = Packages::read(tree);
    let version = inputs.version.or_else(|| machine::kubelet_version(tree, &unit, &packages).map(|found| found.value));
    let runtime_version = inputs.overrides.runtime_version;
    let known = Known { packages, runtime_version, kubelet_version: version.clone() };
    let working = unit.settings.get(&("Service".to_owned(), "WorkingDirectory".to_owned()));
    let working = working.map_or("", |setting| setting.value.trim_start_matches('-'));
    let working = Path::new(if working.starts_with('/') { working } else { "/" });
    let config = config::load_config_from(tree, &flags, version.as_ref(), working);
    let mut settings = effective::effective_settings(&flags, &config, version.as_ref());
    command.apply_settings(&mut settings, version.as_ref());
    let mut machine = machine::survey(tree, &unit, &flags, &settings.in_directory(working), &known);
    if let Some(hostname) = inputs.hostname {
        machine.hostname = Some(Located { value: hostname, at: Location::file("/etc/hostname") });
    }
    machine.addresses = inputs.overrides.addresses;
    machine.kernel.cgroup_v2 = inputs.overrides.cgroup_v2.or(machine.kernel.cgroup_v2);
    machine.cri.socket = machine.cri.socket.filter(|_| inputs.live);
    let mut cluster = inputs.cluster;
    if cluster.as_ref().is_none_or(|cluster| cluster.server_version.is_none())
        && let Some(found) = control_plane::api_server(tree, &settings)
    {
        let cluster = cluster.get_or_insert_default();
        cluster.server_version = Some(found.value.to_string());
        cluster.server_version_at = Some(found.at);
    }
    Snapshot {
        unread_files: unread::find(tree, &unit),
        unit,
        command,
        flags,
        config,
        settings,
        machine,
        version,
        intent: inputs.intent,
        lifecycle: inputs.lifecycle,
        observed: Observed {
            loaded: inputs.loaded,
            process: inputs.process,
            config: None,
            cluster,
            now_secs: inputs.overrides.now_secs,
            live: inputs.live,
        },
        cloud: inputs.cloud.map_or_else(|| cloud::read(tree), Ok),
    }
}
