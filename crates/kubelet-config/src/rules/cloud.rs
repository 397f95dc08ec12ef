//! Rules on the cloud provider, the node's name, its labels and its addresses: what makes a kubelet's Node one that the
//! cloud controller and the autoscaler can match to its server.

mod address;
mod api;
mod name;
mod provider_id;

use super::{Finding, Report, Rule, Severity, at};
use crate::kubelet::{
    flags::{FlagUse, ValueKind, go_quote, pairs},
    label,
    snapshot::Snapshot,
    version::Minor,
};

pub(super) const RULES: &[Rule] = &[
    api::BOOTSTRAP_TOKEN,
    api::UNREACHABLE,
    Rule {
        id: "CL002",
        name: "cloud-provider-invalid",
        severity: "fatal up to 1.33, where the kubelet exits; error since 1.34, where the value has no effect",
        doc: "--cloud-provider has a value other than `external`. The names of clouds inside the kubelet (aws, gce, …) \
              were taken while their code was there, by 1.28 at the latest. Kubelets up to 1.33 exit with any other \
              name; since 1.34 such a name does nothing: no taint, no providerID, no word in the log.",
        source: "hetznercloud/hcloud-cloud-controller-manager#853; kubernetes/kubernetes#130161; \
                 cmd/kubelet/app/server.go of 1.24 to 1.36",
        fix: "Write --cloud-provider=external.",
        run: provider_invalid,
    },
    api::REGISTERED_BEFORE,
    Rule {
        id: "CL005",
        name: "provider-id",
        severity: "error if malformed or another machine's; warning if absent where the autoscaler needs it",
        doc: "The autoscaler and the cloud controller match a Node to its server by spec.providerID alone, and it \
              cannot be changed once it is set: the one that the kubelet is given must be this machine's.",
        source: "kubernetes/autoscaler#5185, #6716; kubermatic/machine-controller#564; \
                 siderolabs/talos-cloud-controller-manager#290; kubernetes/kubernetes#123713",
        fix: "Correct the template that writes it; of an existing Node it cannot be changed: delete the Node.",
        run: provider_id::provider_id,
    },
    Rule {
        id: "CL006",
        name: "node-ip",
        severity: "fatal if the kubelet refuses it; error if no interface has it; warning if unset, with an external \
                   cloud provider and several addresses, before the start",
        doc: "--node-ip must be an address of this host and the one that the cloud reports: else the cloud controller \
              refuses to initialise the Node. Without it, and with an external cloud provider, the kubelet waits for \
              the controller's choice since 1.29.",
        source: "kubernetes/kubernetes#125348, #120720, #121028; kubernetes/cloud-provider-aws#656; \
                 hetznercloud/hcloud-cloud-controller-manager#641",
        fix: "Set the address that the cloud reports as InternalIP.",
        run: address::node_ip,
    },
    Rule {
        id: "CL007",
        name: "node-name-mismatch",
        severity: "error",
        doc: "The name that the kubelet registers with (--hostname-override, else the host's name in lower case) is not \
              the one that the cloud knows the machine by, or not the one in its client certificate. The cloud \
              controller then does not find the machine and may delete the Node; the API server refuses a kubelet that \
              speaks of another Node.",
        source: "kubernetes/kubernetes#70897, #66493, #62600; kubernetes/cloud-provider-gcp#791; \
                 apache/cloudstack-kubernetes-provider#37; kubermatic/machine-controller#1087",
        fix: "--hostname-override with that name, or set the host's name before the kubelet starts.",
        run: name::name_mismatch,
    },
    Rule {
        id: "CL008",
        name: "node-name-bad",
        severity: "fatal if empty; error if the API server refuses it or every host has it (a warning before the \
                   start, when the host may still get its name); warning for upper case",
        doc: "The host's name is `localhost`, empty, or nothing that a Node can be called. The kubelet itself lowers \
              upper case.",
        source: "poseidon/typhoon#765, #766; flatcar/sysext-bakery#161; kubernetes/kubeadm#584",
        fix: "Start the kubelet after the host has its name, or set --hostname-override.",
        run: name::name_bad,
    },
    Rule {
        id: "CL009",
        name: "label-forbidden",
        severity: "fatal",
        doc: "--node-labels sets a key of the kubernetes.io or k8s.io domain that a kubelet may not set, \
              node-role.kubernetes.io/… most of all: the kubelet refuses to start. OpenShift's kubelet allows it.",
        source: "kubernetes/kubernetes#85073, #85503; k3s-io/k3s#1289; kubernetes-sigs/kubespray#4320; \
                 aws/eks-anywhere#6758",
        fix: "Remove the label; set it from outside, by kubectl, Cluster API or the cloud controller.",
        run: label_forbidden,
    },
    api::VERSION_SKEW,
    api::TAINT_STUCK,
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
fn is_openshift(snapshot: &Snapshot) -> bool {
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
