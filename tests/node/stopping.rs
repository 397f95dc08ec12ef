//! The agent's end: what it leaves on the Node when it is stopped, restarted, or killed, and what is said of an agent that lacks
//! something.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::Value;

use crate::scene::{AGENT, OURS, SOON, Scene};
use crate::support::api::condition;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::trust;
use crate::support::{say, wait_until};
use crate::trial;

const EVERYTHING: &str = "[kubernetes]\ndialects = [\"native\", \"eks\", \"npd\"]\n[taints]\nconditions = [\"KubeletHealthy\"]\n";
const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";
const STOP: &str = "systemctl stop nodevigil";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("stopping::verdict", a_stop_leaves_no_verdict_behind),
        trial("stopping::well", a_stop_of_a_well_node_writes_nothing),
        trial("stopping::restart", a_restart_publishes_nothing),
        trial("stopping::no_api", a_stop_waits_for_no_dead_api),
        trial(
            "stopping::host",
            a_host_that_goes_down_has_said_its_last_word,
        ),
        trial("stopping::helper_away", our_own_trouble_is_ours_alone),
    ]
}

/// Status, reason, transition time.
fn shown(scene: &Scene, kind: &str) -> Result<(String, String, Timestamp)> {
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let told = condition(&node, kind).with_context(|| format!("no {kind}"))?;
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let since = text("lastTransitionTime").parse()?;
    Ok((text("status"), text("reason"), since))
}

fn has_taint(scene: &Scene) -> Result<bool> {
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let taints = node["spec"]["taints"].as_array().cloned();
    let taints = taints.unwrap_or_default();
    Ok(taints.iter().any(|taint| taint["key"] == TAINT))
}

/// How long it took.
fn stop(scene: &Scene) -> Result<Duration> {
    let from = Instant::now();
    scene.node.sh(STOP)?;
    Ok(from.elapsed())
}

fn a_stop_leaves_no_verdict_behind() -> Result<()> {
    let scene = Scene::healthy_with("stopped", |node| node.config("60-all.toml", EVERYTHING))?;
    scene.play(|scene| {
        let bad = scene.kill_for_good()?;
        wait_until("the taint", SOON, || Ok(has_taint(scene)?.then_some(())))?;
        let (_, _, before) = shown(scene, OURS)?;
        std::thread::sleep(Duration::from_millis(1100)); // times have whole seconds
        let from = Instant::now();
        let took = stop(scene)?;
        let told = scene.wait_for(from, "Unknown", "NodevigilStopped")?;
        say(&format!(
            "stopped within {took:?}, Unknown {:?} after the command: {}",
            told.at - from,
            told.message
        ));
        ensure!(took < Duration::from_millis(2500), "{took:?}");
        ensure!(told.at - from < Duration::from_secs(2), "{told:?}");
        ensure!(told.message.contains("KubeletCrashed"), "{told:?}");
        for (kind, status) in [
            (OURS, "Unknown"),
            ("ContainerRuntimeReady", "Unknown"),
            ("KubeletUnhealthy", "Unknown"),
            ("FrequentKubeletRestart", "False"),
            ("NodeKernelHealthy", "True"),
        ] {
            let (is, reason, since) = shown(scene, kind)?;
            ensure!(is == status, "{kind} is {is}: {reason}");
            if status == "Unknown" {
                ensure!(
                    reason == "NodevigilStopped" && since > before,
                    "{kind}: {reason} {since}"
                );
            }
        }
        ensure!(!has_taint(scene)?, "the taint stays");
        trust::row(
            20,
            "`systemctl stop nodevigil` while KubeletCrashed stands",
            "False, for ever",
            "Unknown, NodevigilStopped, within 2 s",
        );
        // It is there still when the agent is: a new flip.
        let (_, _, stopped) = shown(scene, OURS)?;
        std::thread::sleep(Duration::from_millis(1100));
        let again = Instant::now();
        scene.node.start_agent()?;
        let told = scene.wait_for(again, "False", "KubeletCrashed")?;
        ensure!(told.since.parse::<Timestamp>()? > stopped, "{told:?}");
        wait_until("the taint", SOON, || Ok(has_taint(scene)?.then_some(())))?;
        scene.ensure_only(bad.at, &["False", "Unknown"])?;
        // It is over when the agent is there again.
        stop(scene)?;
        scene.node.sh("systemctl start kubelet")?;
        let well = Instant::now();
        scene.node.start_agent()?;
        let told = scene.wait_for(well, "True", "KubeletIsHealthy")?;
        scene.ensure_only(told.at, &["True"])
    })
}

/// The status writes of the agent so far.
fn writes(scene: &Scene) -> Result<Vec<Value>> {
    let requests = scene.requests()?.into_iter();
    let writes = requests.filter(|one| one.verb == "patch" && one.uri.contains("/status?"));
    Ok(writes.map(|one| one.body).collect())
}

/// Waits until nothing is written any more, and says how much was.
fn calm(scene: &Scene) -> Result<usize> {
    let mut before = usize::MAX;
    wait_until("calm", SOON, || {
        let count = writes(scene)?.len();
        let is_calm = std::mem::replace(&mut before, count) == count;
        std::thread::sleep(Duration::from_secs(2));
        Ok(is_calm.then_some(count))
    })
}

fn a_stop_of_a_well_node_writes_nothing() -> Result<()> {
    Scene::healthy("stopped-well")?.play(|scene| {
        let before = calm(scene)?;
        let took = stop(scene)?;
        ensure!(took < Duration::from_secs(1), "{took:?}");
        std::thread::sleep(Duration::from_secs(1));
        let after = writes(scene)?.len();
        ensure!(after == before, "{before} writes, then {after}");
        Ok(())
    })
}

fn a_restart_publishes_nothing() -> Result<()> {
    Scene::healthy("restarted")?.play(|scene| {
        let told = scene.kill_for_good()?;
        for command in [
            "systemctl restart nodevigil",
            "systemctl try-restart nodevigil",
            "systemctl kill --signal=TERM nodevigil",
        ] {
            calm(scene)?;
            scene.node.sh(command)?;
            scene
                .ensure_still(&told)
                .with_context(|| format!("after `{command}`"))?;
        }
        let withdrew = |body: &Value| body.to_string().contains("NodevigilStopped");
        let withdrawn = writes(scene)?.iter().filter(|body| withdrew(body)).count();
        ensure!(withdrawn == 0, "{withdrawn} writes of a restart");
        Ok(())
    })
}

fn a_stop_waits_for_no_dead_api() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "stopped-alone")?.play(|scene| {
        let told = scene.kill_for_good()?;
        // A server that hangs has taken the connection; one that is gone refuses it.
        scene.plane.pause_apiserver()?;
        let hung = stop(scene)?;
        scene.plane.resume_apiserver()?;
        say(&format!(
            "stopped within {hung:?} while the API server hangs"
        ));
        ensure!(hung < Duration::from_secs(3), "{hung:?}");
        let lines = scene.lines(Kind::Stopped)?;
        let said = |line: &Value| {
            let text = line["MESSAGE"].as_str().unwrap_or_default();
            text.contains("the Node could not be told") && text.contains(OURS)
        };
        ensure!(lines.iter().any(said), "{lines:#?}");
        // The frozen server may have carried it out all the same; then the agent makes it good.
        let from = Instant::now();
        scene.node.start_agent()?;
        wait_until("False again", SOON, || {
            let (status, reason, _) = shown(scene, OURS)?;
            Ok((status == "False" && reason == told.reason).then_some(()))
        })?;
        scene.ensure_only(from, &["False", "Unknown"])?;
        std::thread::sleep(Duration::from_secs(3));
        scene.plane.stop_apiserver();
        let gone = stop(scene)?;
        say(&format!(
            "stopped within {gone:?} while there is no API server"
        ));
        ensure!(gone < Duration::from_secs(3), "{gone:?}");
        // Nothing was written, so nothing has flipped.
        scene.plane.start_apiserver()?;
        let before = shown(scene, OURS)?;
        ensure!(before.0 == "False", "{before:?}");
        scene.node.start_agent()?;
        let pid = scene.node.main_pid(AGENT)?;
        scene.status_file("the agent's own write", |file| {
            file["pid"] == pid && file["conditions"][0]["published_at"].is_string()
        })?;
        let after = shown(scene, OURS)?;
        ensure!(after == before, "{before:?}, then {after:?}");
        Ok(())
    })
}

/// Its units get stop jobs too, ours among them.
fn a_host_that_goes_down_has_said_its_last_word() -> Result<()> {
    let last_step = "[Unit]\nSuccessAction=none\n[Service]\nExecStart=/bin/true\n";
    let place = "/etc/systemd/system/systemd-poweroff.service.d/50-test.conf";
    let scene = Scene::healthy_with("stopped-host", |node| node.file(place, last_step, 0o644))?;
    scene.play(|scene| {
        let told = scene.kill_for_good()?;
        scene.node.sh("systemctl poweroff --no-block")?;
        wait_until("the agent's end", SOON, || {
            let (code, _) = scene.node.run("systemctl is-active nodevigil")?;
            Ok((code != 0).then_some(()))
        })?;
        scene.ensure_still(&told)
    })
}

fn our_own_trouble_is_ours_alone() -> Result<()> {
    let own = "NodevigilHealthy";
    Scene::healthy("helper-away")?.play(|scene| {
        let is = |status: &str, reason: &str, within: Duration| {
            wait_until(&format!("{own}={status}/{reason}"), within, || {
                let told = shown(scene, own).unwrap_or_default();
                Ok((told.0 == status && told.1 == reason).then_some(()))
            })
        };
        is("True", "NodevigilIsHealthy", SOON)?;
        let from = Instant::now();
        scene
            .node
            .sh("systemctl stop nodevigil-helper.socket nodevigil-helper.service")?;
        is("Unknown", "NodevigilHelperAway", Duration::from_secs(100))?;
        let after = from.elapsed();
        say(&format!("told {after:?} after the helper went"));
        ensure!(after > Duration::from_secs(55), "{after:?}");
        let node = scene.plane.node(scene.node.name())?.context("no Node")?;
        let conditions = node.pointer("/status/conditions").context("conditions")?;
        let status = scene.node.status_json()?;
        for ours in status["conditions"].as_array().context("conditions")? {
            let kind = ours["type"].as_str().unwrap_or_default();
            let bad = if kind == "MemoryExhaustionImminent" {
                "True"
            } else {
                "False"
            };
            let found = conditions.as_array().and_then(|all| {
                let mut all = all.iter();
                all.find(|one| one["type"] == kind).cloned()
            });
            ensure!(
                found.is_some_and(|one| one["status"] != bad),
                "{kind}: {conditions:#}"
            );
        }
        ensure!(!has_taint(scene)?);
        scene.node.sh("systemctl start nodevigil-helper.socket")?;
        is("True", "NodevigilIsHealthy", Duration::from_mins(1))
    })
}
