//! Programs that nodevigil starts: what may hang runs in a child, never in the agent.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::blocking::{late, one_at_a_time};
use super::pod;

/// What a program prints beyond this is not read. `nodevigil check -o json` prints some 40 KiB, and the kubelet, when it ends by SIGABRT, the
/// stacks of its goroutines, some 260 KiB.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// Starts a program whose stdout is read by the caller. It is killed when the result is dropped. Nothing limits the time that a start
/// takes.
///
/// # Errors
/// When it cannot be started.
pub async fn start(mut command: Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let (started, child) = oneshot::channel();
    let runtime = Handle::current();
    // Starting a program blocks until its exec, which reads the disk. On a dead disk the thread hangs, so it is none of the runtime's few.
    thread::Builder::new().name("start".into()).spawn(move || {
        let _runtime = runtime.enter();
        let child = command.spawn();
        if let Some(pid) = child.as_ref().ok().and_then(Child::id) {
            // It inherits the agent's protection from the OOM killer, and does not deserve it.
            fs::write(format!("/proc/{pid}/oom_score_adj"), "0").ok();
        }
        started.send(child).ok();
    })?;
    child.await.map_err(io::Error::other)?
}

/// Runs a program; returns how it ended and what it printed to stdout. It is killed when the time is up. One that hangs in the kernel
/// (state D) outlives that, and until it has ended the same program is not run again with the same first argument.
///
/// # Errors
/// When it cannot be started, or the time is up.
pub async fn run(command: Command, time: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
    let deadline = Instant::now() + time;
    let guard = one_at_a_time(&kind(&command), deadline).await?;
    let (mut ended, result) = oneshot::channel();
    // A task, which goes on when the caller does not wait any more.
    tokio::spawn(async move {
        let _guard = guard;
        let mut child = match start(command).await {
            Ok(child) => child,
            Err(error) => return drop(ended.send(Err(error))),
        };
        tokio::select! {
            end = end(&mut child) => drop(ended.send(end)),
            () = ended.closed() => drop(child.kill().await),
        }
    });
    timeout_at(deadline, result).await.map_err(|_| late(time))?.map_err(io::Error::other)?
}

/// Runs a subcommand of nodevigil's that prints JSON.
///
/// # Errors
/// When it cannot be started, ends without JSON, or the time is up; the error names the subcommand.
pub async fn run_own<T: DeserializeOwned>(arguments: &[&str], time: Duration) -> Result<T, String> {
    let mut command = own_command();
    command.args(arguments);
    let name = arguments.first().copied().unwrap_or_default();
    let (status, output) = run(command, time).await.map_err(|error| format!("`nodevigil {name}`: {error}"))?;
    let failed = |error| format!("`nodevigil {name}` failed ({status}: {error}); run it to see why");
    serde_json::from_slice(&output).map_err(failed)
}

/// This program.
pub fn own_command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // It inherits the root directory.
    command.env_remove(pod::HOST_ROOT);
    command
}

async fn end(child: &mut Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
    }
    Ok((child.wait().await?, output))
}

/// The program and its first argument, such as `/proc/self/exe check`.
fn kind(command: &Command) -> String {
    let command = command.as_std();
    let words = [command.get_program()].into_iter().chain(command.get_args().take(1));
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_program(program: &str, arguments: &[&str], time: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut command = Command::new(program);
        command.args(arguments);
        run(command, time).await
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_and_long_output_is_cut() {
        let long_enough = Duration::from_mins(2);
        let hung = run_program("sleep", &["1000"], Duration::from_millis(50)).await;
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (_, long) = run_program("head", &["-c", "2000000", "/dev/zero"], long_enough).await.unwrap();
        assert_eq!(long.len() as u64, MAX_OUTPUT_BYTES);
        let (status, _) = run_program("false", &[], long_enough).await.unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(run_program("/no/such/program", &[], long_enough).await.is_err());
    }

    #[tokio::test]
    async fn while_a_program_runs_it_is_not_run_again_with_the_same_first_argument() {
        let long_enough = Duration::from_mins(2);
        let mut first = Box::pin(run_program("sleep", &["2000", "1"], long_enough));
        assert!(timeout_at(Instant::now(), &mut first).await.is_err());
        let second = run_program("sleep", &["2000", "2"], Duration::ZERO).await;
        assert!(second.unwrap_err().to_string().starts_with("an earlier attempt has not finished"));
        // Nobody waits for it any more: it is killed, and the next one begins.
        drop(first);
        assert!(run_program("sleep", &["2000", "x"], long_enough).await.is_ok_and(|(status, _)| !status.success()));
    }
}
