//! The removal of nodevigil's conditions and taints, from one Node or from all.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use tokio::time::sleep;

use crate::publish::{FIELD_MANAGER, ObservedNode, describe, is_our_taint, taints_patch};

/// How many Nodes are listed at a time. A Node may have 100 KiB, and an answer has a largest size.
const PAGE: u32 = 25;
/// How many Nodes are written at a time.
const PARALLEL: usize = 16;
const REPORT_EVERY: usize = 100;
/// What the API server has refused because it is busy.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What was removed from the Node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Condition types.
    pub conditions: Vec<String>,
    /// Keys of taints.
    pub taints: Vec<String>,
}

/// Removes nodevigil's conditions and taints from the Node of that name; none if there is no such Node. Conditions that another field manager
/// owns too stay. After an error the conditions may be removed and the taints not.
pub async fn from_one(nodes: &Api<Node>, name: &str) -> Result<Option<Removed>> {
    match read(nodes, name).await? {
        Some(node) => remove(nodes, node).await,
        None => Ok(None),
    }
}

/// How far the removal from all Nodes is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RemovalProgress {
    /// Nodes that were looked at.
    pub seen: usize,
    /// Those from which something was removed, and from which something could not be removed.
    pub cleaned: usize,
    pub failed: usize,
}

impl fmt::Display for RemovalProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, cleaned, failed } = self;
        write!(f, "{seen} Nodes looked at, {cleaned} cleaned up")?;
        if *failed > 0 { write!(f, ", {failed} failed") } else { Ok(()) }
    }
}

/// Removes nodevigil's conditions and taints from every Node that has some; `removed` is told of each, `progress` now and then. Goes through
/// the Nodes until nothing is left on them, or a whole pass removes nothing. Returns the first error of that pass: the other Nodes are
/// cleaned up all the same.
pub async fn from_all(
    nodes: &Api<Node>,
    mut removed: impl FnMut(&str, &Removed),
    mut progress: impl FnMut(&RemovalProgress),
) -> Result<()> {
    loop {
        let (mut pass, mut first_error, mut page) =
            (RemovalProgress::default(), None, ListParams::default().limit(PAGE));
        loop {
            let listed = match nodes.list(&page).await {
                Ok(listed) => listed,
                Err(error) => {
                    first_error = first_error.or(Some(failed("list the Nodes", &error)));
                    break;
                }
            };
            let next = listed.metadata.continue_.filter(|next| !next.is_empty());
            let before = pass.seen;
            pass.seen += listed.items.len();
            let marked = listed.items.into_iter().filter_map(ObservedNode::read).filter(ObservedNode::has_ours);
            let mut removals = stream::iter(marked).map(|node| remove_from(nodes, node)).buffer_unordered(PARALLEL);
            while let Some((name, answer)) = removals.next().await {
                match answer {
                    Ok(None) => {}
                    Ok(Some(of_node)) => {
                        pass.cleaned += 1;
                        removed(&name, &of_node);
                    }
                    Err(error) => {
                        pass.failed += 1;
                        first_error = first_error.or(Some(error.context(format!("Node {name}"))));
                    }
                }
            }
            if next.is_none() || before / REPORT_EVERY < pass.seen / REPORT_EVERY {
                progress(&pass);
            }
            let Some(next) = next else { break };
            page = page.continue_token(&next);
        }
        match first_error {
            None => return Ok(()),
            Some(error) if pass.cleaned == 0 => return Err(error),
            Some(_) => sleep(TRY_AGAIN_AFTER).await,
        }
    }
}

async fn remove_from(nodes: &Api<Node>, node: ObservedNode) -> (String, Result<Option<Removed>>) {
    (node.facts.name.clone(), remove(nodes, node).await)
}

async fn remove(nodes: &Api<Node>, before: ObservedNode) -> Result<Option<Removed>> {
    // The API server deletes what our field manager owns and this apply leaves out.
    let (name, uid) = (Some(before.facts.name.clone()), Some(before.facts.uid.clone()));
    let nothing = Node { metadata: ObjectMeta { name, uid, ..ObjectMeta::default() }, ..Node::default() };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let after = match nodes.patch_status(&before.facts.name, &parameters, &Patch::Apply(nothing)).await {
        // The Node was deleted meanwhile, or created again.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(None),
        after => after.map_err(|error| failed("remove the conditions", &error))?,
    };
    let Some(after) = ObservedNode::read(after) else { return Ok(None) };
    let gone = before.facts.conditions.into_iter().filter(|condition| after.facts.condition(&condition.kind).is_none());
    let conditions = gone.map(|condition| condition.kind).collect();
    Ok(Some(Removed { conditions, taints: remove_taints(nodes, after).await? }))
}

async fn read(nodes: &Api<Node>, name: &str) -> Result<Option<ObservedNode>> {
    let node = nodes.get_opt(name).await.map_err(|error| failed("read it", &error))?;
    Ok(node.and_then(ObservedNode::read))
}

fn failed(what: &str, error: &kube::Error) -> anyhow::Error {
    anyhow!("cannot {what}: {}", describe(error))
}

/// Removes nodevigil's taints and returns their keys. Retries if another client writes the Node meanwhile.
async fn remove_taints(nodes: &Api<Node>, mut node: ObservedNode) -> Result<Vec<String>> {
    loop {
        let (ours, others): (Vec<_>, Vec<_>) = node.taints.iter().cloned().partition(is_our_taint);
        let keys: Vec<_> = ours.into_iter().map(|taint| taint.key).collect();
        if keys.is_empty() {
            return Ok(keys);
        }
        let (name, patch) = (&node.facts.name, Patch::Merge(taints_patch(&node, &others)));
        match nodes.patch(name, &PatchParams::apply(FIELD_MANAGER), &patch).await {
            Ok(_) => return Ok(keys),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let Some(now) = read(nodes, name).await? else { return Ok(Vec::new()) };
                node = now;
            }
            Err(error) => {
                let (why, keys) = (failed("remove the taints", &error), keys.join("- "));
                return Err(anyhow!("{why}; as an administrator: kubectl taint node {name} {keys}-"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Mutex};

    use hyper::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::publish::TAINT_PREFIX;

    /// Removes what is ours from a Node that others write so many times, each between our reading and our writing; then the answer to our
    /// write has this HTTP status.
    async fn remove_while_others_write(times: u32, status: u16) -> Result<Option<Removed>> {
        let writes = AtomicU32::new(0);
        let service = service_fn(move |request: Request<Body>| {
            let written = writes.load(Relaxed);
            let other = json!({"key": format!("other-{written}"), "effect": "NoSchedule"});
            let ours = json!({"key": format!("{TAINT_PREFIX}a"), "effect": "NoSchedule"});
            let node = json!({
                "metadata": {"name": "n1", "uid": "u1", "resourceVersion": written.to_string()},
                "spec": {"taints": [ours, &other]},
            });
            let is_taint_patch = *request.method() == Method::PATCH && !request.uri().path().ends_with("/status");
            writes.fetch_add(u32::from(is_taint_patch), Relaxed);
            async move {
                let mut answer = Response::new(Body::from(node.to_string().into_bytes()));
                let code = if written < times { 409 } else { status };
                if is_taint_patch && code >= 400 {
                    let refusal = json!({"kind": "Status", "status": "Failure", "code": code});
                    answer = Response::new(Body::from(refusal.to_string().into_bytes()));
                    *answer.status_mut() = hyper::StatusCode::from_u16(code)?;
                } else if is_taint_patch {
                    let patch: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
                    assert_eq!(patch["metadata"]["resourceVersion"], written.to_string());
                    assert_eq!(patch["spec"]["taints"], json!([other]), "what others have set meanwhile stays");
                }
                Ok::<_, BoxError>(answer)
            }
        });
        let nodes = Api::all(Client::new(service, "default"));
        from_one(&nodes, "n1").await
    }

    /// Sixty Nodes, of which the API server lists forty at a time. `busy` of them are refused at first, with this HTTP status.
    struct Cluster {
        nodes: BTreeMap<String, bool>,
        busy: usize,
        status: u16,
        writing: usize,
        most_at_a_time: usize,
        writes: usize,
    }

    impl Cluster {
        fn new(busy: usize, status: u16) -> Arc<Mutex<Self>> {
            let nodes = (0..60).map(|number| (format!("n{number:02}"), number % 2 == 0)).collect();
            Arc::new(Mutex::new(Self { nodes, busy, status, writing: 0, most_at_a_time: 0, writes: 0 }))
        }

        fn node(&self, name: &str) -> Value {
            let managed_fields = json!([{"manager": "nodevigil", "operation": "Apply", "subresource": "status"}]);
            let (fields, conditions) = if self.nodes[name] {
                (managed_fields, json!([{"type": "KubeletHealthy", "status": "False"}]))
            } else {
                (json!([{"manager": "nodevigil", "operation": "Update"}]), json!([]))
            };
            let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "managedFields": fields});
            json!({"metadata": metadata, "status": {"conditions": conditions}})
        }

        fn list(&self, query: &str) -> Value {
            let from = query.split_once("continue=").map_or("", |(_, from)| from.split('&').next().unwrap());
            let mut names = self.nodes.keys().filter(|name| name.as_str() >= from);
            let items: Vec<_> = names.by_ref().take(40).map(|name| self.node(name)).collect();
            json!({"metadata": {"continue": names.next()}, "items": items})
        }
    }

    async fn answer(cluster: Arc<Mutex<Cluster>>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let response = |value: &Value| Response::new(Body::from(value.to_string().into_bytes()));
        let Some(name) = request.uri().path().strip_prefix("/api/v1/nodes/").map(|path| path.replace("/status", ""))
        else {
            return Ok(response(&cluster.lock().unwrap().list(request.uri().query().unwrap_or_default())));
        };
        assert_eq!(request.method(), Method::PATCH, "a Node of the list is not read again");
        let is_refused = {
            let mut cluster = cluster.lock().unwrap();
            cluster.writing += 1;
            cluster.writes += 1;
            cluster.most_at_a_time = cluster.most_at_a_time.max(cluster.writing);
            let is_refused = cluster.busy > 0;
            cluster.busy = cluster.busy.saturating_sub(1);
            is_refused
        };
        tokio::task::yield_now().await;
        let mut cluster = cluster.lock().unwrap();
        cluster.writing -= 1;
        if is_refused {
            let code = cluster.status;
            let mut refused = response(&json!({"kind": "Status", "status": "Failure", "code": code}));
            *refused.status_mut() = hyper::StatusCode::from_u16(code)?;
            return Ok(refused);
        }
        cluster.nodes.insert(name.clone(), false);
        Ok(response(&cluster.node(&name)))
    }

    /// Removes what is ours from all Nodes; from how many, and the last progress.
    async fn remove_from_all(cluster: &Arc<Mutex<Cluster>>) -> (Result<()>, usize, RemovalProgress) {
        let (mut cleaned, mut last, served) = (0, RemovalProgress::default(), cluster.clone());
        let service = service_fn(move |request| answer(served.clone(), request));
        let removed = |_: &str, removed: &Removed| cleaned += usize::from(removed.conditions == ["KubeletHealthy"]);
        let progress = |&RemovalProgress { seen, cleaned, failed }: &RemovalProgress| {
            last = RemovalProgress { seen, cleaned, failed }
        };
        let result = from_all(&Api::all(Client::new(service, "default")), removed, progress).await;
        (result, cleaned, last)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ours_is_removed_from_every_node_that_has_some_and_a_second_run_writes_nothing() {
        let cluster = Cluster::new(0, 0);
        let (result, cleaned, last) = remove_from_all(&cluster).await;
        assert_eq!((result.unwrap(), cleaned, last), ((), 30, RemovalProgress { seen: 60, cleaned: 30, failed: 0 }));
        let most = cluster.lock().unwrap().most_at_a_time;
        assert!((2..=PARALLEL).contains(&most), "{most} at a time");
        assert_eq!(remove_from_all(&cluster).await.1, 0);
        assert_eq!(cluster.lock().unwrap().writes, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_write_fails_is_tried_again_and_holds_up_no_other() {
        let cluster = Cluster::new(5, 429);
        let (result, cleaned, last) = remove_from_all(&cluster).await;
        assert_eq!((result.unwrap(), cleaned, last), ((), 30, RemovalProgress { seen: 60, cleaned: 5, failed: 0 }));
        let cluster = Cluster::new(usize::MAX, 403);
        let error = format!("{:#}", remove_from_all(&cluster).await.0.unwrap_err());
        assert!(error.starts_with("Node n") && error.contains("403"), "{error}");
        assert_eq!(cluster.lock().unwrap().writes, 30, "for a refusal of all there is no second pass");
    }

    #[tokio::test]
    async fn taints_are_removed_though_others_write_the_node_meanwhile() {
        let removed = remove_while_others_write(4, 200).await.unwrap().unwrap();
        assert_eq!(removed.taints, [format!("{TAINT_PREFIX}a")]);
        let error = remove_while_others_write(1, 403).await.unwrap_err().to_string();
        assert!(error.contains("403") && error.contains("kubectl taint node n1"), "{error}");
    }
}
