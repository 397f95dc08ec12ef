//! What was measured, as rows: a table for people, `dist/bench.json` for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::support::stats::Sample;
use crate::support::tools;

/// Below so many tries the 99th percentile is the maximum, and one hiccup of the machine would decide.
const ENOUGH_FOR_P99: usize = 100;

/// Which number of a sample a limit is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Statistic {
    /// The median.
    P50,
    /// The 99th percentile; of few tries the 90th instead. That is weaker and follows from the promise, so a failure
    /// still disproves it.
    P99,
    /// The largest: every single try keeps the limit.
    Max,
    /// The only value there is: a rate or a size.
    Only,
}

/// A line of the result. One that only informs has neither limit nor verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    promise: String,
    unit: &'static str,
    n: usize,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
    limit: Option<f64>,
    holds: Option<bool>,
    /// The value that the limit is for.
    #[serde(skip)]
    judged: Option<f64>,
}

impl Row {
    /// Measured, and nothing promised.
    pub(crate) fn told(name: &str, unit: &'static str, sample: &Sample) -> Self {
        Self {
            promise: name.to_owned(),
            unit,
            n: sample.n(),
            p50: sample.percentile(50).map(rounded),
            p99: sample.percentile(99).map(rounded),
            max: sample.max().map(rounded),
            limit: None,
            holds: None,
            judged: None,
        }
    }

    /// A promise that `statistic` of the sample is at most `limit`; without values it is not judged.
    pub(crate) fn promised(
        name: &str,
        unit: &'static str,
        sample: &Sample,
        statistic: Statistic,
        limit: f64,
    ) -> Self {
        let (what, value) = match statistic {
            Statistic::P50 => (" (p50)", sample.percentile(50)),
            Statistic::P99 if sample.n() >= ENOUGH_FOR_P99 => (" (p99)", sample.percentile(99)),
            Statistic::P99 => (" (p90: too few tries for p99)", sample.percentile(90)),
            Statistic::Max => (" (max)", sample.max()),
            Statistic::Only => ("", sample.max()),
        };
        Self {
            promise: format!("{name}{what}"),
            limit: Some(limit),
            holds: value.map(|value| value <= limit),
            judged: value.map(rounded),
            ..Self::told("", unit, sample)
        }
    }

    /// A difference of two samples, statistic by statistic.
    pub(crate) fn difference(name: &str, unit: &'static str, of: &Sample, less: &Sample) -> Self {
        let minus = |of: Option<f64>, less: Option<f64>| Some(rounded(of? - less?));
        Self {
            promise: name.to_owned(),
            unit,
            n: of.n().min(less.n()),
            p50: minus(of.percentile(50), less.percentile(50)),
            p99: minus(of.percentile(99), less.percentile(99)),
            max: minus(of.max(), less.max()),
            limit: None,
            holds: None,
            judged: None,
        }
    }

    /// By what it is broken, if it is.
    pub(crate) fn broken(&self) -> Option<String> {
        let (judged, limit) = (self.judged?, self.limit?);
        let broken = self.holds == Some(false);
        let Self { promise, unit, .. } = self;
        broken.then(|| format!("{promise}: {judged} {unit}, wanted at most {limit}"))
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.promise.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let [promise, unit, n, p50, p99, max, limit, holds] = cells;
        let _ = writeln!(
            text,
            "{promise:<width$}  {unit:<10} {n:>4} {p50:>12} {p99:>12} {max:>12} {limit:>10}  {holds}"
        ); // a String takes everything
    };
    line(["", "unit", "n", "p50", "p99", "max", "limit", "holds"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    for row in rows {
        let holds = match (row.limit, row.holds) {
            (None, _) => "",
            (_, None) => "not judged",
            (_, Some(true)) => "yes",
            (_, Some(false)) => "NO",
        };
        let [p50, p99, max, limit] = [row.p50, row.p99, row.max, row.limit].map(number);
        let limit = if row.limit.is_some() { &limit } else { "" };
        let n = row.n.to_string();
        line([&row.promise, row.unit, &n, &p50, &p99, &max, limit, holds]);
    }
    text
}

/// Writes the rows to a file, which is there whole or not at all.
pub(crate) fn write(rows: &[Row], to: &Path) -> Result<()> {
    let fresh = to.with_extension("json.new");
    fs::write(&fresh, serde_json::to_string_pretty(rows)? + "\n")
        .and_then(|()| fs::rename(&fresh, to))
        .with_context(|| format!("writing {}", to.display()))
}

/// The machine and the programs that the numbers are from.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("?", |(_, value)| value.trim()).to_owned()
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory = memory
        .split(' ')
        .next()
        .and_then(|kib| kib.parse::<u64>().ok());
    let memory = memory.map_or_else(|| "?".to_owned(), |kib| (kib / 1024).to_string());
    let processor = read("/proc/cpuinfo");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let hypervisor = processor.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let kubelet = tools::path("kubelet").map_or_else(
        |_| "?".to_owned(),
        |path| first_line(&path.display().to_string(), "--version"),
    );
    format!(
        "{}, {cores} cores, {memory} MiB, {}; Linux {}; {}; {kubelet}",
        field(&processor, "model name"),
        if hypervisor {
            "virtualised"
        } else {
            "no hypervisor seen"
        },
        read("/proc/sys/kernel/osrelease").trim(),
        first_line("systemctl", "--version"),
    )
}

fn first_line(program: &str, argument: &str) -> String {
    let done = Command::new(program).arg(argument).output();
    let output = done.map(|done| done.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines().next().unwrap_or("?").to_owned()
}
