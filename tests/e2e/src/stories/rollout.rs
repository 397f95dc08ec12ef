//! docs/rollout.md: its commands, as they are written, on three nodes; upgrade and downgrade; its playbook by a real ansible-playbook; its
//! script for images.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::packages::{ensure_nothing_on_node, made};
use crate::scene::{ObservedNode, Scene};
use crate::support::daemon::Daemon;
use crate::support::{WAIT, namespaces, programs, repository, wait_until};

const PREFLIGHT: &str = "nodevigil-preflight";
/// What the agent reads, as files and as it understands them.
const SETTINGS: &str = "nodevigil config show; cd /etc/nodevigil; find . -type f | sort | xargs sha256sum";
const DROP_INS: &str = "cat /etc/systemd/system/kubelet.service.d/05-nodevigil.conf \
    /etc/systemd/system/nodevigil-preflight.service.d/10-kubeadm.conf";

/// Stands for ssh(1): a host of the inventory is the pid of a node's systemd.
const SSH: &str = r#"#!/bin/bash
[ $# -gt 2 ] || exit 0 # Ansible asks what its ssh can do
exec nsenter -t "${@: -2:1}" -m -p -u -i -C -r -w env -i HOME=/root \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "${@: -1}"
"#;

/// What the page says to type.
struct Page(String);

impl Page {
    fn read() -> Result<Self> {
        Ok(Self(fs::read_to_string(repository().join("docs/rollout.md"))?))
    }

    /// The first block of commands below a heading.
    fn block(&self, heading: &str) -> Result<&str> {
        let below = self.0.split(&format!("\n## {heading}\n")).nth(1);
        let block = below.and_then(|below| below.split("```sh\n").nth(1)?.split("```").next());
        block.with_context(|| format!("no commands below {heading}"))
    }

    /// The first command in a sentence or a table that begins so.
    fn command(&self, start: &str) -> Result<&str> {
        let at = self.0.find(&format!("`{start}")).with_context(|| format!("no command begins with {start}"))?;
        self.0[at + 1..].split('`').next().context("a command ends")
    }
}

pub fn the_page_takes_three_nodes_from_a_dry_run_to_publishing_and_back(scene: &Scene) -> Result<()> {
    let page = Page::read()?;
    let nodes = ["one", "two", "three"].map(|name| node_with_package(scene, name));
    let nodes = nodes.into_iter().collect::<Result<Vec<_>>>()?;
    for node in &nodes {
        node.sh(&format!("cd /root && {}", page.block("1. Dry run")?))?;
    }
    for node in &nodes {
        wait_until_healthy(node)?;
        node.wait_for_no_trouble()?;
        node.sh("systemctl restart kubelet")?;
        node.wait_until_watched()?;
        let problems = node.sh(page.command("journalctl ")?)?;
        ensure!(problems.is_empty(), "the journal of {}: {problems}", node.name());
        ensure_nothing_on_node(scene, node)?;
    }

    let [first, rest @ ..] = &nodes[..] else { unreachable!("there are three nodes") };
    publish(&page, first)?;
    let from = Instant::now();
    first.sh(page.command("systemctl kill ")?)?;
    let crashed = first.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    first.kubelet().wait_for(crashed.at, "True", "KubeletIsHealthy")?;
    let from = Instant::now();
    first.sh(page.command("systemctl stop kubelet")?)?;
    first.kubelet().wait_until_shown(from, |condition| condition.status == "Unknown")?;
    first.start_kubelet()?;
    for node in rest {
        ensure_nothing_on_node(scene, node)?;
        publish(&page, node)?;
    }

    // Back: one node to the dry run, one without nodevigil. The third stays as it is.
    let [two, three] = rest else { unreachable!("there are two more nodes") };
    let before = first.kubelet().shown()?;
    two.sh(page.command("systemctl stop nodevigil && ")?)?;
    ensure_nothing_on_node(scene, two)?;
    two.sh(dry_run(page.block("1. Dry run")?)?)?;
    two.sh("systemctl start nodevigil")?;
    wait_until_healthy(two)?;
    ensure_nothing_on_node(scene, two)?;
    three.sh(page.command("apt-get purge ")?)?;
    ensure_nothing_on_node(scene, three)?;
    three.sh("test ! -e /etc/nodevigil")?;
    ensure!(three.run("systemctl is-active nodevigil")?.0 != 0, "it runs after its removal");
    first.kubelet().ensure_unchanged(&before)
}

/// Both versions have the same files; only the version differs.
pub fn an_upgrade_and_a_downgrade_keep_conditions_and_settings(scene: &Scene) -> Result<()> {
    let page = Page::read()?;
    let node = node_with_package(scene, "one")?;
    let old =
        node.sh("cd /root && dpkg-deb --raw-extract nodevigil_*.deb next && dpkg-deb --field nodevigil_*.deb Version")?;
    node.sh("cd /root && cp nodevigil_*.deb nodevigil_PREVIOUS_amd64.deb
         sed -i 's/^Version: .*/Version: 1000.0.0-1/' next/DEBIAN/control
         dpkg-deb --build -Znone next nodevigil_NEXT_amd64.deb")?;
    // Before the first start, so that the agent publishes at once.
    node.sh("printf '[conditions]\\nhealthy_for_secs = 1\\n[kubernetes]\\nspread_secs = 0\\n' >/etc/nodevigil/config.d/60-own.toml")?;
    node.sh(&format!("cd /root && {}", page.block("1. Dry run")?))?;
    publish(&page, &node)?;
    let settings = node.sh(SETTINGS)?;
    let crashed = node.kill_for_good()?;

    node.restart_agent(&format!("cd /root && {}", page.command("apt-get install --yes ./nodevigil_NEXT")?))?;
    ensure!(version(&node)? == "1000.0.0-1\n", "{}", version(&node)?);
    node.kubelet().ensure_unchanged(&crashed)?;
    let healthy = node.start_kubelet()?;
    node.restart_agent(&format!("cd /root && {}", page.command("apt-get install --yes --allow-downgrades ")?))?;
    ensure!(version(&node)? == old, "{} after the downgrade to {old}", version(&node)?);
    node.kubelet().ensure_unchanged(&healthy)?;
    let kept = node.sh(SETTINGS)?;
    ensure!(kept == settings, "{settings}became {kept}");
    ensure!(node.sh("systemctl is-enabled nodevigil")? == "enabled\n", "it is not enabled any more");
    Ok(())
}

fn version(node: &ObservedNode) -> Result<String> {
    node.sh("dpkg-query --show --showformat '${Version}\\n' nodevigil")
}

/// The line of the block that writes the dry run's file.
fn dry_run(block: &str) -> Result<&str> {
    block.lines().find(|line| line.ends_with("50-dry-run.toml")).context("no line writes the dry run's file")
}

fn publish(page: &Page, node: &ObservedNode) -> Result<()> {
    let from = Instant::now();
    node.sh(page.block("2. Publish on 1 %")?)?;
    wait_until_published(node, from)
}

/// With the settings of the package, an agent that starts waits up to three minutes for this (`spread_secs`).
pub(super) fn wait_until_published(node: &ObservedNode, from: Instant) -> Result<()> {
    node.kubelet().wait_longer_for(from, Duration::from_mins(5), "True", "KubeletIsHealthy").map(drop)
}

fn wait_until_healthy(node: &ObservedNode) -> Result<()> {
    let is_healthy = || Ok((node.run("nodevigil status")?.0 == 0).then_some(()));
    wait_until("every condition to be healthy", WAIT, is_healthy)
        .with_context(|| node.run("nodevigil status").unwrap_or_default().1)
}

/// A node without the agent, with the deb in /root.
pub(super) fn node_with_package(scene: &Scene, name: &str) -> Result<Arc<ObservedNode>> {
    let node = scene.ready_without_agent(name)?;
    let deb = made("_amd64.deb")?;
    fs::copy(&deb, root(&node)?.join("root").join(deb.file_name().context("a deb has a name")?))?;
    Ok(node)
}

pub(super) fn root(node: &ObservedNode) -> Result<PathBuf> {
    Ok(PathBuf::from(format!("/proc/{}/root", node.machine()?.pid1())))
}

pub fn a_playbook_stops_at_the_first_node_with_a_problem(scene: &Scene) -> Result<()> {
    let page = Page::read()?;
    let nodes = ["one", "two", "three"].map(|name| scene.ready_without_agent(name));
    let nodes = nodes.into_iter().collect::<Result<Vec<_>>>()?;
    let play = |more: &str| -> Result<(bool, String)> { play(page.block("With Ansible")?, more, &nodes) };
    let from = Instant::now();
    let (is_good, output) = play("")?;
    ensure!(is_good && output.matches("unreachable=0    failed=0").count() == 3, "{output}");
    for node in &nodes {
        wait_until_published(node, from)?;
        ensure!(node.sh("systemctl is-enabled nodevigil")? == "enabled\n", "{output}");
        node.sh(DROP_INS)?;
    }

    nodes[0].kill_for_good()?;
    let (is_good, output) = play("")?;
    let [one, two] = [0, 1].map(|at| nodes[at].machine().map(|machine| format!("[{}]", machine.pid1())));
    let (one, two) = (one?, two?);
    ensure!(!is_good && output.contains(&format!("fatal: {one}")) && !output.contains(&two), "{output}");
    ensure!(output.contains("changed=0"), "a second run changes something: {output}");

    // What a run has changed before it failed is in effect after the next one.
    let more = format!("--extra-vars nodevigil_dry_run=true --limit {}", two.trim_matches(['[', ']']));
    nodes[1].sh("echo wrong >/etc/nodevigil/config.d/70-wrong.toml")?;
    let (is_good, output) = play(&more)?;
    ensure!(!is_good && output.contains("70-wrong.toml"), "{output}");
    nodes[1].sh("rm /etc/nodevigil/config.d/70-wrong.toml")?;
    let before = nodes[1].property("nodevigil", "MainPID")?;
    let (is_good, output) = play(&more)?;
    ensure!(is_good && nodes[1].property("nodevigil", "MainPID")? != before, "the agent is the old one: {output}");

    let (is_good, output) = play("--extra-vars nodevigil_state=absent")?;
    ensure!(is_good, "{output}");
    for node in &nodes {
        ensure_nothing_on_node(scene, node)?;
        let left = "find /etc/nodevigil /etc/systemd -name '*nodevigil.conf' -o -name '*-ansible.toml' -o -name '*-dry-run.toml'";
        ensure!(node.sh(left)?.is_empty(), "{}", node.sh(left)?);
    }
    Ok(())
}

/// Runs the page's command for these nodes; returns whether it succeeded, and its output.
fn play(command: &str, more: &str, nodes: &[Arc<ObservedNode>]) -> Result<(bool, String)> {
    let ansible = std::env::var("NODEVIGIL_ANSIBLE").context("NODEVIGIL_ANSIBLE is not set: use `make stories`")?;
    let (ssh, inventory) = (namespaces::work().join("ssh"), namespaces::work().join("inventory"));
    fs::write(&ssh, SSH)?;
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
    let pids = nodes.iter().map(|node| Ok(node.machine()?.pid1().to_string())).collect::<Result<Vec<_>>>()?;
    // The nodes' commands run as root.
    let variables = format!(
        "ansible_ssh_executable={}\nansible_ssh_transfer_method=piped\nansible_become=false\n\
         ansible_python_interpreter=/usr/bin/python3\n",
        ssh.display()
    );
    fs::write(&inventory, format!("{}\n[all:vars]\n{variables}", pids.join("\n")))?;
    let deb = made("_amd64.deb")?;
    let name = deb.file_name().context("a deb has a name")?.to_string_lossy().into_owned();
    let command = command.replace("INVENTORY", &inventory.display().to_string());
    let command = command.trim().replace(&format!("/tmp/{name}"), &deb.canonicalize()?.display().to_string());
    let done = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; PATH={ansible}/bin:$PATH {command} {more}")])
        .current_dir(repository().join("packaging/ansible"))
        .env("HOME", namespaces::work())
        .env("ANSIBLE_NOCOLOR", "1")
        .output()?;
    Ok((done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned()))
}

pub fn a_node_of_an_image_checks_before_the_kubelet_starts(scene: &Scene) -> Result<()> {
    let page = Page::read()?;
    let node = node_with_package(scene, "image")?;
    fs::copy(repository().join("packaging/packer/nodevigil.sh"), root(&node)?.join("root/nodevigil.sh"))?;
    let output = node.sh("NODEVIGIL_DEB=$(echo /root/*.deb) sh /root/nodevigil.sh")?;
    let (_, states) = node.run("systemctl is-enabled nodevigil; systemctl is-active nodevigil nodevigil-preflight")?;
    ensure!(states == "enabled\ninactive\ninactive\n", "{states}{output}");
    let drop_ins = node.sh(DROP_INS)?;
    node.sh(page.block("Preflight")?)?;
    ensure!(node.sh(DROP_INS)? == drop_ins, "the page and the script differ: {drop_ins}");

    // kubeadm has not written its part.
    node.sh("systemctl restart kubelet")?;
    ensure!(node.property(PREFLIGHT, "ConditionResult")? == "no", "it does not wait for kubeadm");
    node.sh("echo 'KUBELET_KUBEADM_ARGS=\"--no-such-flag\"' >/var/lib/kubelet/kubeadm-flags.env")?;
    node.sh("systemctl restart kubelet")?;
    let ended = node.property(PREFLIGHT, "ExecMainExitTimestampMonotonic")?.parse::<u64>()?;
    let started = node.property("kubelet", "ExecMainStartTimestampMonotonic")?.parse::<u64>()?;
    ensure!(0 < ended && ended < started, "the check ended at {ended} µs, the kubelet started at {started} µs");
    let printed = node.journal(PREFLIGHT)?;
    ensure!(printed.contains("--no-such-flag") && printed.contains("kubeadm-flags.env"), "{printed}");

    node.sh("echo 'KUBELET_KUBEADM_ARGS=' >/var/lib/kubelet/kubeadm-flags.env; systemctl restart kubelet")?;
    let from = Instant::now();
    node.start_agent()?;
    wait_until_published(&node, from)
}

/// By kubeadm itself, with the preflight of the page and the command of docs/bootstrap.md.
pub fn a_host_that_joins_by_kubeadm_is_checked_when_its_files_are_written(scene: &Scene) -> Result<()> {
    let (node, _signers) = host_with_package(scene)?;
    let admin = scene.plane().kubeconfig("admin", "system:masters")?;
    fs::write(root(&node)?.join("root/discovery.conf"), admin)?;
    let join = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": "/root/discovery.conf"}},
        "nodeRegistration": {
            "name": node.name(), "criSocket": "unix:///run/containerd/containerd.sock", "ignorePreflightErrors": ["all"],
            "kubeletExtraArgs": [{"name": "v", "value": "2"}],
        },
    });
    fs::write(root(&node)?.join("root/join.json"), join.to_string())?;
    node.sh("apt-get install /root/*.deb")?;
    node.sh(Page::read()?.block("Preflight")?)?;
    node.sh("systemctl start --no-block kubelet")?; // as at boot; it has no configuration yet
    wait_until("a start before kubeadm", WAIT, || {
        Ok((node.property(PREFLIGHT, "ConditionResult")? == "no").then_some(()))
    })?;
    let bootstrap = fs::read_to_string(repository().join("docs/bootstrap.md"))?;
    let bootstrap = bootstrap.split("```sh\n").nth(2).and_then(|block| block.split("```").next());
    node.sh(bootstrap.context("docs/bootstrap.md has a second block")?)?;

    let from = Instant::now();
    node.sh("kubeadm join --config /root/join.json")?;
    ensure_checked_before_the_start(&node)?;
    node.sh("systemctl enable --now nodevigil")?;
    wait_until_published(&node, from)?;
    wait_until_bootstrapped(&node, "ready")
}

/// A host with kubeadm and the deb in /root that has never joined, in a cluster that accepts it.
pub(super) fn host_with_package(scene: &Scene) -> Result<(Arc<ObservedNode>, Daemon)> {
    let node = node_with_package(scene, "host")?;
    let config = node.sh("cat /var/lib/kubelet/config.yaml")?;
    let signers = scene.plane().accept_joins(&serde_json::from_str(&config)?)?;
    fs::copy(programs::kubernetes("kubeadm")?, root(&node)?.join("usr/bin/kubeadm"))?;
    node.sh("systemctl stop kubelet
         rm -rf /etc/kubernetes/* /var/lib/kubelet/config.yaml /var/lib/kubelet/pki")?;
    scene.plane().delete_node(node.name())?;
    Ok((node, signers))
}

pub(super) fn ensure_checked_before_the_start(node: &ObservedNode) -> Result<()> {
    let printed = node.journal(PREFLIGHT)?;
    ensure!(printed.contains("kubelet.service"), "the check has printed nothing: {printed}");
    let ended = node.property(PREFLIGHT, "ExecMainExitTimestampMonotonic")?.parse::<u64>()?;
    let started = node.property("kubelet", "ExecMainStartTimestampMonotonic")?.parse::<u64>()?;
    ensure!(0 < ended && ended < started, "the check ended at {ended} µs, the kubelet started at {started} µs");
    Ok(())
}

/// Waits until `nodevigil bootstrap`, as the documents start it, has printed that a stage is done.
pub(super) fn wait_until_bootstrapped(node: &ObservedNode, stage: &str) -> Result<()> {
    let is_row = |line: &str| line.starts_with(&format!("{stage} ")) && line.contains("Done");
    let is_done = || Ok(node.journal("nodevigil-bootstrap")?.lines().any(is_row).then_some(()));
    wait_until(&format!("nodevigil bootstrap to print that {stage} is done"), WAIT, is_done)
        .with_context(|| node.journal("nodevigil-bootstrap").unwrap_or_default())
}
