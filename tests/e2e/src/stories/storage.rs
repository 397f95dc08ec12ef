//! A kubelet whose files are on a disk of their own, an ext4 on a loop device, and what may happen to that.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::scene::{Condition, ConditionView, ObservedNode, Scene};

/// The kubelet's --root-dir.
const ROOT: &str = "/srv/kubelet";
/// Has the image of its disk, on an ext4 of its own: while that is frozen, the disk completes nothing.
const IMAGES: &str = "/srv/images";
/// Has the kubelet's static Pods.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// The kubelet reports a sync loop that stands still after five minutes.
const SYNC_LOOP: Duration = Duration::from_mins(9);
/// A sampled problem is `Unknown` until the Node is two minutes old.
const LONG: Duration = Duration::from_mins(3);

fn storage(node: &ObservedNode) -> ConditionView<'_> {
    node.condition("NodeStorageHealthy")
}

/// A node whose kubelet is healthy, and so is its disk, to which test writes are made.
fn node_with_disk(scene: &Scene) -> Result<Arc<ObservedNode>> {
    node_with_mounted_disk(scene, &format!("mount -o loop,errors=remount-ro {IMAGES}/disk"))
}

/// The same, of a disk that `mount` mounts, but for the path.
fn node_with_mounted_disk(scene: &Scene, mount: &str) -> Result<Arc<ObservedNode>> {
    let disk = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -ec 'truncate -s 64M /run/images; mkfs.ext4 -q -F /run/images; mkdir -p {IMAGES} {ROOT}; \
         mount -o loop /run/images {IMAGES}; truncate -s 32M {IMAGES}/disk; mkfs.ext4 -q -F {IMAGES}/disk; \
         {mount} {ROOT}; mkdir -m 700 {ROOT}/.nodevigil'\n"
    );
    let kubelet = format!(
        "[Unit]\nRequires=disk.service\nAfter=disk.service\n\
         [Service]\nEnvironment=\"KUBELET_KUBEADM_ARGS=--root-dir={ROOT} --pod-manifest-path={MANIFESTS}\"\n"
    );
    let sandbox = format!("[Service]\nReadWritePaths=-{ROOT}/.nodevigil\n");
    let from = Instant::now();
    let node = scene.healthy_with(|node| {
        node.file("/etc/systemd/system/disk.service", &disk)
            .file("/etc/systemd/system/nodevigil.service.d/60-story.conf", &sandbox)
            .kubelet_unit(&kubelet)
    })?;
    wait_until_well(&node, from)?;
    Ok(node)
}

fn wait_until_well(node: &ObservedNode, from: Instant) -> Result<Condition> {
    let is_well = |shown: &Condition| {
        shown.reason == "StorageIsHealthy" && shown.message.contains(&format!("a test write to {ROOT} (ext4, /dev/"))
    };
    storage(node).wait_until_shown(from, is_well)
}

fn wait_for(node: &ObservedNode, from: Instant, reason: &str, parts: &[&str]) -> Result<Condition> {
    let shown = storage(node).wait_longer_for(from, LONG, "False", reason)?;
    let device = device(node)?;
    for part in parts.iter().copied().chain([ROOT, &device]) {
        ensure!(shown.message.contains(part), "{part} is missing: {shown:?}");
    }
    Ok(shown)
}

/// The loop device, such as /dev/loop0.
fn device(node: &ObservedNode) -> Result<String> {
    node.sh(&format!("findmnt -no SOURCE {ROOT}")).map(|source| source.trim().to_owned())
}

pub fn a_mount_that_becomes_read_only_is_a_problem_until_it_is_writable(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let from = Instant::now();
    // Of the mount alone, which is busy only at the moments in which the kubelet has a file open for writing (mount(2), EBUSY). The
    // file system itself is for longer.
    node.sh(&format!("timeout 60 sh -c 'until mount -o remount,bind,ro {ROOT}; do sleep 0.1; done'"))?;
    wait_for(&node, from, "FilesystemReadOnly", &["is mounted read-only"])?;
    let remounted = Instant::now();
    node.sh(&format!("mount -o remount,bind,rw {ROOT}"))?;
    wait_until_well(&node, remounted)?;
    storage(&node).ensure_only(from, &["True", "False"])?;
    node.kubelet().ensure_only(from, &["True"])?;
    let left = node.sh(&format!("ls -A {ROOT}/.nodevigil"))?;
    ensure!(left.is_empty(), "left behind: {left}");
    Ok(())
}

pub fn a_file_system_that_the_kernel_makes_read_only_is_a_problem(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let device = device(&node)?;
    let name = device.strip_prefix("/dev/").context("a device is in /dev")?;
    let from = Instant::now();
    let path = format!("/sys/fs/ext4/{name}/trigger_fs_error");
    if node.guest().is_ok() {
        node.sh(&format!("echo 1 >{path}"))?;
    } else {
        fs::write(&path, "1").with_context(|| format!("writing {path}"))?; // the node's own /sys is read-only
    }
    let shown = wait_for(&node, from, "FilesystemReadOnly", &["after an error"])?;
    // What the agent knew of the disk before is not needed for that.
    node.restart_agent("systemctl restart nodevigil")?;
    storage(&node).ensure_unchanged(&shown)?;
    storage(&node).ensure_only(from, &["True", "False"])
}

pub fn a_file_system_that_fails_is_a_problem(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let from = Instant::now();
    // EXT4_IOC_SHUTDOWN (include/uapi/linux/ext4.h) without a flush of the journal: as after the loss of the disk, every access is an
    // I/O error.
    node.sh(&format!(
        "python3 -c 'import fcntl, os, struct
fcntl.ioctl(os.open(\"{ROOT}\", os.O_RDONLY), 0x8004587d, struct.pack(\"I\", 2))'"
    ))?;
    wait_for(&node, from, "StorageIOError", &["Input/output error"])?;
    storage(&node).ensure_only(from, &["True", "False"])
}

pub fn a_full_file_system_is_a_problem_until_there_is_space(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let from = Instant::now();
    // Again and again, as what the kubelet deletes is space.
    node.sh(&format!(
        "systemd-run --quiet --unit=filler sh -c 'while :; do dd if=/dev/zero of={ROOT}/fill bs=4k oflag=append conv=notrunc; sleep 0.5; done'"
    ))?;
    wait_for(&node, from, "StorageFull", &["has no space left"])?;
    let removed = Instant::now();
    node.sh(&format!("systemctl stop filler; rm {ROOT}/fill"))?;
    wait_until_well(&node, removed)?;
    // No container starts either where the runtime can create no file for it.
    let used_up = Instant::now();
    node.sh(
        "mkdir /run/fill; systemd-run --quiet --unit=filler sh -c 'while :; do mktemp -p /run/fill || sleep 0.5; done'; \
         mount -o remount,nr_inodes=$(($(df --output=iused /run | tail -n 1) + 99)) /run",
    )?;
    let shown = storage(&node).wait_longer_for(used_up, LONG, "False", "StorageFull")?;
    ensure!(shown.message.contains("/run (tmpfs) has no inodes left"), "{shown:?}");
    let freed = Instant::now();
    node.sh("mount -o remount,nr_inodes=0 /run; systemctl stop filler; rm -r /run/fill")?;
    wait_until_well(&node, freed)?;
    // The Node was too young for a sampled problem at first.
    storage(&node).ensure_only(from, &["True", "Unknown", "False"])
}

/// Thaws the file system whatever becomes of the story: a process that waits for it cannot be killed.
struct Frozen<'a>(&'a ObservedNode, &'static str);

impl<'a> Frozen<'a> {
    fn freeze(node: &'a ObservedNode, path: &'static str) -> Result<Self> {
        // In case the story is ended meanwhile.
        node.sh(&format!("systemd-run --quiet sh -c 'sleep 700; fsfreeze -u {path}'"))?;
        let frozen = Self(node, path);
        node.sh(&format!("sync -f {path}; fsfreeze -f {path}"))?;
        Ok(frozen)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&format!("fsfreeze -u {}", self.1)); // it may be thawed already
    }
}

pub fn a_disk_that_completes_nothing_is_a_problem_and_a_frozen_file_system_is_none(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let from = Instant::now();
    let frozen = Frozen::freeze(&node, IMAGES)?;
    wait_for(&node, from, "StorageHung", &["its disk completes no request"])?;
    let probes = node.sh("pgrep -c -f 'probe-disk( .*)? /srv/kubelet( |$)'")?;
    ensure!(probes.trim() == "1", "{probes} probes at a time");
    let (code, diagnosis) = node.run("timeout 10 nodevigil diagnose -o json")?;
    ensure!(code != 124 && diagnosis.contains(&format!("the first test write to {ROOT}")), "{code}: {diagnosis}");
    let thawed = Instant::now();
    drop(frozen);
    wait_until_well(&node, thawed)?;
    storage(&node).ensure_only(from, &["True", "Unknown", "False"])?;

    let from = Instant::now();
    let frozen = Frozen::freeze(&node, ROOT)?;
    let shown = storage(&node).wait_longer_for(from, LONG, "Unknown", "StorageProbeFailed")?;
    ensure!(shown.message.contains("fsfreeze"), "{shown:?}");
    let thawed = Instant::now();
    drop(frozen);
    wait_until_well(&node, thawed)?;
    storage(&node).ensure_only(from, &["True", "Unknown"])?;
    node.kubelet().ensure_only(from, &["True"])
}

/// The kubelet writes down what it has allocated to a new Pod in its sync loop, and does so for good if the write does not end.
pub fn a_sync_loop_that_waits_for_a_disk_is_a_hang_although_the_kubelet_answers(scene: &Scene) -> Result<()> {
    let node = node_with_disk(scene)?;
    let from = Instant::now();
    let frozen = Frozen::freeze(&node, ROOT)?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "none.invalid/c"}]}});
    node.sh(&format!("mkdir -p {MANIFESTS}; echo '{pod}' >{MANIFESTS}/p.json"))?;
    let shown = node.kubelet().wait_longer_for(from, SYNC_LOOP, "False", "KubeletHung")?;
    ensure!(shown.message.contains("its sync loop has not run for over 5 minutes"), "{shown:?}");
    let thawed = Instant::now();
    drop(frozen);
    node.kubelet().wait_longer_for(thawed, LONG, "True", "KubeletIsHealthy").map(drop)
}

/// As of a volume that is gone. Only a guest has device-mapper to itself.
pub fn a_disk_that_fails_every_request_is_a_problem(scene: &Scene) -> Result<()> {
    let node = node_with_mounted_disk(
        scene,
        "dmsetup create story --table \"0 65536 linear /dev/vdc 0\"; mkfs.ext4 -q -F /dev/dm-0; mount -o errors=remount-ro /dev/dm-0",
    )?;
    let from = Instant::now();
    node.sh("dmsetup load story --table '0 65536 error' && dmsetup suspend --nolockfs story && dmsetup resume story")?;
    let is_it = |shown: &Condition| ["StorageIOError", "FilesystemReadOnly"].contains(&shown.reason.as_str());
    let shown = storage(&node).wait_until_shown(from, |shown| shown.status == "False" && is_it(shown))?;
    ensure!(shown.message.contains(ROOT), "{shown:?}");
    storage(&node).ensure_no_flip(&shown)?;
    storage(&node).ensure_only(from, &["True", "False"])
}

/// The emulator lets through one byte a second. The kernel logs the tasks that wait for it.
pub fn a_disk_that_hangs_is_a_problem_and_hangs_tasks(scene: &Scene) -> Result<()> {
    let node = node_with_mounted_disk(scene, "mkfs.ext4 -q -F /dev/vdc; mount -o errors=remount-ro /dev/vdc")?;
    node.sh("sysctl -w kernel.hung_task_timeout_secs=20")?;
    let limit = |bytes: u32| node.guest()?.monitor(&format!("block_set_io_throttle virtio2 {bytes} 0 0 0 0 0"));
    let from = Instant::now();
    limit(1)?;
    wait_for(&node, from, "StorageHung", &["its disk completes no request"])?;
    let logged = node.condition("NodeKernelHealthy").wait_for(from, "True", "KernelTroubleLogged")?;
    ensure!(logged.message.contains("hung task"), "{logged:?}");
    let repaired = Instant::now();
    limit(0)?;
    wait_until_well(&node, repaired)?;
    storage(&node).ensure_only(from, &["True", "Unknown", "False"])?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}
