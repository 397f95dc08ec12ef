//! What is no fault of a node makes no condition `False` and sets no taint; a kubelet that is then killed is reported all the same.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::maintenance::hold_lock;
use crate::disturbances::{
    AGENT_RESTARTS, Disturbance, GUEST, LIMITED_CPU, LOAD, NETWORK, PLANNED_WORK, PROCESSES, ensure_no_problem,
    healthy_node, reasons_shown, wait_until_all_healthy, wait_until_not_young,
};
use crate::scene::{ObservedNode, Scene};
use crate::support::{WAIT, say, wait_until};

/// A problem that was found at the end of a disturbance is shown by then.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// Runs disturbances on a healthy node, which is healthy at the end too.
fn disturb(scene: &Scene, disturbances: &[Disturbance]) -> Result<Arc<ObservedNode>> {
    play(scene, disturbances, None)
}

/// The same, and each time the agent ends meanwhile.
fn disturb_and_restart(scene: &Scene, disturbances: &[Disturbance]) -> Result<()> {
    play(scene, disturbances, Some(AGENT_RESTARTS)).map(drop)
}

fn play(scene: &Scene, disturbances: &[Disturbance], restarts: Option<[&'static str; 3]>) -> Result<Arc<ObservedNode>> {
    let (node, from) = healthy_node(scene)?;
    let mut restarts = restarts.into_iter().flatten().cycle();
    for disturbance in disturbances {
        if disturbance.is_sampled {
            wait_until_not_young(&node);
        }
        let begun = Instant::now();
        let restart = restarts.next();
        disturbance.run(&node, scene.plane(), restart)?;
        ensure_no_problem(&node, from).with_context(|| disturbance.name)?;
        let (secs, shown) = (begun.elapsed().as_secs(), reasons_shown(&node, begun));
        say(&format!("{secs:>4} s  {}: {shown}", disturbance.name));
    }
    wait_until_all_healthy(&node)?;
    sleep(SHOWN_WITHIN);
    ensure_no_problem(&node, from)?;
    Ok(node)
}

/// The agent was watching while nothing was reported.
fn ensure_a_crash_is_reported(node: &ObservedNode, from: Instant) -> Result<()> {
    node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(ensure_no_problem(node, from).is_err(), "the crash is no problem to this story");
    Ok(())
}

pub fn other_processes_are_no_fault(scene: &Scene) -> Result<()> {
    let node = disturb(scene, PROCESSES)?;
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    ensure_a_crash_is_reported(&node, from)
}

/// At the end the kubelet is killed while a package manager holds its lock, and stays dead.
pub fn planned_work_is_no_fault(scene: &Scene) -> Result<()> {
    let node = disturb(scene, PLANNED_WORK)?;
    node.disable_restart()?;
    hold_lock(&node, "/var/lib/rpm/.rpm.lock")?;
    let from = Instant::now();
    node.kill_kubelet()?;
    sleep(SHOWN_WITHIN);
    ensure_no_problem(&node, from)?;
    node.sh("systemctl stop upgrade")?;
    ensure_a_crash_is_reported(&node, from)
}

/// At the end the kubelet is killed while it is starved.
pub fn load_is_no_fault(scene: &Scene) -> Result<()> {
    let node = disturb(scene, LOAD)?;
    node.disable_restart()?;
    LIMITED_CPU.begin.run(&node, scene.plane())?;
    sleep(SHOWN_WITHIN);
    let from = Instant::now();
    node.kill_kubelet()?;
    ensure_a_crash_is_reported(&node, from)
}

/// At the end the kubelet is killed after an outage of the API server.
pub fn what_the_network_does_is_no_fault(scene: &Scene) -> Result<()> {
    let node = disturb(scene, NETWORK)?;
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    ensure_a_crash_is_reported(&node, from)
}

pub fn other_processes_and_restarts_of_the_agent_are_no_fault(scene: &Scene) -> Result<()> {
    disturb_and_restart(scene, PROCESSES)
}

pub fn planned_work_and_restarts_of_the_agent_are_no_fault(scene: &Scene) -> Result<()> {
    disturb_and_restart(scene, PLANNED_WORK)
}

pub fn load_and_restarts_of_the_agent_are_no_fault(scene: &Scene) -> Result<()> {
    disturb_and_restart(scene, LOAD)
}

pub fn what_the_network_does_and_restarts_of_the_agent_are_no_fault(scene: &Scene) -> Result<()> {
    disturb_and_restart(scene, NETWORK)
}

/// The Node outlives the machine, and the agent starts before the kubelet. The boot ID and the uptime stay those of the machine that runs
/// the stories.
pub fn a_reboot_is_no_fault(scene: &Scene) -> Result<()> {
    let (node, from) = healthy_node(scene)?;
    // The last step would be that machine's.
    node.sh("mkdir -p /run/systemd/system/systemd-poweroff.service.d
         printf '[Unit]\\nSuccessAction=none\\n[Service]\\nExecStart=\\nExecStart=true\\n' >/run/systemd/system/systemd-poweroff.service.d/60-story.conf
         systemctl daemon-reload; systemctl poweroff --no-block")?;
    wait_until("the end of the agent", WAIT, || Ok((node.run("systemctl is-active nodevigil")?.0 != 0).then_some(())))?;
    node.end()?;
    sleep(Duration::from_secs(20)); // until the kubelet's Lease is old, and the agent's conditions are
    let (rebooted, _) = healthy_node(scene)?;
    sleep(SHOWN_WITHIN);
    ensure_no_problem(&node, from)?; // its watch is on the Node, which is the same
    let from = Instant::now();
    rebooted.disable_restart()?;
    rebooted.kill_kubelet()?;
    ensure_a_crash_is_reported(&rebooted, from)
}

/// The agent was watching meanwhile: at the end it reports a crash.
pub fn what_happens_to_a_virtual_machine_is_no_fault(scene: &Scene) -> Result<()> {
    let node = disturb(scene, GUEST)?;
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    ensure_a_crash_is_reported(&node, from)
}

/// Without the node's own shutdown, and after a panic of its kernel.
pub fn a_hard_reboot_is_no_fault(scene: &Scene) -> Result<()> {
    let (node, from) = healthy_node(scene)?;
    node.sh("systemctl enable nodevigil")?;
    for command in ["reboot -f", "echo c >/proc/sysrq-trigger"] {
        let boot = node.guest()?.boot_id()?;
        node.sh(&format!("sync; (sleep 1; {command}) >/dev/null 2>&1 &"))?;
        wait_until("another boot", WAIT, || Ok(node.guest()?.boot_id().ok().filter(|now| *now != boot)))
            .with_context(|| command)?;
        let booted = Instant::now();
        node.watch().wait_ready(booted)?;
        wait_until_all_healthy(&node)?;
        sleep(SHOWN_WITHIN);
        ensure_no_problem(&node, from).with_context(|| command)?;
    }
    node.disable_restart()?;
    let from = Instant::now();
    node.kill_kubelet()?;
    ensure_a_crash_is_reported(&node, from)
}
