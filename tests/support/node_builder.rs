//! Says what a node is to be, and boots it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::boot::File;
use super::control_plane::ControlPlane;
use super::kubeadm::{self, Joining};
use super::machine::Machine;
use super::node::{Node, Setup};
use super::node_files::{self, Ports};
use super::{enter, tools};

/// What a node is to be, before it boots.
pub(crate) struct NodeBuilder {
    plane: Arc<ControlPlane>,
    name: String,
    files: Vec<File>,
    wants: Vec<String>,
    kubelet_arguments: Vec<String>,
    restart_sec: Option<Duration>,
    agent: bool,
    joining: bool,
    programs: Vec<PathBuf>,
}

impl NodeBuilder {
    /// A node with bus, containerd and kubelet, and without the agent.
    pub(crate) fn new(plane: &Arc<ControlPlane>, name: &str) -> Self {
        let wants = [
            "systemd-journald.service",
            "dbus.service",
            "containerd.service",
            "kubelet.service",
        ];
        Self {
            plane: Arc::clone(plane),
            name: name.to_owned(),
            files: Vec::new(),
            wants: wants.map(str::to_owned).into(),
            kubelet_arguments: Vec::new(),
            restart_sec: None,
            agent: false,
            joining: false,
            programs: Vec::new(),
        }
    }

    /// Adds a file, or replaces one of the harness's.
    pub(crate) fn file(mut self, path: &str, content: &str, mode: u32) -> Self {
        self.files.push(node_files::file(path, content, mode));
        self
    }

    /// Adds a drop-in of the agent's configuration, `/etc/nodevigil/config.d/NAME`.
    pub(crate) fn config(self, name: &str, content: &str) -> Self {
        self.file(&format!("/etc/nodevigil/config.d/{name}"), content, 0o644)
    }

    /// Adds a flag to the operator's /etc/default/kubelet.
    pub(crate) fn kubelet_argument(mut self, argument: &str) -> Self {
        self.kubelet_arguments.push(argument.to_owned());
        self
    }

    /// Installs a program into /usr/bin.
    pub(crate) fn program(mut self, program: PathBuf) -> Self {
        self.programs.push(program);
        self
    }

    /// How long systemd waits before it restarts the kubelet; kubeadm's ten seconds if not set.
    pub(crate) fn restart_sec(mut self, delay: Duration) -> Self {
        self.restart_sec = Some(delay);
        self
    }

    /// Starts a unit at boot.
    pub(crate) fn start(mut self, unit: &str) -> Self {
        self.wants.push(unit.to_owned());
        self
    }

    /// Does not start the kubelet at boot; it stays installed.
    pub(crate) fn without_kubelet(mut self) -> Self {
        self.wants.retain(|unit| unit != "kubelet.service");
        self
    }

    /// Boots without a message bus; nothing can start it.
    pub(crate) fn without_bus(mut self) -> Self {
        self.wants.retain(|unit| unit != "dbus.service");
        for unit in ["dbus.service", "dbus.socket"] {
            self.files.push(node_files::file(
                &format!("/etc/systemd/system/{unit}"),
                "",
                0o644,
            ));
        }
        self
    }

    /// Installs the agent, as its package would ([`tools::agent`]). It starts by [`Node::start_agent`].
    pub(crate) fn agent(mut self) -> Self {
        self.agent = true;
        self
    }

    /// Has the node born as in a cloud: by cloud-init, which runs `kubeadm join`. One such node lives at a time, since
    /// its kubelet has kubeadm's own ports; a second waits here for the first to go.
    pub(crate) fn joining(mut self) -> Self {
        self.joining = true;
        self
    }

    /// Boots it; returns when its systemd answers.
    pub(crate) fn boot(self) -> Result<Node> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let label = format!("{}-{}", self.name, COUNT.fetch_add(1, Ordering::Relaxed));
        let joining = self.joining.then(Joining::wait_for_turn).transpose()?;
        let ports = match &joining {
            Some(_) => kubeadm::PORTS,
            None => Ports {
                kubelet: enter::port(),
                healthz: enter::port(),
            },
        };
        let (layers, files) = (self.layers()?, self.all_files(ports)?);
        let started = Instant::now();
        let machine = Machine::begin(label, layers, files, "node.target")?;
        let bus = self.wants.iter().any(|unit| unit == "dbus.service");
        let setup = Setup {
            plane: self.plane,
            name: self.name,
            machine,
            started,
            ports,
            _joining: joining,
        };
        Node::up(setup, bus)
    }

    fn layers(&self) -> Result<Vec<PathBuf>> {
        let mut layers = vec![tools::layer(&[
            tools::path("kubelet")?,
            tools::path("kubeadm")?,
        ])?];
        if !self.programs.is_empty() {
            layers.insert(0, tools::layer(&self.programs)?);
        }
        if self.agent {
            layers.insert(0, tools::layer(&[tools::agent()?])?);
        }
        Ok(layers)
    }

    /// The builder's own files come last, so that they win.
    fn all_files(&self, ports: Ports) -> Result<Vec<File>> {
        let mut wants = self.wants.clone();
        let mut own = Vec::new();
        if self.joining {
            own.extend(kubeadm::files(
                &self.plane,
                &self.name,
                &self.kubelet_arguments,
            )?);
            wants.retain(|unit| unit != "kubelet.service" && unit != "containerd.service");
            wants.extend(kubeadm::UNITS.map(str::to_owned));
        } else {
            let user = format!("system:node:{}", self.name);
            let kubeconfig = self
                .plane
                .kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?;
            own.extend(node_files::joined(ports, self.plane.ca(), &kubeconfig));
            own.push(node_files::kubelet_defaults(
                &self.name,
                &self.kubelet_arguments,
            ));
        }
        own.extend(self.restart_sec.map(node_files::restart_sec));
        if self.agent {
            own.extend(node_files::agent(
                &self.plane.agent_kubeconfig(&self.name)?,
            )?);
        }
        let common = node_files::common(&self.name, &wants);
        Ok(common
            .into_iter()
            .chain(own)
            .chain(self.files.iter().cloned())
            .collect())
    }
}
