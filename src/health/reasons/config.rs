//! The reasons of `KubeletConfigValid`; the rules, its other reasons, have a registry of their own.

use super::{
    AWAY_GRACE, Badness, ConditionType, Enter, GOOD, Leave, Reason, ReasonSpec, UNSURE, spec,
};

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::KubeletConfigIsValid,
        "KubeletConfigIsValid",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "No rule finds an error in what the kubelet got or will get at its next start; warnings do not count.",
    ),
    row(
        Reason::KubeletConfigNotChecked,
        "KubeletConfigNotChecked",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kubelet's configuration could not be checked: the helper is away, or there is no unit that runs a kubelet. At the agent's start it enters at once.",
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
        Some(ConditionType::KubeletConfigValid),
        reason,
        name,
        (badness, timing),
        doc,
    )
}
