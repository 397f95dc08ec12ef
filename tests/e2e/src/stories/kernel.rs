//! The kernel: what it logs itself, what others write into its log, its limits, and what waits in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::scene::{Condition, ConditionView, ObservedNode, Scene};
use crate::support::WAIT;

/// A directory of the node for a file system of a story.
pub const DIRECTORY: &str = "/mnt/story";
/// The agent reads limits and processes every 30 s, and has to find a problem several times.
const LONG: Duration = Duration::from_mins(4);

fn kernel(node: &ObservedNode) -> ConditionView<'_> {
    node.condition("NodeKernelHealthy")
}

/// A node whose kernel is healthy; returns what it shows.
fn healthy(scene: &Scene) -> Result<(Arc<ObservedNode>, Condition)> {
    let from = Instant::now();
    let node = scene.healthy()?;
    let shown = kernel(&node).wait_for(from, "True", "KernelIsHealthy")?;
    Ok((node, shown))
}

/// Mounts a file system of 8 MiB on a loop device at [`DIRECTORY`]. `change` is a command of debugfs(8) that changes it before
/// (`stats` changes nothing).
pub fn mount_image(node: &ObservedNode, change: &str) -> Result<()> {
    node.sh(&format!(
        "mkdir -p {DIRECTORY} && truncate -s 8M /run/story.img && mkfs.ext4 -q -d /etc/containerd /run/story.img
         debugfs -w -R '{change}' /run/story.img 2>/dev/null
         mount -o loop /run/story.img {DIRECTORY}"
    ))
    .map(drop)
}

/// What user space writes into the kernel's log has a facility other than the kernel's, whatever it asks for.
pub fn forged_lines_change_nothing(scene: &Scene) -> Result<()> {
    let (node, before) = healthy(scene)?;
    let pid = node.main_pid("kubelet")?;
    for line in [
        format!("INFO: task kubelet:{pid} blocked for more than 122 seconds."),
        "watchdog: Watchdog detected hard LOCKUP on cpu 3".into(),
        "{1}[Hardware Error]: event severity: fatal".into(),
        format!("Memory cgroup out of memory: Killed process {pid} (kubelet) total-vm:9kB, anon-rss:8kB, file-rss:0kB"),
    ] {
        node.sh(&format!("echo '<0>{line}' >/dev/kmsg"))?;
    }
    kernel(&node).ensure_unchanged(&before)?;
    node.kill_for_good()?;
    kernel(&node).ensure_unchanged(&before)?;
    node.start_kubelet().map(drop)
}

/// ext4 finds a directory's entry whose inode was cleared.
pub fn an_error_of_a_file_system_is_a_warning(scene: &Scene) -> Result<()> {
    let (node, before) = healthy(scene)?;
    mount_image(&node, "clri config.toml")?;
    let from = Instant::now();
    node.run(&format!("cat {DIRECTORY}/config.toml"))?;
    let shown = kernel(&node).wait_for(from, "True", "KernelTroubleLogged")?;
    ensure!(shown.message.contains("ext4 error") && shown.message.contains("EXT4-fs error (device loop"), "{shown:?}");
    node.sh(&format!("umount {DIRECTORY}"))?;
    kernel(&node).ensure_no_flip(&before)?;
    let events = node.events(scene.plane())?;
    let warning = ("Warning".to_owned(), "KernelTroubleLogged".to_owned());
    ensure!(events.contains(&warning), "{events:?}");
    Ok(())
}

/// Since Linux 6.14 each PID namespace, and so each node, has a `kernel.pid_max` of its own. The threads are those of the whole machine.
pub fn few_process_ids_left_are_a_warning(scene: &Scene) -> Result<()> {
    let (node, before) = healthy(scene)?;
    let threads: u64 = node.sh("cut -d/ -f2 /proc/loadavg | cut -d' ' -f1")?.trim().parse().context("/proc/loadavg")?;
    let usual = node.sh("cat /proc/sys/kernel/pid_max")?;
    // 300 are reserved (include/linux/pid.h). Fewer than there are threads, as some may end meanwhile.
    let set = |max: &str| node.sh(&format!("echo {max} >/proc/sys/kernel/pid_max"));
    let from = Instant::now();
    set(&(threads * 8 / 10 + 300).to_string())?;
    let shown = kernel(&node).wait_longer_for(from, LONG, "True", "KernelLimitNearlyReached")?;
    ensure!(shown.message.contains("kernel.pid_max"), "{shown:?}");
    let raised = Instant::now();
    set(usual.trim())?;
    kernel(&node).wait_longer_for(raised, WAIT, "True", "KernelIsHealthy")?;
    kernel(&node).ensure_no_flip(&before)
}

/// Takes 200 tracked connections.
const CONNECTIONS: &str = "\
import socket, time
all = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
while True:
    for one in all: one.sendto(b'', ('127.0.0.1', 9))
    time.sleep(5)
";

pub fn a_full_connection_table_is_a_warning(scene: &Scene) -> Result<()> {
    let (node, before) = healthy(scene)?;
    let from = Instant::now();
    node.sh(&format!(
        "nft 'add table ip e2e; add chain ip e2e output {{ type filter hook output priority 0; }}; add rule ip e2e output ct state new accept'
         sysctl -w net.netfilter.nf_conntrack_max=150
         systemd-run --unit=connections python3 -c \"{CONNECTIONS}\""
    ))?;
    let shown = kernel(&node).wait_for(from, "True", "KernelTroubleLogged")?;
    ensure!(shown.message.contains("full connection table"), "{shown:?}");
    node.sh("systemctl stop connections")?;
    kernel(&node).ensure_no_flip(&before)?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}

/// A frozen file system, which is thawed whatever becomes of the story: what waits for it cannot be killed.
pub struct Frozen<'a>(&'a ObservedNode);

impl<'a> Frozen<'a> {
    pub fn new(node: &'a ObservedNode) -> Result<Self> {
        // The first one if the run is killed.
        node.sh(&format!(
            "(sleep 290; fsfreeze --unfreeze {DIRECTORY}) >/dev/null 2>&1 &
             fsfreeze --freeze {DIRECTORY}"
        ))?;
        Ok(Self(node))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&format!("fsfreeze --unfreeze {DIRECTORY}")); // it fails if the node has ended
    }
}

/// Then it closes its files and waits for good. In a container it would end, and so would the node.
pub fn a_systemd_that_has_crashed_is_a_problem(scene: &Scene) -> Result<()> {
    const SILENT: Duration = Duration::from_mins(6);
    let (node, _) = healthy(scene)?;
    let from = Instant::now();
    node.sh("kill -SEGV 1")?;
    let shown = kernel(&node).wait_longer_for(from, SILENT, "False", "SystemdCrashed")?;
    ensure!(shown.message.contains("has closed /run/systemd/private"), "{shown:?}");
    node.kubelet().ensure_only(from, &["True"])
}

/// systemd writes a drop-in for `systemctl set-property` itself, here to a file system that lets no write finish.
pub fn a_systemd_that_waits_in_the_kernel_is_deadlocked(scene: &Scene) -> Result<()> {
    let (node, _) = healthy(scene)?;
    mount_image(&node, "stats")?;
    node.sh(&format!("mkdir -p /etc/systemd/system.control && mount --bind {DIRECTORY} /etc/systemd/system.control"))?;
    let frozen = Frozen::new(&node)?;
    let from = Instant::now();
    node.sh("systemctl set-property containerd.service CPUWeight=200 >/dev/null 2>&1 &")?;
    let shown = kernel(&node).wait_longer_for(from, LONG, "False", "KernelDeadlocked")?;
    ensure!(shown.message.contains("PID 1"), "{shown:?}");
    node.kubelet().ensure_only(from, &["True", "Unknown"])?;
    let thawed = Instant::now();
    drop(frozen);
    // Where the kernel has logged the hung task too, that stays a warning for five minutes.
    kernel(&node).wait_until_shown(thawed, |shown| shown.status == "True").map(drop)
}
