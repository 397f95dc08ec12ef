//! The hosts of `tests/hosts`: what their kubelets get.

use std::path::Path;

use serde_json::Value;

use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::Snapshot;
use crate::kubelet::systemd::Manager;
use crate::kubelet::systemd::tests::hosts::tree_of;

/// Every host with what is expected of it, resolved.
fn hosts() -> Vec<(String, Value, Snapshot)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts");
    let mut hosts = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let hostname = expected["host"]["hostname"].as_str().unwrap().to_owned();
        let inputs = Inputs {
            unit: expected["unit"]["name"].as_str().map(str::to_owned),
            manager: Manager { hostname: hostname.clone(), ..Manager::default() },
            version: expected["host"]["kubelet_version"].as_str().map(|version| version.parse().unwrap()),
            hostname: Some(hostname),
            intent: serde_json::from_value(expected["intent"].clone()).unwrap(),
            ..Inputs::default()
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        hosts.push((name, expected, resolve(&tree_of(&path.join("rootfs")), inputs)));
    }
    assert!(hosts.len() >= 17, "{} hosts", hosts.len());
    hosts
}

/// A list of texts, sorted.
fn texts(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> =
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    texts.sort();
    texts
}

#[test]
fn kubelets_get_the_flags_that_are_expected() {
    let mut compared = 0;
    for (name, expected, snapshot) in hosts() {
        let words = &snapshot.command.args;
        if let Some(flags) = expected["kubelet"].get("flags") {
            let mut got: Vec<String> = words.iter().skip(1).map(|word| word.text.clone()).collect();
            got.sort();
            assert_eq!(got, texts(flags), "{name}");
            compared += 1;
        }
        if let Some(model) = expected["kubelet"].get("argv_model") {
            let mut got: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
            got.sort();
            // No option gives this address: RKE2 takes the host's, which no file says.
            let mut model = texts(model);
            if snapshot.flags.last("node-ip").is_none() {
                model.retain(|flag| !flag.starts_with("--node-ip="));
            }
            assert_eq!(got, model, "{name}");
            compared += 1;
        }
        assert!(!words.is_empty(), "{name}");
    }
    assert!(compared >= 6, "{compared} hosts compared");
}

#[test]
fn hosts_without_a_name_for_their_unit_find_it() {
    for (name, expected, _) in hosts() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts").join(&name).join("rootfs");
        let found = super::candidate_units(&tree_of(&root));
        assert_eq!(Some(found[0].as_str()), expected["unit"]["name"].as_str(), "{name}");
    }
}
