//! The Node as read from the API server: its conditions, and which field managers own them.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};

use crate::host::api::{NodeFacts, ObservedCondition};

/// The name under which the API server records what nodevigil owns (packaging/kubernetes/policy.yaml allows no other).
pub const FIELD_MANAGER: &str = "nodevigil";
/// What the API server calls the owner of fields that were there before it recorded owners.
const NOBODY: &str = "before-first-apply";

/// One observation of the Node.
#[derive(Debug, Clone)]
pub struct ObservedNode {
    pub facts: NodeFacts,
    /// `metadata.resourceVersion`, and the same as a number by which older observations differ from newer ones
    /// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
    pub version: String,
    pub version_number: u64,
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

impl ObservedNode {
    /// Reads a Node; none if it has no name or uid, which the API server never sends.
    pub fn read(node: Node) -> Option<Self> {
        let metadata = node.metadata;
        let created = metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let observed = conditions.into_iter().map(|condition| ObservedCondition {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
            last_heartbeat: condition.last_heartbeat_time.map(|time| time.0),
            last_transition: condition.last_transition_time.map(|time| time.0),
        });
        let conditions = observed.collect();
        let version = metadata.resource_version.unwrap_or_default();
        Some(Self {
            facts: NodeFacts { name: metadata.name?, uid: metadata.uid?, created, conditions },
            version_number: version.parse().unwrap_or_default(),
            version,
            managed_fields: metadata.managed_fields.unwrap_or_default(),
        })
    }

    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&ObservedCondition> {
        self.facts.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Who owns the condition of that type.
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
                        ownership.foreign.get_or_insert_with(|| redact::told(manager, 128));
                    }
                }
            }
        }
        ownership
    }
}

#[cfg(test)]
mod tests {
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
}
