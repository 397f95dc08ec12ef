//! The harness itself: nothing is left of nodes and runs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::leftovers::Namespaces;
use crate::support::namespaces::{self, STAGE};
use crate::support::node::{Node, NodeBuilder};
use crate::support::watch::NodeWatch;
use crate::support::{cgroups, wait_until};

const SOON: Duration = Duration::from_secs(20);

fn ready_node(plane: &Arc<ControlPlane>, name: &str) -> Result<Node> {
    let (watch, from) = (NodeWatch::start(Arc::clone(plane), name)?, Instant::now());
    let node = NodeBuilder::new(plane, name).boot()?;
    watch.wait_ready(from)?;
    Ok(node)
}

pub fn nothing_is_left_of_a_node(scene: &Scene) -> Result<()> {
    let node = ready_node(scene.plane(), scene.node_name())?;
    let kept = Namespaces::of_tree(node.machine()?.pid1())?;
    let group = node.machine()?.group().to_owned();
    ensure!(!kept.processes()?.is_empty(), "no process in {kept:?}");
    ensure!(!cgroups::directories(&group)?.is_empty(), "no control groups {group}");
    node.end()?;
    kept.ensure_gone()?;
    let groups = cgroups::directories(&group)?;
    ensure!(groups.is_empty(), "left: {groups:?}");
    let entries = std::fs::read_dir(namespaces::work().join("nodes"))?.flatten();
    let files: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    ensure!(files.is_empty(), "left: {files:?}");
    Ok(())
}

pub fn nothing_is_left_of_a_killed_run(_scene: &Scene) -> Result<()> {
    let mut outer = Command::new(namespaces::program())
        .arg("--hold")
        .env_remove(STAGE)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a run inside this one")?;
    let up = wait_for_held_node(&mut outer);
    outer.kill()?;
    outer.wait()?;
    let (group, kept) = up?;
    let gone = wait_until("the killed run to end", SOON, || Ok(kept.processes()?.is_empty().then_some(())));
    gone.or_else(|_| kept.ensure_gone())?;
    kept.ensure_gone()?;
    // Control groups do survive a kill; the next run removes them.
    ensure!(!cgroups::directories(&group)?.is_empty(), "no control groups {group}");
    wait_until("the next run to remove them", SOON, || {
        cgroups::sweep()?;
        Ok(cgroups::directories(&group)?.is_empty().then_some(()))
    })
}

/// Waits until the run has booted its node; returns its control group and its namespaces.
fn wait_for_held_node(outer: &mut Child) -> Result<(String, Namespaces)> {
    let output = outer.stdout.take().context("its output")?;
    let mut group = String::new();
    BufReader::new(output).read_line(&mut group)?;
    ensure!(!group.is_empty(), "the inner run has not booted a node");
    let namespaces = Namespaces::of_tree(i32::try_from(outer.id())?)?;
    let names = namespaces.processes()?;
    for wanted in ["etcd", "kube-apiserver", "systemd", "containerd", "kubelet"] {
        ensure!(names.iter().any(|name| name == wanted), "no {wanted} in {names:?}; the run said {group}");
    }
    Ok((group.trim().to_owned(), namespaces))
}

/// Boots a node, prints the run's name and waits to be killed.
pub fn hold() -> Result<ExitCode> {
    let plane = Arc::new(ControlPlane::start()?);
    let _node = ready_node(&plane, "held")?;
    writeln!(std::io::stdout(), "{}", namespaces::run()?)?;
    loop {
        std::thread::park();
    }
}
