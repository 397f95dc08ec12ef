//! What the samples and docs/consumers.md have controllers do: no sample replaces a node for a hint, or before it may be well again.

use std::fs;
use std::path::{Path, PathBuf};

use nodevigil::config;
use nodevigil::desired::TYPES;
use nodevigil::health::{Status, damping};
use nodevigil::host::files::Root;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn samples() -> Vec<(String, Vec<Value>)> {
    let entries = fs::read_dir(root().join("packaging/kubernetes/samples")).unwrap();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, serde_saphyr::from_multiple(&text).unwrap())
    };
    entries.flatten().map(|entry| read(entry.path())).collect()
}

/// Every mapping in a document that names a type of condition.
fn conditions<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            if map.contains_key("type") {
                found.push(value);
            }
            map.values().for_each(|value| conditions(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| conditions(value, found)),
        _ => {}
    }
}

/// How long a rule waits; `None`: it does not replace anything.
fn waits(condition: &Value) -> Option<u64> {
    if let Some(seconds) = condition["timeoutSeconds"].as_u64() {
        return Some(seconds);
    }
    let minutes = condition["duration"].as_str()?.strip_suffix('m')?;
    Some(minutes.parse::<u64>().unwrap() * 60)
}

#[test]
fn no_sample_acts_on_a_hint_or_too_soon() {
    let mut ours = 0;
    for (name, documents) in samples() {
        let mut found = Vec::new();
        for value in &documents {
            conditions(value, &mut found);
        }
        for condition in found {
            let kind = condition["type"].as_str().unwrap();
            if kind == "Ready" {
                continue; // the kubelet's
            }
            let spec = TYPES.iter().find(|spec| spec.name == kind);
            let spec = spec.unwrap_or_else(|| panic!("{name}: {kind} is not published"));
            let never = ["KubeletConfigValid", "MemoryExhaustionImminent"];
            assert!(!never.contains(&kind), "{name}: {kind}");
            if let Some(seconds) = waits(condition) {
                let bad = if spec.bad == Status::True {
                    "True"
                } else {
                    "False"
                };
                assert_eq!(condition["status"], bad, "{name}: {kind}");
                assert!(
                    seconds > damping::LONGEST_SPELL.as_secs(),
                    "{name}: {kind} after {seconds} s: it may be well again for that long"
                );
            } else {
                assert_eq!(condition["requiredStatus"], "True", "{name}: {kind}");
                // It waits for such a taint to go, and the rule for it.
                assert_ne!(kind, "NodeBootstrapped", "{name}");
            }
            ours += 1;
        }
    }
    assert!(ours > 10, "{ours}");
}

#[test]
fn each_sample_is_told_of() {
    let page = fs::read_to_string(root().join("docs/consumers.md")).unwrap();
    for (name, _) in samples() {
        assert!(
            page.contains(&name),
            "docs/consumers.md does not name {name}"
        );
    }
}

/// As the versions of what the samples are held to.
#[test]
fn the_versions_that_are_named_are_those_that_are_tested() {
    let page = fs::read_to_string(root().join("docs/consumers.md")).unwrap();
    let modules = fs::read_to_string(root().join("tests/cluster/crds/go.mod")).unwrap();
    for (module, name) in [
        ("sigs.k8s.io/cluster-api", "Cluster API"),
        ("sigs.k8s.io/karpenter", "Karpenter"),
        (
            "github.com/medik8s/node-healthcheck-operator",
            "node-healthcheck-operator",
        ),
    ] {
        let line = modules.lines().find(|line| line.contains(module)).unwrap();
        let version = line.split_whitespace().last().unwrap();
        let prose = page.replace('\n', " ");
        assert!(
            prose.contains(&format!("{name} {version}")),
            "{name} {version}"
        );
    }
}

#[test]
fn every_configuration_in_the_documents_is_one() {
    let mut seen = 0;
    for document in [
        "docs/consumers.md",
        "docs/operate.md",
        "docs/install.md",
        "packaging/monitoring/README.md",
    ] {
        let page = fs::read_to_string(root().join(document)).unwrap();
        for block in page.split("```toml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("50-local.toml");
            fs::write(&file, text).unwrap();
            if let Err(error) = config::load(&Root::default(), &[file]) {
                panic!("{document}: {error}: {text}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}
