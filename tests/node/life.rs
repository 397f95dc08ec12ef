//! The kubelet's life as a real API server tells it: each way to end with its reason, and back to health.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::scene::{KUBELET, Scene};
use crate::support::rows::row;
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("life::crash", a_crash_is_told_with_signal_and_pid),
        trial("life::exit_code", a_failing_exit_is_told_with_its_code),
        trial("life::clean_exit", a_clean_exit_is_no_crash),
        trial("life::hang", a_hang_is_told_and_ends),
        trial("life::operator_stop", an_operators_stop_is_no_fault),
        trial("life::restart_by_systemd", a_crash_is_one_spell_of_false),
        trial("life::planned_restart", a_planned_restart_flips_nothing),
    ]
}

fn a_crash_is_told_with_signal_and_pid() -> Result<()> {
    let spell = Duration::from_secs(3);
    let settings = "[kubelet]\nhealthy_for_secs = 3\n";
    let scene = Scene::healthy_with("crash", |node| node.config("60-spell.toml", settings))?;
    scene.play(|scene| {
        let death = scene.kill_kubelet()?;
        let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        ensure!(told.message.contains("SIGKILL (9)"), "{told:?}");
        row(
            "crash",
            "`kill -9` of the kubelet",
            &told.reason,
            told.at - death.killed,
        );
        let pid = format!("pid {} ", death.pid);
        ensure!(told.message.contains(&pid), "not {pid}: {told:?}");
        let well = scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        let spell_was = well.at - death.gone;
        ensure!(spell_was >= spell, "healthy again after {spell_was:?}");
        ensure!(well.since > told.since, "{told:?}, then {well:?}");
        Ok(())
    })
}

fn a_failing_exit_is_told_with_its_code() -> Result<()> {
    Scene::healthy("exit-code")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("cp /etc/default/kubelet /run/kubelet.good
             sed -i 's/$/ --no-such-flag/' /etc/default/kubelet
             systemctl restart kubelet")?;
        let told = scene.wait_for(from, "False", "KubeletCrashed")?;
        ensure!(told.message.contains("exited with code 1"), "{told:?}");
        scene.ensure_still(&told)?; // it ends again and again, ten times a second
        let from = Instant::now();
        scene
            .node
            .sh("cp /run/kubelet.good /etc/default/kubelet; systemctl restart kubelet")?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.ensure_only(told.at, &["False", "True"])
    })
}

fn a_clean_exit_is_no_crash() -> Result<()> {
    let unit = "[Service]\nRestart=on-failure\n";
    let path = "/etc/systemd/system/kubelet.service.d/60-test.conf";
    let scene = Scene::healthy_with("clean-exit", |node| node.file(path, unit, 0o644))?;
    scene.play(|scene| {
        let from = Instant::now();
        // The signal alone: systemd has no job, and nobody asked it to stop the unit.
        scene
            .node
            .sh("systemctl kill --kill-who=main --signal=TERM kubelet")?;
        let told = scene.wait_for(from, "False", "KubeletExitedClean")?;
        ensure!(told.message.contains("exited with code 0"), "{told:?}");
        row(
            "clean exit",
            "SIGTERM to the process, `Restart=on-failure`",
            "KubeletExitedClean",
            told.at - from,
        );
        scene.ensure_still(&told)?;
        let state = scene.property(KUBELET, "ActiveState")?;
        ensure!(state == "inactive", "it was acted upon: {state}");
        scene.revive()?;
        scene.ensure_only(from, &["True", "False"])
    })
}

fn a_hang_is_told_and_ends() -> Result<()> {
    Scene::healthy("hang")?.play(|scene| {
        let stopped = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
        let told = scene.wait_for(stopped, "False", "KubeletHung")?;
        let late = told.at - stopped;
        ensure!(late < Duration::from_secs(10), "told after {late:?}");
        ensure!(told.message.contains("state T"), "{told:?}");
        row("hang", "SIGSTOP of the kubelet", &told.reason, late);
        scene.ensure_still(&told)?;
        let resumed = scene.node.signal_unit(KUBELET, Signal::SIGCONT)?;
        scene.wait_for(resumed, "True", "KubeletIsHealthy")?;
        scene.ensure_only(stopped, &["True", "False"])
    })
}

fn an_operators_stop_is_no_fault() -> Result<()> {
    Scene::healthy("operator-stop")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        let told = scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        scene.ensure_still(&told)?;
        let reason = scene.now()?.reason;
        ensure!(reason == "KubeletStoppedByOperator", "{reason}");
        row(
            "operator's stop",
            "`systemctl stop kubelet`",
            &reason,
            told.at - from,
        );
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown"])
    })
}

/// From the crash until the healthy spell of the next kubelet is over, its start included.
fn a_crash_is_one_spell_of_false() -> Result<()> {
    Scene::healthy("restarts")?.play(|scene| {
        for _ in 0..3 {
            let death = scene.kill_kubelet()?;
            let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
            let well = scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
            let events = scene.told_since(death.killed);
            let flips = events
                .windows(2)
                .filter(|pair| pair[0].status != pair[1].status)
                .count();
            ensure!(flips <= 2, "{flips} flips: {events:#?}");
            for told in events.iter().filter(|told| told.at < well.at) {
                ensure!(told.status != "Unknown", "{told:?}");
            }
            let restarted = scene.node.main_pid(KUBELET)?;
            ensure!(restarted != death.pid, "the same kubelet as before");
        }
        Ok(())
    })
}

fn a_planned_restart_flips_nothing() -> Result<()> {
    Scene::healthy("planned-restart")?.play(|scene| {
        let before = scene.now()?;
        for command in ["restart", "try-restart", "reload-or-restart"] {
            let from = Instant::now();
            scene.node.sh(&format!("systemctl {command} kubelet"))?;
            let pid = format!("pid {} ", scene.node.main_pid(KUBELET)?);
            scene.wait_until_told(from, |told| told.message.contains(&pid))?;
        }
        scene.ensure_still(&before)?;
        row(
            "planned restart",
            "`systemctl restart kubelet`, and two like it",
            "none: no flip",
            None,
        );
        Ok(())
    })
}
