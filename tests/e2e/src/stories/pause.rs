//! `nodevigil pause` and `nodevigil resume`, and the annotation of the same effect.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{Scene, wait_a_second};

pub fn a_pause_lifts_a_problem_until_it_ends(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    let from = Instant::now();
    node.sh("SUDO_USER=ann nodevigil pause 1h --reason 'disk swap'")?;
    let paused = node.kubelet().wait_for(from, "Unknown", "NodePaused")?;
    let (_, table) = node.run("nodevigil status")?;
    ensure!(table.contains("Paused by ann until ") && table.contains(": disk swap"), "{table}");
    ensure!(paused.message.contains("KubeletCrashed"), "{paused:?}");
    node.restart_agent("systemctl restart nodevigil")?;
    node.kubelet().ensure_unchanged(&paused)?;
    wait_a_second();
    let resumed = Instant::now();
    node.sh("nodevigil resume")?;
    let again = node.kubelet().wait_for(resumed, "False", "KubeletCrashed")?;
    ensure!(again.since > crashed.since, "{crashed:?}, then {again:?}");
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "Unknown", "True"])
}

pub fn an_annotation_pauses_until_it_is_removed(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let annotate = |value: &str| {
        let annotation = format!("nodevigil.io/pause{value}");
        scene.plane().kubectl(&["annotate", "node", node.name(), "--overwrite", &annotation])
    };
    let crashed = node.kill_for_good()?;
    annotate("=true")?;
    node.wait_for_trouble("PauseRefused", &["nodevigil.io/pause=true", "RFC 3339"])?;
    node.kubelet().ensure_unchanged(&crashed)?;
    let until = node.sh("date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ")?.trim().to_owned();
    let from = Instant::now();
    annotate(&format!("={until}"))?;
    let paused = node.kubelet().wait_for(from, "Unknown", "NodePaused")?;
    ensure!(paused.message.contains(&until) && paused.message.contains("KubeletCrashed"), "{paused:?}");
    node.wait_for_no_trouble()?;
    node.restart_agent("systemctl restart nodevigil")?;
    node.kubelet().ensure_unchanged(&paused)?;
    node.kubelet().ensure_only(from, &["False", "Unknown"])?;
    let removed = Instant::now();
    annotate("-")?;
    node.kubelet().wait_for(removed, "False", "KubeletCrashed")?;
    Ok(())
}
