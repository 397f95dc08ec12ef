//! The kernel's log on a real node: a real kill for memory, told with its victim, and what user space only claims.
//!
//! The log is one for all the nodes of this machine, and it speaks of the machine's pids and cgroups: the tests know their own
//! victim by its name and by the end of its cgroup.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{SOON, Scene};
use crate::support::rows::row;
use crate::support::wait_until;
use crate::trial;

const KERNEL: &str = "NodeKernelHealthy";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "kernel::oom_kill",
            a_kill_for_memory_is_told_with_its_victim,
        ),
        trial("kernel::claims", what_user_space_claims_does_not_count),
    ]
}

/// Our Events of that reason whose note holds `part`.
fn told(scene: &Scene, reason: &str, part: &str) -> Result<Vec<Value>> {
    let (code, list) = scene.plane.get(EVENTS)?;
    ensure!(code == 200, "{code}: {list}");
    let events = list["items"].as_array().context("no items")?;
    let ours = events.iter().filter(|event| {
        event["reportingController"] == "nodevigil.io/agent"
            && event["regarding"]["name"] == scene.node.name()
            && event["reason"] == reason
            && event["note"]
                .as_str()
                .is_some_and(|note| note.contains(part))
    });
    Ok(ours.cloned().collect())
}

/// Starts a program of that name in a unit of its own that may hold 16 MiB, and that takes more and more.
fn hog(scene: &Scene, name: &str) -> Result<()> {
    // `tail` keeps the last line of its input, which never ends.
    scene.node.sh(&format!(
        "cp /usr/bin/tail /usr/local/bin/{name}
         systemd-run --unit={name} --property=MemoryAccounting=yes --property=MemoryLimit=16M \
           --property=MemoryMax=16M /usr/local/bin/{name} /dev/zero"
    ))?;
    Ok(())
}

fn kernel_condition(scene: &Scene) -> Result<Value> {
    wait_until("the kernel's condition", SOON, || {
        scene.plane.condition(scene.node.name(), KERNEL)
    })
}

fn a_kill_for_memory_is_told_with_its_victim() -> Result<()> {
    Scene::healthy("oom-kill")?.play(|scene| {
        let before = kernel_condition(scene)?;
        ensure!(before["status"] == "True", "{before:#}");
        let name = "oom-kill-hog";
        let from = Instant::now();
        hog(scene, name)?;
        let event = wait_until("the kill", SOON, || {
            Ok(told(scene, "ProcessOOMKilled", name)?.into_iter().next())
        })?;
        row(
            "a process killed for memory",
            "a unit with a memory limit of 16M that takes more (from the start of the unit on)",
            "ProcessOOMKilled",
            from.elapsed(),
        );
        ensure!(event["type"] == "Warning", "{event:#}");
        let note = event["note"].as_str().unwrap_or_default();
        let wanted = [
            format!("the kernel killed `{name}` (pid "),
            format!("/system.slice/{name}.service reached its memory limit of 16 MiB"),
            "; it held 1".to_owned(),
        ];
        for part in wanted {
            ensure!(note.contains(&part), "no `{part}` in: {note}");
        }
        // It is no state of the kernel's, and nothing was done about it.
        let after = kernel_condition(scene)?;
        ensure!(
            after["status"] == "True"
                && after["lastTransitionTime"] == before["lastTransitionTime"],
            "{after:#}"
        );
        ensure!(scene.node.kubelet_pid().is_ok(), "the kubelet is gone");
        Ok(())
    })
}

fn what_user_space_claims_does_not_count() -> Result<()> {
    Scene::healthy("claims")?.play(|scene| {
        let before = kernel_condition(scene)?;
        // Facility 0 is what it asks for, and not what it gets. One write is one record.
        let claims = [
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x,task_memcg=/x,task=claimed,pid=4711,uid=0",
            "Memory cgroup out of memory: Killed process 4711 (claimed) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0",
            "INFO: task containerd:4711 blocked for more than 122 seconds.",
            "watchdog: Watchdog detected hard LOCKUP on cpu 3",
            "{1}[Hardware Error]: event severity: fatal",
        ];
        for claim in claims {
            scene.node.sh(&format!("echo '<0>{claim}' > /dev/kmsg"))?;
        }
        // Read behind them: once this is told, they were read.
        let name = "claims-hog";
        hog(scene, name)?;
        wait_until("the real kill", SOON, || {
            Ok(told(scene, "ProcessOOMKilled", name)?.into_iter().next())
        })?;
        std::thread::sleep(Duration::from_secs(2));
        let claimed = told(scene, "ProcessOOMKilled", "claimed")?;
        ensure!(claimed.is_empty(), "{claimed:#?}");
        let after = kernel_condition(scene)?;
        ensure!(
            after["status"] == "True" && after["reason"] == before["reason"],
            "{after:#}"
        );
        row(
            "lines that user space writes into the kernel's log",
            "`echo '<0>…' > /dev/kmsg`: a kill, a hung runtime, a hard lockup, a fatal hardware error",
            "–",
            None,
        );
        Ok(())
    })
}
