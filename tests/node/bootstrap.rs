//! `nodevigil bootstrap` on a real node: the way to Ready with its times, and what it says of nodes that were broken in ten
//! ways, one at a time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::say;
use crate::trial;

const RECORD: &str = "/var/lib/nodevigil-helper/bootstrap.json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("bootstrap::joins", a_node_that_joins_reaches_ready)]
}

/// Runs the command: exit code and what it printed.
pub(crate) fn run(node: &Node, deadline: Duration) -> Result<(i32, String)> {
    let secs = deadline.as_secs();
    node.run(&format!("nodevigil bootstrap --deadline {secs}s"))
}

/// The record that it keeps.
pub(crate) fn record(node: &Node) -> Result<Value> {
    serde_json::from_str(&node.read(RECORD)?).context("reading the record")
}

/// cloud-init and `kubeadm join` as in a cloud, with the command beside them from the boot on.
fn a_node_that_joins_reaches_ready() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "way").joining().agent().boot()?;
    let (code, said) = run(&node, Duration::from_mins(2))?;
    say(&said);
    ensure!(code == 0, "{code}: {said}");
    // In the order in which they happen; the whole timeline is at the end.
    let stages = [
        "cloud-init",
        "runtime",
        "kubelet",
        "credential",
        "registered",
        "ready",
    ];
    let mut from = 0;
    for stage in stages {
        let line = format!(" {stage} reached: ");
        let at = said[from..]
            .find(&line)
            .with_context(|| format!("no line on {stage} in its place: {said}"))?;
        from += at;
    }
    ensure!(said[from..].contains("this node is of use"), "{said}");
    let record = record(&node)?;
    ensure!(
        record["result"] == "bootstrapped" && record["by"] == "command",
        "{record:#}"
    );
    let reached = |stage: &str| {
        let stages = record["stages"].as_array();
        let row = stages.and_then(|rows| rows.iter().find(|row| row["stage"] == stage));
        row.and_then(|row| row["reached_millis"].as_u64())
    };
    let times: Vec<_> = stages.iter().map(|stage| reached(stage)).collect();
    ensure!(times.iter().all(Option::is_some), "{record:#}");
    ensure!(times.is_sorted(), "{times:?}");
    // Run again, it says so at once.
    let (code, said) = run(&node, Duration::from_mins(1))?;
    ensure!(
        code == 0 && said.contains("this node is of use"),
        "{code}: {said}"
    );
    Ok(())
}
