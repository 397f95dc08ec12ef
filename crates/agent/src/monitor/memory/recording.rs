//! Recordings of a host's memory for `nodevigil replay`: JSON lines, first a header, then one sample a line.
//!
//! What a recording does not say is not known. Rates are those of the time since the line before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::{Memory, State};
use crate::{
    condition::Uptime,
    host::memory::{Reading, Reclaim},
};

const MIB: f64 = 1024.0 * 1024.0;
/// The recordings count pages of 4 KiB.
const PAGE_BYTES: f64 = 4096.0;
/// Times and sizes beyond this are no host's.
const MAX: f64 = 1e9;

#[derive(Debug, Deserialize)]
struct Header {
    total_mib: f64,
    /// `none`, or what swap there is.
    swap: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Line {
    t_s: f64,
    available_mib: Option<f64>,
    file_mib: Option<f64>,
    swap_free_mib: Option<f64>,
    /// Pages that kswapd looked at; `scan_per_s` has those of direct reclaim in it.
    pgscan_per_s: Option<f64>,
    scan_per_s: Option<f64>,
    /// Pages of files.
    refault_per_s: Option<f64>,
    /// Since boot, for the host's memory and for the limits of cgroups.
    oom_kills: Option<f64>,
    /// `host` or `cgroup`: whose memory was used up.
    oom_scope: Option<String>,
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub reading: Reading,
    /// Whether the kernel has OOM-killed a process since the sample before, other than for the limit of a cgroup.
    pub is_oom_kill: bool,
}

/// Reads the lines of one recording.
#[derive(Debug)]
pub struct Recording {
    header: Header,
    at: Option<f64>,
    scanned: f64,
    refaulted: f64,
    oom_kills: Option<f64>,
}

impl Recording {
    /// A recording with this header.
    ///
    /// # Errors
    /// When it is not a header: what is wrong.
    pub fn new(header: &str) -> Result<Self, String> {
        let header: Header = serde_json::from_str(header).map_err(|error| format!("not a header: {error}"))?;
        if !(1.0..MAX).contains(&header.total_mib) {
            return Err(format!("total_mib is {}; it must be the size of the host's memory in MiB", header.total_mib));
        }
        Ok(Self { header, at: None, scanned: 0.0, refaulted: 0.0, oom_kills: None })
    }

    /// The sample of the next line; none if it does not say how much memory is available, or is not later than the one before.
    ///
    /// # Errors
    /// When it is not a sample: what is wrong.
    pub fn sample(&mut self, line: &str) -> Result<Option<Sample>, String> {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("not a sample: {error}"))?;
        if !(0.0..MAX).contains(&line.t_s) {
            return Err(format!("t_s is {}; it must be the time in seconds", line.t_s));
        }
        let passed = line.t_s - self.at.unwrap_or(line.t_s);
        if self.at.is_some() && passed <= 0.0 {
            return Ok(None);
        }
        self.at = Some(line.t_s);
        let scan_rate = line.pgscan_per_s.or(line.scan_per_s);
        self.scanned += scan_rate.unwrap_or_default() * passed;
        self.refaulted += line.refault_per_s.unwrap_or_default() * passed;
        let kills_before = self.oom_kills.or(line.oom_kills);
        self.oom_kills = line.oom_kills.or(kills_before);
        let is_oom_kill = self.oom_kills > kills_before && line.oom_scope.as_deref() != Some("cgroup");
        let Some(available) = line.available_mib else { return Ok(None) };
        // Of swap without a size it is only known that it takes what the memory cannot.
        let has_swap = self.header.swap.as_deref().is_some_and(|swap| swap != "none");
        let swap_free = line.swap_free_mib.unwrap_or(if has_swap { self.header.total_mib } else { 0.0 });
        let reclaim =
            Reclaim { scanned_pages: whole(self.scanned), refaulted_bytes: whole(self.refaulted * PAGE_BYTES) };
        let reading = Reading {
            at: Duration::from_secs_f64(line.t_s),
            total_bytes: whole(self.header.total_mib * MIB),
            available_bytes: whole(available * MIB),
            swap_free_bytes: whole(swap_free * MIB),
            file_bytes: whole(line.file_mib.unwrap_or_default() * MIB),
            reclaim: scan_rate.map(|_| reclaim),
        };
        Ok(Some(Sample { reading, is_oom_kill }))
    }
}

/// What the monitor makes of a recording.
#[derive(Debug, Default)]
pub struct Replayed {
    pub memory: Memory,
    state: State,
    next_reading: Uptime,
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
    /// Takes in the next sample, if the monitor would read the memory at its time.
    pub fn take(&mut self, sample: &Sample) -> Option<Transition> {
        let at = sample.reading.at;
        if sample.is_oom_kill {
            self.memory.host_oom_killed("The kernel OOM-killed a process".to_owned(), at);
        }
        // A recorder is never quite on time.
        if at + self.memory.interval() / 5 >= self.next_reading {
            let reclaim = sample.reading.reclaim.filter(|_| self.memory.is_tight());
            self.memory.observe(Reading { reclaim, ..sample.reading });
            self.next_reading = at + self.memory.interval();
        }
        let (to, why) = self.memory.state();
        let from = std::mem::replace(&mut self.state, to);
        let t_s = (at.as_secs_f64() * 1000.0).round() / 1000.0;
        (from != to).then_some(Transition { t_s, from, to, why })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and what is not a number becomes 0"
)]
fn whole(number: f64) -> u64 {
    number.clamp(0.0, MAX * MIB) as u64
}
