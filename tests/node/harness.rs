//! The harness on trial: nodes come up, keep apart, and leave nothing behind.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use procfs::process::Process;

use crate::support::api::condition_status;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::leftovers::{self, Namespaces};
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::process::{ending, signal};
use crate::support::{cgroups, enter, say, wait_until};
use crate::trial;

/// The errand of the run that is to be killed.
const VICTIM: &str = "victim";
const SOON: Duration = Duration::from_mins(1);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("harness::boots", a_node_boots_and_becomes_ready),
        trial("harness::joins", a_node_joins_by_cloud_init_and_kubeadm),
        trial("harness::control_groups", nodes_do_not_share_control_groups),
        trial("harness::bare", a_node_boots_without_bus_and_kubelet),
        trial("harness::agent", the_agent_is_installed_and_can_be_started),
        trial(
            "harness::api_server",
            a_watch_sees_through_an_api_server_restart,
        ),
        trial("harness::node_ends", nothing_is_left_of_a_node),
        trial("harness::run_is_killed", nothing_is_left_of_a_killed_run),
    ]
}

fn a_node_boots_and_becomes_ready() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node("boots")?;
    let node = NodeBuilder::new(&plane, "boots")
        .restart_sec(Duration::from_millis(100))
        .boot()?;
    let systemd = node.started().elapsed();
    let ready = node.wait_ready(SOON)?;
    say(&format!(
        "control plane up in {:?}; systemd in {systemd:?}, node Ready in {ready:?}",
        plane.took()
    ));
    watch.wait_for(SOON, |event| {
        condition_status(event, "Ready") == Some("True")
    })?;

    let pid = node.kubelet_pid()?;
    let end = ending(pid)?;
    let killed = signal(pid, Signal::SIGKILL)?;
    let gone = end.wait(SOON)?;
    say(&format!(
        "the kubelet was gone {:?} after its SIGKILL",
        gone - killed
    ));
    let restarted = wait_until("the kubelet to be restarted", SOON, || {
        Ok(node.kubelet_pid().ok())
    })?;
    ensure!(
        restarted != pid,
        "the kubelet is still the one that was killed"
    );
    let journal = node.journal("kubelet.service", &["MESSAGE", "_PID"])?;
    let told = journal.iter().any(|line| {
        line["MESSAGE"]
            .as_str()
            .is_some_and(|text| text.contains("status=9/KILL"))
    });
    ensure!(
        told,
        "the journal of {} lines does not tell of the kill",
        journal.len()
    );
    let requests = plane.audit()?;
    let registered = requests.iter().any(|request| {
        request.user == "system:node:boots"
            && request.verb == "create"
            && request.body["kind"] == "Node"
    });
    ensure!(registered, "the audit log does not have the registration");
    Ok(())
}

fn a_node_joins_by_cloud_init_and_kubeadm() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "joins").joining().boot()?;
    let ready = node.wait_ready(SOON).with_context(|| {
        node.run("cat /var/log/kubeadm.log")
            .map(|(_, log)| log)
            .unwrap_or_default()
    })?;
    say(&format!("joined node Ready in {ready:?}"));
    let certificate = node.read("/var/lib/kubelet/pki/kubelet-client-current.pem")?;
    ensure!(
        certificate.contains("BEGIN CERTIFICATE"),
        "no certificate: {certificate}"
    );
    // kubeadm's own modes: what the agent may not read on a real node, it may not read here.
    let modes = "cd /var/lib/kubelet && stat -c '%a %n' . config.yaml pki/kubelet-client-2*.pem";
    let modes = node.sh(&format!("{modes} | cut -c1-24"))?;
    ensure!(
        modes == "700 .\n644 config.yaml\n600 pki/kubelet-client-2\n",
        "{modes}"
    );
    Ok(())
}

fn nodes_do_not_share_control_groups() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let nodes = [
        NodeBuilder::new(&plane, "left").boot()?,
        NodeBuilder::new(&plane, "right").boot()?,
    ];
    for node in &nodes {
        node.wait_ready(SOON)?;
        let group = format!("{}/system.slice/kubelet.service", node.group());
        let view = node.sh("systemctl show --value --property=ControlGroup kubelet.service")?;
        ensure!(
            view == "/system.slice/kubelet.service\n",
            "not the node's own view: {view}"
        );
        let members = cgroups::members(&group)?;
        ensure!(
            members == [node.kubelet_pid()?],
            "with the kubelet of {}: {members:?}",
            node.name()
        );
    }
    Ok(())
}

fn a_node_boots_without_bus_and_kubelet() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "bare")
        .without_bus()
        .without_kubelet()
        .file("/etc/motd", "hello\n", 0o600)
        .boot()?;
    ensure!(node.read("/etc/motd")? == "hello\n");
    ensure!(node.sh("stat -c %a /etc/motd; hostname")? == "600\nbare\n");
    ensure!(node.main_pid("kubelet.service")? == 0, "the kubelet runs");
    let (code, output) =
        node.run("systemctl start dbus.service; test -e /run/dbus/system_bus_socket")?;
    ensure!(code != 0, "there is a bus: {output}");
    Ok(())
}

fn the_agent_is_installed_and_can_be_started() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "agent").agent().boot()?;
    let modes = node.sh("stat -c '%U:%G %a' /etc/nodevigil/kubeconfig /usr/bin/nodevigil")?;
    ensure!(modes.starts_with("root:nodevigil 640\n"), "{modes}");
    node.wait_ready(SOON)?;
    node.start_agent()?;
    let pid = node.unit_pid("nodevigil.service")?;
    let status = Process::new(pid)?.status()?;
    ensure!(status.euid != 0, "the agent runs as root");
    let lock_memory = 1 << 14; // CAP_IPC_LOCK, by the harness's drop-in
    ensure!(
        status.capeff & lock_memory != 0,
        "the agent's capabilities: {:x}",
        status.capeff
    );
    wait_until("status.json", SOON, || Ok(node.status_json().ok()))?;
    Ok(())
}

fn a_watch_sees_through_an_api_server_restart() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    let path = "/api/v1/nodes/seen";
    let object =
        serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "seen"}});
    let watch = plane.watch_node("seen")?;
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &object)?;
    ensure!(code == 201, "{code}: {answer}");
    let (at, _) = watch.wait_for(SOON, |event| event["type"] == "ADDED")?;
    plane.pause_apiserver()?;
    plane.resume_apiserver()?;
    ensure!(plane.get(path)?.0 == 200, "the API server did not go on");
    plane.stop_apiserver();
    ensure!(plane.get(path).is_err(), "a stopped API server answered");
    plane.start_apiserver()?;
    ensure!(plane.node("seen")?.is_some(), "the node was forgotten");
    watch.wait_since(at, SOON, |event| event["type"] == "ADDED")?;
    Ok(())
}

fn nothing_is_left_of_a_node() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "leaves").boot()?;
    node.wait_ready(SOON)?;
    let namespaces = Namespaces::of_tree(node.pid1())?;
    let group = node.group().to_owned();
    ensure!(
        !namespaces.processes()?.is_empty(),
        "no process in {namespaces:?}"
    );
    ensure!(
        !cgroups::folders(&group)?.is_empty(),
        "no control groups {group}"
    );
    node.power_off()?;
    namespaces.ensure_gone()?;
    let left = cgroups::folders(&group)?;
    ensure!(left.is_empty(), "left: {left:?}");
    let left = leftovers::files_of_node("leaves")?;
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

fn nothing_is_left_of_a_killed_run() -> Result<()> {
    let mut outer = enter::run_inside(VICTIM)?;
    let up = wait_for_victim(&mut outer);
    outer.kill()?;
    outer.wait()?;
    let (group, namespaces) = up?;
    let gone = wait_until("the killed run to end", Duration::from_secs(10), || {
        Ok(namespaces.processes()?.is_empty().then_some(()))
    });
    gone.or_else(|_| namespaces.ensure_gone())?;
    namespaces.ensure_gone()?;
    // Control groups do survive a kill; the next run removes them.
    ensure!(
        !cgroups::folders(&group)?.is_empty(),
        "no control groups {group}"
    );
    wait_until("the sweep to remove them", Duration::from_secs(10), || {
        cgroups::sweep()?;
        Ok(cgroups::folders(&group)?.is_empty().then_some(()))
    })
}

/// Waits until the victim has booted its node; returns its control group and its namespaces.
fn wait_for_victim(outer: &mut Child) -> Result<(String, Namespaces)> {
    let output = outer.stdout.take().context("its output")?;
    let mut group = String::new();
    BufReader::new(output).read_line(&mut group)?;
    ensure!(!group.is_empty(), "the inner run did not come up");
    let namespaces = Namespaces::of_tree(i32::try_from(outer.id())?)?;
    let names = namespaces.processes()?;
    for wanted in ["etcd", "kube-apiserver", "systemd", "containerd", "kubelet"] {
        ensure!(
            names.iter().any(|name| name == wanted),
            "no {wanted} in {names:?}"
        );
    }
    Ok((group.trim().to_owned(), namespaces))
}

/// Whether this run is the one that is to be killed.
pub(crate) fn is_victim() -> bool {
    enter::errand().is_some_and(|errand| errand == VICTIM)
}

/// A run with a node, for as long as it is let live.
pub(crate) fn victim() -> ExitCode {
    match boot_victim() {
        Ok(_node) => loop {
            std::thread::park();
        },
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn boot_victim() -> Result<Node> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "victim").boot()?;
    node.wait_ready(SOON)?;
    writeln!(std::io::stdout(), "{}", enter::run()?)?;
    Ok(node)
}
