//! The reasons of `NodeMemoryHealthy` and of the hint `MemoryExhaustionImminent`.

use super::{
    AWAY_GRACE, ConditionType, DEGRADED, Enter, FAILED, GOOD, Leave, Of, Reason, ReasonSpec,
    THRASHING_FOR, UNSURE, WARNING, Witness as W,
};

const OF: Of = Of(Some(ConditionType::NodeMemoryHealthy));
const HINT: Of = Of(Some(ConditionType::MemoryExhaustionImminent));

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::MemoryIsHealthy,
        "MemoryIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The host does not thrash, and the kernel has killed neither the kubelet nor the container runtime for memory.",
    ),
    OF.row(
        Reason::MemoryUnreadable,
        "MemoryUnreadable",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kernel's tables of memory cannot be read.",
    ),
    OF.row(
        Reason::MemoryExhausted,
        "MemoryExhausted",
        WARNING,
        (Enter::AtOnce, Leave::MinimumHold),
        "The host has no memory left: the kernel has killed a process for that, or the host has begun to thrash.",
    ),
    OF.row(
        Reason::MemoryThrashing,
        "MemoryThrashing",
        DEGRADED,
        (Enter::After(THRASHING_FOR), Leave::HealthySpell),
        "The host has thrashed for that long: next to nothing is available, what is dropped from memory is read anew at once, or the kubelet or the runtime waits for memory for most of the time. The kernel's counters of reclaim say so, and what is available or how long tasks wait for memory (PSI). Nobody was killed, and nothing gets on ([memory] thrashing_percent, refault_percent).",
    ).seen_by(&[&[W::KernelCounter], &[W::MemoryTables]]),
    OF.row(
        Reason::MemoryKilledContainerRuntime,
        "MemoryKilledContainerRuntime",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kernel has killed the container runtime for memory: the host's, or at the limit of its own group. Over a minute after the last such kill, once memory is calm.",
    ).seen_by(&[&[W::OomRecord]]),
    OF.row(
        Reason::MemoryKilledKubelet,
        "MemoryKilledKubelet",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kernel has killed the kubelet for memory: the host's, or at the limit of its own group (system-reserved, MemoryMax=). Over a minute after the last such kill, once memory is calm.",
    ).seen_by(&[&[W::OomRecord]]),
    HINT.row(
        Reason::MemoryIsEnough,
        "MemoryIsEnough",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "Nothing says that the host's memory is about to be exhausted.",
    ),
    HINT.row(
        Reason::MemoryOutlookUnknown,
        "MemoryOutlookUnknown",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kernel's tables of memory cannot be read, so nothing is forecast.",
    ),
    HINT.row(
        Reason::MemoryPodsRunOut,
        "MemoryPodsRunOut",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "All pods together are about to reach the limit of their control group: the kernel will kill in one of them, though the host has memory.",
    ),
    HINT.row(
        Reason::MemoryRunsOut,
        "MemoryRunsOut",
        DEGRADED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The host's memory will be exhausted within seconds, or is: the message says how much is available, how fast it falls, how long it lasts and who grows fastest. A hint to schedulers and drainers, and no reason to replace the node.",
    ),
];
