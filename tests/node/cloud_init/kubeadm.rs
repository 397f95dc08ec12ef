//! Machines that `kubeadm join` makes nodes of.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::birth::{self, JOINED};
use crate::bootstrap::condition::initialise;
use crate::check;
use crate::scene::{AGENT, KUBELET};
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::{api, wait_until};

pub(crate) const EXTERNAL_CLOUD: &str =
    include_str!("../../../cloud-init/kubeadm-external-cloud.yaml");
pub(super) const JOIN: &str = include_str!("../../../cloud-init/kubeadm-join.yaml");
pub(crate) const PREFLIGHT: &str = "nodevigil-preflight.service";

/// Where the flag stands that works.
const ARGUMENTS: &str = "        - name: cloud-provider\n          value: external\n";

/// A mistake: the flag is where no kubelet finds it.
pub(super) struct Lost {
    pub(super) name: &'static str,
    path: &'static str,
    content: &'static str,
    /// What has to be named: rules, files and lines.
    named: &'static [&'static str],
}

pub(super) const LOST: &[Lost] = &[
    Lost {
        name: "in_drop_in",
        path: "/etc/systemd/system/kubelet.service.d/20-cloud.conf",
        content: "[Service]\n      Environment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n",
        named: &[
            "SD001",
            "/etc/default/kubelet:1",
            "/etc/systemd/system/kubelet.service.d/20-cloud.conf:2",
            "CL001",
        ],
    },
    Lost {
        name: "in_sysconfig",
        path: "/etc/sysconfig/kubelet",
        content: "KUBELET_EXTRA_ARGS=--cloud-provider=external\n",
        named: &["SD003", "/etc/sysconfig/kubelet:1", "CL001"],
    },
];

/// The file as it is but for the flag.
fn broken(lost: &Lost) -> Result<String> {
    ensure!(
        EXTERNAL_CLOUD.contains(ARGUMENTS),
        "the user data has changed: write its twin anew"
    );
    let file = format!(
        "write_files:\n-   path: {}\n    content: |\n      {}",
        lost.path, lost.content
    );
    let text = EXTERNAL_CLOUD.replace(ARGUMENTS, "");
    Ok(text.replacen("write_files:\n", &file, 1))
}

/// From an empty machine to a node that a cloud controller has initialised.
pub(super) fn a_node_of_an_external_cloud() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let watch = plane.watch_node("cloud-1")?;
    let user_data = birth::filled(&plane, EXTERNAL_CLOUD)?;
    let node = birth::machine(&plane, "cloud-1", &user_data).boot()?;
    let result = (|| {
        ensure_born(&node)?;
        ensure!(
            birth::was_born_with_taint(&watch)?,
            "the Node was not born with {}",
            birth::UNINITIALIZED
        );
        // What was wrong before `kubeadm join` is not what the Node is born with.
        for (_, event) in watch.all() {
            let told = api::condition(&event, "KubeletConfigValid");
            let bad = told.is_some_and(|told| told["status"] == "False");
            ensure!(!bad, "{told:?}");
        }
        // The cloud controller comes; `nodevigil bootstrap` waits for it.
        initialise(&plane, node.name())?;
        ensure_of_use(&node)?;
        node.sh("test -e /run/cluster-api/bootstrap-success.complete")?;
        Ok(())
    })();
    result.with_context(|| birth::log(&node))
}

/// The same in a cluster without a cloud.
pub(super) fn a_node_that_joins() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let user_data = birth::filled(&plane, JOIN)?;
    let node = birth::machine(&plane, "cloud-join", &user_data).boot()?;
    ensure_born(&node)
        .and_then(|()| ensure_of_use(&node))
        .with_context(|| birth::log(&node))
}

/// It has joined, its kubelet runs as was resolved, and the agent says so.
fn ensure_born(node: &Node) -> Result<()> {
    node.wait_ready(JOINED)?;
    let report = check::report(node, "--phase after")?;
    check::ensure_resolved_as_it_runs(node, &report)?;
    wait_until("KubeletConfigValid=True", JOINED, || {
        let condition = node.plane().condition(node.name(), "KubeletConfigValid")?;
        Ok(condition.filter(|condition| condition["status"] == "True"))
    })?;
    ensure_in_order(node)
}

/// The way to it is on the console, and no mistake; cloud-init is through.
fn ensure_of_use(node: &Node) -> Result<()> {
    let console = birth::on_console(node, "this node is of use")?;
    ensure!(
        !console.contains("error["),
        "the preflight complained:\n{console}"
    );
    birth::through(node)
}

/// The preflight has said its word when the kubelet starts, and nothing else of ours runs before the node is configured.
fn ensure_in_order(node: &Node) -> Result<()> {
    let status = node.sh(&format!(
        "systemctl show --value -p ExecMainStatus {PREFLIGHT}"
    ))?;
    ensure!(status == "0\n", "{status}");
    let checked = birth::moment(node, PREFLIGHT, "ExecMainExitTimestampMonotonic")?;
    let kubelet = birth::moment(node, KUBELET, "ExecMainStartTimestampMonotonic")?;
    let agent = birth::moment(node, AGENT, "ExecMainStartTimestampMonotonic")?;
    ensure!(
        0 < checked && checked <= kubelet && kubelet < agent,
        "checked at {checked}, kubelet at {kubelet}, agent at {agent}"
    );
    Ok(())
}

/// The incident: the flag goes where no kubelet finds it, as half of the advice on the net has it; all else is the same.
pub(super) fn the_mistake_is_named(lost: &Lost) -> Result<()> {
    let plane = ControlPlane::shared()?;
    let name = format!("cloud-{}", lost.name.replace('_', "-"));
    let watch = plane.watch_node(&name)?;
    let user_data = birth::filled(&plane, &broken(lost)?)?;
    let node = birth::machine(&plane, &name, &user_data).boot()?;
    let result = (|| {
        node.wait_ready(JOINED)?;
        ensure_named(&node, lost)?;
        // It is a warning, no gate: the kubelet was started all the same, and the incident took its course.
        let status = format!("systemctl show --value -p ExecMainStatus {PREFLIGHT}");
        let status = node.sh(&status)?;
        ensure!(status == "1\n", "{status}");
        ensure!(
            !birth::was_born_with_taint(&watch)?,
            "the flag arrived after all"
        );
        let told = wait_until("KubeletConfigValid=False", JOINED, || {
            let condition = plane.condition(node.name(), "KubeletConfigValid")?;
            Ok(condition.filter(|condition| condition["status"] == "False"))
        })?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.contains(lost.path), "{told}");
        Ok(())
    })();
    result.with_context(|| birth::log(&node))
}

/// Rules, files and lines are on the console.
fn ensure_named(node: &Node, lost: &Lost) -> Result<()> {
    let console = birth::on_console(node, "CL001")?;
    for wanted in lost.named {
        ensure!(
            console.contains(wanted),
            "{wanted} is not on the console:\n{console}"
        );
    }
    Ok(())
}

/// The same mistake where the operator has made a gate of the check, as the file's comments say: no kubelet, no Node.
pub(super) fn a_gate_keeps_the_kubelet_down() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let gate = |text: &str| {
        text.replace("Wants=nodevigil-preflight", "Requires=nodevigil-preflight")
            .replace("#[Service]", "[Service]")
            .replace("#SuccessExitStatus", "SuccessExitStatus")
    };
    let lost = &LOST[0];
    let user_data = birth::filled(&plane, &gate(&broken(lost)?))?;
    let node = birth::machine(&plane, "cloud-gate", &user_data).boot()?;
    let result = (|| {
        ensure_named(&node, lost)?;
        wait_until("the preflight to fail", JOINED, || {
            let (_, state) = node.run(&format!("systemctl is-failed {PREFLIGHT}"))?;
            Ok((state == "failed\n").then_some(()))
        })?;
        std::thread::sleep(Duration::from_secs(4)); // that nothing happens shows in nothing but time
        ensure!(node.main_pid(KUBELET)? == 0, "the kubelet runs");
        ensure!(plane.node(node.name())?.is_none(), "the Node is there");
        Ok(())
    })();
    result.with_context(|| birth::log(&node))?;
    drop(node);
    // Without the mistake the same gate is open.
    let user_data = birth::filled(&plane, &gate(EXTERNAL_CLOUD))?;
    let node = birth::machine(&plane, "cloud-gate-open", &user_data).boot()?;
    node.wait_ready(JOINED).with_context(|| birth::log(&node))?;
    Ok(())
}
