//! A booted systemd: PID 1 of namespaces of its own, over a copy-on-write view of this machine's root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;

use super::boot::{File, Spec};
use super::daemon::{log_file, tail};
use super::{cgroups, namespaces, say, wait_until};

/// A command on a machine takes no longer, so that none hangs a story.
const COMMAND_SECS: &str = "100";

/// A running systemd. It is gone, with all that it started, when it is dropped.
#[derive(Debug)]
pub struct Machine {
    label: String,
    group: String,
    /// The unshare(1) whose child the systemd is.
    parent: Mutex<Child>,
    /// The boot specification, and what the boot wrote before the journal took over.
    files: [PathBuf; 2],
    directory: PathBuf,
    /// Its systemd, as we see it.
    pid1: i32,
}

impl Machine {
    /// Boots it into `target` and returns when its systemd and its bus answer. `label` is unique in the run.
    pub fn boot(label: String, layers: Vec<PathBuf>, files: Vec<File>, target: &str) -> Result<Self> {
        let nodes = namespaces::work().join("nodes");
        let directory = nodes.join(&label);
        fs::create_dir_all(&directory).context("making the node's directory")?;
        let group = format!("{}/{label}", namespaces::run()?);
        let spec =
            Spec { directory: directory.clone(), group: group.clone(), layers, files, target: target.to_owned() };
        let files = ["json", "console"].map(|extension| nodes.join(format!("{label}.{extension}")));
        fs::write(&files[0], serde_json::to_vec(&spec)?)?;
        let parent = Mutex::new(spawn(&files[0], &files[1])?);
        let mut machine = Self { label, group, parent, files, directory, pid1: 0 };
        let up = machine.wait_up();
        up.with_context(|| format!("node {}: {}", machine.label, tail(&machine.files[1])))?;
        Ok(machine)
    }

    fn wait_up(&mut self) -> Result<()> {
        wait_until("the node's systemd", Duration::from_secs(30), || {
            let parent = self.parent.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(status) = parent.try_wait()? {
                bail!("the boot ended ({status})");
            }
            if self.pid1 == 0 {
                self.pid1 = child_of(parent.id()).unwrap_or(0);
            }
            // Before systemd runs, the root is still that of the run.
            let name = fs::read_to_string(format!("/proc/{}/comm", self.pid1));
            let root = PathBuf::from(format!("/proc/{}/root", self.pid1));
            let answers = ["run/systemd/private", "run/dbus/system_bus_socket"].iter().all(|at| root.join(at).exists());
            Ok((name.is_ok_and(|name| name.trim() == "systemd") && answers).then_some(()))
        })
    }

    /// Its systemd's pid, as we see it.
    pub fn pid1(&self) -> i32 {
        self.pid1
    }

    /// Its control group, below every hierarchy's mount point.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Runs a shell command on it: exit code and output (both streams).
    pub fn run(&self, command: &str) -> Result<(i32, String)> {
        let done = Command::new("nsenter")
            .args(["-t", &self.pid1.to_string(), "-m", "-p", "-u", "-i", "-C", "-r", "-w"])
            .args(["timeout", "--kill-after=5", COMMAND_SECS, "/bin/sh", "-c", &format!("exec 2>&1\n{command}")])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .output()
            .context("starting nsenter")?;
        let text = [done.stdout, done.stderr].concat();
        Ok((done.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Runs a shell command on it that must succeed; returns its output.
    pub fn sh(&self, command: &str) -> Result<String> {
        let (code, output) = self.run(command)?;
        ensure!(code == 0, "node {}: `{command}` ended with {code}: {output}", self.label);
        Ok(output)
    }

    /// Ends it as a power cut would, and waits until nothing of it is left on this machine.
    pub fn end(&self) -> Result<()> {
        let mut parent = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.pid1 > 1 && parent.try_wait()?.is_none() {
            let _ = kill(Pid::from_raw(self.pid1), Signal::SIGKILL); // it may have ended
        } else {
            parent.kill()?;
        }
        parent.wait()?;
        for file in &self.files {
            let _ = fs::remove_file(file); // it is absent if the machine was ended before
        }
        let _ = fs::remove_dir(&self.directory);
        cgroups::remove(&self.group, Duration::from_secs(10))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(&format!("ending node {}: {error:#}", self.label));
        }
    }
}

/// The only child of a process.
fn child_of(parent: u32) -> Option<i32> {
    let tasks = Process::new(i32::try_from(parent).ok()?).ok()?.tasks().ok()?.flatten();
    let mut children = tasks.filter_map(|task| task.children().ok()).flatten();
    children.next().and_then(|pid| i32::try_from(pid).ok())
}

fn spawn(spec: &Path, console: &Path) -> Result<Child> {
    let (output, errors) = log_file(console)?;
    Command::new("unshare")
        .args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "--propagation", "private", "--"])
        .arg(namespaces::program())
        .env(namespaces::STAGE, format!("boot:{}", spec.display()))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("starting unshare")
}
