//! The host's memory, and the agent's own pages.

use std::time::Duration;

use procfs::{Current as _, Meminfo, MemoryPressure, VmStat};
use rustix::mm::{MlockAllFlags, mlockall};

use crate::condition::Uptime;

/// The host's memory at one moment. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub at: Uptime,
    /// All memory but reserved huge pages, which nothing else can use.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
    pub swap_free_bytes: u64,
    /// Pages of files that are in memory.
    pub file_bytes: u64,
    /// None if it was not read.
    pub reclaim: Option<Reclaim>,
}

/// What the kernel did since boot to get memory back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// The pages that kswapd scanned. It works for the host, never for the limit of a cgroup.
    pub scanned_pages: u64,
    /// What of files was read again soon after it was dropped, in bytes.
    pub refaulted_bytes: u64,
    /// How long all tasks have waited for memory at once, and so also for swap (Documentation/accounting/psi.rst); none where the kernel
    /// does not report it.
    pub lost: Option<Duration>,
    /// How often a task had to reclaim memory itself, for the host and not for the limit of a cgroup.
    pub stalls: u64,
}

/// Locks each page of the agent once it is used (`MCL_ONFAULT`), so that what is never used costs nothing: the agent has to report when
/// the host has no memory left.
pub fn lock() {
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::warn!("mlockall: {error}: the agent may be swapped out; nodevigil.service sets LimitMEMLOCK=infinity");
    }
}

/// Reads /proc/meminfo, and /proc/vmstat if `with_reclaim`. Neither waits for a disk.
///
/// # Errors
/// When one cannot be read, naming it.
pub fn read(at: Uptime, with_reclaim: bool) -> Result<Reading, String> {
    let info = Meminfo::current().map_err(|error| format!("/proc/meminfo: {error}"))?;
    let available = info.mem_available.ok_or("/proc/meminfo: MemAvailable is missing, which Linux has since 3.14")?;
    Ok(Reading {
        at,
        total_bytes: info.mem_total.saturating_sub(info.hugetlb.unwrap_or_default()),
        available_bytes: available,
        swap_free_bytes: info.swap_free,
        file_bytes: info.active_file.unwrap_or_default() + info.inactive_file.unwrap_or_default(),
        reclaim: if with_reclaim { Some(read_reclaim()?) } else { None },
    })
}

fn read_reclaim() -> Result<Reclaim, String> {
    let VmStat(counters) = VmStat::current().map_err(|error| format!("/proc/vmstat: {error}"))?;
    let counter = |name: &str| counters.get(name).and_then(|count| u64::try_from(*count).ok());
    // Linux before 5.9 counts pages of files alone, under another name.
    let refaulted = counter("workingset_refault_file").or_else(|| counter("workingset_refault"));
    Ok(Reclaim {
        scanned_pages: counter("pgscan_kswapd").unwrap_or_default(),
        refaulted_bytes: refaulted.unwrap_or_default() * procfs::page_size(),
        lost: MemoryPressure::current().ok().map(|pressure| Duration::from_micros(pressure.full.total)),
        // One for each zone: allocstall_dma32, allocstall_normal …
        stalls: counters
            .iter()
            .filter(|(name, _)| name.starts_with("allocstall"))
            .filter_map(|(_, count)| u64::try_from(*count).ok())
            .sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_hosts_memory_is_read() {
        let read = read(Uptime::ZERO, true).unwrap();
        assert!(read.available_bytes > 0 && read.available_bytes <= read.total_bytes, "{read:?}");
        assert!(read.file_bytes > 0 && read.reclaim.is_some(), "{read:?}");
    }
}
