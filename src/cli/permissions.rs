//! Whether the agent's identity may do what publishing needs.

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::host::kubelet::KubeletFacts;
use crate::publish::connect_once;
use crate::settings::KubernetesSettings;

/// What publishing needs: verb, and resource of the core group (packaging/kubernetes/rbac.yaml).
const NEEDED: [(&str, &str); 4] =
    [("get", "nodes"), ("watch", "nodes"), ("patch", "nodes/status"), ("create", "events")];

/// The identity and its permissions.
#[derive(Debug)]
pub struct Permissions {
    /// Where it comes from.
    pub source: String,
    /// The permissions that publishing needs and it lacks, such as `patch nodes/status`.
    pub refused: Vec<String>,
}

/// Asks the API server what our identity may do.
///
/// # Errors
/// When there is no identity, or the API server does not answer.
pub async fn check(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Permissions> {
    let session = connect_once(settings, kubelet).await?;
    let reviews = Api::<SelfSubjectAccessReview>::all(session.client);
    let mut refused = Vec::new();
    for (verb, path) in NEEDED {
        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
        let (name, namespace) = if resource == "nodes" { (&*session.node_name, "") } else { ("", "default") };
        let attributes = json!({"verb": verb, "resource": resource, "subresource": subresource, "name": name,
            "namespace": namespace});
        let review = serde_json::from_value(json!({"metadata": {}, "spec": {"resourceAttributes": attributes}}))?;
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.with_context(|| format!("cannot ask whether {} may {verb} {path}", session.source))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            refused.push(format!("{verb} {path}"));
        }
    }
    Ok(Permissions { source: session.source.to_string(), refused })
}
