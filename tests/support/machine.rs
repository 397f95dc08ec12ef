//! A booted systemd: PID 1 of namespaces of its own, over a copy-on-write view of this machine's root.
//!
//! A [`super::node::Node`] is one with a kubelet on it; the oracle for the unit files is one with nothing on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;

use super::boot::{File, Spec};
use super::process::{log_file, tail};
use super::{cgroups, enter, say, wait_until};

/// A running systemd. It is gone, with all it started, when it is dropped.
pub(crate) struct Machine {
    label: String,
    group: String,
    /// The `unshare` whose child the systemd is.
    parent: Child,
    /// What it is to be, and what its boot wrote before its journal took over.
    files: [PathBuf; 2],
    folder: PathBuf,
    /// Its systemd, as we see it; 0 before there is one.
    pid1: i32,
}

impl Machine {
    /// Begins to boot it into `target`; `label` is unique in the run.
    pub(crate) fn begin(
        label: String,
        layers: Vec<PathBuf>,
        files: Vec<File>,
        target: &str,
    ) -> Result<Self> {
        let nodes = enter::work().join("nodes");
        let folder = nodes.join(&label);
        fs::create_dir_all(&folder).context("making the node's folder")?;
        let spec = Spec {
            group: format!("{}/{label}", enter::run()?),
            layers,
            files,
            target: target.to_owned(),
            folder: folder.clone(),
        };
        let file = nodes.join(format!("{label}.json"));
        fs::write(&file, serde_json::to_vec(&spec)?)?;
        let console = nodes.join(format!("{label}.console"));
        let parent = spawn(&file, &console)?;
        Ok(Self {
            label,
            group: spec.group,
            parent,
            files: [file, console],
            folder,
            pid1: 0,
        })
    }

    /// Returns when its systemd answers and these files are there, named relative to its root.
    pub(crate) fn wait_up(&mut self, wanted: &[&str]) -> Result<()> {
        let up = wait_until("the node's systemd", Duration::from_secs(30), || {
            if let Some(status) = self.parent.try_wait()? {
                bail!("the boot ended ({status})");
            }
            if self.pid1 == 0 {
                self.pid1 = child_of(self.parent.id()).unwrap_or(0);
            }
            // Before systemd runs, the root is still that of the run.
            let root = self.root();
            let systemd = fs::read_to_string(format!("/proc/{}/comm", self.pid1));
            let systemd = systemd.is_ok_and(|name| name.trim() == "systemd");
            Ok((systemd && wanted.iter().all(|path| root.join(path).exists())).then_some(()))
        });
        up.with_context(|| format!("node {}: {}", self.label, tail(&self.files[1])))
    }

    /// Its systemd's pid, as we see it.
    pub(crate) fn pid1(&self) -> i32 {
        self.pid1
    }

    /// Its control group, below every hierarchy's mount point.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Its root folder, as we see it. Absolute links in it lead out of it.
    pub(crate) fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid1))
    }

    /// Runs a shell command on it: exit code and output (both streams).
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

    /// Runs a shell command on it that must succeed; returns its output.
    pub(crate) fn sh(&self, command: &str) -> Result<String> {
        let (code, output) = self.run(command)?;
        ensure!(
            code == 0,
            "node {}: `{command}` ended with {code}: {output}",
            self.label
        );
        Ok(output)
    }

    /// Ends it as a power cut would, and waits until nothing of it is left on this machine.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.pid1 > 1 {
            let _ = kill(Pid::from_raw(self.pid1), Signal::SIGKILL); // may be gone already
        } else {
            self.parent.kill()?;
        }
        self.parent.wait()?;
        for file in &self.files {
            let _ = fs::remove_file(file); // ended twice, if by hand
        }
        let _ = fs::remove_dir(&self.folder);
        cgroups::remove(&self.group, Duration::from_secs(5))
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
    let parent = i32::try_from(parent).ok()?;
    let tasks = Process::new(parent).ok()?.tasks().ok()?.flatten();
    tasks
        .filter_map(|task| task.children().ok())
        .flatten()
        .next()
        .and_then(|pid| i32::try_from(pid).ok())
}

fn spawn(spec: &Path, console: &Path) -> Result<Child> {
    let (output, errors) = log_file(console)?;
    Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child=KILL",
        ])
        .args(["--propagation", "private", "--"])
        .arg(std::env::current_exe().context("finding this program")?)
        .env(enter::STAGE, format!("boot:{}", spec.display()))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("starting unshare")
}
