//! Which processes use memory and processors, and which grow.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use procfs::process::Process as ProcEntry;
use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::child;
use super::process::cgroup_path;

/// The hidden subcommand that reads all processes.
pub const SUBCOMMAND: &str = "top";
const TIMEOUT: Duration = Duration::from_secs(20);
/// Growth and the use of processors are measured over this time.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// Slower growth, in bytes a second, counts as none.
const LEAST_GROWTH: u64 = 1 << 20;
/// How many processes the child prints.
const PRINTED: usize = 5;

/// What the child prints, in JSON: the fastest growing first, then the largest.
pub type Output = Result<Vec<Consumer>, String>;

/// A process that holds memory and uses processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    pub pid: u32,
    pub name: String,
    /// The cgroup that it is in, if it still runs.
    pub cgroup: Option<String>,
    /// Resident, in bytes.
    pub memory_bytes: u64,
    pub growth_bytes_per_sec: u64,
    /// Of one processor: a process with several threads can use more than 100.
    pub cpu_percent: u32,
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
    let mut all = measure()?;
    all.sort_unstable_by_key(|consumer| Reverse((consumer.growth_bytes_per_sec, consumer.memory_bytes)));
    all.truncate(PRINTED);
    Ok(with_cgroups(all))
}

/// The `count` processes that use processors most, and of the others the `count` that hold most memory; the largest first. Takes a second.
///
/// # Errors
/// When /proc cannot be read.
pub fn busiest_and_largest(count: usize) -> Output {
    let mut all = measure()?;
    all.sort_unstable_by_key(|consumer| Reverse(consumer.cpu_percent));
    let by_memory = |consumer: &Consumer| Reverse(consumer.memory_bytes);
    if let Some(others) = all.get_mut(count..) {
        others.sort_unstable_by_key(by_memory);
    }
    all.truncate(2 * count);
    all.sort_unstable_by_key(by_memory);
    Ok(with_cgroups(all))
}

/// All processes, without their cgroups.
fn measure() -> Output {
    let mut system = System::new().map_err(|error| error.to_string())?;
    let mut refresh = || {
        let kind = ProcessRefreshKind::nothing().with_memory().with_cpu().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        system.processes().iter().map(|(pid, process)| (*pid, consumer(*pid, process))).collect::<HashMap<_, _>>()
    };
    let before = refresh();
    thread::sleep(MEASURED_FOR);
    let mut all = refresh();
    for (pid, consumer) in &mut all {
        let grown = before.get(pid).map_or(0, |before| consumer.memory_bytes.saturating_sub(before.memory_bytes));
        let growth = grown / MEASURED_FOR.as_secs();
        consumer.growth_bytes_per_sec = if growth < LEAST_GROWTH { 0 } else { growth };
    }
    Ok(all.into_values().collect())
}

fn consumer(pid: Pid, process: &sysinfo::Process) -> Consumer {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a percentage, and saturates")]
    let cpu_percent = process.cpu_usage().round() as u32;
    let (pid, name) = (pid.as_u32(), process.name().to_string_lossy().into_owned());
    Consumer { pid, name, cgroup: None, memory_bytes: process.memory(), growth_bytes_per_sec: 0, cpu_percent }
}

fn with_cgroups(mut all: Vec<Consumer>) -> Vec<Consumer> {
    for consumer in &mut all {
        let process = i32::try_from(consumer.pid).ok().and_then(|pid| ProcEntry::new(pid).ok());
        consumer.cgroup = process.and_then(|process| cgroup_path(&process));
    }
    all
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

    #[test]
    fn a_process_that_uses_a_processor_is_among_the_busiest() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let busy = thread::spawn(move || while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {});
        let consumers = busiest_and_largest(10).unwrap();
        drop(end);
        busy.join().unwrap();
        let this = consumers.iter().find(|consumer| consumer.pid == std::process::id());
        assert!(this.is_some_and(|this| this.cpu_percent > 0 && this.memory_bytes > 0), "{consumers:?}");
        assert!(consumers.is_sorted_by_key(|consumer| Reverse(consumer.memory_bytes)));
    }
}
