//! What the samples and docs/consumers.md have controllers do: no sample replaces a node for a hint, or before it may be well again,
//! and none cordons one because nodevigil is away.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use nodevigil::config;
use nodevigil::desired::{Dialect, TYPES};
use nodevigil::health::{Reason, Remedy, Scope, Status, damping, reasons};
use nodevigil::host::files::Root;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const FOLDER: &str = "packaging/kubernetes/samples";

/// One sample: its text and its documents.
fn sample(name: &str) -> (String, Vec<Value>) {
    let text = fs::read_to_string(root().join(FOLDER).join(name)).unwrap();
    let documents = serde_saphyr::from_multiple(&text).unwrap();
    (text, documents)
}

fn samples() -> Vec<(String, Vec<Value>)> {
    let entries = fs::read_dir(root().join(FOLDER)).unwrap();
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
            let never = [
                "KubeletConfigValid",
                "MemoryExhaustionImminent",
                "NodeBootstrapped",
                "NodevigilHealthy",
            ];
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
            }
            ours += 1;
        }
    }
    assert!(ours > 10, "{ours}");
}

/// A rule that taints may not wait for what is `Unknown` while the helper is away, nor reach for nodes in service.
#[test]
fn nothing_shipped_cordons_because_nodevigil_is_away() {
    let mut rules = 0;
    for (name, documents) in samples() {
        for rule in documents
            .iter()
            .filter(|d| d["kind"] == "NodeReadinessRule")
        {
            rules += 1;
            let spec = &rule["spec"];
            assert_eq!(spec["enforcementMode"], "bootstrap-only", "{name}");
            // Only nodes that were born for it, and with its taint, are held.
            let labels = spec["nodeSelector"]["matchLabels"].as_object().unwrap();
            assert!(!labels.is_empty(), "{name}");
            for condition in spec["conditions"].as_array().unwrap() {
                let kind = condition["type"].as_str().unwrap();
                let needs_helper = NEEDS_HELPER.contains(&kind);
                assert!(
                    !needs_helper,
                    "{name}: {kind} is Unknown without the helper"
                );
            }
        }
    }
    assert_eq!(rules, 1);
    let (_, pool) = sample("karpenter-nodepool.yaml");
    let (_, rule) = sample("node-readiness-rules.yaml");
    let template = &pool[0]["spec"]["template"];
    let born = &template["metadata"]["labels"];
    assert_eq!(*born, rule[0]["spec"]["nodeSelector"]["matchLabels"]);
    assert_eq!(
        template["spec"]["startupTaints"][0],
        rule[0]["spec"]["taint"]
    );
}

/// What becomes `Unknown` a minute after the helper has gone (`samples::helper_away` on a real node).
const NEEDS_HELPER: &[&str] = &[
    "KubeletConfigValid",
    "ContainerRuntimeHealthy",
    "NodeStorageHealthy",
    "NodevigilHealthy",
];

/// Who can match reasons is given local ones; who cannot is told what that risks.
#[test]
fn samples_take_local_reasons_or_say_what_they_risk() {
    for (name, documents) in samples() {
        let text = fs::read_to_string(root().join(FOLDER).join(&name)).unwrap();
        let policies = documents[0]["kubernetes-object-monitor"]["policies"].as_array();
        let Some(policies) = policies else {
            let is_gate = name == "node-readiness-rules.yaml";
            assert!(is_gate || text.contains("# Risk"), "{name} says no risk");
            continue;
        };
        for policy in policies {
            let expression = policy["predicate"]["expression"].as_str().unwrap();
            let quoted: Vec<&str> = expression.split('"').skip(1).step_by(2).collect();
            let kind = TYPES
                .iter()
                .find(|spec| quoted.contains(&spec.name))
                .unwrap();
            let wanted: Vec<&str> = reasons()
                .filter(|spec| kind.fed_by == spec.condition.as_slice())
                .filter(|spec| is_for_machines(spec.reason))
                .map(|spec| spec.name)
                .collect();
            let mut said: Vec<&str> = quoted
                .iter()
                .copied()
                .filter(|q| wanted.contains(q))
                .collect();
            said.sort_unstable();
            said.dedup();
            assert_eq!(said.len(), wanted.len(), "{name}: {said:?}, not {wanted:?}");
            for word in quoted {
                if let Some(reason) = Reason::parse(word) {
                    let is_will = reason.condition().is_none();
                    assert!(is_will || is_for_machines(reason), "{name}: {word}");
                }
            }
        }
    }
}

/// A local reason that something mends.
fn is_for_machines(reason: Reason) -> bool {
    reason.scope() == Some(Scope::Local) && reason.remedy() != Remedy::None
}

/// `make docs` writes it.
#[test]
fn the_consumers_table_is_made_from_the_registry_and_the_samples() {
    let path = root().join("docs/consumers.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- reasons: ").unwrap();
    let (begin, rest) = rest.split_once(" -->\n").unwrap();
    let (table, after) = rest.split_once("<!-- /reasons -->").unwrap();
    let made = consumers_table();
    if std::env::var_os("NODEVIGIL_WRITE_DOCS").is_some() {
        let text = format!("{before}<!-- reasons: {begin} -->\n{made}<!-- /reasons -->{after}");
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        table == made,
        "docs/consumers.md has not the table: make docs"
    );
}

/// What each consumer does for each reason, by the samples.
fn consumers_table() -> String {
    let mut text =
        "| reason | scope | class | Karpenter on AWS | Cluster API | medik8s | NVSentinel |\n\
                    |---|---|---|---|---|---|---|\n"
            .to_owned();
    let (nvsentinel, _) = sample("nvsentinel-object-monitor.yaml");
    for spec in reasons().filter(|spec| spec.status == Status::False) {
        let reason = spec.reason;
        let Some((scope, kind)) = reason.scope().zip(spec.condition) else {
            continue;
        };
        let eks = TYPES.iter().any(|of| {
            of.dialect == Dialect::Eks && of.fed_by.contains(&kind) && of.show(reason) == of.bad
        });
        let wait = |name: &str| {
            let (_, documents) = sample(name);
            let mut found = Vec::new();
            for value in &documents {
                conditions(value, &mut found);
            }
            let of_kind = found.into_iter().find(|c| c["type"] == kind.as_str());
            let seconds = of_kind.and_then(waits);
            seconds.map_or("never".to_owned(), |seconds| {
                format!("{} min", seconds / 60)
            })
        };
        let karpenter = if eks { "30 min" } else { "never" };
        let api = wait("cluster-api-machinehealthcheck.yaml");
        let medik8s = wait("medik8s-nodehealthcheck.yaml");
        let at_once = nvsentinel.contains(&format!("\"{}\"", spec.name));
        let monitor = if at_once { "at once" } else { "never" };
        let (name, class) = (spec.name, reason.remedy().as_str());
        writeln!(
            text,
            "| `{name}` | {scope} | {class} | {karpenter} | {api} | {medik8s} | {monitor} |"
        )
        .unwrap();
    }
    text.push_str("| a rule's name (`KubeletConfigValid`) | correlated (a bad rollout) | none | never | never | never | never |\n");
    text
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
