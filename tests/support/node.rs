//! A real node at work: systemd as PID 1, D-Bus, journald, containerd and the real kubelet, in namespaces of its own.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::kubeadm::Joining;
use super::node_files::Ports;
use super::process::{self, tail};
use super::{api, cgroups, say, wait_until};

/// A running node. It is gone, with all it started, when it is dropped.
pub(crate) struct Node {
    setup: Setup,
    /// The node's systemd, as we see it.
    pid1: i32,
}

/// What the builder knows of a node and what its end must clear away.
pub(super) struct Setup {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) name: String,
    pub(super) group: String,
    /// The `unshare` whose child the node's systemd is.
    pub(super) parent: Child,
    /// What the node is to be, and what its boot wrote before its journal took over.
    pub(super) files: [PathBuf; 2],
    pub(super) folder: PathBuf,
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
        &self.setup.group
    }

    /// Its systemd's pid, as we see it.
    pub(crate) fn pid1(&self) -> i32 {
        self.pid1
    }

    /// The node whose boot has begun; returns when its systemd answers.
    pub(super) fn up(setup: Setup, bus: bool) -> Result<Self> {
        let mut node = Self { setup, pid1: 0 };
        node.wait_for_systemd(bus)?;
        Ok(node)
    }

    fn wait_for_systemd(&mut self, bus: bool) -> Result<()> {
        let mut wanted = vec!["run/systemd/private"];
        wanted.extend(bus.then_some("run/dbus/system_bus_socket"));
        let up = wait_until("the node's systemd", Duration::from_secs(30), || {
            if let Some(status) = self.setup.parent.try_wait()? {
                bail!("the boot ended ({status})");
            }
            if self.pid1 == 0 {
                self.pid1 = child_of(self.setup.parent.id()).unwrap_or(0);
            }
            // Before systemd runs, the root is still that of the run.
            let root = PathBuf::from(format!("/proc/{}/root", self.pid1));
            let systemd = fs::read_to_string(format!("/proc/{}/comm", self.pid1));
            let systemd = systemd.is_ok_and(|name| name.trim() == "systemd");
            Ok((systemd && wanted.iter().all(|path| root.join(path).exists())).then_some(()))
        });
        up.with_context(|| format!("node {}: {}", self.setup.name, tail(&self.setup.files[1])))
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
        let script = format!("exec 2>&1\n{command}");
        let done = Command::new("nsenter")
            .args([
                "-t",
                &self.pid1.to_string(),
                "-m",
                "-p",
                "-u",
                "-i",
                "-C",
                "-r",
                "-w",
                "/bin/sh",
                "-c",
                &script,
            ])
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .output()
            .context("starting nsenter")?;
        let code = done.status.code().unwrap_or(-1);
        Ok((
            code,
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        ))
    }

    /// Runs a shell command on the node that must succeed; returns its output.
    pub(crate) fn sh(&self, command: &str) -> Result<String> {
        let (code, output) = self.run(command)?;
        ensure!(
            code == 0,
            "node {}: `{command}` ended with {code}: {output}",
            self.setup.name
        );
        Ok(output)
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
        let own = namespace(self.pid1);
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
            format!("/proc/{}/root", self.pid1).as_str(),
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
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.pid1 > 1 {
            let _ = kill(Pid::from_raw(self.pid1), Signal::SIGKILL); // may be gone already
        } else {
            self.setup.parent.kill()?;
        }
        self.setup.parent.wait()?;
        for file in &self.setup.files {
            let _ = fs::remove_file(file); // ended twice, if by power_off
        }
        let _ = fs::remove_dir(&self.setup.folder);
        cgroups::remove(&self.setup.group, Duration::from_secs(5))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(&format!("ending node {}: {error:#}", self.setup.name));
        }
    }
}

/// The only child of a process.
fn child_of(parent: u32) -> Option<i32> {
    let parent = i32::try_from(parent).ok()?;
    let tasks = Process::new(parent).ok()?.tasks().ok()?.flatten();
    tasks
        .filter_map(|task| task.children().ok())
        .flatten()
        .next()
        .and_then(|pid| i32::try_from(pid).ok())
}
