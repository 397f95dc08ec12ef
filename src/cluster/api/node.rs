//! What is read of our Node: few fields, the rest is skipped while parsing and costs no memory.

use std::fmt;

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::{
    cleaning::STANDING_DOWN,
    maintenance::{MAINTENANCE_SIGNS, MaintenanceSign, StandingSign},
    owners::{ManagedFields, Ownership, owners},
    will::{self, NodeWill, PAUSE_ANNOTATION, PauseAnnotation},
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
    /// The annotation [`STANDING_DOWN`], as an earlier life of ours may have left it.
    pub standing_down: Option<String>,
}

/// What the Node's `Ready` says: its status, and in words why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Whether it is `True`.
    pub is_ready: bool,
    /// Its reason and message, shortened; empty if it is.
    pub words: String,
}

/// What the kubelet writes of a runtime that is not ready, or has not answered it for 30 s (k8s.io/kubernetes, `pkg/kubelet/runtime.go`).
/// Of the network it writes `container runtime network not ready`.
const RUNTIME_WORDS: [&str; 2] = ["container runtime is down", "container runtime not ready"];

/// What the Node's `Ready` tells of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// Whether it is `Unknown`: the control plane has waited for the kubelet in vain.
    pub is_given_up: bool,
    /// When the kubelet wrote it last.
    pub heartbeat: Option<Timestamp>,
    /// Whether the kubelet says that it is not ready because of its container runtime.
    pub blames_runtime: bool,
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

/// The annotations that somebody here reads.
#[derive(Default)]
struct NodeAnnotations {
    pause: Option<PauseAnnotation>,
    standing_down: Option<String>,
    signs: Vec<StandingSign>,
}

/// No longer one is ours: the policy allows no more.
const MAX_STANDING_DOWN_BYTES: usize = 1024;

impl<'de> Deserialize<'de> for NodeAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = NodeAnnotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeAnnotations, A::Error> {
        let mut read = NodeAnnotations::default();
        while let Some(AnnotationKey(key)) = map.next_key()? {
            match key {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(PAUSE_ANNOTATION) => {
                    read.pause = PauseAnnotation::read(&map.next_value::<String>()?);
                }
                Some(STANDING_DOWN) => {
                    let text: String = map.next_value()?;
                    let is_short = text.len() <= MAX_STANDING_DOWN_BYTES;
                    read.standing_down = is_short.then_some(text);
                }
                Some(key) => {
                    let value: String = map.next_value()?;
                    read.signs.extend(StandingSign::annotation(key, &value));
                }
            }
        }
        Ok(read)
    }
}

/// The key of an annotation, if somebody here reads it: all the others cost no memory.
struct AnnotationKey(Option<&'static str>);

impl<'de> Deserialize<'de> for AnnotationKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = AnnotationKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key of an annotation")
    }

    fn visit_str<E>(self, key: &str) -> Result<AnnotationKey, E> {
        let signs = MAINTENANCE_SIGNS
            .iter()
            .filter_map(MaintenanceSign::annotation);
        let mut known = [PAUSE_ANNOTATION, STANDING_DOWN].into_iter().chain(signs);
        Ok(AnnotationKey(known.find(|known| *known == key)))
    }
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
            standing_down: node.metadata.annotations.standing_down,
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
    NodeWill {
        maintenance: signs_of(node),
        deletion: will::deletion(
            node.metadata.deletion_timestamp,
            taint_keys(&node.spec.taints),
        ),
        pause: node.metadata.annotations.pause.clone(),
    }
}

/// The signs of maintenance, in the registry's order, each once.
fn signs_of(node: &Node) -> Vec<StandingSign> {
    let conditions = node.status.conditions.iter();
    let conditions = conditions
        .filter(|c| c.status == "True")
        .filter_map(|c| StandingSign::condition(&c.r#type, c.last_transition_time));
    let taints = node.spec.taints.as_array().into_iter().flatten();
    let taints = taints.filter_map(|taint| {
        let added = taint["timeAdded"].as_str();
        StandingSign::taint(taint["key"].as_str()?, added.and_then(|at| at.parse().ok()))
    });
    let annotations = node.metadata.annotations.signs.iter().copied();
    let mut signs: Vec<_> = conditions.chain(taints).chain(annotations).collect();
    let place = |sign: &StandingSign| MAINTENANCE_SIGNS.iter().position(|row| row == sign.row);
    // Of two taints with one key the older one counts.
    signs.sort_by_key(|sign| (place(sign), sign.since));
    signs.dedup_by_key(|sign| sign.row.id);
    signs
}

fn ready_of(node: &Node) -> Ready {
    let ready = node.status.conditions.iter().find(|c| c.r#type == "Ready");
    ready.map_or_else(Ready::default, |ready| Ready {
        is_given_up: ready.status == "Unknown",
        heartbeat: ready.last_heartbeat_time,
        blames_runtime: ready.status == "False"
            && RUNTIME_WORDS
                .iter()
                .any(|words| ready.message.contains(words)),
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
    fn the_kubelets_word_on_its_runtime_is_told_from_that_on_the_network() {
        for (status, message, blames) in [
            (
                "False",
                "[container runtime is down, PLEG is not healthy]",
                true,
            ),
            (
                "False",
                "container runtime not ready: RuntimeReady=false reason:x",
                true,
            ),
            (
                "False",
                "container runtime network not ready: NetworkReady=false",
                false,
            ),
            (
                "False",
                "container runtime status check may not have completed yet",
                false,
            ),
            ("Unknown", "container runtime is down", false),
        ] {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "status": {"conditions": [{
                    "type": "Ready", "status": status, "reason": "KubeletNotReady", "message": message,
                    "lastTransitionTime": "2026-11-21T09:00:00Z",
                }]},
            }))
            .unwrap();
            assert_eq!(
                NodeView::from(node).ready.blames_runtime,
                blames,
                "{message}"
            );
        }
    }

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
        let at = "2026-11-21T08:00:00Z";
        let maintenance = |status| {
            json!({"metadata": {}, "status": {"conditions": [
            {"type": "MaintenanceInProgress", "status": status, "lastTransitionTime": at}]}})
        };
        let signs = will(maintenance("True")).maintenance;
        assert_eq!(signs.len(), 1);
        assert_eq!(
            (signs[0].row.id, signs[0].since),
            ("maintenance", at.parse().ok())
        );
        assert_eq!(will(maintenance("Unknown")), NodeWill::default());
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
        assert_eq!(will(annotated).pause, PauseAnnotation::read("swap"));
        assert_eq!(
            will(json!({"metadata": {"annotations": {"nodevigil.io/pause": ""}}})),
            NodeWill::default()
        );
    }
    #[test]
    fn each_kind_of_sign_is_found_in_the_registrys_order_and_once() {
        let node = json!({
            "metadata": {"annotations": {
                "machineconfiguration.openshift.io/state": "Working",
                "weave.works/kured-reboot-in-progress": "2026-11-21T08:00:00+01:00",
                "example.com/long": "x".repeat(100_000),
                "nodevigil.io/standing-down": "the Node has Drained=True",
            }},
            "spec": {"taints": [
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule", "timeAdded": "2026-11-21T08:00:00Z"},
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": "2026-11-21T06:00:00Z"},
                {"key": "karpenter.sh/rebooting", "effect": "NoSchedule", "timeAdded": 7},
            ]},
            "status": {"conditions": [
                {"type": "Drained", "status": "True", "lastTransitionTime": null},
                {"type": "MaintenancePlanned", "status": "True"},
                {"type": "DrainInProgress", "status": "False"},
            ]},
        });
        // As it comes over the wire, and with keys that are no plain text there.
        let text = node.to_string().replace("weave.works", r"weave\u002eworks");
        let view = NodeView::from(serde_json::from_str::<Node>(&text).unwrap());
        let signs = view.facts.will.maintenance.iter();
        let found: Vec<_> = signs
            .map(|sign| (sign.name(), sign.since.map(|at| at.to_string())))
            .collect();
        let at = |text: &str| Some(text.to_owned());
        let wanted = [
            ("Drained=True", None),
            (
                "annotation weave.works/kured-reboot-in-progress",
                at("2026-11-21T07:00:00Z"),
            ),
            (
                "annotation machineconfiguration.openshift.io/state=Working",
                None,
            ),
            (
                "taint node.kubernetes.io/out-of-service",
                at("2026-11-21T06:00:00Z"),
            ),
            ("taint karpenter.sh/rebooting", None),
        ];
        assert_eq!(found, wanted.map(|(name, at)| (name.to_owned(), at)));
        assert_eq!(
            view.standing_down.as_deref(),
            Some("the Node has Drained=True")
        );
        let long =
            json!({"metadata": {"annotations": {"nodevigil.io/standing-down": "x".repeat(1025)}}});
        let view = NodeView::from(serde_json::from_value::<Node>(long).unwrap());
        assert_eq!(view.standing_down, None, "that is none of ours");
    }
}
