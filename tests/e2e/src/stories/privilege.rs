//! What a stolen credential of an agent can do: the roles and policies of packaging/kubernetes, on a real API server.
//!
//! The administrator first sends each forbidden request as a dry run, so that what the agent is refused would otherwise be carried out.

mod attempts;
mod of_nodes;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::attempts::{
    APPLY, Attempt, By, EVENTS, JSON, LEASES, MERGE, STRATEGIC, condition, event, node_path, post, status_path,
};
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::requests::{Request, Requester};
use crate::support::{WAIT, namespaces, wait_until};

const GROUP: &str = "nodevigil-agents";
/// The API server takes up a new role or policy within some seconds.
const IN_FORCE: Duration = Duration::from_secs(30);

pub fn a_stolen_certificate_is_worth_its_own_node(scene: &Scene) -> Result<()> {
    let trial = Trial::prepare(scene)?;
    let thief = trial.certificate(&format!("nodevigil:{}", trial.node))?;
    trial.ensure_refused(&thief, &trial.attempts(), By::by_default)?;
    trial.ensure_can_write_what_is_its_own(&thief)?;
    trial.ensure_unchanged()
}

pub fn a_stolen_token_is_worth_its_own_node(scene: &Scene) -> Result<()> {
    let trial = Trial::prepare(scene)?;
    let thief = trial.token(true)?;
    trial.ensure_refused(&thief, &trial.attempts(), By::by_default)?;
    trial.ensure_can_write_what_is_its_own(&thief)?;
    trial.ensure_unchanged()?;
    // The token ends with the Node object, and a new one of the same name does not revive it.
    trial.plane.delete_node(&trial.node)?;
    trial.create("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": trial.node}}))?;
    let read = Request::get(&node_path(&trial.node));
    wait_until("the token of a deleted Node to be refused", WAIT, || Ok((thief.send(&read)?.0 == 401).then_some(())))
}

/// Even if the agents are bound to a role that is far too wide, the policies hold.
pub fn the_policies_hold_whatever_the_role(scene: &Scene) -> Result<()> {
    let trial = Trial::prepare(scene)?;
    let create = |arguments: &[&str]| trial.plane.kubectl(&[&["create"], arguments].concat());
    let resources = "--resource=nodes,nodes/status,nodes/proxy,events,events.events.k8s.io";
    create(&["clusterrole", "too-wide", "--verb=*", resources])?;
    create(&["clusterrolebinding", "too-wide", "--clusterrole=too-wide", &format!("--group={GROUP}")])?;
    let done = trial.ensure_policies_hold();
    trial.plane.kubectl(&["delete", "clusterrolebinding,clusterrole", "too-wide"])?;
    done
}

pub fn an_identity_that_names_no_node_can_write_nothing(scene: &Scene) -> Result<()> {
    let trial = Trial::prepare(scene)?;
    let node = &trial.node;
    let mut thieves = vec![trial.token(false)?];
    for user in
        [node.clone(), "nodevigil:".to_owned(), format!("nodevigil:{node}-2"), format!("nodevigil:{}", &node[1..])]
    {
        thieves.push(trial.certificate(&user)?);
    }
    for thief in thieves {
        for request in trial.own() {
            let (code, answer) = thief.send(&request)?;
            ensure!(code == 403, "{}: {code}: {answer:#}", request.path);
        }
    }
    Ok(())
}

/// The API server keeps ten managers that have updated an object, and puts the fields of older ones together.
pub fn taints_can_be_set_and_removed_whatever_the_number_of_field_managers(scene: &Scene) -> Result<()> {
    let trial = Trial::prepare(scene)?;
    let thief = trial.certificate(&format!("nodevigil:{}", trial.node))?;
    for round in 0..4 {
        // So many that the agent's own entry is the oldest.
        for number in 0..11 {
            let path = format!("{}?fieldManager=manager-{round}-{number}", node_path(&trial.node));
            let labels = json!({"metadata": {"labels": {format!("lab-{round}-{number}"): "x"}}});
            trial.must("PATCH", &path, MERGE, &labels)?;
        }
        let (code, answer) = thief.send(&of_nodes::taint(&trial.node, round % 2 == 0).request)?;
        ensure!(code == 200, "round {round}: {code}: {answer:#}");
    }
    let (_, node) = trial.admin.send(&Request::get(&node_path(&trial.node)))?;
    let managers = node["metadata"]["managedFields"].to_string();
    ensure!(managers.contains("ancient-changes"), "the managers were never put together: {managers}");
    Ok(())
}

/// An agent and its Node, another Node, and what belongs to others.
struct Trial<'a> {
    plane: &'a ControlPlane,
    admin: Requester,
    node: String,
    other: String,
}

impl<'a> Trial<'a> {
    fn prepare(scene: &'a Scene) -> Result<Self> {
        let (plane, node) = (scene.plane().as_ref(), scene.node_name().to_owned());
        let admin = Requester::start(&format!("{node}-admin"), &plane.kubeconfig("admin", "system:masters")?)?;
        let trial = Self { plane, admin, other: format!("{node}-other"), node };
        for name in [&trial.node, &trial.other] {
            let metadata = json!({"name": name, "labels": {"lab": "x"}, "annotations": {"lab": "x"}});
            let spec = json!({"taints": [{"key": "lab", "effect": "NoSchedule"}]});
            // Of the second, the type is the agent's, and the agent could not write it so.
            let mut foreign = [condition("ForeignHealthy", "True"), condition("KernelDeadlock", "True")];
            foreign[1]["message"] = "x".repeat(2000).into();
            foreign[1]["lastTransitionTime"] = Value::Null;
            let status = json!({"status": {"conditions": foreign}});
            trial.create(
                "/api/v1/nodes",
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}),
            )?;
            trial.must("PATCH", &status_path(name), STRATEGIC, &status)?;
            let (kind, metadata) = ("Lease", json!({"name": name, "namespace": "kube-node-lease"}));
            trial
                .create(LEASES, &json!({"apiVersion": "coordination.k8s.io/v1", "kind": kind, "metadata": metadata}))?;
        }
        let mut of_a_pod = event("Pod", "p");
        of_a_pod["metadata"] = json!({"name": trial.node, "namespace": "default"});
        trial.create(EVENTS, &of_a_pod)?;
        Ok(trial)
    }

    /// A requester with a client certificate for that user.
    fn certificate(&self, user: &str) -> Result<Requester> {
        self.in_force(Requester::start(
            &format!("{}-{}", self.node, user.replace(':', "-")),
            &self.plane.kubeconfig(user, GROUP)?,
        )?)
    }

    /// A requester with a token of the `ServiceAccount`, bound to the Node or to nothing.
    fn token(&self, is_bound: bool) -> Result<Requester> {
        let node = self.plane.node(&self.node)?.context("no Node")?;
        let uid = node["metadata"]["uid"].as_str().context("a uid")?;
        let mut create = vec!["create", "token", "nodevigil", "--namespace=kube-system"];
        let (name, uid) = (format!("--bound-object-name={}", self.node), format!("--bound-object-uid={uid}"));
        if is_bound {
            create.extend(["--bound-object-kind=Node", &name, &uid]);
        }
        let token = self.plane.kubectl(&create)?;
        let ca = namespaces::work().join("ca.crt");
        fs::write(&ca, self.plane.ca()?)?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.plane.url(), "certificate-authority": ca}}],
            "users": [{"name": "u", "user": {"token": token.trim()}}],
        });
        self.in_force(Requester::start(&format!("{}-token", self.node), &kubeconfig.to_string())?)
    }

    /// Waits until the policies are in force for it.
    fn in_force(&self, thief: Requester) -> Result<Requester> {
        let label = Attempt::patch("", node_path(&self.node), STRATEGIC, json!({"metadata": {"labels": {"a": "b"}}}));
        let event = post("", EVENTS, event("Pod", "p"));
        let mut last = Value::Null;
        let is_refused = || -> Result<Option<()>> {
            for attempt in [&label, &event] {
                last = thief.send(&attempt.request.dry_run())?.1;
                if !message(&last).contains("ValidatingAdmissionPolicy") {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        wait_until("the policies to be in force", IN_FORCE, is_refused).with_context(|| format!("{last:#}"))?;
        Ok(thief)
    }

    fn attempts(&self) -> Vec<Attempt> {
        let (node, other) = (self.node.as_str(), self.other.as_str());
        [of_nodes::attempts(node, other), attempts::of_events(node, other), attempts::of_anything_else(node, other)]
            .concat()
    }

    /// Fails unless each attempt is refused with 403 and the message that `by` has for it.
    fn ensure_refused(&self, thief: &Requester, attempts: &[Attempt], by: fn(By) -> &'static str) -> Result<()> {
        let mut wrong = Vec::new();
        for attempt in attempts {
            let (code, answer) = self.admin.send(&attempt.request.dry_run())?;
            ensure!(code < 300, "{}: the administrator is answered {code}: {answer:#}", attempt.what);
            let (code, answer) = thief.send(&attempt.request)?;
            let wanted = by(attempt.by);
            if code != 403 || !message(&answer).contains(wanted) {
                wrong.push(format!("{}: not 403 with {wanted:?} but {code}: {}", attempt.what, message(&answer)));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        ensure!(attempts.len() > 20, "{} attempts only", attempts.len());
        Ok(())
    }

    fn ensure_policies_hold(&self) -> Result<()> {
        let thief = self.certificate(&format!("nodevigil:{}", self.node))?;
        let read = Request::get("/api/v1/events");
        wait_until("the wide role to be in force", IN_FORCE, || Ok((thief.send(&read)?.0 == 200).then_some(())))?;
        let of_policies: Vec<_> = self.attempts().into_iter().filter(|one| !one.by.by_policy().is_empty()).collect();
        self.ensure_refused(&thief, &of_policies, By::by_policy)?;
        let (code, answer) = thief.send(&Request::get(&format!("{}/proxy/pods", node_path(&self.node))))?;
        ensure!(code == 403 && message(&answer).contains(of_nodes::ONLY_CHANGE), "its kubelet: {code}: {answer:#}");
        Ok(())
    }

    /// A condition and an Event, as the agent writes them.
    fn own(&self) -> [Request; 2] {
        let (path, body) = of_nodes::applied(&self.node, &json!([condition("KubeletHealthy", "False")]));
        [Attempt::patch("", path, APPLY, body).request, post("", EVENTS, event("Node", &self.node)).request]
    }

    /// Fails if the credential is worth nothing: then it would be refused everything.
    fn ensure_can_write_what_is_its_own(&self, thief: &Requester) -> Result<()> {
        for request in self.own() {
            let (code, answer) = thief.send(&request)?;
            ensure!(code < 300, "{}: {code}: {answer:#}", request.path);
        }
        Ok(())
    }

    /// Fails if one of the attempts was carried out after all.
    fn ensure_unchanged(&self) -> Result<()> {
        let node = self.plane.node(&self.node)?.context("the Node is gone")?;
        for map in ["labels", "annotations"] {
            ensure!(node["metadata"][map] == json!({"lab": "x"}), "{map}: {node:#}");
        }
        let taints = node["spec"]["taints"].as_array().context("no taints")?;
        let is_foreign = |taint: &Value| !taint["key"].as_str().unwrap_or_default().contains("nodevigil");
        ensure!(taints.iter().any(|taint| taint["key"] == "lab") && taints.iter().all(is_foreign), "{taints:?}");
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        ensure!(conditions.contains(&condition("ForeignHealthy", "True")), "{conditions:#?}");
        Ok(())
    }

    fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.must("POST", path, JSON, object)
    }

    fn must(&self, method: &'static str, path: &str, content_type: &'static str, body: &Value) -> Result<()> {
        let request = Request { method, path: path.to_owned(), content_type, body: body.clone(), as_user: "" };
        let (code, answer) = self.admin.send(&request)?;
        ensure!(code < 300, "{method} {path}: {code}: {answer:#}");
        Ok(())
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // The scene deletes the other Node.
        let _ = self.plane.delete_node(&self.other);
    }
}

fn message(answer: &Value) -> String {
    answer["message"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
}
