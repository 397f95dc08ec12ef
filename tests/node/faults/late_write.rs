//! What was written into the dark must not land when the wire heals.
//!
//! The kernel keeps what it could not deliver, and sends it again for minutes: an old `False` would arrive after the
//! newer `True`. The agent aborts the connection of a request that it gives up, so that nothing is left to send.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{OURS, SOON, Told};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::lone_agent::LoneAgent;
use crate::trial;

/// Another than those of the rows.
const NUMBER: u8 = 200;
/// Longer than the deadline of a request, so that the write has been given up.
const DEAD_FOR: Duration = Duration::from_secs(8);
/// As long again in the dark, so that the next write is under way or given up too.
const WELL_FOR: Duration = Duration::from_secs(12);
/// After so long a darkness the kernel's next try comes at most as much later.
const LOOK_ON: Duration = Duration::from_secs(25);

/// The tests of this topic.
pub(super) fn tests() -> Vec<Trial> {
    vec![trial(
        "faults::late_write",
        a_write_into_the_dark_does_not_land_when_the_wire_heals,
    )]
}

fn a_write_into_the_dark_does_not_land_when_the_wire_heals() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let from = Instant::now();
    let mut agent = LoneAgent::start(&plane, "fault-late-write", NUMBER)?;
    let well = |event: &_| condition_status(event, OURS) == Some("True");
    let first = agent.watch.wait_since(from, SOON, well);
    let first = first.with_context(|| agent.tail())?;
    agent.wire.cut()?;
    agent.kill_kubelet()?;
    std::thread::sleep(DEAD_FOR); // the write is to be given up
    agent.revive_kubelet()?;
    std::thread::sleep(WELL_FOR); // it is well again, and has been for its spell
    agent.wire.mend()?;
    std::thread::sleep(LOOK_ON); // what the kernel still sends, it has sent by then
    agent.ensure_alive()?;
    let events = agent.watch.since(first.0);
    let told: Vec<_> = events.iter().filter_map(Told::read).collect();
    let wrong = told.iter().find(|told| told.status == "False");
    ensure!(
        wrong.is_none(),
        "an old write landed: {told:#?}\n{}",
        agent.tail()
    );
    Ok(())
}
