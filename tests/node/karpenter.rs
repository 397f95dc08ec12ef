//! Karpenter's node health controller, the real one (tests/cluster/karpenter), with a repair policy on our condition.
//!
//! It takes a broken machine away at `lastTransitionTime` plus the policy's toleration, without asking anybody: so that
//! time must be the first flip's, and nothing but a broken kubelet may be `False`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agent::restart;
use crate::scene::{KUBELET, OURS, SOON, Scene, Told};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::process::Daemon;
use crate::support::{say, tools, wait_until};
use crate::trial;

/// Thirty minutes on AWS.
const TOLERATION: Duration = Duration::from_secs(12);
/// Of which a second is that the transition time has whole seconds.
const LATE: Duration = Duration::from_secs(3);
const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const MERGE: &str = "application/merge-patch+json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("karpenter::repair", a_broken_node_is_repaired_on_time),
        trial("karpenter::no_repair", what_is_no_fault_is_not_repaired),
    ]
}

/// The repair's clock starts at the first flip: neither another reason nor a restart of the agent sets it back.
fn a_broken_node_is_repaired_on_time() -> Result<()> {
    let (scene, karpenter) = managed("repaired")?;
    scene.play(|scene| {
        let hung = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
        let first = scene.wait_for(hung, "False", "KubeletHung")?;
        let told = scene.kill_for_good()?;
        restart(scene, "systemctl restart nodevigil")?;
        scene.ensure_no_flip(&first)?;
        ensure!(told.since == first.since, "{first:?}, then {told:?}");
        let late = karpenter.repaired(&first)?;
        say(&format!(
            "karpenter: repaired {:.1} s after the first flip and its {TOLERATION:?}, over {} and {} and a restart of the agent",
            late.as_secs_f64(), first.reason, told.reason,
        ));
        Ok(())
    })
}

/// Healthy, stopped by the operator, or broken for less than the toleration.
fn what_is_no_fault_is_not_repaired() -> Result<()> {
    let (scene, karpenter) = managed("not-repaired")?;
    scene.play(|scene| {
        scene.node.sh("systemctl stop kubelet")?;
        std::thread::sleep(TOLERATION + LATE); // that nothing happens shows in nothing but time
        let now = scene.now()?;
        ensure!(now.status == "Unknown", "{now:?}");
        ensure!(karpenter.deleted_at()?.is_none(), "repaired while {now:?}");
        scene.revive()?;
        scene.crash_and_recover()?;
        std::thread::sleep(TOLERATION + LATE);
        let now = scene.now()?;
        ensure!(now.status == "True", "{now:?}");
        ensure!(karpenter.deleted_at()?.is_none(), "repaired while {now:?}");
        // It was there all the time, and would have done it.
        let told = scene.kill_for_good()?;
        karpenter.repaired(&told)?;
        Ok(())
    })
}

/// The controller, and the claim behind its one node.
struct Karpenter {
    plane: Arc<ControlPlane>,
    claim: String,
    daemon: Daemon,
}

/// A healthy node that Karpenter has in its care, on a control plane of its own.
fn managed(name: &str) -> Result<(Scene, Karpenter)> {
    let plane = ControlPlane::start(Options::default())?;
    let karpenter = Karpenter::start(&plane, name)?;
    let scene = Scene::healthy_on(&plane, name)?;
    karpenter.take_into_care(name)?;
    Ok((scene, karpenter))
}

impl Karpenter {
    /// Starts the controller and makes a claim; returns when Karpenter's types are served.
    fn start(plane: &Arc<ControlPlane>, name: &str) -> Result<Self> {
        let kubeconfig = plane.folder().join("karpenter.conf");
        let admin = plane.kubeconfig("karpenter", &["system:masters"], "127.0.0.1")?;
        std::fs::write(&kubeconfig, admin.to_string()).context("writing a kubeconfig")?;
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--policy={OURS}=False={}s", TOLERATION.as_secs()),
        ];
        let program = tools::consumer("karpenter/karpenter")?;
        let mut daemon = Daemon::start(plane.folder(), "karpenter", &program, &arguments)?;
        wait_until("Karpenter's types", SOON, || {
            daemon.check()?;
            Ok((plane.get(CLAIMS)?.0 == 200).then_some(()))
        })?;
        let claim = format!("{CLAIMS}/{name}");
        Ok(Self {
            plane: Arc::clone(plane),
            claim,
            daemon,
        })
    }

    /// Makes a claim for the Node, with a finalizer: so it stays to be looked at.
    fn take_into_care(&self, name: &str) -> Result<()> {
        let provider_id = format!("nodevigil://{name}");
        let labels = json!({"karpenter.sh/nodepool": "pool", "nodevigil.test/testclass": "class"});
        let claim = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": labels, "finalizers": ["nodevigil.test/keep"]},
            "spec": {
                "nodeClassRef": {"group": "nodevigil.test", "kind": "TestClass", "name": "class"},
                "requirements": [],
            },
        });
        self.send("POST", CLAIMS, "application/json", &claim)?;
        let status = json!({"status": {"providerID": provider_id}});
        self.send("PATCH", &format!("{}/status", self.claim), MERGE, &status)?;
        let node = json!({"metadata": {"labels": labels}, "spec": {"providerID": provider_id}});
        self.send("PATCH", &format!("/api/v1/nodes/{name}"), MERGE, &node)
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
        let (code, answer) = self.plane.request(method, path, kind, body)?;
        ensure!(code < 300, "{method} {path} answered {code}: {answer}");
        Ok(())
    }

    /// When the claim was deleted, if it was.
    fn deleted_at(&self) -> Result<Option<Timestamp>> {
        let (code, claim) = self.plane.get(&self.claim)?;
        ensure!(code == 200, "{code}: {claim}");
        let text = claim
            .pointer("/metadata/deletionTimestamp")
            .and_then(Value::as_str);
        Ok(text.map(str::parse).transpose()?)
    }

    /// Waits for the repair of what `told` said; returns how late it came, and fails if that is too late, or too early.
    fn repaired(&self, told: &Told) -> Result<Duration> {
        let since: Timestamp = told.since.parse().context("lastTransitionTime")?;
        let due = since + TOLERATION;
        let deleted = wait_until("the repair", TOLERATION + SOON, || {
            let deleted = self.deleted_at()?;
            Ok(deleted.map(|at| (at, Timestamp::now())))
        });
        let (at, seen) = deleted.with_context(|| self.daemon.tail())?;
        ensure!(at >= due, "repaired at {at}, and due at {due}");
        let late = Duration::try_from(seen.duration_since(due))
            .context("it was seen before it was due")?;
        ensure!(late < LATE, "repaired {late:?} late");
        Ok(late)
    }
}
