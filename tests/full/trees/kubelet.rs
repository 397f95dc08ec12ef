//! A real kubelet in a tree: its root, in namespaces and control groups of its own.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use kubelet_config::kubelet::version::{Minor, Version};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nodevigil_e2e::support::{cgroups, namespaces, say};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tells this program to become a kubelet.
const ENTER: &str = "NODEVIGIL_ORACLE_ENTER";
/// Where the kubelet and the socket are in its tree.
const PROGRAM: &str = "run/oracle/kubelet";
const SOCKET: &str = "run/oracle/containerd.sock";
/// The last words that a kubelet logs before its configuration cannot stop it any more.
const STARTED: &str = "Starting Kubelet Plugin Manager";
/// A server that cannot listen, and a certificate that cannot be read, end the kubelet a moment after that.
const SETTLED_AFTER: Duration = Duration::from_millis(200);
/// Of older ones, which are out of support, `tests/full/kubelet` compares the flags.
pub(crate) const OLDEST: Minor = Minor(34);
const TIMEOUT: Duration = Duration::from_mins(1);

/// A kubelet that can be asked.
pub(crate) struct Kubelet {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    /// containerd's.
    socket: PathBuf,
}

/// What a kubelet did.
pub(crate) enum Answer {
    /// It exited, with this reason.
    Exits(String),
    /// It runs, with this configuration, if it logs as text.
    Runs(Option<Value>),
}

/// What a kubelet is started with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Spec {
    root: PathBuf,
    group: String,
    kubelet: PathBuf,
    socket: PathBuf,
    arguments: Vec<String>,
}

/// The kubelets of the releases that are supported, oldest first.
pub(crate) fn all(socket: &Path) -> Result<Vec<Kubelet>> {
    let mut paths = Vec::new();
    paths.extend(env::var_os("KUBEBUILDER_ASSETS").map(|directory| PathBuf::from(directory).join("kubelet")));
    if let Some(directory) = env::var_os("NODEVIGIL_KUBELETS") {
        let entries = fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
        paths.extend(entries.flatten().map(|entry| entry.path().join("kubelet")).filter(|path| path.exists()));
    }
    let mut kubelets = Vec::new();
    for path in paths {
        let output = Command::new(&path).arg("--version").output().with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version: Version = text.trim().trim_start_matches("Kubernetes ").parse()?;
        kubelets.push(Kubelet { path, version, socket: socket.to_owned() });
    }
    kubelets.retain(|kubelet| kubelet.version.minor >= OLDEST);
    kubelets.sort_by_key(|kubelet| kubelet.version.minor);
    Ok(kubelets)
}

impl Kubelet {
    /// Starts it in the tree at `root`; `label` is unique among those that run.
    pub(crate) fn run(&self, root: &Path, arguments: &[String], label: &str) -> Result<Answer> {
        let group = format!("{}/{label}", namespaces::run()?);
        let mut arguments = arguments.to_vec();
        // This machine may have cgroup v1 and swap.
        arguments.extend(["--fail-cgroupv1=false", "--fail-swap-on=false", "--v=5"].map(str::to_owned));
        arguments.push(format!("--container-runtime-endpoint=unix:///{SOCKET}"));
        let (kubelet, socket) = (self.path.clone(), self.socket.clone());
        let spec = Spec { root: root.to_owned(), group: group.clone(), kubelet, socket, arguments };
        let mut child = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child=KILL", "--propagation", "private"])
            .arg(namespaces::program())
            .env(ENTER, serde_json::to_string(&spec)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let answer = listen(&mut child);
        let _ = child.kill(); // it may have ended
        child.wait()?;
        cgroups::remove(&group, Duration::from_secs(20))?;
        answer
    }
}

/// Reads what the kubelet logs until it has ended or its configuration has been taken.
fn listen(child: &mut Child) -> Result<Answer> {
    let stderr = BufReader::new(child.stderr.take().context("no standard error")?);
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in stderr.split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut log = Vec::new();
    let has_started = read(&lines, Instant::now() + TIMEOUT, &mut log, |line| line.contains(STARTED))?;
    let has_ended =
        has_started.is_none() || read(&lines, Instant::now() + SETTLED_AFTER, &mut log, |_| false)?.is_none();
    if env::var_os("ORACLE_LOG").is_some() {
        say(&log.join("\n"));
    }
    if has_ended {
        let why = reason(&log);
        ensure!(!why.contains("the oracle"), "{why}");
        return Ok(Answer::Exits(why));
    }
    if has_started == Some(false) {
        bail!("it neither exited nor started within {TIMEOUT:?}: {}", log.last().map_or("", String::as_str));
    }
    Ok(Answer::Runs(configuration(&log)))
}

/// Whether the line was found until then; none if the kubelet has ended.
fn read(
    lines: &Receiver<String>,
    until: Instant,
    log: &mut Vec<String>,
    is_it: fn(&str) -> bool,
) -> Result<Option<bool>> {
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let is_found = is_it(&line);
                log.push(line);
                if is_found {
                    return Ok(Some(true));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Ok(Some(false)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// Why a kubelet exited, from its log.
fn reason(log: &[String]) -> String {
    let marks = ["command failed", "Failed to start ContainerManager", "Error:", "panic:", "the oracle", "err="];
    let line = marks.iter().find_map(|mark| log.iter().rev().find(|line| line.contains(mark)));
    let line = line.or(log.last()).cloned().unwrap_or_default();
    line.split_once("err=").map_or(line.clone(), |(_, why)| why.to_owned())
}

/// What it logged as its configuration: JSON between `configuration=<` and `>`, one tab before each line.
fn configuration(log: &[String]) -> Option<Value> {
    let start = log.iter().position(|line| line.contains("\"KubeletConfiguration\" configuration=<"))?;
    let json: String = log.iter().skip(start + 1).take_while(|line| line.trim() != ">").map(String::as_str).collect();
    serde_json::from_str(&json).ok()
}

/// The kubelet that this process is to become.
pub(crate) fn entering() -> Option<String> {
    env::var(ENTER).ok()
}

/// Becomes the kubelet; returns only if that fails.
pub(crate) fn enter(spec: &str) -> Result<Infallible> {
    let spec: Spec = serde_json::from_str(spec)?;
    become_kubelet(&spec).context("the oracle")
}

fn become_kubelet(spec: &Spec) -> Result<Infallible> {
    let hierarchies = cgroups::hierarchies()?;
    cgroups::join(&spec.group)?;
    unshare(CloneFlags::CLONE_NEWCGROUP)?;
    let root = &spec.root;
    let attach = |from: &Path, to: &str, kind: Option<&str>, flags| {
        mount(Some(from), &root.join(to), kind, flags, None::<&str>).with_context(|| format!("mounting {to}"))
    };
    attach(root, "", None, MsFlags::MS_BIND)?;
    attach(Path::new("proc"), "proc", Some("proc"), MsFlags::empty())?;
    attach(Path::new("sysfs"), "sys", Some("sysfs"), MsFlags::MS_RDONLY)?;
    attach(Path::new("/dev"), "dev", None, MsFlags::MS_BIND | MsFlags::MS_REC)?;
    attach(&spec.kubelet, PROGRAM, None, MsFlags::MS_BIND)?;
    attach(&spec.socket, SOCKET, None, MsFlags::MS_BIND)?;
    cgroups::mount_below(root, &hierarchies)?;
    mount(None::<&str>, root, None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)?;
    nix::unistd::sethostname("n1")?;
    ensure!(Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success(), "ip link set lo up failed");
    std::os::unix::fs::chroot(root)?;
    env::set_current_dir("/")?;
    let error = Command::new(format!("/{PROGRAM}"))
        .args(&spec.arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .exec();
    Err(error.into())
}
