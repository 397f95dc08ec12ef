//! The command line: one file a subcommand.

mod config;
mod explain;
mod pause;
mod status;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};

use crate::host::kubelet::{KubeletFacts, SUBCOMMAND};

/// Done, or everything is well.
const GOOD: u8 = 0;
/// Not done, or something is not well.
const BAD: u8 = 1;
/// Whether everything is well is not known.
const COULD_NOT_TELL: u8 = 2;
/// The command line is wrong: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// Watches this node's kubelet and reports on the Node why it does not work.
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
    /// Watch the kubelet until stopped, as nodevigil.service does
    ///
    /// Exit code: 0 stopped, 70 a part of the agent failed, 78 the settings are refused and no earlier ones were accepted.
    Run {
        /// Read this file, or all *.toml of this directory, in place of the usual settings files; can be repeated
        #[arg(long, value_name = "FILE|DIR")]
        config: Vec<PathBuf>,
    },
    Status(status::Status),
    Pause(pause::PauseCommand),
    /// End the pause
    ///
    /// Exit code: 0 not paused any more, 1 the pause could not be ended.
    Resume,
    /// Work with the settings files
    #[command(subcommand)]
    Config(config::Config),
    Explain(explain::Explain),
    /// Print what the command line of a kubelet says, as the agent reads it
    #[command(name = SUBCOMMAND, hide = true)]
    KubeletFacts {
        /// The kubelet's process
        pid: i32,
    },
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
    let result = match cli.command {
        Command::Run { config } => return crate::run::run(&config),
        Command::Status(status) => status.run(),
        Command::Pause(pause) => pause.run(),
        Command::Resume => pause::resume(),
        Command::Config(config) => config.run(),
        Command::Explain(explain) => explain.run(),
        Command::KubeletFacts { pid } => kubelet_facts(pid),
    };
    ExitCode::from(result.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        BAD
    }))
}

fn kubelet_facts(pid: i32) -> anyhow::Result<u8> {
    print(&serde_json::to_string(&KubeletFacts::read(pid))?)?;
    Ok(GOOD)
}

/// Prints to stdout. A reader that has gone away, such as `head`, is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => anyhow::bail!("cannot write to stdout: {error}"),
        _ => Ok(()),
    }
}

/// Prints a line to stderr.
fn complain(message: &str) {
    _ = writeln!(io::stderr().lock(), "nodevigil: {}", redact::harmless(message));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
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
