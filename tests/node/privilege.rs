//! A stolen credential: what the shipped rights and policies leave to whoever has one, tried on a real API server.
//!
//! Each forbidden thing is first done by the administrator in a dry run, so that what is refused to the agent is a request
//! that would otherwise be carried out.

mod elsewhere;
mod lab;
mod own_node;
mod things;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene};
use crate::support::api::Api;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::{repository, say, tools, wait_until};
use crate::trial;
use lab::{create, furnish, in_force, refused, send, send_as_admin, text};
use things::{EVENTS, JSON, OWN_TAINT, STEPS};

const LOCAL: &str = "127.0.0.1";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "privilege::stolen_certificate",
            a_stolen_certificate_is_worth_its_own_node,
        ),
        trial(
            "privilege::stolen_token",
            a_stolen_token_is_worth_its_own_node,
        ),
        trial(
            "privilege::wide_rights",
            the_policy_holds_under_rights_that_are_too_wide,
        ),
        trial(
            "privilege::nameless",
            an_agent_without_a_node_name_writes_nothing,
        ),
        trial("privilege::others", kubelet_and_administrator_do_not_notice),
        trial("privilege::token", an_agent_with_a_token_works),
        trial("privilege::readme", the_readme_can_be_followed),
    ]
}

fn a_stolen_certificate_is_worth_its_own_node() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let (node, other) = ("stolen-cert", "stolen-cert-other");
    furnish(&plane, node, other)?;
    let thief =
        Api::new(&plane.kubeconfig("nodevigil:stolen-cert", &["nodevigil-agents"], LOCAL)?)?;
    stolen(&plane, &thief, node, other)
}

fn a_stolen_token_is_worth_its_own_node() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let (node, other) = ("stolen-token", "stolen-token-other");
    furnish(&plane, node, other)?;
    let token = plane.node_bound_token(node)?;
    let thief = Api::new(&plane.token_kubeconfig(&token, LOCAL)?)?;
    stolen(&plane, &thief, node, other)?;
    // The token dies with the Node object, and is no other's of the same name.
    plane.delete_node(node)?;
    furnish(&plane, node, other)?;
    let dead = || Ok((thief.get(&things::node_path(node))?.0 == 401).then_some(()));
    wait_until("the token of a Node that is gone to be refused", SOON, dead)
}

fn stolen(plane: &ControlPlane, thief: &Api, node: &str, other: &str) -> Result<()> {
    in_force(thief, node)?;
    let forbidden = things::forbidden(node, other);
    ensure!(forbidden.len() >= 15, "{} things only", forbidden.len());
    let table = refused(plane, thief, &forbidden, |thing| {
        Some(if thing.by_rights {
            " cannot "
        } else {
            thing.policy
        })
    })?;
    say(&format!(
        "{} forbidden things, as the agent of {node}:\n{table}",
        forbidden.len()
    ));
    let mut table = String::new();
    for thing in things::allowed(node) {
        let (code, answer) = send(thief, &thing, "")?;
        writeln!(table, "{code}  {}", thing.what)?;
        ensure!(code < 300, "{}: {code}: {answer:#}\n{table}", thing.what);
    }
    taint(thief, node)?;
    writeln!(table, "200  setting and removing the own taint")?;
    say(&format!("allowed:\n{table}"));
    the_node_is_as_it_was(plane, node)
}

/// Belt without braces: what would be if somebody bound the agents to a role that is much too wide.
fn the_policy_holds_under_rights_that_are_too_wide() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    let (node, other) = ("wide", "wide-other");
    furnish(&plane, node, other)?;
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let version = "rbac.authorization.k8s.io/v1";
    create(
        &plane,
        &format!("{group}/clusterroles"),
        &json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "too-wide"}, "rules": [
            {"apiGroups": ["", "events.k8s.io"], "verbs": ["*"], "resources": ["nodes", "nodes/status", "nodes/proxy", "events"]},
        ]}),
    )?;
    create(
        &plane,
        &format!("{group}/clusterrolebindings"),
        &json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "too-wide"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-wide"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "nodevigil-agents"}]}),
    )?;
    let thief = Api::new(&plane.kubeconfig("nodevigil:wide", &["nodevigil-agents"], LOCAL)?)?;
    in_force(&thief, node)?;
    let able = || Ok((thief.get("/api/v1/events")?.0 == 200).then_some(()));
    wait_until("the wide rights to be in force", SOON, able)?;
    let things: Vec<_> = things::forbidden(node, other)
        .into_iter()
        .filter(|thing| !thing.policy.is_empty())
        .collect();
    let mut table = refused(&plane, &thief, &things, |thing| Some(thing.policy))?;
    let (code, answer) = thief.get("/api/v1/nodes/wide/proxy/pods")?;
    writeln!(table, "  {code}  the kubelet, through the API server")?;
    let by_policy = text(&answer).contains("not create, delete or use it");
    ensure!(code == 403 && by_policy, "{code}: {answer:#}");
    say(&format!(
        "by the policy alone, {} things:\n{table}",
        things.len()
    ));
    Ok(())
}

fn an_agent_without_a_node_name_writes_nothing() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let (node, other) = ("nameless", "nameless-other");
    furnish(&plane, node, other)?;
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/nodevigil/token";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (_, answer) = plane.request("POST", path, JSON, &request)?;
    let unbound = answer["status"]["token"].as_str().context("a token")?;
    let agents = ["nodevigil-agents"];
    for kubeconfig in [
        plane.token_kubeconfig(unbound, LOCAL)?,
        plane.kubeconfig("nameless", &agents, LOCAL)?,
        plane.kubeconfig("nodevigil:", &agents, LOCAL)?,
        plane.kubeconfig("nodevigil:nameles", &agents, LOCAL)?,
        plane.kubeconfig("nodevigil:nameless-2", &agents, LOCAL)?,
    ] {
        let agent = Api::new(&kubeconfig)?;
        in_force(&agent, node)?;
        let (kind, body) = things::apply(
            node,
            json!([things::condition("KubeletHealthy", "True")]),
            Value::Null,
        );
        let (code, answer) =
            agent.request("PATCH", &things::apply_path(node), kind, Some(&body))?;
        let told = things::event("Node", node, "default", "nodevigil.io/agent");
        let (event, _) = agent.request("POST", EVENTS, JSON, Some(&told))?;
        ensure!((code, event) == (403, 403), "{code}, {event}: {answer:#}");
    }
    Ok(())
}

/// Those whom the policies do not concern: they may what they always might.
fn kubelet_and_administrator_do_not_notice() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let (node, other) = ("unconcerned", "unconcerned-other");
    furnish(&plane, node, other)?;
    let agent =
        Api::new(&plane.kubeconfig("nodevigil:unconcerned", &["nodevigil-agents"], LOCAL)?)?;
    in_force(&agent, node)?;
    for thing in things::forbidden(node, other) {
        let (code, answer) = send_as_admin(&plane, &thing)?;
        ensure!(
            code < 300,
            "the administrator, {}: {code}: {answer:#}",
            thing.what
        );
    }
    let kubelet =
        Api::new(&plane.kubeconfig("system:node:unconcerned", &["system:nodes"], LOCAL)?)?;
    let may = [
        "Ready=False on the own Node",
        "an own condition without lastTransitionTime",
        "the capacity",
        "a label",
        "an annotation that is not ours",
        "cordoning",
        "an Event about a Pod",
        "an Event in the kubelet's name",
        "an Event about a Pod, in the old API",
        "renewing the own Lease",
        "reading the own node's Pods",
    ];
    let things = things::forbidden(node, other);
    for what in may {
        let thing = things
            .iter()
            .find(|thing| thing.what == what)
            .context(what)?;
        let (code, answer) = send(&kubelet, thing, "")?;
        ensure!(code < 300, "the kubelet, {what}: {code}: {answer:#}");
    }
    Ok(())
}

/// The second kind of identity, from the file to the condition: the harness's other agents have certificates.
fn an_agent_with_a_token_works() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "token", |node| node)?;
    scene.play(|scene| {
        let token = scene.plane.node_bound_token("token")?;
        let mut kubeconfig = scene
            .plane
            .token_kubeconfig("", crate::support::enter::ADDRESS)?;
        kubeconfig["users"][0]["user"] = json!({"tokenFile": "token"});
        let own = "root:nodevigil";
        scene.node.sh(&format!(
            "umask 027; cd /etc/nodevigil
             printf %s '{token}' >token; printf %s '{kubeconfig}' >kubeconfig
             chown {own} token kubeconfig; chmod 640 token kubeconfig"
        ))?;
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.crash_and_recover()?;
        let user = "system:serviceaccount:kube-system:nodevigil";
        let (_, node) = scene.plane.get(&things::node_path("token"))?;
        let uid = node["metadata"]["uid"].as_str().unwrap_or("?");
        let requests = scene.plane.audit()?;
        let writes = requests.iter().filter(|one| {
            one.user == user && one.verb == "patch" && one.body["metadata"]["uid"] == uid
        });
        ensure!(writes.count() >= 3, "well, crash, well: {requests:#?}");
        Ok(())
    })
}

/// Every command of packaging/kubernetes/README.md that makes an identity or pins one, as it stands there.
fn the_readme_can_be_followed() -> Result<()> {
    let kubectl = tools::path("kubectl")?;
    let tools = kubectl.parent().context("a program lies in a folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let plane = ControlPlane::start(Options::default())?;
    let node = "worker-1";
    furnish(&plane, node, "worker-2")?;
    let folder = plane.folder().join("readme");
    let shipped = repository().join("packaging/kubernetes");
    std::fs::create_dir(&folder)?;
    let files = std::fs::read_dir(&shipped)?.flatten();
    for entry in files.filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let admin = plane.kubeconfig("admin", &["system:masters"], LOCAL)?;
    std::fs::write(folder.join("admin"), admin.to_string())?;
    let readme = std::fs::read_to_string(shipped.join("README.md"))?;
    let script: Vec<_> = readme
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect();
    ensure!(script.len() == 5, "{} blocks of commands", script.len());
    let done = Command::new("sh")
        .args(["-euxc", &script.join("\n")])
        .current_dir(&folder)
        .env("KUBECONFIG", folder.join("admin"))
        .env("PATH", format!("{}:{path}", tools.display()))
        .env_remove("HTTPS_PROXY")
        .env_remove("https_proxy")
        .output()
        .context("starting sh")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {said}", done.status);
    let agent = |file: &str| -> Result<Api> {
        let kubeconfig = std::fs::read_to_string(folder.join(file))?;
        Api::new(&serde_saphyr::from_str(&kubeconfig)?)
    };
    let certificate = agent("kubeconfig")?;
    in_force(&certificate, node)?;
    let other = things::node_path("worker-2");
    let pinned = || Ok((certificate.get(&other)?.0 == 403).then_some(()));
    wait_until("the reads to be pinned", SOON, pinned)?;
    for thing in things::allowed(node) {
        let (code, answer) = send(&certificate, &thing, "")?;
        ensure!(code < 300, "{}: {code}: {answer:#}", thing.what);
    }
    for path in [
        "/api/v1/nodes",
        "/api/v1/nodes?fieldSelector=metadata.name=worker-2",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-2",
    ] {
        ensure!(certificate.get(path)?.0 == 403, "{path}");
    }
    // Its reads went with the shared role's; what it writes is its own.
    let token = agent("kubeconfig-token")?;
    let things = things::allowed(node);
    let apply = things.iter().find(|thing| thing.method == "PATCH");
    let (code, answer) = send(&token, apply.context("an apply")?, "")?;
    ensure!(code == 200, "{code}: {answer:#}");
    Ok(())
}

/// As the agent does it: the list just read, and that it still is that.
fn taint(agent: &Api, node: &str) -> Result<()> {
    let path = things::node_path(node);
    let patched = format!("{path}?fieldManager=nodevigil");
    for wanted in [true, false] {
        let mut tries = 0;
        loop {
            let (_, object) = agent.get(&path)?;
            let before = object["spec"]["taints"].clone();
            let mut after = before.as_array().cloned().unwrap_or_default();
            after.retain(|taint| taint["key"] != OWN_TAINT);
            if wanted {
                after.push(
                    json!({"key": OWN_TAINT, "value": "KubeletCrashed", "effect": "NoSchedule",
                    "timeAdded": "2026-11-21T09:00:00Z"}),
                );
            }
            let steps = json!([
                {"op": "test", "path": "/spec/taints", "value": before},
                {"op": "add", "path": "/spec/taints", "value": after},
            ]);
            let (code, answer) = agent.request("PATCH", &patched, STEPS, Some(&steps))?;
            tries += 1;
            match code {
                200 => break,
                422 if tries < 5 => {} // the lifecycle controller was faster
                code => bail!("taint wanted {wanted}: {code}: {answer:#}"),
            }
        }
    }
    Ok(())
}

fn the_node_is_as_it_was(plane: &ControlPlane, node: &str) -> Result<()> {
    let object = plane.node(node)?.context("the Node is gone")?;
    let keys = |pointer: &str| -> Vec<&str> {
        let map = object.pointer(pointer).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect()
    };
    ensure!(keys("/metadata/annotations") == ["lab"], "{object:#}");
    ensure!(keys("/metadata/labels") == ["lab"], "{object:#}");
    ensure!(
        object.pointer("/spec/unschedulable").is_none(),
        "{object:#}"
    );
    let foreign = crate::support::api::condition_status(&object, "ForeignHealthy");
    ensure!(foreign == Some("True"), "{object:#}");
    let taints = object["spec"]["taints"].to_string();
    ensure!(
        taints.contains("\"lab\"") && !taints.contains("nodevigil"),
        "{taints}"
    );
    Ok(())
}
