//! What a process asks of its kernel, all its threads, by strace: for tests that hold a way to be free of something.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest text of a call's that is shown: a record of the kernel's log is not longer than this.
const TEXT_BYTES: &str = "2048";

/// strace beside a process.
pub(crate) struct Tracer {
    child: Child,
    output: PathBuf,
}

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The thread.
    pub(crate) thread: i32,
    /// When it began: seconds since the epoch, as strace has it.
    pub(crate) at: f64,
    pub(crate) name: String,
    /// What stands in the parentheses and behind them; a descriptor's file stands behind it in angle brackets.
    pub(crate) rest: String,
}

impl Call {
    /// What it returned, if that is a number.
    pub(crate) fn result(&self) -> Option<i64> {
        let (_, result) = self.rest.rsplit_once(" = ")?;
        result.split_whitespace().next()?.parse().ok()
    }
}

impl Tracer {
    /// Traces that process (by its pid in our namespace) from now on.
    pub(crate) fn start(pid: i32, output: PathBuf) -> Result<Self> {
        // Sockets are named by the kernel of the network namespace that they are in.
        let mut child = Command::new("nsenter")
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .args(["strace", "-f", "-ttt", "-yy", "-s", TEXT_BYTES, "-o"])
            .arg(&output)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting strace")?;
        let mut said = BufReader::new(child.stderr.take().context("its standard error")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        if !line.contains("attached") {
            said.read_to_string(&mut line)?;
            child.wait()?;
            bail!("strace does not trace process {pid}: {line}");
        }
        // It says so for each thread, and would stop at a full pipe.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(Self { child, output })
    }

    /// Ends the tracing; the calls in the order in which they began.
    pub(crate) fn calls(mut self) -> Result<Vec<Call>> {
        kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            Signal::SIGINT,
        )?;
        self.child.wait()?;
        let text = fs::read(&self.output).context("what strace wrote")?;
        let calls = calls(&String::from_utf8_lossy(&text));
        ensure!(!calls.is_empty(), "strace saw no call");
        Ok(calls)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call that others came between stands on two lines: `name(… <unfinished ...>` and `<... name resumed>…`.
fn calls(text: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for line in text.lines() {
        let Some((thread, at, said)) = parts(line) else {
            continue;
        };
        if let Some(resumed) = said.strip_prefix("<... ") {
            let rest = resumed.split_once(" resumed>").map_or("", |(_, rest)| rest);
            let mut before = calls.iter_mut().rev();
            if let Some(call) = before.find(|call| call.thread == thread) {
                call.rest.push_str(rest);
            }
        } else if let Some((name, rest)) = said.split_once('(') {
            let rest = rest.trim_end_matches("<unfinished ...>");
            calls.push(Call {
                thread,
                at,
                name: name.to_owned(),
                rest: rest.to_owned(),
            });
        }
    }
    calls
}

/// The thread, the time and what it did; so many blanks stand between them as fill the columns.
fn parts(line: &str) -> Option<(i32, f64, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (at, said) = rest.trim_start().split_once(' ')?;
    Some((thread.parse().ok()?, at.parse().ok()?, said.trim_start()))
}
