//! Machines that images are made of.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use super::birth::{self, JOINED};
use super::kubeadm::PREFLIGHT;
use crate::scene::{KUBELET, OURS};
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;

pub(super) const BAKE: &str = include_str!("../../../cloud-init/image-bake.yaml");

fn baked(plane: &Arc<ControlPlane>, name: &str, user_data: &str) -> Result<Node> {
    birth::machine(plane, name, &birth::filled(plane, user_data)?).boot()
}

/// The image is made, then a node is born from it: the same machine with a new machine id.
pub(super) fn a_node_is_born_from_it() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = baked(&plane, "cloud-image", BAKE)?;
    let result = (|| {
        birth::through(&node)?;
        ensure_at_rest(&node)?;
        node.sh("systemd-machine-id-setup; systemctl daemon-reload; systemctl start --no-block multi-user.target")?;
        // As the node's own user data has it; this file is the harness's.
        node.sh("systemctl start containerd; kubeadm join --config /etc/kubernetes/join.yaml")?;
        node.wait_ready(JOINED)?;
        let status = node.sh(&format!(
            "systemctl show --value -p ExecMainStatus {PREFLIGHT}"
        ))?;
        ensure!(status == "0\n", "the preflight ended with {status}");
        let checked = birth::moment(&node, PREFLIGHT, "ExecMainExitTimestampMonotonic")?;
        let started = birth::moment(&node, KUBELET, "ExecMainStartTimestampMonotonic")?;
        ensure!(
            0 < checked && checked <= started,
            "checked at {checked}, started at {started}"
        );
        ensure_no_agent(&node)?;
        let told = plane.condition(node.name(), OURS)?;
        ensure!(told.is_none(), "{told:?}");
        Ok(())
    })();
    result.with_context(|| birth::log(&node))
}

/// What is left on the machine of which the image is made.
fn ensure_at_rest(node: &Node) -> Result<()> {
    ensure_no_agent(node)?;
    ensure!(node.read("/etc/machine-id")?.is_empty(), "a machine id");
    let ran = birth::moment(node, PREFLIGHT, "ExecMainStartTimestampMonotonic")?;
    ensure!(ran == 0, "the preflight has run");
    let left = "find /var/lib/nodevigil /var/lib/nodevigil-helper /run/nodevigil /run/nodevigil-preflight -type f 2>/dev/null; true";
    let left = node.sh(left)?;
    ensure!(left.is_empty(), "the making of an image left {left}");
    Ok(())
}

fn ensure_no_agent(node: &Node) -> Result<()> {
    for (question, answer) in [("is-active", "inactive"), ("is-enabled", "disabled")] {
        let units = "nodevigil.service nodevigil-helper.socket";
        let (_, said) = node.run(&format!("systemctl {question} {units}"))?;
        ensure!(
            said.lines().all(|line| line == answer),
            "{question}: {said}"
        );
    }
    Ok(())
}

/// An image that still gives its newer kubelet a flag that is gone: cloud-init ends with an error, which whoever makes
/// images waits for.
pub(super) fn a_bad_image_is_refused() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let mistake = "write_files:\n- path: /etc/default/kubelet\n  content: |\n    KUBELET_EXTRA_ARGS=--container-runtime=remote\n";
    let bad = BAKE.replacen("write_files:\n", mistake, 1);
    let node = baked(&plane, "cloud-image-bad", &bad)?;
    let result = (|| {
        let (code, said) = node.run("cloud-init status --wait --long")?;
        ensure!(
            code == 1 && said.contains("status: error"),
            "{code}: {said}"
        );
        let console = birth::console(&node)?;
        for wanted in ["fatal[FL002", "/etc/default/kubelet:1"] {
            ensure!(
                console.contains(wanted),
                "{wanted} is not on the console:\n{console}"
            );
        }
        Ok(())
    })();
    result.with_context(|| birth::log(&node))
}
