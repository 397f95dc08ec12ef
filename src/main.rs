//! nodevigil: reports on the Node why a kubelet does not work.
#![expect(unreachable_pub, reason = "a binary: `pub` marks what other modules use")]

mod agent;
mod cli;
mod condition;
mod facts;
mod files;
mod host;
mod monitor;
mod publish;
mod records;
mod report;
mod run;
mod settings;
#[cfg(test)]
mod tests;
mod timeline;
mod trouble;

fn main() -> std::process::ExitCode {
    cli::main()
}
