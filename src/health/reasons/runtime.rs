//! The reasons of `ContainerRuntimeHealthy`.

use super::{
    AWAY_GRACE, Badness, ConditionType, Enter, FAILED, GOOD, Leave, Reason, ReasonSpec, UNSURE,
    spec,
};

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::ContainerRuntimeIsHealthy,
        "ContainerRuntimeIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The container runtime lives and answers over CRI.",
    ),
    row(
        Reason::ContainerRuntimeProbeFailed,
        "ContainerRuntimeProbeFailed",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The container runtime could not be asked: the helper is away, or may not open its socket.",
    ),
    row(
        Reason::ContainerRuntimeDown,
        "ContainerRuntimeDown",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The container runtime's process is gone, and nobody had asked for that.",
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
        Some(ConditionType::ContainerRuntimeHealthy),
        reason,
        name,
        (badness, timing),
        doc,
    )
}
