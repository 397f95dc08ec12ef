//! A recording of a host's memory, line by line → samples with counters, as the daemon would have seen them.
//!
//! `docs/reference/memory-trace.md` describes the format. Rates are added up to counters; what a recording does not say is
//! not known, and fields that are not known here are somebody else's.

use std::time::Duration;

use serde::Deserialize;

use super::sample::{Group, Level, Reclaim, Sample, Stall, Zram};
use crate::checks::kernel::event::Scope;

/// A recording's first line.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Header {
    /// All memory.
    pub total_mib: Option<f64>,
    /// What swap there is: `none` or another word.
    pub swap: Option<String>,
    /// There in a sample, and in no header.
    t_s: Option<f64>,
}

/// A sample as recorded.
#[derive(Debug, Clone, Default, Deserialize)]
struct Line {
    t_s: Option<f64>,
    available_mib: Option<f64>,
    free_mib: Option<f64>,
    anon_mib: Option<f64>,
    file_mib: Option<f64>,
    active_file_mib: Option<f64>,
    inactive_file_mib: Option<f64>,
    swap_total_mib: Option<f64>,
    swap_free_mib: Option<f64>,
    zram_orig_mib: Option<f64>,
    zram_used_mib: Option<f64>,
    psi_some_pct: Option<f64>,
    psi_full_pct: Option<f64>,
    kubelet_full_pct: Option<f64>,
    runtime_full_pct: Option<f64>,
    scan_per_s: Option<f64>,
    pgscan_per_s: Option<f64>,
    pgsteal_per_s: Option<f64>,
    allocstall_per_s: Option<f64>,
    refault_per_s: Option<f64>,
    oom_kills: Option<f64>,
    oom_scope: Option<KillScope>,
    kubepods_used_mib: Option<f64>,
    kubepods_limit_mib: Option<f64>,
}

/// Whose memory was short, as recorded.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KillScope {
    Host,
    Cgroup,
}

/// A kill that the recording has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// It says whose memory was short.
    Of(Scope),
    /// It only counts.
    Counted,
}

/// A look at the recorded host, and whether the kernel has killed for memory since the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// What is to be seen.
    pub sample: Sample,
    /// What the kernel killed.
    pub kill: Option<Kill>,
}

/// A recording that is being read.
#[derive(Debug)]
pub struct Recording {
    total: u64,
    has_swap: bool,
    has_zram: bool,
    at: Option<f64>,
    some_us: f64,
    full_us: f64,
    kubelet_us: f64,
    runtime_us: f64,
    scanned: f64,
    stolen: f64,
    stalls: f64,
    refaulted: f64,
    oom_kills: Option<f64>,
}

/// A sample further off than this, in seconds, is a slip of the pen: a thousand years.
const LATEST_SECS: f64 = 3.2e10;

impl Recording {
    /// A recording with that first line.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn new(first: &str) -> Result<Self, String> {
        let header: Header = serde_json::from_str(first).map_err(|error| said(&error))?;
        let Some(total_mib) = header
            .total_mib
            .filter(|mib| mib.is_finite() && *mib >= 1.0)
        else {
            return Err(match header.t_s {
                Some(_) => {
                    "the first line must be the header, with total_mib: this is a sample".to_owned()
                }
                None => "the header must say total_mib, the host's memory in MiB".to_owned(),
            });
        };
        let swap = header.swap.unwrap_or_else(|| "none".to_owned());
        Ok(Self {
            total: bytes(total_mib),
            has_swap: swap != "none",
            has_zram: swap.contains("zram"),
            at: None,
            some_us: 0.0,
            full_us: 0.0,
            kubelet_us: 0.0,
            runtime_us: 0.0,
            scanned: 0.0,
            stolen: 0.0,
            stalls: 0.0,
            refaulted: 0.0,
            oom_kills: None,
        })
    }

    /// The next line; `None` if it is not after the last one, or does not say how much is available.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn next(&mut self, text: &str) -> Result<Option<Recorded>, String> {
        let line: Line = serde_json::from_str(text).map_err(|error| said(&error))?;
        let at = line
            .t_s
            .ok_or("the sample must say t_s, its time in seconds")?;
        if !(0.0..LATEST_SECS).contains(&at) {
            return Err(format!("t_s is {at}, which is no time of a host"));
        }
        let kill = self.kill(&line);
        let passed = self.at.map_or(0.0, |before| at - before);
        if self.at.is_some() && passed <= 0.0 && kill.is_none() {
            return Ok(None);
        }
        self.at = Some(self.at.map_or(at, |before| before.max(at)));
        self.count(&line, passed.max(0.0));
        let Some(available) = line.available_mib else {
            return Ok(None);
        };
        let sample = self.sample(&line, at, available);
        Ok(Some(Recorded { sample, kill }))
    }

    fn kill(&mut self, line: &Line) -> Option<Kill> {
        let before = self.oom_kills.unwrap_or(line.oom_kills?);
        self.oom_kills = line.oom_kills;
        (line.oom_kills? > before).then_some(match line.oom_scope {
            Some(KillScope::Host) => Kill::Of(Scope::Host),
            Some(KillScope::Cgroup) => Kill::Of(Scope::Cgroup),
            None => Kill::Counted,
        })
    }

    /// Adds the rates of the last interval to the counters.
    fn count(&mut self, line: &Line, passed: f64) {
        let add = |counter: &mut f64, rate: Option<f64>, unit: f64| {
            *counter += rate.unwrap_or(0.0).max(0.0) * passed * unit;
        };
        let microseconds_a_percent = 10_000.0;
        add(&mut self.some_us, line.psi_some_pct, microseconds_a_percent);
        add(&mut self.full_us, line.psi_full_pct, microseconds_a_percent);
        add(
            &mut self.kubelet_us,
            line.kubelet_full_pct,
            microseconds_a_percent,
        );
        add(
            &mut self.runtime_us,
            line.runtime_full_pct,
            microseconds_a_percent,
        );
        add(
            &mut self.scanned,
            line.pgscan_per_s.or(line.scan_per_s),
            1.0,
        );
        add(&mut self.stolen, line.pgsteal_per_s, 1.0);
        add(&mut self.stalls, line.allocstall_per_s, 1.0);
        add(&mut self.refaulted, line.refault_per_s, 1.0);
    }

    fn sample(&self, line: &Line, at: f64, available: f64) -> Sample {
        let known = |field: Option<f64>, counter: f64| field.map(|_| whole(counter));
        let file = match (line.active_file_mib, line.inactive_file_mib) {
            (Some(active), Some(inactive)) => Some(active + inactive),
            _ => line.file_mib,
        };
        let swap_total = match (line.swap_total_mib, line.swap_free_mib) {
            (None, None) if !self.has_swap => Some(0.0),
            (None, free) => free,
            (total, _) => total,
        };
        let scanned = known(line.pgscan_per_s.or(line.scan_per_s), self.scanned);
        Sample {
            at: Duration::from_secs_f64(at),
            level: Level {
                total: self.total,
                available: bytes(available),
                free: line.free_mib.map(bytes),
                anon: line.anon_mib.map(bytes),
                file: file.map(bytes),
                shmem: None,
                kernel: None,
                reserve: None,
                swap_total: swap_total.map(bytes),
                swap_free: line.swap_free_mib.map(bytes),
            },
            stall: line.psi_some_pct.map(|_| Stall {
                some_us: whole(self.some_us),
                full_us: whole(self.full_us),
            }),
            reclaim: scanned.map(|scanned| Reclaim {
                scanned,
                // The share of what was scanned: of kswapd's own numbers alone.
                stolen: known(line.pgsteal_per_s.and(line.pgscan_per_s), self.stolen),
                stalls: known(line.allocstall_per_s, self.stalls),
                refaulted: whole(self.refaulted),
                page: 0,
                oom_kills: line.oom_kills.map_or(0, whole),
            }),
            kubelet_full_us: known(line.kubelet_full_pct, self.kubelet_us),
            runtime_full_us: known(line.runtime_full_pct, self.runtime_us),
            zram: line
                .zram_orig_mib
                .zip(line.zram_used_mib)
                // Zeros of a host without it are not an empty one.
                .filter(|(stored, used)| self.has_zram || *stored > 0.0 || *used > 0.0)
                .map(|(stored, used)| Zram {
                    stored: bytes(stored),
                    used: bytes(used),
                }),
            pods: line
                .kubepods_used_mib
                .zip(line.kubepods_limit_mib)
                .map(|(used, limit)| Group {
                    used: bytes(used),
                    limit: bytes(limit),
                }),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and what is not a number is 0"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

fn bytes(mib: f64) -> u64 {
    whole(mib * 1024.0 * 1024.0)
}

/// What serde says, without its own line number: the caller knows the file's.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{} (column {})", &text[..end], error.column())
}
