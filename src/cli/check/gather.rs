//! What the caller knows beside the tree: options, configuration, facts, and on a live host what can be asked.

use std::path::Path;

use super::{Check, facts, facts::Facts, live};
use crate::{
    clock::Clock,
    config,
    host::files::Root,
    kubelet::{
        resolve::{Inputs, Overrides},
        snapshot::Intent,
        systemd::Manager,
        tree::Tree,
        version::Version,
    },
};

/// What was gathered.
pub(super) struct Gathered {
    pub(super) inputs: Inputs,
    /// What could not be had, for the reader.
    pub(super) notes: Vec<String>,
    /// Whether the tree is this running host's.
    pub(super) is_live: bool,
    /// Whether k3s's or RKE2's server is known not to bring a cloud controller, so that the agent adds no flag by itself.
    pub(super) server_disables_cloud_controller: Option<bool>,
}

/// One `--intent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    CloudProvider(String),
    NodeIp(String),
    ProviderId(String),
    NodeLabels(Vec<(String, String)>),
}

/// Reads one `--intent KEY=VALUE`.
pub(super) fn intent(text: &str) -> Result<Wish, String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("wants KEY=VALUE, as cloud-provider=external")?;
    match key.replace('_', "-").as_str() {
        "cloud-provider" => config::cloud_provider(value).map(Wish::CloudProvider),
        "node-ip" => config::node_ip(value).map(Wish::NodeIp),
        "provider-id" => config::provider_id(value).map(Wish::ProviderId),
        "node-label" | "node-labels" => {
            config::node_labels(value).map(|labels| Wish::NodeLabels(labels.into_iter().collect()))
        }
        _ => Err(format!(
            "{key:?} is nothing that can be wished for; known are cloud-provider, node-ip, provider-id, node-label"
        )),
    }
}

/// The configuration's intent with the command line's over it.
fn merge(mut intent: Intent, wishes: &[Wish]) -> Intent {
    for wish in wishes.iter().cloned() {
        match wish {
            Wish::CloudProvider(name) => intent.cloud_provider = Some(name),
            Wish::NodeIp(address) => intent.node_ip = Some(address),
            Wish::ProviderId(id) => intent.provider_id = Some(id),
            Wish::NodeLabels(labels) => intent.node_labels.extend(labels),
        }
    }
    intent
}

pub(super) fn gather(check: &Check, tree: &dyn Tree) -> anyhow::Result<Gathered> {
    let is_live = live::is_this_host(&check.root);
    // What lies below another root is not ours to be configured by.
    let settings = if is_live || !check.config.is_empty() {
        config::load(&Root::default(), &check.config)?.0
    } else {
        config::Settings::default()
    };
    let is_default = settings.kubelet.unit == config::KubeletSettings::default().unit;
    let configured = (!is_default).then(|| settings.kubelet.unit.clone());
    let facts = match &check.facts {
        Some(path) => facts::read(path)?,
        None => Facts::default(),
    };
    let server_disables_cloud_controller = facts.host.server_disables_cloud_controller;
    let mut notes = Vec::new();
    let hostname = check
        .hostname
        .clone()
        .or_else(|| facts.host.hostname.clone())
        .or_else(|| is_live.then(live::hostname).flatten());
    let told_version = facts.host.kubelet_version.as_deref();
    let mut inputs = Inputs {
        unit: check.unit.clone().map(full_name).or(configured),
        manager: manager(tree, hostname.clone(), &facts),
        version: match (&check.kubelet_version, told_version) {
            (Some(version), _) => Some(version.clone()),
            (None, Some(text)) => Some(text.parse::<Version>()?),
            (None, None) => None,
        },
        hostname,
        intent: merge(settings.intent, &check.intent),
        phase: check.phase.into(),
        now_secs: facts
            .host
            .now_secs
            .or_else(|| Some(Clock.now().wall.as_second())),
        loaded: None,
        process: None,
        cluster: facts.cluster,
        cloud: facts.cloud,
        addresses: facts.host.addresses,
        overrides: Overrides {
            cgroup_v2: facts.host.cgroup_v2,
            runtime_version: facts.host.runtime_version,
            ..Overrides::default()
        },
        live: is_live,
    };
    if is_live {
        live::ask(tree, &mut inputs, &mut notes);
    }
    Ok(Gathered {
        inputs,
        notes,
        is_live,
        server_disables_cloud_controller,
    })
}

/// As systemctl takes names: `kubelet` is `kubelet.service`.
fn full_name(name: String) -> String {
    if name.contains('.') {
        name
    } else {
        format!("{name}.service")
    }
}

/// What the tree says of the systemd that will read it.
fn manager(tree: &dyn Tree, hostname: Option<String>, facts: &Facts) -> Manager {
    let first_line = |path: &str| {
        let text = tree.read_bounded(Path::new(path), 4096).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    };
    let default = Manager::default();
    Manager {
        version: facts
            .host
            .systemd_version
            .or_else(|| installed_systemd(tree))
            .unwrap_or(default.version),
        hostname: hostname
            .or_else(|| first_line("/etc/hostname"))
            .unwrap_or(default.hostname),
        machine_id: first_line("/etc/machine-id").unwrap_or(default.machine_id),
        ..Manager::default()
    }
}

/// The version in the name of systemd's private library: `libsystemd-shared-252.so`.
fn installed_systemd(tree: &dyn Tree) -> Option<u32> {
    const FOLDERS: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu/systemd",
        "/usr/lib/aarch64-linux-gnu/systemd",
        "/usr/lib64/systemd",
        "/usr/lib/systemd",
        "/lib/systemd",
        "/lib/x86_64-linux-gnu/systemd",
    ];
    FOLDERS.iter().find_map(|folder| {
        let names = tree.list(Path::new(folder)).ok()?;
        names.iter().find_map(|name| {
            let rest = name.to_str()?.strip_prefix("libsystemd-shared-")?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn wishes_are_read_and_added() {
        let wishes: Vec<Wish> = [
            "cloud-provider=external",
            "node_ip=10.0.0.7",
            "node-label=a=b",
            "node-label=c=d,e=",
        ]
        .iter()
        .map(|text| intent(text).unwrap())
        .collect();
        let intent = merge(Intent::default(), &wishes);
        assert_eq!(intent.cloud_provider.as_deref(), Some("external"));
        assert_eq!(intent.node_labels.len(), 3);
        for bad in ["cloud-provider", "cloud-provider=aws", "colour=red"] {
            assert!(super::intent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn systemd_says_its_version_by_its_library() {
        let tree = MemoryTree::new()
            .file("/usr/lib/systemd/libsystemd-shared-255.4-1.so", "")
            .file("/etc/hostname", "node-1\n")
            .file("/etc/machine-id", "\n");
        let manager = manager(&tree, None, &Facts::default());
        assert_eq!(
            (manager.version, manager.hostname.as_str()),
            (255, "node-1")
        );
        assert_eq!(manager.machine_id, Manager::default().machine_id);
        assert_eq!(full_name("kubelet".to_owned()), "kubelet.service");
    }
}
