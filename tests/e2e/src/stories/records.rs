//! Records of problems: what is in them, where they are kept, and that they outlive the boot and the machine.

mod server;

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

pub use self::server::RecordServer;
use crate::scene::{Condition, ObservedNode, Scene};
use crate::support::{WAIT, wait_until};

/// A kubelet that waits for its container runtime calls it again and again.
const RUNTIME_STOPPED_FOR: Duration = Duration::from_secs(75);

/// The name in the message of a condition.
pub fn name(shown: &Condition) -> Result<String> {
    let name = shown.message.rsplit_once("; record ").map(|(_, name)| name.to_owned());
    name.with_context(|| format!("the message names no record: {shown:?}"))
}

/// The record that a condition names, once it is complete.
fn record_of(node: &ObservedNode, shown: &Condition) -> Result<Value> {
    let name = name(shown)?;
    let read = || {
        let (_, text) = node.run(&format!("nodevigil records show {name} -o json"))?;
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok((!record["took_millis"].is_null()).then_some(record))
    };
    let record = wait_until(&format!("the record {name}"), WAIT, read)?;
    ensure!(record.to_string().len() <= 256 * 1024, "{name} is too large");
    Ok(record)
}

fn ensure_has(record: &Value, part: &str, text: &str) -> Result<()> {
    let found = record["parts"][part].to_string();
    ensure!(found.contains(text), "{part} lacks {text:?}: {found}; missing: {}", record["missing"]);
    Ok(())
}

pub fn of_a_crash_has_the_last_error_and_the_state_of_the_host(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let is_checked = |status: &Value| status["conditions"].to_string().contains("KubeletConfigValid");
    node.wait_for_status("the first check of the kubelet's configuration", is_checked)?;
    let from = Instant::now();
    node.sh("sed -i 's/$/ --container-runtime=remote/' /etc/default/kubelet; systemctl restart kubelet || true")?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    let record = record_of(&node, &crashed)?;
    ensure_has(&record, "journal", "unknown flag: --container-runtime")?;
    ensure_has(&record, "journal", "kubelet.service: Main process exited")?;
    for (part, text) in [
        ("units", "NRestarts"),
        ("processes", "containerd"),
        ("memory", "MemAvailable"),
        ("file_systems", "free_inodes"),
        ("counts", "sockets"),
        ("versions", "boot_id"),
        ("kernel_log", "["),
        ("check", "["),
        ("journal_of_the_other_unit", "containerd"),
    ] {
        ensure_has(&record, part, text)?;
    }
    let timeline = record["timeline"].to_string();
    for seen in ["probe of the kubelet", "KubeletHealthy", "has ended", "job "] {
        ensure!(timeline.contains(seen), "{seen:?} is not in the timeline: {timeline}");
    }
    ensure!(record["missing"].as_object().is_some_and(serde_json::Map::is_empty), "{}", record["missing"]);
    // Every message of this problem has the same name, and a loop has a record of its own.
    let looping = node.kubelet().wait_for(from, "False", "KubeletCrashLooping")?;
    let names = |reason: &str| {
        let shown = node.kubelet().shown_since(from).into_iter().filter(|shown| shown.reason == reason);
        shown.map(|shown| name(&shown)).collect::<Result<std::collections::BTreeSet<_>>>()
    };
    ensure!(names("KubeletCrashed")?.len() == 1 && names("KubeletCrashLooping")?.len() == 1);
    ensure_has(&record_of(&node, &looping)?, "journal", "unknown flag: --container-runtime")?;
    let name = name(&looping)?;
    for command in ["nodevigil records", "nodevigil records -o json", "nodevigil diagnose", "nodevigil records show"] {
        let (_, text) = node.run(command)?;
        ensure!(text.contains(&name), "`{command}` does not name {name}: {text}");
    }
    let mode = node.sh("stat -c '%a %U' /var/lib/nodevigil/records /var/lib/nodevigil/records/*.json | sort -u")?;
    ensure!(mode == "600 root\n700 root\n", "{mode}");
    let events = scene.plane().kubectl(&["get", "events", "-n", "default", "-o", "json"])?;
    ensure!(events.contains(&name), "no Event names {name}");
    Ok(())
}

/// The kubelet is stopped until systemd has sent its SIGABRT, which then finds it as it was: waiting for its container runtime.
pub fn of_a_kubelet_that_the_watchdog_ends_name_the_call_that_it_waits_for(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nWatchdogSec=10s\nNotifyAccess=all\n"))?;
    node.sh("systemctl kill --kill-who=main --signal=STOP containerd")?;
    sleep(RUNTIME_STOPPED_FOR);
    let from = Instant::now();
    node.sh("systemctl kill --kill-who=main --signal=STOP kubelet")?;
    wait_until("systemd's SIGABRT", WAIT, || {
        Ok((node.property("kubelet", "SubState")? == "stop-watchdog").then_some(()))
    })?;
    node.sh("systemctl kill --kill-who=main --signal=CONT kubelet")?;
    let named =
        node.kubelet().wait_until_shown(from, |shown| shown.message.contains("for the container runtime (CRI "))?;
    ensure!(named.message.contains("was ended by systemd's watchdog: no sign of life for 10 s; its "), "{named:?}");
    let record = record_of(&node, &named)?;
    ensure_has(&record, "goroutines", "the container runtime (CRI ")?;
    ensure_has(&record, "journal", "Watchdog timeout")?;
    ensure!(!record["parts"]["journal"].to_string().contains("goroutine "), "{}", record["parts"]["journal"]);
    node.sh("systemctl kill --kill-who=main --signal=CONT containerd").map(drop)
}

pub fn of_an_oom_kill_has_the_kernels_lines(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nRestartSec=3\n"))?;
    let from = Instant::now();
    node.sh("systemctl set-property --runtime kubelet MemoryLimit=8M MemoryMax=8M; systemctl restart kubelet || true")?;
    let killed = node.kubelet().wait_for(from, "False", "KubeletOOMKilled")?;
    let record = record_of(&node, &killed)?;
    ensure_has(&record, "kernel_log", "Killed process")?;
    ensure!(record["timeline"].to_string().contains("OOM-killed pid"), "{}", record["timeline"]);
    Ok(())
}

pub fn stay_in_memory_while_the_disk_is_read_only(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh("mount --bind /var/lib/nodevigil /var/lib/nodevigil; mount -o remount,bind,ro /var/lib/nodevigil")?;
    stay_in_memory(&node, |_| Ok(()), "Read-only file system")
}

/// The emulator lets through one byte a second.
pub fn stay_in_memory_while_the_disk_hangs(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh("mkfs.ext4 -q -F /dev/vdc; mount /dev/vdc /var/lib/nodevigil")?;
    let hang = |node: &ObservedNode| node.guest()?.monitor("block_set_io_throttle virtio2 1 0 0 0 0 0");
    stay_in_memory(&node, hang, "`nodevigil complete-record`: no result within 10 s")
}

/// A record of a crash after `disturb` is in memory alone, which the journal and the console tell.
fn stay_in_memory(node: &ObservedNode, disturb: impl Fn(&ObservedNode) -> Result<()>, why: &str) -> Result<()> {
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    disturb(node)?;
    let crashed = node.kill_for_good()?;
    let name = name(&crashed)?;
    let path = format!("/run/nodevigil/records/{name}.json");
    let line = format!("KubeletHealthy is False (KubeletCrashed): {}; {path} is not on the disk: ", crashed.message);
    node.wait_for_log(&line)?;
    let log = node.journal("nodevigil")?;
    ensure!(log.contains(why), "{why:?} is missing: {log}");
    let record: Value = serde_json::from_str(&node.sh(&format!("cat {path}"))?)?;
    ensure_has(&record, "units", "kubelet.service")?;
    if let Ok(guest) = node.guest() {
        wait_until("the line on the console", WAIT, || Ok(guest.console().contains(&line).then_some(())))?;
    }
    Ok(())
}

pub fn are_uploaded_until_the_server_takes_them(scene: &Scene) -> Result<()> {
    let server = RecordServer::start(scene, 2)?;
    let node = scene.healthy_with(|node| server.of(node))?;
    let crashed = node.kill_for_good()?;
    let (name, record) = (name(&crashed)?, record_of(&node, &crashed)?);
    node.wait_for_trouble("RecordsNotUploaded", &["/etc/nodevigil/headers (mode 0644)", "chmod o-r"])?;
    RecordServer::allow(&node)?;
    node.wait_for_trouble("RecordsNotUploaded", &["503", &name])?;
    node.wait_for_no_trouble()?;
    ensure!(server.wait_for(&node, &name)? == record, "the server has something else");
    let (_, list) = node.run("nodevigil records -o json")?;
    ensure!(list.contains("\"uploaded\": true"), "{list}");
    Ok(())
}

/// The machine's boot stays the same, so what an agent of another boot would have left is put there.
pub fn of_the_last_boot_are_named_with_its_panic(scene: &Scene) -> Result<()> {
    let marker = r#"{"boot_id": "another", "since": "2026-01-01T00:00:00Z"}"#;
    let dump = "Panic#1 Part1\n<6>[  12.1] ok\n<0>[  13.5] Kernel panic - not syncing: sysrq triggered crash\n";
    let node = scene.healthy_with(|node| {
        node.file("/var/lib/nodevigil/boot.json", marker)
            .file("/var/lib/nodevigil/records/20260102t000000z-kubelet-crashed.json", "{}")
            .file("/var/lib/systemd/pstore/1/dmesg.txt", dump)
    })?;
    let said = |status: &Value| status["last_boot"].as_str().unwrap_or_default().to_owned();
    let told = node.wait_for_status("how the last boot ended", |status| !said(status).is_empty())?;
    for part in ["ended with a kernel panic", "20260102t000000z-kubelet-crashed", "sysrq triggered crash"] {
        ensure!(said(&told).contains(part), "{part} is missing: {told}");
    }
    let (_, shown) = node.run("nodevigil status")?;
    ensure!(shown.contains("Note: the previous boot ended with a kernel panic"), "{shown}");
    let count = || {
        let events = node.events(scene.plane())?;
        anyhow::Ok(events.iter().filter(|event| event.0 == "Warning" && event.1 == "LastBootEnded").count())
    };
    wait_until("the Event", WAIT, || Ok((count()? == 1).then_some(())))?;
    node.restart_agent("systemctl restart nodevigil")?;
    ensure!(said(&node.status()?) == said(&told), "a restarted agent of the same boot says something else");
    node.crash_and_recover()?;
    ensure!(count()? == 1, "a restarted agent creates another Event");
    Ok(())
}

pub fn outlive_a_reset(scene: &Scene) -> Result<()> {
    outlive(scene, "reboot -f", &["ended without a shutdown: by a reset, a power failure or a crash"])
}

pub fn outlive_a_panic_which_is_quoted(scene: &Scene) -> Result<()> {
    outlive(
        scene,
        "echo c >/proc/sysrq-trigger",
        &["ended with a kernel panic", "the kernel's last lines: Kernel panic - not syncing: sysrq triggered crash"],
    )
}

/// A command ends the boot; in the next one the agent tells that and names the record.
fn outlive(scene: &Scene, command: &str, parts: &[&str]) -> Result<()> {
    let node = scene.healthy()?;
    let crashed = node.kill_for_good()?;
    let (name, record) = (name(&crashed)?, record_of(&node, &crashed)?);
    let boot = node.guest()?.boot_id()?;
    node.sh(&format!("systemctl enable nodevigil; sync; (sleep 2; {command}) >/dev/null 2>&1 &"))?;
    wait_until("another boot", WAIT, || Ok(node.guest()?.boot_id().ok().filter(|now| *now != boot)))?;
    let told = node.wait_for_status("how the last boot ended", |status| status["last_boot"].is_string())?;
    let told = told["last_boot"].as_str().unwrap_or_default();
    for part in parts.iter().copied().chain([name.as_str()]) {
        ensure!(told.contains(part), "{part:?} is missing: {told}");
    }
    ensure!(record_of(&node, &crashed)? == record, "the record is another one");
    let is_told = |event: &(String, String)| (event.0.as_str(), event.1.as_str()) == ("Warning", "LastBootEnded");
    wait_until("the Event", WAIT, || Ok(node.events(scene.plane())?.iter().any(is_told).then_some(())))
}
