//! The real kube-controller-manager beside us: its lifecycle controller finds out long after us, and what it does with
//! a dead kubelet's Node and Pods it does as ever.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::scene::{OURS, SOON, Scene};
use crate::support::api::condition_status;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::{say, wait_until};
use crate::trial;

/// Longer than the ten seconds between two reports of a kubelet; Kubernetes' own is 50 s.
const GRACE: Duration = Duration::from_secs(16);
const TAINTS: &str = "[taints]\nconditions = [\"KubeletHealthy\"]\n";
const OUR_TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial(
        "lifecycle::dead_kubelet",
        a_dead_kubelet_is_told_before_the_lifecycle_controller_finds_out,
    )]
}

fn a_dead_kubelet_is_told_before_the_lifecycle_controller_finds_out() -> Result<()> {
    let plane = ControlPlane::start(Options {
        grace: GRACE,
        period: Duration::from_secs(1),
    })?;
    let scene = Scene::booted(&plane, "lifecycle", |node| {
        node.config("60-taints.toml", TAINTS)
    })?;
    scene.start()?.play(|scene| {
        let told = scene.kill_for_good()?;
        let ours = wait_until("our taint", SOON, || taint(scene, OUR_TAINT))?;
        ensure!(
            ours["effect"] == "NoSchedule" && ours["timeAdded"].is_string(),
            "{ours}"
        );
        let pod = running_pod(scene)?;
        let (unknown, event) = scene
            .watch
            .wait_since(told.at, GRACE + SOON, |event| {
                condition_status(event, "Ready") == Some("Unknown")
            })
            .context("waiting for Ready=Unknown")?;
        let before = scene.ensure_no_flip(&told).and_then(|()| scene.now())?;
        ensure!(before.reason == told.reason, "{told:?}, then {before:?}");
        let reason = event
            .pointer("/object/status/conditions")
            .map(Value::to_string)
            .unwrap_or_default();
        ensure!(
            reason.contains("NodeStatusUnknown"),
            "not the lifecycle controller: {reason}"
        );
        wait_until(
            "the lifecycle controller to call the Pod NotReady",
            SOON,
            || Ok((ready(scene, &pod)? == "False").then_some(())),
        )?;
        wait_until("the lifecycle controller's taint", SOON, || {
            taint(scene, UNREACHABLE)
        })?;
        let still = taint(scene, OUR_TAINT)?;
        ensure!(still.as_ref() == Some(&ours), "{ours}, then {still:?}");
        scene.ensure_no_flip(&told)?;
        let from = Instant::now();
        scene.revive()?;
        scene.watch.wait_since(from, SOON, |event| {
            condition_status(event, "Ready") == Some("True")
        })?;
        for key in [OUR_TAINT, UNREACHABLE] {
            wait_until(&format!("{key} to be gone"), SOON, || {
                Ok(taint(scene, key)?.is_none().then_some(()))
            })?;
        }
        wrote_nothing_of_the_kubelets(scene)?;
        say(&format!(
            "lifecycle: {OURS}=False {:.1} s before Ready=Unknown (grace period {GRACE:?})",
            (unknown - told.at).as_secs_f64(),
        ));
        Ok(())
    })
}

/// A Pod on the Node that is Ready, by the word of a kubelet that has died since.
fn running_pod(scene: &Scene) -> Result<String> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "served"},
        "spec": {
            "nodeName": scene.node.name(),
            "containers": [{"name": "served", "image": "none"}],
        },
    });
    let (code, answer) = scene
        .plane
        .request("POST", PODS, "application/json", &pod)?;
    ensure!(code == 201, "{code}: {answer}");
    let path = format!("{PODS}/served");
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let kind = "application/strategic-merge-patch+json";
    let (code, answer) = scene
        .plane
        .request("PATCH", &format!("{path}/status"), kind, &status)?;
    ensure!(code == 200, "{code}: {answer}");
    ensure!(ready(scene, &path)? == "True", "{answer}");
    Ok(path)
}

/// The status of the Pod's condition Ready.
fn ready(scene: &Scene, pod: &str) -> Result<String> {
    let (code, pod) = scene.plane.get(pod)?;
    ensure!(code == 200, "{code}: {pod}");
    Ok(condition_status(&pod, "Ready")
        .unwrap_or_default()
        .to_owned())
}

/// A taint of the Node, if it is there.
fn taint(scene: &Scene, key: &str) -> Result<Option<Value>> {
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    Ok(taints.find(|taint| taint["key"] == key).cloned())
}

/// By the audit log. Whoever writes `Ready=False` for a dead kubelet keeps the lifecycle controller from taking its Pods
/// out of service: it acts on its own flip alone (kubernetes/kubernetes#125618).
fn wrote_nothing_of_the_kubelets(scene: &Scene) -> Result<()> {
    let requests = scene.requests()?;
    let writes: Vec<_> = requests
        .iter()
        .filter(|one| one.verb != "list" && one.verb != "watch")
        .collect();
    ensure!(writes.len() >= 3, "{writes:#?}"); // well, dead, well
    for write in writes {
        let conditions = write.body["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        for condition in conditions {
            let kind = condition["type"].as_str().unwrap_or_default();
            let kubelets = [
                "Ready",
                "MemoryPressure",
                "DiskPressure",
                "PIDPressure",
                "NetworkUnavailable",
            ];
            ensure!(!kubelets.contains(&kind), "{write:#?}");
        }
    }
    Ok(())
}
