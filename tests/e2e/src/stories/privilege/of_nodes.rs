//! Requests about Nodes that must be refused to an agent.

use serde_json::{Value, json};

use super::attempts::{APPLY, Attempt, By, JSON_PATCH, MERGE, STRATEGIC, condition, node_path, post, status_path};

const OWN: &str = "KubeletHealthy";
const OWN_TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";
pub const ONLY_CHANGE: &str = "may only change a Node and its status";
const OTHER: By = By::Policy("may not write node");
const METADATA: By = By::Policy("may not change labels, annotations, owners, finalizers");
const SPEC: By = By::Policy("nothing of the spec");
const TAINT: By = By::Policy("a taint that is not its own");
const EFFECT: By = By::Policy("taints with the listed effects only");
const STATUS: By = By::Policy("nothing of the status");
const CONDITION: By = By::Policy("a condition that is not its own");
const TIME: By = By::Policy("needs its lastTransitionTime");
const SHAPE: By = By::Policy("needs the status True, False or Unknown");
const APPLY_ONLY: By = By::Policy("by server-side apply only");
const MANAGER: By = By::Policy("as the field manager nodevigil only");
const GIVE: By = By::Policy("may not give fields to other managers");
const TAKE: By = By::Policy("may not take fields from other managers");

pub fn attempts(node: &str, other: &str) -> Vec<Attempt> {
    [
        of_conditions(node, other),
        of_status(node),
        of_metadata(node),
        of_ownership(node),
        of_spec(node, other),
        of_whole_nodes(node, other),
    ]
    .concat()
}

/// Path and body of the agent's own server-side apply.
pub fn applied(node: &str, conditions: &Value) -> (String, Value) {
    let status = json!({"conditions": conditions});
    let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status});
    (format!("{}?fieldManager=nodevigil&force=true", status_path(node)), body)
}

/// The patch that sets the agent's own taint, or removes it, next to the one of another.
pub fn taint(node: &str, is_set: bool) -> Attempt {
    let mut taints = vec![json!({"key": "lab", "effect": "NoSchedule"})];
    taints.extend(is_set.then(|| json!({"key": OWN_TAINT, "effect": "NoSchedule"})));
    let path = format!("{}?fieldManager=nodevigil", node_path(node));
    Attempt::patch("its own taint", path, MERGE, json!({"spec": {"taints": taints}}))
}

fn apply(what: &'static str, node: &str, conditions: &Value) -> Attempt {
    let (path, body) = applied(node, conditions);
    Attempt::patch(what, path, APPLY, body)
}

fn strategic(what: &'static str, path: String, body: Value) -> Attempt {
    Attempt::patch(what, path, STRATEGIC, body)
}

fn json_patch(what: &'static str, path: String, steps: Value) -> Attempt {
    Attempt::patch(what, path, JSON_PATCH, steps)
}

fn of_conditions(node: &str, other: &str) -> Vec<Attempt> {
    let set =
        |what, condition: Value| strategic(what, status_path(node), json!({"status": {"conditions": [condition]}}));
    let own_with = |what, key: &str, value: Value, by| {
        let mut own = condition(OWN, "False");
        own[key] = value;
        apply(what, node, &json!([own])).by(by)
    };
    let mut without_time = condition(OWN, "False");
    without_time.as_object_mut().map(|own| own.remove("lastTransitionTime"));
    let twice = json!([
        {"op": "add", "path": "/status/conditions/-", "value": condition(OWN, "True")},
        {"op": "add", "path": "/status/conditions/-", "value": condition(OWN, "False")},
    ]);
    vec![
        apply("another Node's condition", other, &json!([condition(OWN, "False")])).by(OTHER),
        set("Ready=False on its own Node", condition("Ready", "False")).by(CONDITION),
        set("another's condition", condition("ForeignHealthy", "False")).by(CONDITION),
        set("removing another's condition", json!({"$patch": "delete", "type": "ForeignHealthy"})).by(CONDITION),
        set("its own condition without lastTransitionTime", without_time).by(TIME),
        json_patch("its own condition twice", status_path(node), twice).by(SHAPE),
        own_with("a condition type that is not its own", "type", "NetworkingReady".into(), CONDITION),
        own_with("lastTransitionTime null", "lastTransitionTime", Value::Null, TIME),
        own_with("the status Maybe", "status", "Maybe".into(), SHAPE),
        own_with("a message of 1025 characters", "message", "x".repeat(1025).into(), SHAPE),
    ]
}

fn of_status(node: &str) -> Vec<Attempt> {
    let set = |what, status: Value| strategic(what, status_path(node), json!({"status": status})).by(STATUS);
    vec![
        set("the capacity", json!({"capacity": {"cpu": "4096"}})),
        set("the allocatable resources", json!({"allocatable": {"cpu": "4096"}})),
        set("the addresses", json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]})),
        set("the kubelet's port", json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}})),
        set("the kubelet's version", json!({"nodeInfo": {"kubeletVersion": "v9.9.9"}})),
    ]
}

fn of_metadata(node: &str) -> Vec<Attempt> {
    let set = |what, path: String, metadata: Value| strategic(what, path, json!({"metadata": metadata})).by(METADATA);
    let (path, status) = (node_path(node), status_path(node));
    vec![
        set("a label", path.clone(), json!({"labels": {"tier": "gold"}})),
        set("a label, through the status", status.clone(), json!({"labels": {"tier": "gold"}})),
        set("removing a label", path.clone(), json!({"labels": {"lab": null}})),
        set("an owner", path.clone(), json!({"ownerReferences": owner()})),
        set("a finalizer", path, json!({"finalizers": ["example.com/stay"]})),
        set("the pause annotation", status.clone(), json!({"annotations": {"nodevigil.io/pause": "x"}})),
        set("removing another's annotation", status, json!({"annotations": {"lab": null}})),
    ]
}

/// Whoever owns no field any more cannot take back what it has set, and the next apply takes the fields over.
fn of_ownership(node: &str) -> Vec<Attempt> {
    let (path, status) = (node_path(node), status_path(node));
    let own = json!([condition(OWN, "False")]);
    let applied_with = |what, key: &str, value: Value| {
        let mut attempt = apply(what, node, &own);
        attempt.request.body["metadata"][key] = value;
        attempt.by(METADATA)
    };
    let mut as_another = apply("an apply in another manager's name", node, &own).by(MANAGER);
    as_another.request.path = format!("{status}?fieldManager=lab&force=true");
    let fields = |what, step: Value| json_patch(what, format!("{path}?fieldManager=nodevigil"), json!([step]));
    let claim = json!({
        "manager": "lab", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:lab": {}}}},
    });
    let replace = |field: &str, value: Value| json!({"op": "replace", "path": format!("/metadata/managedFields{field}"), "value": value});
    let status_of_own = json!({"status": {"conditions": own}});
    vec![
        strategic("its own condition, not by apply", format!("{status}?fieldManager=nodevigil"), status_of_own)
            .by(APPLY_ONLY),
        as_another,
        fields("no manager owns anything", replace("", json!([{}]))).by(METADATA),
        // The first entry may be that of the node lifecycle controller, which owns the list of taints alone.
        fields("one manager owns nothing", json!({"op": "remove", "path": "/metadata/managedFields/1"})).by(TAKE),
        fields("one manager's fields become another's", replace("/0/manager", "lab".into())).by(GIVE),
        fields(
            "a manager owns what it never set",
            json!({"op": "add", "path": "/metadata/managedFields/-", "value": claim}),
        )
        .by(GIVE),
        fields("one manager's fields become the oldest's", replace("/1/manager", "ancient-changes".into())).by(GIVE),
        applied_with("an owner, by apply", "ownerReferences", owner()),
        applied_with("a finalizer, by apply", "finalizers", json!(["example.com/stay"])),
        applied_with("an annotation, by apply", "annotations", json!({"example.com/a": "b"})),
    ]
}

fn of_spec(node: &str, other: &str) -> Vec<Attempt> {
    let path = node_path(node);
    let set = |what, spec: Value| strategic(what, node_path(node), json!({"spec": spec})).by(SPEC);
    let add = |what, path: String, key: &str, effect: &str| {
        let taint = json!({"key": key, "effect": effect, "value": "KubeletCrashed"});
        json_patch(what, path, json!([{"op": "add", "path": "/spec/taints/-", "value": taint}]))
    };
    let own = json!([{"key": OWN_TAINT, "effect": "NoSchedule"}]);
    let by_apply = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"taints": own}});
    let remove = json!([{"op": "remove", "path": "/spec/taints/0"}]);
    let change = json!([{"op": "add", "path": "/spec/taints/0/value", "value": "x"}]);
    vec![
        set("cordoning", json!({"unschedulable": true})),
        set("a provider ID", json!({"providerID": "a://1"})),
        add("a taint that is not its own", path.clone(), "example.com/broken", "NoSchedule").by(TAINT),
        json_patch("removing another's taint", path.clone(), remove).by(TAINT),
        json_patch("changing another's taint", path.clone(), change).by(TAINT),
        Attempt::patch("its own taint instead of all others", path.clone(), MERGE, json!({"spec": {"taints": own}}))
            .by(TAINT),
        Attempt::patch("the same by apply", format!("{path}?fieldManager=nodevigil&force=true"), APPLY, by_apply)
            .by(TAINT),
        add("its own taint with NoExecute", path, OWN_TAINT, "NoExecute").by(EFFECT),
        add("its own taint on another Node", node_path(other), OWN_TAINT, "NoSchedule").by(OTHER),
    ]
}

fn of_whole_nodes(node: &str, other: &str) -> Vec<Attempt> {
    const BY: By = By::Both(ONLY_CHANGE);
    let new = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-up"}});
    vec![
        Attempt::delete("deleting its own Node", &node_path(node)).by(BY),
        Attempt::delete("deleting another Node", &node_path(other)).by(BY),
        Attempt::delete("deleting all Nodes", "/api/v1/nodes?labelSelector=lab").by(BY),
        post("creating a Node", "/api/v1/nodes", new.clone()).by(BY),
        Attempt::patch(
            "creating a Node by apply",
            "/api/v1/nodes/made-up?fieldManager=nodevigil".to_owned(),
            APPLY,
            new,
        )
        .by(BY),
    ]
}

fn owner() -> Value {
    json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0-0"}])
}
