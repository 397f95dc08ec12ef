//! The kubelet's life: each way to end with its reason, and back to health.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::disturbances::{begin_stall, healthy_node, thaw, wait_until_not_young};
use crate::scene::{ObservedNode, Scene};
use crate::stories::config;
use crate::support::{WAIT, wait_until};

/// What the gate tests in a virtual machine, on a single one to save time.
pub fn a_virtual_machine_shows_a_lost_flag_a_crash_and_a_stop(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(config::with_lost_flag)?;
    config::ensure_lost_flag_is_found(&node)?;
    crash(&node, scene)?;
    stop(&node)
}

pub fn a_crash_shows_signal_and_pid(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    crash(&node, scene)
}

fn crash(node: &ObservedNode, scene: &Scene) -> Result<()> {
    let from = Instant::now();
    let pid = node.kill_kubelet()?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains("SIGKILL"), "{crashed:?}");
    ensure!(crashed.message.contains(&format!("pid {pid}")), "pid {pid}: {crashed:?}");
    let healthy = node.kubelet().wait_for(crashed.at, "True", "KubeletIsHealthy")?;
    ensure!(healthy.since > crashed.since, "{crashed:?}, then {healthy:?}");
    let events = node.events(scene.plane())?;
    let is_recorded = |kind: &str, reason: &str| events.iter().any(|event| event.0 == kind && event.1 == reason);
    ensure!(is_recorded("Warning", "KubeletCrashed") && is_recorded("Normal", "KubeletIsHealthy"), "{events:?}");
    Ok(())
}

pub fn a_clean_exit_without_a_stop_job_is_a_crash(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nRestart=on-failure\n"))?;
    let from = Instant::now();
    // The signal alone: systemd has no job for the unit.
    node.sh("systemctl kill --kill-who=main --signal=TERM kubelet")?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains("exited with code 0"), "{crashed:?}");
    node.kubelet().ensure_unchanged(&crashed)?;
    let state = node.property("kubelet", "ActiveState")?;
    ensure!(state == "inactive", "the agent may only observe: {state}");
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "False"])
}

pub fn a_kubelet_that_outlives_sigkill_is_unkillable(scene: &Scene) -> Result<()> {
    let (node, _) = healthy_node(scene)?;
    wait_until_not_young(&node);
    // In case the story is ended meanwhile: a process that waits for the disk outlives its node.
    node.sh("systemd-run --quiet sh -c 'sleep 200; fsfreeze -u /srv/kubelet/pods'")?;
    let shown = begin_stall(&node, scene.plane()).and_then(|()| {
        let (from, pid) = (Instant::now(), node.kill_kubelet()?);
        Ok((pid, node.kubelet().wait_for(from, "False", "KubeletUnkillable")?))
    });
    let thawed = Instant::now();
    thaw(&node)?;
    let (pid, shown) = shown?;
    ensure!(shown.message.contains(&format!("pid {pid} ")), "{pid}: {shown:?}");
    node.kubelet().wait_for(thawed, "True", "KubeletIsHealthy").map(drop)
}

/// Probes fail on a node that has just started, so that a hang is no `False` before the Node is two minutes old.
pub fn a_stopped_process_is_hung_until_it_continues(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = Instant::now();
    node.sh("systemctl kill --kill-who=main --signal=STOP kubelet")?;
    let early = node.kubelet().wait_for(from, "Unknown", "NodeJustStarted")?;
    ensure!(early.message.contains("KubeletHung"), "{early:?}");
    let hung = node.kubelet().wait_for(early.at, "False", "KubeletHung")?;
    ensure!(hung.message.contains("state T"), "{hung:?}");
    node.kubelet().ensure_unchanged(&hung)?;
    let continued = Instant::now();
    node.sh("systemctl kill --kill-who=main --signal=CONT kubelet")?;
    node.kubelet().wait_for(continued, "True", "KubeletIsHealthy")?;
    node.kubelet().ensure_only(hung.at, &["True", "False"])
}

pub fn a_stop_job_is_no_fault(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    stop(&node)
}

fn stop(node: &ObservedNode) -> Result<()> {
    let from = Instant::now();
    node.sh("systemctl stop kubelet")?;
    let stopped = node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
    node.kubelet().ensure_unchanged(&stopped)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}

pub fn a_crash_and_its_restart_are_one_problem(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    for _ in 0..2 {
        let from = Instant::now();
        let killed = node.kill_kubelet()?;
        let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
        let healthy = node.kubelet().wait_for(crashed.at, "True", "KubeletIsHealthy")?;
        node.kubelet().ensure_no_flip(&healthy)?;
        // True until the crash is seen, False until the next kubelet is healthy, True from then on.
        let mut statuses: Vec<String> =
            node.kubelet().shown_since(from).into_iter().map(|shown| shown.status).collect();
        statuses.dedup();
        let first = statuses.iter().position(|status| status == "False").unwrap_or_default();
        ensure!(statuses[first..] == ["False", "True"], "{statuses:?}");
        ensure!(node.main_pid("kubelet")? != killed, "the same kubelet as before");
    }
    Ok(())
}

pub fn a_restart_job_flips_nothing(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    for command in ["restart", "try-restart", "reload-or-restart"] {
        node.sh(&format!("systemctl {command} kubelet"))?;
        node.wait_until_watched()?;
    }
    node.kubelet().ensure_no_flip(&before)?;
    // A kubelet that is stopped while it starts exits with code 1.
    for _ in 0..3 {
        node.sh("systemctl restart kubelet; sleep 0.1; systemctl restart kubelet")?;
        node.wait_until_watched()?;
    }
    node.kubelet().ensure_no_flip(&before)
}

/// As the upgrade tools of k3s and RKE2 restart it: a signal, after which systemd starts it again.
pub fn a_clean_end_that_systemd_restarts_flips_nothing_but_three_are_a_loop(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nRestart=always\nRestartSec=2\n"))?;
    let before = node.kubelet().shown()?;
    let terminate = || node.sh("systemctl kill --kill-who=main --signal=TERM kubelet");
    for _ in 0..2 {
        let (from, pid) = (Instant::now(), node.main_pid("kubelet")?);
        terminate()?;
        let next = || Ok(node.main_pid("kubelet").ok().filter(|next| *next != pid));
        let next = format!("pid {} answers", wait_until("another kubelet", WAIT, next)?);
        // One that is terminated while it starts exits with code 1.
        node.kubelet().wait_until_shown(from, |shown| shown.message.contains(&next))?;
    }
    node.kubelet().ensure_no_flip(&before)?;
    let third = Instant::now();
    terminate()?;
    let looping = node.kubelet().wait_for(third, "False", "KubeletCrashLooping")?;
    ensure!(looping.message.contains("3 times") && looping.message.contains("exited with code 0"), "{looping:?}");
    node.kubelet().wait_for(looping.at, "True", "KubeletIsHealthy").map(drop)
}

/// The unit of RKE2's agent is to run the kubelet, and has not since the boot.
const KUBELET_IN_A_UNIT_THAT_HAS_NOT_RUN: &str =
    "systemctl stop kubelet && cd /etc/systemd/system && cp -r kubelet.service.d rke2-agent.service.d
     cp /usr/lib/systemd/system/kubelet.service.d/* rke2-agent.service.d
     cp /usr/lib/systemd/system/kubelet.service rke2-agent.service
     printf '[Service]\\nExecStart=/usr/bin/false\\n' >k3s.service; systemctl daemon-reload; systemctl disable kubelet";

/// RKE2 installs the units of a server and of an agent, of which one is enabled. Here that of the agent runs the kubelet.
pub fn of_several_units_the_one_that_is_used_is_watched(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh(KUBELET_IN_A_UNIT_THAT_HAS_NOT_RUN)?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_until_shown(from, |shown| shown.status == "Unknown")?;
    node.sh("systemctl enable --now rke2-agent")?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    let status = node.status()?;
    ensure!(status["kubelet"]["unit"] == "rke2-agent.service", "{}", status["kubelet"]);
    Ok(())
}

/// As at a boot: the agent runs before the kubelet ever has, and systemd gives the start of the enabled unit up for want of another one, which
/// has not failed itself, but lacks a third one.
pub fn a_kubelet_that_systemd_never_starts_is_a_problem(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh(KUBELET_IN_A_UNIT_THAT_HAS_NOT_RUN)?;
    node.sh("cd /etc/systemd/system; printf '[Unit]\\nRequires=engine.service\\nAfter=engine.service\\n' >rke2-agent.service.d/90-story.conf
         printf '[Unit]\\nRequires=fails.service\\nAfter=fails.service\\n[Service]\\nExecStart=/usr/bin/sleep infinity\\n' >engine.service
         printf '[Service]\\nType=oneshot\\nExecStart=/usr/bin/false\\n' >fails.service; systemctl daemon-reload; systemctl enable rke2-agent")?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "Unknown", "KubeletNotFound")?;
    node.sh("systemctl start rke2-agent || true")?;
    let reason = "KubeletStoppedWithDependency";
    let given_up = node.kubelet().wait_longer_for(from, Duration::from_mins(4), "False", reason)?;
    ensure!(given_up.message.contains("systemd has not started rke2-agent.service"), "{given_up:?}");
    node.sh("rm /etc/systemd/system/rke2-agent.service.d/90-story.conf; systemctl daemon-reload; systemctl start rke2-agent")?;
    node.kubelet().wait_for(given_up.at, "True", "KubeletIsHealthy").map(drop)
}

/// systemd gives such a start up with the same result of the job, but nothing has failed.
pub fn a_kubelet_that_is_not_to_start_at_present_is_no_problem(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh(KUBELET_IN_A_UNIT_THAT_HAS_NOT_RUN)?;
    node.sh("cd /etc/systemd/system; printf '[Unit]\\nBindsTo=bound.service\\nAfter=bound.service\\n' >rke2-agent.service.d/90-story.conf
         printf '[Unit]\\nConditionPathExists=/nowhere\\n[Service]\\nExecStart=/usr/bin/sleep infinity\\n' >bound.service
         systemctl daemon-reload; systemctl enable rke2-agent")?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "Unknown", "KubeletNotFound")?;
    let told = node.sh("systemctl start rke2-agent 2>&1 || true")?;
    ensure!(told.contains("dependency"), "{told}");
    sleep(Duration::from_secs(150));
    node.kubelet().ensure_only(from, &["Unknown"])?;
    node.sh("cd /etc/systemd/system; printf '[Unit]\\nRequisite=bound.service\\nAfter=bound.service\\n' >rke2-agent.service.d/90-story.conf
         systemctl daemon-reload; systemctl start rke2-agent || true")?;
    sleep(Duration::from_secs(150));
    node.kubelet().ensure_only(from, &["Unknown"])
}

pub fn a_kubelet_that_systemds_watchdog_ends_is_named_so(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.kubelet_unit("[Service]\nWatchdogSec=2s\nNotifyAccess=all\n"))?;
    let from = Instant::now();
    // The kubelet is stopped, so that it sends no sign of life; SIGABRT waits until it continues, and SIGKILL does not.
    node.sh("systemctl kill --kill-who=main --signal=STOP kubelet")?;
    let watchdog = "was ended by systemd's watchdog: no sign of life for 2 s";
    node.kubelet().wait_until_shown(from, |shown| shown.message.contains(watchdog))?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy").map(drop)
}

pub fn a_stop_of_the_runtime_is_a_stop_job_too(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let from = Instant::now();
    for dependency in ["BindsTo", "Requires"] {
        node.sh(&format!(
            "mkdir -p /run/systemd/system/kubelet.service.d
             printf '[Unit]\\n{dependency}=containerd.service\\nAfter=containerd.service\\n' \
               >/run/systemd/system/kubelet.service.d/90-runtime.conf
             systemctl daemon-reload"
        ))?;
        for command in ["stop containerd", "stop containerd kubelet"] {
            let stopped_at = Instant::now();
            node.sh(&format!("systemctl {command}"))?;
            let stopped = node.kubelet().wait_for(stopped_at, "Unknown", "KubeletStoppedByOperator")?;
            node.kubelet().ensure_unchanged(&stopped)?;
            let started_at = Instant::now();
            node.sh("systemctl start containerd kubelet")?;
            node.kubelet().wait_for(started_at, "True", "KubeletIsHealthy")?;
        }
    }
    node.kubelet().ensure_only(from, &["True", "Unknown"])
}

pub fn a_kubelet_that_was_stopped_with_a_failed_runtime_is_a_problem(scene: &Scene) -> Result<()> {
    stopped_with_its_runtime(scene, "KILL", "[Unit]\nBindsTo=containerd.service\nAfter=containerd.service\n")
}

/// The kubelet requires a service that is bound to the runtime, as docker.service was to containerd.service.
pub fn a_kubelet_that_was_stopped_with_a_runtime_that_ended_cleanly_is_a_problem(scene: &Scene) -> Result<()> {
    stopped_with_its_runtime(scene, "TERM", "[Unit]\nRequires=engine.service\nAfter=engine.service\n")
}

/// systemd stops a kubelet whose container runtime ends, and does not start it again when the runtime is back.
fn stopped_with_its_runtime(scene: &Scene, signal: &str, unit: &str) -> Result<()> {
    let runtime = "[Service]\nRestart=always\nRestartSec=1\n";
    let engine =
        "[Unit]\nBindsTo=containerd.service\nAfter=containerd.service\n[Service]\nExecStart=/usr/bin/sleep infinity\n";
    let node = scene.healthy_with(|node| {
        let node = node.kubelet_unit(unit).file("/etc/systemd/system/engine.service", engine);
        node.file("/etc/systemd/system/containerd.service.d/60-story.conf", runtime)
    })?;
    let from = Instant::now();
    node.sh(&format!("systemctl kill --kill-who=main --signal={signal} containerd"))?;
    // It is a problem when the runtime has been back for two minutes.
    let reason = "KubeletStoppedWithDependency";
    let stopped = node.kubelet().wait_longer_for(from, Duration::from_mins(4), "False", reason)?;
    ensure!(stopped.message.contains(&node.unit("containerd")), "{stopped:?}");
    let states = ["kubelet", "containerd"].map(|unit| node.property(unit, "ActiveState").unwrap_or_default());
    ensure!(states == ["inactive", "active"], "kubelet and containerd: {states:?}");
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "Unknown", "False"])
}

/// What comes before the process fails each time, and systemd tries again for good.
pub fn a_unit_that_fails_before_its_process_is_a_problem(scene: &Scene) -> Result<()> {
    let settings = "[kubelet]\nstart_grace_secs = 10\n";
    let unit = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\nExecStartPre=/usr/bin/test ! -e /run/fails\n";
    let node =
        scene.healthy_with(|node| node.kubelet_unit(unit).file("/etc/nodevigil/config.d/60-story.toml", settings))?;
    let from = Instant::now();
    node.sh("touch /run/fails; systemctl restart kubelet || true")?;
    let failed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(failed.message.contains("Result=exit-code"), "{failed:?}");
    node.sh("rm /run/fails")?;
    node.kubelet().wait_for(failed.at, "True", "KubeletIsHealthy").map(drop)
}
