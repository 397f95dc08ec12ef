//! Which processes hold most memory, and which grow.

use std::{collections::HashMap, thread, time::Duration};

use procfs::process::Process as ProcEntry;
use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::{child, process::cgroup_path};

/// The hidden subcommand that looks at all processes.
pub const SUBCOMMAND: &str = "top";
const TIMEOUT: Duration = Duration::from_secs(20);
/// Growth is measured over this time.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// Slower growth, in bytes a second, counts as none.
const LEAST_GROWTH: u64 = 1 << 20;
/// How many processes are printed.
const PRINTED: usize = 5;

/// What the child prints, in JSON: the fastest growing first, then the largest.
pub type Output = Result<Vec<Consumer>, String>;

/// A process that holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    pub pid: u32,
    pub name: String,
    /// The cgroup that it is in, if it still runs.
    pub cgroup: Option<String>,
    /// Resident, in bytes.
    pub memory_bytes: u64,
    pub growth_bytes_per_sec: u64,
}

/// The processes that grow fastest or hold most memory. They are looked at in a child, because there may be thousands.
///
/// # Errors
/// When the child fails or takes too long.
pub async fn consumers() -> Output {
    child::run_own(&[SUBCOMMAND], TIMEOUT).await?
}

/// What the child prints. Takes a second.
pub fn read() -> Output {
    let mut system = System::new().map_err(|error| error.to_string())?;
    let before: HashMap<Pid, u64> = resident(&mut system).into_iter().map(|(pid, memory, _)| (pid, memory)).collect();
    thread::sleep(MEASURED_FOR);
    let growth = |pid, memory: u64| {
        let grown = memory.saturating_sub(before.get(&pid).copied().unwrap_or(memory));
        Some(grown / MEASURED_FOR.as_secs()).filter(|growth| *growth >= LEAST_GROWTH).unwrap_or_default()
    };
    let mut all: Vec<_> =
        resident(&mut system).into_iter().map(|(pid, memory, name)| (growth(pid, memory), memory, pid, name)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let consumer = |(growth_bytes_per_sec, memory_bytes, pid, name): (u64, u64, Pid, String)| {
        let pid = pid.as_u32();
        let process = i32::try_from(pid).ok().and_then(|pid| ProcEntry::new(pid).ok());
        let cgroup = process.and_then(|process| cgroup_path(&process));
        Consumer { pid, name, cgroup, memory_bytes, growth_bytes_per_sec }
    };
    Ok(all.into_iter().take(PRINTED).map(consumer).collect())
}

fn resident(system: &mut System) -> Vec<(Pid, u64, String)> {
    let kind = ProcessRefreshKind::nothing().with_memory().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    let of = |(pid, process): (&Pid, &sysinfo::Process)| {
        (*pid, process.memory(), process.name().to_string_lossy().into_owned())
    };
    system.processes().iter().map(of).collect()
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
