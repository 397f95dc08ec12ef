//! `[kubernetes] kubelet_identity = false`.

use anyhow::{Result, ensure};

use super::{said_once, writes_of};
use crate::hostile;
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;

/// The helper is not asked, and hands nothing over to whoever asks all the same.
pub(super) fn the_kubelets_is_refused_by_configuration() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "not-lent", |node| node)?;
    scene.play(|scene| {
        scene.node.sh(
            "rm /etc/nodevigil/kubeconfig
             printf '[kubernetes]\nkubelet_identity = false\n' >/etc/nodevigil/config.d/70-not-lent.toml
             systemctl start nodevigil",
        )?;
        let file = scene.status_file("a verdict without an identity", |file| {
            file["identity"]["kind"] == "none"
                && file["conditions"][0]["reason"] == "KubeletIsHealthy"
        })?;
        let detail = file["identity"]["detail"].as_str().unwrap_or_default();
        ensure!(detail.contains("kubelet_identity = false"), "{file:#}");
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        scene.status_file("the crash", |file| {
            file["conditions"][0]["reason"] == "KubeletCrashed"
        })?;
        ensure!(scene.requests()?.is_empty(), "it asked the API");
        let user = "system:node:not-lent";
        ensure!(writes_of(scene, user)?.is_empty(), "as the kubelet");
        let journal = scene.node.sh("journalctl --no-pager -u nodevigil-helper")?;
        ensure!(!journal.contains("credential handed out"), "{journal}");
        let refused = hostile::ask(scene, r#"{"version":2,"verb":"credential"}"#)?.to_string();
        ensure!(refused.contains("kubelet_identity = false"), "{refused}");
        let (_, doctor) = scene.node.run("nodevigil doctor")?;
        ensure!(doctor.contains("kubelet_identity = false"), "{doctor}");
        said_once(scene, "none")
    })
}
