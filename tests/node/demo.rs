//! Shows the agent at work on a real node: boots one, breaks its kubelet, and prints what the API server saw, when.
//!
//! `FULL=1` also waits until the control plane notices a dead kubelet by itself.
#![expect(
    clippy::disallowed_methods,
    reason = "the demonstration stands outside the agent: it reads its own environment and clock"
)]

#[path = "demo/acts.rs"]
mod acts;
#[path = "demo/lost_flag.rs"]
mod lost_flag;
#[path = "demo/paper.rs"]
mod paper;
#[path = "../support/mod.rs"]
mod support;
#[path = "demo/witness.rs"]
mod witness;

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use acts::Stage;
use paper::Paper;
use support::control_plane::ControlPlane;
use support::node::Node;
use support::node_builder::NodeBuilder;
use support::watch::NodeWatch;

/// The Node's name.
const NODE: &str = "node-1";
/// How long any step may take. None takes a tenth of it on two cores.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    support::enter::enter();
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let colour = stdout().is_terminal() && !is_set("NO_COLOR");
    let mut paper = Paper::new(Instant::now(), colour);
    match tell(&mut paper, is_set("FULL")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            paper.failure(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn tell(paper: &mut Paper, full: bool) -> Result<()> {
    paper.heading("A control plane");
    let plane = ControlPlane::shared()?;
    introduce(paper, &plane)?;
    let watch = plane.watch_node(NODE)?;
    let node = boot(paper, &plane)?;
    play(paper, &node, &watch, full).map_err(|error| {
        let (_, log) = node
            .run(
                "for unit in 'nodevigil*' kubelet.service; do
                    journalctl -n 20 --no-pager -o short-precise -u \"$unit\"
                  done; tail -n 10 /var/log/kubeadm.log",
            )
            .unwrap_or_default();
        anyhow!("{error:#}\n\nThe end of the node's journal:\n{log}")
    })?;
    drop(watch);
    node.power_off()?;
    paper.line("the node is off, and nothing of it is left on this machine");
    Ok(())
}

fn introduce(paper: &Paper, plane: &ControlPlane) -> Result<()> {
    let (_, version) = plane.get("/version")?;
    paper.line(&format!(
        "etcd, kube-apiserver and kube-controller-manager {} are up, after {:.1} s",
        version["gitVersion"].as_str().unwrap_or_default(),
        plane.took().as_secs_f64()
    ));
    paper.detail(
        "to keep this short: [kubelet] healthy_for_secs = 1 (default 60), crash_loop_ends = 100 (3), RestartSec=1 of kubelet.service (kubeadm's: 10)",
    );
    Ok(())
}

fn boot(paper: &Paper, plane: &Arc<ControlPlane>) -> Result<Node> {
    paper.heading("A node boots and joins");
    let node = lost_flag::mistake(NodeBuilder::new(plane, NODE))
        .joining()
        .agent()
        .config(
            "50-demo.toml",
            "[kubelet]\nhealthy_for_secs = 1\ncrash_loop_ends = 100\ncrash_loop_within_secs = 30\n",
        )
        .restart_sec(Duration::from_secs(1))
        .boot()
        .context("booting a node")?;
    let systemd = node.sh("systemctl --version | head -n 1")?;
    paper.line(&format!(
        "{} is PID 1 of {NODE}; cloud-init runs kubeadm join",
        systemd.trim()
    ));
    Ok(node)
}

fn play(paper: &mut Paper, node: &Node, watch: &NodeWatch, full: bool) -> Result<()> {
    let ready = node
        .wait_ready(PATIENCE)
        .context("waited for the node to join and to become Ready")?;
    let object = node.plane().node(NODE)?.unwrap_or_default();
    let info = |name| object["status"]["nodeInfo"][name].as_str().unwrap_or("?");
    paper.line(&format!(
        "Ready=True {:.1} s after its boot began; kubelet {}, {}, Linux {}",
        ready.as_secs_f64(),
        info("kubeletVersion"),
        info("containerRuntimeVersion"),
        info("kernelVersion"),
    ));
    let mut stage = Stage { paper, node, watch };
    stage.flag_is_lost()?;
    let started = stage.agent_starts()?;
    stage.lost_flag_is_told(started)?;
    stage.flag_is_mended()?;
    stage.kubelet_is_killed()?;
    stage.kubelet_hangs()?;
    if full {
        stage.kubelet_stays_dead()?;
    }
    stage.operator_stops_kubelet()?;

    paper.heading("All together");
    paper.table(["event", "what the Node said", "after"]);
    witness::testify(paper, node)?;
    Ok(())
}

/// A string in JSON, empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
