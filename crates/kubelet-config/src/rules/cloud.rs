//! Rules on the cloud provider, the node's name, its labels and its addresses: what makes a kubelet's Node one that the
//! cloud controller and the autoscaler can match to its server.

mod address;
mod api;
mod name;
mod provider_id;

use super::{Check, Finding, Report, Severity, at};
use crate::kubelet::{
    flags::{FlagUse, ValueKind, go_quote, pairs},
    label,
    snapshot::Snapshot,
    version::Minor,
};

pub(super) const RULES: &[(&str, Check)] = &[
    ("AU004", api::bootstrap_token),
    ("AU005", api::unreachable),
    ("CL002", provider_invalid),
    ("CL004", api::registered_before),
    ("CL005", provider_id::provider_id),
    ("CL006", address::node_ip),
    ("CL007", name::name_mismatch),
    ("CL008", name::name_bad),
    ("CL009", label_forbidden),
    ("CP001", api::version_skew),
    ("CP005", api::taint_stuck),
];

/// The flag `--cloud-provider=external`, if it is what counts.
fn external(snapshot: &Snapshot) -> Option<&FlagUse> {
    let used = snapshot.flags.last("cloud-provider")?;
    (used.value == "external").then_some(used)
}

/// Clouds inside the kubelet, by the last release that has them; read from `pkg/cloudprovider/providers` of 1.24 to
/// 1.30. The gate `DisableCloudProviders` refuses them since 1.29 unless it is off.
const IN_TREE: [(&str, Minor); 5] =
    [("openstack", Minor(25)), ("aws", Minor(26)), ("azure", Minor(29)), ("vsphere", Minor(29)), ("gce", Minor(30))];

fn provider_invalid(snapshot: &Snapshot, report: &mut Report) {
    let Some(used) = snapshot.flags.last("cloud-provider") else {
        return;
    };
    let name = used.value.as_str();
    if matches!(name, "" | "external") || at::is_built_in(snapshot, used.word) {
        return;
    }
    let version = snapshot.version.as_ref();
    let in_tree =
        IN_TREE.iter().any(|(cloud, last)| *cloud == name && version.is_some_and(|version| version.minor <= *last));
    let gate_is_off = snapshot.flags.all("feature-gates").any(|gates| {
        pairs(ValueKind::Gates, &gates.value)
            .iter()
            .any(|gate| gate.key == "DisableCloudProviders" && gate.value == "false")
    });
    let (severity, consequence) = match version {
        Some(version) if in_tree && (version.minor <= Minor(28) || gate_is_off) => return,
        Some(version) if version.minor <= Minor(31) && !in_tree => {
            (Severity::Fatal, format!("kubelet {version} exits with 'unknown cloud provider {}'", go_quote(name)))
        }
        Some(version) if version.minor <= Minor(33) => (
            Severity::Fatal,
            format!(
                "kubelet {version} exits with 'cloud provider {} was specified, but built-in cloud providers are \
                 disabled'",
                go_quote(name)
            ),
        ),
        _ => (
            Severity::Error,
            "it has no effect since 1.34: the Node gets no uninitialized taint and no providerID".to_owned(),
        ),
    };
    let place = at::value_part(snapshot, used, 0, name.len());
    report.add(
        Finding::new(
            "CL002",
            severity,
            place.clone(),
            format!("--cloud-provider={name}: only 'external' is meaningful; {consequence}"),
        )
        .fix(format!("at {place}: --cloud-provider=external")),
    );
}

/// Whether it is `OpenShift`'s kubelet, which may set any label.
pub(super) fn is_openshift(snapshot: &Snapshot) -> bool {
    let wrapper = snapshot.unit.exec.as_ref().is_some_and(|exec| exec.program.ends_with("/kubenswrapper"));
    let ids = &snapshot.machine.os_ids;
    wrapper
        || ids.iter().any(|id| matches!(id.as_str(), "rhcos" | "scos"))
        || snapshot.flags.value("config-dir").is_some_and(|dir| dir.starts_with("/etc/openshift"))
}

fn label_forbidden(snapshot: &Snapshot, report: &mut Report) {
    if is_openshift(snapshot) {
        return;
    }
    let own = |used: &&FlagUse| !at::is_built_in(snapshot, used.word);
    let labels = snapshot.flags.all("node-labels").filter(own).flat_map(|used| {
        let pairs = pairs(ValueKind::Labels, &used.value).into_iter();
        pairs.map(move |pair| (used, pair))
    });
    for (used, pair) in labels.filter(|(_, pair)| label::is_forbidden(pair.key)).take(MAX_LABELS) {
        let key: String = pair.key.chars().take(128).collect();
        let value: String = pair.value.chars().take(64).collect();
        let place = at::value_part(snapshot, used, pair.offset, pair.text.len());
        let node = name::node_name(snapshot).map_or_else(|| "NODE".to_owned(), |(name, _)| name.to_lowercase());
        report.add(
            Finding::new(
                "CL009",
                Severity::Fatal,
                place.clone(),
                format!(
                    "--node-labels sets {key}: the kubelet refuses to start with a label of the kubernetes.io or k8s.io \
                     domain outside the allowed list"
                ),
            )
            .fix(format!("remove it at {place}; set it from outside: kubectl label node {node} {key}={value}")),
        );
    }
}

/// How many forbidden labels are worth naming: the kubelet refuses at the first.
const MAX_LABELS: usize = 32;

#[cfg(test)]
mod tests;
