//! The way of an emergency to the Node, and what is kept ready for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{OURS, SOON};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::lone_agent::LoneAgent;
use crate::support::wait_until;
use crate::trial;

/// Another than those of the failures of the API.
const NUMBER: u8 = 201;
/// Longer than any HTTP client keeps a connection on which it sends nothing.
const IDLE: Duration = Duration::from_secs(95);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial(
        "emergency::kept_connection",
        after_an_idle_time_the_connection_is_there,
    )]
}

/// Between two heartbeats nothing is sent for minutes: the connection must be open all the same.
fn after_an_idle_time_the_connection_is_there() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let from = Instant::now();
    let mut agent = LoneAgent::start(&plane, "emergency-kept", NUMBER)?;
    let well = |event: &_| condition_status(event, OURS) == Some("True");
    let first = agent.watch.wait_since(from, SOON, well);
    first.with_context(|| agent.tail())?;
    let asked = || agent.proxy.traffic().requests.into_iter().map(|one| one.at);
    wait_until("an idle time", 3 * IDLE, || {
        Ok(asked().all(|at| at.elapsed() > IDLE).then_some(()))
    })?;
    let before = agent.proxy.traffic();
    let gone = agent.kill_kubelet()?;
    let bad = |event: &_| condition_status(event, OURS) == Some("False");
    agent.watch.wait_since(gone, SOON, bad)?;
    let after = agent.proxy.traffic();
    let applies = after.requests.iter().filter(|one| one.at > gone);
    let on: Vec<usize> = applies.map(|one| one.connection).collect();
    ensure!(
        after.connections.len() == before.connections.len() && !on.is_empty(),
        "{} connections before, {} after; the requests went on {on:?}",
        before.connections.len(),
        after.connections.len()
    );
    Ok(())
}
