//! Two rules that judge the readings of the host's memory. Tests replay recordings of real hosts:
//!
//! - **The memory runs out** when less than a quarter of it is available (and less than 8 GiB, free swap included), kswapd reclaims,
//!   and at the pace of the last three seconds, and at that of the last ten, nothing is left within 20 seconds.
//! - **The host thrashes** when at most 5 % has been available for a minute, kswapd reclaims, and either at least half as many pages of
//!   files are read again each second as the memory holds, or all programs wait for memory 40 % of the time, on a disk that is too slow
//!   for the former or for swap, and each second one has to reclaim for the host: one cgroup at its own limit causes the waits alone.

use std::collections::VecDeque;
use std::time::Duration;

use super::message;
use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::memory::Reading;
use crate::host::oom::{OomKill, OomScope};

/// Little is available below this part of the memory and below so many bytes.
const LITTLE_OF_TOTAL: u64 = 4;
const LITTLE_BYTES: u64 = 8 << 30;
/// Over these times the pace is measured. The slower one counts: what falls for a moment need not go on, and what fell need not fall.
const PACES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// The memory runs out if it lasts no longer than this.
const RUNS_OUT_WITHIN_SECS: u64 = 20;
/// That is over when it was not so for this long, or after `PACES[0]` if enough is available again.
const RUNS_OUT_FOR: Duration = Duration::from_mins(1);
/// An OOM kill was for the host's memory if little of it was available within this time before.
const LITTLE_LATELY: Duration = Duration::from_secs(5);
/// The memory is nearly used up at this part of it or less.
const NEARLY_NONE_OF_TOTAL: u64 = 20;
/// The host may thrash when that was so for this long.
const THRASHES_AFTER: Duration = Duration::from_secs(5);
/// All programs wait for memory in this share of the time.
const LOST_PERCENT: u128 = 40;
/// That is reported when it was so for this long.
const REPORTED_AFTER: Duration = Duration::from_mins(1);
/// Time between two readings while at least three times of what is little is available; while at least twice of it; and while less.
const READ_EVERY: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(2), Duration::from_secs(1)];

#[derive(Debug, Default)]
pub struct Memory {
    /// Those of the last minute, the newest last.
    readings: VecDeque<Reading>,
    runs_out: Option<RunsOut>,
    /// The message while the host thrashes. The readings have since when.
    pub(super) thrashing: Option<String>,
}

#[derive(Debug)]
struct RunsOut {
    /// When that was last so.
    at: Uptime,
    message: String,
}

impl Memory {
    pub fn observe(&mut self, reading: Reading) {
        self.readings.push_back(reading);
        // The oldest one that stays is a minute old, so that a minute can be measured.
        while self.readings.get(1).is_some_and(|second| reading.at - second.at >= REPORTED_AFTER) {
            self.readings.pop_front();
        }
        self.predict(&reading);
        let message = self.thrashes(&reading);
        self.thrashing = message.map(|message| self.thrashing.take().unwrap_or(message));
    }

    /// The kernel OOM-killed a process. Its line is the same for the memory of the host and of a NUMA node, so little memory must have been
    /// available.
    pub fn oom_killed(&mut self, kill: &OomKill, at: Uptime) {
        let mut lately = self.readings.iter().rev().take_while(|reading| at - reading.at <= LITTLE_LATELY);
        if kill.memory == OomScope::Host && lately.any(is_little) {
            self.runs_out = Some(RunsOut { at, message: message::oom_killed(kill) });
        }
    }

    /// Whether the memory runs out or the host thrashes.
    pub const fn has_problem(&self) -> bool {
        self.runs_out.is_some() || self.thrashing.is_some()
    }

    pub fn interval(&self) -> Duration {
        let [plenty, enough, tight] = READ_EVERY;
        match self.readings.back() {
            _ if self.is_tight() => tight,
            Some(last) if headroom(last) >= 3 * little(last) => plenty,
            _ => enough,
        }
    }

    /// Whether the next reading needs the counters of reclaim.
    pub fn is_tight(&self) -> bool {
        self.readings.back().is_some_and(|last| headroom(last) < 2 * little(last))
    }

    /// What to report of `NodeMemoryHealthy` and `MemoryExhaustionImminent`; `largest` is the end of the messages of problems.
    pub fn views(&self, largest: &str) -> [View; 2] {
        let problem = |reason, message: &String| View::found(reason, format!("{message}{largest}"));
        let lasted = self.nearly_used_up().map(|(_, lasted)| lasted);
        let thrashing = self.thrashing.as_ref().filter(|_| lasted.is_some_and(|lasted| lasted >= REPORTED_AFTER));
        let health = match (thrashing, lasted) {
            (Some(message), _) => problem(Reason::MemoryThrashing, message),
            // It may have begun to thrash. What an earlier run of the agent reported stays until that is known.
            (None, Some(lasted)) if lasted < REPORTED_AFTER => View::Unchanged(Finding::new(
                Reason::MemoryIsHealthy,
                "at most 5 % of the host's memory is available; whether the host thrashes is known within a minute",
            )),
            (None, _) => View::healthy("the host does not thrash"),
        };
        let outlook = match self.runs_out.as_ref().map(|runs_out| &runs_out.message).or(thrashing) {
            Some(message) => problem(Reason::MemoryRunsOut, message),
            None => View::healthy("the host's memory is not about to be used up"),
        };
        [health, outlook]
    }

    /// Decides whether the memory runs out.
    fn predict(&mut self, now: &Reading) {
        let pace = self.bytes_per_sec_if_it_runs_out(now);
        self.runs_out = match (self.runs_out.take(), pace) {
            (Some(known), Some(_)) => Some(RunsOut { at: now.at, ..known }),
            (None, Some(pace)) => Some(RunsOut { at: now.at, message: message::runs_out(now, pace) }),
            (known, None) => known.filter(|known| {
                let passed = now.at - known.at;
                passed < if is_little(now) { RUNS_OUT_FOR } else { PACES[0] }
            }),
        };
    }

    /// How many bytes it loses a second, if it runs out.
    fn bytes_per_sec_if_it_runs_out(&self, now: &Reading) -> Option<u64> {
        let before = self.readings.iter().rev().nth(1)?;
        let [short, long] = PACES.map(|span| self.lost_bytes_per_sec(now, span));
        let pace = short?.min(long?);
        let runs_out = is_little(now) && kswapd_reclaims(before, now);
        (runs_out && headroom(now) <= pace.saturating_mul(RUNS_OUT_WITHIN_SECS)).then_some(pace)
    }

    /// How many bytes a second were lost over `span`, or a little longer.
    fn lost_bytes_per_sec(&self, now: &Reading, span: Duration) -> Option<u64> {
        let before = self.readings.iter().rev().find(|reading| now.at - reading.at >= span)?;
        let lost = headroom(before).saturating_sub(headroom(now));
        per_sec(lost, now.at - before.at)
    }

    /// The message, if the host thrashes.
    fn thrashes(&self, now: &Reading) -> Option<String> {
        let (first, lasted) = self.nearly_used_up()?;
        let (before, after) = first.reclaim.zip(now.reclaim)?;
        if lasted < THRASHES_AFTER || !kswapd_reclaims(first, now) {
            return None;
        }
        let rate = per_sec(after.refaulted_bytes.saturating_sub(before.refaulted_bytes), lasted)?;
        if rate >= now.file_bytes / 2 {
            return Some(message::thrashes(now, rate));
        }
        let percent = after.lost?.saturating_sub(before.lost?).as_millis() * 100 / lasted.as_millis().max(1);
        let is_hosts = after.stalls.saturating_sub(before.stalls) >= lasted.as_secs();
        (is_hosts && percent >= LOST_PERCENT).then(|| message::loses_time(now, percent))
    }

    /// The first of the readings since which the memory is nearly used up, and how long ago it was: at most a little over a minute.
    fn nearly_used_up(&self) -> Option<(&Reading, Duration)> {
        let is_nearly_used_up =
            |reading: &&Reading| reading.available_bytes <= reading.total_bytes / NEARLY_NONE_OF_TOTAL;
        let first = self.readings.iter().rev().take_while(is_nearly_used_up).last()?;
        Some((first, self.readings.back()?.at - first.at))
    }
}

/// What can still be used: swap takes what the memory cannot.
fn headroom(reading: &Reading) -> u64 {
    reading.available_bytes + reading.swap_free_bytes
}

/// Below this little is available.
fn little(reading: &Reading) -> u64 {
    (reading.total_bytes / LITTLE_OF_TOTAL).min(LITTLE_BYTES)
}

fn is_little(reading: &Reading) -> bool {
    headroom(reading) < little(reading)
}

fn kswapd_reclaims(before: &Reading, now: &Reading) -> bool {
    before.reclaim.zip(now.reclaim).is_some_and(|(before, now)| now.scanned_pages > before.scanned_pages)
}

fn per_sec(amount: u64, time: Duration) -> Option<u64> {
    amount.saturating_mul(1000).checked_div(u64::try_from(time.as_millis()).ok()?)
}
