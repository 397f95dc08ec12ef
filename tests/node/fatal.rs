//! What a rule calls fatal is fatal: the real kubelet, given that flag or that configuration, fails as the rule says.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::check::{findings, report};
use crate::scene::{SOON, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::wait_until;
use crate::trial;

const DEFAULTS: &str = "/etc/default/kubelet";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("fatal::all", what_is_called_fatal_is_fatal)]
}

/// A change that a rule calls fatal, and the kubelet's (or systemd's) own words when it then fails.
struct Fatal {
    rule: &'static str,
    /// Done before the kubelet is started, undone by `undo`.
    change: &'static str,
    undo: &'static str,
    says: &'static str,
}

/// Every rule whose fatal end can be had on a test machine. Not to be had: swap (KN001), for it would
/// be the whole machine's. Not tried: a certificate that has expired (AU002), kernel settings
/// (KN004).
const FATAL: &[Fatal] = &[
    Fatal {
        rule: "FL002",
        change: "echo 'KUBELET_EXTRA_ARGS=--pod-infra-container-image=registry.k8s.io/pause:3.10' >/etc/default/kubelet",
        undo: "",
        says: "unknown flag: --pod-infra-container-image",
    },
    Fatal {
        rule: "FL001",
        change: "echo 'KUBELET_EXTRA_ARGS=--node-labls=a=b' >/etc/default/kubelet",
        undo: "",
        says: "unknown flag: --node-labls",
    },
    Fatal {
        rule: "FL004",
        change: "echo 'KUBELET_EXTRA_ARGS=--max-pods=many' >/etc/default/kubelet",
        undo: "",
        says: "invalid argument",
    },
    Fatal {
        rule: "SD016",
        change: "printf 'KUBELET_EXTRA_ARGS=\"--v=1 \\\\\\\\ --max-pods=50\"\\n' >/etc/default/kubelet",
        undo: "",
        says: "unknown command",
    },
    Fatal {
        rule: "CL009",
        change: "echo 'KUBELET_EXTRA_ARGS=--node-labels=node-role.kubernetes.io/worker=' >/etc/default/kubelet",
        undo: "",
        says: "unknown 'kubernetes.io' or 'k8s.io' labels",
    },
    Fatal {
        rule: "RT005",
        change: "sed -i 's/\"failCgroupV1\":false/\"failCgroupV1\":true/' /var/lib/kubelet/config.yaml",
        undo: "sed -i 's/\"failCgroupV1\":true/\"failCgroupV1\":false/' /var/lib/kubelet/config.yaml",
        says: "cgroup v1",
    },
    Fatal {
        rule: "RT001",
        change: "systemctl stop containerd",
        undo: "systemctl start containerd",
        says: "/run/containerd/containerd.sock",
    },
    Fatal {
        rule: "RT002",
        change: "sed -i '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' /etc/containerd/config.toml; systemctl restart containerd",
        undo: "sed -i 1d /etc/containerd/config.toml; systemctl restart containerd",
        says: "unknown service runtime.v1.RuntimeService",
    },
    Fatal {
        rule: "CF001",
        change: "mv /var/lib/kubelet/config.yaml /var/lib/kubelet/config.away",
        undo: "mv /var/lib/kubelet/config.away /var/lib/kubelet/config.yaml",
        says: "/var/lib/kubelet/config.yaml",
    },
    Fatal {
        rule: "AU001",
        change: "mv /etc/kubernetes/kubelet.conf /etc/kubernetes/away.conf",
        undo: "mv /etc/kubernetes/away.conf /etc/kubernetes/kubelet.conf",
        says: "/etc/kubernetes/bootstrap-kubelet.conf",
    },
    Fatal {
        rule: "SD012",
        change: "mkdir -p /etc/systemd/system/kubelet.service.d; printf '[Service]\\nEnvironmentFile=/etc/nothing.env\\n' >/etc/systemd/system/kubelet.service.d/60-x.conf; systemctl daemon-reload",
        undo: "rm /etc/systemd/system/kubelet.service.d/60-x.conf; systemctl daemon-reload",
        says: "Failed with result 'resources'",
    },
    Fatal {
        rule: "SD008",
        change: "printf '[Service]\\nExecStart=/usr/bin/kubelet --v=1\\n' >/etc/systemd/system/kubelet.service.d/60-x.conf; systemctl daemon-reload",
        undo: "rm /etc/systemd/system/kubelet.service.d/60-x.conf; systemctl daemon-reload",
        says: "more than one ExecStart=",
    },
    Fatal {
        rule: "SD019",
        change: "systemctl mask --runtime kubelet",
        undo: "systemctl unmask --runtime kubelet",
        says: "masked",
    },
];

fn what_is_called_fatal_is_fatal() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, "check-fatal", |builder| {
        builder
            .without_kubelet()
            .restart_sec(Duration::from_mins(5))
    })?;
    scene.play(|scene| {
        let defaults = scene.node.sh("cat /etc/default/kubelet")?;
        for fatal in FATAL {
            is_fatal(&scene.node, fatal).with_context(|| fatal.rule)?;
            scene.node.sh(&format!(
                "{}\nprintf %s '{defaults}' >{DEFAULTS}",
                fatal.undo
            ))?;
        }
        // What is left is good: the same kubelet starts.
        scene
            .node
            .sh("systemctl reset-failed kubelet; systemctl start kubelet")?;
        scene.node.wait_ready(Duration::from_mins(1)).map(|_| ())
    })
}

fn is_fatal(node: &Node, fatal: &Fatal) -> Result<()> {
    node.sh(fatal.change)?;
    let report = report(node, "")?;
    let found = findings(&report).any(|f| f["rule"] == fatal.rule && f["severity"] == "fatal");
    ensure!(found, "not called fatal: {:#}", report["findings"]);
    let cursor = node.sh("journalctl -n 0 --show-cursor -o cat | sed -n 's/^-- cursor: //p'")?;
    let started = node.run("systemctl start kubelet")?;
    let mut said = String::new();
    let failed = wait_until("the kubelet to fail", SOON, || {
        let down = node.run("systemctl is-active kubelet")?.0 != 0;
        let log = node.sh(&format!(
            "journalctl --no-pager -o cat --after-cursor='{}' -u kubelet",
            cursor.trim()
        ))?;
        said = format!("{log}{}", started.1);
        Ok((down && said.contains(fatal.says)).then_some(()))
    });
    node.run("systemctl stop kubelet; systemctl reset-failed kubelet")?;
    failed.with_context(|| format!("what it said:\n{said}"))
}
