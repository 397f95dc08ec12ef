//! Removes everything of nodevigil's from the Node, for `nodevigil cleanup`.

use anyhow::{Context, Result, anyhow};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{Patch, PatchParams},
};

use super::{
    connection::{Failure, describe},
    observed::{FIELD_MANAGER, ObservedNode},
    session::connect_once,
    taints,
};
use crate::{host::kubelet::KubeletFacts, settings::KubernetesSettings};

/// How often the taints are tried to be removed while others write the Node.
const ATTEMPTS: u32 = 5;

/// What was removed from the Node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Condition types.
    pub conditions: Vec<String>,
    /// Keys of taints.
    pub taints: Vec<String>,
}

/// Removes nodevigil's conditions and taints; none if there is no such Node. Conditions that another field manager owns too stay.
///
/// # Errors
/// When there is no identity, or the API server does not answer or refuses it. The conditions may be removed by then.
pub async fn cleanup(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Option<Removed>> {
    let session = connect_once(settings, kubelet).await?;
    let nodes = Api::<Node>::all(session.client);
    remove(&nodes, &session.node_name)
        .await
        .with_context(|| format!("Node {}, by {}", session.node_name, session.source))
}

async fn remove(nodes: &Api<Node>, name: &str) -> Result<Option<Removed>> {
    let Some(before) = read(nodes, name).await? else { return Ok(None) };
    // The API server deletes what our field manager owns and this apply leaves out.
    let (name, uid) = (Some(name.to_owned()), Some(before.facts.uid.clone()));
    let nothing = Node { metadata: ObjectMeta { name, uid, ..ObjectMeta::default() }, ..Node::default() };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let after = nodes.patch_status(&before.facts.name, &parameters, &Patch::Apply(nothing)).await;
    let after = after.map_err(|error| failed("remove the conditions", &error))?;
    let Some(after) = ObservedNode::read(after) else { return Ok(None) };
    let gone = before.facts.conditions.into_iter().filter(|condition| after.condition(&condition.kind).is_none());
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

/// Removes nodevigil's taints and returns their keys. If somebody else has written the Node since it was read, it is read again.
async fn remove_taints(nodes: &Api<Node>, mut node: ObservedNode) -> Result<Vec<String>> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (ours, others): (Vec<_>, Vec<_>) = node.taints.iter().cloned().partition(taints::is_ours);
        let keys: Vec<_> = ours.into_iter().map(|taint| taint.key).collect();
        let (name, patch) = (node.facts.name.clone(), Patch::Merge(taints::patch(&node, &others)));
        if keys.is_empty() {
            return Ok(keys);
        }
        match nodes.patch(&name, &PatchParams::apply(FIELD_MANAGER), &patch).await {
            Ok(_) => return Ok(keys),
            Err(error) if attempts == ATTEMPTS || Failure::of(&error) != Failure::Changed => {
                let (why, keys) = (failed("remove the taints", &error), keys.join("- "));
                return Err(anyhow!("{why}; as an administrator: kubectl taint node {name} {keys}-"));
            }
            Err(_) => {}
        }
        match read(nodes, &name).await? {
            Some(read) => node = read,
            None => return Ok(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use hyper::{Method, Request, Response};
    use kube::{Client, client::Body};
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    /// Removes what is ours from a Node that others write so many times, each between our reading and our writing.
    async fn remove_while_others_write(times: u32) -> Result<Option<Removed>> {
        let writes = AtomicU32::new(0);
        let service = service_fn(move |request: Request<Body>| {
            let written = writes.load(Relaxed);
            let other = json!({"key": format!("other-{written}"), "effect": "NoSchedule"});
            let ours = json!({"key": format!("{}a", taints::PREFIX), "effect": "NoSchedule"});
            let node = json!({
                "metadata": {"name": "n1", "uid": "u1", "resourceVersion": written.to_string()},
                "spec": {"taints": [ours, &other]},
            });
            let is_taint_patch = *request.method() == Method::PATCH && !request.uri().path().ends_with("/status");
            writes.fetch_add(u32::from(is_taint_patch), Relaxed);
            async move {
                let mut answer = Response::new(Body::from(node.to_string().into_bytes()));
                if is_taint_patch && written < times {
                    let conflict = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"});
                    answer = Response::new(Body::from(conflict.to_string().into_bytes()));
                    *answer.status_mut() = hyper::StatusCode::CONFLICT;
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
    async fn taints_are_removed_though_others_write_the_node_meanwhile() {
        let removed = remove_while_others_write(4).await.unwrap().unwrap();
        assert_eq!(removed.taints, [format!("{}a", taints::PREFIX)]);
        let error = remove_while_others_write(5).await.unwrap_err().to_string();
        assert!(error.contains("409") && error.contains("kubectl taint node n1"), "{error}");
    }
}
