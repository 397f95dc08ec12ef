//! A controller that lives by a clock of ours (tests/cluster/stepped): a time goes in, and what it did until then comes out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;

use crate::support::control_plane::ControlPlane;
use crate::support::process::{log_file, tail};
use crate::support::tools;

/// A look at 300 machines takes a second at the most; a machine under load may take long.
const PATIENCE: Duration = Duration::from_mins(2);

/// What it has done.
#[derive(Debug, Deserialize)]
pub(crate) struct Did {
    /// The machines that it has deleted, or given to their owner to delete, and that are still there.
    pub(crate) deleted: Vec<String>,
    /// It would have acted, and its limit held it back.
    pub(crate) blocked: bool,
}

/// The controller; it ends with this.
pub(crate) struct Stepped {
    child: Child,
    times: ChildStdin,
    answers: Receiver<String>,
    log: PathBuf,
}

impl Stepped {
    /// Starts it as the administrator.
    pub(crate) fn start(plane: &ControlPlane, program: &str, arguments: &[String]) -> Result<Self> {
        let kubeconfig = plane.folder().join(format!("{program}.conf"));
        let admin = plane.kubeconfig(program, &["system:masters"], "127.0.0.1")?;
        std::fs::write(&kubeconfig, admin.to_string()).context("writing a kubeconfig")?;
        let log = plane.folder().join(format!("{program}.log"));
        let mut child = Command::new(tools::consumer(&format!("{program}/{program}"))?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file(&log)?.1)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let times = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            times,
            answers,
            log,
        })
    }

    /// Steps its clock.
    pub(crate) fn step(&mut self, now: Timestamp) -> Result<Did> {
        let answer = writeln!(self.times, "{now}")
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(self.answers.recv_timeout(PATIENCE)?))
            .with_context(|| self.tail())?;
        serde_json::from_str(&answer).context(answer)
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
