//! The removal of nodevigil's conditions and taints, from one Node or from all.

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};

use crate::host::kubelet::KubeletFacts;
use crate::publish::{FIELD_MANAGER, ObservedNode, connect_once, describe, is_our_taint, taints_patch};
use crate::settings::KubernetesSettings;

/// How many Nodes are listed at a time: an answer has a largest size.
const PAGE: u32 = 100;

/// What was removed from the Node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Condition types.
    pub conditions: Vec<String>,
    /// Keys of taints.
    pub taints: Vec<String>,
}

/// Removes nodevigil's conditions and taints, and returns the Node's name; nothing removed if there is no such Node. Conditions that another field manager owns too stay.
///
/// # Errors
/// When there is no identity, or the API server does not answer or refuses it. The conditions may be removed by then.
pub async fn cleanup(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<(String, Option<Removed>)> {
    let session = connect_once(settings, kubelet).await?;
    let nodes = Api::<Node>::all(session.client);
    let removed = remove(&nodes, &session.node_name).await;
    let removed = removed.with_context(|| format!("Node {}, with {}", session.node_name, session.source))?;
    Ok((session.node_name, removed))
}

/// Removes nodevigil's conditions and taints from every Node; returns the Nodes that had any.
///
/// # Errors
/// The first error of a Node; the other Nodes are cleaned up all the same.
pub async fn cleanup_all(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Vec<(String, Removed)>> {
    let session = connect_once(settings, kubelet).await?;
    remove_all(&Api::all(session.client)).await.with_context(|| session.source.to_string())
}

async fn remove_all(nodes: &Api<Node>) -> Result<Vec<(String, Removed)>> {
    let (mut found, mut first_error, mut names, mut page) =
        (Vec::new(), None, Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let listed = nodes.list_metadata(&page).await.map_err(|error| failed("list the Nodes", &error))?;
        names.extend(listed.iter().map(ResourceExt::name_any));
        let Some(next) = listed.metadata.continue_.filter(|next| !next.is_empty()) else { break };
        page = page.continue_token(&next);
    }
    for name in names {
        match remove(nodes, &name).await.with_context(|| format!("Node {name}")) {
            Ok(removed) => {
                let removed = removed.filter(|removed| *removed != Removed::default());
                found.extend(removed.map(|removed| (name, removed)));
            }
            // The other Nodes are cleaned up all the same.
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(found), Err)
}

async fn remove(nodes: &Api<Node>, name: &str) -> Result<Option<Removed>> {
    let Some(before) = read(nodes, name).await? else { return Ok(None) };
    // The API server deletes what our field manager owns and this apply leaves out.
    let (name, uid) = (Some(name.to_owned()), Some(before.facts.uid.clone()));
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
    Ok(Some(Removed { conditions, taints: remove_taints(nodes, &after.facts.name).await? }))
}

async fn read(nodes: &Api<Node>, name: &str) -> Result<Option<ObservedNode>> {
    let node = nodes.get_opt(name).await.map_err(|error| failed("read it", &error))?;
    Ok(node.and_then(ObservedNode::read))
}

fn failed(what: &str, error: &kube::Error) -> anyhow::Error {
    anyhow!("cannot {what}: {}", describe(error))
}

/// Removes nodevigil's taints and returns their keys. Retries if another client writes the Node meanwhile.
async fn remove_taints(nodes: &Api<Node>, name: &str) -> Result<Vec<String>> {
    loop {
        let Some(node) = read(nodes, name).await? else { return Ok(Vec::new()) };
        let (ours, others): (Vec<_>, Vec<_>) = node.taints.iter().cloned().partition(is_our_taint);
        let keys: Vec<_> = ours.into_iter().map(|taint| taint.key).collect();
        if keys.is_empty() {
            return Ok(keys);
        }
        match nodes.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(taints_patch(&node, &others))).await {
            Ok(_) => return Ok(keys),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                let (why, keys) = (failed("remove the taints", &error), keys.join("- "));
                return Err(anyhow!("{why}; as an administrator: kubectl taint node {name} {keys}-"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

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
        remove(&Api::all(Client::new(service, "default")), "n1").await
    }

    #[tokio::test]
    async fn what_is_ours_is_removed_from_every_node() {
        let service = service_fn(|request: Request<Body>| async move {
            let condition = json!({"type": "KubeletHealthy", "status": "False"});
            let node = |name: &str, conditions: &[&Value]| {
                let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
                json!({"metadata": metadata, "status": {"conditions": conditions}})
            };
            let (is_read, path) = (request.method() == Method::GET, request.uri().path().to_owned());
            let answer = match path.trim_start_matches("/api/v1/nodes").trim_end_matches("/status") {
                "" if request.uri().query().is_some_and(|query| query.contains("continue=more")) => {
                    json!({"metadata": {}, "items": [node("broken", &[])]})
                }
                "" => json!({"metadata": {"continue": "more"}, "items": [node("other", &[])]}),
                "/broken" if is_read => node("broken", &[&condition]),
                name => node(name.trim_start_matches('/'), &[]),
            };
            Ok::<_, BoxError>(Response::new(Body::from(answer.to_string().into_bytes())))
        });
        let found = remove_all(&Api::all(Client::new(service, "default"))).await.unwrap();
        let conditions = vec!["KubeletHealthy".to_owned()];
        assert_eq!(found, [("broken".to_owned(), Removed { conditions, taints: Vec::new() })]);
    }

    #[tokio::test]
    async fn taints_are_removed_though_others_write_the_node_meanwhile() {
        let removed = remove_while_others_write(4, 200).await.unwrap().unwrap();
        assert_eq!(removed.taints, [format!("{TAINT_PREFIX}a")]);
        let error = remove_while_others_write(1, 403).await.unwrap_err().to_string();
        assert!(error.contains("403") && error.contains("kubectl taint node n1"), "{error}");
    }
}
