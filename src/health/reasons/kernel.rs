//! The reasons of `NodeKernelHealthy`.

use super::{
    AWAY_GRACE, Badness, ConditionType, DEGRADED, Enter, FAILED, GOOD, Leave, Reason, ReasonSpec,
    UNSURE, WARNING, spec,
};
use crate::checks::limits::{FULL, NEAR};

/// What is nearly used up.
const NEARLY: (Enter, Leave) = (Enter::Sampled(NEAR), Leave::MinimumHold);
/// What is used up.
const USED_UP: (Enter, Leave) = (Enter::Sampled(FULL), Leave::HealthySpell);

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::KernelIsHealthy,
        "KernelIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The kernel reports nothing that would need another node.",
    ),
    row(
        Reason::KernelLogUnreadable,
        "KernelLogUnreadable",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kernel log cannot be read, so what the kernel reports is not known.",
    ),
    row(
        Reason::KernelOops,
        "KernelOops",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kernel has met a fault of its own (an oops or a BUG) and gone on.",
    ),
    row(
        Reason::PidsNearlyExhausted,
        "PidsNearlyExhausted",
        WARNING,
        NEARLY,
        "The host has nearly as many threads as kernel.pid_max or kernel.threads-max allows ([limits] nearly_exhausted_percent); at the limit nothing can be started, no probe and no shell.",
    ),
    row(
        Reason::PidsExhausted,
        "PidsExhausted",
        DEGRADED,
        USED_UP,
        "The host has as many threads as kernel.pid_max or kernel.threads-max allows: no process or thread can be started, in the host or in a pod.",
    ),
    row(
        Reason::PodPidsNearlyExhausted,
        "PodPidsNearlyExhausted",
        WARNING,
        NEARLY,
        "All pods together have nearly as many threads as their cgroup may have. The host itself is well, and the kubelet evicts by pid.available, so this stays a warning.",
    ),
    row(
        Reason::OpenFilesNearlyExhausted,
        "OpenFilesNearlyExhausted",
        WARNING,
        NEARLY,
        "The host has nearly as many open files as fs.file-max allows.",
    ),
    row(
        Reason::OpenFilesExhausted,
        "OpenFilesExhausted",
        DEGRADED,
        USED_UP,
        "The host has as many open files as fs.file-max allows: whoever is not root can open no file and no socket.",
    ),
    row(
        Reason::ConntrackNearlyFull,
        "ConntrackNearlyFull",
        WARNING,
        NEARLY,
        "The kernel tracks nearly as many connections as net.netfilter.nf_conntrack_max allows.",
    ),
    row(
        Reason::ConntrackFull,
        "ConntrackFull",
        DEGRADED,
        USED_UP,
        "The kernel tracks as many connections as net.netfilter.nf_conntrack_max allows: packets of new connections are dropped.",
    ),
    row(
        Reason::ClockUnsynchronised,
        "ClockUnsynchronised",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The kernel says (STA_UNSYNC) that nothing has synchronised its clock for [clock] unsynchronised_secs; leases, certificates and tokens are judged by it.",
    ),
];

const fn row(
    reason: Reason,
    name: &'static str,
    badness: Badness,
    timing: (Enter, Leave),
    doc: &'static str,
) -> ReasonSpec {
    spec(
        Some(ConditionType::NodeKernelHealthy),
        reason,
        name,
        (badness, timing),
        doc,
    )
}
