//! A real node at work: systemd as PID 1, D-Bus, journald, containerd and the real kubelet, in namespaces of its own.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use procfs::process::all_processes;
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::kubeadm::Joining;
use super::machine::Machine;
use super::node_files::Ports;
use super::{api, process, wait_until};

/// A running node. It is gone, with all it started, when it is dropped.
pub(crate) struct Node {
    setup: Setup,
}

/// What the builder knows of a node.
pub(super) struct Setup {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) started: Instant,
    pub(super) ports: Ports,
    pub(super) _joining: Option<Joining>,
}

impl Node {
    /// Its name, in the cluster too.
    pub(crate) fn name(&self) -> &str {
        &self.setup.name
    }

    /// Its control plane.
    pub(crate) fn plane(&self) -> &Arc<ControlPlane> {
        &self.setup.plane
    }

    /// Where its kubelet listens.
    pub(crate) fn ports(&self) -> Ports {
        self.setup.ports
    }

    /// When its boot began.
    pub(crate) fn started(&self) -> Instant {
        self.setup.started
    }

    /// Its control group, below every hierarchy's mount point.
    pub(crate) fn group(&self) -> &str {
        self.setup.machine.group()
    }

    /// Its systemd's pid, as we see it.
    pub(crate) fn pid1(&self) -> i32 {
        self.setup.machine.pid1()
    }

    /// The node whose boot has begun; returns when its systemd answers.
    pub(super) fn up(mut setup: Setup, bus: bool) -> Result<Self> {
        let mut wanted = vec!["run/systemd/private"];
        wanted.extend(bus.then_some("run/dbus/system_bus_socket"));
        setup.machine.wait_up(&wanted)?;
        Ok(Self { setup })
    }

    /// Waits until the API server has the node Ready; returns how long that took from the beginning of the boot.
    pub(crate) fn wait_ready(&self, timeout: Duration) -> Result<Duration> {
        let ready = wait_until("the node to be Ready", timeout, || {
            let ready = self
                .setup
                .plane
                .condition(&self.setup.name, "Ready")
                .ok()
                .flatten();
            Ok(ready.filter(|ready| ready["status"] == "True"))
        });
        ready.with_context(|| {
            let (_, log) = self
                .run("journalctl -n 15 --no-pager -o cat -u kubelet -u cloud-final")
                .unwrap_or_default();
            format!("node {}: the end of its journal:\n{log}", self.setup.name)
        })?;
        Ok(self.setup.started.elapsed())
    }

    /// Runs a shell command on the node: exit code and output (both streams).
    pub(crate) fn run(&self, command: &str) -> Result<(i32, String)> {
        self.setup.machine.run(command)
    }

    /// Runs a shell command on the node that must succeed; returns its output.
    pub(crate) fn sh(&self, command: &str) -> Result<String> {
        self.setup.machine.sh(command)
    }

    /// Starts the agent (and its helper's socket, if it ships one).
    pub(crate) fn start_agent(&self) -> Result<()> {
        let started = self.sh("for unit in nodevigil-helper.socket nodevigil.service; do
               if systemctl cat $unit >/dev/null 2>&1; then systemctl start $unit || exit 1; fi
             done");
        started.with_context(|| {
            let (_, log) = self
                .run("journalctl -n 20 --no-pager -o cat -u 'nodevigil*'")
                .unwrap_or_default();
            format!("the agent did not start: {log}")
        })?;
        Ok(())
    }

    /// Takes away what the agent remembers of the last hour, with a new life of it: what is sampled is the first of its hour again.
    pub(crate) fn forget_the_hour(&self) -> Result<()> {
        self.sh("systemctl stop nodevigil && rm -f /run/nodevigil/ledger.json /run/nodevigil/status.json")?;
        self.start_agent()?;
        wait_until("the agent to see all again", Duration::from_mins(1), || {
            let sees = |status: Value| {
                status["api"]["state"] == "connected" && status["kubelet"]["state"] == "running"
            };
            Ok(self.status_json().is_ok_and(sees).then_some(()))
        })
    }

    /// A unit's main process, by its pid on the node; 0 if it has none.
    pub(crate) fn main_pid(&self, unit: &str) -> Result<i32> {
        let text = self.sh(&format!("systemctl show --property=MainPID --value {unit}"))?;
        text.trim()
            .parse()
            .with_context(|| format!("the MainPID of {unit}: {text}"))
    }

    /// Our pid of a process of the node.
    pub(crate) fn host_pid(&self, inner: i32) -> Result<i32> {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(self.pid1());
        for process in all_processes()?.flatten() {
            let status = process.status().ok().and_then(|status| status.nspid);
            let innermost = status.and_then(|pids| pids.last().copied());
            if innermost == Some(inner) && namespace(process.pid()) == own {
                return Ok(process.pid());
            }
        }
        bail!("node {} has no process {inner}", self.setup.name)
    }

    /// The kubelet's pid, as we see it.
    pub(crate) fn kubelet_pid(&self) -> Result<i32> {
        self.unit_pid("kubelet.service")
    }

    /// The pid of a unit's main process, as we see it.
    pub(crate) fn unit_pid(&self, unit: &str) -> Result<i32> {
        match self.main_pid(unit)? {
            0 => bail!("{unit} of node {} has no main process", self.setup.name),
            inner => self.host_pid(inner),
        }
    }

    /// Sends a signal to a unit's main process; returns the moment just before.
    pub(crate) fn signal_unit(&self, unit: &str, signal: Signal) -> Result<Instant> {
        process::signal(self.unit_pid(unit)?, signal)
    }

    /// A unit's journal: all fields, or those named.
    pub(crate) fn journal(&self, unit: &str, fields: &[&str]) -> Result<Vec<Value>> {
        let only = match fields {
            [] => String::new(),
            fields => format!("--output-fields={}", fields.join(",")),
        };
        let lines = self.sh(&format!(
            "journalctl --sync; journalctl --no-pager -q -o json -u {unit} {only}"
        ))?;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// Reads a file of the node, its links followed as on the node.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let root = open(
            &self.setup.machine.root(),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .context("opening the node's root")?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let file: OwnedFd = openat2(&root, path, how)
            .with_context(|| format!("node {}: {path}", self.setup.name))?;
        let mut bytes = Vec::new();
        fs::File::from(file)
            .read_to_end(&mut bytes)
            .with_context(|| format!("reading {path}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The agent's `/run/nodevigil/status.json`.
    pub(crate) fn status_json(&self) -> Result<Value> {
        serde_json::from_str(&self.read("/run/nodevigil/status.json")?)
            .context("reading status.json")
    }

    /// The status of one of its conditions on the API server.
    pub(crate) fn condition_status(&self, kind: &str) -> Result<Option<String>> {
        let node = self.setup.plane.node(&self.setup.name)?;
        Ok(node.and_then(|node| api::condition_status(&node, kind).map(str::to_owned)))
    }

    /// Ends the node as a power cut would, and waits until nothing of it is left on this machine.
    pub(crate) fn power_off(mut self) -> Result<()> {
        self.setup.machine.end()
    }
}
