//! `[kubernetes] profile`: the same conditions under names that other controllers know.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{ObservedNode, Scene};

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
