//! The bootstrap of a node: the condition `NodeBootstrapped` and `nodevigil bootstrap`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::scene::{ObservedNode, Scene};
use crate::support::{WAIT, wait_until};

const CONDITION: &str = "NodeBootstrapped";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const STAGES: [&str; 9] = [
    "instance",
    "cloud-init",
    "runtime",
    "kubelet",
    "credential",
    "registered",
    "cloud-controller",
    "network",
    "ready",
];

pub fn a_ready_node_is_bootstrapped(scene: &Scene) -> Result<()> {
    let from = Instant::now();
    let node = scene.healthy()?;
    node.condition(CONDITION).wait_for(from, "True", "NodeIsBootstrapped")?;
    let (code, table) = node.run("nodevigil bootstrap")?;
    ensure!(code == 0, "{code}: {table}");
    let listed: Vec<_> = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(listed == STAGES, "{table}");
    ensure!(table.contains(&format!("there is a Node {}", node.name())), "{table}");
    Ok(())
}

/// With `--cloud-provider=external` in a cluster without a cloud controller.
pub fn a_taint_that_is_not_removed_is_late_then_stuck(scene: &Scene) -> Result<()> {
    let from = Instant::now();
    let node = scene.healthy_with(|node| {
        node.file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=--cloud-provider=external\n")
            .file("/etc/nodevigil/config.d/60-deadline.toml", "[bootstrap]\ndeadline_secs = 150\n")
    })?;
    let condition = node.condition(CONDITION);
    let wait = |status, reason| condition.wait_longer_for(from, Duration::from_mins(3), status, reason);
    wait("Unknown", "NodeBootstrapping")?;
    let late = wait("Unknown", "BootstrapStageLate")?;
    ensure!(late.message.contains("cloud-controller") && late.message.contains(UNINITIALIZED), "{late:?}");
    let (code, table) = node.run("nodevigil bootstrap")?;
    ensure!(
        code == 1 && table.contains("no cloud controller runs") && table.contains("What to do: "),
        "{code}: {table}"
    );
    wait("False", "BootstrapStuck")?;
    let events = node.events(scene.plane())?;
    ensure!(events.contains(&("Warning".to_owned(), "BootstrapStageLate".to_owned())), "{events:?}");
    // What a cloud controller does.
    let initialized = Instant::now();
    let patch = json!({"spec": {"providerID": "e2e://1"}}).to_string();
    scene.plane().kubectl(&["patch", "node", node.name(), "--patch", &patch])?;
    scene.plane().kubectl(&["taint", "node", node.name(), &format!("{UNINITIALIZED}-")])?;
    let done = condition.wait_for(initialized, "True", "NodeIsBootstrapped")?;
    // Whatever happens to the Node later.
    node.sh("systemctl stop kubelet; systemctl restart nodevigil")?;
    node.kubelet()
        .wait_for(initialized, "Unknown", "KubeletStoppedByOperator")
        .or_else(|_| node.kubelet().wait_for(initialized, "Unknown", "KubeletNotFound"))?;
    condition.ensure_unchanged(&done)
}

/// The host has no kubeconfig; then one to bootstrap with, whose API server does not answer.
pub fn a_host_that_cannot_join_shows_the_stage_and_the_cause(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh("systemctl stop kubelet; rm -r /etc/kubernetes/kubelet.conf /var/lib/kubelet/pki; systemctl start --no-block kubelet")?;
    wait_until_stuck(&node, "kubelet", "this host has not joined a cluster")?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "join",
        "contexts": [{"name": "join", "context": {"cluster": "join", "user": "join"}}],
        "clusters": [{"name": "join", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "join", "user": {"token": "abcdef.0123456789abcdef"}}],
    });
    node.sh(&format!(
        "umask 077; echo '{kubeconfig}' >/etc/kubernetes/bootstrap-kubelet.conf; systemctl restart --no-block kubelet"
    ))?;
    let report = wait_until_stuck(&node, "credential", "cannot be reached")?;
    ensure!(!report.to_string().contains("0123456789abcdef"), "{report:#}");
    Ok(())
}

/// Waits until `nodevigil bootstrap` reports that the node is stuck at this stage, with a message that contains `part`.
fn wait_until_stuck(node: &ObservedNode, stage: &str, part: &str) -> Result<Value> {
    let mut last = Value::Null;
    let found = wait_until("the stage and its cause", WAIT, || {
        let (code, text) = node.run("nodevigil bootstrap --deadline 5s -o json 2>/dev/null")?;
        ensure!(code == 1, "{code}: {text}");
        last = serde_json::from_str(&text).with_context(|| text)?;
        Ok((last["current"] == stage && message(&last).contains(part)).then_some(()))
    });
    found.with_context(|| format!("{last:#}"))?;
    Ok(last)
}

/// The message of the stage that the node waits for.
fn message(report: &Value) -> &str {
    let stages = report["stages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let current = stages.iter().find(|stage| stage["stage"] == report["current"]);
    current.and_then(|stage| stage["message"].as_str()).unwrap_or_default()
}
