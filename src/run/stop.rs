//! The end of the agent: whether something will monitor this node again, and what becomes of the conditions if nothing does.

use std::cmp::Ordering;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Taint, Toleration};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::agent::Agent;
use crate::condition::Published;
use crate::facts::ApiFacts;
use crate::host::kubelet::KubeletFacts;
use crate::host::systemd::{Stop, why_stopped};
use crate::host::{blocking, pod};
use crate::publish::{connect_once, is_our_taint};
use crate::records::last_boot;
use crate::settings::KubernetesSettings;

/// At a stop the API server is given this time to take the last conditions.
const STOP_WAIT: Duration = Duration::from_millis(1500);
/// The time for systemd to report why the agent is stopped, and for the API server to answer the same of a pod, which has five seconds.
const WHY_WAIT: Duration = Duration::from_millis(500);
const POD_WHY_WAIT: Duration = Duration::from_secs(2);
/// The time to write on the disk that the boot ends.
const MARK_WAIT: Duration = Duration::from_millis(500);
/// Where the chart has its `DaemonSet`.
const NAMESPACE: &str = "kube-system";
/// What the `DaemonSet` controller lets each of its pods tolerate, in addition to what the template says
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>).
const TOLERATED: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// Ends the agent. If nothing monitors the node any more, because the unit was stopped or the pod will not come back, problems become
/// `Unknown`, and nodevigil's taints are removed. Before a restart, a shutdown or the next pod everything stays as it is.
pub async fn stop(agent: &mut Agent, mut api: watch::Receiver<ApiFacts>, settings: &KubernetesSettings) -> u8 {
    let daemonset = pod::daemonset();
    let why = timeout(WHY_WAIT, why_stopped(daemonset.is_some())).await;
    let why = why.ok().and_then(Result::ok).unwrap_or(Stop::Other);
    // In a shutdown the bus may have ended first: then it counts as a stop.
    let is_shutdown = why == Stop::Shutdown;
    blocking::run("marking the end of the boot", MARK_WAIT, move || last_boot::end(is_shutdown)).await.ok();
    let is_last = match daemonset {
        Some(name) => {
            timeout(POD_WHY_WAIT, is_wanted(&name, settings)).await.is_ok_and(|wanted| wanted.is_ok_and(|it| !it))
        }
        None => why == Stop::OfUnit,
    };
    // What could not be found out changes nothing.
    if !is_last {
        return 0;
    }
    let last = agent.withdraw_problems();
    let is_shown = |api: &ApiFacts| {
        let Some(node) = &api.node else { return last.is_empty() };
        let shows = |wanted: &Published| node.condition(wanted.name).is_some_and(|shown| shown.reason == wanted.reason);
        !node.has_our_taints && last.iter().all(shows)
    };
    timeout(STOP_WAIT, api.wait_for(is_shown)).await.ok();
    0
}

/// Asks the API server whether the `DaemonSet` of that name still wants a pod on this Node.
async fn is_wanted(name: &str, settings: &KubernetesSettings) -> Result<bool> {
    let session = connect_once(settings, KubeletFacts::without_process().await).await?;
    let (nodes, daemonsets) = (Api::all(session.client.clone()), Api::namespaced(session.client, NAMESPACE));
    let (node, daemonset) = (nodes.get_opt(&session.node_name), daemonsets.get_opt(name));
    let (node, daemonset): (Option<Node>, Option<DaemonSet>) = tokio::try_join!(node, daemonset)?;
    Ok(node.zip(daemonset).is_some_and(|(node, daemonset)| wants(&daemonset, &node)))
}

/// Whether the `DaemonSet`'s controller would run a pod on the Node: it is selected, and has no taint that the pod does not tolerate.
fn wants(daemonset: &DaemonSet, node: &Node) -> bool {
    let Some(pod) = daemonset.spec.template.spec.as_ref() else { return true };
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let tolerations = || pod.tolerations.iter().flatten();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_tolerated = |taint: &Taint| {
        taint.effect == "PreferNoSchedule"
            || TOLERATED.contains(&taint.key.as_str())
            || is_our_taint(taint)
            || tolerations().any(|toleration| tolerates(toleration, taint))
    };
    daemonset.metadata.deletion_timestamp.is_none()
        && pod.node_name.as_ref().is_none_or(|name| *name == node.name_any())
        && pod.node_selector.iter().flatten().all(|(key, value)| node.labels().get(key) == Some(value))
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
        && taints.into_iter().all(is_tolerated)
}

/// Whether the Node meets each requirement of the term. One with an operator that is not known here counts as met.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.name_any();
    let labels = term.match_expressions.iter().flatten().map(|wanted| (wanted, node.labels().get(&wanted.key)));
    let fields = term.match_fields.iter().flatten().map(|wanted| (wanted, Some(&name)));
    labels.chain(fields).all(|(wanted, value)| {
        let is_listed = || value.is_some_and(|value| wanted.values.iter().flatten().any(|listed| listed == value));
        let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
        let order = || Some(number(value)?.cmp(&number(wanted.values.iter().flatten().next())?));
        match wanted.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => order() == Some(Ordering::Greater),
            "Lt" => order() == Some(Ordering::Less),
            _ => true,
        }
    })
}

/// Whether a pod with the toleration may run where the taint is. One with an operator that is not known here tolerates all values.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let fits = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|one| one.is_empty() || one == value);
    let is_equal = toleration.operator.as_deref().is_none_or(|operator| operator.is_empty() || operator == "Equal");
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    fits(&toleration.key, &taint.key)
        && fits(&toleration.effect, &taint.effect)
        && (!is_equal || value(&toleration.value) == value(&taint.value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As the chart has it, where an API server has filled in the defaults.
    fn daemonset() -> Value {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [
                {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]},
                {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}]}]}}});
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "nodevigil", "namespace": "kube-system", "uid": "8b1f", "generation": 2},
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": "nodevigil"}},
                "template": {
                    "metadata": {"labels": {"app.kubernetes.io/name": "nodevigil"}},
                    "spec": {
                        "containers": [{"name": "nodevigil", "image": "nodevigil"}],
                        "nodeSelector": {"kubernetes.io/os": "linux"},
                        "affinity": affinity,
                        "tolerations": [{"operator": "Exists"}],
                        "hostNetwork": true
                    }
                },
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
            }
        })
    }

    fn node() -> Value {
        json!({
            "metadata": {"name": "worker-7", "labels": {"kubernetes.io/os": "linux", "pool": "blue", "type": "vm", "cpus": "8"}},
            "spec": {"taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
                {"key": "costly", "effect": "PreferNoSchedule"}]}
        })
    }

    /// Whether the pod comes back when `change` was made to its template.
    fn comes_back(change: impl FnOnce(&mut Value)) -> bool {
        let mut changed = daemonset();
        change(&mut changed["spec"]["template"]["spec"]);
        wants(&serde_json::from_value(changed).unwrap(), &serde_json::from_value(node()).unwrap())
    }

    #[test]
    fn a_pod_that_is_replaced_or_restarted_comes_back() {
        assert!(comes_back(|_| {}));
        assert!(comes_back(|pod| pod["containers"][0]["image"] = "nodevigil:2".into()), "a rolling update");
        assert!(comes_back(|pod| pod["nodeSelector"]["pool"] = "blue".into()));
        let tolerations = json!([{"key": "dedicated", "value": "gpu"}]);
        assert!(
            comes_back(|pod| pod["tolerations"] = tolerations),
            "the controller adds those of Kubernetes' own taints"
        );
        let terms = |pod: &mut Value, terms: Value| {
            pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                terms;
        };
        let one_of_two = json!([
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["red"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-7"]}]}]);
        assert!(comes_back(|pod| terms(pod, one_of_two)));
        let more = json!([{"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["4"]}]}]);
        assert!(comes_back(|pod| terms(pod, more)));
        let unknown = json!([{"matchExpressions": [{"key": "cpus", "operator": "Near", "values": ["4"]}]}]);
        assert!(comes_back(|pod| terms(pod, unknown)), "what cannot be decided withdraws nothing");
    }

    #[test]
    fn a_pod_that_its_daemonset_no_longer_wants_does_not_come_back() {
        assert!(!comes_back(|pod| pod["nodeSelector"]["pool"] = "red".into()));
        assert!(!comes_back(|pod| pod["tolerations"] = json!([])));
        assert!(!comes_back(|pod| pod["tolerations"] = json!([{"key": "dedicated", "value": "cpu"}])));
        assert!(!comes_back(|pod| pod["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}])));
        assert!(!comes_back(|pod| pod["nodeName"] = "worker-8".into()));
        for (key, operator, values) in [
            ("pool", "In", json!(["red"])),
            ("pool", "NotIn", json!(["blue"])),
            ("pool", "DoesNotExist", json!([])),
            ("gpu", "Exists", json!([])),
            ("cpus", "Gt", json!(["8"])),
            ("cpus", "Lt", json!(["8"])),
            ("pool", "Gt", json!(["8"])),
        ] {
            let wanted = json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
            let place = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
            assert!(!comes_back(|pod| *pod.pointer_mut(place).unwrap() = wanted), "{operator}");
        }
        let mut deleted = daemonset();
        deleted["metadata"]["deletionTimestamp"] = "2026-11-26T09:00:00Z".into();
        let node = serde_json::from_value(node()).unwrap();
        assert!(!wants(&serde_json::from_value(deleted).unwrap(), &node), "it is deleted in the foreground");
    }
}
