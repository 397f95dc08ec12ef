//! What is promised of a host without memory, run as often as it takes, and told as tables.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::guest::Guest;
use super::judge::{self, Run};
use super::loads;
use super::observe::{p99, together};
use super::runs::settle;
use super::scenarios::Scenario;
use super::support::control_plane::ControlPlane;
use super::support::rows::line;
use super::support::stats::Sample;
use super::support::{repository, say};

/// How often each load is run.
const RUNS: &str = "VM_RUNS";

/// The apply that names the kubelet has left by then.
const LEFT_MS: f64 = 250.0;
/// And by then in the short form: beside other work an emulated processor is late with everything.
const SHORT_LEFT_MS: f64 = 2_000.0;
/// 99 of 100 turns of the agent's loop are no later.
const LATE_SECS: f64 = 0.05;
/// So long ahead of the kill the hint is there.
const AHEAD_SECS: f64 = 2.5;

/// Loads that follow each other in one guest. Whatever needs the agent to hold nothing back waits for the guest to grow up.
const ROUND: [(&[&str], bool); 7] = [
    (&["lethal-kubelet"], false),
    (&["lethal-real-kubelet"], false),
    (&["pod-limit", "lethal-8"], true),
    (&["lethal-4"], true),
    (&["lethal-1"], true),
    (&["zram-absorbs", "zram-lethal"], true),
    (&["swap-absorbs", "swap-lethal"], true),
];

/// One guest, one lethal load: the kubelet is killed.
pub(crate) fn short() -> Result<bool> {
    let began = Instant::now();
    let plane = ControlPlane::shared()?;
    let scenario = loads::named("lethal-kubelet")?;
    let mut guest = Guest::boot(&plane, scenario.setting)?;
    settle(&mut guest)?;
    let run = judge::run(&mut guest, &scenario, None)?;
    say(&run.describe());
    // Beside whatever else the machine does: the promise itself is for `make vm`.
    let judged = run
        .ensure_survived()
        .and_then(|()| ensure_named(&run, SHORT_LEFT_MS));
    judged.with_context(|| guest.log())?;
    say(&format!(
        "a guest without memory: as promised, after {:.0} s",
        began.elapsed().as_secs_f64()
    ));
    Ok(true)
}

/// The kubelet's death was told with pid, control group and scope, and in time.
fn ensure_named(run: &Run, left_ms: f64) -> Result<()> {
    let named = run
        .named
        .as_ref()
        .context("the kubelet's death was not told")?;
    ensure!(named.reason == "KubeletOOMKilled", "{named:?}");
    for part in ["pid ", "kubelet.service", "host"] {
        ensure!(named.message.contains(part), "no {part} in {named:?}");
    }
    let took = run
        .left_ms
        .context("the kernel did not say that it killed the kubelet, or no apply left")?;
    ensure!(took <= left_ms, "the apply left after {took:.0} ms");
    Ok(())
}

/// All of it, or the guests that begin with one of these loads.
pub(crate) fn full(only: &[&str]) -> Result<bool> {
    let began = Instant::now();
    let times: usize = match std::env::var(RUNS) {
        Ok(times) => times.parse().with_context(|| format!("{RUNS}={times}"))?,
        Err(_) => 5,
    };
    let plane = ControlPlane::shared()?;
    let (mut runs, mut failed) = (Vec::new(), 0);
    for turn in 1..=times {
        let wanted = |(names, _): &&(&[&str], bool)| {
            only.is_empty() || names.iter().any(|name| only.contains(name))
        };
        for &(names, grown) in ROUND.iter().filter(wanted) {
            say(&format!(
                "-- round {turn} of {times}, after {:.0} s: {}",
                began.elapsed().as_secs_f64(),
                names.join(", ")
            ));
            if let Err(error) = one_guest(&plane, (names, grown), turn, &mut runs) {
                say(&format!("FAILED: {error:#}"));
                failed += 1;
            }
        }
    }
    let broken = tell(&runs);
    say(&format!(
        "took {:.0} min; {failed} guests failed, {broken} promises broken",
        began.elapsed().as_secs_f64() / 60.0
    ));
    Ok(failed + broken == 0)
}

fn one_guest(
    plane: &Arc<ControlPlane>,
    (names, grown): (&[&str], bool),
    turn: usize,
    runs: &mut Vec<Run>,
) -> Result<()> {
    let folder = repository().join("dist/vm-traces");
    let scenarios = names.iter().map(|name| loads::named(name));
    let scenarios = scenarios.collect::<Result<Vec<Scenario>>>()?;
    let first = scenarios.first().context("a guest has a load")?;
    let mut guest = Guest::boot(plane, first.setting)?;
    settle(&mut guest)?;
    if grown {
        judge::grow_up(&mut guest)?;
    }
    for scenario in &scenarios {
        let file = folder.join(format!("{}-{turn}.jsonl", scenario.name));
        let run = judge::run(&mut guest, scenario, Some(&file))?;
        say(&run.describe());
        let named = run.named.is_none() || ensure_named(&run, LEFT_MS).is_ok();
        if !named || run.ensure_survived().is_err() {
            say(&guest.log());
        }
        runs.push(run);
    }
    Ok(())
}

/// The loads of which the kubelet dies.
const KILLED: [(&str, &str); 2] = [
    ("lethal-kubelet", "kubelet"),
    (
        "lethal-real-kubelet",
        "the real kubelet, containerd beside it,",
    ),
];

/// Prints what was measured, a line a promise, and keeps the lines for the document; says how many are broken.
fn tell(runs: &[Run]) -> usize {
    let mut rows: Vec<Row> = KILLED.map(|(name, who)| named(runs, name, who)).into();
    for (name, who) in KILLED {
        let killed: Vec<&Run> = of(runs, name).collect();
        let when = format!("while {who} is killed");
        rows.push(late(&killed, &when, Some(LATE_SECS)));
    }
    let is_other = |run: &&Run| KILLED.iter().all(|(name, _)| run.scenario != *name);
    let others: Vec<&Run> = runs.iter().filter(is_other).collect();
    rows.push(late(&others, "during the other loads", None));
    let dead = runs
        .iter()
        .filter(|run| run.ensure_survived().is_err())
        .count();
    rows.push(Row {
        runs: runs.len(),
        what: "the agent is killed, or swapped".to_owned(),
        limit: "never",
        holds: dead == 0,
        measured: format!("{dead} of {} runs", runs.len()),
    });
    rows.extend(AHEAD.map(|(name, what)| ahead(runs, name, what)));
    rows.extend(QUIET.map(|(name, what, nothing)| quiet(runs, name, what, nothing)));
    rows.retain(|row| row.runs > 0);
    for row in &rows {
        let verdict = if row.holds { "holds " } else { "BROKEN" };
        say(&format!(
            "{verdict} | {} | {} | {}",
            row.what, row.limit, row.measured
        ));
        line("guest", &[&row.what, row.limit, &row.measured]);
    }
    rows.iter().filter(|row| !row.holds).count()
}

/// How soon the death of the kubelet was told, with whom and where.
fn named(runs: &[Run], name: &str, who: &str) -> Row {
    let runs: Vec<&Run> = of(runs, name).collect();
    let sample =
        |of: fn(&Run) -> Option<f64>| -> Sample { runs.iter().filter_map(|run| of(run)).collect() };
    let spread = |of| spread(&sample(of), "ms", runs.len());
    Row {
        runs: runs.len(),
        what: format!(
            "{who} killed for memory while the host thrashes: the kernel's line → the apply with pid, control group and scope has left"
        ),
        limit: "each ≤ 250 ms",
        holds: !runs.is_empty() && runs.iter().all(|run| ensure_named(run, LEFT_MS).is_ok()),
        measured: format!(
            "{}; until the agent's loop knows it: {}; until the API server has it: {}",
            spread(|run| run.left_ms),
            spread(|run| run.decided_ms),
            spread(|run| run.named_ms),
        ),
    }
}

/// How late the agent's loop was, in all turns of all these runs: the p99 of one run of two hundred turns is its third worst, and in a
/// guest that stands still for a moment so does whoever waits for a timer there.
fn late(runs: &[&Run], when: &str, limit_secs: Option<f64>) -> Row {
    let (bound, turns) = p99(&together(runs.iter().map(|run| &run.late)));
    let each: Sample = runs.iter().map(|run| p99(&run.late).0 * 1e3).collect();
    let timers: Sample = runs.iter().map(|run| run.timer_ms).collect();
    Row {
        runs: runs.len(),
        what: format!("the agent's loop is late {when}: p99 of all turns"),
        limit: limit_secs.map_or("told", |_| "≤ 50 ms"),
        holds: limit_secs.is_none_or(|limit| bound <= limit),
        measured: format!(
            "≤ {:.0} ms of {turns} turns; p99 of each run {}; of a process that only waits for its timer, in the same runs, {}",
            bound * 1e3,
            spread(&each, "ms", runs.len()),
            spread(&timers, "ms", runs.len()),
        ),
    }
}

/// A promise, and what was measured.
struct Row {
    /// How many runs it is of.
    runs: usize,
    what: String,
    limit: &'static str,
    holds: bool,
    measured: String,
}

/// The loads that are told ahead of the kill.
const AHEAD: [(&str, &str); 5] = [
    ("lethal-1", "memory runs out at 1 %/s"),
    ("lethal-4", "memory runs out at 4 %/s"),
    ("lethal-8", "memory runs out at 8 %/s"),
    ("zram-lethal", "memory and zram run out"),
    ("swap-lethal", "memory and swap on a disk run out"),
];

/// The loads of which nothing is told, or nothing of memory: a kubelet that waits for its own pages in swap may starve, or hang,
/// and that is said.
const QUIET: [(&str, &str, Nothing); 3] = [
    (
        "pod-limit",
        "a pod thrashes in its own limit",
        Nothing::AtAll,
    ),
    ("zram-absorbs", "zram takes what grows", Nothing::OfMemory),
    (
        "swap-absorbs",
        "swap on a disk takes what grows",
        Nothing::OfMemory,
    ),
];

/// What is not told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nothing {
    AtAll,
    OfMemory,
}

fn of<'a>(runs: &'a [Run], name: &str) -> impl Iterator<Item = &'a Run> {
    runs.iter().filter(move |run| run.scenario == name)
}

fn ahead(runs: &[Run], name: &str, what: &str) -> Row {
    let runs: Vec<&Run> = of(runs, name).collect();
    let told: Sample = runs.iter().filter_map(|run| run.ahead_secs).collect();
    let rule: Sample = runs.iter().filter_map(|run| run.rule_ahead_secs).collect();
    let in_time = told.percentile(0).is_some_and(|least| least >= AHEAD_SECS);
    Row {
        runs: runs.len(),
        what: format!("{what}: told ahead of the kill"),
        limit: "≥ 2.5 s",
        holds: in_time && told.n() == runs.len(),
        measured: format!(
            "{}; the kubelet's own rule (computed) is true {} ahead, and it looks each 10 s",
            spread(&told, "s", runs.len()),
            spread(&rule, "s", runs.len()),
        ),
    }
}

fn quiet(runs: &[Run], name: &str, what: &str, nothing: Nothing) -> Row {
    let runs: Vec<&Run> = of(runs, name).collect();
    let is_alarm = |told: &&String| {
        nothing == Nothing::AtAll || ["Memory", "OOM"].iter().any(|word| told.contains(word))
    };
    // Where somebody was killed after all, it was no false alarm.
    let spared = runs.iter().filter(|run| run.killed.is_empty());
    let alarms = spared.filter(|run| run.raised.iter().any(|told| is_alarm(&told)));
    let alarms = alarms.count();
    let told: BTreeSet<&String> = runs.iter().flat_map(|run| &run.raised).collect();
    let told = if told.is_empty() {
        String::new()
    } else {
        format!("; in all was told {told:?}")
    };
    let something = match nothing {
        Nothing::AtAll => "something",
        Nothing::OfMemory => "that memory is short",
    };
    Row {
        runs: runs.len(),
        what: format!("{what}: {something} is told"),
        limit: "never",
        holds: alarms == 0 && !runs.is_empty(),
        measured: format!("{alarms} of {} runs{told}", runs.len()),
    }
}

fn spread(sample: &Sample, unit: &str, runs: usize) -> String {
    let value = |percent| {
        let value = sample.percentile(percent);
        value.map_or("–".to_owned(), |value| format!("{value:.1}"))
    };
    format!(
        "{} to {}, median {} {unit} (n={} of {runs})",
        value(0),
        value(100),
        value(50),
        sample.n()
    )
}
