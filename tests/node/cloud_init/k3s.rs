//! A machine that becomes an agent of k3s: its files, and what stands in for its program ([`STAND_IN`] says how).

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use super::birth::{self, JOINED};
use super::kubeadm::PREFLIGHT;
use crate::bootstrap::condition::initialise;
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::watch::NodeWatch;
use crate::support::{enter, kubeadm, node_files, wait_until};

pub(super) const AGENT: &str = include_str!("../../../cloud-init/k3s-agent.yaml");
/// What is served in place of k3s' installer.
pub(super) const STAND_IN: &str = include_str!("k3s-install.sh");
const UNIT: &str = "k3s-agent.service";
const FOLDER: &str = "/var/lib/rancher/k3s/agent";

/// A machine without a kubelet's package. What k3s gets from its server lies there already.
fn machine(plane: &Arc<ControlPlane>, name: &str, user_data: &str) -> Result<NodeBuilder> {
    let user = format!("system:node:{name}");
    let kubeconfig = plane.kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?;
    let mut config = node_files::kubelet_config(kubeadm::PORTS);
    config["containerRuntimeEndpoint"] = "unix:///run/k3s/containerd/containerd.sock".into();
    config["authentication"]["x509"]["clientCAFile"] = format!("{FOLDER}/client-ca.crt").into();
    let healthz = format!(
        "[kubelet]\nhealthz_url = \"http://127.0.0.1:{}/healthz\"\n",
        kubeadm::PORTS.healthz
    );
    let defaults = format!("{FOLDER}/etc/kubelet.conf.d/00-k3s-defaults.conf");
    let user_data = birth::filled(plane, user_data)?;
    Ok(birth::bare(plane, name, &user_data)
        .file("/etc/systemd/system/kubelet.service", "", 0o644)
        .file(&defaults, &config.to_string(), 0o600)
        .file(&format!("{FOLDER}/client-ca.crt"), plane.ca(), 0o644)
        .file(
            &format!("{FOLDER}/kubelet.kubeconfig"),
            &kubeconfig.to_string(),
            0o600,
        )
        // k3s' kubelets have the usual port; this run's share their network.
        .config("60-test.toml", &healthz))
}

fn booted(name: &str, user_data: &str) -> Result<(Node, NodeWatch)> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node(name)?;
    let node = machine(&plane, name, user_data)?.boot()?;
    let ready = node.wait_ready(JOINED);
    ready.with_context(|| log(&node))?;
    Ok((node, watch))
}

fn log(node: &Node) -> String {
    let (_, log) = node
        .run(&format!("journalctl -n 20 --no-pager -o cat -u {UNIT}"))
        .unwrap_or_default();
    format!("{}\n== {UNIT}\n{log}", birth::log(node))
}

/// From an empty machine to a node that a cloud controller has initialised.
pub(super) fn a_node_of_k3s() -> Result<()> {
    let (node, watch) = booted("cloud-k3s", AGENT)?;
    let result = (|| {
        ensure!(
            birth::was_born_with_taint(&watch)?,
            "the Node was not born with {}",
            birth::UNINITIALIZED
        );
        let status = node.sh(&format!(
            "systemctl show --value -p ExecMainStatus {PREFLIGHT}"
        ))?;
        ensure!(status == "0\n", "the preflight ended with {status}");
        let checked = birth::moment(&node, PREFLIGHT, "ExecMainExitTimestampMonotonic")?;
        let started = birth::moment(&node, UNIT, "ExecMainStartTimestampMonotonic")?;
        ensure!(
            0 < checked && checked <= started,
            "checked at {checked}, started at {started}"
        );
        let words = node.sh("nodevigil check --show argv")?;
        ensure!(
            words.contains("--cloud-provider=external")
                && words.contains("/etc/rancher/k3s/config.yaml:4"),
            "{words}"
        );
        let told = wait_until("KubeletHealthy=True", JOINED, || {
            let told = node.plane().condition(node.name(), "KubeletHealthy")?;
            Ok(told.filter(|told| told["status"] == "True"))
        })?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.contains("with the kubelet inside"), "{told}");
        initialise(node.plane(), node.name())?;
        let console = birth::on_console(&node, "this node is of use")?;
        ensure!(!console.contains("error["), "{console}");
        birth::through(&node)
    })();
    result.with_context(|| log(&node))
}

/// A later file replaces the list that has the flag: the console names both, and the Node is born without the taint.
pub(super) fn a_replaced_list_is_named() -> Result<()> {
    let later = "/etc/rancher/k3s/config.yaml.d/50-resources.yaml";
    let file = format!(
        "write_files:\n- path: {later}\n  content: |\n    kubelet-arg:\n    - system-reserved=cpu=100m,memory=100Mi\n"
    );
    let bad = AGENT.replacen("write_files:\n", &file, 1);
    let (node, watch) = booted("cloud-k3s-lost", &bad)?;
    let result = (|| {
        for wanted in [
            "error[SD027",
            "Lost: cloud-provider=external",
            "/etc/rancher/k3s/config.yaml:4",
            &format!("{later}:1"),
        ] {
            birth::on_console(&node, wanted)?;
        }
        ensure!(
            !birth::was_born_with_taint(&watch)?,
            "the flag arrived after all"
        );
        Ok(())
    })();
    result.with_context(|| log(&node))
}
