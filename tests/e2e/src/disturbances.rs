//! What a healthy node must take without a problem on its Node: a row for each disturbance. The stories `trust::` run all of them, and
//! `e2e --well` draws from them at random.

mod acts;
mod setup;
mod table;

use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

pub use self::acts::{begin_stall, thaw};
pub use self::setup::{ensure_no_problem, healthy_node, reasons_shown, wait_until_all_healthy};
pub use self::table::{DISTURBANCES, GUEST, LIMITED_CPU, LOAD, NETWORK, PLANNED_WORK, PROCESSES};
use crate::scene::ObservedNode;
use crate::support::control_plane::ControlPlane;

/// A sampled problem is published as one when the Node is two minutes old.
const NODE_AGE: Duration = Duration::from_secs(125);

/// What begins a disturbance, or ends it.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Nothing,
    /// A shell command on the node, which must succeed.
    Shell(&'static str),
    Do(fn(&ObservedNode, &ControlPlane) -> Result<()>),
}

/// Something that happens to a node and is no fault of it.
#[derive(Debug)]
pub struct Disturbance {
    pub name: &'static str,
    pub begin: Act,
    /// How long it lasts.
    pub secs: u64,
    pub end: Act,
    /// Whether what it resembles would be found by sampling.
    pub is_sampled: bool,
}

/// Ways to end the agent, after each of which it runs again.
pub const AGENT_RESTARTS: [&str; 3] = [
    "systemctl restart nodevigil",
    "systemctl kill --signal=KILL nodevigil",
    "systemctl stop nodevigil; sleep 2; systemctl start nodevigil",
];

impl Act {
    pub fn run(self, node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Shell(command) => node.sh(command).map(drop),
            Self::Do(act) => act(node, plane),
        }
    }
}

impl Disturbance {
    /// Begins it, waits, and undoes it even if something failed: a process that waits for a frozen file system outlives its node.
    /// Meanwhile the agent is ended by `agent_restart`, if there is one.
    pub fn run(&self, node: &ObservedNode, plane: &ControlPlane, agent_restart: Option<&str>) -> Result<()> {
        let lasts = Duration::from_secs(self.secs);
        let played = scope(|scope| {
            let restart = scope.spawn(move || -> Result<()> {
                let Some(command) = agent_restart else { return Ok(()) };
                sleep(Duration::from_secs(1).max(lasts / 2));
                // The first try fails if systemd executes itself again at that moment. On a starved host the start may take longer than
                // TimeoutStartSec=, and systemd tries again.
                node.run(&format!("{command} || {{ sleep 1; {command}; }}")).map(drop)
            });
            let begun = self.begin.run(node, plane);
            if begun.is_ok() {
                sleep(lasts);
            }
            begun.and(restart.join().map_err(|_| anyhow!("the restart of the agent panicked"))?)
        });
        let ended = self.end.run(node, plane);
        played.and(ended).with_context(|| self.name)
    }
}

/// Waits until a sampled problem of the node would be published as one.
pub fn wait_until_not_young(node: &ObservedNode) {
    let age = node.watch().since(None).first().map(|(at, _)| at.elapsed());
    sleep(NODE_AGE.saturating_sub(age.unwrap_or_default()));
}
