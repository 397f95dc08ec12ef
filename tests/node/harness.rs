//! The harness on trial: nodes come up, keep apart, and leave nothing behind.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use procfs::process::{Process, all_processes};

use crate::support::api::condition_status;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::node::{Node, NodeBuilder};
use crate::support::process::ending;
use crate::support::{cgroups, enter, say, wait_until};
use crate::trial;

const VICTIM: &str = "NODEVIGIL_LAB_VICTIM";
const SOON: Duration = Duration::from_secs(60);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("harness::a_node_boots_and_becomes_ready", a_node_boots_and_becomes_ready),
        trial("harness::a_node_joins_by_cloud_init_and_kubeadm", a_node_joins_by_cloud_init_and_kubeadm),
        trial("harness::nodes_do_not_share_control_groups", nodes_do_not_share_control_groups),
        trial("harness::a_node_boots_without_bus_and_kubelet", a_node_boots_without_bus_and_kubelet),
        trial("harness::a_watch_sees_through_an_api_server_restart", a_watch_sees_through_an_api_server_restart),
        trial("harness::nothing_is_left_of_a_node", nothing_is_left_of_a_node),
        trial("harness::nothing_is_left_of_a_killed_run", nothing_is_left_of_a_killed_run),
    ]
}

fn a_node_boots_and_becomes_ready() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node("boots")?;
    let node = NodeBuilder::new(&plane, "boots").restart_sec(Duration::from_millis(100)).boot()?;
    let systemd = node.started().elapsed();
    let ready = node.wait_ready(SOON)?;
    say(&format!("control plane up in {:?}; systemd in {systemd:?}, node Ready in {ready:?}", plane.took()));
    watch.wait_for(SOON, |event| condition_status(event, "Ready") == Some("True"))?;

    let pid = node.kubelet_pid()?;
    let end = ending(pid)?;
    let killed = node.signal(pid, Signal::SIGKILL)?;
    let gone = end.wait(SOON)?;
    say(&format!("the kubelet was gone {:?} after its SIGKILL", gone - killed));
    let restarted = wait_until("the kubelet to be restarted", SOON, || Ok(node.kubelet_pid().ok()))?;
    ensure!(restarted != pid, "the kubelet is still the one that was killed");
    let journal = node.journal("kubelet.service", &["MESSAGE", "_PID"])?;
    let told = journal.iter().any(|line| line["MESSAGE"].as_str().is_some_and(|text| text.contains("status=9/KILL")));
    ensure!(told, "the journal of {} lines does not tell of the kill", journal.len());
    let requests = plane.audit()?;
    let registered = requests.iter().any(|request| {
        request.user == "system:node:boots" && request.verb == "create" && request.body["kind"] == "Node"
    });
    ensure!(registered, "the audit log does not have the registration");
    Ok(())
}

fn a_node_joins_by_cloud_init_and_kubeadm() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "joins").joining().boot()?;
    let ready = node
        .wait_ready(SOON)
        .with_context(|| node.run("cat /var/log/kubeadm.log").map(|(_, log)| log).unwrap_or_default())?;
    say(&format!("joined node Ready in {ready:?}"));
    let certificate = node.read("/var/lib/kubelet/pki/kubelet-client-current.pem")?;
    ensure!(certificate.contains("BEGIN CERTIFICATE"), "no certificate: {certificate}");
    say(&node.sh("ls -ld /var/lib/kubelet /var/lib/kubelet/pki/* /var/lib/kubelet/*.* /etc/kubernetes/*")?);
    Ok(())
}

fn nodes_do_not_share_control_groups() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let nodes = [NodeBuilder::new(&plane, "left").boot()?, NodeBuilder::new(&plane, "right").boot()?];
    for node in &nodes {
        node.wait_ready(SOON)?;
        let groups = Process::new(node.kubelet_pid()?)?.cgroups()?;
        let own = format!("/{}/system.slice/kubelet.service", node.group());
        let paths: Vec<String> = groups.into_iter().map(|group| group.pathname).collect();
        ensure!(paths.contains(&own), "the kubelet of {} is in {paths:?}", node.name());
        let members = node.sh("systemctl show --value --property=ControlGroup kubelet && systemd-cgls --no-pager -u kubelet.service")?;
        ensure!(members.starts_with("/system.slice/kubelet.service\n"), "not the node's own view: {members}");
        ensure!(members.matches("/usr/bin/kubelet").count() == 1, "more than one kubelet: {members}");
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
    let (code, output) = node.run("systemctl start dbus.service; test -e /run/dbus/system_bus_socket")?;
    ensure!(code != 0, "there is a bus: {output}");
    Ok(())
}

fn a_watch_sees_through_an_api_server_restart() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    let path = "/api/v1/nodes/seen";
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "seen"}});
    let watch = plane.watch_node("seen")?;
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &object)?;
    ensure!(code == 201, "{code}: {answer}");
    let (at, _) = watch.wait_for(SOON, |event| event["type"] == "ADDED")?;
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
    let namespaces = namespaces_of(&Process::new(node.pid1())?)?;
    let group = node.group().to_owned();
    ensure!(!processes_in(&namespaces)?.is_empty(), "no process in {namespaces:?}");
    ensure!(!cgroups::folders(&group)?.is_empty(), "no control groups {group}");
    node.power_off()?;
    let left = processes_in(&namespaces)?;
    ensure!(left.is_empty(), "left running: {left:?}");
    let left = cgroups::folders(&group)?;
    ensure!(left.is_empty(), "left: {left:?}");
    ensure_unmounted(&namespaces)?;
    let files = std::fs::read_dir(enter::work().join("nodes"))?.flatten().map(|entry| entry.file_name());
    let files: Vec<_> = files.filter(|name| name.to_string_lossy().starts_with("leaves-")).collect();
    ensure!(files.is_empty(), "left: {files:?}");
    Ok(())
}

fn nothing_is_left_of_a_killed_run() -> Result<()> {
    let mut outer = Command::new(std::env::current_exe()?)
        .env_remove(enter::STAGE)
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a run inside this one")?;
    let survivors = kill_when_up(&mut outer);
    outer.kill()?;
    outer.wait()?;
    let (group, namespaces) = survivors?;
    wait_until("the killed run's processes to end", Duration::from_secs(10), || {
        Ok(processes_in(&namespaces)?.is_empty().then_some(()))
    })
    .with_context(|| format!("{:?}", processes_in(&namespaces)))?;
    ensure_unmounted(&namespaces)?;
    // Control groups do survive; the next run removes them.
    ensure!(!cgroups::folders(&group)?.is_empty(), "no control groups {group}");
    wait_until("the sweep to remove them", Duration::from_secs(10), || {
        cgroups::sweep()?;
        Ok(cgroups::folders(&group)?.is_empty().then_some(()))
    })
}

/// Waits until the run has booted its node; returns its control group and its namespaces.
fn kill_when_up(outer: &mut Child) -> Result<(String, BTreeSet<String>)> {
    let output = outer.stdout.take().context("its output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let (group, pid) = line.trim().split_once(' ').context("the inner run did not come up")?;
    let inner = outer.id();
    let me = Process::myself()?;
    let own = namespaces_of(&me)?;
    let mut namespaces = BTreeSet::new();
    for process in descendants(i32::try_from(inner)?)? {
        namespaces.extend(namespaces_of(&process).unwrap_or_default());
    }
    namespaces = namespaces.difference(&own).cloned().collect();
    let names: Vec<String> = processes_in(&namespaces)?;
    for wanted in ["etcd", "kube-apiserver", "systemd", "containerd", "kubelet"] {
        ensure!(names.iter().any(|name| name == wanted), "no {wanted} (node {pid}) in {names:?}");
    }
    Ok((group.to_owned(), namespaces))
}

/// Whether this process is the run that is to be killed.
pub(crate) fn is_victim() -> bool {
    std::env::var_os(VICTIM).is_some()
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
    writeln!(std::io::stdout(), "{} {}", enter::run()?, node.name())?;
    Ok(node)
}

/// The mount, network and PID namespaces of a process, as /proc names them.
fn namespaces_of(process: &Process) -> Result<BTreeSet<String>> {
    let links = ["mnt", "net", "pid"].map(|kind| std::fs::read_link(format!("/proc/{}/ns/{kind}", process.pid())));
    links.into_iter().map(|link| Ok(link?.to_string_lossy().into_owned())).collect()
}

/// The names of the processes that are in one of these namespaces and in a mount or PID namespace not ours. The dead
/// that nobody has reaped are in none.
fn processes_in(namespaces: &BTreeSet<String>) -> Result<Vec<String>> {
    let own = namespaces_of(&Process::myself()?)?;
    let foreign: BTreeSet<_> = namespaces.difference(&own).collect();
    let mut names = Vec::new();
    for process in all_processes()?.flatten() {
        let theirs = namespaces_of(&process).unwrap_or_default();
        if theirs.iter().any(|namespace| foreign.contains(namespace)) {
            names.push(process.stat().map(|stat| stat.comm).unwrap_or_default());
        }
    }
    Ok(names)
}

/// A namespace without processes lives on only where a mount holds it.
fn ensure_unmounted(namespaces: &BTreeSet<String>) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let own = namespaces_of(&Process::myself()?)?;
    let held = namespaces.difference(&own).find(|name| mounts.contains(name.as_str()));
    ensure!(held.is_none(), "a mount holds {held:?}");
    ensure!(!mounts.contains("/nodes/"), "a node's mount is left: {mounts}");
    Ok(())
}

fn descendants(root: i32) -> Result<Vec<Process>> {
    let mut found: Vec<Process> = Vec::new();
    let mut pids = BTreeSet::from([root]);
    loop {
        let before = pids.len();
        for process in all_processes()?.flatten() {
            let parent = process.stat().map_or(0, |stat| stat.ppid);
            if pids.contains(&parent) && pids.insert(process.pid()) {
                found.push(process);
            }
        }
        if pids.len() == before {
            return Ok(found);
        }
    }
}
