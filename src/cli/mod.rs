//! The command line: one file a subcommand.

pub mod bootstrap;
pub mod bundle;
pub mod check;
pub mod cleanup;
pub mod conditions;
mod daemon;
pub mod doctor;
pub mod explain;
pub mod generate;
pub mod helper;
pub mod metrics;
pub mod pause;
pub mod plugin;
pub mod replay;
pub mod run;
pub mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A health agent for every Kubernetes node: says why a kubelet is broken, on the Node, in milliseconds.
///
/// nodevigil observes. It acts on nothing but its own conditions.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node's kubelet and publish what is found (the daemon)
    Run(run::Run),
    /// Answer the agent's questions about root's files (the privileged helper, socket-activated)
    Helper(helper::Helper),
    #[command(hide = true)]
    Plugin(plugin::Plugin),
    Bootstrap(bootstrap::BootstrapCommand),
    Bundle(bundle::Bundle),
    Check(check::Check),
    Doctor(doctor::Doctor),
    /// Say what a rule, a reason or a flag of the kubelet means
    Explain(explain::Explain),
    #[command(hide = true)]
    Generate(generate::Generate),
    /// Show what the daemon found, and what the Node shows of it
    Status(status::Status),
    Pause(pause::PauseCommand),
    Resume(pause::Resume),
    Cleanup(cleanup::Cleanup),
    Replay(replay::Replay),
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Whatever the subcommand could not do, in a sentence.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Helper(helper) => helper.run().map(|()| ExitCode::SUCCESS),
            Command::Plugin(plugin) => plugin.run().map(|()| ExitCode::SUCCESS),
            Command::Bootstrap(bootstrap) => bootstrap.run(),
            Command::Bundle(bundle) => bundle.run(),
            Command::Check(check) => check.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Explain(explain) => explain.run(),
            Command::Generate(generate) => generate.run(),
            Command::Status(status) => status.run(),
            Command::Pause(pause) => pause.run(),
            Command::Resume(resume) => resume.run(),
            Command::Cleanup(cleanup) => cleanup.run(),
            Command::Replay(replay) => replay.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
