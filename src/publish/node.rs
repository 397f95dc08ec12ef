//! Watches our own Node and writes its conditions and taints, one request after the other.

use std::convert::Infallible;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use tokio::sync::watch;

use super::clock::sleep_until;
use super::conditions::Reconciler;
use super::connection::{ANSWERS_READS, ApiConnection, Failure, MAX_FAILED_WRITES, WATCH, describe};
use super::observed::{FIELD_MANAGER, ObservedNode};
use super::pacing::Backoff;
use super::step::{Request, Step};
use crate::condition::{Desired, Uptime};
use crate::host::clock::uptime;
use crate::trouble::Trouble;

/// How applies are named if the API server refuses them.
const APPLY: &str = "apply conditions";
/// The longest time between two attempts to watch.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// A Node that does not exist is read again after this time: the watch alone may be minutes late when it fails as well.
const READ_MISSING_EVERY: Duration = Duration::from_secs(15);
/// A Node that is missing for this long is a trouble. A kubelet that joins registers its Node within seconds.
const MISSING_FOR: Duration = Duration::from_secs(30);

/// The Node of one name, with one client.
struct NodePublisher<'a> {
    nodes: Api<Node>,
    name: &'a str,
    api: &'a ApiConnection,
    reconciler: &'a mut Reconciler,
    watched: BoxStream<'static, watcher::Result<Option<Node>>>,
    watching: Backoff,
    failed_writes: u32,
    /// Since when the Node does not exist, and when it is read again.
    missing: Option<(Uptime, Uptime)>,
}

/// Publishes conditions and taints on the Node of that name until it is dropped.
pub async fn publish_conditions(
    client: Client,
    name: &str,
    api: &ApiConnection,
    reconciler: &mut Reconciler,
    desired: &mut watch::Receiver<Desired>,
) -> Infallible {
    let mut node = NodePublisher::new(client, name, api, reconciler);
    loop {
        // Events that have arrived come first: the next request should not be based on an older Node.
        while let Some(Some(event)) = node.watched.next().now_or_never() {
            node.take_in(event);
        }
        let wanted = desired.borrow_and_update().clone();
        api.set_urgent(node.reconciler.is_urgent(&wanted));
        let step = node.step(&wanted);
        node.show();
        match step {
            Step::Send(request) => node.send(request).await,
            Step::WaitUntil(until) => tokio::select! {
                () = changed(desired) => {}
                Some(event) = node.watched.next() => node.take_in(event),
                () = api.wait(until) => {}
                // A request of another loop has failed. The Node is read then, until the API server answers again.
                () = api.unreached(), if !api.is_unreached() => {}
            },
        }
    }
}

impl<'a> NodePublisher<'a> {
    fn new(client: Client, name: &'a str, api: &'a ApiConnection, reconciler: &'a mut Reconciler) -> Self {
        let (nodes, watching) = (Api::all(client), Backoff::new(LONGEST_DELAY));
        let watched = stream::pending().boxed();
        let mut new = Self { nodes, name, api, reconciler, watched, watching, failed_writes: 0, missing: None };
        new.watch(Uptime::ZERO);
        new
    }

    /// Watches the Node from then on, first by a list: where etcd was restored, a watch that is resumed at a later version would be silent.
    fn watch(&mut self, from: Uptime) {
        let (nodes, name) = (self.nodes.clone(), self.name.to_owned());
        let watch = async move {
            sleep_until(from).await;
            watch_object(nodes, &name)
        };
        self.watched = watch.flatten_stream().boxed();
    }

    fn step(&mut self, wanted: &Desired) -> Step {
        let (now, read_at) = (self.api.now(), self.missing.map_or(Uptime::MAX, |(_, again)| again));
        match self.api.closed_until() {
            Some(until) => Step::WaitUntil(until),
            // The request that failed may have been the last one, and then nothing else would show that it answers again.
            None if self.api.is_unreached() || now.uptime >= read_at => Step::Send(Request::Read),
            None => self.reconciler.step(wanted, now).or_after(read_at),
        }
    }

    async fn send(&mut self, request: Request) {
        let (nodes, ours) = (&self.nodes, PatchParams::apply(FIELD_MANAGER));
        let (title, answer) = match &request {
            Request::Read => ("read the Node", nodes.get_opt(self.name).await),
            Request::Apply(node) => {
                let answer = nodes.patch_status(self.name, &ours.force(), &Patch::Apply(node)).await;
                (APPLY, answer.map(Some))
            }
            Request::Taint(patch) => {
                ("change taints", nodes.patch(self.name, &ours, &Patch::Merge(patch)).await.map(Some))
            }
        };
        let error = answer.as_ref().err();
        if let Some(error) = error.filter(|error| Failure::of(error) == Failure::Refused)
            && self.reconciler.refused(&request, &describe(error), self.api.now())
        {
            return;
        }
        self.failed_writes = failures(self.failed_writes, &request, error.map(Failure::of));
        self.api.record_answer(title, self.name, error);
        if self.failed_writes >= MAX_FAILED_WRITES && !matches!(request, Request::Read) {
            self.api.record_refusal(title, self.name, error.map(|error| (error, ANSWERS_READS)));
        }
        if matches!((&request, &answer), (Request::Read, Err(kube::Error::Service(_)))) {
            // Packets are lost: what the watch has not delivered yet would come minutes after the end of the outage.
            self.watch(Uptime::ZERO);
        }
        let answer = answer.map(|node| node.and_then(ObservedNode::read)).map_err(|error| Failure::of(&error));
        match &answer {
            Ok(node) => self.saw(node.is_some(), uptime()),
            Err(_) => self.missing = self.missing.map(|(since, _)| (since, uptime() + READ_MISSING_EVERY)),
        }
        self.reconciler.answered(&request, answer, self.api.now());
    }

    fn take_in(&mut self, event: watcher::Result<Option<Node>>) {
        match event {
            Ok(node) => {
                let node = node.and_then(ObservedNode::read);
                self.saw(node.is_some(), uptime());
                self.reconciler.watched(node, self.api.now());
            }
            Err(error) => {
                let mut is_denied = false;
                if let watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) = error {
                    self.api.record_answer(WATCH, self.name, Some(&error));
                    is_denied = Failure::of(&error) == Failure::Refused;
                } else {
                    self.api.watch_ended(redact::sanitize_line(&format!("the watch has ended: {error}"), 300));
                }
                if is_denied {
                    self.watching.denied(uptime());
                } else {
                    self.watching.failed(uptime(), Duration::ZERO);
                }
                self.watch(self.watching.until(uptime()).unwrap_or_default());
            }
        }
    }

    /// Takes in whether the Node exists.
    fn saw(&mut self, exists: bool, now: Uptime) {
        if exists {
            self.missing = None;
            return self.api.troubles.clear(Trouble::NodeMissing);
        }
        let since = self.missing.map_or(now, |(since, _)| since);
        self.missing = Some((since, now + READ_MISSING_EVERY));
        if now >= since + MISSING_FOR {
            let message = format!(
                "there is no Node {0}, so nothing is published: if the Node of this host has another name, set [kubernetes] node_name; \
                 if {0} is right, its kubelet has not registered it (nodevigil bootstrap)",
                self.name
            );
            self.api.troubles.set(Trouble::NodeMissing, message);
        }
    }

    /// Passes the Node on to the rest of the agent.
    fn show(&self) {
        self.api.troubles.replace(Trouble::ForeignOwner, self.reconciler.foreign_owners());
        self.api.troubles.replace(Trouble::CheckRefused, self.reconciler.refused_types());
        let node = self.reconciler.node();
        if node.is_none() {
            // Nothing is applied to a Node that does not exist: that the last apply was refused is over.
            self.api.record_answer(APPLY, self.name, None);
        }
        self.api.facts.send_if_modified(|facts| {
            let differs = facts.node.as_ref() != node;
            if differs {
                let gone = facts.node.take().filter(|gone| node.is_none_or(|node| node.uid != gone.uid));
                facts.former = gone.map(|gone| (gone.uid, uptime())).or(facts.former.take());
                facts.node = node.cloned();
            }
            differs
        });
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

/// Waits until the value changes; for ever if its sender is gone.
pub async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Method, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio::time::timeout;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::condition::{Published, Status};
    use crate::facts::{ApiFacts, Reach, RequestCounts};
    use crate::settings::{KubernetesSettings, TaintSettings};
    use crate::trouble::Troubles;

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
        let published = vec![Published { name, status, reason, message: "it ended".into(), since: uptime() }];
        let (_engine, mut desired) =
            watch::channel(Desired { node_uid: Some("u1".into()), published, ..Desired::default() });
        let client = api.wrap(server(sender));
        let mut reconciler = Reconciler::new(&TaintSettings::default(), KubernetesSettings::default().names());
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
        let mut reconciler = Reconciler::new(&TaintSettings::default(), KubernetesSettings::default().names());
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

    #[tokio::test]
    async fn a_node_that_does_not_exist_is_read_again_and_is_a_trouble_after_half_a_minute() {
        let troubles = Troubles::default();
        let api =
            ApiConnection::new(watch::Sender::new(ApiFacts::default()), RequestCounts::default(), troubles.clone());
        let mut reconciler = Reconciler::new(&TaintSettings::default(), KubernetesSettings::default().names());
        let mut node = NodePublisher::new(server(mpsc::unbounded_channel().0), "n1", &api, &mut reconciler);
        let (now, secs) = (uptime(), Duration::from_secs);
        node.saw(false, now);
        node.saw(false, now + secs(29));
        assert!(troubles.present().is_empty(), "the kubelet may be joining: {:?}", troubles.present());
        assert!(matches!(node.step(&Desired::default()), Step::WaitUntil(until) if until == now + secs(44)));
        node.saw(false, now - READ_MISSING_EVERY);
        assert!(matches!(node.step(&Desired::default()), Step::Send(Request::Read)), "the watch may be silent");
        node.saw(false, now + secs(30));
        let message = troubles.present()[&Trouble::NodeMissing].clone();
        assert!(message.contains("no Node n1") && message.contains("[kubernetes] node_name"), "{message}");
        node.saw(true, now + secs(31));
        assert!(troubles.present().is_empty() && node.missing.is_none());
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
