//! As whom the agent speaks: as itself, as the kubelet, as nobody. Each is said once.

use std::time::Instant;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::Value;

use crate::audit::under_our_name;
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("identity::own", its_own_kubeconfig_comes_first),
        trial("identity::kubelet", the_kubelets_rotated_certificate_serves),
        trial("identity::none", without_one_it_stands_alone),
    ]
}

fn its_own_kubeconfig_comes_first() -> Result<()> {
    Scene::healthy("own-identity")?.play(|scene| {
        scene.crash_and_recover()?;
        ensure!(
            !writes_of(scene, "nodevigil:own-identity")?.is_empty(),
            "no write"
        );
        ensure!(
            writes_of(scene, "system:node:own-identity")?.is_empty(),
            "written as the kubelet"
        );
        said_once(scene, "own")
    })
}

/// Born by `kubeadm join`: the certificate is one that the cluster signed, in a file that only root may read.
fn the_kubelets_rotated_certificate_serves() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "kubelets-identity", NodeBuilder::joining)?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig")?;
        let reference = scene.node.read("/etc/kubernetes/kubelet.conf")?;
        ensure!(
            reference.contains("kubelet-client-current.pem"),
            "{reference}"
        );
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.crash_and_recover()?;
        let told = scene.kill_for_good()?;
        scene.ensure_still(&told)?;
        scene.revive()?;
        let user = "system:node:kubelets-identity";
        let writes = writes_of(scene, user)?;
        ensure!(writes.len() >= 5, "{writes:#?}"); // well, crash, well, crash, well
        ensure!(scene.requests()?.is_empty(), "as its own user");
        said_once(scene, "kubelet")
    })
}

fn without_one_it_stands_alone() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "standalone", |node| node)?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig
             systemctl mask nodevigil-helper.socket nodevigil-helper.service
             systemctl start nodevigil")?;
        let is = |file: &Value, reason: &str| {
            file["identity"]["kind"] == "none" && file["conditions"][0]["reason"] == reason
        };
        // Without the helper nobody can say where this kubelet's healthz is: it is none of the usual places.
        let file = scene.status_file("a verdict", |file| is(file, "KubeletStarting"))?;
        ensure!(file["api"]["state"] == "none", "{file:#}");
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        scene.status_file("the crash", |file| is(file, "KubeletCrashed"))?;
        ensure!(scene.requests()?.is_empty(), "it asked the API");
        said_once(scene, "none")
    })
}

fn said_once(scene: &Scene, kind: &str) -> Result<()> {
    let file = scene.node.status_json()?;
    ensure!(file["identity"]["kind"] == kind, "{file:#}");
    let lines = scene.lines(Kind::Identity)?;
    ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
    ensure!(lines[0]["IDENTITY"] == kind, "{:#}", lines[0]);
    Ok(())
}

/// What was applied under our name as that user.
fn writes_of(scene: &Scene, user: &str) -> Result<Vec<Value>> {
    let requests = scene.plane.audit()?;
    let ours = requests
        .into_iter()
        .filter(|one| one.user == user && one.verb == "patch" && under_our_name(one));
    Ok(ours.map(|one| one.body).collect())
}
