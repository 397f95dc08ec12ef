//! Replays a recording of a host's memory. Its format: tests/memory-traces/README.md.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::findings;
use crate::condition::Uptime;
use crate::host::memory::{Reading, Reclaim};
use crate::host::oom::{OomKill, OomScope};
use crate::monitor::memory::state::Memory;

const BYTES_PER_MIB: f64 = 1_048_576.0;
/// The recordings count pages of 4 KiB.
const BYTES_PER_PAGE: f64 = 4096.0;
const OOM_KILLED: &str = "The kernel OOM-killed ";

#[derive(Debug, Deserialize)]
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

/// The state of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Calm,
    /// It runs out.
    Imminent,
    Thrashing,
    /// The kernel has just OOM-killed a process.
    Oom,
}

/// The state of a replay.
#[derive(Debug)]
pub struct Replay {
    pub memory: Memory,
    next_reading: Uptime,
    header: Header,
    last_secs: Option<f64>,
    scanned_pages: f64,
    refaulted_pages: f64,
    oom_kills: Option<f64>,
}

impl Replay {
    pub fn new(header: &Value) -> Self {
        Self {
            memory: Memory::default(),
            next_reading: Uptime::ZERO,
            header: Header::deserialize(header).unwrap(),
            last_secs: None,
            scanned_pages: 0.0,
            refaulted_pages: 0.0,
            oom_kills: None,
        }
    }

    /// Replays the next sample; returns the state after it. A sample at whose time the monitor would not read the memory changes nothing.
    pub fn take(&mut self, sample: &Value) -> State {
        let sample = Sample::deserialize(sample).unwrap();
        let passed = sample.t_s - self.last_secs.unwrap_or(sample.t_s);
        // Some recorders wrote a sample twice.
        if passed <= 0.0 && self.last_secs.is_some() {
            return self.state();
        }
        self.last_secs = Some(sample.t_s);
        self.scanned_pages += sample.pgscan_per_s.or(sample.scan_per_s).unwrap_or_default() * passed;
        self.refaulted_pages += sample.refault_per_s.unwrap_or_default() * passed;
        let at = Uptime::ZERO + Duration::from_secs_f64(sample.t_s);
        let has_killed = self.oom_kills.is_some() && sample.oom_kills > self.oom_kills;
        self.oom_kills = sample.oom_kills.or(self.oom_kills);
        if has_killed && sample.oom_scope.as_deref() != Some("cgroup") {
            let kill = OomKill { pid: 812, name: "stress".into(), cgroup: None, memory: OomScope::Host };
            self.memory.oom_killed(&kill, at);
        }
        // A recorder is never quite on time.
        if at + self.memory.interval() / 5 >= self.next_reading
            && let Some(reading) = self.reading(at, &sample)
        {
            self.memory.observe(reading);
            self.next_reading = at + self.memory.interval();
        }
        self.state()
    }

    fn state(&self) -> State {
        let [_, outlook] = findings(&self.memory);
        match outlook {
            Some(finding) if finding.message.starts_with(OOM_KILLED) => State::Oom,
            _ if self.memory.thrashing.is_some() => State::Thrashing,
            Some(_) => State::Imminent,
            None => State::Calm,
        }
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no host has a negative amount, or 2^52 bytes"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
