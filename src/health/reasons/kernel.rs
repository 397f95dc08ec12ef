//! The reasons of `NodeKernelHealthy`.

use super::{
    AWAY_GRACE, Badness, ConditionType, Enter, FAILED, GOOD, Leave, Reason, ReasonSpec, UNSURE,
    spec,
};

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
