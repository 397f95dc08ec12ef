//! Makes the deb and the rpm of a binary: `cargo run --example packages -- --help`.
#![expect(clippy::print_stdout, reason = "it is a program for a terminal")]

#[path = "mod.rs"]
mod build;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Make the deb and the rpm of a static binary, byte for byte the same each time
#[derive(Debug, Parser)]
struct Arguments {
    /// The binary
    #[arg(long)]
    binary: PathBuf,
    /// Its architecture
    #[arg(long, value_enum, default_value = "amd64")]
    arch: build::Arch,
    /// The program nfpm
    #[arg(long)]
    nfpm: PathBuf,
    /// The folder that the packages go to
    #[arg(long)]
    out: PathBuf,
    /// The time that everything in them has, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    epoch: u32,
}

fn main() -> Result<()> {
    let Arguments {
        binary,
        arch,
        nfpm,
        out,
        epoch,
    } = Arguments::parse();
    let wanted = build::Wanted {
        version: build::version(),
        binary,
        arch,
        nfpm,
        out,
        epoch,
    };
    for package in build::packages(&wanted)? {
        println!("{}", package.display());
    }
    Ok(())
}
