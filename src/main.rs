//! The nodevigil program: parses the command line, runs one subcommand, turns the error into an exit code.

fn main() {}
