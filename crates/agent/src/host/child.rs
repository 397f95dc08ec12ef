//! Programs that nodevigil starts: what may hang runs in a child, never in the agent.

use std::{
    fs, io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, process::Command, time::timeout};

/// What a program prints beyond this is not read.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// Runs a program; returns how it ended and what it printed to stdout. It is killed when the time is up; one that hangs in the kernel
/// (state D) outlives that and is not waited for.
///
/// # Errors
/// When it cannot be started, or the time is up.
pub async fn run(mut command: Command, time: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let run = async {
        // Starting a program blocks until its exec, which reads the disk.
        let mut child = tokio::task::spawn_blocking(move || command.spawn()).await.map_err(io::Error::other)??;
        if let Some(pid) = child.id() {
            // It inherits the agent's protection from the OOM killer, and does not deserve it.
            fs::write(format!("/proc/{pid}/oom_score_adj"), "0").ok();
        }
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
        }
        Ok((child.wait().await?, output))
    };
    timeout(time, run).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
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
        let (_, long) = run_program("head", &["-c", "1000000", "/dev/zero"], long_enough).await.unwrap();
        assert_eq!(long.len() as u64, MAX_OUTPUT_BYTES);
        let (status, _) = run_program("false", &[], long_enough).await.unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(run_program("/no/such/program", &[], long_enough).await.is_err());
    }
}
