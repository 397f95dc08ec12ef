//! Watches our own Node and writes its conditions and taints, one request after the other.

use std::convert::Infallible;
use std::pin::pin;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use tokio::sync::watch;

use super::conditions::{Reconciler, Request};
use super::connection::{ApiConnection, Failure, WATCH};
use super::observed::{FIELD_MANAGER, ObservedNode};
use crate::condition::Desired;
use crate::host::trouble::Trouble;

/// How applies are named if the API server refuses them.
const APPLY: &str = "apply conditions";
/// So many writes in succession without an answer are a trouble, if reads are answered.
const MAX_FAILED_WRITES: u32 = 5;

/// Publishes conditions and taints on the Node of that name until it is dropped.
pub async fn publish_conditions(
    client: Client,
    name: &str,
    api: &ApiConnection,
    reconciler: &mut Reconciler,
    desired: &mut watch::Receiver<Desired>,
) -> Infallible {
    let nodes = Api::<Node>::all(client);
    let ours = PatchParams::apply(FIELD_MANAGER);
    let watch = || watch_object(nodes.clone(), name).default_backoff();
    let (mut watched, mut failed_writes) = (pin!(watch()), 0);
    loop {
        // Events that have arrived come first: the next request should not be based on an older Node.
        while let Some(Some(event)) = watched.next().now_or_never() {
            take_in(event, name, reconciler, api);
        }
        let wanted = desired.borrow_and_update().clone();
        let step = match api.closed_until() {
            Some(until) => Err(until),
            // The request that failed may have been the last one, and then nothing else would show that it answers again.
            None if api.is_unreached() => Ok(Request::Read),
            None => reconciler.step(&wanted, api.now()),
        };
        show(reconciler, name, api);
        let request = match step {
            Ok(request) => request,
            Err(until) => {
                tokio::select! {
                    () = changed(desired) => {}
                    Some(event) = watched.next() => take_in(event, name, reconciler, api),
                    () = api.wait(until) => {}
                    // A request of another loop has failed. The Node is read then, until the API server answers again.
                    () = api.unreached(), if !api.is_unreached() => {}
                }
                continue;
            }
        };
        let (title, answer) = match &request {
            Request::Read => ("read the Node", nodes.get_opt(name).await),
            Request::Apply(node) => {
                let ours = ours.clone().force();
                (APPLY, nodes.patch_status(name, &ours, &Patch::Apply(node)).await.map(Some))
            }
            Request::Taint(patch) => ("change taints", nodes.patch(name, &ours, &Patch::Merge(patch)).await.map(Some)),
        };
        let error = answer.as_ref().err();
        failed_writes = failures(failed_writes, &request, error.map(Failure::of));
        api.record_answer(title, name, error);
        if failed_writes >= MAX_FAILED_WRITES && !matches!(request, Request::Read) {
            let advice = "it answers reads: check its webhooks and the free space of etcd";
            api.record_refusal(title, name, error.map(|error| (error, advice)));
        }
        if matches!((&request, &answer), (Request::Read, Err(kube::Error::Service(_)))) {
            // Packets are lost: what the watch has not delivered yet would come minutes after the end of the outage.
            watched.set(watch());
        }
        let answer = answer.map(|node| node.and_then(ObservedNode::read)).map_err(|error| Failure::of(&error));
        reconciler.answered(&request, answer, api.now());
    }
}

/// How many writes in succession have not been answered. Between two of them the API server has answered a read: this is no outage.
fn failures(before: u32, request: &Request, failure: Option<Failure>) -> u32 {
    match (request, failure) {
        (Request::Read, _) => before,
        (_, Some(Failure::Unanswered)) => before + 1,
        _ => 0,
    }
}

fn take_in(event: watcher::Result<Option<Node>>, name: &str, reconciler: &mut Reconciler, api: &ApiConnection) {
    match event {
        Ok(node) => reconciler.watched(node.and_then(ObservedNode::read), api.now()),
        // The stream retries.
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            api.record_answer(WATCH, name, Some(&error));
        }
        Err(_) => {}
    }
}

/// Passes the Node on to the rest of the agent.
fn show(reconciler: &Reconciler, name: &str, api: &ApiConnection) {
    match reconciler.foreign_owners() {
        Some(message) => api.troubles.set(Trouble::ForeignOwner, message),
        None => api.troubles.clear(Trouble::ForeignOwner),
    }
    if reconciler.node().is_none() {
        // Nothing is applied to a Node that does not exist: that the last apply was refused is over.
        api.record_answer(APPLY, name, None);
    }
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
    use std::time::Duration;

    use hyper::{Method, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio::time::timeout;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::condition::{Published, Status, Uptime};
    use crate::host::api::{ApiFacts, Reach, RequestCounts};
    use crate::host::trouble::Troubles;
    use crate::settings::TaintSettings;

    fn json_body(value: &serde_json::Value) -> Body {
        Body::from(value.to_string().into_bytes())
    }

    /// An API server with one Node, whose watch never has events; it records what is applied.
    fn server(applied: mpsc::UnboundedSender<(String, serde_json::Value)>) -> Client {
        let metadata = json!({"name": "n1", "uid": "u1", "resourceVersion": "7"});
        let service = service_fn(move |request: hyper::Request<Body>| {
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

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_request_the_node_is_read_until_the_api_server_answers() {
        // The list before a watch is never answered.
        let service = service_fn(|request: hyper::Request<Body>| async move {
            if !request.uri().path().ends_with("/nodes/n1") {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(Response::new(json_body(&json!({"metadata": {"name": "n1", "uid": "u1"}}))))
        });
        let (facts, mut shown) = watch::channel(ApiFacts::default());
        let api = ApiConnection::new(facts, RequestCounts::default(), Troubles::default());
        let client = api.wrap(Client::new(service, "default"));
        let (_engine, mut desired) = watch::channel(Desired::default());
        let mut reconciler = Reconciler::new(TaintSettings::default());
        let is_reached = |facts: &ApiFacts| matches!(facts.reach, Reach::Reached { .. }) && facts.node.is_some();
        let test = async {
            // Before the first request, and while nothing is to be sent.
            for _ in 0..2 {
                api.set_reach(Reach::Unreached { since: Uptime::ZERO, error: "no answer".into() });
                timeout(Duration::from_secs(5), shown.wait_for(is_reached)).await.unwrap().unwrap();
            }
        };
        tokio::select! {
            _ = publish_conditions(client, "n1", &api, &mut reconciler, &mut desired) => unreachable!(),
            () = test => {}
        }
    }

    #[test]
    fn writes_that_fail_while_reads_succeed_are_counted_until_one_is_answered() {
        let apply = Request::Apply(Box::default());
        let count = |before, (request, failure): (&Request, _)| failures(before, request, failure);
        let failed = [(&apply, Some(Failure::Unanswered)), (&Request::Read, None)];
        assert_eq!(failed.into_iter().cycle().take(20).fold(0, count), 10);
        assert_eq!(failures(10, &Request::Taint(json!({})), None), 0);
    }
}
