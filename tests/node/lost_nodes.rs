//! What users of other agents lost nodes to, each as a test of that name.

mod conflicts;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::scene::{AGENT, SOON, Scene, Told};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::{say, wait_until};
use crate::trial;

/// From the stall of the loop until the Node says what happened meanwhile: `WatchdogSec=10`, `TimeoutStopSec=5` (a
/// stopped process does not hear systemd's SIGABRT), `RestartSec=1`, and room for a loaded machine.
const STALLED: Duration = Duration::from_secs(25);
/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    let mut tests = conflicts::tests();
    tests.push(trial(
        "lost_nodes::stuck_loop_is_restarted",
        stuck_loop_is_restarted,
    ));
    tests
}

/// The loop of the agent stalls, three times, and each time something happens that it does not see: the kubelet dies;
/// it comes back while the API server is away; the Node is made anew.
fn stuck_loop_is_restarted() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "stuck-loop")?.play(|scene| {
        let watchdog = scene.property(AGENT, "WatchdogUSec")?;
        ensure!(watchdog == "10s", "as shipped: {watchdog}");

        let stalled = stall(scene)?;
        scene.keep_dead()?;
        let death = scene.kill_kubelet()?;
        let dead = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        let first = dead.at - stalled.at;
        restarted(scene, &stalled)?;
        scene.ensure_still(&dead)?;

        scene.plane.stop_apiserver();
        let stalled = stall(scene)?;
        scene.node.sh("systemctl start kubelet")?;
        restarted(scene, &stalled)?;
        scene.status_file("the next agent to know", |file| {
            file["conditions"][0]["status"] == "True"
        })?;
        let returned = Instant::now();
        scene.plane.start_apiserver()?;
        let well = scene.wait_for(stalled.at, "True", "KubeletIsHealthy")?;
        let second = well.at.saturating_duration_since(returned);

        let stalled = stall(scene)?;
        scene.plane.delete_node(scene.node.name())?;
        scene.node.sh("systemctl restart kubelet")?;
        let anew = scene.wait_until_told(stalled.at, |told: &Told| told.uid != well.uid)?;
        let third = anew.at - stalled.at;
        restarted(scene, &stalled)?;
        ensure!(anew.status == "True", "{anew:?}");
        scene.ensure_only(anew.at, &["True"])?;
        say(&format!(
            "stuck_loop_is_restarted: the dead kubelet told {first:.1?} after the stall, its return {second:.1?} after the API server's start, the new Node {third:.1?} after the stall",
        ));
        ensure!(first < STALLED && second < STALLED && third < STALLED, "too late");
        scene.kill_for_good()?;
        scene.revive().map(|_| ())
    })
}

/// A loop that stands still.
struct Stalled {
    at: Instant,
    pid: i32,
    restarts: u32,
}

fn stall(scene: &Scene) -> Result<Stalled> {
    Ok(Stalled {
        restarts: restarts(scene)?,
        pid: scene.node.main_pid(AGENT)?,
        at: scene.node.signal_unit(AGENT, Signal::SIGSTOP)?,
    })
}

/// Waits until systemd has ended the stalled agent and started another; fails if that was not its watchdog.
fn restarted(scene: &Scene, stalled: &Stalled) -> Result<()> {
    wait_until("another agent", SOON, || {
        let pid = scene.node.main_pid(AGENT)?;
        Ok((pid != 0 && pid != stalled.pid).then_some(()))
    })?;
    let restarts = restarts(scene)?;
    ensure!(
        restarts == stalled.restarts + 1,
        "{restarts} restarts, and {} before",
        stalled.restarts
    );
    let by = scene
        .node
        .run("journalctl --no-pager -o cat -u nodevigil | grep -c 'Watchdog timeout'")?
        .1;
    ensure!(
        by.trim().parse::<u32>()? == restarts,
        "not by its watchdog: {by}"
    );
    Ok(())
}

fn restarts(scene: &Scene) -> Result<u32> {
    Ok(scene.property(AGENT, "NRestarts")?.parse()?)
}
