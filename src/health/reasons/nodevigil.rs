//! The reasons of `NodevigilHealthy`. None is `False`: a failure of ours must never let anybody delete a machine.

use super::{AWAY_GRACE, ConditionType, Enter, GOOD, Leave, Of, Reason, ReasonSpec, UNSURE};

const OF: Of = Of(Some(ConditionType::NodevigilHealthy));

pub(super) const TABLE: &[ReasonSpec] = &[
    OF.row(
        Reason::NodevigilIsHealthy,
        "NodevigilIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The configuration is in use as written, and the helper answers.",
    ),
    OF.row(
        Reason::NodevigilConfigRefused,
        "NodevigilConfigRefused",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The configuration cannot be used, and nodevigil runs with the last one that could. The message has file, line and key.",
    ),
    OF.row(
        Reason::NodevigilHelperAway,
        "NodevigilHelperAway",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The privileged helper (nodevigil-helper.service) has not answered for a minute: what only root may read is not judged.",
    ),
    OF.row(
        Reason::NodevigilBusLost,
        "NodevigilBusLost",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "systemd has not been reachable over the system bus for a minute: why a process ended, and who stopped it, is not known.",
    ),
];
