//! Causes that the Node shows: the cloud controller, the network, drivers, taints.

use super::{Cause, cause, rule};
use crate::bootstrap::evidence::{Evidence, NodeSeen, RuntimeSeen};
use crate::{
    bootstrap::cloud::{self, Cloud},
    rules::UNINITIALIZED,
};

fn of_cloud(evidence: &Evidence) -> Option<Cloud> {
    match &evidence.node {
        NodeSeen::There(node) => Some(cloud::judge(node, &evidence.host)),
        _ => None,
    }
}

pub(super) fn flag_lost(evidence: &Evidence) -> Option<Cause> {
    (of_cloud(evidence)? == Cloud::FlagLost).then(|| {
        rule(evidence, &["CL001", "CL002", "SD021", "SD020"]).unwrap_or_else(|| {
            cause(
                "CL001",
                "--cloud-provider=external does not reach the kubelet: the Node has neither the taint nor spec.providerID, so the autoscaler takes its server for one that never joined",
                "nodevigil check says where the flag got lost; then delete the Node and restart the kubelet",
            )
        })
    })
}

pub(super) fn registered_before(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    (of_cloud(evidence)? == Cloud::RegisteredBefore).then(|| {
        cause(
            "CL004",
            "the Node was created before --cloud-provider=external was in effect: it has neither the taint nor spec.providerID, so the cloud controller passes it over",
            format!("kubectl delete node {}; then systemctl restart the kubelet", node.name),
        )
    })
}

pub(super) fn taint_stuck(evidence: &Evidence) -> Option<Cause> {
    (of_cloud(evidence)? == Cloud::Waits).then(|| {
        cause(
            "CP005",
            format!("the taint {UNINITIALIZED} stays: no cloud controller runs, it does not tolerate its own nodes, or it does not find this server"),
            "kubectl get pods -A -o wide | grep cloud-controller: its tolerations, its token, the name or providerID by which it looks for the server",
        )
    })
}

pub(super) fn no_cni(evidence: &Evidence) -> Option<Cause> {
    let host = &evidence.host;
    let is_empty = host.cni.as_ref().is_none_or(Vec::is_empty);
    let folder = host.cni_folder.as_ref().filter(|_| is_empty)?;
    Some(rule(evidence, &["NW001"]).unwrap_or_else(|| {
        cause(
            "NW001",
            format!("no CNI configuration in {folder}: the network's DaemonSet has not come to this node"),
            "its pods must tolerate node.kubernetes.io/not-ready and the taint uninitialized",
        )
    }))
}

pub(super) fn network_not_ready(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Answers {
            network_not_ready: Some(why),
            ..
        } => Some(cause(
            "network-not-ready",
            format!("the runtime says of its network: {why}"),
            "the network's DaemonSet on this node",
        )),
        _ => None,
    }
}

pub(super) fn driver_missing(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    let key = node.taints.iter().find(|key| key.contains(".csi."))?;
    Some(cause(
        "CP004",
        format!("the taint {key} is left: the driver's pod has not registered on this node"),
        "the driver's DaemonSet: its tolerations, its image",
    ))
}

pub(super) fn taint_left(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    let key = node.taints.first().filter(|_| node.ready)?;
    Some(cause(
        "taint-left",
        format!("the Node is Ready, and whoever takes the taint {key} away has not come"),
        "the controller or the DaemonSet that the taint belongs to",
    ))
}

pub(super) fn not_ready(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::There(node) = &evidence.node else {
        return None;
    };
    (!node.ready).then(|| {
        let words = if node.ready_words.is_empty() {
            "no reason is given"
        } else {
            &node.ready_words
        };
        cause(
            "not-ready",
            format!("the Node is not Ready: {words}"),
            "journalctl -u kubelet",
        )
    })
}
