//! node-problem-detector on a node, for the bench and a story: the configuration files of its release, with repair disabled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::scene::ObservedNode;
use crate::support::boot::File;
use crate::support::control_plane::{ControlPlane, PEER};
use crate::support::node::NodeBuilder;
use crate::support::node_files;
use crate::support::{WAIT, programs};

pub const UNIT: &str = "node-problem-detector.service";
/// Its condition; `True` is bad.
pub const CONDITION: &str = "KubeletUnhealthy";
/// Its configuration files.
pub const DIRECTORY: &str = "/home/kubernetes/node-problem-detector/config";
/// Those of its journald plugin.
pub const JOURNAL_MONITORS: [&str; 3] = ["abrt-adaptor.json", "docker-monitor.json", "systemd-monitor.json"];
const KERNEL: &str = "kernel-monitor.json";
const KUBELET: &str = "health-checker-kubelet.json";
const KUBECONFIG: &str = "/etc/node-problem-detector/kubeconfig";
/// Makes the paths that its configuration names.
pub const LINKS: &str = "mkdir -p /home/kubernetes/bin
ln -s /usr/bin/nodeproblemdetector /home/kubernetes/bin/node-problem-detector
ln -s /usr/bin/healthchecker /home/kubernetes/bin/health-checker";

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
        let shipped = [KERNEL].iter().chain(&JOURNAL_MONITORS);
        let mut files: Vec<_> =
            shipped.map(|name| Ok((format!("{DIRECTORY}/{name}"), read(name)?))).collect::<Result<_>>()?;
        let (on, off) = ("--enable-repair=true", "--enable-repair=false");
        ensure!(kubelet.contains(on), "{KUBELET} has no {on}: it would kill the kubelet");
        let kubeconfig = plane.kubeconfig(PEER, "system:authenticated")?;
        let binding =
            ["create", "clusterrolebinding", PEER, "--clusterrole=system:node-problem-detector", "--user", PEER];
        plane.kubectl(&binding)?;
        files.extend([
            (format!("{DIRECTORY}/{KUBELET}"), kubelet.replace(on, off)),
            (KUBECONFIG.to_owned(), kubeconfig),
        ]);
        Ok(Self {
            files,
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

    /// Its files and layers, to be installed on a machine.
    pub fn parts(&self) -> (Vec<File>, Vec<PathBuf>) {
        let files = self.files.iter().map(|(path, text)| node_files::file(path, text, 0o644));
        (files.collect(), self.layers.clone())
    }

    /// A unit as its own, for a Node and the kubelet with that port, with these further flags.
    pub fn unit(&self, name: &str, port: u16, flags: &str) -> String {
        let server = &self.server;
        format!(
            "[Service]\nRestart=always\nRestartSec=10\nEnvironment=KUBELET_PORT={port}\n\
             ExecStart=/home/kubernetes/bin/node-problem-detector --logtostderr --hostname-override={name} {flags} \
             --apiserver-override={server}?inClusterConfig=false&auth={KUBECONFIG} \
             --config.system-log-monitor={DIRECTORY}/{KERNEL} --config.custom-plugin-monitor={DIRECTORY}/{KUBELET}\n"
        )
    }

    /// Starts it as its own unit does, with these further flags; returns when it has written its condition.
    pub fn start(&self, node: &ObservedNode, flags: &str) -> Result<()> {
        let (unit, from) = (self.unit(node.name(), node.healthz_port(), flags), Instant::now());
        node.sh(&format!(
            "{LINKS}
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
