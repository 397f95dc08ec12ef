//! A firewall on the port of the kubelet's /healthz: the kubelet works, and renews its Lease.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{Condition, ObservedNode, Scene};

/// Drops what is sent to /healthz; returns what the Node then shows.
fn block_healthz(scene: &Scene, node: &ObservedNode) -> Result<Condition> {
    scene.wait_for_lease()?;
    let from = Instant::now();
    node.sh(&format!(
        "nft add table ip e2e
         nft add chain ip e2e input '{{ type filter hook input priority 0; }}'
         nft add rule ip e2e input tcp dport {} drop",
        node.healthz_port()
    ))?;
    node.kubelet().wait_for(from, "True", "KubeletHealthzUnreachable")
}

fn unblock_healthz(node: &ObservedNode) -> Result<()> {
    node.sh("nft delete table ip e2e").map(drop)
}

pub fn a_firewall_on_healthz_is_a_warning(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = Instant::now();
    let unreachable = block_healthz(scene, &node)?;
    node.kubelet().ensure_unchanged(&unreachable)?;
    let events = node.events(scene.plane())?;
    let warning = ("Warning".to_owned(), "KubeletHealthzUnreachable".to_owned());
    ensure!(events.contains(&warning), "{events:?}");
    let unblocked = Instant::now();
    unblock_healthz(&node)?;
    node.kubelet().wait_for(unblocked, "True", "KubeletIsHealthy")?;
    // Whether it is a hang is not known until the kubelet renews its Lease.
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}

pub fn a_crash_behind_a_firewall_is_a_crash(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    block_healthz(scene, &node)?;
    let crashed = node.kill_for_good()?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    unblock_healthz(&node)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "True"])
}
