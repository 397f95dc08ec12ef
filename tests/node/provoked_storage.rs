//! Storage on a real node: a kubelet whose root has a file system of its own that is full, out of inodes, read-only, broken
//! or hanging, and each time comes back.
//!
//! It is a tmpfs where that will do, else an ext4 on a loop device of ours.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{AGENT, HELPER, KUBELET, Scene};
use crate::support::api::condition;
use crate::support::control_plane::ControlPlane;
use crate::support::rows::row;
use crate::support::say;
use crate::trial;

const TYPE: &str = "NodeStorageHealthy";
const ROOT: &str = "/srv/kubelet";
/// Longer than the interval and three looks, on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The shortest that may be configured.
const SETTINGS: &str = "[kubernetes]\ndialects = [\"native\", \"eks\", \"npd\"]\n[storage]\ninterval_secs = 10\nwrite_deadline_secs = 2\n";
const SANDBOX: &str = "[Service]\nReadWritePaths=-/srv/kubelet/.nodevigil\n";
const TMPFS: &str = "mount -t tmpfs -o size=8m,nr_inodes=2000,mode=700 disk /srv/kubelet";
const EXT4: &str = "truncate -s 64M /run/disk.img; mkfs.ext4 -q -F /run/disk.img; \
    mount -o loop,errors=remount-ro /run/disk.img /srv/kubelet";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("storage::full", no_room_and_no_inodes),
        trial("storage::read_only", a_remount_is_told_and_ends),
        trial("storage::error", an_ext4_error_makes_it_read_only),
        trial("storage::broken", a_file_system_that_was_shut_down_fails),
        trial("storage::hang", a_write_that_hangs_blocks_nobody_else),
        trial(
            "storage::default",
            a_plain_node_is_well_and_nothing_is_left_behind,
        ),
    ]
}

/// What the Node said of its storage, and when a watch heard it.
struct Said {
    at: Instant,
    condition: Value,
}

impl Said {
    fn message(&self) -> &str {
        self.condition["message"].as_str().unwrap_or_default()
    }
}

/// A node whose kubelet's root is mounted so, with the agent at work and its storage well.
fn scene(name: &str, mount: &str) -> Result<Scene> {
    let unit = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -ec 'mkdir -p {ROOT}; {mount}; mkdir -p -m 700 {ROOT}/.nodevigil'\n"
    );
    let after = "[Unit]\nRequires=disk.service\nAfter=disk.service\n";
    let system = "/etc/systemd/system";
    let scene = Scene::booted(&ControlPlane::shared()?, name, |node| {
        node.file(&format!("{system}/disk.service"), &unit, 0o644)
            .file(
                &format!("{system}/kubelet.service.d/60-disk.conf"),
                after,
                0o644,
            )
            .file(&format!("{system}/{HELPER}.d/60-disk.conf"), SANDBOX, 0o644)
            .kubelet_argument(&format!("--root-dir={ROOT}"))
            .config("60-storage.toml", SETTINGS)
    })?;
    let from = Instant::now();
    let scene = scene.start()?;
    is_well(&scene, from)?;
    Ok(scene)
}

/// Waits until the kubelet's root is well. A hint may be on it: all nodes of this machine hear one kernel, which speaks of
/// a loop device that another test had before.
fn is_well(scene: &Scene, from: Instant) -> Result<Said> {
    wait_for(scene, from, |condition| {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "True" && message.contains(ROOT)
    })
}

fn wait(scene: &Scene, from: Instant, status: &str, reason: &str) -> Result<Said> {
    wait_for(scene, from, |condition| {
        condition["status"] == status && condition["reason"] == reason
    })
    .with_context(|| {
        let (_, log) = scene
            .node
            .run("journalctl --no-pager -o short-precise -n 40 -u 'nodevigil*'; cat /proc/mounts | grep srv; df /srv/kubelet; df -i /srv/kubelet")
            .unwrap_or_default();
        format!("waiting for {status}/{reason}:\n{log}")
    })
}

fn wait_for(scene: &Scene, from: Instant, wanted: impl Fn(&Value) -> bool) -> Result<Said> {
    let has = |event: &Value| condition(event, TYPE).is_some_and(&wanted);
    let (at, event) = scene.watch.wait_since(from, SOON, has)?;
    let condition = condition(&event, TYPE).context("it has it")?.clone();
    Ok(Said { at, condition })
}

/// Does something to the storage, and waits until the Node says so; the row for the table.
fn provoke(scene: &Scene, what: &str, how: &str, reason: &str) -> Result<Said> {
    let from = Instant::now();
    scene.node.sh(how)?;
    told(scene, from, what, how, reason)
}

fn told(scene: &Scene, from: Instant, what: &str, how: &str, reason: &str) -> Result<Said> {
    let said = wait(scene, from, "False", reason)?;
    let message = said.message();
    ensure!(message.contains(ROOT) && message.len() <= 1024, "{message}");
    row(what, how, reason, said.at - from);
    say(&format!("{reason}: {message}"));
    Ok(said)
}

/// Mends it, and waits until the Node says that all is well.
fn mend(scene: &Scene, how: &str) -> Result<()> {
    let from = Instant::now();
    scene.node.sh(how)?;
    let well = wait(scene, from, "True", "StorageIsHealthy")?;
    say(&format!(
        "well again {:.1} s after `{how}`",
        (well.at - from).as_secs_f64()
    ));
    Ok(())
}

/// By its process, and by systemd's count of its starts.
fn kubelet(scene: &Scene) -> Result<(i32, String)> {
    Ok((
        scene.node.main_pid(KUBELET)?,
        scene.property(KUBELET, "NRestarts")?,
    ))
}

/// The story, with nothing acted upon.
fn untouched(scene: Scene, story: impl FnOnce(&Scene) -> Result<()>) -> Result<()> {
    scene.play(|scene| {
        let (before, agent) = (kubelet(scene)?, scene.node.main_pid(AGENT)?);
        story(scene)?;
        let after = kubelet(scene)?;
        ensure!(
            before == after,
            "another kubelet: {before:?}, then {after:?}"
        );
        ensure!(scene.node.main_pid(AGENT)? == agent, "another agent");
        let left = scene.node.sh(&format!("ls -A {ROOT}/.nodevigil"))?;
        ensure!(left.is_empty(), "left behind: {left}");
        Ok(())
    })
}

fn no_room_and_no_inodes() -> Result<()> {
    untouched(scene("storage-full", TMPFS)?, |scene| {
        let fill = format!("dd if=/dev/zero of={ROOT}/fill bs=64k 2>/dev/null || true");
        let from = Instant::now();
        provoke(
            scene,
            "file system of the kubelet full",
            &fill,
            "StorageFull",
        )?;
        mend(scene, &format!("rm {ROOT}/fill"))?;
        // Between the two it says nothing else.
        let other = scene.watch.since(from).into_iter().find(|(_, event)| {
            let condition = condition(event, "ReadonlyFilesystem");
            condition.is_some_and(|condition| condition["status"] != "False")
        });
        ensure!(other.is_none(), "full is not read-only: {other:?}");
        // Until it is stopped: an inode that anybody gives back meanwhile is enough to make a file again.
        let exhaust = "seq 3000 | xargs touch";
        let from = Instant::now();
        scene.node.sh(&format!(
            "mkdir {ROOT}/many; systemd-run --quiet --unit=filler --working-directory={ROOT}/many \
             sh -c 'while :; do {exhaust} 2>/dev/null; sleep 0.2; done'"
        ))?;
        told(
            scene,
            from,
            "no inode left",
            exhaust,
            "StorageInodesExhausted",
        )?;
        mend(scene, &format!("systemctl stop filler; rm -r {ROOT}/many"))
    })
}

fn a_remount_is_told_and_ends() -> Result<()> {
    untouched(scene("storage-read-only", TMPFS)?, |scene| {
        let remount = format!("mount -o remount,ro {ROOT}");
        let from = Instant::now();
        let told = provoke(
            scene,
            "file system remounted read-only",
            &remount,
            "FilesystemReadOnly",
        )?;
        for (kind, status) in [("ReadonlyFilesystem", "True"), ("StorageReady", "False")] {
            let says = |event: &Value| {
                condition(event, kind).is_some_and(|condition| condition["status"] == status)
            };
            scene.watch.wait_since(from, SOON, says).context(kind)?;
        }
        // As long as it lasts nothing flips.
        std::thread::sleep(Duration::from_secs(12));
        let still = scene.watch.since(told.at).into_iter().all(|(_, event)| {
            condition(&event, TYPE)
                .is_none_or(|now| now["lastTransitionTime"] == told.condition["lastTransitionTime"])
        });
        ensure!(still, "it flipped while it lasted");
        mend(scene, &format!("mount -o remount,rw {ROOT}"))?;
        // This mount alone, and not the file system behind it: the helper's own view has every mount read-only.
        let bind = format!("mount -o remount,bind,ro {ROOT}");
        provoke(
            scene,
            "mount read-only for the kubelet alone",
            &bind,
            "FilesystemReadOnly",
        )?;
        mend(scene, &format!("mount -o remount,bind,rw {ROOT}"))
    })
}

/// The kernel's own doing, by its switch for such tests.
fn an_ext4_error_makes_it_read_only() -> Result<()> {
    untouched(scene("storage-error", EXT4)?, |scene| {
        let device = device(scene)?;
        let from = Instant::now();
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1")
            .context("an error of ext4")?;
        let how = "/sys/fs/ext4/loopN/trigger_fs_error, errors=remount-ro";
        told(
            scene,
            from,
            "ext4 met an error and made itself read-only",
            how,
            "FilesystemReadOnly",
        )?;
        Ok(())
    })
}

fn a_file_system_that_was_shut_down_fails() -> Result<()> {
    untouched(scene("storage-broken", EXT4)?, |scene| {
        // EXT4_IOC_SHUTDOWN without a flush of the journal: every access is EIO from then on, as after a lost disk.
        let how = format!(
            "python3 -c 'import fcntl,os,struct; fcntl.ioctl(os.open(\"{ROOT}\", os.O_RDONLY), 0x8004587d, struct.pack(\"I\", 2))'"
        );
        let from = Instant::now();
        scene.node.sh(&how)?;
        let what = "every access to the kubelet's file system is EIO";
        told(scene, from, what, "EXT4_IOC_SHUTDOWN", "StorageIOError")?;
        Ok(())
    })
    // A file system that was shut down cannot be listed.
    .or_else(|error| {
        let text = format!("{error:#}");
        let is_that = text.contains(".nodevigil") && text.contains("Input/output error");
        if is_that { Ok(()) } else { Err(error) }
    })
}

/// Thaws, whatever becomes of the test: what hangs on a frozen file system cannot even be killed.
struct Thaw<'a>(&'a Scene);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        let _ = self.0.node.run(&format!("fsfreeze -u {ROOT}")); // it may be thawed already
    }
}

fn a_write_that_hangs_blocks_nobody_else() -> Result<()> {
    untouched(scene("storage-hang", EXT4)?, |scene| {
        let thaw = Thaw(scene);
        // Should this test be ended meanwhile.
        scene.node.sh(&format!(
            "systemd-run --quiet sh -c 'sleep 45; fsfreeze -u {ROOT}; true'"
        ))?;
        let how = format!("fsfreeze -f {ROOT}");
        let from = Instant::now();
        scene.node.sh(&how)?;
        told(
            scene,
            from,
            "a write hangs in the kernel",
            "fsfreeze -f",
            "StorageHung",
        )?;
        let helper = scene.node.unit_pid(HELPER)?;
        let threads = fs::read_dir(format!("/proc/{helper}/task"))?.count();
        ensure!(threads <= 8, "{threads} threads: questions pile up");
        // The helper's other verbs are answered: a new agent asks all of them.
        std::thread::sleep(Duration::from_secs(12));
        let now = fs::read_dir(format!("/proc/{helper}/task"))?.count();
        ensure!(now <= threads, "{threads} threads, then {now}");
        scene.status_file("the helper's answers", |file| {
            file["helper"]["state"] == "ok"
        })?;
        let thawed = Instant::now();
        drop(thaw);
        let well = is_well(scene, thawed)?;
        say(&format!(
            "well again {:.1} s after the thaw",
            (well.at - thawed).as_secs_f64()
        ));
        Ok(())
    })
}

/// The node as it ships: kubelet and runtime on file systems without a folder of ours, the helper's own on a third.
fn a_plain_node_is_well_and_nothing_is_left_behind() -> Result<()> {
    let from = Instant::now();
    Scene::healthy("storage-plain")?.play(|scene| {
        let well = wait(scene, from, "True", "StorageIsHealthy")?;
        ensure!(
            well.message().contains("/var/lib/kubelet"),
            "{}",
            well.message()
        );
        let own = scene
            .node
            .sh("ls -A /var/lib/nodevigil-helper; stat -c %U%a /var/lib/nodevigil-helper")?;
        // How the node came up is kept once it has: that may be a moment later.
        let kept = own
            .split_whitespace()
            .filter(|name| *name != "bootstrap-daemon.json");
        ensure!(kept.eq(["boot.json", "root700"]), "{own}");
        let others = scene
            .node
            .sh("find /var/lib/kubelet /var/lib/containerd -name '*nodevigil*'")?;
        ensure!(others.is_empty(), "{others}");
        Ok(())
    })
}

/// The loop device that the kubelet's root lies on.
fn device(scene: &Scene) -> Result<String> {
    let source = scene.node.sh(&format!("findmnt -no SOURCE {ROOT}"))?;
    let name = source.trim().strip_prefix("/dev/").context("a device")?;
    Ok(name.to_owned())
}
