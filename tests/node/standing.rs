//! Who asks for quiet, and what a Node says meanwhile: pauses, maintenance, a shutdown, a package manager at work.

mod lasting;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene, Told};
use crate::support::control_plane::ControlPlane;
use crate::support::rows::row;
use crate::support::trust;
use crate::support::wait_until;
use crate::trial;

pub(crate) const STANDING_DOWN: &str = "/metadata/annotations/nodevigil.io~1standing-down";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("standing::pause", a_pause_holds_a_death_back),
        trial("standing::pause_lifts", a_pause_lifts),
        trial("standing::pause_ends", a_pause_ends_by_itself),
        trial(
            "standing::pause_before_start",
            a_pause_is_older_than_the_daemon,
        ),
        trial(
            "standing::pause_ending",
            lasting::the_end_of_a_pause_is_warned_of,
        ),
        trial("standing::annotation", the_annotation_does_the_same),
        trial(
            "standing::annotation_bound",
            lasting::the_annotation_is_bounded_over_restarts,
        ),
        trial("standing::maintenance", maintenance_does_the_same),
        trial(
            "standing::maintenance_signs",
            lasting::each_kind_of_sign_does,
        ),
        trial(
            "standing::maintenance_forgotten",
            lasting::a_forgotten_sign_no_longer_counts,
        ),
        trial("standing::shutdown", a_shutdown_leaves_no_fault_behind),
        trial("standing::package_upgrade", a_package_upgrade_flips_nothing),
    ]
}

fn a_pause_holds_a_death_back() -> Result<()> {
    Scene::healthy("pause")?.play(|scene| {
        let from = Instant::now();
        let said = scene
            .node
            .sh("nodevigil pause --for 30m --reason 'disk swap'")?;
        ensure!(
            said.contains("paused until") && !said.contains("does not run"),
            "{said}"
        );
        let noticed = standing_down(scene, from, "disk swap")?;
        ensure!(noticed < Duration::from_secs(3), "after {noticed:?}");
        let paused = kill_while_quiet(scene, "NodePaused")?;
        ensure!(paused.message.contains("disk swap"), "{paused:?}");
        let status = scene.node.run("nodevigil status")?;
        ensure!(
            status.0 == 0 && status.1.contains("standing down"),
            "{status:?}"
        );
        // The agent's own restart changes nothing.
        scene.node.sh("systemctl restart nodevigil")?;
        scene.ensure_still(&paused)?;
        scene.ensure_only(from, &["True", "Unknown"])?;
        let resumed = Instant::now();
        scene.node.sh("nodevigil resume")?;
        let told = scene.wait_for(resumed, "False", "KubeletCrashed")?;
        ensure!(
            told.at - resumed < Duration::from_secs(3),
            "{:?}",
            told.at - resumed
        );
        not_standing_down(scene)?;
        for kind in [Kind::StandingDown, Kind::StandingUp] {
            let lines = scene.lines(kind)?;
            ensure!((1..=2).contains(&lines.len()), "{lines:#?}"); // each life of the agent says it once
        }
        scene.revive()?;
        Ok(())
    })
}

/// What is False when the pause begins: no controller's clock runs on while somebody mends it.
fn a_pause_lifts() -> Result<()> {
    Scene::healthy("pause-lifts")?.play(|scene| {
        scene.keep_dead()?;
        let killed = Instant::now();
        scene.kill_kubelet()?;
        let first = scene.wait_for(killed, "False", "KubeletCrashed")?;
        let from = Instant::now();
        scene.node.sh("nodevigil pause --for 30m")?;
        standing_down(scene, from, "nodevigil pause")?;
        let lifted = scene.wait_for(from, "Unknown", "NodePaused")?;
        ensure!(lifted.message.contains("KubeletCrashed"), "{lifted:?}");
        std::thread::sleep(Duration::from_secs(2)); // transition times are whole seconds
        let resumed = Instant::now();
        scene.node.sh("nodevigil resume")?;
        let again = scene.wait_for(resumed, "False", "KubeletCrashed")?;
        ensure!(again.at - resumed < Duration::from_secs(3), "{again:?}");
        ensure!(again.since > first.since, "{first:?}, then {again:?}");
        not_standing_down(scene)?;
        scene.revive()?;
        scene.ensure_only(killed, &["True", "False", "Unknown"])?;
        trust::row(
            2,
            "`nodevigil pause` while KubeletCrashed stands",
            "False stays, and every wait runs on",
            "Unknown, NodePaused; after `nodevigil resume` False anew, with a new time",
        );
        Ok(())
    })
}

fn a_pause_ends_by_itself() -> Result<()> {
    Scene::healthy("pause-ends")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("nodevigil pause --for 8s")?;
        standing_down(scene, from, "nodevigil pause")?;
        kill_while_quiet(scene, "NodePaused")?;
        let told = scene.wait_for(from, "False", "KubeletCrashed")?;
        let after = told.at - from;
        ensure!(
            after > Duration::from_secs(6),
            "told {after:?} after the pause began"
        );
        scene.node.sh("nodevigil resume")?;
        Ok(())
    })
}

/// Its folder is not even there yet; that of the unit, later, is the same.
fn a_pause_is_older_than_the_daemon() -> Result<()> {
    let scene = Scene::booted(&ControlPlane::shared()?, "pause-early", |node| node)?;
    scene.play(|scene| {
        let said = scene.node.sh("umask 077; nodevigil pause --for 30m")?;
        ensure!(said.contains("does not run"), "{said}");
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        let from = Instant::now();
        scene.node.start_agent()?;
        standing_down(scene, from, "nodevigil pause")?;
        scene.wait_until_told(from, |told| told.status == "Unknown")?;
        scene.ensure_only(from, &["Unknown"])?;
        let (code, said) = scene
            .node
            .run("setpriv --reuid=nobody --clear-groups nodevigil pause --for 1m")?;
        ensure!(code == 1 && said.contains("as root"), "{code}: {said}");
        Ok(())
    })
}

fn the_annotation_does_the_same() -> Result<()> {
    Scene::healthy("annotated")?.play(|scene| {
        let from = Instant::now();
        annotate(scene, "firmware")?;
        standing_down(scene, from, "firmware")?;
        kill_while_quiet(scene, "NodePaused")?;
        // A time that has passed is no pause.
        let then = Instant::now();
        annotate(scene, "2020-01-01T00:00:00Z")?;
        scene.wait_for(then, "False", "KubeletCrashed")?;
        not_standing_down(scene)?;
        scene.ensure_only(from, &["True", "Unknown", "False"])
    })
}

fn maintenance_does_the_same() -> Result<()> {
    Scene::healthy("maintenance")?.play(|scene| {
        let from = Instant::now();
        maintenance(scene, "True")?;
        standing_down(scene, from, "MaintenanceInProgress")?;
        kill_while_quiet(scene, "NodeInMaintenance")?;
        let over = Instant::now();
        maintenance(scene, "False")?;
        scene.wait_for(over, "False", "KubeletCrashed")?;
        not_standing_down(scene)
    })
}

/// A unit that takes its time to stop keeps kubelet and agent alive for some seconds of the shutdown. The node goes all
/// the way down but for the last step, which is the machine's own.
fn a_shutdown_leaves_no_fault_behind() -> Result<()> {
    let slow = "[Unit]\nAfter=nodevigil.service kubelet.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
        ExecStart=/bin/true\nExecStop=/bin/sh -c 'sleep 3; systemctl kill --signal=KILL kubelet; sleep 3'\n";
    let last_step = "[Unit]\nSuccessAction=none\n[Service]\nExecStart=/bin/true\n";
    let folder = "/etc/systemd/system";
    let scene = Scene::healthy_with("shutdown", |node| {
        node.file(&format!("{folder}/slow.service"), slow, 0o644)
            .file(
                &format!("{folder}/systemd-poweroff.service.d/50-test.conf"),
                last_step,
                0o644,
            )
    })?;
    scene.play(|scene| {
        scene.node.sh("systemctl start slow")?;
        let from = Instant::now();
        scene.node.sh("systemctl poweroff --no-block")?;
        standing_down(scene, from, "shutting down")?;
        let told = scene.wait_until_told(from, |told| told.status == "Unknown")?;
        wait_until("the agent's end", SOON, || {
            let (code, _) = scene.node.run("systemctl is-active nodevigil")?;
            Ok((code != 0).then_some(()))
        })?;
        scene.ensure_only(from, &["True", "Unknown"])?;
        scene.ensure_still(&told)
    })
}

/// The real dpkg, with a package whose script stops the kubelet, takes its time, and starts it.
fn a_package_upgrade_flips_nothing() -> Result<()> {
    let control = "Package: upgrade-test\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n";
    let script = "#!/bin/sh\nsystemctl stop kubelet\nsleep 5\nsystemctl start kubelet\nsleep 3\n";
    let scene = Scene::healthy_with("upgrade", |node| {
        node.file("/root/deb/DEBIAN/control", control, 0o644).file(
            "/root/deb/DEBIAN/postinst",
            script,
            0o755,
        )
    })?;
    scene.play(|scene| {
        scene.node.sh("dpkg-deb --build /root/deb /root/test.deb")?;
        let told = scene.now()?;
        scene
            .node
            .sh("systemd-run --unit=upgrade --setenv=PATH dpkg --install /root/test.deb")?;
        scene.status_file("the hold", |file| file["quiet"][0]["kind"] == "hold")?;
        wait_until("dpkg's end", SOON, || {
            let (code, _) = scene.node.run("systemctl is-active upgrade")?;
            Ok((code != 0).then_some(()))
        })?;
        let result = scene.node.sh("dpkg --status upgrade-test")?;
        ensure!(result.contains("install ok installed"), "{result}");
        scene.ensure_still(&told)?;
        row(
            "kubelet restarted by a package",
            "`dpkg --install` of a package whose script stops it for 5 s",
            "none: no flip",
            None,
        );
        scene.status_file("the hold's end", |file| file["quiet"][0].is_null())?;
        // Without dpkg the same is told.
        let from = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        Ok(())
    })
}

/// Kills the kubelet for good; the Node must say `Unknown` with that reason, and no `False`.
fn kill_while_quiet(scene: &Scene, reason: &str) -> Result<Told> {
    scene.keep_dead()?;
    let death = scene.kill_kubelet()?;
    // Held back, and refined as systemd says more.
    let told = scene.wait_until_told(death.killed, |told| {
        told.status == "Unknown" && told.reason == reason && told.message.contains("SIGKILL")
    })?;
    scene.ensure_only(death.killed, &["True", "Unknown"])?;
    Ok(told)
}

/// Waits until the agent stands down for him, and the Node says so; how long that took.
pub(crate) fn standing_down(scene: &Scene, from: Instant, who: &str) -> Result<Duration> {
    scene.status_file(&format!("the agent to stand down for {who}"), |file| {
        let quiet = &file["quiet"][0];
        let by = quiet["by"].as_str().unwrap_or_default();
        quiet["kind"] == "stand-down" && by.contains(who)
    })?;
    let says = |event: &Value| annotation(event).is_some_and(|text| text.contains(who));
    let (at, _) = scene.watch.wait_since(from, SOON, says)?;
    Ok(at - from)
}

fn not_standing_down(scene: &Scene) -> Result<()> {
    scene.status_file("the agent to stand down no more", |file| {
        file["quiet"] == json!([])
    })?;
    wait_until("the annotation's end", SOON, || {
        let node = scene.plane.node(scene.node.name())?;
        let gone = node.is_some_and(|node| node.pointer(STANDING_DOWN).is_none());
        Ok(gone.then_some(()))
    })
}

fn annotation(event: &Value) -> Option<&str> {
    event["object"].pointer(STANDING_DOWN)?.as_str()
}

fn annotate(scene: &Scene, value: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{}", scene.node.name());
    let body = json!({"metadata": {"annotations": {"nodevigil.io/pause": value}}});
    request(scene, "PATCH", &path, MERGE, &body)
}

fn maintenance(scene: &Scene, status: &str) -> Result<()> {
    lifecycle(scene, "MaintenanceInProgress", status, &now(scene)?)
}

/// One of Kubernetes' own node lifecycle conditions, as administrators write them.
fn lifecycle(scene: &Scene, kind: &str, status: &str, since: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{}/status", scene.node.name());
    let body = json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "ByHand",
        "lastTransitionTime": since}]}});
    request(scene, "PATCH", &path, STRATEGIC, &body)
}

fn now(scene: &Scene) -> Result<String> {
    let now = scene.node.sh("date -u +%Y-%m-%dT%H:%M:%SZ")?;
    Ok(now.trim().to_owned())
}

pub(crate) fn request(
    scene: &Scene,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<()> {
    let (code, answer) = scene.plane.request(method, path, kind, body)?;
    ensure!(code == 200, "{code}: {answer}");
    Ok(())
}
