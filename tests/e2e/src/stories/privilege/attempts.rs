//! Requests that must be refused to an agent, and by what; those that are not about Nodes.

use serde_json::{Value, json};

use crate::support::requests::Request;

pub const APPLY: &str = "application/apply-patch+yaml";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const MERGE: &str = "application/merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const JSON: &str = "application/json";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
const OTHER_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// What RBAC answers.
const CANNOT: &str = " cannot ";

/// A request that must be refused.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub what: &'static str,
    pub request: Request,
    pub by: By,
}

/// What refuses it, with the message of the policy.
#[derive(Debug, Clone, Copy)]
pub enum By {
    /// The role, and no policy covers it.
    Role,
    /// A policy alone.
    Policy(&'static str),
    /// The role, and a policy if the role allowed it.
    Both(&'static str),
}

impl By {
    /// The message with the roles of packaging/kubernetes.
    pub const fn by_default(self) -> &'static str {
        match self {
            Self::Role | Self::Both(_) => CANNOT,
            Self::Policy(message) => message,
        }
    }

    /// The message of the policy; empty if there is none.
    pub const fn by_policy(self) -> &'static str {
        match self {
            Self::Role => "",
            Self::Policy(message) | Self::Both(message) => message,
        }
    }
}

impl Attempt {
    fn new(what: &'static str, method: &'static str, path: &str) -> Self {
        Self { what, request: Request { method, ..Request::get(path) }, by: By::Role }
    }

    pub fn patch(what: &'static str, path: String, content_type: &'static str, body: Value) -> Self {
        Self { what, request: Request { method: "PATCH", path, content_type, body, as_user: "" }, by: By::Role }
    }

    pub fn delete(what: &'static str, path: &str) -> Self {
        Self::new(what, "DELETE", path)
    }

    pub const fn by(mut self, by: By) -> Self {
        self.by = by;
        self
    }
}

pub fn post(what: &'static str, path: &str, body: Value) -> Attempt {
    let mut attempt = Attempt::new(what, "POST", path);
    attempt.request.body = body;
    attempt
}

pub fn node_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

pub fn status_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}/status")
}

/// A condition as the agent writes it.
pub fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "KubeletIsHealthy", "message": "m",
        "lastHeartbeatTime": "2026-11-21T09:00:00Z", "lastTransitionTime": "2026-11-21T09:00:00Z",
    })
}

/// An Event of the agent's about an object.
pub fn event(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": "nodevigil-", "namespace": "default"},
        "eventTime": "2026-11-21T09:00:00.000000Z",
        "reportingComponent": "nodevigil.io/agent", "reportingInstance": "x",
        "action": "Transition", "reason": "KubeletCrashed", "type": "Warning", "message": "m",
        "source": {"component": "nodevigil.io/agent", "host": "x"},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name, "namespace": namespace(kind)},
    })
}

/// The same in the group that the agent does not use.
fn other_event(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": "nodevigil-", "namespace": "default"},
        "eventTime": "2026-11-21T09:00:00.000000Z",
        "reportingController": "nodevigil.io/agent", "reportingInstance": "x",
        "action": "Transition", "reason": "KubeletCrashed", "type": "Warning", "note": "n",
        "regarding": {"apiVersion": "v1", "kind": kind, "name": name, "namespace": namespace(kind)},
    })
}

fn namespace(kind: &str) -> Value {
    if kind == "Node" { Value::Null } else { "default".into() }
}

/// Attempts on Events. The administrator has created one about a Pod that is named as the node is.
pub fn of_events(node: &str, other: &str) -> Vec<Attempt> {
    const ABOUT: &str = "Events about its own Node only";
    const NAME: &str = "in the name of nodevigil.io/agent only";
    const METADATA: By = By::Policy("may give Events a name");
    const ONLY_CREATE: By = By::Both("may only create Events");
    let own_with = |what, key: &str, value: Value| {
        let mut own = event("Node", node);
        own["metadata"][key] = value;
        post(what, EVENTS, own).by(METADATA)
    };
    let of_a_pod = format!("{EVENTS}/{node}");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": other, "uid": "0-0"}]);
    let mut related = event("Node", node);
    related["related"] = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    let (mut of_the_kubelet, mut from_the_kubelet) = (event("Node", node), event("Node", node));
    of_the_kubelet["reportingComponent"] = "kubelet".into();
    from_the_kubelet["source"]["component"] = "kubelet".into();
    let mut other_of_the_kubelet = other_event("Node", node);
    other_of_the_kubelet["reportingController"] = "kubelet".into();
    let series = json!({"series": {"count": 9, "lastObservedTime": "2026-11-21T09:01:00.000000Z"}});
    vec![
        post("an Event about a Pod", EVENTS, event("Pod", "p")).by(By::Policy(ABOUT)),
        post("an Event about another Node", EVENTS, event("Node", other)).by(By::Policy(ABOUT)),
        post("an Event that is related to a Pod", EVENTS, related).by(By::Policy(ABOUT)),
        post("an Event in the kubelet's name", EVENTS, of_the_kubelet).by(By::Policy(NAME)),
        post("an Event from the kubelet", EVENTS, from_the_kubelet).by(By::Policy(NAME)),
        post("its own Event, in events.k8s.io", OTHER_EVENTS, other_event("Node", node)),
        post("an Event about a Pod, in events.k8s.io", OTHER_EVENTS, other_event("Pod", "p")).by(By::Both(ABOUT)),
        post("an Event about another Node, in events.k8s.io", OTHER_EVENTS, other_event("Node", other))
            .by(By::Both(ABOUT)),
        post("an Event in the kubelet's name, in events.k8s.io", OTHER_EVENTS, other_of_the_kubelet).by(By::Both(NAME)),
        own_with("an Event that is deleted with another Node", "ownerReferences", owner),
        own_with("an Event with a finalizer", "finalizers", json!(["example.com/stay"])),
        own_with("an Event with a label", "labels", json!({"tier": "gold"})),
        own_with("an Event with an annotation", "annotations", json!({"lab": "x"})),
        Attempt::patch("another's Event", of_a_pod.clone(), STRATEGIC, series).by(ONLY_CREATE),
        Attempt::delete("deleting an Event", &of_a_pod).by(ONLY_CREATE),
    ]
}

/// Attempts for which an agent has no role, and so no policy.
pub fn of_anything_else(node: &str, other: &str) -> Vec<Attempt> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodevigil";
    const BINDING: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/nodevigil-nodes";
    const TOKENS: &str = "/api/v1/namespaces/kube-system/serviceaccounts/nodevigil/token";
    let read = |what, path: &str| Attempt::new(what, "GET", path);
    let renew = |what, name: &str| {
        Attempt::patch(what, format!("{LEASES}/{name}"), MERGE, json!({"spec": {"leaseDurationSeconds": 4000}}))
    };
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let bound = json!({"apiVersion": "v1", "kind": "Node", "name": other});
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}});
    let spec = json!({"nodeName": node, "serviceAccountName": "nodevigil", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": spec});
    let mut as_the_controller_manager = read("impersonating the controller manager", "/api/v1/nodes");
    as_the_controller_manager.request.as_user = "system:kube-controller-manager";
    vec![
        renew("renewing its own Lease", node),
        renew("renewing another Lease", other),
        read("listing Leases", LEASES),
        read("reading Events", EVENTS),
        read("reading Secrets", "/api/v1/secrets"),
        read("reading ConfigMaps", "/api/v1/configmaps"),
        read("reading Pods", "/api/v1/pods"),
        read("reading its own node's Pods", &format!("/api/v1/pods?fieldSelector=spec.nodeName={node}")),
        post("a Pod on its own node", "/api/v1/namespaces/kube-system/pods", pod),
        post("a token for another Node", TOKENS, token),
        Attempt::patch("a wider role", RBAC.to_owned(), STRATEGIC, rules),
        Attempt::delete("deleting the policy's binding", BINDING),
        as_the_controller_manager,
    ]
}
