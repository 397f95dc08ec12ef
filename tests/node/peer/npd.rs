//! node-problem-detector on a node of ours: its own configuration files, one word of them changed.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::scene::{SOON, Scene};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::{enter, tools};

pub(crate) const UNIT: &str = "node-problem-detector.service";
pub(crate) const USER: &str = "node-problem-detector";
/// Its condition; `True` is bad.
pub(crate) const THEIRS: &str = "KubeletUnhealthy";
/// How often its shipped configuration has it ask the kubelet.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
const FOLDER: &str = "/home/kubernetes/node-problem-detector/config";
const KERNEL: &str = "kernel-monitor.json";
const KUBELET: &str = "health-checker-kubelet.json";
const KUBECONFIG: &str = "/etc/node-problem-detector/kubeconfig";
/// The role that every API server has for it.
const ROLE: &str = "system:node-problem-detector";

/// What a node needs to run it.
pub(crate) struct Package {
    programs: [PathBuf; 2],
    /// Those of its release, with repair off: else it would kill the kubelet.
    files: [(String, String); 2],
    kubeconfig: String,
}

impl Package {
    pub(crate) fn new(plane: &Arc<ControlPlane>) -> Result<Self> {
        let shipped = |name: &str| {
            let path = tools::peer(name)?;
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let kubelet = shipped(KUBELET)?;
        let (on, off) = ("--enable-repair=true", "--enable-repair=false");
        ensure!(
            kubelet.contains(on) && kubelet.contains(r#""invoke_interval": "10s""#),
            "not the file that we know: {kubelet}"
        );
        Ok(Self {
            programs: [
                tools::peer("nodeproblemdetector")?,
                tools::peer("healthchecker")?,
            ],
            files: [
                (format!("{FOLDER}/{KERNEL}"), shipped(KERNEL)?),
                (format!("{FOLDER}/{KUBELET}"), kubelet.replace(on, off)),
            ],
            kubeconfig: plane.kubeconfig(USER, &[], enter::ADDRESS)?.to_string(),
        })
    }

    /// Installs it on a node.
    pub(crate) fn onto(&self, node: NodeBuilder) -> NodeBuilder {
        let node = self
            .programs
            .iter()
            .fold(node, |node, program| node.program(program.clone()));
        let node = self
            .files
            .iter()
            .fold(node, |node, (path, text)| node.file(path, text, 0o644));
        node.file(KUBECONFIG, &self.kubeconfig, 0o600)
    }

    /// Bytes of its programs.
    pub(crate) fn size(&self) -> Result<u64> {
        let sizes = self
            .programs
            .iter()
            .map(|program| Ok(program.metadata()?.len()));
        sizes.sum()
    }
}

/// It runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// When it was started, which its period counts from.
    pub(crate) started: Instant,
    /// The port of its metrics.
    pub(crate) metrics: u16,
}

/// Starts it as a unit; returns when it has said that all is well.
pub(crate) fn start(scene: &Scene) -> Result<Running> {
    grant(&scene.plane)?;
    let (name, url) = (scene.node.name(), scene.plane.url());
    let (server, metrics) = (enter::port(), enter::port());
    let kubelet = scene.node.ports().healthz;
    // As its own unit (config/systemd), with the exporter to Kubernetes and without that to Stackdriver.
    let unit = format!(
        "[Service]\nRestart=always\nRestartSec=10\nEnvironment=KUBELET_PORT={kubelet}\n\
         ExecStart=/home/kubernetes/bin/node-problem-detector --logtostderr --hostname-override={name} \
         --apiserver-override={url}?inClusterConfig=false&auth={KUBECONFIG} \
         --config.system-log-monitor={FOLDER}/{KERNEL} --config.custom-plugin-monitor={FOLDER}/{KUBELET} \
         --port={server} --prometheus-port={metrics}\n"
    );
    let from = Instant::now();
    scene.node.sh(&format!(
        "mkdir -p /home/kubernetes/bin
         ln -s /usr/bin/nodeproblemdetector /home/kubernetes/bin/node-problem-detector
         ln -s /usr/bin/healthchecker /home/kubernetes/bin/health-checker
         cat >/run/systemd/system/{UNIT} <<'END'\n{unit}END\n
         systemctl daemon-reload
         systemctl start {UNIT}"
    ))?;
    let well = scene.watch.wait_since(from, SOON, |event| {
        condition_status(event, THEIRS) == Some("False")
    });
    well.with_context(|| log(scene))?;
    Ok(Running {
        started: from,
        metrics,
    })
}

/// The end of its journal.
pub(crate) fn log(scene: &Scene) -> String {
    let tail = format!("journalctl --no-pager -o cat -n 20 -u {UNIT}");
    scene.node.run(&tail).unwrap_or_default().1
}

fn grant(plane: &ControlPlane) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
    });
    let path = format!("/apis/{group}/v1/clusterrolebindings");
    let (code, answer) = plane.request("POST", &path, "application/json", &binding)?;
    ensure!(
        code == 201 || code == 409,
        "{path} answered {code}: {answer}"
    );
    Ok(())
}
