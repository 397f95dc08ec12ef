//! Runs a load in a guest and measures what came of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::guest::Guest;
use super::observe::{self, Agent, Buckets, IMMINENT, Told, p99};
use super::runs::play;
use super::scenarios::{Outcome, Scenario};
use super::support::stats::Sample;
use super::support::wait_until;
use super::trace::{KernelLine, Trace};

/// The agent holds what is sampled back in a host's first minute.
const YOUNG: Duration = Duration::from_secs(62);
/// The kubelet's own rule, by default.
const EVICTION_MIB: f64 = 100.0;
/// An apply of all conditions is larger, and what else is sent on its connection is smaller.
const APPLY_BYTES: u64 = 1000;
/// What is sent so soon after belongs to it.
const ONE_WRITE_US: i64 = 20_000;

/// What came of a run. Times are by this machine's clock.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenario: &'static str,
    /// From the kernel's line on the kubelet's death to the turn of the agent's loop that knows it, and whose first effect is the
    /// apply; both by the guest's clock.
    pub(crate) decided_ms: Option<f64>,
    /// From the kernel's line on the kubelet's death until the whole apply that names it has left the guest.
    pub(crate) left_ms: Option<f64>,
    /// From the kernel's line on the kubelet's death to the arrival of the apply that names it.
    pub(crate) named_ms: Option<f64>,
    /// What the Node then said of the kubelet.
    pub(crate) named: Option<Told>,
    /// From the arrival of the hint to the kernel's first kill for the host's memory.
    pub(crate) ahead_secs: Option<f64>,
    /// The same for the moment when the kubelet's own rule was first true; it looks each ten seconds.
    pub(crate) rule_ahead_secs: Option<f64>,
    /// By how much the turns of the agent's loop came late.
    pub(crate) late: Buckets,
    /// The bound within which 99 of 100 turns of the agent's loop were done, in seconds.
    pub(crate) turn_secs: f64,
    /// By how much the recorder's own timer was late, 99 of 100 times at most, in milliseconds.
    pub(crate) timer_ms: f64,
    /// Whether the agent has still the pid that it began with.
    pub(crate) same_pid: bool,
    /// What of the agent and its helper lay in swap at the end.
    pub(crate) swapped_kib: u64,
    /// What was told of memory, in order.
    pub(crate) raised: Vec<String>,
    /// Whom the kernel killed.
    pub(crate) killed: Vec<String>,
    /// How exact the times are: half of the way to the guest and back.
    pub(crate) exact_ms: f64,
}

/// Waits until the host is no longer young to the agent.
pub(crate) fn grow_up(guest: &mut Guest) -> Result<()> {
    wait_until("the guest to be a minute old", YOUNG * 2, || {
        let uptime = guest.sh("cut -d' ' -f1 /proc/uptime")?;
        let uptime: f64 = uptime.trim().parse().context("the guest's uptime")?;
        Ok((uptime > YOUNG.as_secs_f64()).then_some(()))
    })
}

/// Runs a load and measures; its trace is kept as `keep`, if that is said.
pub(crate) fn run(guest: &mut Guest, scenario: &Scenario, keep: Option<&Path>) -> Result<Run> {
    let (told_before, events_before) = observe::told(guest)?;
    let before = Agent::of(guest)?;
    let kubelet = guest.sh("systemctl show -p MainPID --value kubelet")?;
    let trace = play(guest, scenario)?;
    if let Some(file) = keep {
        trace.write(file, scenario.name, scenario.what, scenario.swap())?;
    }
    let killed = ensure_as_meant(scenario, &trace)?;
    let clocks = guest.clocks()?;
    let logged = guest.logged_us("KubeletHealthy=False")?;
    let after = Agent::of(guest)?;
    // A false alarm need not be quick.
    std::thread::sleep(Duration::from_secs(2));
    let (told, events) = observe::told(guest)?;
    let told = told.get(told_before.len()..).unwrap_or_default();
    let events = events.get(events_before.len()..).unwrap_or_default();

    let kubelet = format!("Killed process {} ", kubelet.trim());
    let death = trace
        .kernel
        .iter()
        .find(|line| line.text.contains(&kubelet));
    let named = told
        .iter()
        .find(|told| told.kind == "KubeletHealthy" && told.status == "False")
        .cloned();
    let named_ms = death
        .zip(named.as_ref())
        .map(|(line, named)| seconds(line.stamp_us + clocks.host_us, named.at_us) * 1e3);
    let left_ms = death.and_then(|line| {
        let said_us = line.stamp_us + clocks.guest_us;
        Some(seconds(said_us, left_us(&trace, said_us)?) * 1e3)
    });
    let decided_ms = death
        .zip(logged)
        .map(|(line, logged)| seconds(line.stamp_us + clocks.guest_us, logged) * 1e3);
    let hint = told
        .iter()
        .find(|told| told.kind == IMMINENT && told.status == "True");
    let ahead_secs = trace
        .global_kill_us()
        .zip(hint)
        .map(|(kill, hint)| seconds(hint.at_us, kill + clocks.host_us));
    Ok(Run {
        scenario: scenario.name,
        decided_ms,
        left_ms,
        named_ms,
        named,
        ahead_secs,
        rule_ahead_secs: rule_ahead(&trace),
        late: after.lateness_since(&before),
        turn_secs: p99(&after.turns_since(&before)).0,
        timer_ms: timer_ms(&trace),
        same_pid: after.pid == before.pid,
        swapped_kib: after.swapped_kib,
        raised: raised(told, events),
        killed,
        exact_ms: clocks.took.as_secs_f64() * 500.0,
    })
}

/// Whom the kernel killed; an error if that is not what the load is for.
fn ensure_as_meant(scenario: &Scenario, trace: &Trace) -> Result<Vec<String>> {
    let killed = killed(trace);
    let host_killed = trace.global_kill_us().is_some();
    let as_meant = match scenario.outcome {
        Outcome::Kill => host_killed,
        Outcome::OwnLimit => !host_killed && !killed.is_empty(),
        Outcome::Thrash | Outcome::Nothing => killed.is_empty(),
    };
    ensure!(
        as_meant,
        "{}: the load did something else: {killed:?}",
        scenario.name
    );
    Ok(killed)
}

/// From one moment to another, both in microseconds.
fn seconds(from: i64, to: i64) -> f64 {
    let apart = Duration::from_micros(from.abs_diff(to)).as_secs_f64();
    if to < from { -apart } else { apart }
}

/// When the first apply after that moment has left as a whole; all by the guest's real time.
fn left_us(trace: &Trace, from_us: i64) -> Option<i64> {
    let mut sent = trace.sent.iter().filter(|sent| sent.at_us >= from_us);
    let first = sent.find(|sent| sent.bytes >= APPLY_BYTES)?.at_us;
    let rest = sent.map(|sent| sent.at_us);
    Some(rest.fold(
        first,
        |last, at| {
            if at - last <= ONE_WRITE_US { at } else { last }
        },
    ))
}

fn raised(told: &[Told], events: &[String]) -> Vec<String> {
    let told = told.iter().filter(|told| told.is_about_memory());
    let told = told.map(|told| format!("{}={} {}", told.kind, told.status, told.reason));
    told.chain(events.iter().map(|reason| format!("Event {reason}")))
        .collect()
}

fn timer_ms(trace: &Trace) -> f64 {
    let late: Sample = trace
        .column("jitter_ms")
        .into_iter()
        .map(|(_, late)| late)
        .collect();
    late.percentile(99).unwrap_or(f64::NAN)
}

fn killed(trace: &Trace) -> Vec<String> {
    let kills = trace.kernel.iter().filter(|line| line.is_kill());
    let names: BTreeSet<&str> = kills.filter_map(KernelLine::victim).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// How long before the kill the kubelet's own rule became true: `memory.available`, which the kubelet takes for what is free and
/// what lies in inactive file pages, under its limit.
fn rule_ahead(trace: &Trace) -> Option<f64> {
    let kill = Duration::from_micros(trace.global_kill_us()?.unsigned_abs()).as_secs_f64();
    let inactive = trace.column("inactive_file_mib");
    let available = trace
        .column("free_mib")
        .into_iter()
        .zip(inactive)
        .map(|((at, free), (_, inactive))| (at, free + inactive));
    let first = available
        .into_iter()
        .find(|(_, available)| *available < EVICTION_MIB)?
        .0;
    Some(kill - first)
}

impl Run {
    /// A line for whoever waits.
    pub(crate) fn describe(&self) -> String {
        let number =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
        format!(
            "{}: known after {} ms, has left after {} ms, named at the API server after {} ms, hint {} s ahead, kubelet's rule {} s ahead; p99 late ≤ {} s of {} turns (which took ≤ {} s; a timer {:.0} ms), {}, {} KiB swapped; killed {:?}; told {:?}; ± {:.1} ms{}",
            self.scenario,
            number(self.decided_ms),
            number(self.left_ms),
            number(self.named_ms),
            number(self.ahead_secs),
            number(self.rule_ahead_secs),
            p99(&self.late).0,
            p99(&self.late).1,
            self.turn_secs,
            self.timer_ms,
            if self.same_pid {
                "same pid"
            } else {
                "ANOTHER PID"
            },
            self.swapped_kib,
            self.killed,
            self.raised,
            self.exact_ms,
            self.named.as_ref().map_or(String::new(), |told| format!(
                "; {}: {}",
                told.reason, told.message
            )),
        )
    }

    /// What does not hold of what every run must show.
    pub(crate) fn ensure_survived(&self) -> Result<()> {
        ensure!(self.same_pid, "{}: the agent was killed", self.scenario);
        ensure!(
            self.swapped_kib == 0,
            "{}: {} KiB of the agent were swapped",
            self.scenario,
            self.swapped_kib
        );
        Ok(())
    }
}
