//! The reasons of `NodeStorageHealthy`.

use super::{
    AWAY_GRACE, ConditionType, DEGRADED, Enter, FAILED, GOOD, Leave, Of, OneOf, Reason, ReasonSpec,
    Samples, UNSURE, WARNING, Witness as W,
};

/// Looks at a file system that make a problem.
pub const LOOKS: Samples = Samples {
    bad: 3,
    of: 3,
    what: "looks at the file system",
};

const OF: Of = Of(Some(ConditionType::NodeStorageHealthy));

/// What is tried fails.
const TRIED: &[OneOf] = &[&[W::HelperAttempt]];

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::StorageIsHealthy,
        "StorageIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The file systems of the kubelet and the container runtime can be written to.",
    ),
    OF.row(
        Reason::StorageProbeFailed,
        "StorageProbeFailed",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The file systems could not be looked at: the helper is away, or may not open them.",
    ),
    OF.row(
        Reason::StorageNearlyFull,
        "StorageNearlyFull",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "A file system has less room left than [storage] free_percent. A hint: before that the kubelet sets DiskPressure and evicts pods by its own thresholds.",
    ),
    OF.row(
        Reason::StorageInodesNearlyExhausted,
        "StorageInodesNearlyExhausted",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "A file system has fewer inodes left than [storage] free_inodes_percent. A hint, as StorageNearlyFull is one.",
    ),
    OF.row(
        Reason::StorageErrorsLogged,
        "StorageErrorsLogged",
        WARNING,
        (Enter::AtOnce, Leave::AtOnce),
        "The kernel's log names an error of a disk that carries one of the file systems, in the last ten minutes, and they can still be written to.",
    ),
    OF.row(
        Reason::StorageFull,
        "StorageFull",
        DEGRADED,
        (Enter::Sampled(LOOKS), Leave::HealthySpell),
        "A write to a file system of the kubelet or the container runtime fails because there is no room (ENOSPC, EDQUOT).",
    ).seen_by(TRIED),
    OF.row(
        Reason::StorageInodesExhausted,
        "StorageInodesExhausted",
        DEGRADED,
        (Enter::Sampled(LOOKS), Leave::HealthySpell),
        "No file can be made on a file system of the kubelet or the container runtime, because it has no inodes left.",
    ).seen_by(TRIED),
    OF.row(
        Reason::StorageHung,
        "StorageHung",
        DEGRADED,
        (Enter::Sampled(LOOKS), Leave::HealthySpell),
        "A write to a file system of the kubelet or the container runtime does not come back within [storage] write_deadline_secs.",
    ).seen_by(TRIED),
    OF.row(
        Reason::StorageIOError,
        "StorageIOError",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "A write to a file system of the kubelet or the container runtime, or reading it back, fails with an I/O error.",
    ).seen_by(TRIED),
    OF.row(
        Reason::FilesystemReadOnly,
        "FilesystemReadOnly",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "A file system that the kubelet or the container runtime writes to has become read-only: the kernel does that after an error. Restarting the kubelet makes it worse: it deletes running pods (kubernetes/kubernetes#94305).",
    ).seen_by(TRIED),
];
