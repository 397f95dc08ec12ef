//! The nodevigil program: parses the command line, runs one subcommand, turns the error into an exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
};

use clap::Parser;
use nodevigil::{cli::Cli, config::ConfigError, door::heap::Heap};

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    match parse().run() {
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

/// On a thread, whose stack is given back: the hundred kilobytes that clap needs for a moment would stay resident in the main one
/// for as long as a daemon lives.
fn parse() -> Cli {
    thread::scope(|scope| {
        let parsing = thread::Builder::new().spawn_scoped(scope, Cli::parse);
        let parsed = parsing.ok().and_then(|thread| thread.join().ok());
        parsed.unwrap_or_else(Cli::parse) // no thread is to be had
    })
}
