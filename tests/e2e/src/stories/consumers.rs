//! Controllers that act on the conditions: the real Karpenter and Cluster API (tests/cluster) with a real node.

mod cluster_api;
mod karpenter;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::cluster_api::ClusterApi;
use self::karpenter::Karpenter;
use super::records::{self, RecordServer};
use crate::scene::{ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, namespaces, output, wait_until};

/// How long each controller here waits from `lastTransitionTime` on before it acts.
const WAITS_SECS: u64 = 20;
const OUR_TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

pub fn karpenter_replaces_a_node_by_reason_unless_veto_or_budget_forbids_it(scene: &Scene) -> Result<()> {
    const VETO: &str = "karpenter.sh/do-not-repair";
    let server = RecordServer::start(scene, 0)?;
    let (node, karpenter) = managed_by_karpenter(scene, "ReplaceNode", |node| server.of(node))?;
    RecordServer::allow(&node)?;
    scene.plane().kubectl(&["annotate", "node", node.name(), &format!("{VETO}=true")])?;
    karpenter.set_budget("0")?;
    let crashed = node.kill_for_good()?;
    karpenter.wait_for_event(node.name(), VETO)?;
    scene.plane().kubectl(&["annotate", "node", node.name(), &format!("{VETO}-")])?;
    karpenter.wait_for_event(karpenter::POOL, "disruption reason Unhealthy")?;
    ensure!(
        karpenter.claim()?["metadata"]["deletionTimestamp"].is_null(),
        "it was repaired in spite of veto and budget"
    );
    karpenter.set_budget("1")?;
    let deleted = wait_until("Karpenter to delete the NodeClaim", WAIT, || {
        Ok(karpenter.claim()?["metadata"]["deletionTimestamp"].as_str().map(str::to_owned))
    })
    .with_context(|| karpenter.log())?;
    ensure_waited(&crashed.since, &deleted)?;
    // The cloud deletes the machine; its record is on the server.
    node.end()?;
    let record = server.wait_for(&node, &records::name(&crashed)?)?;
    ensure!(record["condition"]["reason"] == "KubeletCrashed" && record["took_millis"].is_u64(), "{record}");
    Ok(())
}

/// The reboot is asked for and accepted, but nothing reboots: what counts is the Node meanwhile.
pub fn a_reboot_by_karpenter_keeps_condition_and_taint(scene: &Scene) -> Result<()> {
    const REBOOTING: &str = "karpenter.sh/rebooting";
    let (node, karpenter) = managed_by_karpenter(scene, "RebootNode", |node| node)?;
    let crashed = node.kill_for_good()?;
    let issued = wait_until("Karpenter to reboot the node", WAIT, || {
        let claim = karpenter.claim()?;
        let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.into_iter().find(|one| one["type"] == "Rebooting" && one["reason"] == "RebootIssued"))
    })
    .with_context(|| karpenter.log())?;
    ensure!(issued["message"] == "rebooting for KubeletHealthy/KubeletCrashed", "{issued}");
    let has = |node: &Value, key: &str| {
        node["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|one| one["key"] == key))
    };
    let wait_for = |from, with_ours: bool| {
        let is_it = |node: &Value| has(node, REBOOTING) && has(node, OUR_TAINT) == with_ours;
        node.watch().wait_since(from, WAIT, |_, node| is_it(node).then_some(()))
    };
    wait_for(crashed.at, true)?;
    // As Karpenter writes its taint when its copy of the Node is from before ours: a merge patch without a resourceVersion.
    let taints = json!({"spec": {"taints": [{"key": REBOOTING, "effect": "NoSchedule"}]}});
    let replaced = Instant::now();
    scene.plane().kubectl(&["patch", "node", node.name(), "--type=merge", "--patch", &taints.to_string()])?;
    wait_for(replaced, false)?;
    wait_for(replaced, true)?;
    node.kubelet().ensure_unchanged(&crashed)?;
    let started = Instant::now();
    node.start_kubelet()?;
    wait_for(started, false)
}

pub fn cluster_api_remediates_a_machine_after_its_timeout(scene: &Scene) -> Result<()> {
    let check = ClusterApi::start(scene)?;
    let node = scene.healthy()?;
    let succeeded = || check.machine_condition("HealthCheckSucceeded");
    wait_until("Cluster API to check the Machine", WAIT, || Ok((succeeded()?["status"] == "True").then_some(())))
        .with_context(|| check.log())?;
    let crashed = node.kill_for_good()?;
    let remediation = wait_until("Cluster API to ask the Machine's owner for a remediation", WAIT, || {
        let condition = check.machine_condition("OwnerRemediated")?;
        Ok((condition["status"] == "False").then_some(condition))
    })
    .with_context(|| check.log())?;
    let message = succeeded()?["message"].to_string();
    ensure!(message.contains("KubeletHealthy") && message.contains("KubeletCrashed"), "{message}");
    ensure_waited(&crashed.since, remediation["lastTransitionTime"].as_str().context("no time")?)
}

/// A healthy node that Karpenter manages, with this action for a crash of its kubelet.
fn managed_by_karpenter(
    scene: &Scene,
    action: &str,
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Result<(Arc<ObservedNode>, Karpenter)> {
    let karpenter = Karpenter::start(scene, action)?;
    let taints = "[taints]\nconditions = [\"KubeletHealthy\"]\n";
    let node = scene.healthy_with(|node| change(node.file("/etc/nodevigil/config.d/60-story.toml", taints)))?;
    karpenter.manage(&node)?;
    Ok((node, karpenter))
}

/// Fails if what was done at `done` was done sooner than [`WAITS_SECS`] after `since`; both as the API server writes times.
fn ensure_waited(since: &str, done: &str) -> Result<()> {
    let seconds = |time: &str| -> Result<u64> {
        let printed = output(Command::new("date").args(["--utc", "+%s", "--date", time]))?;
        Ok(printed.trim().parse()?)
    };
    let waited = seconds(done)?.saturating_sub(seconds(since)?);
    ensure!(waited >= WAITS_SECS, "acted at {done}, {waited} s after {since}");
    Ok(())
}

/// The controller's program, in the directory that `NODEVIGIL_CONSUMERS` names.
fn program(name: &str) -> Result<PathBuf> {
    let directory = std::env::var_os("NODEVIGIL_CONSUMERS")
        .context("NODEVIGIL_CONSUMERS is not set: start the stories by `make stories`")?;
    let path = Path::new(&directory).join(name).join(name);
    ensure!(path.is_file(), "{} is missing: run `make consumers`", path.display());
    Ok(path)
}

/// A file of the run, with a kubeconfig of the administrator.
fn kubeconfig(plane: &ControlPlane, name: &str) -> Result<PathBuf> {
    let path = namespaces::work().join(format!("{name}.conf"));
    fs::write(&path, plane.kubeconfig(name, "system:masters")?)?;
    Ok(path)
}

/// Creates or changes objects.
fn apply(plane: &ControlPlane, objects: &Value) -> Result<()> {
    let file = namespaces::work().join("objects.json");
    fs::write(&file, objects.to_string())?;
    plane.kubectl(&["apply", "--server-side", "--filename", &file.display().to_string()]).map(drop)
}

/// Defines types and waits until the API server has them.
fn define(plane: &ControlPlane, definitions: &Value) -> Result<()> {
    apply(plane, definitions)?;
    output(plane.kubectl_command()?.args(["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]))
        .map(drop)
}
