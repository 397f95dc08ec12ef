//! Rules on the cloud provider, the node's name, its labels and its addresses: what makes a kubelet's Node one that the
//! cloud controller and the autoscaler can match to its server.

pub(super) mod address;
pub(super) mod api;
pub(super) mod name;
pub(super) mod provider_id;

use super::lost::MAX_FINDINGS;
use super::{Finding, FlagUse, Location, Report, Severity, Snapshot, at, shortened};
use crate::kubelet::flags::{ValueKind, pairs};
use crate::kubelet::label;
use crate::kubelet::version::Minor;

/// The flag `--cloud-provider=external`, if it is what counts.
fn external(snapshot: &Snapshot) -> Option<&FlagUse> {
    let used = snapshot.flags.last("cloud-provider")?;
    (used.value == "external").then_some(used)
}

/// The providerID that the kubelet gives its Node, and where it says so.
fn given_provider_id(snapshot: &Snapshot) -> Option<(String, Location)> {
    if let Some(used) = snapshot.flags.last("provider-id") {
        let place = at::value_part(snapshot, used, 0, used.value.len());
        return Some((used.value.clone(), place)).filter(|(id, _)| !id.is_empty());
    }
    let node = snapshot.config.get("providerID")?;
    Some((node.text()?, node.at.clone())).filter(|(id, _)| !id.is_empty())
}

/// Clouds that kubelets up to 1.30 had inside; none that is supported has one.
const IN_TREE: [&str; 5] = ["openstack", "aws", "azure", "vsphere", "gce"];

pub(super) fn provider_invalid(snapshot: &Snapshot, report: &mut Report) {
    let Some(used) = snapshot.flags.last("cloud-provider") else { return };
    let name = used.value.as_str();
    if matches!(name, "" | "external") || at::is_built_in(snapshot, used.word) {
        return;
    }
    // Since 1.29 the gate DisableCloudProviders is on by default.
    let gates = snapshot.settings.get("featureGates");
    let are_on = gates.and_then(|gates| gates.value.get("DisableCloudProviders")?.as_bool()) == Some(false);
    let newest = if are_on { Minor(30) } else { Minor(28) };
    let is_old = snapshot.version.as_ref().is_some_and(|version| version.minor <= newest);
    if is_old && IN_TREE.contains(&name) {
        return;
    }
    let place = at::value_part(snapshot, used, 0, name.len());
    let message = format!(
        "--cloud-provider is '{}', and the kubelet exits: it has no cloud provider inside, and takes 'external' alone",
        shortened(name)
    );
    let finding = Finding::new("CL002", Severity::Fatal, place.clone(), message);
    let is_declared_none = snapshot.intent.cloud_provider.as_deref() == Some("none");
    report.add(if is_declared_none {
        finding.say_at(&place, "because [intent] declares that there is no cloud provider, remove --cloud-provider")
    } else {
        finding
            .with(at::set_value(snapshot, used, "external"))
            .say("Also run a cloud controller manager in the cluster")
    });
}

/// Whether it is `OpenShift`'s kubelet, which may set any label.
pub(super) fn is_openshift(snapshot: &Snapshot) -> bool {
    let wrapper = snapshot.unit.exec.as_ref().is_some_and(|exec| exec.program.ends_with("/kubenswrapper"));
    let ids = &snapshot.machine.os_ids;
    wrapper
        || ids.iter().any(|id| matches!(id.as_str(), "rhcos" | "scos"))
        || snapshot.flags.value("config-dir").is_some_and(|dir| dir.starts_with("/etc/openshift"))
}

pub(super) fn label_forbidden(snapshot: &Snapshot, report: &mut Report) {
    if is_openshift(snapshot) {
        return;
    }
    let own = |used: &&FlagUse| !at::is_built_in(snapshot, used.word);
    let labels = snapshot.flags.all("node-labels").filter(own).flat_map(|used| {
        let pairs = pairs(ValueKind::Labels, &used.value).into_iter();
        pairs.map(move |pair| (used, pair))
    });
    for (used, pair) in labels.filter(|(_, pair)| label::is_forbidden(pair.key)).take(MAX_FINDINGS) {
        let (key, value) = (shortened(pair.key), shortened(pair.value));
        let place = at::value_part(snapshot, used, pair.offset, pair.text.len());
        let node = name::node_argument(snapshot);
        let message = format!(
            "--node-labels sets {key}, and the kubelet exits. Of the domains kubernetes.io and k8s.io a kubelet may set only a \
             few labels"
        );
        let finding = Finding::new("CL009", Severity::Fatal, place, message);
        report.add(
            finding
                .with(at::delete_part(snapshot, used, pair.offset, pair.text.len()))
                .say(format!("Then set the label with `kubectl label node {node} {key}={value}`")),
        );
    }
}

#[cfg(test)]
mod tests;
