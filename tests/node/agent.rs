//! Restarts of the agent, its own end, and what systemd and the operator see of it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::scene::{AGENT, KUBELET, SOON, Scene, Told};
use crate::support::wait_until;
use crate::trial;

/// systemd starts the agent anew a second after its end: time enough to take its ledger away.
const KILL: &str = "systemctl kill --signal=KILL nodevigil";
const LOSE_LEDGER: &str = "rm /run/nodevigil/ledger.json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "agent::restart_while_dead",
            restarts_while_dead_flip_nothing,
        ),
        trial(
            "agent::restart_while_well",
            restarts_while_well_flip_nothing,
        ),
        trial("agent::restart_while_stopped", a_stop_is_remembered),
        trial("agent::restart_of_both", an_upgrade_of_both_flips_nothing),
        trial("agent::death_meanwhile", a_death_meanwhile_is_told),
        trial(
            "agent::status_command",
            the_status_command_says_it_by_exit_code,
        ),
        trial("agent::notify", systemd_sees_it_ready_and_its_status),
        trial("agent::watchdog_fed", the_watchdog_is_fed),
        trial("agent::watchdog_bites", a_frozen_agent_is_started_anew),
    ]
}

fn restarts_while_dead_flip_nothing() -> Result<()> {
    Scene::healthy("reborn-dead")?.play(|scene| {
        let told = scene.kill_for_good()?;
        for command in [
            "systemctl restart nodevigil".to_owned(),
            KILL.to_owned(),
            format!("{KILL}; {LOSE_LEDGER}"), // then the Node itself is the memory
        ] {
            restart(scene, &command)?;
            scene
                .ensure_still(&told)
                .with_context(|| format!("after `{command}`"))?;
            let reason = scene.now()?.reason;
            ensure!(reason == told.reason, "{reason} after `{command}`");
        }
        scene.revive()?;
        scene.ensure_only(told.at, &["False", "True"])
    })
}

fn restarts_while_well_flip_nothing() -> Result<()> {
    Scene::healthy("reborn-well")?.play(|scene| {
        let told = scene.now()?;
        for command in [
            "systemctl restart nodevigil".to_owned(),
            format!("{KILL}; {LOSE_LEDGER}"),
        ] {
            restart(scene, &command)?;
            scene
                .ensure_still(&told)
                .with_context(|| format!("after `{command}`"))?;
        }
        Ok(())
    })
}

/// systemd leaves the same traces of a stop and of a clean exit: only the agent's own memory tells them apart.
fn a_stop_is_remembered() -> Result<()> {
    Scene::healthy("reborn-stopped")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        let told = scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        for command in [
            "systemctl restart nodevigil".to_owned(),
            format!("{KILL}; {LOSE_LEDGER}"),
        ] {
            restart(scene, &command)?;
            scene.ensure_still(&told)?;
            let events: Vec<Told> = scene.told_since(told.at);
            let other = events.iter().find(|event| event.reason != told.reason);
            ensure!(other.is_none(), "after `{command}`: {other:?}");
        }
        Ok(())
    })
}

/// As packages and images do it: the agent wakes up in the middle of the kubelet's restart.
fn an_upgrade_of_both_flips_nothing() -> Result<()> {
    Scene::healthy("restart-of-both")?.play(|scene| {
        let told = scene.now()?;
        for _ in 0..3 {
            let from = Instant::now();
            restart(scene, "systemctl restart nodevigil kubelet")?;
            let pid = format!("pid {} ", scene.node.main_pid(KUBELET)?);
            scene.wait_until_told(from, |told| told.message.contains(&pid))?;
            scene.ensure_no_flip(&told)?;
        }
        scene.ensure_still(&told)
    })
}

/// A kubelet that dies while there is no agent: systemd remembers how.
fn a_death_meanwhile_is_told() -> Result<()> {
    Scene::healthy("death-meanwhile")?.play(|scene| {
        scene.node.sh("systemctl stop nodevigil")?;
        scene.keep_dead()?;
        let death = scene.kill_kubelet()?;
        scene.node.start_agent()?;
        let told = scene.wait_for(death.gone, "False", "KubeletCrashed")?;
        ensure!(told.message.contains("SIGKILL (9)"), "{told:?}");
        scene.ensure_only(death.gone, &["True", "False"])
    })
}

fn the_status_command_says_it_by_exit_code() -> Result<()> {
    Scene::healthy("status-command")?.play(|scene| {
        let ends_with = |wanted: i32| {
            wait_until("the exit code of `nodevigil status`", SOON, || {
                let (code, output) = scene.node.run("nodevigil status")?;
                Ok((code == wanted).then_some(output))
            })
        };
        let table = ends_with(0)?;
        ensure!(table.contains("KubeletIsHealthy"), "{table}");
        scene.kill_for_good()?;
        let table = ends_with(1)?;
        ensure!(table.contains("KubeletCrashed"), "{table}");
        let json: Value = serde_json::from_str(&scene.node.run("nodevigil status --json")?.1)?;
        ensure!(json["conditions"][0]["status"] == "False", "{json:#}");
        scene
            .node
            .sh("systemctl stop nodevigil; rm /run/nodevigil/status.json")?;
        let complaint = ends_with(2)?;
        ensure!(
            complaint.contains("/run/nodevigil/status.json"),
            "{complaint}"
        );
        Ok(())
    })
}

fn systemd_sees_it_ready_and_its_status() -> Result<()> {
    Scene::healthy("notify")?.play(|scene| {
        let kind = scene.property(AGENT, "Type")?;
        ensure!(kind == "notify", "{kind}");
        let says = |wanted: &str| {
            wait_until(wanted, SOON, || {
                let text = scene.property(AGENT, "StatusText")?;
                Ok(text.contains(wanted).then_some(()))
            })
        };
        says("KubeletHealthy=True (KubeletIsHealthy)")?;
        scene.kill_for_good()?;
        says("KubeletHealthy=False (KubeletCrashed)")?;
        scene.revive()?;
        says("KubeletHealthy=True (KubeletIsHealthy)")
    })
}

fn the_watchdog_is_fed() -> Result<()> {
    hasty("watchdog-fed")?.play(|scene| {
        let pid = scene.node.main_pid(AGENT)?;
        let told = scene.now()?;
        scene.ensure_still(&told)?; // twice the watchdog's two seconds
        // Six times that while the host's memory moves, which other tests see to.
        let within = scene.property(AGENT, "WatchdogUSec")?;
        ensure!(["2s", "12s"].contains(&within.as_str()), "{within}");
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        ensure!(scene.property(AGENT, "NRestarts")? == "0");
        Ok(())
    })
}

fn a_frozen_agent_is_started_anew() -> Result<()> {
    hasty("watchdog-bites")?.play(|scene| {
        let (told, pid) = (scene.now()?, scene.node.main_pid(AGENT)?);
        let started = started_at(scene)?;
        scene.node.signal_unit(AGENT, Signal::SIGSTOP)?;
        wait_until("another agent", SOON, || {
            let now = scene.node.main_pid(AGENT)?;
            Ok((now != 0 && now != pid).then_some(()))
        })?;
        wait_for_successor(scene, started)?;
        scene.ensure_no_flip(&told)?;
        scene.crash_and_recover()
    })
}

/// A scene whose agent systemd wants to hear from every two seconds.
fn hasty(name: &str) -> Result<Scene> {
    let drop_in = "/etc/systemd/system/nodevigil.service.d/60-hasty.conf";
    Scene::healthy_with(name, |node| {
        node.file(drop_in, "[Service]\nWatchdogSec=2\n", 0o644)
    })
}

/// Ends the agent by `command`, and waits until its successor has judged and published.
pub(crate) fn restart(scene: &Scene, command: &str) -> Result<()> {
    let started = started_at(scene)?;
    scene.node.sh(command)?;
    wait_for_successor(scene, started)
}

fn wait_for_successor(scene: &Scene, before: Timestamp) -> Result<()> {
    scene.status_file("the next agent to publish", |file| {
        let later = timestamp(&file["started_at"]).is_some_and(|at| at > before);
        let published = timestamp(&file["conditions"][0]["published_at"]);
        later && published.is_some_and(|at| at > before)
    })?;
    Ok(())
}

fn started_at(scene: &Scene) -> Result<Timestamp> {
    timestamp(&scene.node.status_json()?["started_at"]).context("started_at in status.json")
}

fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
