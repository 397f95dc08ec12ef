//! node-problem-detector on a node, for the bench: the configuration files of its release, with repair disabled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::scene::ObservedNode;
use crate::support::control_plane::ControlPlane;
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, programs};

pub const UNIT: &str = "node-problem-detector.service";
const USER: &str = "node-problem-detector";
/// Its condition; `True` is bad.
const CONDITION: &str = "KubeletUnhealthy";
const DIRECTORY: &str = "/home/kubernetes/node-problem-detector/config";
const KERNEL: &str = "kernel-monitor.json";
const KUBELET: &str = "health-checker-kubelet.json";
const KUBECONFIG: &str = "/etc/node-problem-detector/kubeconfig";

/// What a node needs to run it.
#[derive(Debug)]
pub struct Package {
    files: Vec<(String, String)>,
    layers: Vec<PathBuf>,
    server: String,
}

impl Package {
    /// Its programs and files are in the directory that `NODEVIGIL_PEER` names.
    pub fn new(plane: &ControlPlane) -> Result<Self> {
        let directory = std::env::var_os("NODEVIGIL_PEER").context("NODEVIGIL_PEER is not set: run `make bench`")?;
        let directory = Path::new(&directory);
        let read = |name: &str| fs::read_to_string(directory.join(name)).with_context(|| format!("reading {name}"));
        let kubelet = read(KUBELET)?;
        let (on, off) = ("--enable-repair=true", "--enable-repair=false");
        ensure!(kubelet.contains(on), "{KUBELET} has no {on}: it would kill the kubelet");
        let kubeconfig = plane.kubeconfig(USER, "system:authenticated")?;
        let binding =
            ["create", "clusterrolebinding", USER, "--clusterrole=system:node-problem-detector", "--user", USER];
        plane.kubectl(&binding)?;
        Ok(Self {
            files: vec![
                (format!("{DIRECTORY}/{KERNEL}"), read(KERNEL)?),
                (format!("{DIRECTORY}/{KUBELET}"), kubelet.replace(on, off)),
                (KUBECONFIG.to_owned(), kubeconfig),
            ],
            layers: ["nodeproblemdetector", "healthchecker"]
                .iter()
                .map(|name| programs::layer(name, &directory.join(name)))
                .collect::<Result<_>>()?,
            server: plane.url(),
        })
    }

    /// Installs it on a node.
    pub fn onto(&self, node: NodeBuilder) -> NodeBuilder {
        let node = self.files.iter().fold(node, |node, (path, text)| node.file(path, text));
        self.layers.iter().fold(node, |node, layer| node.layer(layer.clone()))
    }

    /// Starts it as its own unit does; returns when it has written its condition.
    pub fn start(&self, node: &ObservedNode) -> Result<()> {
        let (name, server, port) = (node.name(), &self.server, node.healthz_port());
        let unit = format!(
            "[Service]\nRestart=always\nRestartSec=10\nEnvironment=KUBELET_PORT={port}\n\
             ExecStart=/home/kubernetes/bin/node-problem-detector --logtostderr --hostname-override={name} \
             --apiserver-override={server}?inClusterConfig=false&auth={KUBECONFIG} \
             --config.system-log-monitor={DIRECTORY}/{KERNEL} --config.custom-plugin-monitor={DIRECTORY}/{KUBELET}\n"
        );
        let from = Instant::now();
        node.sh(&format!(
            "mkdir -p /home/kubernetes/bin
             ln -s /usr/bin/nodeproblemdetector /home/kubernetes/bin/node-problem-detector
             ln -s /usr/bin/healthchecker /home/kubernetes/bin/health-checker
             cat >/run/systemd/system/{UNIT} <<'END'\n{unit}END\n
             systemctl daemon-reload
             systemctl start {UNIT}"
        ))?;
        node.watch().wait_since(from, WAIT, |_, node| {
            let conditions = node.pointer("/status/conditions")?.as_array()?;
            conditions.iter().any(|one| one["type"] == CONDITION && one["status"] == "False").then_some(())
        })
    }
}
