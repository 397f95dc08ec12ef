//! What is told besides the one condition under its own name: dialects, taints, Events; what is left to others, and what
//! is kept to itself.

mod besides;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene};
use crate::support::api::condition;
use crate::support::control_plane::ControlPlane;
use crate::support::wait_until;
use crate::trial;

const EVERY_DIALECT: &str = "[kubernetes]\ndialects = [\"native\", \"eks\", \"npd\"]\n";
const TAINTING: &str = "[taints]\nconditions = [\"KubeletHealthy\"]\n";
const KEY: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const RESTART: &str = "systemctl restart nodevigil";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("telling::dialects", every_dialect_says_it_at_once),
        trial("telling::foreign_owner", what_another_had_is_left_to_it),
        trial("telling::shadow", in_the_shadow_nothing_is_written),
        trial(
            "telling::taint",
            besides::a_taint_comes_and_goes_beside_others,
        ),
        trial(
            "telling::taint_waits",
            besides::a_sampled_reason_taints_later_and_a_blip_never,
        ),
        trial(
            "telling::taint_as_kubelet",
            besides::taints_are_not_tried_as_the_kubelet,
        ),
        trial("telling::events", besides::one_event_a_transition),
        trial(
            "telling::events_forbidden",
            besides::events_do_not_disturb_conditions,
        ),
        trial(
            "telling::annotation",
            an_apply_sets_an_annotation_and_takes_it_away,
        ),
    ]
}

/// One of the Node's types: status and transition time.
fn told(scene: &Scene, kind: &str) -> Result<Option<(String, String)>> {
    let condition = scene.plane.condition(scene.node.name(), kind)?;
    let text = |c: &Value, name: &str| c[name].as_str().unwrap_or_default().to_owned();
    Ok(condition.map(|c| (text(&c, "status"), text(&c, "lastTransitionTime"))))
}

/// Waits until the Node has these, as `TYPE=STATUS`, or lacks them, as `TYPE`; returns their transition times.
fn wait_told(scene: &Scene, wanted: &[&str]) -> Result<Vec<String>> {
    wait_until(&format!("{wanted:?}"), SOON, || {
        let mut times = Vec::new();
        for one in wanted {
            let (kind, status) = one.split_once('=').unwrap_or((one, ""));
            match told(scene, kind)? {
                Some((now, since)) if now == status => times.push(since),
                None if status.is_empty() => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(times))
    })
}

fn every_dialect_says_it_at_once() -> Result<()> {
    let scene = Scene::healthy_with("dialects", |node| {
        node.config("60-dialects.toml", EVERY_DIALECT)
    })?;
    scene.play(|scene| {
        let well = wait_told(
            scene,
            &[
                "KubeletHealthy=True",
                "ContainerRuntimeReady=True",
                "KubeletUnhealthy=False",
            ],
        )?;
        ensure!(well[0] == well[1] && well[1] == well[2], "{well:?}");
        scene.kill_for_good()?;
        let dead = [
            "KubeletHealthy=False",
            "ContainerRuntimeReady=False",
            "KubeletUnhealthy=True",
        ];
        let since = wait_told(scene, &dead)?;
        ensure!(since[0] == since[1] && since[1] == since[2], "{since:?}");
        restarts_move_nothing(scene, &dead, &since)?;
        scene.revive()?;
        wait_told(
            scene,
            &["ContainerRuntimeReady=True", "KubeletUnhealthy=False"],
        )?;
        // What is no longer asked for goes, and nothing else.
        scene.node.sh(
            "printf '[kubernetes]\\ndialects = [\"npd\"]\\n[conditions.KubeletConfigValid]\\npublish = false\\n' \
             >/etc/nodevigil/config.d/60-dialects.toml; systemctl restart nodevigil",
        )?;
        wait_told(
            scene,
            &[
                "KubeletHealthy",
                "KubeletConfigValid",
                "ContainerRuntimeReady",
                "KubeletUnhealthy=False",
                "Ready=True",
            ],
        )?;
        let file = scene.status_file("a status of one type", |file| {
            file["conditions"][0]["published_as"][0]["type"] == "KubeletUnhealthy"
        })?;
        ensure!(file["conditions"][1]["published_as"] == json!([]), "{file:#}");
        Ok(())
    })
}

/// With the agent's ledger and without: then the Node itself is the memory, each type for itself.
fn restarts_move_nothing(scene: &Scene, told: &[&str], since: &[String]) -> Result<()> {
    for command in [
        RESTART,
        "systemctl kill --signal=KILL nodevigil; rm /run/nodevigil/ledger.json",
    ] {
        let from = Instant::now();
        let before = scene.node.status_json()?["started_at"].clone();
        scene.node.sh(command)?;
        scene.status_file("the next agent to publish", |file| {
            file["started_at"] != before && file["conditions"][0]["published_at"].is_string()
        })?;
        for (_, event) in scene.watch.since(from) {
            for (one, since) in told.iter().zip(since) {
                let (kind, status) = one.split_once('=').context("one")?;
                let Some(condition) = condition(&event, kind) else {
                    continue;
                };
                ensure!(
                    condition["status"] == status && condition["lastTransitionTime"] == *since,
                    "after `{command}`: {condition:#}"
                );
            }
        }
    }
    Ok(())
}

/// Writes a condition as another agent does.
fn write_as(scene: &Scene, manager: &str, condition: &Value) -> Result<()> {
    let name = scene.node.name();
    let path = format!("/api/v1/nodes/{name}/status?fieldManager={manager}");
    let body = json!({"status": {"conditions": [condition]}});
    let (code, answer) = scene.plane.request("PATCH", &path, STRATEGIC, &body)?;
    ensure!(code == 200, "{code}: {answer}");
    Ok(())
}

fn what_another_had_is_left_to_it() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "foreign-owner", |node| {
        node.config("60-dialects.toml", EVERY_DIALECT)
    })?;
    let theirs = json!({
        "type": "KubeletUnhealthy", "status": "False", "reason": "KubeletIsHealthy", "message": "theirs",
        "lastHeartbeatTime": "2026-11-21T08:00:00Z", "lastTransitionTime": "2026-11-21T08:00:00Z",
    });
    write_as(&scene, "node-problem-detector", &theirs)?;
    scene.start()?.play(|scene| {
        wait_told(scene, &["ContainerRuntimeReady=True"])?;
        scene.kill_for_good()?;
        wait_told(scene, &["ContainerRuntimeReady=False"])?;
        let name = scene.node.name();
        let kept = scene.plane.condition(name, "KubeletUnhealthy")?;
        ensure!(kept.as_ref() == Some(&theirs), "written: {kept:#?}");
        scene.status_file("the refusal", |file| {
            let mut types = file["conditions"][0]["published_as"]
                .as_array()
                .into_iter()
                .flatten();
            types.any(|t| {
                t["type"] == "KubeletUnhealthy"
                    && t["refused"]
                        .as_str()
                        .is_some_and(|why| why.contains("node-problem-detector"))
            })
        })?;
        scene.node.sh(RESTART)?;
        scene.revive()?;
        let lines = scene.lines(Kind::TypeRefused)?;
        ensure!(lines.len() == 2, "once in each life: {lines:#?}");
        ensure!(lines[0]["MANAGER"] == "node-problem-detector", "{lines:#?}");
        let kept = scene.plane.condition(name, "KubeletUnhealthy")?;
        ensure!(kept.as_ref() == Some(&theirs), "written: {kept:#?}");
        // Its agent is uninstalled, as it should be.
        let gone = json!({"$patch": "delete", "type": "KubeletUnhealthy"});
        write_as(scene, "node-problem-detector", &gone)?;
        wait_told(scene, &["KubeletUnhealthy=False"])?;
        let taken = scene.plane.condition(name, "KubeletUnhealthy")?;
        ensure!(taken.as_ref() != Some(&theirs));
        ensure!(scene.lines(Kind::TypeTaken)?.len() == 1);
        Ok(())
    })
}

fn in_the_shadow_nothing_is_written() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let config = format!("{EVERY_DIALECT}publish = \"none\"\n{TAINTING}");
    let scene = Scene::booted(&plane, "shadow", |node| {
        node.config("60-shadow.toml", &config)
    })?;
    scene.play(|scene| {
        scene.node.start_agent()?;
        let is = |file: &Value, status: &str| {
            file["shadow"] == true
                && file["conditions"][0]["status"] == status
                && file["api"]["state"] == "connected"
        };
        scene.status_file("a verdict", |file| is(file, "True"))?;
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        let file = scene.status_file("the crash", |file| is(file, "False"))?;
        let types = &file["conditions"][0]["published_as"];
        ensure!(
            types[1]["type"] == "ContainerRuntimeReady" && types[1]["status"] == "False",
            "{file:#}"
        );
        ensure!(file["taints"]["to_add"][0] == KEY, "{file:#}");
        ensure!(file["conditions"][0]["published_at"].is_null());
        let (_, table) = scene.node.run("nodevigil status")?;
        ensure!(table.contains("publish = \"none\""), "{table}");
        let requests = scene.requests()?;
        let wrote = |one: &&crate::support::audit::Request| {
            !matches!(one.verb.as_str(), "get" | "list" | "watch")
        };
        let writes: Vec<_> = requests.iter().filter(wrote).collect();
        ensure!(!requests.is_empty() && writes.is_empty(), "{writes:#?}");
        Ok(())
    })
}

/// What the agent's apply rests on, without the agent: its annotation travels with the status.
fn an_apply_sets_an_annotation_and_takes_it_away() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": "annotated", "annotations": {"example.org/theirs": "stays"},
    }});
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &node)?;
    ensure!(code == 201, "{code}: {answer}");
    let apply = |manager: &str, conditions: Value, annotation: Option<&str>| {
        let mut body =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "annotated"}});
        if !conditions.is_null() {
            body["status"] = json!({"conditions": conditions});
        }
        if let Some(text) = annotation {
            body["metadata"]["annotations"] = json!({"nodevigil.io/standing-down": text});
        }
        let path = format!("/api/v1/nodes/annotated/status?fieldManager={manager}&force=true");
        let (code, answer) =
            plane.request("PATCH", &path, "application/apply-patch+yaml", &body)?;
        ensure!(code == 200, "{code}: {answer}");
        anyhow::Ok(answer)
    };
    let condition = json!({
        "type": "KubeletHealthy", "status": "True", "reason": "KubeletIsHealthy", "message": "m",
        "lastHeartbeatTime": "2026-11-21T08:00:00Z", "lastTransitionTime": "2026-11-21T08:00:00Z",
    });
    let with = apply("nodevigil", json!([condition]), Some("paused"))?;
    ensure!(
        with["metadata"]["annotations"]["nodevigil.io/standing-down"] == "paused",
        "{with:#}"
    );
    let without = apply("nodevigil", json!([condition]), None)?;
    ensure!(
        without["metadata"]["annotations"] == json!({"example.org/theirs": "stays"}),
        "{:#}",
        without["metadata"]
    );
    // Somebody changes the status alone; then we leave the type out.
    let path = "/api/v1/nodes/annotated/status?fieldManager=kubectl-edit";
    let only_status =
        json!({"status": {"conditions": [{"type": "KubeletHealthy", "status": "False"}]}});
    let (code, answer) = plane.request("PATCH", path, STRATEGIC, &only_status)?;
    ensure!(code == 200, "{code}: {answer}");
    let left = apply("nodevigil", json!([]), None)?;
    // Nothing half is left, above all no condition without a transition time: some would replace the node at once.
    ensure!(
        left["status"]["conditions"].is_null(),
        "{:#}",
        left["status"]
    );
    Ok(())
}
