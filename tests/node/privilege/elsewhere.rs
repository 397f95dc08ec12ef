//! What a thief would try on Events and on everything that is no Node.

use serde_json::{Value, json};

use super::things::{CORE_EVENTS, EVENTS, Thing, event, merge};
use crate::scene::LEASES;

const EVENT: &str = "Events about its own Node only";
const REPORTER: &str = "in the name of nodevigil.io/agent only";
const EVENT_METADATA: &str = "may give Events a name";
const EVENT_VERB: &str = "may only create and change Events";

pub(super) fn things(node: &str, other: &str) -> Vec<Thing> {
    let mut things = of_event_metadata(node, other);
    things.extend(of_events(node, other));
    things.extend(of_leases_and_reads(node, other));
    things.extend(of_the_way_up(node, other));
    things
}

fn event_of_core(kind: &str, about: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": "nodevigil-", "namespace": "default"},
        "reportingComponent": "nodevigil.io/agent", "reportingInstance": "nodevigil-x",
        "action": "Told", "reason": "KubeletCrashed", "type": "Warning", "message": "m",
        "eventTime": "2026-11-21T09:00:00.000000Z",
        "involvedObject": {
            "apiVersion": "v1", "kind": kind, "name": about,
            "namespace": if kind == "Node" { Value::Null } else { "default".into() },
        },
    })
}

fn of_event_metadata(node: &str, other: &str) -> Vec<Thing> {
    let with = |what, key: &str, value: Value| {
        let mut event = event("Node", node, "default", "nodevigil.io/agent");
        event["metadata"][key] = value;
        Thing::post(what, EVENTS, event).policy(EVENT_METADATA)
    };
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": other, "uid": "0-0"}]);
    vec![
        with(
            "an Event that goes with another Node",
            "ownerReferences",
            owner,
        ),
        with(
            "an Event that stays",
            "finalizers",
            json!(["example.com/stay"]),
        ),
        with("an Event with a label", "labels", json!({"tier": "gold"})),
        with(
            "an Event with an annotation",
            "annotations",
            json!({"lab": "x"}),
        ),
    ]
}

fn of_events(node: &str, other: &str) -> Vec<Thing> {
    let (us, default) = ("nodevigil.io/agent", "default");
    let mut related = event("Node", node, default, us);
    related["related"] = json!({"kind": "Pod", "name": "p", "namespace": default});
    vec![
        Thing::post(
            "an Event about a Pod",
            EVENTS,
            event("Pod", "p", default, us),
        )
        .policy(EVENT),
        Thing::post(
            "an Event about another Node",
            EVENTS,
            event("Node", other, default, us),
        )
        .policy(EVENT),
        Thing::post("an Event that draws a Pod in", EVENTS, related).policy(EVENT),
        Thing::post(
            "an Event in the kubelet's name",
            EVENTS,
            event("Node", node, default, "kubelet"),
        )
        .policy(REPORTER),
        Thing::patch(
            "counting somebody's Event up",
            format!("{EVENTS}/of-a-pod"),
            merge(
                json!({"series": {"count": 9, "lastObservedTime": "2026-11-21T09:01:00.000000Z"}}),
            ),
        )
        .policy(EVENT),
        Thing::patch(
            "making somebody's Event ours, in the old API",
            format!("{CORE_EVENTS}/of-a-pod"),
            merge(
                json!({"message": "nothing happened", "reportingComponent": us, "involvedObject": {
                "apiVersion": "v1", "kind": "Node", "name": node, "namespace": null}}),
            ),
        )
        .policy(EVENT)
        .by_rights(),
        Thing::post(
            "an Event about another Node, in the old API",
            CORE_EVENTS,
            event_of_core("Node", other),
        )
        .policy(EVENT)
        .by_rights(),
        Thing::post(
            "an Event about a Pod, in the old API",
            CORE_EVENTS,
            event_of_core("Pod", "p"),
        )
        .policy(EVENT)
        .by_rights(),
        Thing::new("deleting an Event", "DELETE", format!("{EVENTS}/of-a-pod"))
            .policy(EVENT_VERB)
            .by_rights(),
        Thing::new("reading Events", "GET", EVENTS).by_rights(),
    ]
}
/// What no policy looks at, because no right leads there.
fn of_leases_and_reads(node: &str, other: &str) -> Vec<Thing> {
    let renew = |what, of: &str| {
        let body = merge(json!({"spec": {"leaseDurationSeconds": 4000}}));
        Thing::patch(what, format!("{LEASES}/{of}"), body)
    };
    let things = vec![
        renew("renewing the own Lease", node),
        renew("renewing another Lease", other),
        Thing::new("listing Leases", "GET", LEASES),
        Thing::new("reading Secrets", "GET", "/api/v1/secrets"),
        Thing::new("reading ConfigMaps", "GET", "/api/v1/configmaps"),
        Thing::new("reading Pods", "GET", "/api/v1/pods"),
        Thing::new(
            "reading the own node's Pods",
            "GET",
            format!("/api/v1/pods?fieldSelector=spec.nodeName={node}"),
        ),
    ];
    things.into_iter().map(Thing::by_rights).collect()
}

/// The same: to become more than one is.
fn of_the_way_up(node: &str, other: &str) -> Vec<Thing> {
    let csr = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "x", "message": "x"},
    ]}});
    let rights = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": other},
    }});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    let things = vec![
        Thing::post(
            "a Pod on the own node",
            "/api/v1/namespaces/default/pods",
            pod,
        ),
        Thing::patch(
            "approving a CSR",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/lab/approval",
            merge(csr),
        ),
        Thing::post(
            "a token for another node",
            "/api/v1/namespaces/kube-system/serviceaccounts/nodevigil/token",
            token,
        ),
        Thing::patch(
            "widening the own rights",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodevigil",
            merge(rights),
        ),
        Thing::new(
            "removing the policy",
            "DELETE",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/nodevigil-nodes",
        ),
        Thing {
            user: Some("system:kube-controller-manager"),
            ..Thing::new("speaking as the controller manager", "GET", "/api/v1/nodes")
        },
        Thing {
            user: Some("system:serviceaccount:kube-system:default"),
            ..Thing::new(
                "speaking as a ServiceAccount",
                "GET",
                "/apis/authentication.k8s.io/v1",
            )
        },
    ];
    things.into_iter().map(Thing::by_rights).collect()
}
