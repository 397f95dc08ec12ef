//! The reasons of `KubeletConfigValid`; the rules, its other reasons, have a registry of their own.

use super::{AWAY_GRACE, ConditionType, Enter, GOOD, Leave, Of, Reason, ReasonSpec, UNSURE};

const OF: Of = Of(Some(ConditionType::KubeletConfigValid));

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::KubeletConfigIsValid,
        "KubeletConfigIsValid",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "No rule finds an error in what the kubelet got or will get at its next start; warnings do not count.",
    ),
    OF.row(
        Reason::KubeletConfigNotChecked,
        "KubeletConfigNotChecked",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kubelet's configuration could not be checked: the helper is away, or there is no unit that runs a kubelet. At the agent's start it enters at once.",
    ),
];
