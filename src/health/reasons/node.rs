//! The reasons of whoever asks for quiet, and of an agent that was stopped: any condition may have them.

use super::{Enter, Leave, Of, Reason, ReasonSpec, UNSURE};

pub(super) const TABLE: &[ReasonSpec] = &[
    row(
        Reason::NodePaused,
        "NodePaused",
        Leave::HealthySpell,
        "There is a problem, and `nodevigil pause` or the annotation `nodevigil.io/pause` on the Node asks for it not to be told as one.",
    ),
    row(
        Reason::NodeInMaintenance,
        "NodeInMaintenance",
        Leave::HealthySpell,
        "There is a problem, and somebody works on the Node: it has a sign of maintenance, such as the condition MaintenanceInProgress=True (docs/operate.md has them all).",
    ),
    row(
        Reason::NodeBeingDeleted,
        "NodeBeingDeleted",
        Leave::HealthySpell,
        "There is a problem, and the Node is being deleted, or a controller has marked it for that.",
    ),
    row(
        Reason::NodeShuttingDown,
        "NodeShuttingDown",
        Leave::HealthySpell,
        "There is a problem, and the host is going down.",
    ),
    row(
        Reason::NodeBeingUpgraded,
        "NodeBeingUpgraded",
        Leave::AtOnce,
        "There is a problem that may pass by itself, because a package manager is at work, and nothing was told before it. It holds five minutes at most.",
    ),
    row(
        Reason::NodeJustStarted,
        "NodeJustStarted",
        Leave::AtOnce,
        "There is a problem that may pass by itself, because the host or its Node has just started, and nothing was told before it. It holds two minutes at most.",
    ),
    row(
        Reason::NodevigilStopped,
        "NodevigilStopped",
        Leave::AtOnce,
        "There was a problem when nodevigil was stopped (`systemctl stop nodevigil`), and nobody looks any more whether it lasts. The message says what it was. Published by the agent as its last write, and replaced when it runs again. Not published at a restart, a kill, a crash of the agent, or when the host goes down.",
    ),
];

const fn row(reason: Reason, name: &'static str, leave: Leave, doc: &'static str) -> ReasonSpec {
    Of(None).row(reason, name, UNSURE, (Enter::AtOnce, leave), doc)
}
