//! Faults of the API: away, frozen, refusing, and a Node made anew. What breaks the API server has one of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use crate::scene::{AGENT, OURS, SOON, Scene};
use crate::support::audit::Request;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::{enter, wait_until};
use crate::trial;

const OUTAGE: Duration = Duration::from_secs(30);
/// The longest wait of the gate, and a request that hangs.
const AFTER_RETURN: Duration = Duration::from_secs(30);
/// So long a refused agent is counted.
const REFUSED_FOR: Duration = Duration::from_secs(10);
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodevigil";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("api::outage", a_death_in_an_outage_is_told_when_it_ends),
        trial(
            "api::frozen",
            a_death_under_a_frozen_api_is_told_when_it_thaws,
        ),
        trial("api::stale_write", a_late_old_write_does_not_stay),
        trial("api::old_write", an_old_write_is_put_right),
        trial("api::node_made_anew", a_node_made_anew_is_written_again),
        trial("api::forbidden", a_refusal_is_said_once_and_tried_slowly),
        trial("api::unauthorized", a_bogus_token_is_said_once),
        trial("api::nobody_there", an_api_that_is_not_there_stalls_nothing),
    ]
}

fn a_death_in_an_outage_is_told_when_it_ends() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "outage")?.play(|scene| {
        scene.keep_dead()?;
        scene.plane.stop_apiserver();
        let stopped = Instant::now();
        scene.kill_kubelet()?;
        scene.status_file("the agent to know", |file| {
            file["conditions"][0]["reason"] == "KubeletCrashed"
                && file["api"]["state"] == "retrying"
        })?;
        std::thread::sleep(OUTAGE.saturating_sub(stopped.elapsed())); // the backoff has then grown to its cap
        let counted = scene.requests()?.len();
        scene.plane.start_apiserver()?;
        let returned = Instant::now();
        let told = scene.wait_for(stopped, "False", "KubeletCrashed")?;
        let late = told.at.saturating_duration_since(returned);
        ensure!(late < AFTER_RETURN, "told {late:?} after the API's return");
        scene.ensure_still(&told)?;
        let requests = scene.requests()?;
        let applies = applies(&requests[counted..]);
        ensure!(applies.len() == 1, "not one apply: {applies:#?}");
        let failed = scene.lines(Kind::PublishFailed)?;
        ensure!(
            failed.len() <= 2,
            "said once, and once more if it is refused on its return: {failed:#?}"
        );
        Ok(())
    })
}

fn a_death_under_a_frozen_api_is_told_when_it_thaws() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "frozen")?.play(|scene| {
        scene.keep_dead()?;
        scene.plane.pause_apiserver()?;
        let paused = Instant::now();
        scene.kill_kubelet()?;
        scene.status_file("the agent to give up a request", |file| {
            file["conditions"][0]["reason"] == "KubeletCrashed"
                && file["api"]["state"] == "retrying"
        })?;
        scene.plane.resume_apiserver()?;
        let resumed = Instant::now();
        let told = scene.wait_for(paused, "False", "KubeletCrashed")?;
        let late = told.at.saturating_duration_since(resumed);
        ensure!(late < AFTER_RETURN, "told {late:?} after the thaw");
        scene.ensure_still(&told)
    })
}

/// The frozen server has the `False` in its buffers when the kubelet is well again: it may carry it out after all.
fn a_late_old_write_does_not_stay() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "stale-write")?.play(|scene| {
        scene.plane.pause_apiserver()?;
        scene.kill_kubelet()?;
        scene.status_file("the agent to see it well again", |file| {
            file["conditions"][0]["status"] == "True" && file["api"]["state"] == "retrying"
        })?;
        scene.plane.resume_apiserver()?;
        scene.status_file("the agent to have published", |file| {
            file["api"]["state"] == "connected" && file["conditions"][0]["published_at"].is_string()
        })?;
        let from = Instant::now();
        std::thread::sleep(Duration::from_secs(5)); // what the server still carries out, it has by then
        wait_until("the Node to say True", SOON, || {
            let status = scene.node.condition_status(OURS)?;
            Ok((status.as_deref() == Some("True")).then_some(()))
        })
        .with_context(|| format!("{:#?}", scene.told_since(from)))
    })
}

/// As a write looks that the agent had given up and the network delivers minutes later.
fn an_old_write_is_put_right() -> Result<()> {
    Scene::healthy("old-write")?.play(|scene| {
        let before = scene.now()?;
        let requests = scene.requests()?;
        let last = requests.iter().rfind(|one| one.verb == "patch");
        let mut old = last.context("no write")?.clone();
        let condition = &mut old.body["status"]["conditions"][0];
        condition["status"] = "False".into();
        condition["reason"] = "KubeletCrashed".into();
        let from = Instant::now();
        let kind = "application/apply-patch+yaml";
        let (code, answer) = scene.plane.request("PATCH", &old.uri, kind, &old.body)?;
        ensure!(code == 200, "{code}: {answer}");
        let wrong = scene.wait_for(from, "False", "KubeletCrashed")?;
        let right = scene.wait_for(wrong.at, "True", "KubeletIsHealthy")?;
        ensure!(right.since == before.since, "{before:?}, then {right:?}");
        scene.ensure_still(&right)
    })
}

fn a_node_made_anew_is_written_again() -> Result<()> {
    Scene::healthy("made-anew")?.play(|scene| {
        let before = scene.now()?;
        let from = Instant::now();
        scene.plane.delete_node(scene.node.name())?;
        scene.status_file("the agent to miss the Node", |file| {
            file["api"]["state"] == "node-missing"
        })?;
        scene.node.sh("systemctl restart kubelet")?; // a kubelet registers when it starts, and only then
        let told = scene.wait_until_told(from, |told| told.uid != before.uid)?;
        ensure!(told.status == "True", "{told:?}");
        scene.ensure_only(told.at, &["True"])?;
        scene.crash_and_recover()
    })
}

fn a_refusal_is_said_once_and_tried_slowly() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "forbidden")?.play(|scene| {
        let pid = scene.node.main_pid(AGENT)?;
        let (_, binding) = scene.plane.get(BINDING)?;
        // What the agent learns in its first seconds is applied too, and may be the first that is refused.
        let counted = scene.requests()?.len();
        let (code, answer) =
            scene
                .plane
                .request("DELETE", BINDING, "application/json", &json!({}))?;
        ensure!(code == 200, "{code}: {answer}");
        may_patch(scene, false)?;
        let killed = scene.kill_kubelet()?.killed;
        std::thread::sleep(REFUSED_FOR); // the tries of that time are counted
        let requests = scene.requests()?;
        let mut tries = applies(&requests[counted..]);
        let taken = tries.iter().take_while(|one| one.code == 200).count();
        tries.drain(..taken); // before the authorizer knew
        ensure!((1..=2).contains(&tries.len()), "{tries:#?}");
        ensure!(tries.iter().all(|one| one.code == 403), "{tries:#?}");
        let failed = scene.lines(Kind::PublishFailed)?;
        ensure!(
            failed.len() == 1,
            "said {} times: {failed:#?}",
            failed.len()
        );
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        scene.ensure_only(killed, &["True"])?;
        grant(scene, binding)?;
        // It would find out by itself, in minutes; anew, it does at once.
        let from = Instant::now();
        scene.node.sh("systemctl restart nodevigil")?;
        scene.wait_until_told(from, |told| told.message.contains("pid"))?;
        Ok(())
    })
}

fn grant(scene: &Scene, mut binding: Value) -> Result<()> {
    binding["metadata"] = json!({"name": "nodevigil"});
    let (folder, _) = BINDING.rsplit_once('/').context("a path has a folder")?;
    let (code, answer) = scene
        .plane
        .request("POST", folder, "application/json", &binding)?;
    ensure!(code == 201, "{code}: {answer}");
    may_patch(scene, true)
}

/// Waits until the authorizer, which reads the bindings from a cache, allows the agent its write, or no longer does.
fn may_patch(scene: &Scene, wanted: bool) -> Result<()> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("nodevigil:{}", scene.node.name()),
            "groups": ["nodevigil-agents"],
            "resourceAttributes": {"verb": "patch", "resource": "nodes", "subresource": "status"},
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    wait_until("the authorizer to know", SOON, || {
        let (_, answer) = scene
            .plane
            .request("POST", path, "application/json", &review)?;
        Ok((answer["status"]["allowed"] == wanted).then_some(()))
    })
}

fn a_bogus_token_is_said_once() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let mut kubeconfig = plane.agent_kubeconfig("bogus-token")?;
    kubeconfig["users"][0]["user"] = json!({"token": "bogus"});
    with_kubeconfig(&plane, "bogus-token", &kubeconfig)?.play(|scene| {
        scene.node.start_agent()?;
        let pid = scene.node.main_pid(AGENT)?;
        let refused = scene.status_file("the agent to be refused", |file| {
            file["api"]["state"] == "retrying" && file["conditions"][0]["status"] == "True"
        })?;
        let error = refused["api"]["last_error"].to_string();
        ensure!(error.contains("401"), "{error}");
        std::thread::sleep(REFUSED_FOR); // the tries of that time are counted
        let failed = scene.lines(Kind::PublishFailed)?;
        ensure!(
            failed.len() == 1,
            "said {} times: {failed:#?}",
            failed.len()
        );
        let requests = scene.plane.audit()?;
        let path = "fieldSelector=metadata.name%3Dbogus-token";
        let tries = requests
            .iter()
            .filter(|one| one.code == 401 && one.uri.contains(path))
            .count();
        // Once as it was, once with the credential read anew; then a minute at least.
        ensure!((1..=2).contains(&tries), "{tries} tries");
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        Ok(())
    })
}

fn an_api_that_is_not_there_stalls_nothing() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let mut kubeconfig = plane.agent_kubeconfig("no-api")?;
    let nowhere = format!("https://{}:1", enter::ADDRESS);
    kubeconfig["clusters"][0]["cluster"]["server"] = Value::String(nowhere);
    with_kubeconfig(&plane, "no-api", &kubeconfig)?.play(|scene| {
        scene.node.start_agent()?;
        let pid = scene.node.main_pid(AGENT)?;
        scene.status_file("the agent to be refused", |file| {
            file["api"]["state"] == "retrying" && file["conditions"][0]["status"] == "True"
        })?;
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        scene.status_file("the crash", |file| {
            file["conditions"][0]["reason"] == "KubeletCrashed"
                && file["conditions"][0]["published_at"].is_null()
        })?;
        let failed = scene.lines(Kind::PublishFailed)?;
        ensure!(
            failed.len() == 1,
            "said {} times: {failed:#?}",
            failed.len()
        );
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        Ok(())
    })
}

/// A node whose agent is to use that kubeconfig instead of its own.
fn with_kubeconfig(plane: &Arc<ControlPlane>, name: &str, kubeconfig: &Value) -> Result<Scene> {
    let setting = "[kubernetes]\nkubeconfig = \"/etc/nodevigil/other\"\n";
    Scene::booted(plane, name, |node| {
        node.file("/etc/nodevigil/other", &kubeconfig.to_string(), 0o644)
            .config("60-kubeconfig.toml", setting)
    })
}

fn applies(requests: &[Request]) -> Vec<&Request> {
    requests.iter().filter(|one| one.verb == "patch").collect()
}
