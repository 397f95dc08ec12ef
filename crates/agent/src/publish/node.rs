//! Watches our own Node and writes its conditions and taints, one request after the other.

use std::{convert::Infallible, pin::pin};

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher::watch_object},
};
use tokio::sync::watch;

use super::{
    conditions::{Reconciler, Step},
    connection::{ApiConnection, Failure},
    observed::{FIELD_MANAGER, ObservedNode},
};
use crate::{condition::Desired, host::trouble::Trouble};

/// The requests that the API server may refuse.
const READ: &str = "read the Node";
const APPLY: &str = "apply conditions";
const TAINT: &str = "change taints";

/// Publishes conditions and taints on the Node of that name until it is dropped.
pub async fn publish_conditions(
    client: Client,
    name: &str,
    api: &ApiConnection,
    reconciler: &mut Reconciler,
    desired: &mut watch::Receiver<Desired>,
) -> Infallible {
    let nodes = Api::<Node>::all(client);
    let mut watched = pin!(watch_object(nodes.clone(), name).default_backoff());
    loop {
        // Events that have arrived come first: the next request should not be based on an older Node.
        while let Some(Some(event)) = watched.next().now_or_never() {
            take_in(event, reconciler, api);
        }
        let wanted = desired.borrow_and_update().clone();
        let step = match api.closed_until() {
            Some(until) => Step::Wait { until },
            None => reconciler.step(&wanted, api.now()),
        };
        show_troubles(reconciler, name, api);
        match step {
            Step::Wait { until } => tokio::select! {
                () = changed(desired) => {}
                Some(event) = watched.next() => take_in(event, reconciler, api),
                () = api.wait(until) => {}
            },
            Step::Read => {
                let answer = nodes.get_opt(name).await;
                api.record_answer(READ, name, answer.as_ref().err());
                match answer {
                    Ok(node) => reconciler.observed(node.and_then(ObservedNode::read), api.now()),
                    Err(error) => reconciler.failed(Failure::of(&error), api.now()),
                }
            }
            Step::Apply(node) => {
                let parameters = PatchParams::apply(FIELD_MANAGER).force();
                let answer = nodes.patch_status(name, &parameters, &Patch::Apply(node)).await;
                api.record_answer(APPLY, name, answer.as_ref().err());
                let answer = answer.map(ObservedNode::read).map_err(|error| Failure::of(&error));
                reconciler.applied(answer, api.now());
            }
            Step::Taint(patch) => {
                let answer = nodes.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await;
                api.record_answer(TAINT, name, answer.as_ref().err());
                let answer = answer.map(ObservedNode::read).map_err(|error| Failure::of(&error));
                reconciler.tainted(answer, api.now());
            }
        }
        show(reconciler, api);
    }
}

fn take_in(event: kube::runtime::watcher::Result<Option<Node>>, reconciler: &mut Reconciler, api: &ApiConnection) {
    // After an error, which `ApiConnection` has counted, the stream tries again by itself.
    if let Ok(node) = event {
        reconciler.watched(node.and_then(ObservedNode::read), api.now());
    }
    show(reconciler, api);
}

fn show_troubles(reconciler: &Reconciler, name: &str, api: &ApiConnection) {
    match reconciler.foreign_owners() {
        Some(message) => api.troubles.set(Trouble::ForeignOwner, message),
        None => api.troubles.clear(Trouble::ForeignOwner),
    }
    if reconciler.node().is_none() {
        // Nothing is applied to a Node that does not exist: that the last apply was refused is over.
        api.record_answer(APPLY, name, None);
    }
}

/// Passes the Node on to the rest of the agent.
fn show(reconciler: &Reconciler, api: &ApiConnection) {
    api.facts.send_if_modified(|facts| {
        let differs = facts.node.as_ref() != reconciler.node();
        if differs {
            facts.node = reconciler.node().cloned();
        }
        differs
    });
}

/// Waits until the value changes; for ever if its sender is gone.
pub async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::{
        condition::{Published, Status},
        host::{
            api::{ApiFacts, RequestCounts},
            trouble::Troubles,
        },
        settings::TaintSettings,
    };

    fn json_body(value: &serde_json::Value) -> Body {
        Body::from(value.to_string().into_bytes())
    }

    /// An API server with one Node, whose watch never has news; it hands out what is applied.
    fn server(applied: mpsc::UnboundedSender<(String, serde_json::Value)>) -> Client {
        let metadata = json!({"name": "n1", "uid": "u1", "resourceVersion": "7"});
        let service = service_fn(move |request: Request<Body>| {
            let (applied, metadata) = (applied.clone(), metadata.clone());
            async move {
                let uri = request.uri().to_string();
                let answer = if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await?;
                    let mut node: serde_json::Value = serde_json::from_slice(&body)?;
                    applied.send((uri, node.clone()))?;
                    node["metadata"] = metadata;
                    node
                } else if uri.contains("watch=true") {
                    std::future::pending().await
                } else {
                    let list_metadata = json!({"resourceVersion": "7"});
                    json!({"kind": "NodeList", "apiVersion": "v1", "metadata": list_metadata, "items": [{"metadata": metadata}]})
                };
                Ok::<_, BoxError>(Response::new(json_body(&answer)))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_desired_condition_is_applied_by_force_to_the_nodes_status() {
        let (facts, shown) = watch::channel(ApiFacts::default());
        let api = ApiConnection::new(facts, RequestCounts::default(), Troubles::default());
        let (sender, mut applied) = mpsc::unbounded_channel();
        let (name, status, reason) = ("KubeletHealthy", Status::False, "KubeletCrashed".to_owned());
        let published = vec![Published { name, status, reason, message: "it ended".into(), flips: 0 }];
        let (_engine, mut desired) =
            watch::channel(Desired { node_uid: Some("u1".into()), published, ..Desired::default() });
        let client = api.wrap(server(sender));
        let mut reconciler = Reconciler::new(TaintSettings::default());
        let (uri, node) = tokio::select! {
            _ = publish_conditions(client, "n1", &api, &mut reconciler, &mut desired) => unreachable!(),
            applied = applied.recv() => applied.unwrap(),
        };
        assert!(uri.starts_with("/api/v1/nodes/n1/status?"), "{uri}");
        assert!(uri.contains("force=true") && uri.contains("fieldManager=nodevigil"), "{uri}");
        assert_eq!(node["metadata"], json!({"name": "n1", "uid": "u1", "resourceVersion": "7"}), "preconditions");
        assert_eq!((&node["apiVersion"], &node["kind"]), (&json!("v1"), &json!("Node")));
        let condition = &node["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["message"]), (&json!("False"), &json!("it ended")));
        assert!(condition["lastTransitionTime"].as_str().unwrap().ends_with('Z'), "{condition}");
        assert_eq!(shown.borrow().node.as_ref().unwrap().uid, "u1");
    }
}
