//! The requests of commands to the API server, with the identity that the agent would use.

use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::sync::watch;

use super::connection::{ApiConnection, describe};
use super::exec;
use super::identity::{self, Source};
use super::observed::ObservedNode;
use super::session::{Session, connect, read_files};
use crate::host::api::{ApiFacts, NodeAnswer, RequestCounts};
use crate::host::kubelet::KubeletFacts;
use crate::host::trouble::Troubles;
use crate::settings::KubernetesSettings;

/// A client for a command, with the identity that the agent would use.
///
/// # Errors
/// When there is none that can be used.
pub async fn connect_once(settings: &KubernetesSettings, kubelet: KubeletFacts) -> Result<Session> {
    connect(settings, Some(kubelet), &unobserved()).await?.map_err(anyhow::Error::msg)
}

/// Results of the requests are not published to the rest of the agent.
fn unobserved() -> ApiConnection {
    ApiConnection::new(watch::Sender::new(ApiFacts::default()), RequestCounts::default(), Troubles::default())
}

/// Asks the API server once for the Node of that name, with the credential in `kubeconfig`.
pub async fn read_node(kubeconfig: PathBuf, name: &str) -> NodeAnswer {
    let node = name.to_owned();
    let connect = async {
        let mut config = read_files(move || identity::read(Source::Kubeconfig(kubeconfig))).await??.config;
        exec::ask(&mut config.auth_info).await?;
        anyhow::Ok(read_files(move || unobserved().connect(config, &node)).await??)
    };
    let client = match connect.await {
        Ok(client) => client,
        Err(error) => return NodeAnswer::NotAsked(redact::sanitize_line(&format!("{error:#}"), 500)),
    };
    match Api::<Node>::all(client).get_opt(name).await {
        Ok(node) => match node.and_then(ObservedNode::read) {
            Some(node) => NodeAnswer::Node(Box::new(node.facts)),
            None => NodeAnswer::NoNode(name.to_owned()),
        },
        Err(kube::Error::Api(status)) => {
            NodeAnswer::Refused { http_status: status.code, message: redact::sanitize_line(&status.message, 300) }
        }
        Err(error) => NodeAnswer::Unreached(describe(&error)),
    }
}
