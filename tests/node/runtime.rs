//! The container runtime as a real API server hears of it: the real containerd, each way to fail with its reason, and
//! what is no fault. Nothing of it is acted upon. (CRI-O is not to be had here: `host::cri`'s unit tests stand in for it.)

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use nodevigil::host::journal::Kind;
use serde_json::Value;

use crate::scene::{HELPER, KUBELET, Scene};
use crate::support::api::condition;
use crate::support::control_plane::ControlPlane;
use crate::support::process::signal;
use crate::support::rows::row;
use crate::support::wait_until;
use crate::trial;

const CONTAINERD: &str = "containerd.service";
const SOCKET: &str = "/run/containerd/containerd.sock";
const OURS: &str = "ContainerRuntimeHealthy";
/// A quarter of a minute until the next question, and three that fail.
const SOON: Duration = Duration::from_mins(1);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("runtime::well", a_runtime_that_is_well_is_told_once),
        trial("runtime::absent", a_host_without_one_has_no_condition),
        trial("runtime::hung", a_hung_runtime_is_told_and_left_alone),
        trial("runtime::killed", a_killed_runtime_is_told_at_once),
        trial("runtime::operator_stop", an_operators_stop_is_no_fault),
        trial("runtime::planned_restart", a_planned_restart_flips_nothing),
        trial("runtime::package_upgrade", an_upgrade_flips_nothing),
        trial("runtime::without_cri", one_without_cri_is_not_ready),
        trial(
            "runtime::unreadable_socket",
            what_cannot_be_asked_is_unknown,
        ),
        trial(
            "runtime::frozen_helper",
            a_frozen_helper_is_not_the_kubelets_fault,
        ),
        trial("runtime::memory", a_runtime_killed_for_memory_is_told_so),
    ]
}

#[derive(Debug, Clone)]
struct Told {
    at: Instant,
    status: String,
    reason: String,
    message: String,
}

fn read(kind: &str, (at, event): &(Instant, Value)) -> Option<Told> {
    let condition = condition(event, kind)?;
    let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    Some(Told {
        at: *at,
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
    })
}

fn wait_for(scene: &Scene, from: Instant, status: &str, reason: &str) -> Result<Told> {
    let says = |event: &Value| {
        let told = read(OURS, &(from, event.clone()));
        told.is_some_and(|told| told.status == status && told.reason == reason)
    };
    let arrival = scene.watch.wait_since(from, SOON, says).with_context(|| {
        let told = told_since(scene, OURS, from);
        format!("waiting for {OURS}={status} {reason}; told were {told:#?}")
    })?;
    read(OURS, &arrival).context("an event has it")
}

fn told_since(scene: &Scene, kind: &str, from: Instant) -> Vec<Told> {
    let all = scene.watch.since(from);
    all.iter().filter_map(|event| read(kind, event)).collect()
}

fn ensure_only(scene: &Scene, kind: &str, from: Instant, statuses: &[&str]) -> Result<()> {
    let told = told_since(scene, kind, from);
    let other = told.iter().find(|t| !statuses.contains(&t.status.as_str()));
    ensure!(
        other.is_none(),
        "{kind}: not one of {statuses:?}: {other:?}"
    );
    Ok(())
}

/// A node whose agent says that kubelet and runtime are well.
fn well(name: &str) -> Result<Scene> {
    let from = Instant::now();
    let scene = Scene::healthy(name)?;
    wait_for(&scene, from, "True", "ContainerRuntimeIsHealthy")?;
    Ok(scene)
}

fn is_well(scene: &Scene, from: Instant) -> Result<Told> {
    wait_for(scene, from, "True", "ContainerRuntimeIsHealthy")
}

fn a_runtime_that_is_well_is_told_once() -> Result<()> {
    well("runtime-well")?.play(|scene| {
        let told = is_well(scene, scene.node.started())?;
        let pid = scene.node.main_pid(CONTAINERD)?;
        ensure!(told.message.starts_with("containerd 1."), "{told:?}");
        ensure!(told.message.contains(&format!("pid {pid} ")), "{told:?}");
        ensure!(told.message.contains(SOCKET), "{told:?}");
        // A restart of the agent is no news.
        let from = Instant::now();
        scene.node.sh("systemctl restart nodevigil")?;
        scene.status_file("the runtime", |file| {
            let all = file["conditions"].as_array();
            all.is_some_and(|all| all.iter().any(|one| one["type"] == OURS))
        })?;
        std::thread::sleep(Duration::from_secs(3)); // that nothing happens shows in nothing but time
        ensure_only(scene, OURS, from, &["True"])
    })
}

fn a_host_without_one_has_no_condition() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, "runtime-absent", |node| {
        let masked = "/etc/systemd/system/containerd.service";
        node.without_kubelet().file(masked, "", 0o644)
    })?;
    scene.play(|scene| {
        scene.node.start_agent()?;
        scene.status_file("the kubelet's absence", |file| {
            let all = file["conditions"].as_array();
            all.is_some_and(|all| all.iter().any(|one| one["type"] == "KubeletHealthy"))
        })?;
        std::thread::sleep(Duration::from_secs(5)); // the helper was asked, and more than once there is no runtime
        let file = scene.node.status_json()?;
        let all = file["conditions"].as_array().context("conditions")?;
        ensure!(all.iter().all(|one| one["type"] != OURS), "{file:#}");
        Ok(())
    })
}

fn a_hung_runtime_is_told_and_left_alone() -> Result<()> {
    well("runtime-hung")?.play(|scene| {
        let pid = scene.node.main_pid(CONTAINERD)?;
        let stopped = signal(scene.node.host_pid(pid)?, Signal::SIGSTOP)?;
        let told = wait_for(scene, stopped, "False", "ContainerRuntimeHung")?;
        let late = told.at - stopped;
        row(
            "containerd hangs",
            "SIGSTOP to containerd",
            &told.reason,
            late,
        );
        ensure!(late < Duration::from_secs(20), "told after {late:?}");
        ensure!(told.message.contains("state T"), "{told:?}");
        ensure!(told.message.contains(&format!("pid {pid} ")), "{told:?}");
        std::thread::sleep(Duration::from_secs(3)); // whoever acted would have
        ensure!(scene.node.main_pid(CONTAINERD)? == pid, "somebody acted");
        ensure_only(scene, OURS, told.at, &["False"])?;
        let resumed = signal(scene.node.host_pid(pid)?, Signal::SIGCONT)?;
        is_well(scene, resumed)?;
        ensure_only(scene, OURS, stopped, &["True", "False"])
    })
}

fn a_killed_runtime_is_told_at_once() -> Result<()> {
    well("runtime-killed")?.play(|scene| {
        let pid = scene.node.main_pid(CONTAINERD)?;
        let killed = signal(scene.node.host_pid(pid)?, Signal::SIGKILL)?;
        let told = wait_for(scene, killed, "False", "ContainerRuntimeDown")?;
        let late = told.at - killed;
        row(
            "containerd is killed",
            "SIGKILL to containerd",
            &told.reason,
            late,
        );
        ensure!(late < Duration::from_secs(5), "told after {late:?}");
        let said = wait_until("how it ended", SOON, || {
            let told = told_since(scene, OURS, killed);
            Ok(told
                .into_iter()
                .find(|told| told.message.contains("SIGKILL (9)")))
        })?;
        ensure!(said.message.contains(&format!("pid {pid} ")), "{said:?}");
        is_well(scene, told.at)?; // systemd starts another: that is its own doing
        let restarts = scene.property(CONTAINERD, "NRestarts")?;
        ensure!(restarts == "1", "{restarts} restarts");
        ensure_only(scene, OURS, killed, &["True", "False"])
    })
}

fn an_operators_stop_is_no_fault() -> Result<()> {
    well("runtime-stop")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("systemctl stop containerd")?;
        let told = wait_for(scene, from, "Unknown", "ContainerRuntimeStoppedByOperator")?;
        row(
            "containerd is stopped by the operator",
            "systemctl stop containerd",
            &told.reason,
            told.at - from,
        );
        std::thread::sleep(Duration::from_secs(3)); // whoever acted would have
        let state = scene.property(CONTAINERD, "ActiveState")?;
        ensure!(state == "inactive", "{state}: somebody acted");
        let from_start = Instant::now();
        scene.node.sh("systemctl start containerd")?;
        is_well(scene, from_start)?;
        ensure_only(scene, OURS, from, &["True", "Unknown"])
    })
}

fn a_planned_restart_flips_nothing() -> Result<()> {
    well("runtime-restart")?.play(|scene| {
        let from = Instant::now();
        for command in ["restart", "try-restart", "reload-or-restart"] {
            let begin = Instant::now();
            scene.node.sh(&format!("systemctl {command} containerd"))?;
            let pid = format!("pid {} ", scene.node.main_pid(CONTAINERD)?);
            wait_until("the new process to be told", SOON, || {
                let told = told_since(scene, OURS, begin);
                Ok(told.into_iter().find(|told| told.message.contains(&pid)))
            })?;
        }
        row(
            "containerd is restarted by plan",
            "systemctl restart containerd",
            "ContainerRuntimeIsHealthy",
            None,
        );
        ensure_only(scene, OURS, from, &["True"])
    })
}

/// What packages do to both, one after the other: a kubelet that finds no runtime when it starts exits, and that is told.
fn an_upgrade_flips_nothing() -> Result<()> {
    let control = "Package: upgrade-test\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n";
    let script = "#!/bin/sh\nsystemctl stop kubelet\nsystemctl stop containerd\nsleep 4\nsystemctl start containerd\nsystemctl start kubelet\nsleep 3\nsystemctl restart containerd\nsystemctl restart kubelet\nsleep 3\n";
    let from = Instant::now();
    let scene = Scene::healthy_with("runtime-upgrade", |node| {
        node.file("/root/deb/DEBIAN/control", control, 0o644).file(
            "/root/deb/DEBIAN/postinst",
            script,
            0o755,
        )
    })?;
    scene.play(|scene| {
        is_well(scene, from)?;
        scene.node.sh("dpkg-deb --build /root/deb /root/test.deb")?;
        let from = Instant::now();
        let before = scene.now()?;
        scene
            .node
            .sh("systemd-run --unit=upgrade --setenv=PATH dpkg --install /root/test.deb")?;
        wait_until("dpkg's end", SOON, || {
            let (code, _) = scene.node.run("systemctl is-active upgrade")?;
            Ok((code != 0).then_some(()))
        })?;
        let result = scene.node.sh("dpkg --status upgrade-test")?;
        ensure!(result.contains("install ok installed"), "{result}");
        scene.status_file("the hold's end", |file| file["quiet"][0].is_null())?;
        scene.ensure_still(&before)?;
        row(
            "kubelet and containerd are restarted by a package upgrade",
            "dpkg --install, whose postinst stops, starts and restarts both",
            "KubeletIsHealthy, ContainerRuntimeIsHealthy",
            None,
        );
        ensure_only(scene, OURS, from, &["True"])
    })
}

fn one_without_cri_is_not_ready() -> Result<()> {
    well("runtime-cri")?.play(|scene| {
        let from = Instant::now();
        scene.node.sh("sed -i '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' /etc/containerd/config.toml; systemctl restart containerd")?;
        let unsure = wait_for(scene, from, "Unknown", "ContainerRuntimeUnconfirmed")?;
        ensure!(unsure.message.contains("Unimplemented"), "{unsure:?}");
        // The kubelet waits 30 s before it says so.
        let told = wait_for(scene, from, "False", "ContainerRuntimeNotReady")?;
        row("containerd without CRI", "disabled_plugins, and a restart", &told.reason, told.at - from);
        ensure!(told.message.contains("Unimplemented"), "{told:?}");
        let from = Instant::now();
        scene
            .node
            .sh("sed -i 1d /etc/containerd/config.toml; systemctl restart containerd")?;
        is_well(scene, from)?;
        Ok(())
    })
}

fn what_cannot_be_asked_is_unknown() -> Result<()> {
    well("runtime-socket")?.play(|scene| {
        let from = Instant::now();
        let kubelet = scene.now()?;
        // The helper has uid 0 and no capability: what is another user's is closed to it.
        scene
            .node
            .sh(&format!("chown nobody {SOCKET}; chmod 600 {SOCKET}"))?;
        let told = wait_for(scene, from, "Unknown", "ContainerRuntimeProbeFailed")?;
        row(
            "the CRI socket cannot be opened",
            "chown nobody containerd.sock",
            &told.reason,
            told.at - from,
        );
        ensure!(told.message.contains("ermission denied"), "{told:?}");
        scene.ensure_no_flip(&kubelet)?;
        let from = Instant::now();
        scene
            .node
            .sh(&format!("chown root {SOCKET}; chmod 660 {SOCKET}"))?;
        is_well(scene, from)?;
        ensure_only(scene, OURS, told.at, &["True", "Unknown"])
    })
}

fn a_frozen_helper_is_not_the_kubelets_fault() -> Result<()> {
    well("runtime-helper")?.play(|scene| {
        let kubelet = scene.now()?;
        let helper = scene.node.main_pid(HELPER)?;
        let stopped = signal(scene.node.host_pid(helper)?, Signal::SIGSTOP)?;
        let told = wait_for(scene, stopped, "Unknown", "ContainerRuntimeProbeFailed")?;
        row(
            "the helper is frozen",
            "SIGSTOP to nodevigil-helper",
            &told.reason,
            told.at - stopped,
        );
        ensure!(
            told.message.contains("nodevigil-helper.service"),
            "{told:?}"
        );
        std::thread::sleep(Duration::from_secs(20)); // some more questions go unanswered
        scene.ensure_no_flip(&kubelet)?;
        ensure_only(scene, OURS, told.at, &["Unknown"])?;
        let lines = scene.lines(Kind::HelperUnavailable)?;
        ensure!(lines.len() == 1, "told more than once: {lines:#?}");
        let resumed = signal(scene.node.host_pid(helper)?, Signal::SIGCONT)?;
        is_well(scene, resumed)?;
        let kubelet_pid = scene.node.main_pid(KUBELET)?;
        ensure!(
            scene
                .now()?
                .message
                .contains(&format!("pid {kubelet_pid} "))
        );
        Ok(())
    })
}

/// The host's memory controller does it, and its kernel says so.
fn a_runtime_killed_for_memory_is_told_so() -> Result<()> {
    well("runtime-memory")?.play(|scene| {
        let from = Instant::now();
        scene
            .node
            .sh("systemctl set-property --runtime containerd MemoryLimit=8M; systemctl restart --no-block containerd")?;
        let told = wait_for(scene, from, "False", "ContainerRuntimeOOMKilled")?;
        row("containerd is killed for memory", "MemoryLimit=8M and a restart", &told.reason, told.at - from);
        ensure!(told.message.contains("cgroup"), "{told:?}");
        scene
            .node
            .sh("systemctl set-property --runtime containerd MemoryLimit=infinity; systemctl reset-failed containerd; systemctl restart containerd")?;
        is_well(scene, told.at)?;
        Ok(())
    })
}
