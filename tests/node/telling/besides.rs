//! The Node's taints, and Events about it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use super::{KEY, RESTART, STRATEGIC, TAINTING};
use crate::scene::{KUBELET, SOON, Scene};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::node_builder::NodeBuilder;
use crate::support::trust;
use crate::support::{say, wait_until};

fn taints(scene: &Scene) -> Result<Vec<Value>> {
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let taints = node["spec"]["taints"].as_array();
    Ok(taints.cloned().unwrap_or_default())
}

fn wait_taint(scene: &Scene, key: &str, there: bool) -> Result<Option<Value>> {
    wait_until(&format!("taint {key}: {there}"), SOON, || {
        let found = taints(scene)?.into_iter().find(|taint| taint["key"] == key);
        Ok((found.is_some() == there).then_some(found))
    })
}

pub(super) fn a_taint_comes_and_goes_beside_others() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "tainted", |node| {
        node.config("60-taints.toml", TAINTING)
    })?;
    let orphan = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-of-old";
    let theirs = json!({"key": "example.org/theirs", "value": "7", "effect": "PreferNoSchedule"});
    let path = "/api/v1/nodes/tainted";
    let before = json!({"spec": {"taints": [
        theirs,
        {"key": orphan, "effect": "NoSchedule"},
        {"key": KEY, "effect": "PreferNoSchedule"},
    ]}});
    let (code, answer) = plane.request("PATCH", path, STRATEGIC, &before)?;
    ensure!(code == 200, "{code}: {answer}");
    scene.start()?.play(|scene| {
        wait_taint(scene, orphan, false)?;
        wait_taint(scene, KEY, false)?;
        let from = Instant::now();
        let told = scene.kill_for_good()?;
        let taint = wait_taint(scene, KEY, true)?.context("a taint")?;
        // What was known first: on a busy machine systemd says a moment later how it ended.
        let value = taint["value"].as_str().unwrap_or_default();
        say(&format!(
            "tainted {:?} after the condition was told",
            Instant::now().saturating_duration_since(told.at.max(from))
        ));
        ensure!(
            taint["effect"] == "NoSchedule"
                && ["KubeletCrashed", "KubeletGone"].contains(&value)
                && taint["timeAdded"].is_string(),
            "{taint:#}"
        );
        scene.status_file("the taint", |file| {
            file["taints"]["on_node"][0] == format!("{KEY}={value}:NoSchedule")
        })?;
        // A restart while it lasts leaves it as it is.
        scene.node.sh(RESTART)?;
        scene.ensure_still(&told)?;
        ensure!(taints(scene)?.contains(&taint), "{:#?}", taints(scene)?);
        scene.revive()?;
        wait_taint(scene, KEY, false)?;
        ensure!(taints(scene)?.contains(&theirs), "{:#?}", taints(scene)?);
        let requests = scene.requests()?;
        let about = requests.iter().filter(|one| {
            let path = one.uri.split('?').next().unwrap_or_default();
            path == "/api/v1/nodes/tainted"
        });
        let about: Vec<_> = about.map(|one| (one.verb.as_str(), one.code)).collect();
        say(&format!("requests for the taints: {about:?}"));
        ensure!(about.len() <= 14, "{about:?}");
        Ok(())
    })
}

/// A kubelet that is stopped for some seconds is reported as hung at once, and taints only if that lasts.
pub(super) fn a_sampled_reason_taints_later_and_a_blip_never() -> Result<()> {
    const AFTER: Duration = Duration::from_secs(12);
    let after = format!("{TAINTING}after_secs = {}\n", AFTER.as_secs());
    Scene::healthy_with("taint-waits", |node| node.config("60-taints.toml", &after))?.play(
        |scene| {
            let tainted = || Ok::<_, anyhow::Error>(taints(scene)?.iter().any(|t| t["key"] == KEY));
            let blip = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
            scene.wait_for(blip, "False", "KubeletHung")?;
            let back = scene.node.signal_unit(KUBELET, Signal::SIGCONT)?;
            scene.wait_for(back, "True", "KubeletIsHealthy")?;
            let hung = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
            let told = scene.wait_for(hung, "False", "KubeletHung")?;
            ensure!(!tainted()?, "at once, or by the blip");
            let taint = wait_taint(scene, KEY, true)?.context("a taint")?;
            let waited = told.at.elapsed();
            say(&format!("tainted {waited:?} after the condition was False"));
            // The watch shows the condition a moment after it was decided.
            let least = AFTER.saturating_sub(Duration::from_secs(1));
            ensure!(
                waited >= least && taint["value"] == "KubeletHung",
                "{waited:?}: {taint:#}"
            );
            scene.node.signal_unit(KUBELET, Signal::SIGCONT)?;
            wait_taint(scene, KEY, false)?;
            trust::row(
                13,
                "the kubelet is stopped by SIGSTOP for some seconds, with `[taints]` set",
                "tainted after 2.4 s",
                "no taint; one after `[taints] after_secs` if it stays so",
            );
            Ok(())
        },
    )
}

pub(super) fn taints_are_not_tried_as_the_kubelet() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "kubelet-taints", |node| {
        NodeBuilder::joining(node).config("60-taints.toml", TAINTING)
    })?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig")?;
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        let told = scene.kill_for_good()?;
        scene.ensure_still(&told)?;
        let lines = scene.lines(Kind::TaintsRefused)?;
        ensure!(lines.len() == 1, "{lines:#?}");
        scene.status_file("the reason", |file| {
            let problem = file["taints"]["problem"].as_str();
            problem.is_some_and(|why| why.contains("NodeRestriction"))
        })?;
        let ours = taints(scene)?.into_iter().any(|taint| taint["key"] == KEY);
        ensure!(!ours);
        let requests = scene.plane.audit()?;
        let tried = requests.iter().any(|one| {
            one.user == "system:node:kubelet-taints"
                && one.uri.contains("fieldManager=nodevigil")
                && one.uri.starts_with("/api/v1/nodes/kubelet-taints?")
        });
        ensure!(!tried, "it was tried");
        Ok(())
    })
}

/// The Events about the scene's Node that we told.
fn events(scene: &Scene) -> Result<Vec<Value>> {
    let (code, list) = scene
        .plane
        .get("/apis/events.k8s.io/v1/namespaces/default/events")?;
    ensure!(code == 200, "{code}: {list}");
    let events = list["items"].as_array().context("no items")?;
    let ours = events.iter().filter(|event| {
        event["reportingController"] == "nodevigil.io/agent"
            && event["regarding"]["name"] == scene.node.name()
            // The kernel's log is the machine's: another test may have provoked that.
            && event["reason"] != "ProcessOOMKilled"
    });
    Ok(ours.cloned().collect())
}

pub(super) fn one_event_a_transition() -> Result<()> {
    Scene::healthy("eventful")?.play(|scene| {
        let uid = scene.now()?.uid;
        ensure!(events(scene)?.is_empty(), "{:#?}", events(scene)?);
        let of = |reason: &str| {
            wait_until(reason, SOON, || {
                Ok(events(scene)?.into_iter().find(|e| e["reason"] == reason))
            })
        };
        scene.crash_and_recover()?;
        let crash = of("KubeletCrashed")?;
        let well = of("KubeletIsHealthy")?;
        for (event, kind) in [(&crash, "Warning"), (&well, "Normal")] {
            ensure!(
                event["type"] == kind
                    && event["regarding"]["uid"] == uid
                    && event["reportingInstance"] == "eventful",
                "{event:#}"
            );
            let time = event["eventTime"].as_str().unwrap_or_default();
            ensure!(time.len() == "2026-11-21T16:00:00.000000Z".len(), "{time}");
        }
        ensure!(crash["series"].is_null(), "{crash:#}");
        scene.crash_and_recover()?;
        scene.crash_and_recover()?;
        let third = |reason: &str| {
            wait_until("a series of three", SOON, || {
                let events = events(scene)?;
                let series = events
                    .iter()
                    .find(|e| e["reason"] == reason && e["series"]["count"] == 3);
                Ok(series.cloned())
            })
        };
        let series = third("KubeletCrashed")?;
        ensure!(
            series["metadata"]["uid"] == crash["metadata"]["uid"],
            "{series:#}"
        );
        third("KubeletIsHealthy")?;
        let told = scene.now()?;
        scene.node.sh(RESTART)?;
        scene.ensure_still(&told)?;
        // Starting may last long enough to be told, if the machine is slow.
        let mut reasons: Vec<_> = events(scene)?
            .iter()
            .map(|e| e["reason"].to_string())
            .collect();
        reasons.sort();
        reasons.dedup();
        let count = events(scene)?.len();
        ensure!(
            count == reasons.len() && count <= 3,
            "{reasons:?}, {count} objects"
        );
        scene.status_file("the events", |file| {
            file["events"]["problem"].is_null() && file["events"]["waiting"] == 0
        })?;
        Ok(())
    })
}

pub(super) fn events_do_not_disturb_conditions() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    let binding =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/nodevigil-events";
    let (code, answer) = plane.request("DELETE", binding, "application/json", &json!({}))?;
    ensure!(code == 200, "{code}: {answer}");
    Scene::healthy_on(&plane, "no-events")?.play(|scene| {
        for _ in 0..3 {
            scene.crash_and_recover()?;
        }
        let told = scene.kill_for_good()?;
        scene.ensure_still(&told)?;
        let lines = scene.lines(Kind::PublishFailed)?;
        ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
        ensure!(lines[0].to_string().contains("events"), "{lines:#?}");
        scene.status_file("the refusal", |file| {
            let problem = file["events"]["problem"].as_str();
            problem.is_some_and(|why| why.contains("403"))
                && file["conditions"][0]["published_at"].is_string()
        })?;
        let requests = scene.requests()?;
        let tries = requests
            .iter()
            .filter(|one| one.uri.contains("/events") && !one.uri.contains("dryRun="))
            .count();
        ensure!(tries <= 2, "{tries} tries");
        Ok(())
    })
}
