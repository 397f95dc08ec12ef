//! What a thief would try on Nodes.

use serde_json::{Value, json};

use super::things::{
    APPLY, OWN_TAINT, Thing, apply, apply_path, condition, merge, node_path, status_path, steps,
};

const OURS: &str = "KubeletHealthy";
const NEVER: &str = "may only change a Node and its status";
const OTHER: &str = "may not write node";
const METADATA: &str = "may not change labels, owners, finalizers";
const ANNOTATION: &str = "no annotation but its own";
const SPEC: &str = "nothing of the spec";
const TAINT: &str = "a taint that is not its own";
const EFFECT: &str = "taints with the listed effects only";
const STATUS: &str = "nothing of the status";
const CONDITION: &str = "a condition that is not its own";
const TIME: &str = "needs its lastTransitionTime";
const SHAPE: &str = "needs the status True, False or Unknown";
const FORCED: &str = "by server-side apply only";
const MANAGER: &str = "as the field manager nodevigil only";
const OWNERSHIP: &str = "what other managers own";

pub(super) fn things(node: &str, other: &str) -> Vec<Thing> {
    [
        of_conditions(node, other),
        of_malformed_conditions(node),
        of_the_status(node),
        of_metadata(node),
        of_ownership(node),
        of_the_spec(node, other),
        of_whole_nodes(node, other),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_conditions(node: &str, other: &str) -> Vec<Thing> {
    let set = |kind: &str, status: &str| {
        merge(json!({"status": {"conditions": [condition(kind, status)]}}))
    };
    let path = status_path(node);
    vec![
        Thing::patch(
            "another node's status",
            apply_path(other),
            apply(other, json!([condition(OURS, "False")]), Value::Null),
        )
        .policy(OTHER),
        Thing::patch("Ready=False on the own Node", &path, set("Ready", "False")).policy(CONDITION),
        Thing::patch(
            "changing somebody's condition",
            &path,
            set("ForeignHealthy", "False"),
        )
        .policy(CONDITION),
        Thing::patch(
            "removing somebody's condition",
            &path,
            merge(
                json!({"status": {"conditions": [{"$patch": "delete", "type": "ForeignHealthy"}]}}),
            ),
        )
        .policy(CONDITION),
        Thing::patch(
            "one type of ours twice",
            &path,
            steps(json!([
                {"op": "add", "path": "/status/conditions/-", "value": condition(OURS, "True")},
                {"op": "add", "path": "/status/conditions/-", "value": condition(OURS, "False")},
            ])),
        )
        .policy(SHAPE),
    ]
}

fn of_malformed_conditions(node: &str) -> Vec<Thing> {
    let apply = |what, key: &str, value: Value, policy| {
        let mut one = condition(OURS, "False");
        one[key] = value;
        let body = apply(node, json!([one]), Value::Null);
        Thing::patch(what, apply_path(node), body).policy(policy)
    };
    let mut timeless = condition(OURS, "False");
    if let Some(fields) = timeless.as_object_mut() {
        fields.remove("lastTransitionTime");
    }
    vec![
        apply(
            "a condition type that is not ours",
            "type",
            "NetworkingReady".into(),
            CONDITION,
        ),
        Thing::patch(
            "an own condition without lastTransitionTime",
            status_path(node),
            merge(json!({"status": {"conditions": [timeless]}})),
        )
        .policy(TIME),
        apply(
            "an own condition with a null lastTransitionTime",
            "lastTransitionTime",
            Value::Null,
            TIME,
        ),
        apply(
            "an own condition with the status Maybe",
            "status",
            "Maybe".into(),
            SHAPE,
        ),
        apply(
            "an own condition with 1025 characters of message",
            "message",
            "x".repeat(1025).into(),
            SHAPE,
        ),
    ]
}

fn of_the_status(node: &str) -> Vec<Thing> {
    let path = status_path(node);
    let of = |what, status: Value| {
        Thing::patch(what, &path, merge(json!({"status": status}))).policy(STATUS)
    };
    vec![
        of("the capacity", json!({"capacity": {"cpu": "4096"}})),
        of("the allocatable", json!({"allocatable": {"cpu": "4096"}})),
        of(
            "the addresses",
            json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}),
        ),
        of(
            "the kubelet's port",
            json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}),
        ),
        of(
            "the node's info",
            json!({"nodeInfo": {"kubeletVersion": "v9.9.9"}}),
        ),
    ]
}

fn of_metadata(node: &str) -> Vec<Thing> {
    let (path, status) = (node_path(node), status_path(node));
    let set = |metadata: Value| merge(json!({ "metadata": metadata }));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0-0"}]);
    vec![
        Thing::patch("a label", &path, set(json!({"labels": {"tier": "gold"}}))).policy(METADATA),
        Thing::patch(
            "a label, by way of the status",
            &status,
            set(json!({"labels": {"tier": "gold"}})),
        )
        .policy(METADATA),
        Thing::patch(
            "removing a label",
            &path,
            set(json!({"labels": {"lab": null}})),
        )
        .policy(METADATA),
        Thing::patch("an owner", &path, set(json!({"ownerReferences": owner}))).policy(METADATA),
        Thing::patch(
            "a finalizer",
            &path,
            set(json!({"finalizers": ["example.com/stay"]})),
        )
        .policy(METADATA),
        Thing::patch(
            "an annotation that is not ours",
            apply_path(node),
            apply(
                node,
                json!([]),
                json!({"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}),
            ),
        )
        .policy(ANNOTATION),
        Thing::patch(
            "removing somebody's annotation",
            &status,
            set(json!({"annotations": {"lab": null}})),
        )
        .policy(ANNOTATION),
        Thing::patch(
            "the pause annotation, which is people's",
            apply_path(node),
            apply(node, json!([]), json!({"nodevigil.io/pause": "x"})),
        )
        .policy(ANNOTATION),
        Thing::patch(
            "an own annotation of 1025 characters",
            &status,
            set(json!({"annotations": {"nodevigil.io/standing-down": "x".repeat(1025)}})),
        )
        .policy(ANNOTATION),
    ]
}

/// Whoever is made to own nothing can no longer take back what it set, and the next apply of it takes fields from others.
fn of_ownership(node: &str) -> Vec<Thing> {
    let (path, status) = (node_path(node), status_path(node));
    let own = || apply(node, json!([condition(OURS, "False")]), Value::Null);
    let with = |metadata: &str, value: Value| {
        let (kind, mut body) = own();
        body["metadata"][metadata] = value;
        (kind, body)
    };
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0-0"}]);
    let record = |value: Value| {
        steps(json!([{"op": "replace", "path": "/metadata/managedFields", "value": value}]))
    };
    // The first may be the node lifecycle controller's, who owns the list of taints and nothing else: a list that agents write.
    let second = || steps(json!([{"op": "remove", "path": "/metadata/managedFields/1"}]));
    let claim = json!({
        "manager": "lab", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:lab": {}}}},
    });
    let as_ours = format!("{path}?fieldManager=nodevigil");
    vec![
        Thing::patch(
            "the own condition by another patch than an apply",
            format!("{status}?fieldManager=nodevigil"),
            merge(json!({"status": {"conditions": [condition(OURS, "False")]}})),
        )
        .policy(FORCED),
        Thing::patch(
            "an apply in another manager's name",
            format!("{status}?fieldManager=lab&force=true"),
            own(),
        )
        .policy(MANAGER),
        Thing::patch("nobody owns anything", &as_ours, record(json!([{}]))).policy(METADATA),
        Thing::patch("one manager owns nothing", &as_ours, second()).policy(OWNERSHIP),
        Thing::patch(
            "what one manager owns becomes another's",
            &as_ours,
            steps(
                json!([{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "lab"}]),
            ),
        )
        .policy(OWNERSHIP),
        Thing::patch(
            "a manager owns what it never set",
            &as_ours,
            steps(json!([{"op": "add", "path": "/metadata/managedFields/-", "value": claim}])),
        )
        .policy(OWNERSHIP),
        Thing::patch(
            "an owner, by apply",
            apply_path(node),
            with("ownerReferences", owner),
        )
        .policy(METADATA),
        Thing::patch(
            "a finalizer, by apply",
            apply_path(node),
            with("finalizers", json!(["example.com/stay"])),
        )
        .policy(METADATA),
    ]
}

fn of_the_spec(node: &str, other: &str) -> Vec<Thing> {
    let path = node_path(node);
    let taint = |key: &str, effect: &str| {
        steps(json!([{"op": "add", "path": "/spec/taints/-",
            "value": {"key": key, "effect": effect, "value": "KubeletCrashed"}}]))
    };
    let mut wiping = apply(node, json!([]), Value::Null).1;
    wiping["spec"] = json!({"taints": [{"key": OWN_TAINT, "effect": "NoSchedule"}]});
    vec![
        Thing::patch(
            "cordoning",
            &path,
            merge(json!({"spec": {"unschedulable": true}})),
        )
        .policy(SPEC),
        Thing::patch(
            "a provider ID",
            &path,
            merge(json!({"spec": {"providerID": "a://1"}})),
        )
        .policy(SPEC),
        Thing::patch(
            "a taint that is not ours",
            &path,
            taint("example.com/broken", "NoSchedule"),
        )
        .policy(TAINT),
        Thing::patch(
            "removing somebody's taint",
            &path,
            steps(json!([{"op": "remove", "path": "/spec/taints/0"}])),
        )
        .policy(TAINT),
        Thing::patch(
            "changing somebody's taint",
            &path,
            steps(json!([{"op": "add", "path": "/spec/taints/0/value", "value": "x"}])),
        )
        .policy(TAINT),
        Thing::patch(
            "a taint list of one's own, by apply",
            format!("{path}?fieldManager=nodevigil&force=true"),
            (APPLY, wiping),
        )
        .policy(TAINT),
        Thing::patch(
            "an own taint with NoExecute",
            &path,
            taint(OWN_TAINT, "NoExecute"),
        )
        .policy(EFFECT),
        Thing::patch(
            "an own taint on another node",
            node_path(other),
            taint(OWN_TAINT, "NoSchedule"),
        )
        .policy(OTHER),
    ]
}

fn of_whole_nodes(node: &str, other: &str) -> Vec<Thing> {
    let fresh = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conjured"}});
    vec![
        Thing::new("deleting the own Node", "DELETE", node_path(node))
            .policy(NEVER)
            .by_rights(),
        Thing::new("deleting another Node", "DELETE", node_path(other))
            .policy(NEVER)
            .by_rights(),
        Thing::new(
            "deleting all Nodes",
            "DELETE",
            "/api/v1/nodes?labelSelector=lab",
        )
        .policy(NEVER)
        .by_rights(),
        Thing::post("creating a Node", "/api/v1/nodes", fresh.clone())
            .policy(NEVER)
            .by_rights(),
        Thing::patch(
            "creating a Node by apply",
            "/api/v1/nodes/conjured?fieldManager=nodevigil",
            (APPLY, fresh),
        )
        .policy(NEVER)
        .by_rights(),
    ]
}
