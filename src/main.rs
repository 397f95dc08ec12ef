//! The nodevigil program: parses the command line, runs one subcommand, turns the error into an exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use nodevigil::{cli::Cli, config::ConfigError, door::heap::Heap};

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // If not even stderr can be written to, the exit code has to say it.
            writeln!(io::stderr(), "nodevigil: {error:#}").ok();
            error
                .downcast_ref::<ConfigError>()
                .map_or(ExitCode::FAILURE, |e| ExitCode::from(e.exit_code()))
        }
    }
}
