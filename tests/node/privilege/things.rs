//! What a thief would try with an agent's credential, and what the agent itself must be able to do.

use serde_json::{Value, json};

use super::{elsewhere, own_node};
use crate::scene::LEASES;

/// A request, and what is to become of it.
pub(crate) struct Thing {
    /// What it is, for people.
    pub(crate) what: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) body: Value,
    /// As whom the API server is asked to take the sender.
    pub(crate) user: Option<&'static str>,
    /// The policy's word, if it is the policy that refuses it, or would if the rights were wide open.
    pub(crate) policy: &'static str,
    /// Whether the shipped rights refuse it before any policy is asked.
    pub(crate) by_rights: bool,
}

pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const MERGE: &str = "application/strategic-merge-patch+json";
pub(crate) const STEPS: &str = "application/json-patch+json";
pub(crate) const JSON: &str = "application/json";
pub(crate) const OWN_TAINT: &str =
    "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";

impl Thing {
    pub(super) fn new(what: &'static str, method: &'static str, path: impl Into<String>) -> Self {
        Self {
            what,
            method,
            path: path.into(),
            kind: JSON,
            body: Value::Null,
            user: None,
            policy: "",
            by_rights: false,
        }
    }

    pub(super) fn patch(
        what: &'static str,
        path: impl Into<String>,
        (kind, body): (&'static str, Value),
    ) -> Self {
        Self {
            kind,
            body,
            ..Self::new(what, "PATCH", path)
        }
    }

    pub(super) fn post(what: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self {
            body,
            ..Self::new(what, "POST", path)
        }
    }

    pub(super) fn policy(self, word: &'static str) -> Self {
        Self {
            policy: word,
            ..self
        }
    }

    pub(super) fn by_rights(self) -> Self {
        Self {
            by_rights: true,
            ..self
        }
    }
}

/// A condition as the agent sends it.
pub(crate) fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "KubeletIsHealthy", "message": "m",
        "lastHeartbeatTime": "2026-11-21T09:00:00Z", "lastTransitionTime": "2026-11-21T09:00:00Z",
    })
}

pub(super) fn merge(body: Value) -> (&'static str, Value) {
    (MERGE, body)
}

pub(super) fn steps(body: Value) -> (&'static str, Value) {
    (STEPS, body)
}

/// The agent's own server-side apply.
pub(crate) fn apply(node: &str, conditions: Value, annotations: Value) -> (&'static str, Value) {
    let mut body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    body["status"]["conditions"] = conditions;
    if !annotations.is_null() {
        body["metadata"]["annotations"] = annotations;
    }
    (APPLY, body)
}

pub(crate) fn node_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

pub(crate) fn status_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}/status")
}

pub(crate) fn apply_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}/status?fieldManager=nodevigil&force=true")
}

/// An Event about an object, as `events.k8s.io` takes it.
pub(crate) fn event(kind: &str, about: &str, namespace: &str, reporter: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": "nodevigil-", "namespace": namespace},
        "eventTime": "2026-11-21T09:00:00.000000Z",
        "reportingController": reporter, "reportingInstance": "nodevigil-x",
        "action": "Told", "reason": "KubeletCrashed", "type": "Warning", "note": "n",
        "regarding": {
            "apiVersion": "v1", "kind": kind, "name": about,
            "namespace": if kind == "Node" { Value::Null } else { namespace.into() },
        },
    })
}

pub(crate) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub(crate) const CORE_EVENTS: &str = "/api/v1/namespaces/default/events";
/// All that must be refused to the agent of `node`; `other` is another Node.
pub(crate) fn forbidden(node: &str, other: &str) -> Vec<Thing> {
    let mut things = own_node::things(node, other);
    things.extend(elsewhere::things(node, other));
    things
}

/// What the agent of `node` does, in an order in which it can.
pub(crate) fn allowed(node: &str) -> Vec<Thing> {
    let both = json!([
        condition("KubeletHealthy", "False"),
        condition("KubeletConfigValid", "True")
    ]);
    let dialects = json!([
        condition("KubeletHealthy", "True"),
        condition("ContainerRuntimeReady", "Unknown"),
        condition("KubeletUnhealthy", "False"),
    ]);
    let standing_down = json!({"nodevigil.io/standing-down": "nodevigil pause, until taken back"});
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-11-21T09:01:00.000000Z"}});
    let mut named = event("Node", node, "default", "nodevigil.io/agent");
    named["metadata"] = json!({"name": format!("{node}.1"), "namespace": "default"});
    let apply = |what, conditions: Value, annotations: Value| {
        Thing::patch(what, apply_path(node), apply(node, conditions, annotations))
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes", "subresource": "status"}}});
    let myself = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let one = format!("/api/v1/nodes?fieldSelector=metadata.name={node}");
    vec![
        Thing::new("reading the own Node", "GET", node_path(node)),
        Thing::new("listing the own Node", "GET", &one),
        Thing::new(
            "watching the own Node",
            "GET",
            format!("{one}&watch=1&timeoutSeconds=1"),
        ),
        apply("the first conditions", both.clone(), Value::Null),
        apply("standing down", both.clone(), standing_down),
        apply("going on", both, Value::Null),
        apply("every type, one left out", dialects, Value::Null),
        apply("taking all conditions away", json!([]), Value::Null),
        Thing::post("an Event", EVENTS, named),
        Thing::patch(
            "the same Event again",
            format!("{EVENTS}/{node}.1"),
            merge(series),
        ),
        Thing::new("reading the own Lease", "GET", format!("{LEASES}/{node}")),
        Thing::post(
            "asking what one may",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review,
        ),
        Thing::post(
            "asking who one is",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            myself,
        ),
    ]
}
