//! The kernel's counters and limits, from /proc and /sys. They are made up in memory when they are read; no read waits for a disk.

use std::fs;
use std::path::Path;

use procfs::{CpuTime, Current as _, CurrentSI as _, KernelStats, LoadAverage, Meminfo};

const EDAC: &str = "/sys/devices/system/edac/mc";
/// Process ids that are left out when the kernel starts again from the lowest one (`RESERVED_PIDS` of `include/linux/pid.h`).
const RESERVED_PIDS: u64 = 300;

/// What the kernel has counted since boot; zero where it does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// The flags of `kernel.tainted` (Documentation/admin-guide/tainted-kernels.rst).
    pub tainted: u64,
    /// `softlockup_count`, `hardlockup_count` and `rcu_stall_count` of /sys/kernel, since Linux 6.16.
    pub soft_lockups: u64,
    pub hard_lockups: u64,
    pub rcu_stalls: u64,
    /// `HardwareCorrupted` of /proc/meminfo: memory that is no longer used because of an error.
    pub corrupted_bytes: u64,
    /// `ue_count` of all memory controllers (Documentation/admin-guide/RAS): errors that were not corrected.
    pub uncorrected_errors: u64,
}

/// How much of something is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub limit: u64,
}

/// What the kernel has a limit for; none where it has no such limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usages {
    /// Threads of all processes, and the process ids that `kernel.pid_max` allows.
    pub pids: Option<Usage>,
    /// The same threads, and `kernel.threads-max`.
    pub threads: Option<Usage>,
    /// Open files of the host, and `fs.file-max`.
    pub files: Option<Usage>,
    /// Tracked connections, and `net.netfilter.nf_conntrack_max`.
    pub connections: Option<Usage>,
}

/// Reads the counters.
pub fn counters() -> Counters {
    let controllers = fs::read_dir(EDAC).into_iter().flatten().flatten();
    Counters {
        tainted: number("/proc/sys/kernel/tainted").unwrap_or_default(),
        soft_lockups: number("/sys/kernel/softlockup_count").unwrap_or_default(),
        hard_lockups: number("/sys/kernel/hardlockup_count").unwrap_or_default(),
        rcu_stalls: number("/sys/kernel/rcu_stall_count").unwrap_or_default(),
        corrupted_bytes: Meminfo::current().ok().and_then(|memory| memory.hardware_corrupted).unwrap_or_default(),
        uncorrected_errors: controllers.filter_map(|controller| number(controller.path().join("ue_count"))).sum(),
    }
}

/// For how many ticks each processor has run programs, was idle or was taken by the hypervisor: one that does nothing but work for the
/// kernel, or not even counts, has the same number again.
pub fn released() -> Vec<u64> {
    let is_free = |cpu: &CpuTime| [Some(cpu.user), Some(cpu.nice), Some(cpu.idle), cpu.iowait, cpu.steal];
    let ticks = |cpu: &CpuTime| is_free(cpu).into_iter().flatten().sum();
    KernelStats::current().map(|stats| stats.cpu_time.iter().map(ticks).collect()).unwrap_or_default()
}

/// Reads how much of each limit is in use.
pub fn usages() -> Usages {
    let threads = LoadAverage::current().ok().map(|load| u64::from(load.max));
    let pids = number("/proc/sys/kernel/pid_max").map(|max| max.saturating_sub(RESERVED_PIDS));
    let files = procfs::sys::fs::file_nr().ok();
    Usages {
        pids: usage(threads, pids),
        threads: usage(threads, number("/proc/sys/kernel/threads-max")),
        files: usage(files.as_ref().map(|files| files.allocated), files.as_ref().map(|files| files.max)),
        connections: connections(),
    }
}

fn connections() -> Option<Usage> {
    let read = |name: &str| number(Path::new("/proc/sys/net/netfilter").join(name));
    usage(read("nf_conntrack_count"), read("nf_conntrack_max"))
}

/// Whether the kernel tracks as many connections as it can. New ones then fail, those within the host too.
pub fn is_connection_table_full() -> bool {
    connections().is_some_and(|Usage { used, limit }| used >= limit - limit / 50)
}

/// A limit of 0 is none, as `nf_conntrack_max` has it.
fn usage(used: Option<u64>, limit: Option<u64>) -> Option<Usage> {
    let limit = limit.filter(|limit| *limit > 0)?;
    Some(Usage { used: used?, limit })
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_hosts_limits_are_read() {
        let Usages { pids: Some(pids), threads: Some(threads), files: Some(files), .. } = usages() else {
            panic!("{:?}", usages())
        };
        assert!(pids.used > 0 && pids.used < pids.limit && threads.used > 0 && files.used > 0);
        assert_eq!(usage(Some(1), Some(0)), None);
        assert!(released().iter().any(|ticks| *ticks > 0));
    }
}
