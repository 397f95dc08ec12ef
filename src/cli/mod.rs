//! The command line: one file a subcommand.
//!
//! Uses every other module but `agent`, and none uses it.

mod advice;
mod bootstrap;
mod check;
mod cleanup;
mod config;
mod diagnose;
mod explain;
mod pause;
mod permissions;
mod records;
mod removal;
mod status;

use std::convert::Infallible;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::host::{disk, kubelet, pod, top};
use crate::records::{self as host_records, collect, upload};
use crate::run;
use crate::settings::{self, Settings, accepted};

/// The command has done its work, or everything is healthy.
const GOOD: u8 = 0;
/// The command has failed, or there is a problem.
const BAD: u8 = 1;
/// Whether there is a problem is not known.
const UNKNOWN: u8 = 2;
/// The command line is wrong: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// Reports the health of this node as conditions of its Node.
///
/// nodevigil only observes: it restarts and kills nothing.
#[derive(Debug, Parser)]
#[command(name = "nodevigil", version, max_term_width = 100)]
#[command(after_help = "Every command exits with 64 if its command line is wrong.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent, as nodevigil.service does
    ///
    /// Exit code: 0 the agent was stopped, 70 a task of the agent failed, 78 the settings are invalid and no earlier valid ones exist.
    Run {
        /// Read this file, or every *.toml file of this directory, instead of the default settings files; can be repeated
        #[arg(long, value_name = "FILE|DIR")]
        config: Vec<PathBuf>,
    },
    Check(Box<check::Check>),
    Status(status::StatusCommand),
    Diagnose(diagnose::Diagnose),
    Bootstrap(bootstrap::Bootstrap),
    Records(records::Records),
    Pause(pause::PauseCommand),
    /// End the pause
    ///
    /// Exit code: 0 nodevigil is not paused, 1 the pause could not be ended.
    Resume,
    /// Check or show the settings
    #[command(subcommand)]
    Config(config::Config),
    Explain(explain::Explain),
    /// Print a completion script for a shell
    #[command(after_help = "Example: nodevigil completions bash >/etc/bash_completion.d/nodevigil")]
    Completions {
        /// The shell
        shell: Shell,
    },
    Cleanup(cleanup::Cleanup),
    /// Print what the agent reads of the kubelet's command line, of its files and of cloud-init's status
    #[command(name = kubelet::SUBCOMMAND, hide = true)]
    KubeletFacts {
        /// The kubelet's process, if it runs
        pid: Option<i32>,
    },
    /// Test whether file systems can be written to
    #[command(name = disk::SUBCOMMAND, hide = true)]
    ProbeDisk {
        /// Directories on them
        paths: Vec<PathBuf>,
    },
    /// Print the processes whose memory grows fastest or is largest
    #[command(name = top::SUBCOMMAND, hide = true)]
    Top,
    /// Read the host for a record that the agent has begun
    #[command(name = host_records::SUBCOMMAND, hide = true)]
    CompleteRecord {
        /// The record's name
        name: String,
    },
    /// Upload the records that are not uploaded yet
    #[command(name = upload::SUBCOMMAND, hide = true)]
    UploadRecords,
}

/// The format of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Output {
    /// The value as JSON, or the text.
    fn render(self, value: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Text => text(),
        })
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { GOOD });
        }
    };
    if let Err(error) = pod::enter_host_root() {
        complain(&format!("{error:#}"));
        return ExitCode::from(BAD);
    }
    let result = match cli.command {
        Command::Run { config } => return run::run(&config),
        Command::Check(check) => Ok(check.run()),
        Command::Status(status) => status.run(),
        Command::Diagnose(diagnose) => diagnose.run(),
        Command::Bootstrap(bootstrap) => bootstrap.run(),
        Command::Pause(pause) => pause.run(),
        Command::Resume => pause::resume(),
        Command::Config(config) => config.run(),
        Command::Explain(explain) => explain.run(),
        Command::Completions { shell } => print(&completions(shell)).map(|()| GOOD),
        Command::Cleanup(cleanup) => cleanup.run(),
        Command::KubeletFacts { pid } => print_json(&kubelet::read(pid)),
        Command::ProbeDisk { paths } => Ok(probe_disk(&paths)),
        Command::Top => print_json(&top::read()),
        Command::CompleteRecord { name } => {
            block_on("reading the host", collect::complete(&name)).and_then(|completed| print_json(&completed))
        }
        Command::UploadRecords => {
            block_on("uploading", upload::upload_all()).and_then(|uploaded| print_json(&uploaded))
        }
        Command::Records(records) => records.run(),
    };
    ExitCode::from(result.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        BAD
    }))
}

fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nodevigil", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints the result of a child of the agent.
fn print_json(found: &impl Serialize) -> anyhow::Result<u8> {
    print(&serde_json::to_string(found)?)?;
    Ok(GOOD)
}

/// Prints a line of JSON before each step, so that the agent knows which step hangs, and then the result.
fn probe_disk(paths: &[PathBuf]) -> u8 {
    disk::probe_here(paths, |line| _ = serde_json::to_string(line).map(|line| print(&(line + "\n"))));
    GOOD
}

/// A positive time span, such as `90s`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().filter(SignedDuration::is_positive);
    duration.map(SignedDuration::unsigned_abs).ok_or_else(|| "expected a duration such as 90s, 30m or 2h30m".to_owned())
}

/// The settings that the agent uses: the last valid ones if those of the files are invalid.
fn settings_in_effect() -> Settings {
    let settings = settings::load(Path::new("/"), &[]).ok();
    settings.or_else(|| accepted::read(Path::new(accepted::PATH))).unwrap_or_default()
}

/// Runs `work`, and shows on a terminal that it does so for longer than a second. Does not wait for its threads that hang in the kernel
/// (state D).
fn block_on<T>(doing: &str, work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = run::runtime()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            never = show_progress(doing) => match never {},
        }
    });
    replace_line("");
    runtime.shutdown_background();
    Ok(done)
}

async fn show_progress(doing: &str) -> Infallible {
    let started = Instant::now();
    loop {
        sleep(Duration::from_secs(1)).await;
        replace_line(&format!("{doing}: {} s", started.elapsed().as_secs()));
    }
}

/// Replaces the last line of stderr if stderr is a terminal.
fn replace_line(text: &str) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        _ = write!(stderr, "\r\x1b[K{text}");
    }
}

/// Prints to stdout. It is no error that the reader, such as `head`, has closed the pipe.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => anyhow::bail!("cannot write to stdout: {error}"),
        _ => Ok(()),
    }
}

/// Whether stdout is to be colored (<https://no-color.org>).
fn is_colored() -> bool {
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !no_color
}

/// Prints a line to stderr.
fn complain(message: &str) {
    replace_line("");
    _ = writeln!(io::stderr().lock(), "nodevigil: {}", redact::escape_controls(message));
}

/// The command line, from which docs/reference and packaging/man are generated.
#[cfg(test)]
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_shell_can_complete_every_command() {
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            assert!(script.contains("diagnose") && script.contains("completions"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_option_has_a_help_text() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
