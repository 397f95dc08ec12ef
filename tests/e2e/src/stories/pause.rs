//! `nodevigil pause` and `nodevigil resume`.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{Scene, wait_a_second};

pub fn a_pause_lifts_a_problem_until_it_ends(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    let from = Instant::now();
    node.sh("SUDO_USER=ann nodevigil pause 1h --reason 'disk swap'")?;
    let paused = node.wait_for(from, "Unknown", "NodePaused")?;
    let (_, table) = node.run("nodevigil status")?;
    ensure!(table.contains("Paused by ann until ") && table.contains(": disk swap"), "{table}");
    ensure!(paused.message.contains("KubeletCrashed"), "{paused:?}");
    node.restart_agent("systemctl restart nodevigil")?;
    node.ensure_unchanged(&paused)?;
    wait_a_second();
    let resumed = Instant::now();
    node.sh("nodevigil resume")?;
    let again = node.wait_for(resumed, "False", "KubeletCrashed")?;
    ensure!(again.since > crashed.since, "{crashed:?}, then {again:?}");
    node.start_kubelet()?;
    node.ensure_only(crashed.at, &["False", "Unknown", "True"])
}
