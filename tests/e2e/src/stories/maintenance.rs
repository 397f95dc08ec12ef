//! Somebody works on the node, which a taint on the Node or the lock of a package manager shows.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::scene::{ObservedNode, Scene};

pub fn a_crash_during_maintenance_is_reported_after_it(scene: &Scene) -> Result<()> {
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    let node = scene.healthy()?;
    let taint = |change: &str| scene.plane().kubectl(&["taint", "node", node.name(), &format!("{TAINT}{change}")]);
    taint("=nodeshutdown:NoSchedule")?;
    node.wait_for_log(TAINT)?;
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    let unknown = node.kubelet().wait_for(from, "Unknown", "NodeInMaintenance")?;
    ensure!(unknown.message.contains(TAINT) && unknown.message.contains("KubeletCrashed"), "{unknown:?}");
    node.kubelet().ensure_unchanged(&unknown)?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])?;
    let removed = Instant::now();
    taint("-")?;
    let crashed = node.kubelet().wait_for(removed, "False", "KubeletCrashed")?;
    taint("=nodeshutdown:NoSchedule")?;
    node.kubelet().ensure_unchanged(&crashed)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "True"])
}

pub fn a_drain_counts_from_its_own_time_and_ends_with_the_cordon(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let (plane, name) = (scene.plane(), node.name());
    let drained_at = |time: &str| {
        let condition = json!({"type": "Drained", "status": "True", "reason": "DrainCompleted", "message": "story",
            "lastHeartbeatTime": time, "lastTransitionTime": time});
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        plane.kubectl(&["patch", "node", name, "--subresource=status", "-p", &patch])
    };
    plane.kubectl(&["cordon", name])?;
    drained_at("2026-01-01T00:00:00Z")?;
    let crashed = node.kill_for_good()?;
    node.start_kubelet()?;

    let now = node.sh("date --utc +%FT%TZ")?;
    drained_at(now.trim())?;
    node.wait_for_log("condition Drained=True")?;
    let from = Instant::now();
    node.kill_kubelet()?;
    let unknown = node.kubelet().wait_for(from, "Unknown", "NodeInMaintenance")?;
    node.kubelet().ensure_unchanged(&unknown)?;
    let from = Instant::now();
    plane.kubectl(&["uncordon", name])?;
    node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(crashed.at, &["False", "True", "Unknown"])
}

/// Holds the lock of a package manager, as it does itself, until the unit `upgrade` is stopped. flock(1) takes a lock of another class.
pub fn hold_lock(node: &ObservedNode, path: &str) -> Result<()> {
    let program =
        format!("import fcntl, time; lock = open('{path}', 'r+'); fcntl.lockf(lock, fcntl.LOCK_EX); time.sleep(9999)");
    let is_held = format!("grep -q \"POSIX .* WRITE .*:$(stat -c %i {path}) \" /proc/locks");
    node.sh(&format!("systemd-run --unit=upgrade python3 -c \"{program}\"; until {is_held}; do sleep 0.1; done"))
        .map(drop)
}

pub fn a_crash_during_a_package_upgrade_is_reported_after_it(scene: &Scene) -> Result<()> {
    const LOCK: &str = "/var/lib/dpkg/lock-frontend";
    let node = scene.healthy_with(|node| node.file(LOCK, ""))?;
    let before = node.kubelet().shown()?;
    hold_lock(&node, LOCK)?;
    // As a script of the package that knows nothing of systemd: it kills the old kubelet, and the new one is started.
    let killed = node.kill_kubelet()?;
    node.wait_for_log("dpkg is installing or removing packages")?;
    // Until it answers, the status from before the upgrade is shown.
    node.wait_for_status("the next kubelet to answer", |status| {
        let message = status["conditions"][0]["message"].as_str().unwrap_or_default();
        message.ends_with("answers on /healthz") && !message.contains(&format!("pid {killed} "))
    })?;
    node.sh("systemctl stop upgrade")?;
    node.kubelet().ensure_unchanged(&before)?;
    hold_lock(&node, LOCK)?;
    node.disable_restart()?;
    node.kill_kubelet()?;
    node.kubelet().ensure_unchanged(&before)?;
    let ended = Instant::now();
    node.sh("systemctl stop upgrade")?;
    let crashed = node.kubelet().wait_for(ended, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    node.start_kubelet()?;
    node.kubelet().ensure_only(before.at, &["True", "False"])
}

/// The scripts of the package stop the kubelet and fail before they start the new one.
pub fn a_kubelet_that_an_upgrade_leaves_stopped_is_a_problem(scene: &Scene) -> Result<()> {
    const LOCK: &str = "/var/lib/dpkg/lock-frontend";
    const LEFT: Duration = Duration::from_mins(13);
    let node = scene.healthy_with(|node| node.file(LOCK, ""))?;
    node.sh("systemctl enable kubelet")?;
    hold_lock(&node, LOCK)?;
    node.sh("systemctl stop kubelet; touch /usr/lib/systemd/system")?;
    let from = Instant::now();
    node.sh("systemctl stop upgrade")?;
    node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
    let shown = node.kubelet().wait_longer_for(from, LEFT, "False", "KubeletLeftStopped")?;
    ensure!(shown.at.duration_since(from) > Duration::from_mins(10), "{shown:?}");
    node.start_kubelet().map(drop)
}
