//! The inputs of a check that are not files: options, settings and `--facts`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kubelet_config::kubelet::host_tree::HostTree;
use kubelet_config::kubelet::machine::Packages;
use kubelet_config::kubelet::resolve::{Inputs, Overrides};
use kubelet_config::kubelet::snapshot::{CloudFacts, ClusterFacts, Intent, Lifecycle, Snapshot};
use kubelet_config::kubelet::systemd::Manager;
use kubelet_config::kubelet::tree::Tree;
use kubelet_config::kubelet::version::Version;
use serde::Deserialize;

use crate::files;
use crate::host::clock::wall;
use crate::host::kubelet::host_name;
use crate::host::systemd;
use crate::settings::{self, CloudProvider, IntentSettings, Settings};

const MAX_FACTS_BYTES: u64 = 1 << 20;
/// The directories of systemd's private library, whose name has systemd's version: `libsystemd-shared-252.so`.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/systemd",
    "/usr/lib/aarch64-linux-gnu/systemd",
    "/usr/lib64/systemd",
    "/usr/lib/systemd",
    "/lib/systemd",
    "/lib/x86_64-linux-gnu/systemd",
];

/// The options about the host.
#[derive(Debug, clap::Args)]
pub struct Given {
    /// The unit that runs the kubelet [default: the setting `[kubelet] unit`, otherwise the unit that is found]
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
    /// The kubelet's version [default: what its binary prints on the running host, otherwise what the files show]
    #[arg(long, value_name = "VERSION")]
    kubelet_version: Option<Version>,
    /// A value that the node should get: cloud-provider=external, node-ip=ADDRESS, provider-id=ID or node-label=KEY=VALUE; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = wanted)]
    intent: Vec<IntentSettings>,
    /// The host's name [default: the running host's name, otherwise /etc/hostname below PATH]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Check before the kubelet's first start, as in an image, or after it. Before it, missing certificates and CNI files are normal
    /// [default: after on the running host and where a kubelet has kept its state below PATH, otherwise before]
    #[arg(long, value_name = "PHASE", value_parser = ["before", "after"])]
    phase: Option<String>,
    /// Facts about the cluster, the cloud and the host, as JSON; they override the files (docs/reference/check-json.md)
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Read this file, or every *.toml file of this directory, instead of the default settings files; can be repeated [default if PATH is
    /// not /: none]
    #[arg(long, value_name = "FILE|DIR")]
    config: Vec<PathBuf>,
}

/// The inputs of the rules that are not files.
#[derive(Clone)]
pub struct Gathered {
    pub inputs: Inputs,
    /// Whether the files tell if a kubelet has run.
    pub is_phase_open: bool,
    /// Whether the server of k3s or RKE2 is known to run without a cloud controller, so that its agents add no --cloud-provider.
    pub server_disables_cloud_controller: Option<bool>,
}

/// The file of `--facts`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FactsFile {
    cluster: Option<ClusterFacts>,
    cloud: Option<CloudFacts>,
    host: FactsAboutHost,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct FactsAboutHost {
    hostname: Option<String>,
    kubelet_version: Option<String>,
    runtime_version: Option<String>,
    systemd_version: Option<u32>,
    cgroup_v2: Option<bool>,
    addresses: Option<Vec<String>>,
    server_disables_cloud_controller: Option<bool>,
    /// Seconds since 1970.
    now_secs: Option<i64>,
}

impl Given {
    /// The settings that apply. The settings of the running host do not apply to the files of another host.
    pub fn settings(&self, is_this_host: bool) -> Result<Settings, settings::Error> {
        if is_this_host || !self.config.is_empty() {
            settings::load(Path::new("/"), &self.config)
        } else {
            Ok(Settings::default())
        }
    }

    pub fn gather(&self, tree: &HostTree, settings: &Settings) -> anyhow::Result<Gathered> {
        let FactsFile { cluster, cloud, host } = self.facts.as_deref().map(read_facts).transpose()?.unwrap_or_default();
        let own_name = || tree.is_this_host().then(host_name);
        let hostname = self.hostname.clone().or(host.hostname).or_else(own_name);
        let version = host.kubelet_version.as_deref().map(str::parse::<Version>).transpose()?;
        let default = Manager::default();
        let manager = Manager {
            version: host.systemd_version.or_else(|| systemd_version(tree)).unwrap_or(default.version),
            hostname: hostname.clone().or_else(|| first_line(tree, "/etc/hostname")).unwrap_or(default.hostname),
            machine_id: first_line(tree, "/etc/machine-id").unwrap_or(default.machine_id),
            ..Manager::default()
        };
        let inputs = Inputs {
            unit: self.unit.clone().map(full_name).or_else(|| settings.kubelet.unit.clone()),
            manager,
            version: self.kubelet_version.clone().or(version),
            hostname,
            intent: intent(&settings.intent, &self.intent),
            lifecycle: if self.phase.as_deref() == Some("before") {
                Lifecycle::BeforeFirstStart
            } else {
                Lifecycle::Running
            },
            cluster,
            cloud,
            overrides: Overrides {
                cgroup_v2: host.cgroup_v2,
                runtime_version: host.runtime_version,
                addresses: host.addresses,
                now_secs: host.now_secs.or_else(|| Some(wall().as_second())),
            },
            live: tree.is_this_host(),
            ..Inputs::default()
        };
        let is_phase_open = self.phase.is_none() && !tree.is_this_host();
        Ok(Gathered { inputs, is_phase_open, server_disables_cloud_controller: host.server_disables_cloud_controller })
    }
}

/// What a kubelet keeps below its root directory from its first start on.
const STATE: [&str; 2] = ["cpu_manager_state", "pki/kubelet-client-current.pem"];

/// Whether a kubelet has run in this tree.
pub fn has_run(tree: &dyn Tree, snapshot: &Snapshot) -> bool {
    let root = Path::new(snapshot.settings.text("--root-dir").unwrap_or("/var/lib/kubelet"));
    STATE.iter().any(|file| tree.lstat(&root.join(file)).is_ok())
}

fn read_facts(path: &Path) -> anyhow::Result<FactsFile> {
    let shown = || format!("--facts {}", path.display());
    let text = files::read(path, MAX_FACTS_BYTES).with_context(shown)?;
    serde_json::from_str(&text).with_context(shown)
}

/// Parses one `--intent KEY=VALUE`, with the keys of the section `[intent]` and one label at a time.
fn wanted(text: &str) -> Result<IntentSettings, String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as cloud-provider=external")?;
    let key = key.replace('-', "_");
    if key != "node_label" {
        let table = toml::Table::from_iter([(key, value.into())]);
        return table.try_into().map_err(|error: toml::de::Error| error.message().to_owned());
    }
    let labels = value.split(',').map(|label| match label.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{label:?} is not a label: expected KEY=VALUE, several separated by commas")),
    });
    Ok(IntentSettings { node_labels: labels.collect::<Result<_, _>>()?, ..IntentSettings::default() })
}

/// The intent of the settings and of the command line, which overrides the settings.
fn intent(settings: &IntentSettings, given: &[IntentSettings]) -> Intent {
    let mut intent = Intent::default();
    for section in std::iter::once(settings).chain(given).cloned() {
        let provider = section.cloud_provider.map(|provider| match provider {
            CloudProvider::External => "external".to_owned(),
            CloudProvider::None => "none".to_owned(),
        });
        intent.cloud_provider = provider.or(intent.cloud_provider);
        intent.node_ip = section.node_ip.as_deref().map(str::to_owned).or(intent.node_ip);
        intent.provider_id = section.provider_id.as_deref().map(str::to_owned).or(intent.provider_id);
        intent.node_labels.extend(section.node_labels);
    }
    intent
}

/// Like systemctl, takes `kubelet` for `kubelet.service`.
fn full_name(name: String) -> String {
    if name.contains('.') { name } else { format!("{name}.service") }
}

fn first_line(tree: &HostTree, path: &str) -> Option<String> {
    let bytes = tree.read_bounded(Path::new(path), 4096).ok()?;
    let line = String::from_utf8_lossy(&bytes).lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn systemd_version(tree: &HostTree) -> Option<u32> {
    let names = LIBRARIES.iter().filter_map(|directory| tree.list(Path::new(directory)).ok()).flatten();
    let of_library =
        names.into_iter().find_map(|name| systemd::major(name.to_str()?.strip_prefix("libsystemd-shared-")?));
    // A copy of a host may lack its libraries.
    of_library.or_else(|| systemd::major(&Packages::read(tree).upstream(&["systemd"])?.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_line_wants_is_added_to_what_the_settings_want() {
        let settings = toml::from_str("node_ip = '10.0.0.1'").unwrap();
        let given = ["cloud-provider=external", "node_ip=10.0.0.7", "node-label=a=b", "node-label=c=d,e="];
        let intent = intent(&settings, &given.map(|text| wanted(text).unwrap()));
        assert_eq!(intent.cloud_provider.as_deref(), Some("external"));
        assert_eq!(intent.node_ip.as_deref(), Some("10.0.0.7"));
        assert_eq!(intent.node_labels.len(), 3);
        for bad in ["cloud-provider", "cloud-provider=aws", "color=red", "node-label=x", "provider-id=7", "node-ip=a"] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_version_of_systemd_is_that_of_its_library() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("usr/lib/systemd");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("libsystemd-shared-255.4-1.so"), "").unwrap();
        assert_eq!(systemd_version(&HostTree::new(root.path()).unwrap()), Some(255));
        let status = root.path().join("var/lib/dpkg/status");
        std::fs::create_dir_all(status.parent().unwrap()).unwrap();
        std::fs::write(&status, "Package: systemd\nStatus: install ok installed\nVersion: 257.7-1\n").unwrap();
        std::fs::remove_file(directory.join("libsystemd-shared-255.4-1.so")).unwrap();
        assert_eq!(systemd_version(&HostTree::new(root.path()).unwrap()), Some(257));
        assert_eq!(full_name("kubelet".to_owned()), "kubelet.service");
    }
}
