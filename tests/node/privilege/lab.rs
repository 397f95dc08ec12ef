//! The ground on which a thief is tried: Nodes, what lies around them, and the trial itself.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::things::{self, EVENTS, JSON, MERGE, Thing};
use crate::scene::{LEASES, SOON};
use crate::support::api::Api;
use crate::support::control_plane::ControlPlane;
use crate::support::{pki, wait_until};

/// Two Nodes of which the first is the agent's, and things on and around them that are other people's.
pub(super) fn furnish(plane: &ControlPlane, node: &str, other: &str) -> Result<()> {
    for name in [node, other] {
        let object = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"lab": "x"}, "annotations": {"lab": "x"}},
            "spec": {"taints": [{"key": "lab", "effect": "NoSchedule"}]}});
        create(plane, "/api/v1/nodes", &object)?;
        let images: Vec<Value> = (0..50)
            .map(|i| json!({"names": [format!("registry.example.com/{}/{i}", "x".repeat(150))], "sizeBytes": i}))
            .collect();
        let foreign = json!({"status": {
            "conditions": [things::condition("ForeignHealthy", "True")], "images": images,
        }});
        let (code, answer) = plane.request("PATCH", &things::status_path(name), MERGE, &foreign)?;
        ensure!(code == 200, "{code}: {answer}");
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
        create(plane, LEASES, &lease)?;
    }
    let mut told = things::event("Pod", "p", "default", "kubelet");
    told["metadata"] = json!({"name": "of-a-pod", "namespace": "default"});
    create(plane, EVENTS, &told)?;
    request_certificate(plane, "lab", "lab", &[])?;
    Ok(())
}

/// Asks the cluster for a client certificate, as the administrator; returns its key.
pub(super) fn request_certificate(
    plane: &ControlPlane,
    name: &str,
    user: &str,
    groups: &[&str],
) -> Result<String> {
    let (request, key) = pki::request(user, groups)?;
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
    "metadata": {"name": name}, "spec": {
        "request": STANDARD.encode(request), "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["digital signature", "client auth"],
    }});
    let folder = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    create(plane, folder, &object)?;
    Ok(key)
}

/// Creates an object; one that is there already, by another test, will do.
pub(super) fn create(plane: &ControlPlane, folder: &str, object: &Value) -> Result<()> {
    let (code, answer) = plane.request("POST", folder, JSON, object)?;
    ensure!(
        code == 201 || code == 409,
        "creating {object} answered {code}: {answer}"
    );
    Ok(())
}

/// Waits until rights and policies are in force for this agent: the API server takes them up by and by.
pub(super) fn in_force(agent: &Api, node: &str) -> Result<()> {
    let label = json!({"metadata": {"labels": {"in": "force"}}});
    let path = format!("{}?dryRun=All", things::node_path(node));
    let event = things::event("Pod", "p", "default", "x");
    let events = format!("{EVENTS}?dryRun=All");
    let mut last = Value::Null;
    wait_until("the policies to be in force", SOON, || {
        for (method, path, kind, body) in [
            ("PATCH", &path, MERGE, &label),
            ("POST", &events, JSON, &event),
        ] {
            last = agent.request(method, path, kind, Some(body))?.1;
            if !text(&last).contains("ValidatingAdmissionPolicy") {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .with_context(|| format!("the last answer: {last:#}"))
}

/// Tries each and fails unless every one is refused with 403, by whom it should be; returns the table.
pub(super) fn refused(
    plane: &ControlPlane,
    thief: &Api,
    things: &[Thing],
    by: impl Fn(&Thing) -> Option<&str>,
) -> Result<String> {
    let (mut table, mut wrong) = (String::new(), 0);
    for thing in things {
        let (could, answer) = send_as_admin(plane, thing)?;
        ensure!(
            could < 300,
            "{} is no request at all: {could}: {answer:#}",
            thing.what
        );
        let (code, answer) = send(thief, thing, "")?;
        let said = text(&answer);
        let right = code == 403 && by(thing).is_some_and(|word| said.contains(word));
        wrong += i32::from(!right);
        let mark = if right { " " } else { "!" };
        let why = said.rsplit("denied request: ").next().unwrap_or_default();
        writeln!(table, "{mark} {code}  {:<50} {why}", thing.what)?;
    }
    ensure!(
        wrong == 0,
        "{wrong} went otherwise than they should (marked !):\n{table}"
    );
    Ok(table)
}

pub(super) fn send(api: &Api, thing: &Thing, dry: &str) -> Result<(u16, Value)> {
    let body = (!thing.body.is_null()).then_some(&thing.body);
    let path = match (dry, thing.path.contains('?')) {
        ("", _) => thing.path.clone(),
        (dry, true) => format!("{}&{dry}", thing.path),
        (dry, false) => format!("{}?{dry}", thing.path),
    };
    api.request_as(thing.user, thing.method, &path, thing.kind, body)
}

pub(super) fn send_as_admin(plane: &ControlPlane, thing: &Thing) -> Result<(u16, Value)> {
    let dry = if thing.method == "GET" {
        ""
    } else {
        "dryRun=All"
    };
    let (code, answer) = send(plane.admin(), thing, dry)?;
    Ok((code, answer))
}

pub(super) fn text(answer: &Value) -> String {
    let message = answer["message"].as_str();
    message.map_or_else(|| answer.to_string(), str::to_owned)
}
