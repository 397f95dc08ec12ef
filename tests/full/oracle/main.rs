//! The oracle: random trees of unit files, for which the resolver must have the same result as a real systemd.
//!
//! A systemd is booted in namespaces (`tests/e2e/src/support/machine.rs`). Fifty trees at a time are laid out in it, loaded and
//! started; a stand-in for the kubelet writes down its arguments and its environment. `compare` holds them against
//! `kubelet_config::kubelet::systemd::resolve`.
//!
//! `ORACLE_TREES` is how many (50 unless set), `ORACLE_SEED` the first tree's seed: `ORACLE_SEED=S ORACLE_TREES=1`
//! repeats one. `ORACLE_SHOW=1` prints the trees and systemd's results. Where the two differ, the tree is made small and
//! written to the directory of build results, with `ORACLE_KEEP=1` to `tests/full/oracle/regressions`, from where it is tried
//! in every run, and recorded anew with `ORACLE_KEEP=1`. `ORACLE_RECORD=FILE` records systemd's results, for the tests that have no systemd.

#![expect(
    clippy::format_push_string,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the oracle stands outside the agent; what it prints is short; systemd heeds the case"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use nodevigil_e2e::support::namespaces::{self, Stage};
use nodevigil_e2e::support::{self, boot, say};

mod case;
mod compare;
mod draft;
mod dump;
mod generate;
mod ingredients;
mod shapes;
mod shrink;
mod systemd;

use case::{Case, Record, Said};
use systemd::Systemd;

/// How many trees on which they differ are made small and printed whole, unless `ORACLE_SHRINK` is set.
const SHRUNK: u64 = 6;

fn main() -> ExitCode {
    if dump::is_dumper() {
        return dump::dump();
    }
    let done = match Stage::current() {
        Stage::Boot(spec) => boot::boot(&spec).map(|never| match never {}),
        Stage::Outside => namespaces::outside(),
        Stage::Inside(run) => inside(&run),
    };
    done.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn inside(run: &str) -> Result<ExitCode> {
    namespaces::inside(run)?;
    regressions()?;
    trees()?;
    Ok(ExitCode::SUCCESS)
}

/// A number from the environment.
fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

/// Every tree on which they once differed.
fn regressions() -> Result<()> {
    let directory = regressions_directory();
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    let systemd = Systemd::boot("regressions")?;
    let mut wrong = 0;
    for path in &paths {
        let case = Record::case(path)?;
        let said = systemd.ask(&[&case])?.remove(0);
        let differences = compare::differences(&case, &systemd.world, &said);
        if number("ORACLE_KEEP", 0)? > 0 {
            keep(path, &systemd, case, said)?;
        }
        if !differences.is_empty() {
            wrong += 1;
            say(&format!("{}: {}", path.display(), differences.join("\n  ")));
        }
    }
    say(&format!("{} regression trees, {wrong} differ", paths.len()));
    if wrong > 0 {
        bail!("{wrong} regression trees differ");
    }
    Ok(())
}

/// The random ones.
fn trees() -> Result<()> {
    let (first, count) = (number("ORACLE_SEED", 0)?, number("ORACLE_TREES", 50)?);
    let started = Instant::now();
    let systemd = Systemd::boot("trees")?;
    say(&format!(
        "oracle: systemd {}, {count} trees, seeds {first} to {}",
        systemd.world.version,
        first + count.saturating_sub(1)
    ));
    let cases: Vec<Case> = (first..first + count).map(generate::tree).collect();
    let mut tally = Tally::default();
    for group in cases.chunk_by(|a, b| a.seed / generate::GROUP == b.seed / generate::GROUP) {
        let group: Vec<&Case> = group.iter().collect();
        let answers = systemd
            .ask(&group)
            .with_context(|| format!("seeds {} to {}", group[0].seed, group[group.len() - 1].seed))?;
        for (case, said) in group.into_iter().zip(answers) {
            judge(&systemd, case, said, &mut tally)?;
        }
    }
    if let Ok(path) = std::env::var("ORACLE_RECORD") {
        record(Path::new(&path), &systemd, &tally)?;
    }
    tally.report(started.elapsed().as_secs_f64());
    if !tally.different.is_empty() {
        bail!("{} of {count} trees differ, by their seeds: {:?}", tally.different.len(), tally.different);
    }
    Ok(())
}

fn judge(systemd: &Systemd, case: &Case, said: Said, tally: &mut Tally) -> Result<()> {
    if number("ORACLE_SHOW", 0)? > 0 {
        say(&format!("{}\n{said:#?}", case.print()));
        say(&systemd.journal(&case.unit)?);
    }
    let differences = compare::differences(case, &systemd.world, &said);
    if !differences.is_empty() {
        tally.different.push(case.seed);
        say(&format!("\nseed {}: {}\n  {}", case.seed, case.ingredients.join(", "), differences.join("\n  ")));
        if tally.different.len() as u64 <= number("ORACLE_SHRINK", SHRUNK)? {
            explain(systemd, case, &differences)?;
        }
    }
    tally.count(case, &said);
    tally.answers.push((case.clone(), said));
    Ok(())
}

/// Shrinks the tree, prints it with both answers, and keeps it.
fn explain(systemd: &Systemd, case: &Case, differences: &[String]) -> Result<()> {
    let what = |difference: &String| difference.split(": ").next().map(str::to_owned);
    let wanted: Vec<_> = differences.iter().map(what).collect();
    let small = shrink::shrink(case, |candidate| {
        let said = systemd.ask(&[candidate])?.remove(0);
        let found = compare::differences(candidate, &systemd.world, &said);
        let found: Vec<_> = found.iter().map(what).collect();
        Ok(wanted.iter().all(|what| found.contains(what)))
    })?;
    systemd.journal(&small.unit)?;
    let said = systemd.ask(&[&small])?.remove(0);
    let found = compare::differences(&small, &systemd.world, &said);
    say(&format!("made small: {}  {}", small.print(), found.join("\n  ")));
    say(&format!("its journal:\n{}", systemd.journal(&small.unit)?));
    let directory = if number("ORACLE_KEEP", 0)? > 0 {
        regressions_directory()
    } else {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
    };
    let path = directory.join(format!("seed-{}.json", case.seed));
    keep(&path, systemd, small, said)?;
    say(&format!("written to {}", path.display()));
    Ok(())
}

fn keep(path: &Path, systemd: &Systemd, case: Case, said: Said) -> Result<()> {
    let record = Record { world: systemd.world.clone(), case, said };
    let text = serde_json::to_string_pretty(&record)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn regressions_directory() -> PathBuf {
    support::repository().join("tests/full/oracle/regressions")
}

/// One line for the world, then one for each tree.
fn record(path: &Path, systemd: &Systemd, tally: &Tally) -> Result<()> {
    let mut text = serde_json::to_string(&systemd.world)?;
    for answer in &tally.answers {
        text.push('\n');
        text.push_str(&serde_json::to_string(answer)?);
    }
    std::fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

/// What a run has seen.
#[derive(Default)]
struct Tally {
    answers: Vec<(Case, Said)>,
    different: Vec<u64>,
    states: BTreeMap<String, usize>,
    ingredients: BTreeMap<String, usize>,
}

impl Tally {
    fn count(&mut self, case: &Case, said: &Said) {
        let state = match (&said.process, said.load_state.as_deref().unwrap_or("not to be shown")) {
            (Some(_), _) => "started".to_owned(),
            (None, "loaded") if said.not_executed => "loaded, could not be executed".to_owned(),
            (None, "loaded") => format!("loaded, start refused ({})", said.result),
            (None, state) => state.to_owned(),
        };
        *self.states.entry(state).or_default() += 1;
        let mut names = case.ingredients.clone();
        names.sort();
        names.dedup();
        for name in names {
            *self.ingredients.entry(name).or_default() += 1;
        }
    }

    fn report(&self, secs: f64) {
        let missed: Vec<String> = ingredients::names().filter(|name| !self.ingredients.contains_key(name)).collect();
        let total = ingredients::names().count();
        say(&format!(
            "oracle: {} trees in {secs:.1} s, {} differ; {:?}; {} of {total} ingredients used",
            self.answers.len(),
            self.different.len(),
            self.states,
            total - missed.len()
        ));
        if missed.len() < 20 && !missed.is_empty() {
            say(&format!("not used: {}", missed.join(", ")));
        }
    }
}
