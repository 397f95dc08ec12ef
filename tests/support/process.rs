//! Starts the programs of a run, and tells to the moment when a process is gone.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

/// A process whose end is being waited for.
#[derive(Debug)]
pub(crate) struct Ending {
    pid: i32,
    gone: Receiver<Instant>,
}

/// Watches a process (by its pid in our namespace) from before it ends. A thread of its own blocks on its pidfd: so
/// the time is that of the kernel's wake-up, and no poll interval blurs it.
pub(crate) fn ending(pid: i32) -> Result<Ending> {
    let raw = rustix::process::Pid::from_raw(pid).context("a pid is positive")?;
    let pidfd =
        pidfd_open(raw, PidfdFlags::empty()).with_context(|| format!("pidfd_open of {pid}"))?;
    let (tell, gone) = channel();
    std::thread::Builder::new()
        .name(format!("pidfd-{pid}"))
        .spawn(move || {
            let mut ready = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            while poll(&mut ready, PollTimeout::NONE).is_err() {}
            let _ = tell.send(Instant::now());
        })?;
    Ok(Ending { pid, gone })
}

impl Ending {
    /// The moment the process was gone.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Instant> {
        self.gone
            .recv_timeout(timeout)
            .with_context(|| format!("process {} still lives after {timeout:?}", self.pid))
    }
}

/// Sends a signal to a process (by its pid in our namespace); returns the moment just before.
pub(crate) fn signal(pid: i32, signal: Signal) -> Result<Instant> {
    let at = Instant::now();
    kill(Pid::from_raw(pid), signal).with_context(|| format!("sending {signal} to {pid}"))?;
    Ok(at)
}

/// The CPU time of a process with all its threads, also those that have ended, which schedstat forgets: the scheduler's
/// own count in nanoseconds, not the ticks of /proc/PID/stat.
pub(crate) fn cpu(pid: i32) -> Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).context("the clock of a process")?;
    Ok(clock_gettime(clock)
        .context("reading the clock of a process")?
        .into())
}

/// A program of the control plane, running in the background with a log of its own.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `program`; its output is appended to `NAME.log` in `folder`.
    pub(crate) fn start(
        folder: &Path,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .context("opening a log")?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
        })
    }

    /// Fails, with the end of its log, if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}): {}", self.name, tail(&self.log));
        }
        Ok(())
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        tail(&self.log)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)
            .with_context(|| format!("sending {signal} to {}", self.name))
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(15)..];
    format!("the end of {}:\n{}", log.display(), last.join("\n"))
}

/// A log file that a child writes both its outputs to.
pub(crate) fn log_file(path: &Path) -> Result<(File, File)> {
    let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    Ok((file.try_clone()?, file))
}
