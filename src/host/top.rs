//! Which processes hold memory, and which grow.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use procfs::ProcResult;
use procfs::process::{Process as ProcEntry, Stat, all_processes};
use serde::{Deserialize, Serialize};

use super::child;
use super::process::cgroup_path;

/// The hidden subcommand that reads all processes.
pub const SUBCOMMAND: &str = "top";
const TIMEOUT: Duration = Duration::from_secs(20);
/// Growth is measured over this time.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// Slower growth, in bytes a second, counts as none.
const LEAST_GROWTH: u64 = 1 << 20;
/// How many processes the child prints.
const PRINTED: usize = 5;

/// What the child prints, in JSON: the fastest growing first, then the largest.
pub type Output = Result<Vec<Consumer>, String>;

/// A process that holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    pub pid: i32,
    pub name: String,
    /// The cgroup that it is in, if it still runs.
    pub cgroup: Option<String>,
    /// Resident, in bytes.
    pub memory_bytes: u64,
    pub growth_bytes_per_sec: u64,
}

/// The processes that grow fastest or hold most memory. A child reads them, because there may be thousands.
///
/// # Errors
/// When the child fails or takes too long.
pub async fn consumers() -> Output {
    child::run_own(&[SUBCOMMAND], TIMEOUT).await?
}

/// What the child prints. Takes a second.
pub fn read() -> Output {
    let consumer = |(stat, before): (Stat, Option<Stat>)| {
        let grown = before.map_or(0, |before| memory_bytes(&stat).saturating_sub(memory_bytes(&before)));
        let growth = Some(grown / MEASURED_FOR.as_secs()).filter(|growth| *growth >= LEAST_GROWTH);
        Consumer {
            pid: stat.pid,
            cgroup: None,
            memory_bytes: memory_bytes(&stat),
            growth_bytes_per_sec: growth.unwrap_or_default(),
            name: stat.comm,
        }
    };
    let mut all: Vec<_> = measure().map_err(|error| format!("/proc: {error}"))?.into_iter().map(consumer).collect();
    all.sort_unstable_by_key(|consumer| Reverse((consumer.growth_bytes_per_sec, consumer.memory_bytes)));
    all.truncate(PRINTED);
    for consumer in &mut all {
        consumer.cgroup = ProcEntry::new(consumer.pid).ok().and_then(|process| cgroup_path(&process));
    }
    Ok(all)
}

/// All processes, each with what it was a second before, if it was there.
pub fn measure() -> ProcResult<Vec<(Stat, Option<Stat>)>> {
    let mut before: HashMap<_, _> = stats()?.map(|stat| (stat.pid, stat)).collect();
    thread::sleep(MEASURED_FOR);
    let with_before = |stat: Stat| {
        let before = before.remove(&stat.pid);
        (stat, before)
    };
    Ok(stats()?.map(with_before).collect())
}

fn stats() -> ProcResult<impl Iterator<Item = Stat>> {
    Ok(all_processes()?.flatten().filter_map(|process| process.stat().ok()))
}

/// Its resident memory.
pub fn memory_bytes(stat: &Stat) -> u64 {
    stat.rss * procfs::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_listed_with_name_memory_and_cgroup() {
        let consumers = read().unwrap();
        assert!(!consumers.is_empty() && consumers.len() <= PRINTED, "{consumers:?}");
        assert!(
            consumers.iter().any(|one| one.memory_bytes > 0 && !one.name.is_empty() && one.cgroup.is_some()),
            "{consumers:?}"
        );
    }
}
