//! What reached the API server: our own condition on our own Node, and nothing else ever.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use nodevigil::cluster::api::FIELD_MANAGER;
use nodevigil::desired::{PublishedType, TYPES};
use serde_json::{Value, json};

use crate::scene::{LEASES, Scene};
use crate::support::audit::Request;
use crate::trial;

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial(
        "audit::all_requests",
        nothing_but_its_own_condition_is_written,
    )]
}

fn nothing_but_its_own_condition_is_written() -> Result<()> {
    Scene::healthy("audited")?.play(|scene| {
        scene.crash_and_recover()?;
        let from = Instant::now();
        scene.node.sh("systemctl stop kubelet")?;
        scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        scene.revive()?;
        scene.node.sh("systemctl restart nodevigil")?;
        let told = scene.now()?;
        scene.ensure_still(&told)?;
        owns_only_its_condition(scene)?;
        // Every agent of this run, whatever its test does to it.
        let mut writes = BTreeMap::<String, usize>::new();
        for request in scene.plane.audit()? {
            if let Some(node) = asked_by_agent_of(&request) {
                check(&request, &node).with_context(|| format!("{request:#?}"))?;
                // What is rehearsed is thrown away by the API server.
                let is_dry = request.uri.contains("dryRun=All");
                let status = request.uri.contains("/status?") && !is_dry;
                *writes.entry(node).or_default() += usize::from(status);
            }
        }
        // Well, crash and perhaps its cause, well, stopped, perhaps starting, well, and the agent anew; at each of its two
        // starts the first words of the slower checks (runtime, storage, bootstrap) may come an apply later.
        let own = writes.get("audited").copied().unwrap_or_default();
        ensure!((5..=18).contains(&own), "{own} writes");
        Ok(())
    })
}

/// The Node whose agent sent this request: under its own user, or as the kubelet under our field manager. (Some tests
/// do with an agent's credential what no agent does.)
fn asked_by_agent_of(request: &Request) -> Option<String> {
    if !request.user_agent.starts_with("nodevigil/") {
        return None;
    }
    if let Some(node) = request.user.strip_prefix("nodevigil:") {
        return Some(node.to_owned());
    }
    let node = request.user.strip_prefix("system:node:")?;
    under_our_name(request).then(|| node.to_owned())
}

/// Whether a request is made under our field manager.
pub(crate) fn under_our_name(request: &Request) -> bool {
    let wanted = format!("fieldManager={FIELD_MANAGER}");
    let query = request.uri.split_once('?').unwrap_or_default().1;
    query.split('&').any(|part| part == wanted)
}

fn check(request: &Request, node: &str) -> Result<()> {
    let selector = format!("fieldSelector=metadata.name%3D{node}&");
    let (path, query) = request.uri.split_once('?').unwrap_or((&request.uri, ""));
    let own_node = format!("/api/v1/nodes/{node}");
    let own_lease = format!("{LEASES}/{node}");
    match request.verb.as_str() {
        // The kubelet's Lease is the second witness of a kubelet that does not answer.
        "get" => ensure!(
            path == own_node || path == own_lease,
            "not its Node, nor its Lease"
        ),
        "create" if path.ends_with("/selfsubjectaccessreviews") => {} // `nodevigil doctor`
        "create" => {
            ensure!(path == EVENTS, "not an Event");
            let regarding = &request.body["regarding"];
            ensure!(
                regarding["kind"] == "Node"
                    && regarding["name"] == node
                    && regarding["uid"].is_string(),
                "not about its Node"
            );
        }
        "patch" if path.starts_with(EVENTS) => {
            ensure!(request.body[0]["path"] == "/series", "more than the series");
        }
        "patch" if path == own_node => {
            let operations = request.body.as_array().context("no JSON Patch")?;
            let paths: Vec<_> = operations.iter().map(|one| &one["path"]).collect();
            ensure!(
                paths == ["/metadata/uid", "/spec/taints", "/spec/taints"],
                "{paths:?}"
            );
            ensure!(
                operations[0]["op"] == "test" && operations[1]["op"] == "test",
                "unguarded"
            );
        }
        "list" | "watch" => {
            ensure!(path == "/api/v1/nodes", "not its Node");
            ensure!(
                format!("{query}&").contains(&selector),
                "not its Node alone"
            );
            ensure!(request.body.is_null(), "a body");
        }
        "patch" => {
            ensure!(
                path == format!("{own_node}/status"),
                "not its Node's status"
            );
            ensure!(under_our_name(request), "not as {FIELD_MANAGER}");
            check_body(&request.body, node)?;
        }
        other => anyhow::bail!("{other} is none of its verbs"),
    }
    Ok(())
}

/// The set of our conditions, complete, for the Node that was meant.
fn check_body(body: &Value, node: &str) -> Result<()> {
    let none = Vec::new(); // as `nodevigil cleanup` leaves it
    let conditions = body["status"]["conditions"].as_array().unwrap_or(&none);
    for condition in conditions {
        let kind = condition["type"].as_str().unwrap_or_default();
        ensure!(PublishedType::parse(kind).is_some(), "not ours: {kind}");
        for time in ["lastTransitionTime", "lastHeartbeatTime"] {
            let text = condition[time].as_str().context(time)?;
            text.parse::<Timestamp>().context(time)?;
        }
    }
    let uid = &body["metadata"]["uid"];
    ensure!(uid.is_string(), "for any Node of that name");
    let mut frame = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "uid": uid},
    });
    if !body["status"].is_null() {
        frame["status"] = json!({ "conditions": conditions });
    }
    // After a write without an answer: only if nobody has written since.
    if let Some(version) = body.pointer("/metadata/resourceVersion") {
        frame["metadata"]["resourceVersion"] = version.clone();
    }
    if let Some(why) = body.pointer("/metadata/annotations/nodevigil.io~1standing-down") {
        frame["metadata"]["annotations"] = json!({ "nodevigil.io/standing-down": why });
    }
    ensure!(*body == frame, "more than the conditions");
    Ok(())
}

/// The API server's own book-keeping of who owns what.
fn owns_only_its_condition(scene: &Scene) -> Result<()> {
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let managers = node["metadata"]["managedFields"]
        .as_array()
        .context("no managers")?;
    let ours: Vec<&Value> = managers
        .iter()
        .filter(|entry| entry["manager"] == FIELD_MANAGER)
        .collect();
    ensure!(ours.len() == 1, "{managers:#?}");
    ensure!(ours[0]["operation"] == "Apply" && ours[0]["subresource"] == "status");
    let status = &ours[0]["fieldsV1"];
    let owned: Vec<&String> = status["f:status"]["f:conditions"]
        .as_object()
        .context("no conditions of ours")?
        .keys()
        .collect();
    let native = TYPES.iter().filter(|spec| spec.is_native());
    let may_own: Vec<String> = native
        .map(|spec| format!("k:{{\"type\":\"{}\"}}", spec.name))
        .collect();
    ensure!(
        owned.contains(&&may_own[0]) && owned.iter().all(|key| may_own.contains(key)),
        "{owned:?}"
    );
    let fields: Vec<&String> = status.as_object().context("no fields")?.keys().collect();
    ensure!(fields == ["f:status"], "{fields:?}");
    Ok(())
}
