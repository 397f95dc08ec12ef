//! What the agent asked of the API server, and what it never wrote, by the API server's own records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::NODE;
use nodevigil::desired::PublishedType;

use super::paper::Paper;
use super::support::audit::Request;
use super::support::node::Node;
use super::support::wait_until;

/// Prints the agent's requests, and proves that it wrote its own condition alone.
pub(crate) fn testify(paper: &Paper, node: &Node) -> Result<()> {
    paper.heading("What the API server recorded");
    let user = format!("nodevigil:{NODE}");
    let requests = requests_of(node, &user)?;
    paper.line(&format!(
        "audit log: {} requests by user {user}: {}",
        requests.len(),
        by_kind(&requests)
    ));
    let written = written_types(&requests)?;
    let is_ours = |name: &String| PublishedType::parse(name).is_some_and(|t| t.spec().is_native());
    ensure!(
        written.contains("KubeletHealthy") && written.iter().all(is_ours),
        "nodevigil wrote the conditions {written:?}"
    );
    paper.line("Ready was never written by nodevigil. Checked twice:");
    paper.detail(&format!(
        "audit log: {} are the only condition types in the bodies of its writes",
        join(&written)
    ));

    let object = node.plane().node(NODE)?.context("the Node is there")?;
    let (of_ready, of_ours) = (owners(&object, "Ready"), owners(&object, "KubeletHealthy"));
    ensure!(
        !of_ready.contains("nodevigil") && of_ours == BTreeSet::from(["nodevigil".to_owned()]),
        "field managers: Ready of {of_ready:?}, KubeletHealthy of {of_ours:?}"
    );
    paper.detail(&format!(
        "managedFields of the Node: Ready belongs to {}, KubeletHealthy to nodevigil alone",
        join(&of_ready)
    ));
    Ok(())
}

/// All that this user asked. The log has a request a moment after the watch has what it did: the last write is awaited.
fn requests_of(node: &Node, user: &str) -> Result<Vec<Request>> {
    let soon = Duration::from_secs(5);
    wait_until("the audit log to have the last write", soon, || {
        let mut requests = node.plane().audit()?;
        requests.retain(|request| request.user == user);
        let complete = requests.iter().any(|request| {
            request
                .body
                .to_string()
                .contains("KubeletStoppedByOperator")
        });
        Ok(complete.then_some(requests))
    })
}

/// `2 list nodes (200), …`
fn by_kind(requests: &[Request]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests {
        let path = request.uri.split('?').next().unwrap_or_default();
        let object = if path.ends_with("/status") {
            "nodes/status"
        } else if path.contains("/events") {
            "events"
        } else {
            "nodes"
        };
        let kind = format!("{} {object} ({})", request.verb, request.code);
        *counts.entry(kind).or_default() += 1;
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    parts.join(", ")
}

/// The condition types in the bodies of all its requests that are not reads.
fn written_types(requests: &[Request]) -> Result<BTreeSet<String>> {
    let mut types = BTreeSet::new();
    for request in requests {
        let reads = ["get", "list", "watch"].contains(&request.verb.as_str());
        if reads
            || request
                .uri
                .starts_with("/apis/events.k8s.io/v1/namespaces/default/events")
        {
            continue;
        }
        ensure!(
            request.verb == "patch" && request.uri.contains("/status?"),
            "nodevigil sent a {} {}",
            request.verb,
            request.uri
        );
        let conditions = request
            .body
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .with_context(|| format!("a write without conditions: {}", request.body))?;
        types.extend(
            conditions
                .iter()
                .filter_map(|condition| condition["type"].as_str())
                .map(str::to_owned),
        );
    }
    Ok(types)
}

/// The field managers that own a part of this condition.
fn owners(node: &Value, kind: &str) -> BTreeSet<String> {
    let key = format!("k:{{\"type\":\"{kind}\"}}");
    let entries = node["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .filter(|entry| !entry["fieldsV1"]["f:status"]["f:conditions"][&key].is_null())
        .filter_map(|entry| entry["manager"].as_str())
        .map(str::to_owned)
        .collect()
}

fn join(words: &BTreeSet<String>) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.join(" and ")
}
