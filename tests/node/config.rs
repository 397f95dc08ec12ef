//! A configuration that cannot be used: said with file, line and key, and not tried again.

use std::time::Instant;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;

use crate::scene::{AGENT, SOON, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::trust;
use crate::support::{say, wait_until};
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("config::bad", a_bad_configuration_is_said_and_is_final),
        trial("config::last_good", the_last_good_one_stands_in),
        trial("config::reason_as_warning", a_reason_as_warning_is_an_event),
    ]
}

fn a_bad_configuration_is_said_and_is_final() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, "bad-config", NodeBuilder::without_kubelet)?;
    scene.play(|scene| {
        for (file, text, wanted) in [
            (
                "70-unknown-key.toml",
                "[kubelet]\n\nhealthy_for_sec = 1\n",
                "70-unknown-key.toml:3: kubelet.healthy_for_sec: unknown key",
            ),
            (
                "71-unknown-table.toml",
                "[kubelets]\nunit = 1\n",
                "71-unknown-table.toml:1: ",
            ),
            (
                "72-bad-value.toml",
                "[kubelet]\nunit = \"kubelet.service\"\nhealthy_for_secs = \"soon\"\n",
                "72-bad-value.toml:3: kubelet.healthy_for_secs: ",
            ),
            (
                "73-out-of-bounds.toml",
                "[kubelet]\nhealthy_for_secs = 3601\n",
                "73-out-of-bounds.toml:2: kubelet.healthy_for_secs: ",
            ),
        ] {
            refused(scene, file, text, wanted)?;
        }
        // Mended, it starts.
        scene.node.start_agent()
    })
}

const BROKEN: &str = "/etc/nodevigil/config.d/90-broken.toml";

/// The configuration is broken while the agent runs, and the agent is restarted, and once more.
fn the_last_good_one_stands_in() -> Result<()> {
    Scene::healthy("last-good")?.play(|scene| {
        let told = scene.now()?;
        scene.node.sh(&format!(
            "printf '[kubelet]\\nunti = \"x.service\"\\n' >{BROKEN}"
        ))?;
        for _ in 0..2 {
            scene.node.sh("systemctl restart nodevigil")?;
            scene.ensure_still(&told)?;
            own(scene, "Unknown", "NodevigilConfigRefused")?;
        }
        let lines = scene.lines(Kind::ConfigRefused)?;
        let text = lines[0]["MESSAGE"].as_str().unwrap_or_default();
        say(text);
        ensure!(
            lines.len() == 2
                && text.contains(&format!("{BROKEN}:2: kubelet.unti: unknown key"))
                && text.contains("in use is the last one"),
            "{lines:#?}"
        );
        // What the last good one asked for holds: a spell of a second.
        scene.crash_and_recover()?;
        let status = scene.node.run("nodevigil status")?;
        ensure!(
            status.0 == 0 && status.1.contains("config") && status.1.contains("90-broken.toml:2"),
            "{status:?}"
        );
        let refused = scene.node.status_json()?["config_refused"].clone();
        ensure!(
            refused
                .as_str()
                .is_some_and(|text| text.contains("kubelet.unti")),
            "{refused}"
        );
        // Who asks about the files themselves is told about the files.
        let (code, said) = scene.node.run("nodevigil doctor")?;
        ensure!(
            code != 0 && said.contains("90-broken.toml:2"),
            "{code}: {said}"
        );
        let mode = scene
            .node
            .sh("stat -c '%U %a' /var/lib/nodevigil/last-good-config.json")?;
        ensure!(mode.starts_with("nodevigil 6"), "{mode}");
        // Mended.
        scene.node.sh(&format!(
            "mv {BROKEN} /root/broken; systemctl restart nodevigil"
        ))?;
        own(scene, "True", "NodevigilIsHealthy")?;
        another_machines_is_not_taken(scene)?;
        trust::row(
            19,
            "a configuration that is refused, and the agent is restarted",
            "exit 78; the last word stays, though the kubelet is killed",
            "the last good configuration is used; NodevigilHealthy=Unknown, NodevigilConfigRefused",
        );
        Ok(())
    })
}

/// The kubelet is killed, and that is to be a warning: an Event, and neither `False` nor a taint.
fn a_reason_as_warning_is_an_event() -> Result<()> {
    let settings =
        "[reasons.KubeletCrashed]\nas = \"warning\"\n[reasons.KubeletGone]\nas = \"off\"\n";
    let scene = Scene::healthy_with("as-warning", |node| {
        node.config("60-reasons.toml", settings)
    })?;
    scene.play(|scene| {
        let from = Instant::now();
        scene
            .node
            .sh("systemctl kill -s KILL --kill-who=main kubelet")?;
        let event = wait_until("the Event", SOON, || {
            let (_, list) = scene
                .plane
                .get("/apis/events.k8s.io/v1/namespaces/default/events")?;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            Ok(events.into_iter().find(|event| {
                event["regarding"]["name"] == scene.node.name()
                    && event["reason"] == "KubeletCrashed"
            }))
        })?;
        ensure!(event["type"] == "Warning", "{event:#}");
        say(event["note"].as_str().unwrap_or_default());
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        std::thread::sleep(SOON / 2);
        scene.ensure_only(from, &["True", "Unknown"])?;
        let metrics = scene.node.sh(
            "curl -sS --fail --unix-socket /run/nodevigil/metrics.sock http://localhost/metrics",
        )?;
        ensure!(metrics.contains("reason=\"KubeletCrashed\""), "{metrics}");
        Ok(())
    })
}

/// A machine that was made from an image of this one has none of its own.
fn another_machines_is_not_taken(scene: &Scene) -> Result<()> {
    scene.node.sh(&format!(
        "mv /root/broken {BROKEN}; systemctl stop nodevigil"
    ))?;
    scene
        .node
        .sh("sed -i 's/\"machine_id\":\"/&ab/' /var/lib/nodevigil/last-good-config.json")?;
    let (code, said) = scene.node.run("systemctl start nodevigil")?;
    ensure!(code != 0, "{said}");
    ensure!(scene.property(AGENT, "ExecMainStatus")? == "78");
    Ok(())
}

/// Waits until the Node says so of ourselves.
fn own(scene: &Scene, status: &str, reason: &str) -> Result<()> {
    wait_until(&format!("NodevigilHealthy={status}/{reason}"), SOON, || {
        let told = scene
            .plane
            .condition(scene.node.name(), "NodevigilHealthy")?;
        let is_it = told.is_some_and(|told| told["status"] == status && told["reason"] == reason);
        Ok(is_it.then_some(()))
    })
}

fn refused(scene: &Scene, file: &str, text: &str, wanted: &str) -> Result<()> {
    let path = format!("/etc/nodevigil/config.d/{file}");
    let script = format!("cat >{path} <<'END'\n{text}END\nsystemctl start nodevigil");
    let (code, output) = scene.node.run(&script)?;
    ensure!(code != 0, "started with {file}: {output}");
    for (property, wanted) in [
        ("ActiveState", "failed"), // and not on its way to another try
        ("ExecMainStatus", "78"),
        ("NRestarts", "0"),
    ] {
        let is = scene.property(AGENT, property)?;
        ensure!(is == wanted, "{file}: {property}={is}");
    }
    let journal = scene.node.journal(AGENT, &["MESSAGE"])?;
    let wanted = format!("/etc/nodevigil/config.d/{wanted}");
    let times = journal
        .iter()
        .filter_map(|line| line["MESSAGE"].as_str())
        .filter(|line| line.contains(&wanted))
        .count();
    ensure!(times == 1, "{wanted} was said {times} times: {journal:#?}");
    scene
        .node
        .sh(&format!("rm {path}; systemctl reset-failed nodevigil"))?;
    Ok(())
}
