//! The reasons of `NodeKernelHealthy`.

use super::{
    AWAY_GRACE, ConditionType, DEGRADED, Enter, GOOD, Leave, Of, OneOf, Reason, ReasonSpec, UNSURE,
    WARNING, Witness as W,
};
use crate::checks::limits::{FULL, NEAR};

/// What is nearly used up.
const NEARLY: (Enter, Leave) = (Enter::Sampled(NEAR), Leave::MinimumHold);
/// What is used up.
const USED_UP: (Enter, Leave) = (Enter::Sampled(FULL), Leave::HealthySpell);
/// What is used up, where that alone is no fault of the node.
const AT_THE_WALL: (Enter, Leave) = (Enter::Sampled(FULL), Leave::MinimumHold);

const OF: Of = Of(Some(ConditionType::NodeKernelHealthy));

/// A line alone may be forged or old.
const LOGGED: &[OneOf] = &[&[W::KernelLog], &[W::KernelCounter]];

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::KernelIsHealthy,
        "KernelIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The kernel reports nothing that would need another node.",
    ),
    OF.row(
        Reason::KernelLogUnreadable,
        "KernelLogUnreadable",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kernel log cannot be read, so what the kernel reports is not known.",
    ),
    OF.row(
        Reason::KernelTaskHung,
        "KernelTaskHung",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "A task has waited in the kernel for minutes and cannot be killed: a disk or a network file system that does not answer, or a lock. Tasks of pods, however many, are no more than this. Over when it waits no longer. The kernel's line is `INFO: task … blocked for more than … seconds`; node-problem-detector calls it TaskHung.",
    ),
    OF.row(
        Reason::KernelHungTaskDetectionOff,
        "KernelHungTaskDetectionOff",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "The kernel logs no hung task: kernel.hung_task_timeout_secs is 0, or kernel.hung_task_warnings is used up. The agent looks at the threads of the kubelet and the container runtime itself meanwhile, twice a minute. Over when the settings allow it again.",
    ),
    OF.row(
        Reason::KernelStalled,
        "KernelStalled",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "A CPU stood still in the kernel for many seconds (soft lockup, RCU stall). Once is often the host's host, and so is any number of them that no counter and no taint of the kernel's confirms; over after `quiet_secs` without another.",
    ),
    OF.row(
        Reason::KernelOops,
        "KernelOops",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "The kernel has met a fault of its own and gone on without the task that met it; locks may be held for ever. It lasts until the reboot, as the kernel's taint does.",
    ),
    OF.row(
        Reason::KernelMemoryLost,
        "KernelMemoryLost",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "Memory has failed, and the kernel has given up what was in it; the rest of the host goes on. Or the kernel's log reports hardware errors that were not corrected, and none of its counters confirms them. It lasts until the reboot where the kernel counts what it has given up.",
    ),
    OF.row(
        Reason::KernelNetdeviceStuck,
        "KernelNetdeviceStuck",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "The kernel cannot take a network device away that something still holds (`unregister_netdevice: waiting for …`); network namespaces may wait for it. Over after `quiet_secs` without another line.",
    ),
    OF.row(
        Reason::KernelDeadlocked,
        "KernelDeadlocked",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet, the container runtime or PID 1 has waited in the kernel for longer than `hung_for_secs` and cannot be killed. Witnesses: the kernel's line of a hung task (or, where it logs none, the thread's state D), and the thread's counts of context switches, the same at all looks since. Its name is exactly that program's, and its cgroup its unit's own, never a pod's. Over when it waits no longer. node-problem-detector has it as KernelDeadlock, for tasks named docker.",
    ).seen_by(&[&[W::KernelLog, W::ProcessState], &[W::ContextSwitches]]),
    OF.row(
        Reason::KernelLockedUp,
        "KernelLockedUp",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "CPUs stand still in the kernel again and again: so many soft lockups and RCU stalls as `stalls` says within `stall_window_secs`, or one hard lockup within `quiet_secs`. Witnesses: the kernel's lines, and for each kind a taint or counter of this boot: the taint L or softlockup_count, rcu_stall_count, hardlockup_count (before Linux 6.16 the taint L). Without it: KernelStalled.",
    ).seen_by(LOGGED),
    OF.row(
        Reason::KernelOopsRepeated,
        "KernelOopsRepeated",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kernel meets faults of its own again and again: as many as `oopses` says within `oops_window_secs`. Witnesses: the kernel's lines, and its taint D or oops_count of this boot; where it counts them, it must have counted as many. Without it: KernelOops.",
    ).seen_by(LOGGED),
    OF.row(
        Reason::KernelHardwareFailing,
        "KernelHardwareFailing",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The hardware reports errors that it could not correct: as many as `uncorrected_errors` says within `uncorrected_window_secs`, or a fatal one (machine checks, EDAC UE, UEFI CPER). Witnesses: the kernel's lines, and the taint M, HardwareCorrupted in /proc/meminfo or EDAC's ue_count of this boot. Without it: KernelMemoryLost. node-problem-detector has the last as CperHardwareErrorFatal.",
    ).seen_by(LOGGED),
    OF.row(
        Reason::KernelPidsNearlyExhausted,
        "KernelPidsNearlyExhausted",
        WARNING,
        NEARLY,
        "The host has nearly as many threads as kernel.pid_max or kernel.threads-max allows ([limits] nearly_exhausted_percent); at the limit nothing can be started, no probe and no shell.",
    ),
    OF.row(
        Reason::KernelPidsExhausted,
        "KernelPidsExhausted",
        DEGRADED,
        USED_UP,
        "The host has as many threads as kernel.pid_max or kernel.threads-max allows: no process or thread can be started, in the host or in a pod. Witnesses: the kernel's count, and a fork that the helper tried and that was refused (EAGAIN) while its own cgroup and limits have room. Without it, KernelPidsNearlyExhausted. Never False under KernelReady, by which Karpenter replaces nodes: what fills one node fills the next.",
    ).seen_by(&[&[W::KernelCounter], &[W::HelperAttempt]]),
    OF.row(
        Reason::KernelPodPidsNearlyExhausted,
        "KernelPodPidsNearlyExhausted",
        WARNING,
        NEARLY,
        "All pods together have nearly as many threads as their cgroup may have. The host itself is well, and the kubelet evicts by pid.available, so this stays a warning.",
    ),
    OF.row(
        Reason::KernelFilesNearlyExhausted,
        "KernelFilesNearlyExhausted",
        WARNING,
        NEARLY,
        "The host has nearly as many open files as fs.file-max allows.",
    ),
    OF.row(
        Reason::KernelFilesExhausted,
        "KernelFilesExhausted",
        WARNING,
        AT_THE_WALL,
        "The host has as many open files as fs.file-max allows: whoever is not root can open no file and no socket. The kubelet and the runtime are root, so this stays a warning.",
    ),
    OF.row(
        Reason::KernelConntrackNearlyFull,
        "KernelConntrackNearlyFull",
        WARNING,
        NEARLY,
        "The kernel tracks nearly as many connections as net.netfilter.nf_conntrack_max allows.",
    ),
    OF.row(
        Reason::KernelConntrackFull,
        "KernelConntrackFull",
        WARNING,
        AT_THE_WALL,
        "The kernel tracks as many connections as net.netfilter.nf_conntrack_max allows: packets of new connections are dropped, unless the kernel drops idle ones early. It comes of load, which another node would inherit, so this stays a warning.",
    ),
    OF.row(
        Reason::KernelClockUnsynchronised,
        "KernelClockUnsynchronised",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The kernel says (STA_UNSYNC) that nothing has synchronised its clock for [clock] unsynchronised_secs; leases, certificates and tokens are judged by it.",
    ),
];
