//! The host's memory, and the agent's own pages.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use procfs::{Current as _, MemoryPressure, VmStat};
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
    /// The bytes of file pages that were read again soon after they were dropped.
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
    // Not by procfs: its table of all lines takes most of the time of a reading, of which there are twelve a minute.
    let mut text = [0; 8192];
    let read = File::open("/proc/meminfo").and_then(|mut file| file.read(&mut text));
    let length = read.map_err(|error| format!("/proc/meminfo: {error}"))?;
    let text = String::from_utf8_lossy(&text[..length]);
    let needed = |name: &str| bytes(&text, name).ok_or_else(|| format!("/proc/meminfo: {name} is missing"));
    Ok(Reading {
        at,
        total_bytes: needed("MemTotal:")?.saturating_sub(bytes(&text, "Hugetlb:").unwrap_or_default()),
        available_bytes: needed("MemAvailable:")?,
        swap_free_bytes: needed("SwapFree:")?,
        file_bytes: needed("Active(file):")? + needed("Inactive(file):")?,
        reclaim: if with_reclaim { Some(read_reclaim()?) } else { None },
    })
}

/// The bytes of a line such as `MemTotal:       24684092 kB`.
fn bytes(meminfo: &str, name: &str) -> Option<u64> {
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix(" kB"))?;
    kibibytes.trim_start().parse::<u64>().ok()?.checked_mul(1024)
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
