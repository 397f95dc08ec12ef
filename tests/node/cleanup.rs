//! What is left on a Node when nodevigil goes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nodevigil::desired::PublishedType;
use serde_json::{Value, json};

use crate::scene::{OURS, SOON, Scene};
use crate::standing::{MERGE, STANDING_DOWN, STRATEGIC, request, standing_down};
use crate::support::api::condition;
use crate::support::control_plane::{ControlPlane, Options};
use crate::trial;

const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("cleanup::all_of_it", cleanup_leaves_what_is_not_ours),
        trial(
            "cleanup::kubelets_identity",
            the_kubelets_identity_cleans_what_it_may,
        ),
        trial("cleanup::without_api", cleanup_gives_up_in_time),
        trial(
            "cleanup::orphans",
            what_an_older_version_left_goes_at_the_start,
        ),
    ]
}

fn cleanup_leaves_what_is_not_ours() -> Result<()> {
    Scene::healthy("cleanup")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("nodevigil pause --for 30m")?;
        standing_down(scene, from, "nodevigil pause")?;
        let (code, said) = scene.node.run("nodevigil cleanup")?;
        ensure!(code == 1 && said.contains("the daemon runs"), "{code}: {said}");
        scene.node.sh("systemctl stop nodevigil")?;
        taint(scene)?;
        let name = scene.node.name();
        let status = format!("/api/v1/nodes/{name}/status");
        let foreign = json!({"status": {"conditions": [{"type": "example.com/Other", "status": "True",
            "lastTransitionTime": "2026-11-21T09:00:00Z", "lastHeartbeatTime": "2026-11-21T09:00:00Z"}]}});
        request(scene, "PATCH", &status, STRATEGIC, &foreign)?;
        let before = node(scene)?;
        let said = scene.node.sh("nodevigil cleanup")?;
        for word in ["KubeletHealthy", "nodevigil.io/standing-down", TAINT] {
            ensure!(said.contains(word), "{word} in {said}");
        }
        let after = node(scene)?;
        ensure_clean(&after)?;
        let others = |node: &Value| -> Vec<Value> {
            let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let kind = |c: &Value| c["type"].as_str().unwrap_or_default().to_owned();
            all.iter()
                .filter(|c| PublishedType::parse(&kind(c)).is_none())
                .map(|c| json!(kind(c)))
                .collect()
        };
        ensure!(others(&before) == others(&after), "{before:#} {after:#}");
        ensure!(others(&after).contains(&json!("example.com/Other")), "{after:#}");
        ensure!(keys(&after) == ["example.com/foreign"], "{after:#}");
        let said = scene.node.sh("nodevigil cleanup")?;
        ensure!(said.contains("nothing of nodevigil's"), "{said}");
        let said = scene.node.sh("nodevigil cleanup --node never-was")?;
        ensure!(said.contains("no Node never-was"), "{said}");
        // And it comes back as new.
        scene.node.sh("nodevigil resume; systemctl start nodevigil")?;
        scene.wait_for(Instant::now(), "True", "KubeletIsHealthy")?;
        Ok(())
    })
}

/// With the kubelet's identity, which may not change taints.
fn the_kubelets_identity_cleans_what_it_may() -> Result<()> {
    Scene::healthy("cleanup-kubelet")?.play(|scene| {
        scene
            .node
            .sh("rm /etc/nodevigil/kubeconfig; systemctl restart nodevigil")?;
        scene.status_file("the kubelet's identity", |file| {
            file["identity"]["kind"] == "kubelet"
                && file["conditions"][0]["published_at"].is_string()
        })?;
        scene.node.sh("systemctl stop nodevigil")?;
        taint(scene)?;
        let (code, said) = scene.node.run("nodevigil cleanup")?;
        ensure!(code == 1, "{code}: {said}");
        for words in [
            "removed: the conditions",
            "kubectl taint node cleanup-kubelet",
            TAINT,
            "may not change taints",
        ] {
            ensure!(said.contains(words), "{words} in {said}");
        }
        ensure!(keys(&node(scene)?).len() == 2, "a taint is gone");
        let taints = json!({"spec": {"taints": null}});
        let path = format!("/api/v1/nodes/{}", scene.node.name());
        request(scene, "PATCH", &path, MERGE, &taints)?;
        scene.node.sh("nodevigil cleanup")?;
        ensure_clean(&node(scene)?)
    })
}

fn cleanup_gives_up_in_time() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "cleanup-alone")?.play(|scene| {
        scene.node.sh("systemctl stop nodevigil")?;
        for freeze in [true, false] {
            if freeze {
                scene.plane.pause_apiserver()?;
            } else {
                scene.plane.resume_apiserver()?;
                scene.plane.stop_apiserver();
            }
            let start = Instant::now();
            let (code, said) = scene.node.run("nodevigil cleanup --timeout 2s")?;
            let took = start.elapsed();
            ensure!(
                code == 1 && took < Duration::from_secs(4),
                "{code} after {took:?}: {said}"
            );
            for words in [
                "is not clean",
                "kubectl patch node cleanup-alone",
                "kubectl annotate",
            ] {
                ensure!(said.contains(words), "{words} in {said}");
            }
        }
        scene.plane.start_apiserver()?;
        scene.node.sh("nodevigil cleanup")?;
        ensure_clean(&node(scene)?)
    })
}

/// A type that is published no more, as when a dialect was turned off: the complete set without it takes it away.
fn what_an_older_version_left_goes_at_the_start() -> Result<()> {
    Scene::healthy("orphans")?.play(|scene| {
        scene.node.sh("systemctl stop nodevigil")?;
        let old = |kind| {
            json!({"type": kind, "status": "False", "reason": "Old", "message": "m",
                "lastTransitionTime": "2026-11-21T09:00:00Z", "lastHeartbeatTime": "2026-11-21T09:00:00Z"})
        };
        let apply = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": scene.node.name()},
            "status": {"conditions": [old("KubeletUnhealthy"), old(OURS)]}});
        let path = format!(
            "/api/v1/nodes/{}/status?fieldManager=nodevigil&force=true",
            scene.node.name()
        );
        request(scene, "PATCH", &path, "application/apply-patch+yaml", &apply)?;
        let from = Instant::now();
        let has_orphan = |node: &Value| condition(node, "KubeletUnhealthy").is_some();
        ensure!(has_orphan(&node(scene)?), "there is no orphan");
        scene.node.sh("systemctl start nodevigil")?;
        scene.watch.wait_since(from, SOON, |event| !has_orphan(event))?;
        ensure!(condition(&node(scene)?, OURS).is_some(), "ours is gone too");
        Ok(())
    })
}

/// A taint of ours and one of somebody else's.
fn taint(scene: &Scene) -> Result<()> {
    let path = format!("/api/v1/nodes/{}", scene.node.name());
    let body = json!({"spec": {"taints": [
        {"key": TAINT, "value": "KubeletCrashed", "effect": "NoSchedule"},
        {"key": "example.com/foreign", "effect": "PreferNoSchedule"},
    ]}});
    request(scene, "PATCH", &path, MERGE, &body)
}

pub(crate) fn node(scene: &Scene) -> Result<Value> {
    let node = scene.plane.node(scene.node.name())?;
    node.context("the Node is there")
}

fn keys(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter_map(|taint| taint["key"].as_str()).collect()
}

/// Nothing of ours, not even in the book-keeping.
pub(crate) fn ensure_clean(node: &Value) -> Result<()> {
    ensure!(node.pointer(STANDING_DOWN).is_none(), "{node:#}");
    let types = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    for kind in types.filter_map(|condition| condition["type"].as_str()) {
        ensure!(PublishedType::parse(kind).is_none(), "{node:#}");
    }
    let managers = node["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    for entry in managers.filter(|entry| entry["manager"] == "nodevigil") {
        // The list of taints is nobody's in part: who wrote it last has it, with what others put there.
        let taints_alone = json!({"f:spec": {"f:taints": {}}});
        ensure!(entry["fieldsV1"] == taints_alone, "{entry:#}");
    }
    Ok(())
}
