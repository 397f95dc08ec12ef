//! What is read of our Node: few fields, the rest is skipped while parsing and costs no memory.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    owners::{ManagedFields, Ownership, owners},
    will::{self, AskedPause, NodeWill},
};
use crate::{
    bootstrap::NodeWords,
    desired::PublishedType,
    health::{Status, Stored},
};

/// What we need to know of our Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeView {
    /// `metadata.uid`: a Node made anew under our name has another.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Those of its conditions that have a type of ours.
    pub conditions: Vec<(PublishedType, Stored)>,
    /// Who owns those types, as far as anybody does.
    pub owners: Vec<Ownership>,
    /// `spec.taints` as it stands there, or null.
    pub taints: Value,
    /// What the configuration's rules judge.
    pub facts: NodeFacts,
    /// Its condition `Ready`.
    pub ready: Ready,
    /// What that says.
    pub readiness: Readiness,
}

/// What the Node's `Ready` says: its status, and in words why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Whether it is `True`.
    pub is_ready: bool,
    /// Its reason and message, shortened; empty if it is.
    pub words: String,
}

/// What the Node's `Ready` tells of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// Whether it is `Unknown`: the control plane has waited for the kubelet in vain.
    pub is_given_up: bool,
    /// When the kubelet wrote it last.
    pub heartbeat: Option<Timestamp>,
}

/// What the configuration's rules want to know of our Node, and what others want of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// The keys of `spec.taints`.
    pub taints: Vec<String>,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: Option<String>,
    /// Who works on it, deletes it, or asks for quiet.
    pub will: NodeWill,
}

/// A Node, as the API server writes it.
#[derive(Deserialize)]
pub(in crate::cluster) struct Node {
    metadata: NodeMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    annotations: NodeAnnotations,
}

#[derive(Deserialize, Default)]
struct NodeAnnotations {
    #[serde(rename = "nodevigil.io/pause")]
    pause: Option<String>,
}

#[derive(Deserialize, Default)]
struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(default)]
    taints: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    kubelet_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    r#type: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    last_transition_time: Option<Timestamp>,
    last_heartbeat_time: Option<Timestamp>,
}

impl NodeView {
    /// What it says of the way from boot to being of use.
    pub fn words(&self, name: &str) -> NodeWords {
        NodeWords {
            name: name.to_owned(),
            uid: self.uid.clone(),
            created: self.facts.created,
            provider_id: self.facts.provider_id.clone(),
            taints: self.facts.taints.clone(),
            ready: self.readiness.is_ready,
            ready_words: self.readiness.words.clone(),
        }
    }
}

impl From<Node> for NodeView {
    fn from(node: Node) -> Self {
        let (will, ready) = (will_of(&node), ready_of(&node));
        let readiness = readiness_of(&node);
        Self {
            readiness,
            uid: node.metadata.uid,
            version: node.metadata.resource_version,
            conditions: node
                .status
                .conditions
                .into_iter()
                .filter_map(ours)
                .collect(),
            owners: owners(node.metadata.managed_fields),
            facts: NodeFacts {
                created: node.metadata.creation_timestamp,
                provider_id: node.spec.provider_id.filter(|id| !id.is_empty()),
                taints: taint_keys(&node.spec.taints).map(str::to_owned).collect(),
                kubelet_version: node.status.node_info.kubelet_version,
                will,
            },
            taints: node.spec.taints,
            ready,
        }
    }
}

fn taint_keys(taints: &Value) -> impl Iterator<Item = &str> {
    let taints = taints.as_array().into_iter().flatten();
    taints.filter_map(|taint| taint["key"].as_str())
}

fn will_of(node: &Node) -> NodeWill {
    let maintenance = |c: &NodeCondition| c.r#type == will::MAINTENANCE && c.status == "True";
    let taints = taint_keys(&node.spec.taints);
    NodeWill {
        maintenance: node.status.conditions.iter().any(maintenance),
        deletion: will::deletion(node.metadata.deletion_timestamp, taints),
        pause: node
            .metadata
            .annotations
            .pause
            .as_deref()
            .and_then(AskedPause::read),
    }
}

fn ready_of(node: &Node) -> Ready {
    let ready = node.status.conditions.iter().find(|c| c.r#type == "Ready");
    ready.map_or_else(Ready::default, |ready| Ready {
        is_given_up: ready.status == "Unknown",
        heartbeat: ready.last_heartbeat_time,
    })
}

fn readiness_of(node: &Node) -> Readiness {
    let Some(ready) = node.status.conditions.iter().find(|c| c.r#type == "Ready") else {
        return Readiness::default();
    };
    let is_ready = ready.status == "True";
    let words = if is_ready {
        String::new()
    } else {
        super::bounded(&format!("{}: {}", ready.reason, ready.message))
    };
    Readiness { is_ready, words }
}

fn ours(condition: NodeCondition) -> Option<(PublishedType, Stored)> {
    let r#type = PublishedType::parse(&condition.r#type)?;
    let status = match condition.status.as_str() {
        "True" => Status::True,
        "False" => Status::False,
        _ => Status::Unknown,
    };
    let stored = Stored {
        status,
        reason: condition.reason,
        message: condition.message,
        since: condition.last_transition_time?,
    };
    Some((r#type, stored))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_our_conditions_are_read_and_never_one_without_a_time() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-21T08:00:00Z"},
            "spec": {"providerID": "hcloud://1", "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"},
                {"type": "KubeletHealthy", "status": "Maybe", "lastTransitionTime": "2026-11-21T09:00:00Z"},
                {"type": "KubeletHealthy", "status": "True", "lastTransitionTime": null},
            ]},
        }))
        .unwrap();
        let view = NodeView::from(node);
        assert_eq!(view.conditions.len(), 1);
        assert!(!view.ready.is_given_up);
        assert!(view.readiness.is_ready && view.readiness.words.is_empty());
        assert_eq!(view.conditions[0].1.status, Status::Unknown);
        assert_eq!(
            view.facts,
            NodeFacts {
                created: Some("2026-11-21T08:00:00Z".parse().unwrap()),
                provider_id: Some("hcloud://1".to_owned()),
                taints: vec!["a".to_owned()],
                kubelet_version: Some("v1.36.3".to_owned()),
                will: NodeWill::default(),
            }
        );
    }

    #[test]
    fn what_others_want_of_it_is_read() {
        let will = |node| {
            NodeView::from(serde_json::from_value::<Node>(node).unwrap())
                .facts
                .will
        };
        let maintenance = |status| json!({"metadata": {}, "status": {"conditions": [{"type": "MaintenanceInProgress", "status": status}]}});
        assert!(will(maintenance("True")).maintenance);
        assert!(!will(maintenance("Unknown")).maintenance);
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z"}});
        assert_eq!(will(deleted).deletion, Some("deletionTimestamp"));
        let tainted = |key| json!({"metadata": {}, "spec": {"taints": [{"key": key}]}});
        for key in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"] {
            assert_eq!(will(tainted(key)).deletion, Some(key));
        }
        let candidate = "DeletionCandidateOfClusterAutoscaler";
        assert_eq!(will(tainted(candidate)).deletion, None);
        let annotated =
            json!({"metadata": {"annotations": {"a": "b", "nodevigil.io/pause": "swap"}}});
        let asked = AskedPause::UntilRemoved("swap".to_owned());
        assert_eq!(will(annotated).pause, Some(asked));
        assert_eq!(
            will(json!({"metadata": {"annotations": {"nodevigil.io/pause": ""}}})),
            NodeWill::default()
        );
    }
}
