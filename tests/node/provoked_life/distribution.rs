//! Kubelets that are run as other distributions run them: as a child, and inside another program.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::rows::row;

/// What stands in for another distribution's program: `name` is the unit and the process's name, `run` its script.
fn other_distribution(node: NodeBuilder, name: &str, start: &str, script: &str) -> NodeBuilder {
    let unit = format!("[Service]\nExecStart={start}\nRestart=always\nRestartSec=100ms\n");
    node.file(&format!("/etc/systemd/system/{name}.service"), &unit, 0o644)
        .file(&format!("/usr/local/bin/{name}"), script, 0o755)
        .without_kubelet()
        .start(&format!("{name}.service"))
        // As where the package was never installed.
        .file("/etc/systemd/system/kubelet.service", "", 0o644)
}

/// k0s starts the kubelet as its child, and anew five seconds after its end; here the parent is a script of that name.
pub(super) fn a_child_is_named_with_its_parent() -> Result<()> {
    let script = "#!/bin/sh\n. /etc/default/kubelet\nwhile :; do\n/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf \
        --config=/var/lib/kubelet/config.yaml $KUBELET_EXTRA_ARGS\nsleep 3\ndone\n";
    let script = script.replace(
        ". /etc/default/kubelet",
        "KUBELET_EXTRA_ARGS=$(sed 's/^[^=]*=//' /etc/default/kubelet)",
    );
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "child", |node| {
        let node = other_distribution(node, "k0sworker", "/usr/local/bin/k0s", "");
        node.file("/usr/local/bin/k0s", &script, 0o755)
    })?;
    scene.start()?.play(|scene| {
        let told = scene.now()?;
        ensure!(told.message.contains("a child of k0s,"), "{told:?}");
        let status = scene.node.sh("nodevigil status")?;
        ensure!(
            status.contains(
                "k0sworker.service, a child of k0s (its unit tells nothing of the kubelet)"
            ),
            "{status}"
        );
        let pid = scene.node.sh("pgrep -x kubelet")?;
        let from = Instant::now();
        scene.node.sh(&format!("kill -KILL {pid}"))?;
        let told = scene.wait_for(from, "False", "KubeletGone")?;
        ensure!(
            told.message.contains("its unit tells of k0s alone"),
            "{told:?}"
        );
        row(
            "crash of a child, as of RKE2 and k0s",
            "`kill -9` of the kubelet, a script named k0s its parent",
            "KubeletGone",
            told.at - from,
        );
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        // What the operator stops is his all the same.
        let from = Instant::now();
        scene.node.sh("systemctl stop k0sworker")?;
        scene.wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
        scene.ensure_only(from, &["True", "Unknown"])
    })
}

/// As in k3s: the process has another name, and what is known is that process and healthz; here it is the kubelet itself
/// under that name.
pub(super) fn a_kubelet_inside_is_named_so() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "inside", |node| {
        let start = "/bin/sh -c 'cp /usr/bin/kubelet /run/k3s-agent; exec /run/k3s-agent --kubeconfig=/etc/kubernetes/kubelet.conf \
            --config=/var/lib/kubelet/config.yaml $$(sed s/^[^=]*=// /etc/default/kubelet)'";
        other_distribution(node, "k3s-agent", start, "")
    })?;
    // Its arguments are not on a kubelet's command line.
    let url = format!("http://127.0.0.1:{}/healthz", scene.node.ports().healthz);
    let config = format!("[kubelet]\nhealthz_url = \"{url}\"\n");
    scene.node.sh(&format!(
        "echo '{config}' >/etc/nodevigil/config.d/60-url.toml"
    ))?;
    scene.start()?.play(|scene| {
        let told = scene.now()?;
        ensure!(told.message.contains("k3s-agent pid"), "{told:?}");
        ensure!(told.message.contains("with the kubelet inside"), "{told:?}");
        let from = Instant::now();
        scene.node.sh("systemctl kill --signal=KILL k3s-agent")?;
        let told = scene.wait_for(from, "False", "KubeletCrashed")?;
        ensure!(
            told.message
                .contains("with the kubelet inside, was killed by SIGKILL"),
            "{told:?}"
        );
        row(
            "crash of a program with the kubelet inside, as k3s",
            "`kill -9` of a kubelet named k3s-agent, in the unit of that name",
            "KubeletCrashed",
            told.at - from,
        );
        scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        Ok(())
    })
}
