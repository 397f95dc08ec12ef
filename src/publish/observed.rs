//! The Node as read from the API server: its conditions, which field managers own them, its taints, and its maintenance signals.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use crate::condition::suppression::{MAINTENANCE_SIGNALS, MaintenanceSignal};
use crate::facts::{NodeFacts, ObservedCondition};
use crate::host::clock::ServerTime;
use crate::host::pause;

/// The name under which the API server records what nodevigil owns (packaging/kubernetes/policy.yaml allows no other).
pub const FIELD_MANAGER: &str = "nodevigil";
/// With this prefix cluster-autoscaler does not take the taint for one that all nodes of the group have
/// (<https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md>, status taints).
pub const TAINT_PREFIX: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-";
/// What the API server calls the owner of fields that were there before it recorded owners.
const NOBODY: &str = "before-first-apply";
/// No time is longer.
const MAX_PAUSE_BYTES: usize = 64;

/// One observation of the Node.
#[derive(Debug, Clone)]
pub struct ObservedNode {
    pub facts: NodeFacts,
    /// `metadata.resourceVersion`.
    pub version: String,
    pub taints: Vec<Taint>,
    managed_fields: Vec<ManagedFieldsEntry>,
}

/// Which field managers own something of a condition.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Whether nodevigil does.
    pub ours: bool,
    /// Another manager that owns its status, reason, message or transition time.
    pub foreign: Option<String>,
}

/// Whether a taint is nodevigil's.
pub fn is_ours(taint: &Taint) -> bool {
    taint.key.starts_with(TAINT_PREFIX)
}

impl ObservedNode {
    /// Reads a Node; none if it has no name or uid, which the API server never sends.
    pub fn read(node: Node) -> Option<Self> {
        let metadata = node.metadata;
        let created = metadata.creation_timestamp.map(ServerTime::from).unwrap_or_default();
        let spec = node.spec.unwrap_or_default();
        let taints = spec.taints.unwrap_or_default();
        let provider_id = spec.provider_id.filter(|id| !id.is_empty());
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let observed = conditions.into_iter().map(|condition| ObservedCondition {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
            last_heartbeat: condition.last_heartbeat_time.map(ServerTime::from),
            last_transition: condition.last_transition_time.map(ServerTime::from),
        });
        let conditions: Vec<_> = observed.collect();
        let annotations = metadata.annotations.unwrap_or_default();
        let (labels, is_cordoned) = (metadata.labels.unwrap_or_default(), spec.unschedulable == Some(true));
        let condition = |kind| conditions.iter().find(|one| one.kind == kind && one.status == "True");
        let valued = |entries: &BTreeMap<String, String>, key, values: &[&str]| {
            let counts = |value: &&String| !value.is_empty() && (values.is_empty() || values.contains(&value.as_str()));
            entries.get(key).filter(counts).map(|value| value.parse().ok().map(ServerTime::of))
        };
        let since = |signal: &MaintenanceSignal| match *signal {
            MaintenanceSignal::Condition(kind) => condition(kind).map(|one| one.last_transition),
            MaintenanceSignal::Drain(kind) => condition(kind).filter(|_| is_cordoned).map(|one| one.last_transition),
            MaintenanceSignal::Annotation(key, values) => valued(&annotations, key, values),
            MaintenanceSignal::Label(key, values) => valued(&labels, key, values),
            MaintenanceSignal::Taint(key) => taints.iter().any(|taint| taint.key == key).then_some(None),
            MaintenanceSignal::Deletion => metadata.deletion_timestamp.clone().map(|time| Some(time.into())),
        };
        let signals = MAINTENANCE_SIGNALS.iter().filter_map(|(signal, _)| Some((*signal, since(signal)?))).collect();
        let facts = NodeFacts {
            name: metadata.name?,
            uid: metadata.uid?,
            created,
            provider_id,
            taint_keys: taints.iter().map(|taint| taint.key.clone()).collect(),
            signals,
            pause: annotations.get(pause::ANNOTATION).map(|value| redact::bounded(value, MAX_PAUSE_BYTES)),
            has_our_taints: taints.iter().any(is_ours),
            conditions,
        };
        let version = metadata.resource_version.unwrap_or_default();
        Some(Self { facts, version, taints, managed_fields: metadata.managed_fields.unwrap_or_default() })
    }

    /// Whether it has a taint of ours, or a condition that we have applied.
    pub fn has_ours(&self) -> bool {
        let is_ours = |entry: &ManagedFieldsEntry| {
            (entry.manager.as_deref(), entry.operation.as_deref()) == (Some(FIELD_MANAGER), Some("Apply"))
        };
        self.facts.has_our_taints || self.managed_fields.iter().any(is_ours)
    }

    /// The later one of two observations has the larger number
    /// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
    pub fn version_number(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }

    /// The field managers of the condition of that type.
    pub fn ownership(&self, kind: &str) -> Ownership {
        let key = format!("k:{{\"type\":\"{kind}\"}}");
        let mut ownership = Ownership::default();
        for entry in &self.managed_fields {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:status"]["f:conditions"][key.as_str()]);
            let Some(fields) = fields.and_then(|fields| fields.as_object()) else { continue };
            match entry.manager.as_deref().unwrap_or_default() {
                FIELD_MANAGER => ownership.ours = true,
                NOBODY => {}
                manager => {
                    let content = ["f:status", "f:reason", "f:message", "f:lastTransitionTime"];
                    if content.iter().any(|field| fields.contains_key(*field)) {
                        ownership.foreign.get_or_insert_with(|| redact::sanitize_line(manager, 128));
                    }
                }
            }
        }
        ownership
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(managed_fields: &serde_json::Value) -> ObservedNode {
        let node = serde_json::json!({"metadata": {"name": "n1", "uid": "u1", "managedFields": managed_fields}});
        ObservedNode::read(serde_json::from_value(node).unwrap()).unwrap()
    }

    fn entry(manager: &str, kind: &str, fields: &[&str]) -> serde_json::Value {
        let fields: serde_json::Map<_, _> =
            fields.iter().map(|field| ((*field).into(), serde_json::json!({}))).collect();
        let key = format!("k:{{\"type\":\"{kind}\"}}");
        let fields = serde_json::json!({"f:status": {"f:conditions": {".": {}, key: fields}}});
        serde_json::json!({"manager": manager, "operation": "Update", "fieldsV1": fields})
    }

    #[test]
    fn who_owns_a_condition_is_read_from_the_managed_fields() {
        let of = |managed_fields| node(&managed_fields).ownership("KubeletHealthy");
        let kubelet = entry("kubelet", "Ready", &["f:status"]);
        let nobody = entry("before-first-apply", "KubeletHealthy", &["f:status"]);
        assert_eq!(of(serde_json::json!([kubelet, nobody, {"manager": "x"}])), Ownership::default());
        let ours = entry("nodevigil", "KubeletHealthy", &[".", "f:type", "f:status"]);
        let heartbeat = entry("beats", "KubeletHealthy", &["f:lastHeartbeatTime"]);
        assert_eq!(of(serde_json::json!([ours, heartbeat])), Ownership { ours: true, foreign: None });
        let foreign = entry("node-problem-detector", "KubeletHealthy", &["f:message"]);
        let foreign_owner = Some("node-problem-detector".to_owned());
        assert_eq!(of(serde_json::json!([ours, foreign])), Ownership { ours: true, foreign: foreign_owner.clone() });
        assert_eq!(of(serde_json::json!([foreign])), Ownership { ours: false, foreign: foreign_owner });
    }

    #[test]
    fn each_maintenance_signal_is_found_on_the_node() {
        let signals = |mut node: serde_json::Value| {
            (node["metadata"]["name"], node["metadata"]["uid"]) = ("n1".into(), "u1".into());
            ObservedNode::read(serde_json::from_value(node).unwrap()).unwrap().facts.signals
        };
        let time = || Some(ServerTime::of("2026-11-26T09:00:00Z".parse().unwrap()));
        for (signal, _) in MAINTENANCE_SIGNALS {
            let condition = |kind, status| {
                let time = "2026-11-26T09:00:00Z";
                let condition = json!({"type": kind, "status": status, "lastTransitionTime": time});
                json!({"metadata": {}, "spec": {"unschedulable": true}, "status": {"conditions": [condition]}})
            };
            let of = |entries: &str, key: &str, value: &str| json!({"metadata": {entries: {key: value}}});
            let (on_node, not_on_node, since) = match signal {
                MaintenanceSignal::Condition(kind) => (condition(kind, "True"), condition(kind, "False"), time()),
                MaintenanceSignal::Drain(kind) => {
                    let (drained, mut is_uncordoned) = (condition(kind, "True"), condition(kind, "True"));
                    is_uncordoned["spec"] = json!({});
                    (drained, is_uncordoned, time())
                }
                MaintenanceSignal::Annotation(key, []) => {
                    (of("annotations", key, "2026-11-26T09:00:00Z"), of("annotations", key, ""), time())
                }
                MaintenanceSignal::Annotation(key, values) => {
                    (of("annotations", key, values[0]), of("annotations", key, "Done"), None)
                }
                MaintenanceSignal::Label(key, values) => {
                    (of("labels", key, values[0]), of("labels", key, "Done"), None)
                }
                MaintenanceSignal::Taint(key) => {
                    let of =
                        |key: &str| json!({"metadata": {}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
                    (of(key), of("node.kubernetes.io/unschedulable"), None)
                }
                MaintenanceSignal::Deletion => {
                    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-26T09:00:00Z"}});
                    (deleted, json!({"metadata": {}}), time())
                }
            };
            assert_eq!((signals(on_node), signals(not_on_node)), (vec![(*signal, since)], vec![]), "{signal}");
        }
    }
}
