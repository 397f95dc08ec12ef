//! Boots real Kubernetes nodes and a real control plane on this machine, and takes all of it away again.

pub mod bare_guest;
pub mod boot;
pub mod cgroups;
pub mod control_plane;
pub mod daemon;
pub mod guest;
pub mod helm;
pub mod kinds;
pub mod leftovers;
pub mod machine;
pub mod namespaces;
pub mod node;
pub mod node_files;
pub mod programs;
pub mod requests;
pub mod watch;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The longest wait for anything that is to happen. The stories ask what happens and in which order, not how fast.
pub const WAIT: Duration = Duration::from_mins(2);

/// Writes a line to standard output. A closed standard output is no failure.
pub fn say(message: &str) {
    let _ = writeln!(std::io::stdout(), "{message}");
}

/// The checkout that this program was built from.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Asks ten times a second until there is an answer; an error ends the wait at once. On a guest it waits longer than `timeout`.
pub fn wait_until<T>(what: &str, timeout: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let timeout = timeout * kinds::current().patience();
    let end = Instant::now() + timeout;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!("waited {} s for {what}", timeout.as_secs());
        }
        sleep(Duration::from_millis(100));
    }
}

/// Runs a command that must succeed; returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?} ended with {}: {}", done.status, errors.trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
