//! A firewall on the port of the kubelet's healthz: the kubelet works, and renews its Lease.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::scene::Scene;
use crate::support::rows::row;
use crate::support::trust;

/// A firewall is on the port before the kubelet is: it never answers, and works.
pub(super) fn a_start_behind_a_firewall_is_no_slow_start() -> Result<()> {
    let scene = Scene::healthy_with("firewall-start", |node| {
        node.config("60-grace.toml", "[kubelet]\nstart_grace_secs = 10\n")
    })?;
    scene.play(|scene| {
        scene.wait_for_lease()?;
        let port = scene.node.ports().healthz;
        let table = format!("nodevigil_{port}");
        let from = Instant::now();
        scene.node.sh(&format!(
            "nft add table ip {table} &&
             nft add chain ip {table} input '{{ type filter hook input priority 0; }}' &&
             nft add rule ip {table} input tcp dport {port} drop &&
             systemctl restart kubelet"
        ))?;
        let told = scene.wait_for(from, "True", "KubeletHealthzUnreachable")?;
        row(
            "a firewall on the healthz port, and the kubelet is started behind it",
            "nft drop, systemctl restart kubelet, start_grace_secs = 10",
            "KubeletHealthzUnreachable (True)",
            told.at - from,
        );
        std::thread::sleep(Duration::from_secs(30));
        scene.node.sh(&format!("nft delete table ip {table}"))?;
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        ensure!(
            scene
                .told_since(from)
                .iter()
                .all(|told| told.status != "False"),
            "{:?}",
            scene.told_since(from)
        );
        Ok(())
    })
}

pub(super) fn a_firewall_is_no_hang() -> Result<()> {
    Scene::healthy("firewall")?.play(|scene| {
        scene.wait_for_lease()?; // a node that has just joined has none for some seconds
        let port = scene.node.ports().healthz;
        for (verdict, how) in [("reject with tcp reset", "refuses"), ("drop", "drops")] {
            let table = format!("nodevigil_{port}");
            let from = Instant::now();
            scene.node.sh(&format!(
                "nft add table ip {table} &&
                 nft add chain ip {table} input '{{ type filter hook input priority 0; }}' &&
                 nft add rule ip {table} input tcp dport {port} {verdict}"
            ))?;
            // A kept connection may hang before a new one is tried.
            let told =
                scene.wait_until_told(from, |told| told.reason == "KubeletHealthzUnreachable");
            let still = told.as_ref().ok().map(|told| scene.ensure_still(told));
            scene.node.sh(&format!("nft delete table ip {table}"))?;
            let told = told?;
            still.transpose()?;
            ensure!(told.status == "True", "{told:?}");
            row(
                "healthz behind a firewall",
                &format!("an nft rule that {how}"),
                &told.reason,
                told.at - from,
            );
            scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
            // A firewall on its port is no sick node: it renews its Lease.
            scene.ensure_only(from, &["True"])?;
        }
        trust::row(
            21,
            "a firewall on the port of the kubelet's healthz, and the kubelet works",
            "False, KubeletHealthzDown",
            "True, KubeletHealthzUnreachable (Warning)",
        );
        Ok(())
    })
}
