//! What one look at the host's memory has seen: made by `host::memory_tables` on the node and by `replay` from a recording,
//! judged by the check.
//!
//! Counters are cumulative, as the kernel keeps them: rates are the check's business, over the real time between two looks.
//! What a kernel does not have, or a recording does not say, is `None` and counts neither for nor against anything.

use std::time::Duration;

/// How much a look reads: little each second while all is calm, all of it once memory moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The first lines of `/proc/meminfo`, to `SwapFree`: all that shows whether a host with plenty of memory still has it. Only
    /// where the kernel calls when tasks begin to wait (a PSI trigger is armed); elsewhere `Level` is read in its place.
    Head,
    /// `/proc/meminfo` and `/proc/pressure/memory`.
    Level,
    /// `/proc/vmstat`, the control groups of the kubelet, the runtime and the pods, and zram too.
    Whole,
}

/// One look. All sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// When it was taken (uptime).
    pub at: Duration,
    /// `/proc/meminfo`.
    pub level: Level,
    /// `/proc/pressure/memory`; `None` where the kernel has no PSI.
    pub stall: Option<Stall>,
    /// `/proc/vmstat`; `None` in a look at the level alone.
    pub reclaim: Option<Reclaim>,
    /// `full` of `memory.pressure` of the kubelet's own control group.
    pub kubelet_full_us: Option<u64>,
    /// The same of the container runtime's.
    pub runtime_full_us: Option<u64>,
    /// Swap that lies in memory itself.
    pub zram: Option<Zram>,
    /// The control group of all pods, where it has a limit.
    pub pods: Option<Group>,
}

/// The host's memory, from `/proc/meminfo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// `MemTotal` without what `Hugetlb` took away: nobody else can use that.
    pub total: u64,
    /// `MemAvailable`.
    pub available: u64,
    /// `MemFree`.
    pub free: Option<u64>,
    /// `AnonPages`.
    pub anon: Option<u64>,
    /// `Active(file)` and `Inactive(file)` together.
    pub file: Option<u64>,
    /// `Shmem`: tmpfs and `emptyDir` of medium Memory. It looks like cache and is none.
    pub shmem: Option<u64>,
    /// `SUnreclaim`, `KernelStack` and `PageTables` together: what the kernel holds for itself.
    pub kernel: Option<u64>,
    /// What the kernel keeps back for itself before it gives memory out: the high watermarks of all zones, from
    /// `/proc/zoneinfo`, read once.
    pub reserve: Option<u64>,
    /// `SwapTotal`.
    pub swap_total: Option<u64>,
    /// `SwapFree`.
    pub swap_free: Option<u64>,
}

/// How long tasks have waited for memory since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stall {
    /// At least one of them, in microseconds.
    pub some_us: u64,
    /// All that were not idle, in microseconds.
    pub full_us: u64,
}

/// What the kernel did to get memory back, counted since boot, from `/proc/vmstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// `pgscan_kswapd`, in pages. kswapd works for the whole host only, never for one control group's limit.
    pub scanned: u64,
    /// `pgsteal_kswapd`, in pages.
    pub stolen: Option<u64>,
    /// The sum of `allocstall_*`: tasks that had to reclaim by themselves.
    pub stalls: Option<u64>,
    /// `workingset_refault_file`, in pages: read anew soon after they were dropped.
    pub refaulted: u64,
    /// A page, in bytes; 0: 4096.
    pub page: u64,
    /// `oom_kill`: every kill, the host's and those in a control group's limit.
    pub oom_kills: u64,
}

/// Swap that lies in memory itself (all zram devices together).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zram {
    /// What lies in it, as it was (`mm_stat`'s first number).
    pub stored: u64,
    /// What it takes of the memory (`mm_stat`'s third number, with zram's own losses).
    pub used: u64,
}

/// A control group's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Group {
    /// `memory.current`, or v1's `memory.usage_in_bytes`, without the file pages that it could drop (`inactive_file`).
    pub used: u64,
    /// `memory.max`, or v1's `memory.limit_in_bytes`.
    pub limit: u64,
}
