//! `nodevigil doctor` on a real node: all well, and what it says of each thing that is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{HELPER, SOON, Scene};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::node_builder::NodeBuilder;
use crate::support::{say, wait_until};
use crate::trial;

/// The promise, and a second for the process itself.
const ALWAYS: Duration = Duration::from_secs(16);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("doctor::healthy", all_is_well),
        trial("doctor::kubelets_identity", the_kubelets_identity_will_do),
        trial("doctor::without_helper", a_helper_that_is_away_or_hangs),
        trial("doctor::without_daemon", a_daemon_that_was_never_started),
        trial("doctor::taints", taints_by_either_identity),
        trial("doctor::in_the_cluster", rights_node_and_api_are_missed),
    ]
}

/// What doctor said.
struct Said {
    code: i32,
    lines: Vec<Value>,
    all: Value,
}

impl Said {
    fn state(&self, check: &str) -> &str {
        let line = self.lines.iter().find(|line| line["check"] == check);
        line.and_then(|line| line["state"].as_str()).unwrap_or("")
    }

    /// Fails unless the check failed, with these words, and doctor with it.
    fn misses(&self, check: &str, words: &str) -> Result<()> {
        let told = self.lines.iter().any(|line| {
            line["check"] == check
                && line["state"] == "fail"
                && (line["text"].to_string() + &line["advice"].to_string()).contains(words)
        });
        ensure!(told, "no failed {check} with `{words}`: {:#}", self.all);
        ensure!(self.code == 1, "exit code {}: {:#}", self.code, self.all);
        Ok(())
    }

    fn is_well(&self) -> Result<()> {
        let failed = self.lines.iter().any(|line| line["state"] == "fail");
        ensure!(self.code == 0 && !failed, "{}: {:#}", self.code, self.all);
        Ok(())
    }
}

/// Runs doctor as a user of the node.
fn doctor(scene: &Scene, user: &str) -> Result<Said> {
    let begun = Instant::now();
    let (code, output) = scene
        .node
        .run(&format!("runuser -u {user} -- nodevigil doctor --json"))?;
    let took = begun.elapsed();
    ensure!(took < ALWAYS, "doctor took {took:?}: {output}");
    let all: Value = serde_json::from_str(&output).with_context(|| output.clone())?;
    ensure!(
        all["version"] == 1 && all["user"]["name"] == user,
        "{all:#}"
    );
    let lines = all["checks"].as_array().context("checks")?.clone();
    Ok(Said { code, lines, all })
}

fn all_is_well() -> Result<()> {
    Scene::healthy("doctor")?.play(|scene| {
        let (code, text) = scene.node.run("nodevigil doctor")?;
        say(&text);
        ensure!(code == 0 && !text.contains("FAIL"), "{code}: {text}");
        ensure!(text.contains("user nodevigil:doctor"), "{text}");
        ensure!(!text.contains('\x1b'), "colours without a terminal: {text}");
        let said = doctor(scene, "root")?;
        said.is_well()?;
        for check in [
            "pidfd",
            "healthz",
            "sockets",
            "runtime",
            "evidence",
            "config",
            "daemon",
            "bus",
            "kmsg",
            "hung-tasks",
            "memory",
            "journal",
            "helper",
            "api",
            "identity",
            "node",
            "conditions",
            "events",
            "lease",
            "apply",
        ] {
            ensure!(said.state(check) == "ok", "{check}: {:#}", said.all);
        }
        // The agent's own user sees the same; another one says what it cannot see.
        let said = doctor(scene, "nodevigil")?;
        said.is_well()?;
        ensure!(said.state("apply") == "ok", "{:#}", said.all);
        let said = doctor(scene, "nobody")?;
        said.is_well()?;
        for check in ["helper", "identity"] {
            ensure!(said.state(check) == "skip", "{check}: {:#}", said.all);
        }
        // Nothing was changed by any of it.
        let (_, node) = scene.plane.get("/api/v1/nodes/doctor")?;
        ensure!(!node.to_string().contains("rehearsal"), "{node:#}");
        Ok(())
    })
}

fn the_kubelets_identity_will_do() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "doctor-kubelet", |node| node)?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig")?;
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        let said = doctor(scene, "root")?;
        said.is_well()?;
        let who = said.lines.iter().find(|line| line["check"] == "identity");
        let text = who.context("identity")?["text"].to_string();
        ensure!(text.contains("user system:node:doctor-kubelet"), "{text}");
        for check in ["conditions", "events", "lease", "apply"] {
            ensure!(said.state(check) == "ok", "{check}: {:#}", said.all);
        }
        Ok(())
    })
}

fn a_helper_that_is_away_or_hangs() -> Result<()> {
    Scene::healthy("doctor-helper")?.play(|scene| {
        scene.node.signal_unit(HELPER, Signal::SIGSTOP)?;
        let said = doctor(scene, "root")?;
        scene.node.signal_unit(HELPER, Signal::SIGCONT)?;
        said.misses("helper", "no answer within")?;
        scene
            .node
            .sh("systemctl stop nodevigil-helper.socket nodevigil-helper.service")?;
        let said = doctor(scene, "root")?;
        said.misses("helper", "nodevigil-helper.socket")?;
        ensure!(said.state("apply") == "ok", "{:#}", said.all);
        Ok(())
    })
}

fn a_daemon_that_was_never_started() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let bad = "[kubelet]\nunti = \"x\"\n";
    let scene = Scene::booted(&plane, "doctor-daemon", |node| {
        node.config("90-bad.toml", bad)
    })?;
    scene.play(|scene| {
        scene.node.sh("systemctl start nodevigil-helper.socket")?;
        let said = doctor(scene, "root")?;
        said.misses("daemon", "systemctl start nodevigil")?;
        said.misses("config", "90-bad.toml")
    })
}

fn taints_by_either_identity() -> Result<()> {
    let wanted = "[taints]\nconditions = [\"KubeletHealthy\"]\n";
    let change = |node: NodeBuilder| node.config("60-taints.toml", wanted);
    Scene::healthy_with("doctor-taints", change)?.play(|scene| {
        let said = doctor(scene, "root")?;
        said.is_well()?;
        ensure!(said.state("taints") == "ok", "{:#}", said.all);
        // An effect that the policy does not let through.
        let evicting = "/etc/nodevigil/config.d/70-evicting.toml";
        scene.node.sh(&format!(
            "printf '[taints]\\neffect = \"NoExecute\"\\n' >{evicting}"
        ))?;
        doctor(scene, "root")?.misses("taints", "listed effects only")?;
        scene.node.sh(&format!(
            "rm {evicting} /etc/nodevigil/kubeconfig; systemctl restart nodevigil"
        ))?;
        doctor(scene, "root")?.misses("taints", "NodeRestriction")
    })
}

/// On a control plane of its own, which it takes apart.
fn rights_node_and_api_are_missed() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    Scene::healthy_on(&plane, "doctor-cluster")?.play(|scene| {
        doctor(scene, "root")?.is_well()?;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for binding in [
            "clusterrolebindings/nodevigil",
            "namespaces/default/rolebindings/nodevigil-events",
        ] {
            delete(&scene.plane, &format!("{rbac}/{binding}"))?;
        }
        let said = wait_for_doctor(scene, "the rights to be gone", |said| {
            said.state("events") == "fail" && said.state("conditions") == "fail"
        })?;
        for check in ["node", "conditions", "events"] {
            said.misses(check, "packaging/kubernetes/rbac.yaml")?;
        }
        ensure!(said.state("apply") == "skip", "{:#}", said.all);
        scene.plane.pause_apiserver()?;
        doctor(scene, "root")?.misses("api", "no answer within")?;
        scene.plane.resume_apiserver()?;
        scene.plane.stop_apiserver();
        doctor(scene, "root")?.misses("api", "cannot be reached")
    })
}

fn wait_for_doctor(scene: &Scene, what: &str, wanted: impl Fn(&Said) -> bool) -> Result<Said> {
    wait_until(what, SOON, || {
        let said = doctor(scene, "root")?;
        Ok(wanted(&said).then_some(said))
    })
}

fn delete(plane: &Arc<ControlPlane>, path: &str) -> Result<()> {
    let (code, answer) = plane.request("DELETE", path, "application/json", &json!({}))?;
    ensure!(code == 200, "DELETE {path} answered {code}: {answer}");
    Ok(())
}
