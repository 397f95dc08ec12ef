//! `[kubernetes] profile`: the same conditions under names that other controllers know.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::scene::{ObservedNode, Scene};
use crate::support::{WAIT, wait_until};

const SETTINGS: &str = "/etc/nodevigil/config.d/60-story.toml";

fn set_profile(node: &ObservedNode, profile: &str) -> Result<Instant> {
    node.sh(&format!("printf '[kubernetes]\\nprofile = \"{profile}\"\\n' >{SETTINGS}"))?;
    let from = Instant::now();
    node.restart_agent("systemctl restart nodevigil")?;
    Ok(from)
}

pub fn conditions_have_the_names_of_the_profile_beside_their_own(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let native = node.kubelet().shown()?;
    let from = set_profile(&node, "npd")?;
    let healthy = node.condition("KubeletUnhealthy").wait_for(from, "False", "KubeletIsHealthy")?;
    node.condition("XfsShutdown").wait_for(from, "False", "XfsHasNotShutDown")?;
    node.condition("FrequentContainerdRestart").wait_for(from, "False", "NoFrequentContainerdRestart")?;
    let frequent = node.condition("FrequentKubeletRestart");
    let no_restarts = frequent.wait_for(from, "False", "NoFrequentKubeletRestart")?;
    node.kubelet().ensure_unchanged(&native)?;
    node.kill_for_good()?;
    let crashed = node.condition("KubeletUnhealthy").wait_for(from, "True", "KubeletUnhealthy")?;
    ensure!(crashed.since >= healthy.since, "{healthy:?}, then {crashed:?}");
    frequent.ensure_unchanged(&no_restarts)?;

    let from = set_profile(&node, "eks")?;
    node.condition("ContainerRuntimeReady").wait_for(from, "False", "KubeletCrashed")?;
    node.condition("KernelReady").wait_until_shown(from, |shown| shown.status == "True")?;
    let last = node.watch().since(None).pop();
    let has = |kind: &str| last.as_ref().is_some_and(|(_, node)| node["status"].to_string().contains(kind));
    ensure!(has("KubeletHealthy") && !has("KubeletUnhealthy"), "the names of npd are still there: {last:?}");
    let from = Instant::now();
    node.start_kubelet()?;
    node.condition("ContainerRuntimeReady").wait_until_shown(from, |shown| shown.status == "True")?;
    Ok(())
}

pub fn a_profile_in_place_of_the_native_names_keeps_its_times_through_a_restart(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let ready = node.condition("ContainerRuntimeReady");
    set_profile(&node, "eks")?;
    let from = Instant::now();
    node.kill_for_good()?;
    let crashed = ready.wait_for(from, "False", "KubeletCrashed")?;
    node.sh(&format!("echo 'profile_only = true' >>{SETTINGS}"))?;
    for _ in 0..2 {
        node.sh("systemctl restart nodevigil")?;
        let is_gone = || {
            let shown = scene.plane().node(node.name())?.context("no Node")?;
            let kinds = shown["status"]["conditions"].as_array().into_iter().flatten();
            let native = kinds.filter(|one| one["type"].as_str().is_some_and(|kind| kind.ends_with("Healthy")));
            Ok((native.count() == 0).then_some(()))
        };
        wait_until("the native names to be gone", WAIT, is_gone)?;
        ready.ensure_no_flip(&crashed)?;
    }
    let from = Instant::now();
    node.sh("systemctl start kubelet")?;
    ready.wait_until_shown(from, |shown| shown.status == "True").map(drop)
}
