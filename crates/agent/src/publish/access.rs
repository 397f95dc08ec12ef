//! What our identity may do at the API server, for `nodevigil diagnose`.

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, api::PostParams};

use super::session::connect_once;
use crate::{host::kubelet::KubeletFacts, settings::KubernetesSettings};

/// What publishing needs: verb, group, resource (packaging/kubernetes/rbac.yaml).
const NEEDED: [(&str, &str, &str); 4] = [
    ("get", "", "nodes"),
    ("watch", "", "nodes"),
    ("patch", "", "nodes/status"),
    ("create", "events.k8s.io", "events"),
];

/// What was found out about our identity.
#[derive(Debug)]
pub struct Identity {
    /// Where it comes from.
    pub source: String,
    /// What it may not do of what publishing needs, such as `patch nodes/status`.
    pub refused: Vec<String>,
}

/// Asks the API server what our identity may do.
///
/// # Errors
/// When there is no identity, or the API server does not answer.
pub async fn identity(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Identity> {
    let session = connect_once(settings, kubelet).await?;
    let reviews = Api::<SelfSubjectAccessReview>::all(session.client);
    let mut refused = Vec::new();
    for (verb, group, resource) in NEEDED {
        let what = format!("{verb} {resource}");
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let is_of_node = resource == "nodes";
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            group: Some(group.into()),
            resource: Some(resource.into()),
            subresource: Some(subresource.into()),
            name: is_of_node.then(|| session.node_name.clone()),
            namespace: (!is_of_node).then(|| "default".into()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.with_context(|| format!("cannot ask whether {} may {what}", session.source))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            refused.push(what);
        }
    }
    Ok(Identity { source: session.source.to_string(), refused })
}
