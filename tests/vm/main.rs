//! The tests in a guest of their own under qemu, where a node really runs out of memory, and where the kernel is nobody else's.
//!
//! They run in namespaces of their own (`support::enter`), with a real control plane beside the guest. One guest runs at a time: an
//! emulated processor takes a core.
//!
//! | argument | does |
//! |---|---|
//! | none, `short` | one guest, in which the kubelet is killed while the host thrashes: a part of `make test` |
//! | `full NAME…` | every load that something was promised for, `VM_RUNS` times (5), each with its trace in `dist/vm-traces`: `make vm`; with names only the guests that begin with one of these loads |
//! | `reasons NAME…` | one guest, in which each reason that is bad is provoked with the real kubelet on cgroup v2, and rows of the table of trust: a part of `make vm`; with names only those that begin so |
//! | `record FOLDER MIB NAME…` | records loads (all, if none is named) in guests of so much memory, as traces into a folder of this tree |

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests stand outside the agent and measure it with a clock of their own"
)]

mod archive;
mod bootstrapped;
mod by_hand;
mod debugger;
mod emulator;
mod files;
mod full;
mod guest;
mod judge;
mod lab;
mod loads;
mod observe;
mod programs;
mod provoked;
mod reasons;
mod runs;
mod scenarios;
mod trace;
mod trust;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use anyhow::{Result, bail};

use loads::ALL;
use support::{repository, say};

fn main() -> ExitCode {
    support::enter::enter();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--list", ..] => Ok(true), // asked by whoever lists tests: there are none by name
        [] | ["short", ..] => full::short(),
        ["full", names @ ..] => full::full(names),
        ["reasons", names @ ..] => reasons::run(names),
        ["record", folder, memory, names @ ..] => Ok(record(folder, memory.parse()?, names)),
        other => bail!("{other:?}: there are `short`, `full`, `reasons` and `record`"),
    }
}

fn record(folder: &str, memory_mib: u32, names: &[&str]) -> bool {
    let mut well = true;
    for scenario in ALL
        .iter()
        .filter(|scenario| names.is_empty() || names.contains(&scenario.name))
    {
        let mut scenario = *scenario;
        scenario.setting.memory_mib = memory_mib;
        if let Err(error) = runs::record(&scenario, &repository().join(folder)) {
            say(&format!("{}: {error:#}", scenario.name));
            well = false;
        }
    }
    well
}
