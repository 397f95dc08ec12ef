//! The real agent without a node around it, for tests that need many at once: its own process, network namespace,
//! configuration and proxy to the real API server; in the kubelet's place a process that does nothing but be healthy.

pub(crate) mod stand_in;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use procfs::process::Process;
use serde_json::json;

use super::control_plane::ControlPlane;
use super::process::{log_file, tail};
use super::proxy::Proxy;
use super::watch::NodeWatch;
use super::wire::Wire;
use super::{enter, tools};

/// As in systemd/nodevigil.service.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(10);

/// An agent, its proxy, its wire, its kubelet, its Node. All of it ends when it is dropped, but for the Node.
pub(crate) struct LoneAgent {
    pub(crate) proxy: Proxy,
    pub(crate) wire: Wire,
    pub(crate) watch: NodeWatch,
    folder: PathBuf,
    agent: Child,
    kubelet: Child,
    beats: Arc<Mutex<Vec<Instant>>>,
}

/// Resident memory in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// All of it: `VmRSS`.
    pub(crate) resident: u64,
    /// Its own, without the pages of the program's file, which come as code is run for the first time: `RssAnon`.
    pub(crate) own: u64,
    /// The most there ever was: `VmHWM`.
    pub(crate) peak: u64,
}

impl LoneAgent {
    /// Makes the Node, and starts everything. `number` is another for each in a run, and above 0.
    pub(crate) fn start(plane: &Arc<ControlPlane>, name: &str, number: u8) -> Result<Self> {
        let folder = enter::work().join("agents").join(name);
        fs::create_dir_all(folder.join("runtime")).context("making an agent's folder")?;
        let (beats, notify) = listen(&folder)?;
        let watch = plane.watch_node(name)?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &node)?;
        ensure!(code == 201, "making Node {name}: {code}: {answer}");

        let mut agent = spawn(&folder, name, &notify)?;
        let wire = Wire::to(agent.id(), number)?;
        let identity = plane.agent_kubeconfig(name)?;
        let proxy = Proxy::start(plane, &identity, &wire.near())?;
        fs::write(
            folder.join("kubeconfig"),
            proxy.kubeconfig(&identity)?.to_string(),
        )?;
        symlink(std::env::current_exe()?, folder.join("kubelet"))?;
        let kubelet = spawn_kubelet(&folder, agent.id())?;
        let settings = format!(
            "[kubelet]\npid_file = \"{}\"\nhealthz_url = \"{}\"\nhealthy_for_secs = 1\n",
            folder.join("kubelet.pid").display(),
            stand_in::URL
        );
        fs::write(folder.join("config.toml"), settings)?;
        let mut go = agent.stdin.take().context("the agent's input")?;
        go.write_all(b"go\n")?;
        Ok(Self {
            proxy,
            wire,
            watch,
            folder,
            agent,
            kubelet,
            beats,
        })
    }

    /// Kills the kubelet; returns the moment when it was gone.
    pub(crate) fn kill_kubelet(&mut self) -> Result<Instant> {
        self.kubelet.kill()?;
        self.kubelet.wait()?;
        Ok(Instant::now())
    }

    /// Starts another kubelet in the place of one that was killed.
    pub(crate) fn revive_kubelet(&mut self) -> Result<()> {
        self.kubelet = spawn_kubelet(&self.folder, self.agent.id())?;
        Ok(())
    }

    /// Fails if the agent has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        let ended = self.agent.try_wait()?;
        ensure!(ended.is_none(), "the agent ended ({ended:?})");
        Ok(())
    }

    /// The longest time between two signs of life to systemd's watchdog, from `from` until now.
    pub(crate) fn longest_silence(&self, from: Instant) -> Duration {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut last, mut longest) = (from, Duration::ZERO);
        let now = Instant::now();
        for beat in beats.iter().copied().filter(|at| *at > from).chain([now]) {
            longest = longest.max(beat.saturating_duration_since(last));
            last = beat;
        }
        longest
    }

    /// The lines that the agent has logged so far: in its unit, each would be a line of the journal.
    pub(crate) fn lines(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.log())?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        tail(&self.log())
    }

    /// How much memory it has now.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = Process::new(i32::try_from(self.agent.id())?)?.status()?;
        Ok(Memory {
            resident: status.vmrss.context("no VmRSS")?,
            own: status.rssanon.context("no RssAnon")?,
            peak: status.vmhwm.context("no VmHWM")?,
        })
    }

    fn log(&self) -> PathBuf {
        self.folder.join("agent.log")
    }
}

impl Drop for LoneAgent {
    fn drop(&mut self) {
        for child in [&mut self.agent, &mut self.kubelet] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Its environment is what its unit would give it; it waits for a line before it becomes the agent, with the same pid.
fn spawn(folder: &Path, name: &str, notify: &Path) -> Result<Child> {
    let (output, errors) = log_file(&folder.join("agent.log"))?;
    let script = "read -r _; export WATCHDOG_PID=$$; exec \"$0\" \"$@\" </dev/null";
    let path = |file: &str| folder.join(file).display().to_string();
    Command::new("unshare")
        .args(["--net", "--", "sh", "-c", script])
        .arg(tools::agent()?)
        .args(["run", "--node-name", name])
        .args(["--config", &path("config.toml")])
        .args(["--kubeconfig", &path("kubeconfig")])
        .env("RUNTIME_DIRECTORY", folder.join("runtime"))
        .env("NOTIFY_SOCKET", notify)
        .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
        // The allocator of the binary that is shipped gives large blocks back. That of a debug build has to be told.
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .env("MALLOC_TRIM_THRESHOLD_", "131072")
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("starting unshare")
}

/// This program itself, under a kubelet's name, in the agent's network.
fn spawn_kubelet(folder: &Path, agent: u32) -> Result<Child> {
    let kubelet = Command::new("nsenter")
        .arg(format!("--net=/proc/{agent}/ns/net"))
        .arg("--")
        .arg(folder.join("kubelet"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("starting nsenter")?;
    fs::write(folder.join("kubelet.pid"), kubelet.id().to_string())?;
    Ok(kubelet)
}

/// Listens in systemd's place: when each sign of life came.
fn listen(folder: &Path) -> Result<(Arc<Mutex<Vec<Instant>>>, PathBuf)> {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path)?;
    let beats = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&beats);
    std::thread::Builder::new()
        .name("notify".to_owned())
        .spawn(move || {
            let mut message = [0; 1024];
            while let Ok(length) = socket.recv(&mut message) {
                if message[..length].starts_with(b"WATCHDOG=1") {
                    let mut beats = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    beats.push(Instant::now());
                }
            }
        })?;
    Ok((beats, path))
}
