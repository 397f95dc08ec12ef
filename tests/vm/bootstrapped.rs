//! Nodes that are late on their way from boot to being of use: a new Node object, and one stage that does not come.

use anyhow::{Result, ensure};
use serde_json::json;

use super::by_hand;
use super::lab::Lab;
use super::provoked::{Act, Provocation};

/// A node that is late at the stage of that reason.
pub(crate) const fn late(
    reason: &'static [&'static str],
    what: &'static str,
    provoke: fn(&mut Lab) -> Result<()>,
) -> Provocation {
    Provocation {
        what,
        how: "the Node made anew, deadline_secs = 10",
        reasons: reason,
        provoke: Act::Host(provoke),
        mend: Act::Host(arrive),
    }
}

/// A new Node with these taints, of an agent that sees nothing before this.
fn born(lab: &mut Lab, broken: &str, taints: &[&str]) -> Result<()> {
    lab.guest
        .sh(&format!("systemctl stop nodevigil; {broken}"))?;
    let (plane, name) = (&lab.guest.plane, &lab.guest.name);
    plane.delete_node(name)?;
    let taints = taints.iter();
    let taints: Vec<_> = taints
        .map(|key| json!({"key": key, "effect": "NoSchedule"}))
        .collect();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints},
    });
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &node)?;
    ensure!(code == 201, "{code}: {answer}");
    lab.guest.sh("systemctl start nodevigil")?;
    Ok(())
}

pub(crate) fn without_runtime(lab: &mut Lab) -> Result<()> {
    born(lab, "systemctl stop containerd", &[])
}

pub(crate) fn without_kubelet(lab: &mut Lab) -> Result<()> {
    born(lab, "systemctl stop kubelet", &[])
}

pub(crate) fn without_credential(lab: &mut Lab) -> Result<()> {
    by_hand::expired(lab)?;
    born(lab, "systemctl restart --no-block kubelet", &[])
}

pub(crate) fn uninitialised(lab: &mut Lab) -> Result<()> {
    born(
        lab,
        "true",
        &["node.cloudprovider.kubernetes.io/uninitialized"],
    )
}

pub(crate) fn without_network(lab: &mut Lab) -> Result<()> {
    born(lab, "mv /etc/cni/net.d/10-lo.conflist /run/", &[])
}

pub(crate) fn without_volumes(lab: &mut Lab) -> Result<()> {
    born(lab, "true", &["ebs.csi.aws.com/agent-not-ready"])
}

pub(crate) fn with_a_taint(lab: &mut Lab) -> Result<()> {
    born(
        lab,
        "true",
        &["startup-taint.cluster-autoscaler.kubernetes.io/test"],
    )
}

/// What was missing comes.
fn arrive(lab: &mut Lab) -> Result<()> {
    by_hand::good_again(lab)?;
    lab.guest.sh(
        "test ! -e /run/10-lo.conflist || mv /run/10-lo.conflist /etc/cni/net.d/
         systemctl reset-failed kubelet; systemctl start containerd kubelet",
    )?;
    let (plane, name) = (&lab.guest.plane, &lab.guest.name);
    let patch = json!({"spec": {"taints": null}});
    let path = format!("/api/v1/nodes/{name}");
    let (code, answer) = plane.request("PATCH", &path, "application/merge-patch+json", &patch)?;
    ensure!(code == 200, "{code}: {answer}");
    Ok(())
}
