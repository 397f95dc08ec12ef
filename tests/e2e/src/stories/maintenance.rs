//! Somebody works on the node, which a taint on the Node or the lock of a package manager shows.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::Scene;

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

pub fn a_crash_during_a_package_upgrade_is_reported_after_it(scene: &Scene) -> Result<()> {
    const LOCK: &str = "/var/lib/dpkg/lock-frontend";
    let node = scene.healthy_with(|node| node.file(LOCK, ""))?;
    let before = node.kubelet().shown()?;
    let lock = || {
        // As dpkg does. flock(1) takes a lock of another class.
        let program = format!(
            "import fcntl, time; lock = open('{LOCK}', 'r+'); fcntl.lockf(lock, fcntl.LOCK_EX); time.sleep(9999)"
        );
        let is_held = format!("grep -q \"POSIX .* WRITE .*:$(stat -c %i {LOCK}) \" /proc/locks");
        node.sh(&format!("systemd-run --unit=upgrade python3 -c \"{program}\"; until {is_held}; do sleep 0.1; done"))
    };
    lock()?;
    // As a script of the package that knows nothing of systemd: it kills the old kubelet, and the new one is started.
    let killed = node.kill_kubelet()?;
    node.wait_for_log("dpkg is installing or removing packages")?;
    node.wait_for_status("the agent to see the next kubelet", |status| {
        let pid = status["kubelet"]["pid"].as_u64();
        pid.is_some_and(|pid| pid != u64::from(killed)) && status["conditions"][0]["status"] == "True"
    })?;
    node.sh("systemctl stop upgrade")?;
    node.kubelet().ensure_unchanged(&before)?;
    lock()?;
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
