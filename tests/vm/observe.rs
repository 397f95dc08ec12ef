//! What the agent has told the API server, by its audit log, and how the agent itself has fared.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::guest::Guest;

/// A condition that was told otherwise than before.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// When the API server got it, by this machine's real time, in microseconds.
    pub(crate) at_us: i64,
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Told {
    /// Whether it says that memory is short, or that somebody was killed for it.
    pub(crate) fn is_about_memory(&self) -> bool {
        let hint = self.kind == IMMINENT && self.status == "True";
        let broken = self.kind == "NodeMemoryHealthy" && self.status == "False";
        hint || broken || (self.status == "False" && self.reason.contains("OOM"))
    }
}

/// The hint that memory runs out.
pub(crate) const IMMINENT: &str = "MemoryExhaustionImminent";

/// Every change of a condition that the guest's agent has told, and the reasons of its Events.
pub(crate) fn told(guest: &Guest) -> Result<(Vec<Told>, Vec<String>)> {
    let user = format!("nodevigil:{}", guest.name);
    let mut changes: Vec<Told> = Vec::new();
    let mut events = Vec::new();
    for request in guest
        .plane
        .audit()?
        .iter()
        .filter(|request| request.user == user && request.code < 300)
    {
        if request.verb == "create" && request.uri.contains("/events") {
            events.push(text(&request.body["reason"]));
            continue;
        }
        for condition in request
            .body
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let told = Told {
                at_us: request.at.as_microsecond(),
                kind: text(&condition["type"]),
                status: text(&condition["status"]),
                reason: text(&condition["reason"]),
                message: text(&condition["message"]),
            };
            let last = changes.iter().rev().find(|last| last.kind == told.kind);
            if last.is_none_or(|last| (&last.status, &last.reason) != (&told.status, &told.reason))
            {
                changes.push(told);
            }
        }
    }
    Ok((changes, events))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The agent, as the guest's kernel and its own metrics have it.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) pid: u32,
    /// Of the agent and its helper.
    pub(crate) swapped_kib: u64,
    /// How often it has been late by at most so many seconds.
    lateness: Buckets,
    /// How many turns of its loop took at most so many seconds.
    turns: Buckets,
}

/// The buckets of a histogram, cumulative: how often it was at most so many seconds.
pub(crate) type Buckets = Vec<(f64, u64)>;

const ASK: &str = "for unit in nodevigil nodevigil-helper; do
  pid=$(systemctl show -p MainPID --value $unit); [ $unit = nodevigil ] && echo pid $pid
  [ $pid = 0 ] || grep -E '^VmSwap' /proc/$pid/status
done
/usr/bin/guest scrape /run/nodevigil/metrics.sock";

impl Agent {
    /// How it is now.
    pub(crate) fn of(guest: &mut Guest) -> Result<Self> {
        let text = guest.sh(ASK)?;
        let mut agent = Self {
            pid: 0,
            swapped_kib: 0,
            lateness: Vec::new(),
            turns: Vec::new(),
        };
        for line in text.lines() {
            if let Some(pid) = line.strip_prefix("pid ") {
                agent.pid = pid.parse()?;
            } else if let Some(rest) = line.strip_prefix("VmSwap:") {
                agent.swapped_kib += rest.trim().trim_end_matches(" kB").parse::<u64>()?;
            } else if let Some(bucket) = bucket(line, "nodevigil_loop_lateness_seconds")? {
                agent.lateness.push(bucket);
            } else if let Some(bucket) = bucket(line, "nodevigil_loop_turn_seconds")? {
                agent.turns.push(bucket);
            }
        }
        ensure!(
            agent.pid > 0 && !agent.lateness.is_empty(),
            "{}: no agent, or no metrics: {text}",
            guest.name
        );
        Ok(agent)
    }

    /// The counts of lateness since `before`.
    pub(crate) fn lateness_since(&self, before: &Self) -> Buckets {
        since(&self.lateness, &before.lateness)
    }

    /// The counts of turns since `before`.
    pub(crate) fn turns_since(&self, before: &Self) -> Buckets {
        since(&self.turns, &before.turns)
    }
}

fn since(now: &[(f64, u64)], before: &[(f64, u64)]) -> Buckets {
    let then = before.iter().map(|(_, count)| *count);
    now.iter()
        .zip(then)
        .map(|((bound, now), then)| (*bound, now.saturating_sub(then)))
        .collect()
}

/// The bucket that a line of the exposition is, if it is one of that histogram.
fn bucket(line: &str, family: &str) -> Result<Option<(f64, u64)>> {
    let rest = line.strip_prefix(family);
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix("_bucket{le=\"")) else {
        return Ok(None);
    };
    let (bound, count) = rest.split_once("\"} ").with_context(|| line.to_owned())?;
    let bound = match bound {
        "+Inf" => f64::INFINITY,
        bound => bound.parse()?,
    };
    Ok(Some((bound, count.parse()?)))
}

/// The counts of several together.
pub(crate) fn together<'a>(all: impl IntoIterator<Item = &'a Buckets>) -> Buckets {
    let mut all = all.into_iter();
    let mut sum = all.next().cloned().unwrap_or_default();
    for counts in all {
        for (place, (_, count)) in sum.iter_mut().zip(counts) {
            place.1 += count;
        }
    }
    sum
}

/// The bound that 99 of 100 stay within, of cumulative counts, and how many there are.
pub(crate) fn p99(counts: &[(f64, u64)]) -> (f64, u64) {
    let all = counts.last().map_or(0, |(_, count)| *count);
    let enough = (all * 99).div_ceil(100);
    let bound = counts
        .iter()
        .find(|(_, count)| *count >= enough)
        .map_or(f64::NAN, |(bound, _)| *bound);
    (bound, all)
}
