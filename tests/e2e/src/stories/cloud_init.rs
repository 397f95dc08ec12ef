//! The samples of cloud-init/, run by Debian's cloud-init on hosts that join by kubeadm with a token.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::rollout::{
    ensure_checked_before_the_start, host_with_package, node_with_package, root, wait_until_bootstrapped,
    wait_until_published,
};
use crate::scene::{ObservedNode, Scene};
use crate::support::{WAIT, repository, wait_until};

/// Its other modules would change users, keys, packages and the network of a node that shares them with this machine.
const SETTINGS: &str = "\
datasource_list: [NoCloud]
network: {config: disabled}
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
";
/// The commands of cloud-init's units, in their order. Its generator has decided at the node's boot, before there was user data.
const RUN: &str = "rm -rf /run/cloud-init && systemctl daemon-reload && test -e /run/cloud-init/enabled && \
    cloud-init init --local && cloud-init init && cloud-init modules --mode=config && cloud-init modules --mode=final";
const SOCKET: &str = "criSocket: unix:///run/containerd/containerd.sock";

/// A sample, with the deb for its placeholders.
fn sample(node: &ObservedNode, name: &str) -> Result<String> {
    let text = fs::read_to_string(repository().join("cloud-init").join(name))?;
    let (sum, path) = node.sh("sha256sum /root/*.deb").map(|line| {
        let (sum, path) = line.trim().split_once("  ").unwrap_or_default();
        (sum.to_owned(), path.to_owned())
    })?;
    Ok(text.replace("NODEVIGIL_DEB_URL", &format!("file://{path}")).replace("NODEVIGIL_DEB_SHA256", &sum))
}

/// A sample for a host that joins, with all its placeholders filled in. Its kubeadm does not refuse what a node in namespaces lacks.
fn sample_that_joins(scene: &Scene, node: &ObservedNode, name: &str) -> Result<String> {
    let command = scene.plane().join_command()?;
    let words: Vec<_> = command.split_whitespace().collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).with_context(|| format!("no {flag} in {command}"))?;
        words.get(at + 1).with_context(|| format!("nothing after {flag} in {command}"))
    };
    let text = sample(node, name)?
        .replace("API_SERVER_ENDPOINT", after("join")?)
        .replace("BOOTSTRAP_TOKEN", after("--token")?)
        .replace("CA_CERT_HASH", after("--discovery-token-ca-cert-hash")?);
    let line = text.lines().find(|line| line.trim() == SOCKET).context("the sample names the socket")?;
    Ok(text.replace(line, &format!("{line}\n{}", line.replace(SOCKET, "ignorePreflightErrors: [all]"))))
}

/// Boots no further than cloud-init: it runs the user data.
fn run(node: &ObservedNode, user_data: &str) -> Result<()> {
    let seed = root(node)?.join("var/lib/cloud/seed/nocloud");
    fs::create_dir_all(&seed)?;
    let name = node.name();
    fs::write(seed.join("meta-data"), format!("instance-id: i-1\nlocal-hostname: {name}\n"))?;
    fs::write(seed.join("user-data"), user_data)?;
    fs::write(root(node)?.join("etc/cloud/cloud.cfg.d/99-story.cfg"), SETTINGS)?;
    let (code, output) = node.run(&format!("({RUN}) 2>&1"))?;
    let (_, status) = node.run("cloud-init status --long")?;
    ensure!(code == 0 && status.contains("status: done"), "{code}: {output}{status}");
    Ok(())
}

pub fn a_host_joins_by_its_user_data(scene: &Scene) -> Result<()> {
    let (node, _signers) = host_with_package(scene)?;
    let user_data = sample_that_joins(scene, &node, "kubeadm-join.yaml")?;
    let from = Instant::now();
    run(&node, &user_data)?;
    ensure_checked_before_the_start(&node)?;
    wait_until_published(&node, from)?;
    for stage in ["cloud-init", "ready"] {
        wait_until_bootstrapped(&node, stage)?;
    }
    Ok(())
}

pub fn a_host_with_an_external_cloud_waits_for_its_controller(scene: &Scene) -> Result<()> {
    let (node, _signers) = host_with_package(scene)?;
    let user_data = sample_that_joins(scene, &node, "kubeadm-external-cloud.yaml")?;
    let from = Instant::now();
    run(&node, &user_data)?;
    ensure_checked_before_the_start(&node)?;
    wait_until_published(&node, from)?;
    let printed = || Ok(node.journal("nodevigil-bootstrap")?.contains("stage cloud-controller (").then_some(()));
    wait_until("nodevigil bootstrap to wait for the cloud controller", WAIT, printed)?;
    let object = scene.plane().node(node.name())?.context("no Node")?;
    let taints = object["spec"]["taints"].to_string();
    ensure!(taints.contains("node.cloudprovider.kubernetes.io/uninitialized"), "{taints}");
    ensure!(node.run("nodevigil check --severity error")?.0 == 0, "{}", node.run("nodevigil check")?.1);
    Ok(())
}

pub fn an_image_is_baked_with_the_preflight_alone(scene: &Scene) -> Result<()> {
    let node = node_with_package(scene, "image")?;
    run(&node, &sample(&node, "image-bake.yaml")?)?;
    let (_, states) = node.run("systemctl is-enabled nodevigil; systemctl is-active nodevigil")?;
    ensure!(states == "disabled\ninactive\n", "{states}");
    node.sh("systemctl restart kubelet")?;
    ensure!(node.property("kubelet", "Wants")?.contains("nodevigil-preflight.service"), "the kubelet does not want it");
    Ok(())
}
