//! `e2e --well`: a healthy node that is disturbed at random for a long time. `make well` runs it.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::disturbances::{
    AGENT_RESTARTS, DISTURBANCES, Disturbance, ensure_no_problem, healthy_node, reasons_shown, wait_until_all_healthy,
    wait_until_not_young,
};
use crate::runner;
use crate::scene::{ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::say;

/// Disturbs the node for as long as `lasting`; ends with an error at the first problem that the Node shows.
pub fn run(lasting: Duration, seed: Option<u64>) -> Result<ExitCode> {
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    say(&format!("{} minutes of disturbances, --seed {seed}", lasting.as_secs() / 60));
    let plane = Arc::new(ControlPlane::start().context("starting the control plane")?);
    let scene = Scene::new(&plane, "well");
    let result = disturb(&scene, lasting, &mut fastrand::Rng::with_seed(seed));
    if result.is_err() {
        scene.nodes().iter().for_each(|node| runner::describe(node, &plane));
    }
    let ended = scene.end();
    result.with_context(|| format!("--seed {seed}"))?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Each disturbance comes once before one comes again.
fn disturb(scene: &Scene, lasting: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let (node, from) = healthy_node(scene)?;
    wait_until_not_young(&node);
    let (begun, mut count) = (Instant::now(), 0_usize);
    let mut deck: Vec<&Disturbance> = Vec::new();
    while begun.elapsed() < lasting {
        if deck.is_empty() {
            deck.extend(DISTURBANCES.into_iter().flatten());
            random.shuffle(&mut deck);
        }
        let Some(disturbance) = deck.pop() else { continue };
        let restart = if random.bool() { random.choice(AGENT_RESTARTS) } else { None };
        let (at, before) = (from.elapsed().as_secs(), Instant::now());
        say(&format!("{at:>5} s  {}{}", disturbance.name, restart.map(|how| format!("; {how}")).unwrap_or_default()));
        disturbance.run(&node, scene.plane(), restart)?;
        sleep(Duration::from_millis(random.u64(0..3000)));
        ensure_no_problem(&node, before).with_context(|| disturbance.name)?;
        say(&format!("         shown: {}", reasons_shown(&node, before)));
        count += 1;
    }
    wait_until_all_healthy(&node)?;
    ensure_no_problem(&node, from)?;
    say(&format!("{count} disturbances in {} s, and no problem", begun.elapsed().as_secs()));
    is_still_watched(&node)
}

/// Checks that a crash is reported: the agent was watching while no problem was reported.
fn is_still_watched(node: &ObservedNode) -> Result<()> {
    node.kill_for_good().map(drop)
}
