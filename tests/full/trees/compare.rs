//! Holds what `nodevigil check` finds, and the settings that it resolves, against what a kubelet did.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use kubelet_config::kubelet::effective::is_same;
use kubelet_config::kubelet::host_tree::HostTree;
use kubelet_config::kubelet::layers::Launcher;
use kubelet_config::kubelet::resolve::{Inputs, Overrides, resolve};
use kubelet_config::kubelet::snapshot::Snapshot;
use kubelet_config::kubelet::systemd::LoadState;
use kubelet_config::rules::{Finding, Severity, lint};
use nodevigil_e2e::support::namespaces;
use serde_json::Value;

use super::cases::Case;
use super::kubelet::{Answer, Kubelet};

/// Reasons of this machine, of which no tree tells.
const OF_THE_MACHINE: &[(&str, &str)] = &[
    ("has some missing paths", "control groups are not in a tree"),
    ("plugin binary directory", "a copy of a host may lack whole directories of programs"),
    ("too many open files", "how many files a kubelet opens depends on the machine"),
    ("can't get ip address of node", "the oracle's kubelets have no network"),
    ("cannot assign requested address", "the addresses of the tree are not this machine's"),
];

/// Rules about what the oracle allows every kubelet by a flag: cgroup v1 and swap.
const ALLOWED_HERE: [&str; 2] = ["RT005", "KN001"];

/// Settings that the oracle gives every kubelet by a flag: what a tree says of them does not count.
const GIVEN_HERE: [&str; 3] = ["logging.verbosity", "containerRuntimeEndpoint", "--container-runtime-endpoint"];

/// Settings whose values the oracle itself sets, those that the kubelet changes before it prints them, and one whose flag it keeps apart.
const LEFT_OUT: [&str; 10] = [
    "seccompDefault",
    "logging.options.text.splitStream",
    "cgroupDriver",
    "failCgroupV1",
    "failSwapOn",
    "containerRuntimeEndpoint",
    "logging.verbosity",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "staticPodURLHeader",
];

/// A comparison.
pub(crate) struct Judged {
    /// `x`: the kubelet exited, `-`: it runs.
    pub(crate) letter: char,
    pub(crate) differences: Vec<String>,
    /// Why the two cannot be compared.
    pub(crate) exception: Option<String>,
}

impl Judged {
    /// The two cannot be compared.
    pub(crate) fn not_compared(reason: impl Into<String>) -> Self {
        Self { letter: '?', differences: Vec::new(), exception: Some(reason.into()) }
    }
}

/// Lays the tree out, checks it, and starts the kubelet in it.
pub(crate) fn judge(kubelet: &Kubelet, case: &Case, index: usize) -> Result<Judged> {
    let root = namespaces::work().join(format!("trees/{index}"));
    case.lay_out(&root)?;
    let judged = compare(kubelet, &root, &format!("kubelet-{index}"));
    fs::remove_dir_all(&root)?;
    judged
}

fn compare(kubelet: &Kubelet, root: &std::path::Path, label: &str) -> Result<Judged> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let cgroup_v2 = Some(!std::path::Path::new("/sys/fs/cgroup/memory").exists());
    let overrides = Overrides { now_secs: i64::try_from(now).ok(), cgroup_v2, ..Overrides::default() };
    let (version, hostname) = (Some(kubelet.version.clone()), Some("n1".to_owned()));
    let tree = HostTree::new(root)?;
    let snapshot = resolve(&tree, Inputs { version, hostname, overrides, ..Inputs::default() });
    let unlike = |reason: &str| Ok(Judged::not_compared(reason));
    if snapshot.unit.load != LoadState::Loaded || snapshot.unit.exec.is_none() {
        return unlike("systemd does not start the unit");
    }
    if snapshot.command.launcher.is_in_process() || snapshot.command.launcher == Launcher::Rke2 {
        return unlike("the distribution's program has the kubelet in it, or writes its files before it starts it");
    }
    let report = lint(&snapshot);
    let is_given = |finding: &Finding| GIVEN_HERE.iter().any(|given| finding.message.starts_with(given));
    let counts = |finding: &Finding| !ALLOWED_HERE.contains(&finding.rule) && !is_given(finding);
    let is_fatal = |finding: &&Finding| finding.severity == Severity::Fatal && counts(finding);
    let fatal: Vec<_> = report.findings.iter().filter(is_fatal).collect();
    let mut arguments: Vec<String> = snapshot.command.args.iter().skip(1).map(|word| word.text.clone()).collect();
    // No systemd runs with the kubelets, which the driver systemd needs.
    let has_driver = snapshot.settings.text("cgroupDriver") == Some("systemd");
    arguments.extend(has_driver.then(|| "--cgroup-driver=cgroupfs".to_owned()));
    let mut differences = Vec::new();
    let letter = match (kubelet.run(root, &arguments, label)?, fatal.as_slice()) {
        (Answer::Exits(why), []) => {
            if let Some((_, reason)) = OF_THE_MACHINE.iter().find(|(part, _)| why.contains(part)) {
                return unlike(reason);
            }
            differences.push(format!("the kubelet exits, and nothing is fatal: {why}"));
            'x'
        }
        (Answer::Exits(_), _) => 'x',
        (Answer::Runs(printed), []) => {
            differences.extend(printed.iter().flat_map(|printed| settings(&snapshot, printed)));
            '-'
        }
        (Answer::Runs(_), [first, ..]) => {
            differences.push(format!("the kubelet runs, and {} is fatal: {}", first.rule, first.message));
            '-'
        }
    };
    Ok(Judged { letter, differences, exception: None })
}

/// The settings that are not what the kubelet printed.
fn settings(snapshot: &Snapshot, printed: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, setting) in &snapshot.settings.0 {
        if path.starts_with("--") || LEFT_OUT.contains(&path.as_str()) {
            continue;
        }
        let real = path.split('.').try_fold(printed, |value, name| member(value, name));
        let real = real.map(with_public_names).unwrap_or_default();
        if !is_same(&setting.value, &real) {
            differences.push(format!("{path}: the kubelet {real}, nodevigil {}", setting.value));
        }
    }
    differences
}

/// The kubelet prints its internal type, whose names begin with capitals. One field has another name there.
fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let name = if name == "resolvConf" { "ResolverConfig" } else { name };
    value.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The items of a list with their fields as a file has them. The keys of a map stay as they are.
fn with_public_names(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let public = |name: &str| {
        let mut letters = name.chars();
        letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    };
    let item = |item: &Value| match item {
        Value::Object(fields) => fields.iter().map(|(name, value)| (public(name), value.clone())).collect(),
        item => item.clone(),
    };
    items.iter().map(item).collect()
}
