//! What each of the two costs: CPU with children, memory, writes to the API, its own log.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use procfs::process::Process;
use serde_json::Value;

use crate::scene::Scene;
use crate::support::process::cpu;

/// One side: its units, and the user as which it writes.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) units: &'static [&'static str],
    pub(crate) user: String,
}

/// What a side has used until now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Its processes, all their threads, and their children that have ended.
    pub(crate) cpu: Duration,
    pub(crate) resident_mib: f64,
    /// Of all fields that its lines have of it.
    pub(crate) log_bytes: usize,
    pub(crate) log_lines: usize,
}

impl Used {
    /// What came on top of an earlier reading. The memory is today's.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            resident_mib: self.resident_mib,
            log_bytes: self.log_bytes - before.log_bytes,
            log_lines: self.log_lines - before.log_lines,
        }
    }

    /// Its log, for people.
    pub(crate) fn log(&self) -> String {
        format!("{} lines, {} bytes", self.log_lines, self.log_bytes)
    }
}

/// What both have used until now.
pub(crate) fn used(scene: &Scene, sides: &[Side; 2]) -> Result<[Used; 2]> {
    let [ours, theirs] = sides;
    Ok([ours.used(scene)?, theirs.used(scene)?])
}

/// What both used in the time between two readings.
pub(crate) fn between(before: &[Used; 2], after: &[Used; 2]) -> [Used; 2] {
    [0, 1].map(|side: usize| after[side].since(&before[side]))
}

impl Side {
    pub(crate) fn used(&self, scene: &Scene) -> Result<Used> {
        let mut used = Used {
            cpu: self.cpu(scene)?,
            resident_mib: self.resident(scene)?,
            log_bytes: 0,
            log_lines: 0,
        };
        for unit in self.units {
            let lines = scene.node.journal(unit, &[])?;
            used.log_lines += lines.len();
            used.log_bytes += lines.iter().map(own_bytes).sum::<usize>();
        }
        Ok(used)
    }

    /// Its CPU alone.
    pub(crate) fn cpu(&self, scene: &Scene) -> Result<Duration> {
        let pids = self.units.iter().map(|unit| scene.node.unit_pid(unit));
        pids.map(|pid| {
            let pid = pid?;
            Ok(cpu(pid)? + children(pid)?)
        })
        .sum()
    }

    /// Its memory alone, which costs nobody anything to read.
    pub(crate) fn resident(&self, scene: &Scene) -> Result<f64> {
        let pids = self.units.iter().map(|unit| scene.node.unit_pid(unit));
        pids.map(|pid| resident(pid?)).sum()
    }

    /// Its writes that the API server answered since then: conditions and events.
    pub(crate) fn writes(&self, scene: &Scene, since: Timestamp) -> Result<usize> {
        let requests = scene.plane.audit()?;
        let writes = requests.iter().filter(|request| {
            request.user == self.user
                && request.at >= since
                && !matches!(request.verb.as_str(), "get" | "list" | "watch")
        });
        Ok(writes.count())
    }
}

/// What a program put into a journal line, names included: all but the fields that journald adds.
fn own_bytes(line: &Value) -> usize {
    let fields = line.as_object().into_iter().flatten();
    let own = fields.filter(|(name, _)| !name.starts_with('_'));
    own.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum()
}

/// The CPU time of a process's children that have ended. The kernel adds nanoseconds up and shows ticks.
fn children(pid: i32) -> Result<Duration> {
    let stat = Process::new(pid)?.stat()?;
    let ticks = u64::try_from(stat.cutime + stat.cstime)?;
    Ok(Duration::from_millis(
        ticks * 1000 / procfs::ticks_per_second(),
    ))
}

fn resident(pid: i32) -> Result<f64> {
    let kib = Process::new(pid)?.status()?.vmrss.context("no VmRSS")?;
    Ok(f64::from(u32::try_from(kib)?) / 1024.0)
}
