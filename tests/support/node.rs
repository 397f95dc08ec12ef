//! Boots a real node: systemd as PID 1, D-Bus, journald, containerd and the real kubelet, in namespaces of its own.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use serde_json::Value;

use super::boot::{File, Spec};
use super::control_plane::ControlPlane;
use super::kubeadm::{self, Joining};
use super::node_files::{self, Ports};
use super::process::{log_file, tail};
use super::{api, cgroups, enter, say, tools, wait_until};

/// What a node is to be, before it boots.
pub(crate) struct NodeBuilder {
    plane: Arc<ControlPlane>,
    name: String,
    files: Vec<File>,
    wants: Vec<String>,
    kubelet_arguments: Vec<String>,
    restart_sec: Option<Duration>,
    agent: Option<PathBuf>,
    joining: bool,
}

impl NodeBuilder {
    /// A node with bus, containerd and kubelet, and without the agent.
    pub(crate) fn new(plane: &Arc<ControlPlane>, name: &str) -> Self {
        let wants = ["systemd-journald.service", "dbus.service", "containerd.service", "kubelet.service"];
        Self {
            plane: Arc::clone(plane),
            name: name.to_owned(),
            files: Vec::new(),
            wants: wants.map(str::to_owned).into(),
            kubelet_arguments: Vec::new(),
            restart_sec: None,
            agent: None,
            joining: false,
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
            self.files.push(node_files::file(&format!("/etc/systemd/system/{unit}"), "", 0o644));
        }
        self
    }

    /// Installs the agent: `NODEVIGIL_BIN` if that is set, else `binary`. It starts by [`Node::start_agent`].
    pub(crate) fn agent(mut self, binary: &Path) -> Self {
        self.agent = Some(std::env::var_os("NODEVIGIL_BIN").map_or_else(|| binary.to_owned(), PathBuf::from));
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
        let folder = enter::work().join("nodes").join(&label);
        fs::create_dir_all(&folder).context("making the node's folder")?;
        let joining = self.joining.then(Joining::wait_for_turn).transpose()?;
        let ports = match &joining {
            Some(_) => kubeadm::PORTS,
            None => Ports { kubelet: enter::port(), healthz: enter::port() },
        };
        let spec = Spec {
            group: format!("{}/{label}", enter::run()?),
            layers: self.layers()?,
            files: self.all_files(ports)?,
            target: "node.target".to_owned(),
            folder: folder.clone(),
        };
        let file = enter::work().join("nodes").join(format!("{label}.json"));
        fs::write(&file, serde_json::to_vec(&spec)?)?;
        let console = enter::work().join("nodes").join(format!("{label}.console"));
        let started = Instant::now();
        let parent = spawn(&file, &console)?;
        let mut node = Node {
            plane: self.plane,
            name: self.name,
            group: spec.group,
            pid1: 0,
            parent,
            files: [file, console],
            folder,
            started,
            ports,
            _joining: joining,
        };
        let bus = self.wants.iter().any(|unit| unit == "dbus.service");
        node.wait_for_systemd(bus)?;
        Ok(node)
    }

    fn layers(&self) -> Result<Vec<PathBuf>> {
        let mut layers = vec![tools::layer(&[tools::path("kubelet")?, tools::path("kubeadm")?])?];
        if let Some(binary) = &self.agent {
            ensure!(binary.ends_with("nodevigil"), "{} is not named nodevigil", binary.display());
            layers.insert(0, tools::layer(std::slice::from_ref(binary))?);
        }
        Ok(layers)
    }

    /// The builder's own files come last, so that they win.
    fn all_files(&self, ports: Ports) -> Result<Vec<File>> {
        let mut wants = self.wants.clone();
        let mut own = Vec::new();
        if self.joining {
            own.extend(kubeadm::files(&self.plane, &self.name, &self.kubelet_arguments)?);
            wants.retain(|unit| unit != "kubelet.service" && unit != "containerd.service");
            wants.extend(kubeadm::UNITS.map(str::to_owned));
        } else {
            let user = format!("system:node:{}", self.name);
            let kubeconfig = self.plane.kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?;
            own.extend(node_files::joined(ports, self.plane.ca(), &kubeconfig));
            own.push(node_files::kubelet_defaults(&self.name, &self.kubelet_arguments));
        }
        own.extend(self.restart_sec.map(node_files::restart_sec));
        if self.agent.is_some() {
            own.extend(node_files::agent(&self.plane.agent_kubeconfig(&self.name)?)?);
        }
        let common = node_files::common(&self.name, &wants);
        Ok(common.into_iter().chain(own).chain(self.files.iter().cloned()).collect())
    }
}

fn spawn(spec: &Path, console: &Path) -> Result<Child> {
    let (output, errors) = log_file(console)?;
    Command::new("unshare")
        .args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL"])
        .args(["--propagation", "private", "--"])
        .arg(std::env::current_exe().context("finding this program")?)
        .env(enter::STAGE, format!("boot:{}", spec.display()))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("starting unshare")
}

/// A running node. It is gone, with all it started, when it is dropped.
pub(crate) struct Node {
    plane: Arc<ControlPlane>,
    name: String,
    group: String,
    /// The node's systemd, as we see it.
    pid1: i32,
    parent: Child,
    /// What it is to be, and what its boot wrote before its journal took over.
    files: [PathBuf; 2],
    folder: PathBuf,
    started: Instant,
    ports: Ports,
    _joining: Option<Joining>,
}

impl Node {
    /// Its name, in the cluster too.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its control plane.
    pub(crate) fn plane(&self) -> &Arc<ControlPlane> {
        &self.plane
    }

    /// Where its kubelet listens.
    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    /// When its boot began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Its control group, below every hierarchy's mount point.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Its systemd's pid, as we see it.
    pub(crate) fn pid1(&self) -> i32 {
        self.pid1
    }

    fn wait_for_systemd(&mut self, bus: bool) -> Result<()> {
        let mut wanted = vec!["run/systemd/private"];
        wanted.extend(bus.then_some("run/dbus/system_bus_socket"));
        let up = wait_until("the node's systemd", Duration::from_secs(30), || {
            if let Some(status) = self.parent.try_wait()? {
                bail!("the boot ended ({status})");
            }
            if self.pid1 == 0 {
                self.pid1 = child_of(self.parent.id()).unwrap_or(0);
            }
            // Before systemd runs, the root is still that of the run.
            let root = PathBuf::from(format!("/proc/{}/root", self.pid1));
            let systemd = fs::read_to_string(format!("/proc/{}/comm", self.pid1));
            let systemd = systemd.is_ok_and(|name| name.trim() == "systemd");
            Ok((systemd && wanted.iter().all(|path| root.join(path).exists())).then_some(()))
        });
        up.with_context(|| format!("node {}: {}", self.name, tail(&self.files[1])))
    }

    /// Waits until the API server has the node Ready; returns how long that took from the beginning of the boot.
    pub(crate) fn wait_ready(&self, timeout: Duration) -> Result<Duration> {
        let ready = wait_until("the node to be Ready", timeout, || {
            let ready = self.plane.condition(&self.name, "Ready").ok().flatten();
            Ok(ready.filter(|ready| ready["status"] == "True"))
        });
        ready.with_context(|| {
            let (_, log) = self.run("journalctl -n 15 --no-pager -o cat -u kubelet -u cloud-final").unwrap_or_default();
            format!("node {}: the end of its journal:\n{log}", self.name)
        })?;
        Ok(self.started.elapsed())
    }

    /// Runs a shell command on the node: exit code and output (both streams).
    pub(crate) fn run(&self, command: &str) -> Result<(i32, String)> {
        let script = format!("exec 2>&1\n{command}");
        let done = Command::new("nsenter")
            .args(["-t", &self.pid1.to_string(), "-m", "-p", "-u", "-i", "-C", "-r", "-w", "/bin/sh", "-c", &script])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .output()
            .context("starting nsenter")?;
        let code = done.status.code().unwrap_or(-1);
        Ok((code, String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()))
    }

    /// Runs a shell command on the node that must succeed; returns its output.
    pub(crate) fn sh(&self, command: &str) -> Result<String> {
        let (code, output) = self.run(command)?;
        ensure!(code == 0, "node {}: `{command}` ended with {code}: {output}", self.name);
        Ok(output)
    }

    /// Starts the agent (and its helper's socket, if it ships one).
    pub(crate) fn start_agent(&self) -> Result<()> {
        let started = self.sh(
            "for unit in nodevigil-helper.socket nodevigil.service; do
               if systemctl cat $unit >/dev/null 2>&1; then systemctl start $unit || exit 1; fi
             done",
        );
        started.with_context(|| {
            let (_, log) = self.run("journalctl -n 20 --no-pager -o cat -u 'nodevigil*'").unwrap_or_default();
            format!("the agent did not start: {log}")
        })?;
        Ok(())
    }

    /// A unit's main process, by its pid on the node; 0 if it has none.
    pub(crate) fn main_pid(&self, unit: &str) -> Result<i32> {
        let text = self.sh(&format!("systemctl show --property=MainPID --value {unit}"))?;
        text.trim().parse().with_context(|| format!("the MainPID of {unit}: {text}"))
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
        bail!("node {} has no process {inner}", self.name)
    }

    /// The kubelet's pid, as we see it.
    pub(crate) fn kubelet_pid(&self) -> Result<i32> {
        self.unit_pid("kubelet.service")
    }

    /// The pid of a unit's main process, as we see it.
    pub(crate) fn unit_pid(&self, unit: &str) -> Result<i32> {
        match self.main_pid(unit)? {
            0 => bail!("{unit} of node {} has no main process", self.name),
            inner => self.host_pid(inner),
        }
    }

    /// Sends a signal to a process (by its pid as we see it); returns the moment just before.
    pub(crate) fn signal(&self, pid: i32, signal: Signal) -> Result<Instant> {
        let at = Instant::now();
        kill(Pid::from_raw(pid), signal).with_context(|| format!("sending {signal} to {pid}"))?;
        Ok(at)
    }

    /// Sends a signal to a unit's main process; returns the moment just before.
    pub(crate) fn signal_unit(&self, unit: &str, signal: Signal) -> Result<Instant> {
        self.signal(self.unit_pid(unit)?, signal)
    }

    /// A unit's journal: all fields, or those named.
    pub(crate) fn journal(&self, unit: &str, fields: &[&str]) -> Result<Vec<Value>> {
        let only = match fields {
            [] => String::new(),
            fields => format!("--output-fields={}", fields.join(",")),
        };
        let lines = self.sh(&format!("journalctl --sync; journalctl --no-pager -q -o json -u {unit} {only}"))?;
        lines.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
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
        let file: OwnedFd = openat2(&root, path, how).with_context(|| format!("node {}: {path}", self.name))?;
        let mut bytes = Vec::new();
        fs::File::from(file).read_to_end(&mut bytes).with_context(|| format!("reading {path}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The agent's `/run/nodevigil/status.json`.
    pub(crate) fn status_json(&self) -> Result<Value> {
        serde_json::from_str(&self.read("/run/nodevigil/status.json")?).context("reading status.json")
    }

    /// The status of one of its conditions on the API server.
    pub(crate) fn condition_status(&self, kind: &str) -> Result<Option<String>> {
        let node = self.plane.node(&self.name)?;
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
            self.parent.kill()?;
        }
        self.parent.wait()?;
        for file in &self.files {
            let _ = fs::remove_file(file); // ended twice, if by power_off
        }
        let _ = fs::remove_dir(&self.folder);
        cgroups::remove(&self.group, Duration::from_secs(5))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(&format!("ending node {}: {error:#}", self.name));
        }
    }
}

/// The only child of a process.
fn child_of(parent: u32) -> Option<i32> {
    let parent = i32::try_from(parent).ok()?;
    let tasks = Process::new(parent).ok()?.tasks().ok()?.flatten();
    tasks.filter_map(|task| task.children().ok()).flatten().next().and_then(|pid| i32::try_from(pid).ok())
}
