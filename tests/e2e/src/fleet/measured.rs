//! What the agents of a fleet ask of the API server, by its audit log, and what etcd writes, by its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::members::Kind;
use crate::support::control_plane::ControlPlane;
use crate::support::say;

/// The spans by which the cost of a healthy fleet is reckoned.
pub const NOBODY: &str = "no agent";
pub const HEALTHY: &str = "healthy";
const DAY: u64 = 24 * 3600;
/// What the program writes of the document is between these two.
const MARKS: [&str; 2] = ["<!-- make fleet writes this -->\n", "<!-- until here -->\n"];

/// What has been written to etcd: how many values, and their bytes with their keys.
#[derive(Debug, Clone, Copy)]
struct Written {
    values: f64,
    bytes: f64,
}

struct Span {
    name: &'static str,
    /// In seconds of the day, as the audit log has the time of day.
    from: u64,
    to: u64,
    written: Written,
    recovered: Option<Duration>,
}

/// What was measured in a span.
#[derive(Debug)]
pub struct Figures {
    pub name: &'static str,
    secs: f64,
    requests: usize,
    /// By verb and resource.
    kinds: BTreeMap<String, usize>,
    /// The most requests that were received within a second of the clock.
    pub peak: usize,
    written: Written,
    /// How long after the failure each Node showed what it should.
    recovered: Option<Duration>,
}

pub struct Meter {
    plane: Arc<ControlPlane>,
    kind: Kind,
    spans: Vec<Span>,
}

impl Meter {
    pub fn new(plane: &Arc<ControlPlane>, kind: Kind) -> Self {
        Self { plane: Arc::clone(plane), kind, spans: Vec::new() }
    }

    /// Measures while `work` runs, which returns how long a recovery took, if that was one.
    pub fn during(&mut self, name: &'static str, work: impl FnOnce() -> Result<Option<Duration>>) -> Result<()> {
        let (from, before) = (now()?, self.written()?);
        let recovered = work().context(name)?;
        let (to, after) = (now()?, self.written()?);
        let written = Written { values: after.values - before.values, bytes: after.bytes - before.bytes };
        say(&format!("{}, {name}: {} s, {:.0} values written", self.kind.name(), to - from, written.values));
        self.spans.push(Span { name, from, to, written, recovered });
        Ok(())
    }

    fn written(&self) -> Result<Written> {
        let text = self.plane.etcd_metrics()?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).with_context(|| format!("etcd's metrics have no {name}"))
        };
        Ok(Written {
            values: value("etcd_mvcc_put_total")?,
            bytes: value("etcd_debugging_mvcc_total_put_size_in_bytes")?,
        })
    }

    /// The figures of all spans.
    pub fn figures(self) -> Result<Vec<Figures>> {
        let user = self.kind.user();
        let (mut seen, mut requests) = (BTreeSet::new(), Vec::new());
        for line in self.plane.audit_log()?.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let is_theirs = event["user"]["username"].as_str().is_some_and(|name| name.starts_with(user));
            if is_theirs && seen.insert(event["auditID"].to_string()) {
                let received = second(event["requestReceivedTimestamp"].as_str().context("a request has a time")?)?;
                let kind = format!("{} {}", text(&event["verb"]), text(&event["objectRef"]["resource"]));
                requests.push((received, kind));
            }
        }
        let reasons = ["get", "events", "--all-namespaces", "--output", "jsonpath={range .items[*]}{.reason} {end}"];
        let mut events = BTreeMap::<String, usize>::new();
        for reason in self.plane.kubectl(&reasons)?.split_whitespace() {
            *events.entry(reason.to_owned()).or_default() += 1;
        }
        say(&format!("{}: Events {events:?}", self.kind.name()));
        Ok(self.spans.iter().map(|span| of_span(span, &requests)).collect())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn of_span(span: &Span, requests: &[(u64, String)]) -> Figures {
    let length = (span.to + DAY - span.from) % DAY;
    let (mut by_second, mut kinds) = (BTreeMap::<u64, usize>::new(), BTreeMap::new());
    for (at, kind) in requests.iter().filter(|(at, _)| (at + DAY - span.from) % DAY < length) {
        *by_second.entry(*at).or_default() += 1;
        *kinds.entry(kind.clone()).or_default() += 1;
    }
    let (requests, peak) = (by_second.values().sum(), by_second.values().copied().max().unwrap_or_default());
    let secs = Duration::from_secs(length).as_secs_f64();
    say(&format!("  {}: {requests} requests in {length} s, peak {peak}, {kinds:?}", span.name));
    Figures { name: span.name, secs, requests, kinds, peak, written: span.written, recovered: span.recovered }
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() % DAY)
}

/// The second of the day of `2026-11-28T08:10:42.123456Z`.
fn second(time: &str) -> Result<u64> {
    let parts: Vec<u64> =
        time.get(11..19).context("a time of day")?.split(':').map(str::parse).collect::<Result<_, _>>()?;
    Ok(parts.iter().fold(0, |sum, part| sum * 60 + part))
}

/// What a healthy agent costs in an hour: requests, writes among them, and bytes of etcd.
fn hourly(figures: &[Figures], agents: f64) -> Option<[f64; 3]> {
    let of = |name| figures.iter().find(|figures| figures.name == name);
    let (nobody, healthy) = (of(NOBODY)?, of(HEALTHY)?);
    let writes = healthy.kinds.iter().filter(|(kind, _)| kind.starts_with("patch") || kind.starts_with("create"));
    let hour = 3600.0 / healthy.secs / agents;
    let others = nobody.written.bytes / nobody.secs * healthy.secs;
    let count = |number: usize| u32::try_from(number).map_or(f64::NAN, f64::from);
    let (requests, writes) = (count(healthy.requests), count(writes.map(|(_, number)| number).sum()));
    Some([requests * hour, writes * hour, (healthy.written.bytes - others).max(0.0) * hour])
}

/// The table of both fleets, in Markdown. `counts`: of the agents of each, and of the Nodes.
pub fn table(ours: &[Figures], theirs: &[Figures], counts: (u32, u32), healthy: Duration) -> Result<String> {
    let (agents, nodes) = (f64::from(counts.0), f64::from(counts.1));
    let hourly = |figures| hourly(figures, agents).context("a span is missing");
    let costs = [hourly(ours)?, hourly(theirs)?];
    let mut text = format!(
        "| {} agents of each, {} Nodes | nodevigil | node-problem-detector |\n|---|---|---|\n",
        counts.0, counts.1
    );
    let minutes = healthy.as_secs() / 60;
    let mut row = |label: &str, cells: [String; 2]| {
        let _ = writeln!(text, "| {label} | {} | {} |", cells[0], cells[1]); // a String takes everything
    };
    row("a healthy agent: requests an hour", costs.map(|[requests, ..]| format!("{requests:.1}")));
    row("of these, writes", costs.map(|[_, writes, _]| format!("{writes:.1}")));
    row("what etcd writes for it an hour", costs.map(|[.., bytes]| format!("{:.0} kB", bytes / 1e3)));
    row(
        &format!("{} healthy agents: requests a second", counts.1),
        costs.map(|[requests, ..]| format!("{:.1}", requests * nodes / 3600.0)),
    );
    row("what etcd writes for them an hour", costs.map(|[.., bytes]| format!("{:.0} MB", bytes * nodes / 1e6)));
    for ours in ours.iter().filter(|ours| ![NOBODY, HEALTHY].contains(&ours.name)) {
        let theirs = theirs.iter().find(|theirs| theirs.name == ours.name);
        let cells = |text: fn(&Figures) -> String| [text(ours), theirs.map_or_else(|| "not measured".to_owned(), text)];
        row(
            &format!("{}: requests, most in one second", ours.name),
            cells(|one| format!("{}, {}", one.requests, one.peak)),
        );
        if ours.recovered.is_some() {
            let after = |one: &Figures| format!("{} s", one.recovered.unwrap_or_default().as_secs());
            row("after it, the dead kubelets are on their Nodes within", cells(after));
        }
    }
    Ok(format!("{text}\nThe healthy agents were counted for {minutes} minutes.\n"))
}

/// Replaces what is between the marks of a document.
pub fn write_into(document: &Path, text: &str) -> Result<()> {
    let before = fs::read_to_string(document)?;
    let (head, rest) = before.split_once(MARKS[0]).with_context(|| format!("no line {:?}", MARKS[0]))?;
    let (_, tail) = rest.split_once(MARKS[1]).with_context(|| format!("no line {:?}", MARKS[1]))?;
    Ok(fs::write(document, [head, MARKS[0], text, MARKS[1], tail].concat())?)
}
