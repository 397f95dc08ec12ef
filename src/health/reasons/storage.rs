//! The reasons of `NodeStorageHealthy`.

use super::{
    AWAY_GRACE, Badness, ConditionType, Enter, FAILED, GOOD, Leave, Reason, ReasonSpec, UNSURE,
    spec,
};

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::StorageIsHealthy,
        "StorageIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The file systems of the kubelet and the container runtime can be written to.",
    ),
    row(
        Reason::StorageProbeFailed,
        "StorageProbeFailed",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The file systems could not be looked at: the helper is away, or may not write where it should.",
    ),
    row(
        Reason::FilesystemReadOnly,
        "FilesystemReadOnly",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "A file system that the kubelet or the container runtime writes to has become read-only.",
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
        Some(ConditionType::NodeStorageHealthy),
        reason,
        name,
        (badness, timing),
        doc,
    )
}
