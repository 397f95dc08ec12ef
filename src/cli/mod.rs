//! The command line: one file a subcommand.
//!
//! Uses every other module but `agent`, and none uses it.

mod bootstrap;
mod check;
mod cleanup;
mod config;
mod diagnose;
mod explain;
mod host;
mod pause;
mod replay;
mod status;

use std::{
    env,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;

use crate::{
    host::{disk, kubelet, pod, top},
    run,
    settings::{self, Settings, accepted},
};

/// Done, or everything is well.
const GOOD: u8 = 0;
/// Not done, or something is not well.
const BAD: u8 = 1;
/// Whether everything is well is not known.
const COULD_NOT_TELL: u8 = 2;
/// The command line is wrong: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// Watches the health of this node and publishes it as conditions of the Node.
///
/// nodevigil only observes: it restarts and kills nothing.
#[derive(Debug, Parser)]
#[command(name = "nodevigil", version, max_term_width = 100)]
#[command(after_help = "Exit code of every command: 64 the command line is wrong.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the node until stopped, as nodevigil.service does
    ///
    /// Exit code: 0 stopped, 70 a part of the agent failed, 78 the settings are refused and no earlier ones were accepted.
    Run {
        /// Read this file, or all *.toml of this directory, in place of the usual settings files; can be repeated
        #[arg(long, value_name = "FILE|DIR")]
        config: Vec<PathBuf>,
    },
    Check(Box<check::Check>),
    Status(status::Status),
    Diagnose(diagnose::Diagnose),
    Bootstrap(bootstrap::Bootstrap),
    Pause(pause::PauseCommand),
    /// End the pause
    ///
    /// Exit code: 0 not paused any more, 1 the pause could not be ended.
    Resume,
    /// Work with the settings files
    #[command(subcommand)]
    Config(config::Config),
    Explain(explain::Explain),
    /// Print a script that completes nodevigil's command lines in a shell
    #[command(after_help = "Example: nodevigil completions bash >/etc/bash_completion.d/nodevigil")]
    Completions {
        /// The shell
        shell: Shell,
    },
    Cleanup(cleanup::Cleanup),
    /// Print what the command line of a kubelet, its files and cloud-init say, as the agent reads them
    #[command(name = kubelet::SUBCOMMAND, hide = true)]
    KubeletFacts {
        /// The kubelet's process, if it runs
        pid: Option<i32>,
    },
    /// Test whether a file system can be written to
    #[command(name = disk::SUBCOMMAND, hide = true)]
    ProbeDisk {
        /// A directory on it
        path: PathBuf,
    },
    /// Print the processes that grow fastest or hold most memory
    #[command(name = top::SUBCOMMAND, hide = true)]
    Top,
    #[command(hide = true)]
    Replay(replay::Replay),
}

/// How a command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
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
        Command::Check(check) => check.run(),
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
        Command::ProbeDisk { path } => probe_disk(&path),
        Command::Top => print_json(&top::read()),
        Command::Replay(replay) => replay.run(),
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

/// Prints what a child of the agent has found.
fn print_json(found: &impl serde::Serialize) -> anyhow::Result<u8> {
    print(&serde_json::to_string(found)?)?;
    Ok(GOOD)
}

/// Prints a line of JSON before each step, so that a reader knows which one hangs, and the result.
fn probe_disk(path: &Path) -> anyhow::Result<u8> {
    let line = |line: &disk::Line| print(&format!("{}\n", serde_json::to_string(line)?));
    let probe = disk::probe_here(path, |step| _ = line(&disk::Line::Step(step)));
    line(&disk::Line::Result(probe))?;
    Ok(GOOD)
}

/// A time span that is longer than nothing, as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().filter(SignedDuration::is_positive);
    duration.map(SignedDuration::unsigned_abs).ok_or_else(|| "wanted a time such as 90s, 30m or 2h30m".to_owned())
}

/// The settings that the agent uses: if they are refused, those that it accepted last.
fn settings_in_effect() -> Settings {
    let settings = settings::load(Path::new("/"), &[]).ok();
    settings.or_else(|| accepted::read(Path::new(accepted::PATH))).unwrap_or_default()
}

/// Does what waits. A thread of it that hangs in the kernel (state D) is not waited for.
fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = run::runtime()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(done)
}

/// Prints to stdout. A reader that has gone away, such as `head`, is no error.
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
    _ = writeln!(io::stderr().lock(), "nodevigil: {}", redact::escape_controls(message));
}

/// The command line, from which docs/reference is generated.
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
