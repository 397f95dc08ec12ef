//! An update that is refused because somebody else came between.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{AGENT, SOON, Scene};
use crate::support::audit::Request;
use crate::support::control_plane::ControlPlane;
use crate::support::proxy::Proxy;
use crate::support::proxy::fault::Fault;
use crate::support::{enter, say, wait_until};
use crate::trial;

/// From a refused write until the one that counts.
const RETRIED: Duration = Duration::from_secs(5);
const OUR_TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-kubelet-unhealthy";
const MERGE: &str = "application/merge-patch+json";

/// The tests of this topic.
pub(super) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "lost_nodes::conflict_does_not_stick",
            conflict_does_not_stick,
        ),
        trial(
            "lost_nodes::taint_conflict_does_not_stick",
            taint_conflict_does_not_stick,
        ),
    ]
}

/// The Node is made anew, and our agent does not hear of it: its watch is silent. Its next write is refused (422, for
/// the uid), and that must be enough to look again.
fn conflict_does_not_stick() -> Result<()> {
    let (scene, proxy) = behind_proxy("conflict", "")?;
    scene.play(|scene| {
        let before = scene.now()?;
        let from = scene.requests()?.len();
        let silent = proxy.set(Some(Fault::Hold("watch")));
        // Still until the next Node is there: a write in between would find none.
        scene.node.signal_unit(AGENT, Signal::SIGSTOP)?;
        scene.plane.delete_node(scene.node.name())?;
        scene.node.sh("systemctl restart kubelet")?; // registers it anew; its pid is news for our condition
        scene.node.wait_ready(SOON)?;
        scene.node.signal_unit(AGENT, Signal::SIGCONT)?;
        let told = scene.wait_until_told(silent, |told| told.uid != before.uid)?;
        let late = retried(scene, from, "/status?", "list")?;
        proxy.set(None);
        ensure!(told.status == "True", "{told:?}");
        say(&format!(
            "conflict_does_not_stick: written {late:?} after the refusal"
        ));
        scene.crash_and_recover()
    })
}

/// Somebody else changes the Node's taints between our read and our write, each time.
fn taint_conflict_does_not_stick() -> Result<()> {
    let settings = "[taints]\nconditions = [\"KubeletHealthy\"]\n";
    let (scene, proxy) = behind_proxy("taint-conflict", settings)?;
    scene.play(|scene| {
        for round in 0..3 {
            for tainted in [true, false] {
                let from = scene.requests()?.len();
                let came = proxy.traffic().requests.len();
                proxy.set(Some(Fault::Hold("patch")));
                if tainted {
                    scene.kill_for_good()?;
                } else {
                    scene.revive()?;
                }
                wait_until("our write of the taints", SOON, || {
                    let requests = proxy.traffic().requests.split_off(came);
                    Ok(requests.iter().any(|one| one.kind == "patch").then_some(()))
                })?;
                let rival = format!("racing.test/{round}-{tainted}");
                add_taint(scene, &rival)?;
                proxy.set(None);
                wait_until("our taint as it should be", SOON, || {
                    Ok((taints(scene)?.contains(&OUR_TAINT.to_owned()) == tainted).then_some(()))
                })?;
                ensure!(taints(scene)?.contains(&rival), "we took {rival} away");
                let late = retried(scene, from, "fieldManager=", "get")?;
                say(&format!(
                    "taint_conflict_does_not_stick: written {late:?} after the 422"
                ));
            }
        }
        Ok(())
    })
}

/// A healthy node whose agent reaches the API server through a proxy.
fn behind_proxy(name: &str, settings: &str) -> Result<(Scene, Proxy)> {
    let plane = ControlPlane::shared()?;
    let identity = plane.agent_kubeconfig(name)?;
    let proxy = Proxy::start(&plane, &identity, enter::ADDRESS)?;
    let kubeconfig = proxy.kubeconfig(&identity)?.to_string();
    let settings = format!("[kubernetes]\nkubeconfig = \"/etc/nodevigil/other\"\n{settings}");
    let scene = Scene::healthy_with(name, |node| {
        node.file("/etc/nodevigil/other", &kubeconfig, 0o644)
            .config("60-proxy.toml", &settings)
    })?;
    Ok((scene, proxy))
}

/// The same of the requests after the first `from`, once the audit log has them.
fn retried(scene: &Scene, from: usize, path: &str, read: &str) -> Result<Duration> {
    let mut last = None;
    let found = wait_until("one refusal, a reading, and a write", RETRIED, || {
        let requests = scene.requests()?.split_off(from);
        last = Some(
            retried_once(&requests, path, 422, read).with_context(|| format!("{requests:#?}")),
        );
        Ok(last.as_ref().and_then(|last| last.as_ref().ok().copied()))
    });
    found.or_else(|late| last.unwrap_or(Err(late)))
}

/// Fails unless our write was refused with that code once, then the Node was read, then the write went through; returns
/// how long after the refusal.
fn retried_once(requests: &[Request], path: &str, code: u16, read: &str) -> Result<Duration> {
    let is_write = |one: &&Request| one.verb == "patch" && one.uri.contains(path);
    let writes: Vec<&Request> = requests
        .iter()
        .filter(is_write)
        .filter(|one| path == "/status?" || !one.uri.contains("/status?"))
        .skip_while(|one| one.code == 200) // the log may be behind: what was written before
        .collect();
    let codes: Vec<u16> = writes.iter().map(|one| one.code).collect();
    ensure!(codes.starts_with(&[code, 200]), "{codes:?}");
    ensure!(
        codes.iter().filter(|one| **one == code).count() == 1,
        "{codes:?}"
    );
    let (refused, done) = (writes[0].at, writes[1].at);
    let read_between = requests
        .iter()
        .any(|one| one.verb == read && one.at > refused && one.at < done);
    ensure!(read_between, "it was not read anew");
    let late = Duration::try_from(done.duration_since(refused)).context("in their order")?;
    ensure!(late < RETRIED, "{late:?} later");
    Ok(late)
}

fn add_taint(scene: &Scene, key: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{}", scene.node.name());
    let node = scene.plane.node(scene.node.name())?.context("no Node")?;
    let mut taints = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    taints.push(json!({"key": key, "effect": "PreferNoSchedule"}));
    let body = json!({
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": taints},
    });
    let (code, answer) = scene.plane.request("PATCH", &path, MERGE, &body)?;
    ensure!(code == 200, "{code}: {answer}");
    Ok(())
}

fn taints(scene: &Scene) -> Result<Vec<String>> {
    let node: Value = scene.plane.node(scene.node.name())?.context("no Node")?;
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    Ok(taints
        .filter_map(|taint| taint["key"].as_str())
        .map(str::to_owned)
        .collect())
}
