//! How long a pause and a sign of maintenance count, and what the Node keeps of that.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use super::{
    MERGE, STANDING_DOWN, annotate, kill_while_quiet, lifecycle, not_standing_down, now, request,
    standing_down,
};
use crate::scene::{SOON, Scene};
use crate::support::rows::row;
use crate::support::trust;
use crate::support::wait_until;

pub(super) fn the_end_of_a_pause_is_warned_of() -> Result<()> {
    Scene::healthy("pause-ending")?.play(|scene| {
        let (code, said) = scene.node.run("nodevigil pause --for 25h")?;
        ensure!(code == 1 && said.contains("1d at most"), "{code}: {said}");
        let from = Instant::now();
        scene
            .node
            .sh("nodevigil pause --for 1h8s --reason firmware")?;
        standing_down(scene, from, "firmware")?;
        let lines = scene.lines(Kind::PauseEnds)?;
        ensure!(
            lines.is_empty() || from.elapsed() > Duration::from_secs(7),
            "{lines:#?}"
        );
        let event = warning(scene, "PauseEnding")?;
        ensure!(
            from.elapsed() > Duration::from_secs(6),
            "after {:?}",
            from.elapsed()
        );
        let note = event["note"].as_str().unwrap_or_default();
        ensure!(
            note.contains("firmware") && !note.contains("max_pause_secs"),
            "{note}"
        );
        // Once.
        sleep(Duration::from_secs(3));
        let lines = scene.lines(Kind::PauseEnds)?;
        ensure!(
            lines.len() == 1 && event["series"].is_null(),
            "{lines:#?} {event:#}"
        );
        row(
            "end of a pause",
            "`nodevigil pause --for 1h8s`",
            "Warning Event `PauseEnding` an hour before it",
            None,
        );
        scene.node.sh("nodevigil resume")?;
        not_standing_down(scene)
    })
}

/// The bound counts from the agent's first sight on, which the Node keeps: not from each start of the agent.
pub(super) fn the_annotation_is_bounded_over_restarts() -> Result<()> {
    let config = "[suppression]\nmax_pause_secs = 20\n";
    let scene = Scene::healthy_with("annotated-long", |node| {
        node.config("60-bound.toml", config)
    })?;
    // As after a boot: nothing in /run is left.
    let reborn = |scene: &Scene| {
        let as_booted =
            "systemctl stop nodevigil && rm -f /run/nodevigil/* && systemctl start nodevigil";
        scene.node.sh(as_booted)
    };
    scene.play(|scene| {
        let from = Instant::now();
        annotate(scene, "firmware")?;
        standing_down(scene, from, "firmware")?;
        let kept = shown(scene)?;
        ensure!(kept.contains("[first seen pause#"), "{kept}");
        kill_while_quiet(scene, "NodePaused")?;
        sleep(Duration::from_secs(8).saturating_sub(from.elapsed()));
        reborn(scene)?;
        standing_down(scene, from, "firmware")?;
        ensure!(shown(scene)? == kept, "{} after {kept}", shown(scene)?);
        let told = scene.wait_until_told(from, |told| told.status == "False")?;
        let after = told.at - from;
        let in_time = Duration::from_secs(19)..Duration::from_secs(25);
        ensure!(in_time.contains(&after), "told after {after:?}");
        let ignored = |scene: &Scene| {
            wait_until("the annotation that says what is ignored", SOON, || {
                Ok(shown(scene)?
                    .starts_with("ignored: annotation nodevigil.io/pause (firmware)")
                    .then_some(()))
            })
        };
        ignored(scene)?;
        let event = warning(scene, "PauseTooLong")?;
        ensure!(
            event["note"].to_string().contains("max_pause_secs"),
            "{event:#}"
        );
        row(
            "pause annotation that was forgotten",
            "`max_pause_secs = 20`, the agent restarted without its files after 8 s",
            "`False` 20 s after the annotation, which says that it is ignored",
            None,
        );
        // Nor does the next life begin anew.
        let again = Instant::now();
        reborn(scene)?;
        scene.status_file("the new agent", |file| !file["conditions"][0].is_null())?;
        sleep(Duration::from_secs(3));
        // An agent that is stopped leaves no verdict behind.
        scene.ensure_only(again, &["False", "Unknown"])?;
        let now = scene.now()?;
        ensure!(now.status == "False", "{now:?}");
        ignored(scene)?;
        // Until it changes.
        let changed = Instant::now();
        annotate(scene, "firmware again")?;
        standing_down(scene, changed, "firmware again")?;
        trust::row(
            17,
            "`nodevigil.io/pause` is forgotten",
            "nothing is said any more, for ever",
            "after `[suppression] max_pause_secs` (a day) it is ignored until its value changes, over restarts and boots",
        );
        Ok(())
    })
}

/// One of each kind that the registry knows, as others write and take it.
pub(super) fn each_kind_of_sign_does() -> Result<()> {
    Scene::healthy("maintained")?.play(|scene| {
        let path = format!("/api/v1/nodes/{}", scene.node.name());
        let set = |body: Value| request(scene, "PATCH", &path, MERGE, &body);
        let state = |state| json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/state": state}}});
        let out_of_service = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}]);

        let from = Instant::now();
        lifecycle(scene, "DrainInProgress", "True", &now(scene)?)?;
        standing_down(scene, from, "the Node has DrainInProgress=True")?;
        lifecycle(scene, "DrainInProgress", "False", &now(scene)?)?;
        not_standing_down(scene)?;
        lifecycle(scene, "MaintenancePlanned", "True", &now(scene)?)?;

        set(state("Working"))?;
        standing_down(scene, from, "annotation machineconfiguration.openshift.io/state=Working")?;
        let kept = shown(scene)?;
        ensure!(kept.contains("[first seen openshift "), "{kept}");
        let told = kill_while_quiet(scene, "NodeInMaintenance")?;
        ensure!(told.message.contains("state=Working"), "{told:?}");
        set(state("Done"))?;
        let told = scene.wait_for(told.at, "False", "KubeletCrashed")?;
        not_standing_down(scene)?;

        // What is False stays, and nothing is new.
        set(json!({"spec": {"taints": out_of_service}}))?;
        standing_down(scene, told.at, "the Node has taint node.kubernetes.io/out-of-service")?;
        scene.ensure_only(told.at, &["False"])?;
        set(json!({"spec": {"taints": null}}))?;
        not_standing_down(scene)?;
        scene.ensure_only(told.at, &["False"])?;
        trust::row(
            15,
            "maintenance by KEP-5683's conditions, OpenShift's state, the taint out-of-service",
            "not recognised: a kubelet that ends meanwhile is False",
            "Unknown, NodeInMaintenance; what was False before stays",
        );
        Ok(())
    })
}

/// Older than a day: `kubectl drain` will write such a condition, and nobody takes it away.
pub(super) fn a_forgotten_sign_no_longer_counts() -> Result<()> {
    Scene::healthy("forgotten")?.play(|scene| {
        lifecycle(scene, "Drained", "True", "2020-01-01T00:00:00Z")?;
        wait_until("the annotation that says so", SOON, || {
            let ignored = "ignored: the Node has Drained=True since 2020-01-01T00:00:00Z";
            Ok(shown(scene)?.starts_with(ignored).then_some(()))
        })?;
        let lines = scene.lines(Kind::PauseEnds)?;
        ensure!(lines.len() == 1, "{lines:#?}");
        scene.keep_dead()?;
        let death = scene.kill_kubelet()?;
        scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        lifecycle(scene, "Drained", "False", "2020-01-01T00:00:00Z")?;
        not_standing_down(scene)
    })
}

/// What the Node's annotation of ours says; nothing if it is not there.
fn shown(scene: &Scene) -> Result<String> {
    let node = scene.plane.node(scene.node.name())?.unwrap_or_default();
    let text = node.pointer(STANDING_DOWN).and_then(Value::as_str);
    Ok(text.unwrap_or_default().to_owned())
}

/// Waits for the Warning Event about our Node with that reason.
fn warning(scene: &Scene, reason: &str) -> Result<Value> {
    wait_until(&format!("the Event {reason}"), SOON, || {
        let (code, list) = (scene.plane).get("/apis/events.k8s.io/v1/namespaces/default/events")?;
        ensure!(code == 200, "{code}: {list}");
        let events = list["items"].as_array().cloned().unwrap_or_default();
        Ok(events.into_iter().find(|event| {
            event["regarding"]["name"] == scene.node.name()
                && event["reason"] == reason
                && event["type"] == "Warning"
        }))
    })
}
