//! `[taints]`: the Node's taints while a condition shows a problem; and `nodevigil cleanup`, which removes them and the conditions.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::scene::{ObservedNode, Scene};
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, namespaces, wait_until};

const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

fn with_taints(node: NodeBuilder) -> NodeBuilder {
    node.file("/etc/nodevigil/config.d/60-story.toml", "[taints]\nconditions = [\"KubeletHealthy\"]\n")
}

/// The keys of a Node's taints, but for those of the control plane.
fn keys(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let keys = taints.filter_map(|taint| taint["key"].as_str());
    keys.filter(|key| !key.starts_with("node.kubernetes.io/")).collect()
}

/// Waits until the Node has these taints alone.
fn wait_for(node: &ObservedNode, from: Instant, wanted: &[&str]) -> Result<Value> {
    let read = |_, node: &Value| (keys(node) == wanted).then(|| node.clone());
    let found = node.watch().wait_since(from, WAIT, read);
    found.with_context(|| {
        let last = node.watch().since(None).pop().map(|(_, node)| node["spec"]["taints"].clone());
        format!("waiting for {wanted:?}; the last taints: {last:?}")
    })
}

pub fn a_crash_taints_until_the_kubelet_is_back(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(with_taints)?;
    let from = Instant::now();
    node.kill_for_good()?;
    let tainted = wait_for(&node, from, &[TAINT])?;
    let taints = tainted["spec"]["taints"].as_array().context("no taints")?;
    let ours = taints.iter().find(|taint| taint["key"] == TAINT).context("it has the key")?;
    ensure!(ours["value"] == "KubeletCrashed" && ours["effect"] == "NoSchedule", "{ours}");
    let from = Instant::now();
    node.start_kubelet()?;
    wait_for(&node, from, &[])?;
    Ok(())
}

pub fn a_taint_is_set_again_and_goes_with_a_pause_and_a_stop(scene: &Scene) -> Result<()> {
    const REBOOTING: &str = "karpenter.sh/rebooting";
    let node = scene.healthy_with(with_taints)?;
    let start = Instant::now();
    node.kill_for_good()?;
    wait_for(&node, start, &[TAINT])?;
    let from = Instant::now();
    let patch = format!("{{\"spec\":{{\"taints\":[{{\"key\":\"{REBOOTING}\",\"effect\":\"NoSchedule\"}}]}}}}");
    scene.plane().kubectl(&["patch", "node", node.name(), "--type=merge", "--patch", &patch])?;
    wait_for(&node, from, &[REBOOTING, TAINT])?;
    let paused = Instant::now();
    node.sh("nodevigil pause 1h")?;
    wait_for(&node, paused, &[REBOOTING])?;
    scene.plane().kubectl(&["taint", "node", node.name(), &format!("{REBOOTING}-")])?;
    let resumed = Instant::now();
    node.sh("nodevigil resume")?;
    wait_for(&node, resumed, &[TAINT])?;
    let tainted = Instant::now();
    node.restart_agent("systemctl restart nodevigil")?;
    let states = node.watch().since(Some(tainted));
    ensure!(states.iter().all(|(_, node)| keys(node) == [TAINT]), "a restart of the agent changed the taints");
    let stopped = Instant::now();
    node.sh("systemctl stop nodevigil")?;
    wait_for(&node, stopped, &[])?;
    node.kubelet().wait_for(stopped, "Unknown", "NodevigilStopped")?;
    Ok(())
}

/// Kubernetes does not let a kubelet change the taints of its Node.
pub fn with_the_kubelets_identity_taints_are_a_trouble(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(with_taints)?;
    node.sh("rm /etc/nodevigil/kubeconfig")?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    node.kill_for_good()?;
    node.wait_for_trouble("ApiRefused", &["change taints", "HTTP 403", "taints.yaml"])?;
    node.start_kubelet()?;
    Ok(())
}

pub fn cleanup_leaves_nothing_of_ours(scene: &Scene) -> Result<()> {
    const FOREIGN: &str = "example.com/foreign";
    let node = scene.healthy_with(with_taints)?;
    let (code, answer) = node.run("nodevigil cleanup")?;
    ensure!(code == 1 && answer.contains("the agent is running"), "{code}: {answer}");
    node.sh("systemctl stop nodevigil")?;
    for key in [TAINT, FOREIGN] {
        scene.plane().kubectl(&["taint", "node", node.name(), &format!("{key}=a:NoSchedule")])?;
    }
    let answer = node.sh("nodevigil cleanup")?;
    ensure!(answer.contains("conditions ") && answer.contains("KubeletHealthy") && answer.contains(TAINT), "{answer}");
    let after = scene.plane().node(node.name())?.context("no Node")?;
    let conditions = after["status"]["conditions"].as_array().context("no conditions")?;
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    ensure!(has("Ready") && !has("KubeletHealthy") && !has("NodeKernelHealthy"), "{conditions:#?}");
    ensure!(keys(&after) == [FOREIGN], "{:#}", after["spec"]);
    let answer = node.sh("nodevigil cleanup")?;
    ensure!(answer.contains("no conditions or taints of nodevigil"), "{answer}");
    let (code, answer) = node.run("nodevigil cleanup --node never-was")?;
    ensure!(code == 0 && answer.contains("there is no Node never-was"), "{code}: {answer}");
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    Ok(())
}

/// Has the API server refuse every write of a Node; the file of the policy that does it.
fn refuse_writes(scene: &Scene, name: &str) -> Result<String> {
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "story"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]},
            ]},
            "validations": [{"expression": format!("object.metadata.name != '{name}'")}],
        }},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "story"},
            "spec": {"policyName": "story", "validationActions": ["Deny"]}},
    ]});
    let file = namespaces::work().join("refuse.json").display().to_string();
    fs::write(&file, policy.to_string())?;
    scene.plane().kubectl(&["apply", "-f", &file])?;
    let write = ["annotate", "--overwrite", "node", name, "story=1"];
    wait_until("the policy", WAIT, || Ok(scene.plane().kubectl(&write).is_err().then_some(())))?;
    Ok(file)
}

pub fn cleanup_of_all_nodes_does_what_is_left(scene: &Scene) -> Result<()> {
    let (node, plane) = (scene.healthy()?, scene.plane());
    node.sh("systemctl stop nodevigil")?;
    let admin = plane.kubeconfig("admin", "system:masters")?;
    node.sh(&format!("umask 077; cat >/root/admin.conf <<'END'\n{admin}\nEND"))?;
    let settings = "/etc/nodevigil/config.d/60-story.toml";
    node.sh(&format!("printf '[kubernetes]\\nkubeconfig = \"/root/admin.conf\"\\n' >{settings}"))?;
    let time = "2026-11-26T06:00:00Z";
    let condition = json!({"type": "KubeletHealthy", "status": "False", "lastTransitionTime": time});
    let taint = json!({"key": TAINT, "effect": "NoSchedule"});
    let others = (0..60).map(|number| {
        let metadata = json!({"name": format!("other-{number:02}")});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}, "status": {"conditions": [condition]}})
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": others.collect::<Vec<_>>()});
    let file = namespaces::work().join("others.json").display().to_string();
    fs::write(&file, list.to_string())?;
    plane.kubectl(&["create", "-f", &file])?;
    plane.kubectl(&[
        "apply",
        "--server-side",
        "--subresource=status",
        "--force-conflicts",
        "--field-manager=nodevigil",
        "-f",
        &file,
    ])?;

    let policy = refuse_writes(scene, "other-07")?;
    let (code, answer) = node.run("nodevigil cleanup --all-nodes")?;
    let removed = answer.lines().filter(|line| line.contains(": removed conditions ")).count();
    let has_failed = ["61 Nodes looked at, 60 cleaned up, 1 failed", "Node other-07: cannot remove the conditions"];
    ensure!(code == 1 && removed == 60 && has_failed.iter().all(|text| answer.contains(text)), "{code}: {answer}");
    plane.kubectl(&["delete", "-f", &policy])?;
    let answer = wait_until("the cleanup of what is left", WAIT, || {
        let (code, answer) = node.run("nodevigil cleanup --all-nodes")?;
        Ok((code == 0).then_some(answer))
    })?;
    ensure!(answer.contains("Node other-07: removed conditions "), "{answer}");
    let all = plane.kubectl(&["get", "nodes", "-o", "json"])?;
    ensure!(!all.contains(TAINT) && !all.contains("KubeletHealthy"), "something is left");
    let again = node.sh("nodevigil cleanup --all-nodes")?;
    ensure!(again.contains("no Node has conditions or taints of nodevigil"), "{again}");
    plane.kubectl(&["delete", "-f", &file])?;
    node.sh(&format!("rm {settings}"))?;
    node.start_agent()
}
