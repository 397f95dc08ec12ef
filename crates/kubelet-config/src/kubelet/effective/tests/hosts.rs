//! The settings of the hosts in `tests/hosts`, as their `expected.json` has them.

use std::path::Path;

use serde_json::{Value, json};

use crate::kubelet::effective::Settings;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::systemd::tests::hosts::tree_of;

/// The names in `expected.json` that are not the setting's own.
const NAMES: &[(&str, &str)] = &[
    ("anonymousAuth", "authentication.anonymous.enabled"),
    ("authorizationMode", "authorization.mode"),
    ("bootstrapKubeconfig", "--bootstrap-kubeconfig"),
    ("cloudProvider", "--cloud-provider"),
    ("configFile", "--config"),
    ("kubeconfig", "--kubeconfig"),
    ("nodeIP", "--node-ip"),
    ("nodeLabels", "--node-labels"),
];

/// What `expected.json` states besides settings: whether the kubelet starts, and the name that the node gets.
const OTHER: &[&str] = &["starts", "nodeName"];

fn value(settings: &Settings, name: &str) -> Value {
    let path = NAMES.iter().find(|(expected, _)| *expected == name).map_or(name, |(_, path)| path);
    match settings.get(path) {
        Some(setting) => setting.value.clone(),
        None => json!(""),
    }
}

#[test]
fn the_settings_of_every_host_are_those_that_were_expected() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts");
    let mut compared = 0;
    let mut differences = Vec::new();
    for host in std::fs::read_dir(hosts).unwrap() {
        let host = host.unwrap().path();
        let text = std::fs::read_to_string(host.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let tree = tree_of(&host.join("rootfs"));
        let inputs = Inputs {
            unit: expected["unit"]["name"].as_str().map(str::to_owned),
            version: expected["host"]["kubelet_version"].as_str().map(|text| text.parse().unwrap()),
            hostname: expected["host"]["hostname"].as_str().map(str::to_owned),
            ..Inputs::default()
        };
        let settings = resolve(&tree, inputs).settings;
        for (name, wanted) in expected["effective"].as_object().unwrap() {
            if OTHER.contains(&name.as_str()) {
                continue;
            }
            compared += 1;
            let got = value(&settings, name);
            if got != *wanted {
                differences.push(format!("{}: {name} is {got}, expected {wanted}", host.display()));
            }
        }
    }
    assert_eq!(differences, [""; 0]);
    assert!(compared > 20, "{compared} settings were compared");
}
