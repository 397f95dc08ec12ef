//! A kubelet that systemd stops with another unit: whose will that was, and what is told when it does not come back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{KUBELET, Scene, Told};
use crate::support::rows::row;
use crate::support::trust;
use crate::trial;

const CONTAINERD: &str = "containerd.service";
/// `[kubelet] start_grace_secs`, the shortest that may be asked for.
const GRACE: Duration = Duration::from_secs(10);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("dependency::bound", a_runtime_that_dies_takes_it_along),
        trial("dependency::required", a_runtime_is_back_and_it_is_not),
        trial("dependency::operator_stop", who_stops_the_runtime_means_it),
        trial("dependency::conflicts", what_excludes_it_comes_and_goes),
        trial("dependency::chain", a_runtime_that_dies_takes_a_chain_along),
        trial("dependency::both", who_stops_both_means_the_kubelet_too),
    ]
}

/// A healthy node whose kubelet depends so on another unit.
fn tied(name: &str, tie: &str) -> Result<Scene> {
    let unit = format!("[Unit]\n{tie}\nAfter={CONTAINERD}\n");
    Scene::healthy_with(name, |node| {
        let path = "/etc/systemd/system/kubelet.service.d/60-tie.conf";
        let grace = format!("[kubelet]\nstart_grace_secs = {}\n", GRACE.as_secs());
        let exclusive = "[Service]\nExecStart=/bin/sleep 3600\n";
        let between = format!("[Unit]\nBindsTo={CONTAINERD}\nAfter={CONTAINERD}\n{exclusive}");
        node.file(path, &unit, 0o644)
            .file("/etc/systemd/system/exclusive.service", exclusive, 0o644)
            .file("/etc/systemd/system/between.service", &between, 0o644)
            .config("60-grace.toml", &grace)
    })
}

/// Told as `False` once the grace is over, from `since` on, and well again when somebody starts it.
fn is_told_and_ends(scene: &Scene, since: Instant, other: &str) -> Result<Told> {
    let awaited = scene.wait_for(since, "Unknown", "KubeletAwaitsDependency")?;
    ensure!(awaited.message.contains(other), "{awaited:?}");
    let told = scene.wait_for(since, "False", "KubeletStoppedWithDependency")?;
    ensure!(told.message.contains(other), "{told:?}");
    let late = told.at - since;
    ensure!(late >= GRACE, "told after {late:?}");
    // Debian's containerd is started anew after five seconds, and counts from then on.
    ensure!(late < GRACE + Duration::from_secs(8), "told after {late:?}");
    scene.ensure_still(&told)?;
    let state = scene.property(KUBELET, "ActiveState")?;
    ensure!(state == "inactive", "it was acted upon: {state}");
    Ok(told)
}

fn a_runtime_that_dies_takes_it_along() -> Result<()> {
    tied("dependency-bound", "BindsTo=containerd.service")?.play(|scene| {
        let from = Instant::now();
        scene
            .node
            .sh("systemctl kill --kill-who=main --signal=KILL containerd")?;
        let told = is_told_and_ends(scene, from, "BindsTo=containerd.service")?;
        row(
            "stopped with its runtime",
            "BindsTo=containerd.service, `kill -9` of containerd, start_grace_secs = 10",
            &told.reason,
            told.at - from,
        );
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown", "False"])?;
        trust::row(
            3,
            "BindsTo=containerd.service, and containerd is killed",
            "Unknown, KubeletStoppedByOperator, for ever",
            "Unknown, KubeletAwaitsDependency; once the grace is over False, KubeletStoppedWithDependency",
        );
        Ok(())
    })
}

fn a_runtime_is_back_and_it_is_not() -> Result<()> {
    tied("dependency-required", "Requires=containerd.service")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop containerd")?;
        let stopped = scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        ensure!(
            stopped.message.contains("Requires=containerd.service"),
            "{stopped:?}"
        );
        scene.ensure_still(&stopped)?;
        let back = Instant::now();
        scene.node.sh("systemctl start containerd")?;
        let told = is_told_and_ends(scene, back, "Requires=containerd.service")?;
        row(
            "stopped with its runtime, which is back",
            "Requires=containerd.service, systemctl stop and start of containerd, start_grace_secs = 10",
            &told.reason,
            told.at - back,
        );
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown", "False"])
    })
}

fn who_stops_the_runtime_means_it() -> Result<()> {
    tied("dependency-operator", "BindsTo=containerd.service")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop containerd")?;
        let told = scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        ensure!(
            told.message.contains("BindsTo=containerd.service"),
            "{told:?}"
        );
        row(
            "operator's stop of the runtime",
            "BindsTo=containerd.service, `systemctl stop containerd`",
            "KubeletStoppedByOperator (Unknown)",
            told.at - from,
        );
        std::thread::sleep(GRACE + Duration::from_secs(2)); // that nothing happens shows in nothing but time
        let now = scene.now()?;
        ensure!(now.reason == "KubeletStoppedByOperator", "{now:?}");
        scene.node.sh("systemctl start containerd kubelet")?;
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        // Who stops the kubelet, and the runtime after it, has meant the kubelet: that the runtime is back changes nothing.
        let both = Instant::now();
        scene
            .node
            .sh("systemctl stop kubelet; systemctl stop containerd; systemctl start containerd")?;
        let told = scene.wait_for(both, "Unknown", "KubeletStoppedByOperator")?;
        std::thread::sleep(GRACE + Duration::from_secs(2)); // as above
        let now = scene.now()?;
        ensure!(now.reason == "KubeletStoppedByOperator", "{now:?}");
        ensure!(!now.message.contains("containerd"), "{now:?}");
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown"])?;
        ensure!(told.status == "Unknown", "{told:?}");
        Ok(())
    })
}

fn what_excludes_it_comes_and_goes() -> Result<()> {
    tied("dependency-conflicts", "Conflicts=exclusive.service")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl start exclusive")?;
        let told = scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        ensure!(
            told.message.contains("Conflicts=exclusive.service"),
            "{told:?}"
        );
        scene.ensure_still(&told)?;
        let ended = Instant::now();
        scene.node.sh("systemctl kill --signal=KILL exclusive")?;
        is_told_and_ends(scene, ended, "Conflicts=exclusive.service")?;
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown", "False"])
    })
}

fn a_runtime_that_dies_takes_a_chain_along() -> Result<()> {
    tied(
        "dependency-chain",
        "BindsTo=between.service\nAfter=between.service",
    )?
    .play(|scene| {
        let from = Instant::now();
        scene
            .node
            .sh("systemctl kill --kill-who=main --signal=KILL containerd")?;
        let told = is_told_and_ends(scene, from, "BindsTo=containerd.service")?;
        ensure!(told.message.contains("BindsTo=between.service"), "{told:?}");
        scene.revive()?;
        scene.ensure_only(from, &["True", "Unknown", "False"])?;
        // The same chain, stopped by a person at its far end.
        let stopped = Instant::now();
        scene.node.sh("systemctl stop containerd")?;
        let told = scene.wait_for(stopped, "Unknown", "KubeletStoppedByOperator")?;
        ensure!(
            told.message.contains("BindsTo=containerd.service"),
            "{told:?}"
        );
        std::thread::sleep(GRACE + Duration::from_secs(2)); // that nothing happens shows in nothing but time
        let now = scene.now()?;
        ensure!(now.reason == "KubeletStoppedByOperator", "{now:?}");
        scene.node.sh("systemctl start containerd between")?;
        scene.revive().map(drop)
    })
}

fn who_stops_both_means_the_kubelet_too() -> Result<()> {
    tied("dependency-both", "Requires=containerd.service")?.play(|scene| {
        for command in ["stop containerd kubelet", "stop kubelet containerd"] {
            let from = Instant::now();
            scene.node.sh(&format!("systemctl {command}"))?;
            scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
            scene.node.sh("systemctl start containerd")?;
            std::thread::sleep(GRACE + Duration::from_secs(2)); // that nothing happens shows in nothing but time
            let now = scene.now()?;
            ensure!(
                now.reason == "KubeletStoppedByOperator",
                "{command}: {now:?}"
            );
            scene.revive()?;
            scene.ensure_only(from, &["True", "Unknown"])?;
        }
        Ok(())
    })
}
