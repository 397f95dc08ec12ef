//! A program of the control plane that runs in the background.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running program with a log of its own; it is killed when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `program`; its output is appended to `NAME.log` in `directory`.
    pub fn start(directory: &Path, program: &Path, arguments: &[String]) -> Result<Self> {
        let name = program.file_name().context("a program has a name")?;
        let log = directory.join(name).with_extension("log");
        let output = OpenOptions::new().create(true).append(true).open(&log).context("opening a log")?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { log, child })
    }

    /// The end of its log, for an error message.
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// Fails, with the end of its log, if it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended ({status}); {}", tail(&self.log));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// The last 15 lines of a log, for an error message.
pub fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(15)..];
    format!("the end of {}:\n{}", log.display(), last.join("\n"))
}

/// A log file for both outputs of a child.
pub fn log_file(path: &Path) -> Result<(File, File)> {
    let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    Ok((file.try_clone()?, file))
}
