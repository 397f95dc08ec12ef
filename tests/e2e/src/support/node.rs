//! A real node at work: systemd as PID 1, D-Bus, journald, containerd and the real kubelet, in namespaces of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};

use super::boot::File;
use super::control_plane::ControlPlane;
use super::guest::Guest;
use super::kinds::{self, Kind};
use super::machine::Machine;
use super::node_files::{self, Ports, TARGET};
use super::{namespaces, programs};

/// What a node is to be, before it boots.
#[derive(Debug)]
pub struct NodeBuilder {
    plane: Arc<ControlPlane>,
    kind: &'static Kind,
    name: String,
    files: Vec<File>,
    layers: Vec<PathBuf>,
    has_agent: bool,
}

impl NodeBuilder {
    /// A node with bus, containerd and kubelet, and without the agent.
    pub fn new(plane: &Arc<ControlPlane>, name: &str) -> Self {
        Self {
            plane: Arc::clone(plane),
            kind: kinds::current(),
            name: name.to_owned(),
            files: Vec::new(),
            layers: Vec::new(),
            has_agent: false,
        }
    }

    /// Installs the agent, as its package would. It is started by [`Node::start_agent`].
    pub fn agent(mut self) -> Self {
        self.has_agent = true;
        self
    }

    /// Adds a file, or replaces one of the harness's.
    pub fn file(mut self, path: &str, content: &str) -> Self {
        self.files.push(node_files::file(path, content, 0o644));
        self
    }

    /// Adds an executable file.
    pub fn program(mut self, path: &str, content: &str) -> Self {
        self.files.push(node_files::file(path, content, 0o755));
        self
    }

    /// Adds a layer that `programs::layer` has made.
    pub fn layer(mut self, layer: PathBuf) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds lines to the kubelet's unit.
    pub fn kubelet_unit(self, lines: &str) -> Self {
        self.file("/etc/systemd/system/kubelet.service.d/60-story.conf", lines)
    }

    /// Boots it; returns when commands can be run on it.
    pub fn boot(self) -> Result<Node> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let label = format!("{}-{}", self.name, COUNT.fetch_add(1, Ordering::Relaxed));
        let ports = Ports { kubelet: namespaces::port(), healthz: namespaces::port() };
        let kubeconfig = self.plane.kubeconfig(&format!("system:node:{}", self.name), "system:nodes")?;
        let mut files = node_files::kubelet(self.kind, &self.name, ports, &self.plane.ca()?, kubeconfig);
        let mut layers = vec![programs::layer("kubelet", &programs::kubelet()?)?];
        if self.has_agent {
            let kubeconfig = self.plane.kubeconfig(&format!("nodevigil:{}", self.name), "nodevigil-agents")?;
            files.extend(node_files::agent(kubeconfig)?);
            layers.push(programs::layer("nodevigil", &programs::agent()?)?);
        }
        files.extend(self.files);
        if self.kind.newest_containerd {
            layers.extend(programs::newest_containerd()?);
        }
        layers.extend(self.layers);
        for file in &mut files {
            file.path = self.kind.translate(&file.path);
            file.content = self.kind.translate(&file.content);
        }
        let host = if self.kind.suite.is_some() {
            Host::Guest(Guest::boot(self.kind, &label, &layers, files)?)
        } else {
            Host::Namespaces(Machine::boot(label, layers, files, TARGET)?)
        };
        Ok(Node { name: self.name, kind: self.kind, host, ports })
    }
}

/// What a node runs on.
#[derive(Debug)]
enum Host {
    Namespaces(Machine),
    Guest(Guest),
}

/// A running node. It is gone, with all that it started, when it is dropped.
#[derive(Debug)]
pub struct Node {
    name: String,
    kind: &'static Kind,
    host: Host,
    ports: Ports,
}

impl Node {
    /// Its name, in the cluster too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port of its kubelet's `/healthz`.
    pub fn healthz_port(&self) -> u16 {
        self.ports.healthz
    }

    /// The full name of the unit that stories call `kubelet` or `containerd`.
    pub fn unit(&self, name: &str) -> String {
        self.kind.translate(&format!("{name}.service"))
    }

    /// The namespaces that it runs in, for stories of those alone.
    pub fn machine(&self) -> Result<&Machine> {
        match &self.host {
            Host::Namespaces(machine) => Ok(machine),
            Host::Guest(_) => bail!("a guest is no node in namespaces"),
        }
    }

    /// The guest that it is, for stories of guests alone.
    pub fn guest(&self) -> Result<&Guest> {
        match &self.host {
            Host::Guest(guest) => Ok(guest),
            Host::Namespaces(_) => bail!("a node in namespaces is no guest"),
        }
    }

    /// Ends it as a power cut would.
    pub fn end(&self) -> Result<()> {
        match &self.host {
            Host::Namespaces(machine) => machine.end(),
            Host::Guest(guest) => {
                guest.end();
                Ok(())
            }
        }
    }

    /// Runs a shell command on the node: exit code and output (both streams).
    pub fn run(&self, command: &str) -> Result<(i32, String)> {
        let command = self.kind.translate(command);
        match &self.host {
            Host::Namespaces(machine) => machine.run(&command),
            Host::Guest(guest) => guest.run(&command),
        }
    }

    /// Runs a shell command on the node that must succeed; returns its output.
    pub fn sh(&self, command: &str) -> Result<String> {
        let (code, output) = self.run(command)?;
        ensure!(code == 0, "node {}: `{command}` ended with {code}: {output}", self.name);
        Ok(output)
    }

    /// Starts the agent; returns when it has notified systemd that it is ready.
    pub fn start_agent(&self) -> Result<()> {
        self.sh("systemctl start nodevigil").context("the agent does not start").map(drop)
    }

    /// A property of a unit, as `systemctl show` prints it.
    pub fn property(&self, unit: &str, name: &str) -> Result<String> {
        let text = self.sh(&format!("systemctl show --value --property={name} {unit}"))?;
        Ok(text.trim().to_owned())
    }

    /// The pid of a unit's main process on the node; fails if it has none.
    pub fn main_pid(&self, unit: &str) -> Result<u32> {
        let pid = self.property(unit, "MainPID")?.parse().context("a MainPID is a number")?;
        ensure!(pid != 0, "{unit} has no main process");
        Ok(pid)
    }

    /// The agent's metrics, by a shell: guests have no curl(1).
    pub fn metrics(&self) -> Result<String> {
        let answer = self.sh(
            r#"bash -c 'exec 3<>/dev/tcp/127.0.0.1/20258 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3'"#,
        )?;
        ensure!(answer.lines().next().is_some_and(|status| status.contains(" 200 ")), "{answer}");
        Ok(answer)
    }

    /// The journal of a unit: its messages, one a line.
    pub fn journal(&self, unit: &str) -> Result<String> {
        self.sh(&format!("journalctl --sync; journalctl --no-pager -q -o cat -u {unit}"))
    }
}
