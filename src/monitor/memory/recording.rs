//! Replays a recording of a host's memory for `nodevigil replay`: JSON lines, first a header, then one sample a line.
//!
//! A value that a recording lacks is unknown. Rates are averages since the previous line.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state::{Memory, State};
use crate::condition::Uptime;
use crate::host::memory::{Reading, Reclaim};

const BYTES_PER_MIB: f64 = 1_048_576.0;
/// The recordings count pages of 4 KiB.
const BYTES_PER_PAGE: f64 = 4096.0;
/// Times and sizes beyond these are no host's.
const MAX_SECS: f64 = 1e9;
const MAX_BYTES: f64 = 1e15;

#[derive(Debug, Default, Deserialize)]
struct Header {
    total_mib: f64,
    /// `none`, or what swap there is.
    swap: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    t_s: f64,
    available_mib: Option<f64>,
    file_mib: Option<f64>,
    swap_free_mib: Option<f64>,
    /// Pages that kswapd scanned; `scan_per_s` has those of direct reclaim in it.
    pgscan_per_s: Option<f64>,
    scan_per_s: Option<f64>,
    /// Pages of files.
    refault_per_s: Option<f64>,
    /// Since boot, for the host's memory and for the limits of cgroups.
    oom_kills: Option<f64>,
    /// `host` or `cgroup`: whose memory was used up.
    oom_scope: Option<String>,
}

/// The state of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    pub memory: Memory,
    state: State,
    next_reading: Uptime,
    header: Header,
    last_secs: Option<f64>,
    scanned_pages: f64,
    refaulted_pages: f64,
    oom_kills: Option<f64>,
}

/// A change of state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transition {
    pub t_s: f64,
    pub from: State,
    pub to: State,
    pub why: String,
}

impl Replayed {
    /// Begins with the header.
    ///
    /// # Errors
    /// When it is not a header: what is wrong.
    pub fn new(header: &str) -> Result<Self, String> {
        Ok(Self { header: parse("a header", header)?, ..Self::default() })
    }

    /// Replays the next line. A sample that is not later than the one before, or at whose time the monitor would not read the memory,
    /// changes nothing.
    ///
    /// # Errors
    /// When it is not a sample: what is wrong.
    pub fn take(&mut self, line: &str) -> Result<Option<Transition>, String> {
        let sample: Sample = parse("a sample", line)?;
        if !(0.0..MAX_SECS).contains(&sample.t_s) {
            return Err(format!("t_s is {}; it must be the time in seconds", sample.t_s));
        }
        let passed = sample.t_s - self.last_secs.unwrap_or(sample.t_s);
        if passed <= 0.0 && self.last_secs.is_some() {
            return Ok(None);
        }
        self.last_secs = Some(sample.t_s);
        self.scanned_pages += sample.pgscan_per_s.or(sample.scan_per_s).unwrap_or_default() * passed;
        self.refaulted_pages += sample.refault_per_s.unwrap_or_default() * passed;
        let at = Duration::from_secs_f64(sample.t_s);
        let has_killed = self.oom_kills.is_some() && sample.oom_kills > self.oom_kills;
        self.oom_kills = sample.oom_kills.or(self.oom_kills);
        if has_killed && sample.oom_scope.as_deref() != Some("cgroup") {
            self.memory.host_oom_killed("The kernel OOM-killed a process".to_owned(), at);
        }
        // A recorder is never quite on time.
        if at + self.memory.interval() / 5 >= self.next_reading
            && let Some(reading) = self.reading(at, &sample)
        {
            self.memory.observe(reading);
            self.next_reading = at + self.memory.interval();
        }
        let (to, why) = self.memory.state();
        let from = std::mem::replace(&mut self.state, to);
        let t_s = (sample.t_s * 1000.0).round() / 1000.0;
        Ok((from != to).then_some(Transition { t_s, from, to, why }))
    }

    fn reading(&self, at: Uptime, sample: &Sample) -> Option<Reading> {
        let has_reclaim = sample.pgscan_per_s.or(sample.scan_per_s).is_some() && self.memory.is_tight();
        // Of swap without a size it is only known that it takes what the memory cannot.
        let has_swap = self.header.swap.as_deref().is_some_and(|swap| swap != "none");
        let swap_free_mib = sample.swap_free_mib.unwrap_or(if has_swap { self.header.total_mib } else { 0.0 });
        Some(Reading {
            at,
            total_bytes: whole(self.header.total_mib * BYTES_PER_MIB),
            available_bytes: whole(sample.available_mib? * BYTES_PER_MIB),
            swap_free_bytes: whole(swap_free_mib * BYTES_PER_MIB),
            file_bytes: whole(sample.file_mib.unwrap_or_default() * BYTES_PER_MIB),
            reclaim: has_reclaim.then(|| Reclaim {
                scanned_pages: whole(self.scanned_pages),
                refaulted_bytes: whole(self.refaulted_pages * BYTES_PER_PAGE),
                ..Reclaim::default()
            }),
        })
    }
}

fn parse<T: DeserializeOwned>(what: &str, line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("not {what}: {error}"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is clamped")]
fn whole(number: f64) -> u64 {
    number.clamp(0.0, MAX_BYTES) as u64
}
