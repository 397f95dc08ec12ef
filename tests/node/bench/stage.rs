//! The stage that everything is measured on, and what its measurements share.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::api::{condition, condition_status};
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::say;
use crate::support::watch::{Arrival, NodeWatch};

/// The node's name.
pub(crate) const NODE: &str = "bench";
/// The condition that the agent publishes.
pub(crate) const KUBELET: &str = "KubeletHealthy";
/// The harness's own condition, for the bare apply.
const BARE: &str = "BenchBareApply";
/// How long systemd waits before it restarts the kubelet.
pub(crate) const RESTART: Duration = Duration::from_millis(100);
/// What takes longer ends the bench.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// A control plane, a node with the agent, and a watch of it.
pub(crate) struct Stage {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) node: Node,
    pub(crate) watch: NodeWatch,
    rng: Rng,
    applied: u32,
}

impl Stage {
    /// Boots it all; returns when the agent has called the kubelet healthy.
    pub(crate) fn set() -> Result<Self> {
        let plane = ControlPlane::shared()?;
        let watch = plane.watch_node(NODE)?;
        let node = NodeBuilder::new(&plane, NODE)
            .agent()
            .config("50-bench.toml", "[kubelet]\nhealthy_for_secs = 0\ncrash_loop_ends = 100\ncrash_loop_within_secs = 30\n")
            .restart_sec(RESTART)
            .boot()?;
        let ready = node.wait_ready(SOON)?;
        node.start_agent()?;
        let mut stage = Self {
            plane,
            node,
            watch,
            rng: Rng::with_seed(1),
            applied: 0,
        };
        let healthy = stage.watch.wait_for(SOON, |event| is(event, "True"));
        healthy.with_context(|| stage.agents_journal())?;
        stage.bare_apply()?; // opens the connection that the measured ones find open
        say(&format!(
            "the node is Ready {ready:?} after its boot began; the agent runs as its unit"
        ));
        Ok(stage)
    }

    /// Waits for a while that is different each time, so that no rhythm of ours meets one of the agent's or the kubelet's.
    pub(crate) fn pause(&mut self, least: u64, most: u64) {
        std::thread::sleep(Duration::from_millis(self.rng.u64(least..=most)));
    }

    /// Waits for the agent's condition to have a status, after `from`.
    pub(crate) fn wait(&self, from: Instant, status: &str) -> Result<Arrival> {
        let arrival = self.watch.wait_since(from, SOON, |event| is(event, status));
        arrival.with_context(|| format!("{KUBELET}={status}\n{}", self.agents_journal()))
    }

    /// What any writer has to bear: a server-side apply of one condition on the same Node over a connection that is
    /// open; returns how long it took from before it was sent until the watch had it.
    pub(crate) fn bare_apply(&mut self) -> Result<Duration> {
        self.applied += 1;
        let reason = format!("Try{}", self.applied);
        let now = Timestamp::from_second(Timestamp::now().as_second())?.to_string();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE},
            "status": {"conditions": [{
                "type": BARE, "status": if self.applied.is_multiple_of(2) { "True" } else { "False" },
                "reason": reason, "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
            }]},
        });
        let path = format!("/api/v1/nodes/{NODE}/status?fieldManager=nodevigil-bench&force=true");
        let sent = Instant::now();
        let (code, answer) =
            self.plane
                .request("PATCH", &path, "application/apply-patch+yaml", &body)?;
        ensure!(code == 200, "the bare apply was answered {code}: {answer}");
        let (seen, _) = self.watch.wait_since(sent, SOON, |event| {
            condition(event, BARE).is_some_and(|bare| bare["reason"] == reason.as_str())
        })?;
        Ok(seen - sent)
    }

    fn agents_journal(&self) -> String {
        let tail = "journalctl -n 30 --no-pager -o short-precise -u 'nodevigil*'";
        self.node
            .run(tail)
            .map_or_else(|error| error.to_string(), |(_, text)| text)
    }
}

/// Whether a watch event has the agent's condition with this status.
fn is(event: &Value, status: &str) -> bool {
    condition_status(event, KUBELET) == Some(status)
}

/// The reason of the agent's condition.
pub(crate) fn reason(event: &Value) -> String {
    let reason = condition(event, KUBELET).and_then(|condition| condition["reason"].as_str());
    reason.unwrap_or_default().to_owned()
}

/// Tells how far a measurement is: on a terminal one line that changes, else a line now and then.
pub(crate) struct Progress {
    what: &'static str,
    of: usize,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str, of: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { what, of, terminal }
    }

    /// `done` of all are done.
    pub(crate) fn step(&self, done: usize, detail: &str) {
        let line = format!("{} {done}/{} {detail}", self.what, self.of);
        if self.terminal {
            let end = if done == self.of { "\n" } else { "" };
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}{end}"); // nobody's failure, as in `say`
        } else if done.is_multiple_of((self.of / 10).max(1)) {
            say(&line);
        }
    }
}
