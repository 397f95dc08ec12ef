//! A kubelet that ends again and again, and one that the kernel ends.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{ObservedNode, Scene};

/// A flag that the kubelet had until 1.26.
fn add_removed_flag(node: &ObservedNode) -> Result<Instant> {
    let from = Instant::now();
    node.sh("cp /etc/default/kubelet /run/kubelet.good
         sed -i 's/$/ --container-runtime=remote/' /etc/default/kubelet
         systemctl restart kubelet || true")?;
    Ok(from)
}

fn repair(node: &ObservedNode) -> Result<()> {
    let from = Instant::now();
    node.sh("cp /run/kubelet.good /etc/default/kubelet; systemctl reset-failed kubelet; systemctl restart kubelet")?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    Ok(())
}

pub fn a_flag_that_does_not_exist_is_a_crash_loop(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = add_removed_flag(&node)?;
    let first = node.kubelet().wait_until_shown(from, |shown| shown.status == "False")?;
    let looping = node.kubelet().wait_for(from, "False", "KubeletCrashLooping")?;
    for shown in [first, looping.clone()] {
        ensure!(shown.message.contains("exited with code 1"), "{shown:?}");
    }
    node.kubelet().ensure_unchanged(&looping)?;
    let shown = node.kubelet().shown_since(from);
    let mut problems = shown.iter().filter(|shown| shown.status == "False");
    ensure!(problems.all(|shown| shown.since == looping.since), "more than one transition: {shown:#?}");
    repair(&node)?;
    node.kubelet().ensure_only(from, &["True", "False"])
}

pub fn the_start_limit_counts_as_a_crash_loop(scene: &Scene) -> Result<()> {
    // Three ends: starts at boot do not count. systemd reports Result=start-limit-hit only for a start by a job.
    let limit = "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=3\n";
    let node = scene.healthy_with(|node| node.kubelet_unit(limit))?;
    node.sh("systemctl reset-failed kubelet")?;
    let from = add_removed_flag(&node)?;
    let looping = node.kubelet().wait_for(from, "False", "KubeletCrashLooping")?;
    node.kubelet().ensure_unchanged(&looping)?;
    let state = node.property("kubelet", "ActiveState")?;
    ensure!(state == "failed", "the agent may only observe: {state}");
    repair(&node)?;
    node.kubelet().ensure_only(from, &["True", "False"])
}

/// The limit of its own unit. systemd on cgroup v1 reports `Result=signal`, so only the kernel's record shows the OOM kill.
pub fn an_oom_kill_shows_its_limit(scene: &Scene) -> Result<()> {
    // Time to see the first of them, because the kubelet is killed at each start.
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nRestartSec=3\n"))?;
    let set_limit = |limit: &str| {
        node.sh(&format!(
            "systemctl set-property --runtime kubelet MemoryLimit={limit} MemoryMax={limit}
             systemctl restart kubelet || true"
        ))
    };
    let from = Instant::now();
    set_limit("8M")?;
    let first = node.kubelet().wait_for(from, "False", "KubeletOOMKilled")?;
    ensure!(first.message.contains("pid "), "{first:?}");
    // With cgroup v2 systemd may report the OOM kill before the kernel has logged it.
    let killed = node.kubelet().wait_until_shown(from, |shown| shown.message.contains("limit of "))?;
    ensure!(killed.message.contains(&node.unit("kubelet")), "{killed:?}");
    let repaired = Instant::now();
    set_limit("infinity")?;
    node.kubelet().wait_for(repaired, "True", "KubeletIsHealthy")?;
    node.kubelet().ensure_only(from, &["True", "False"])
}
