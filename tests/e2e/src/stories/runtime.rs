//! The container runtime's life: each way to fail with its reason, what is no fault, and what is not the runtime at all.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::{Condition, ConditionView, ObservedNode, Scene};
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, wait_until};

/// A node whose agent finds the container runtime healthy. systemd restarts the runtime sooner than after Debian's five seconds.
fn healthy(scene: &Scene, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Result<Arc<ObservedNode>> {
    let (drop_in, restart) = ("/etc/systemd/system/containerd.service.d/50-e2e.conf", "[Service]\nRestartSec=1\n");
    let from = Instant::now();
    let node = scene.healthy_with(|node| change(node.file(drop_in, restart)))?;
    wait_until_healthy(&node, from)?;
    Ok(node)
}

fn runtime(node: &ObservedNode) -> ConditionView<'_> {
    node.condition("ContainerRuntimeHealthy")
}

fn wait_until_healthy(node: &ObservedNode, from: Instant) -> Result<Condition> {
    runtime(node).wait_for(from, "True", "ContainerRuntimeIsHealthy")
}

fn signal(node: &ObservedNode, signal: &str) -> Result<Instant> {
    let at = Instant::now();
    node.sh(&format!("systemctl kill --kill-who=main --signal={signal} containerd"))?;
    Ok(at)
}

/// Waits for a sampled problem, which is no `False` before the Node is two minutes old.
fn wait_for_sampled(node: &ObservedNode, from: Instant, reason: &str) -> Result<Condition> {
    let early =
        runtime(node).wait_until_shown(from, |shown| shown.message.contains(reason) || shown.reason == reason)?;
    if early.status == "False" { Ok(early) } else { runtime(node).wait_for(early.at, "False", reason) }
}

pub fn a_crash_shows_signal_and_pid(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let pid = node.main_pid("containerd")?;
    let shown = runtime(&node).shown()?;
    ensure!(shown.message.contains("containerd ") && shown.message.contains(&format!("(pid {pid})")), "{shown:?}");
    let from = signal(&node, "KILL")?;
    let down = runtime(&node).wait_for(from, "False", "ContainerRuntimeDown")?;
    ensure!(down.message.contains("SIGKILL") && down.message.contains(&format!("pid {pid}")), "{down:?}");
    wait_until_healthy(&node, down.at)?;
    runtime(&node).ensure_only(from, &["True", "False"])
}

pub fn three_ends_within_five_minutes_are_a_crash_loop(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let mut killed = Instant::now();
    for _ in 0..3 {
        let pid = node.main_pid("containerd")?;
        killed = signal(&node, "KILL")?;
        runtime(&node).wait_until_shown(killed, |shown| shown.message.contains(&format!("(pid {pid}) was killed")))?;
        let next = || Ok(node.main_pid("containerd").ok().filter(|next| *next != pid));
        wait_until("another containerd", WAIT, next)?;
    }
    let looping = runtime(&node).wait_for(killed, "False", "ContainerRuntimeCrashLooping")?;
    wait_until_healthy(&node, looping.at).map(drop)
}

/// As NVIDIA's container toolkit restarts it: containerd does not handle SIGHUP, which systemd counts as a clean end.
pub fn a_clean_end_that_systemd_restarts_flips_nothing(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let before = runtime(&node).shown()?;
    for name in ["HUP", "TERM"] {
        let (pid, from) = (node.main_pid("containerd")?, signal(&node, name)?);
        let next = || Ok(node.main_pid("containerd").ok().filter(|next| *next != pid));
        let next = format!("(pid {})", wait_until("another containerd", WAIT, next)?);
        runtime(&node).wait_until_shown(from, |shown| shown.message.contains(&next))?;
    }
    runtime(&node).ensure_no_flip(&before)
}

pub fn a_restart_flips_nothing_and_a_stop_is_no_fault(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let (from, before) = (Instant::now(), runtime(&node).shown()?);
    for command in ["restart", "try-restart"] {
        let restarted = Instant::now();
        node.sh(&format!("systemctl {command} containerd"))?;
        let pid = format!("(pid {})", node.main_pid("containerd")?);
        runtime(&node).wait_until_shown(restarted, |shown| shown.message.contains(&pid))?;
    }
    runtime(&node).ensure_no_flip(&before)?;
    let stopped = Instant::now();
    node.sh("systemctl stop containerd")?;
    let stopped = runtime(&node).wait_for(stopped, "Unknown", "ContainerRuntimeNotFound")?;
    runtime(&node).ensure_unchanged(&stopped)?;
    let started = Instant::now();
    node.sh("systemctl start containerd")?;
    wait_until_healthy(&node, started)?;
    runtime(&node).ensure_only(from, &["True", "Unknown"])
}

pub fn a_stopped_process_is_hung_until_it_continues(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let from = signal(&node, "STOP")?;
    let hung = wait_for_sampled(&node, from, "ContainerRuntimeHung")?;
    ensure!(hung.message.contains("state T"), "{hung:?}");
    runtime(&node).ensure_unchanged(&hung)?;
    // A kubelet that waits for its runtime is not the one that hangs.
    node.kubelet().ensure_only(from, &["True", "Unknown"])?;
    let continued = signal(&node, "CONT")?;
    wait_until_healthy(&node, continued)?;
    runtime(&node).ensure_only(hung.at, &["True", "False"])
}

/// The limit of its own unit. systemd on cgroup v1 reports `Result=signal`, so only the kernel's record shows the OOM kill.
pub fn an_oom_kill_shows_its_limit(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let set_limit = |limit: &str| {
        node.sh(&format!(
            "systemctl set-property --runtime containerd MemoryLimit={limit} MemoryMax={limit}
             systemctl reset-failed containerd
             systemctl restart --no-block containerd"
        ))
    };
    let from = Instant::now();
    set_limit("8M")?;
    let killed = runtime(&node).wait_until_shown(from, |shown| shown.message.contains("limit of "))?;
    ensure!(killed.message.contains("OOM-killed"), "{killed:?}");
    ensure!((killed.status.as_str(), killed.reason.as_str()) == ("False", "ContainerRuntimeDown"), "{killed:?}");
    ensure!(killed.message.contains(&node.unit("containerd")), "{killed:?}");
    let repaired = Instant::now();
    set_limit("infinity")?;
    wait_until_healthy(&node, repaired)?;
    runtime(&node).ensure_only(from, &["True", "False"])
}

/// A containerd without its CRI plugin answers each call with `Unimplemented`.
pub fn a_runtime_without_cri_is_not_ready_when_the_kubelet_reports_so(scene: &Scene) -> Result<()> {
    let settings = "[kubelet]\nstart_grace_secs = 10\n";
    let node = healthy(scene, |node| node.file("/etc/nodevigil/config.d/60-story.toml", settings))?;
    let from = Instant::now();
    node.sh("sed -i '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' /etc/containerd/config.toml
         systemctl restart containerd")?;
    runtime(&node).wait_for(from, "Unknown", "ContainerRuntimeUnconfirmed")?;
    let not_ready = wait_for_sampled(&node, from, "ContainerRuntimeNotReady")?;
    ensure!(not_ready.message.contains("Unimplemented"), "{not_ready:?}");
    let repaired = Instant::now();
    node.sh("sed -i 1d /etc/containerd/config.toml; systemctl restart containerd")?;
    wait_until_healthy(&node, repaired)?;
    Ok(())
}

/// What has the runtime's name and is another user's, or root's outside the runtime's unit.
pub fn another_program_of_that_name_changes_nothing(scene: &Scene) -> Result<()> {
    let node = healthy(scene, |node| node)?;
    let (from, before) = (Instant::now(), runtime(&node).shown()?);
    node.sh("cp /bin/sleep /tmp/containerd
         mkdir /tmp/grows; cp /usr/bin/tail /tmp/grows/containerd
         systemd-run --unit=of-a-user --slice=user-65534.slice --uid=65534 /tmp/containerd 1000
         systemd-run --unit=of-root --slice=user-0.slice /tmp/containerd 1000")?;
    for signal in ["STOP", "KILL"] {
        node.sh(&format!("systemctl kill --signal={signal} of-a-user of-root"))?;
        runtime(&node).ensure_unchanged(&before)?;
    }
    // It reads zeros without a line's end into its memory, until the kernel OOM-kills it.
    let (_, output) = node.run(
        "systemd-run --wait --unit=grows --slice=user-0.slice -p MemoryLimit=16M -p MemoryMax=16M \
         /tmp/grows/containerd /dev/zero",
    )?;
    let result = node.property("grows", "Result").unwrap_or_default();
    ensure!(result != "success" || output.contains("signal"), "it was not killed: {result} {output}");
    runtime(&node).ensure_unchanged(&before)?;
    runtime(&node).ensure_only(from, &["True"])?;
    let killed = signal(&node, "KILL")?;
    runtime(&node).wait_for(killed, "False", "ContainerRuntimeDown")?;
    Ok(())
}
