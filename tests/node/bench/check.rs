//! How long `nodevigil check` takes, and how much memory: it stands in the way of a kubelet that starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::report::{Row, Statistic};
use super::support::stats::Sample;
use super::support::{repository, tools};

/// Set for the process of ours whose only children are the runs, so that the largest child is one of them.
const STAGE: &str = "NODEVIGIL_BENCH_CHECK";
const TRIES: usize = 50;

/// Whether this process is to do the runs.
pub(crate) fn is_runner() -> bool {
    std::env::var_os(STAGE).is_some()
}

/// Does the runs: a line of milliseconds each, and at the end one of kilobytes.
pub(crate) fn run() -> Result<()> {
    let host = largest_host()?;
    let root = host.join("rootfs");
    for _ in 0..TRIES {
        let started = Instant::now();
        let status = Command::new(tools::agent()?)
            .args(["check", "--format", "json", "--root"])
            .arg(&root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let millis = started.elapsed().as_secs_f64() * 1e3;
        ensure!(
            status.code().is_some_and(|code| code < 2),
            "{status}: {}",
            root.display()
        );
        super::say(&format!("{millis}"));
    }
    let largest = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    super::say(&format!("{largest}"));
    Ok(())
}

/// The rows of the promise, for the fixture with the most bytes.
pub(crate) fn check() -> Result<Vec<Row>> {
    let done = Command::new(std::env::current_exe()?)
        .env(STAGE, "1")
        .output()
        .context("starting the runner")?;
    let said = String::from_utf8(done.stderr)? + &String::from_utf8(done.stdout)?;
    ensure!(done.status.success(), "the runs failed: {said}");
    let mut numbers: Vec<f64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    ensure!(numbers.len() == TRIES + 1, "the runner said {said}");
    let kilobytes = numbers.pop().unwrap_or_default();
    let wall: Sample = numbers.into_iter().collect();
    let memory: Sample = [kilobytes * 1024.0 / 1e6].into_iter().collect();
    Ok(vec![
        Row::promised(
            "`check` of the largest fixture",
            "ms",
            &wall,
            Statistic::P99,
            20.0,
        ),
        Row::promised(
            "`check` of the largest fixture, memory",
            "MB",
            &memory,
            Statistic::Only,
            20.0,
        ),
    ])
}

fn largest_host() -> Result<PathBuf> {
    let hosts = repository().join("tests/hosts");
    let mut sizes = Vec::new();
    for entry in fs::read_dir(&hosts)?.flatten() {
        sizes.push((bytes(&entry.path())?, entry.path()));
    }
    sizes.sort();
    sizes.pop().map(|(_, path)| path).context("there are hosts")
}

fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)?.flatten() {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sum += bytes(&entry.path())?;
        } else if kind.is_file() {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}
