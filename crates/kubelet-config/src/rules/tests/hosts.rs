//! The findings on `tests/hosts`, equal in rule, severity and place to what is in each `expected.json`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::kubelet::machine::Socket;
use crate::kubelet::resolve::{Inputs, Overrides, resolve};
use crate::kubelet::snapshot::{CloudFacts, Intent, Snapshot};
use crate::kubelet::systemd::Manager;
use crate::kubelet::systemd::tests::hosts::tree_of;
use crate::kubelet::tree::{MemoryTree, Tree};
use crate::rules::{Report, lint, rules};

/// A host of `tests/hosts`, and what is expected of it.
pub(crate) fn host(name: &str) -> (MemoryTree, Inputs, Value) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts").join(name);
    let text = std::fs::read_to_string(directory.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let mut tree = tree_of(&directory.join("rootfs"));
    for (path, mode) in expected["modes"].as_object().into_iter().flatten() {
        let mode = u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap();
        tree = tree.mode(path.as_str(), mode);
    }
    let inputs = inputs(&expected);
    (tree, inputs, expected)
}

fn inputs(expected: &Value) -> Inputs {
    let host = &expected["host"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let intent = &expected["intent"];
    let labels = intent["node_labels"].as_object().into_iter().flatten();
    Inputs {
        unit: text(&expected["unit"]["name"]),
        manager: Manager {
            version: host["systemd"].as_str().unwrap().parse().unwrap(),
            hostname: text(&host["hostname"]).unwrap(),
            ..Manager::default()
        },
        version: host["kubelet_version"].as_str().map(|version| version.parse().unwrap()),
        hostname: text(&host["hostname"]),
        intent: Intent {
            cloud_provider: text(&intent["cloud_provider"]),
            node_labels: labels.map(|(key, value)| (key.clone(), text(value).unwrap())).collect(),
            node_ip: text(&intent["node_ip"]),
            provider_id: text(&intent["provider_id"]),
        },
        cloud: Some(CloudFacts {
            provider: text(&host["provider"]),
            instance_id: text(&host["instance_id"]),
            zone: text(&host["zone"]),
            ..CloudFacts::default()
        }),
        overrides: Overrides {
            cgroup_v2: host["cgroup"].as_u64().map(|version| version == 2),
            runtime_version: text(&host["containerd"]).or_else(|| text(&host["crio"])),
            ..Overrides::default()
        },
        ..Inputs::default()
    }
}

/// What the tree cannot hold of this host, and no field of [`Inputs`] has.
pub(crate) fn resolved(tree: &dyn Tree, inputs: Inputs, expected: &Value) -> Snapshot {
    let mut snapshot = resolve(tree, inputs);
    snapshot.machine.cri.socket = Some(Socket::Connected);
    let disabled = expected["host"]["k3s_server_disables_ccm"].as_bool();
    if disabled.is_some() {
        snapshot.command.server_disables_cloud_controller = disabled;
    }
    snapshot
}

pub(crate) fn names() -> Vec<String> {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts");
    let entries = std::fs::read_dir(hosts).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_hosts_have_the_findings_that_are_expected_of_them() {
    let known: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    let mut wrong = Vec::new();
    for name in names() {
        let (tree, inputs, expected) = host(&name);
        let scope: Vec<&str> =
            expected["scope"].as_array().unwrap().iter().map(|rule| rule.as_str().unwrap()).collect();
        for prefix in &scope {
            assert!(known.iter().any(|rule| rule.starts_with(prefix)), "{name}: no rule {prefix}…");
        }
        let report: Report = lint(&resolved(&tree, inputs, &expected));
        let mut found: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| scope.iter().any(|prefix| finding.rule.starts_with(prefix)))
            .map(|finding| {
                let severity = format!("{:?}", finding.severity).to_lowercase();
                format!("{} {severity} {}", finding.rule, finding.at)
            })
            .collect();
        let mut wanted = Vec::new();
        for finding in expected["findings"].as_array().unwrap() {
            let text = |key: &str| finding[key].as_str().unwrap();
            assert!(known.contains(text("rule")), "no rule {}", text("rule"));
            wanted.push(format!("{} {} {}", text("rule"), text("severity"), text("at")));
        }
        found.sort();
        wanted.sort();
        if found != wanted {
            let messages: Vec<&str> = report.findings.iter().map(|one| one.message.as_str()).collect();
            wrong.push(format!("{name}:\n  found  {found:#?}\n  wanted {wanted:#?}\n{messages:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
