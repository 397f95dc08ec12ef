//! The node that is disturbed, and what must never be seen of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::scene::{ObservedNode, Scene};
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, wait_until};

/// The conditions, and the status that is a problem.
const CONDITIONS: [(&str, &str); 8] = [
    ("KubeletHealthy", "False"),
    ("KubeletConfigValid", "False"),
    ("ContainerRuntimeHealthy", "False"),
    ("NodeMemoryHealthy", "False"),
    ("MemoryExhaustionImminent", "True"),
    ("NodeStorageHealthy", "False"),
    ("NodeKernelHealthy", "False"),
    ("NodeBootstrapped", "False"),
];
const TAINT_PREFIX: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-";

/// The disks of the kubelet: one for its files, one for those of its pods, which a story freezes.
const DISKS: &str = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -ec 'disk() { truncate -s 64M /run/$1.img; mkfs.ext4 -q -F /run/$1.img; mkdir -p $2; \
    mount -o loop /run/$1.img $2; }; disk kubelet /srv/kubelet; mkdir -m 700 /srv/kubelet/.nodevigil; \
    disk pods /srv/kubelet/pods'\n";
/// A group whose packets can be distinguished from those of everybody else on this machine, and a slice in which the kubelet can be starved.
const KUBELET: &str = "[Unit]\nRequires=disks.service\nAfter=disks.service\n\
    [Service]\nGroup=daemon\nSlice=starving.slice\nCPUShares=2\nCPUWeight=1\n\
    Environment=\"KUBELET_KUBEADM_ARGS=--root-dir=/srv/kubelet --pod-manifest-path=/etc/kubernetes/manifests\"\n";
const AGENT: &str = "[Service]\nGroup=daemon\nReadWritePaths=-/srv/kubelet/.nodevigil\n";

/// A node that can be disturbed, with all of its conditions healthy, and when it was.
pub fn healthy_node(scene: &Scene) -> Result<(Arc<ObservedNode>, Instant)> {
    let from = Instant::now();
    let names = CONDITIONS.map(|(kind, _)| format!("\"{kind}\"")).join(", ");
    let taints = format!("[taints]\nconditions = [{names}]\n");
    let node = scene.healthy_with(|node| files(node).file("/etc/nodevigil/config.d/60-story.toml", &taints))?;
    wait_until_all_healthy(&node)?;
    Ok((node, from))
}

fn files(node: NodeBuilder) -> NodeBuilder {
    // A package manager is recognised if its lock file exists when the agent starts.
    ["/etc/kubernetes/manifests/.keep", "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/rpm/.rpm.lock"]
        .iter()
        .fold(node, |node, path| node.file(path, ""))
        .file("/etc/systemd/system/disks.service", DISKS)
        .file("/etc/systemd/system/nodevigil.service.d/60-story.conf", AGENT)
        .kubelet_unit(KUBELET)
}

fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Waits until the agent runs and no condition shows a problem or `Unknown`.
pub fn wait_until_all_healthy(node: &ObservedNode) -> Result<()> {
    let is_healthy = |state: &Value, (kind, problem): (&str, &str)| {
        let good = if problem == "True" { "False" } else { "True" };
        condition(state, kind).is_some_and(|shown| shown["status"] == good)
    };
    let mut last = Value::Null;
    let waited = wait_until("all conditions to be healthy", WAIT, || {
        last = node.watch().last().unwrap_or_default();
        let is_watched = node.main_pid("nodevigil").is_ok();
        Ok((is_watched && CONDITIONS.iter().all(|row| is_healthy(&last, *row))).then_some(()))
    });
    waited.with_context(|| format!("the last conditions: {:#}", last["status"]["conditions"]))
}

/// Fails if the Node has shown a problem or a taint of nodevigil's after `from`.
pub fn ensure_no_problem(node: &ObservedNode, from: Instant) -> Result<()> {
    for (at, state) in node.watch().since(Some(from)) {
        let found = problem(&state);
        ensure!(found.is_none(), "after {} s: {}", (at - from).as_secs(), found.unwrap_or_default());
    }
    Ok(())
}

/// The reasons that the Node has shown after `from`, but for those of health (`KubeletIsHealthy` and the like), in a line.
pub fn reasons_shown(node: &ObservedNode, from: Instant) -> String {
    let mut shown = BTreeSet::new();
    for (_, state) in node.watch().since(Some(from)) {
        let ours = CONDITIONS.iter().filter_map(|(kind, _)| condition(&state, kind));
        shown.extend(
            ours.filter_map(|one| one["reason"].as_str()).filter(|reason| !reason.contains("Is")).map(str::to_owned),
        );
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.into_iter().collect::<Vec<_>>().join(", ") }
}

fn problem(node: &Value) -> Option<String> {
    let mut shown = CONDITIONS.iter().filter_map(|(kind, problem)| Some((condition(node, kind)?, problem)));
    let shown = shown.find(|(shown, problem)| shown["status"] == **problem).map(|(shown, _)| shown);
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taint = taints.find(|taint| taint["key"].as_str().is_some_and(|key| key.starts_with(TAINT_PREFIX)));
    shown.or(taint).map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bad_status_and_a_taint_are_problems() {
        let shows = |kind: &str, status: &str| {
            problem(&json!({"status": {"conditions": [
                {"type": "Ready", "status": "False"}, {"type": kind, "status": status}]}}))
            .is_some()
        };
        for (kind, bad, good) in [("KubeletHealthy", "False", "True"), ("MemoryExhaustionImminent", "True", "False")] {
            assert!(shows(kind, bad) && !shows(kind, good) && !shows(kind, "Unknown"), "{kind}");
        }
        let with_taint = |key: &str| problem(&json!({"spec": {"taints": [{"key": key}]}})).is_some();
        assert!(with_taint(&format!("{TAINT_PREFIX}kubelet-unhealthy")) && !with_taint("node.kubernetes.io/not-ready"));
    }
}
