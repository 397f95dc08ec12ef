//! Nodes that join while all that happens to another, and to the API server: each is watched for its first five minutes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nodevigil::health::ConditionType;

use super::Run;
use super::judge::Witness;
use crate::scene::{KUBELET, OURS, Scene};
use crate::support::api::{condition, condition_status};
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::{say, wait_until};

/// So long Karpenter watches a replacement until it counts a repair as proven.
const PROVEN: Duration = Duration::from_mins(5);
/// From its boot to the first condition, while the API server may be down.
const FIRST: Duration = Duration::from_mins(2);
/// Five minutes and what comes before and after them.
const TAKES: Duration = Duration::from_mins(6);

/// One node after the other, as many as the time allows, and at least one.
pub(super) fn join(plane: &Arc<ControlPlane>, run: &Run) -> Result<usize> {
    let mut joined = 0;
    while joined == 0 || run.began.elapsed() + TAKES < run.lasting {
        if run.broken.load(Ordering::Relaxed) {
            break;
        }
        one(plane, run, &format!("well-joins-{joined}"))?;
        joined += 1;
    }
    Ok(joined)
}

/// Boots with kubelet and agent, as a node does whose image has both.
fn one(plane: &Arc<ControlPlane>, run: &Run, name: &str) -> Result<()> {
    let watch = plane.watch_node(name)?;
    let node = NodeBuilder::new(plane, name)
        .agent()
        .start("nodevigil-helper.socket")
        .start("nodevigil.service")
        .boot()?;
    let group = format!("{}/system.slice/{KUBELET}", node.group());
    let witness = Witness::start(plane, name, group)?;
    let plane = Arc::clone(plane);
    Scene { plane, node, watch }.play(|scene| {
        let ours = |event: &_| {
            let mut all = ConditionType::ALL.iter();
            all.any(|kind| condition(event, kind.as_str()).is_some())
        };
        let (first, _) = scene.watch.wait_for(FIRST, ours)?;
        while first.elapsed() < PROVEN && !run.broken.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
        }
        let events = scene.watch.all();
        let bad = witness.judge(&events);
        if let Some(bad) = bad.first() {
            let after = bad.at.saturating_duration_since(first);
            bail!("{name}, {after:?} after its first condition: {bad}");
        }
        if first.elapsed() < PROVEN {
            return Ok(()); // another part failed, and says why
        }
        let last = events.last().map(|(_, event)| event);
        for kind in ["Ready", OURS] {
            let status = last.and_then(|event| condition_status(event, kind));
            ensure!(
                status == Some("True"),
                "{name} did not join well: {kind} is {status:?}"
            );
        }
        say(&format!(
            "WELL | {name} joined, and showed no False for {:?}",
            first.elapsed()
        ));
        let end = Instant::now();
        wait_until("its Node to be gone", FIRST, || {
            let gone = scene.plane.delete_node(name).is_ok();
            Ok((gone || end.elapsed() > FIRST).then_some(()))
        })
    })
}
