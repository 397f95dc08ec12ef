//! The registry of reasons: which status each stands for, how bad it is, when it enters and leaves, what it means.

use std::time::Duration;

use super::{
    ConditionType, Status,
    timing::{Enter, Leave, Samples},
};
use crate::rules;

/// Why a condition has its status: a stable, documented `CamelCase` word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "REASONS documents each, and a test walks it")]
pub enum Reason {
    KubeletIsHealthy,
    KubeletNotFound,
    KubeletStarting,
    KubeletStoppedByOperator,
    KubeletProbeFailed,
    KubeletGone,
    KubeletCrashed,
    KubeletExitedClean,
    KubeletHung,
    KubeletHealthzDown,
    KubeletConfigIsValid,
    KubeletConfigNotChecked,
    NodePaused,
    NodeInMaintenance,
    NodeBeingDeleted,
    NodeShuttingDown,
    NodeBeingUpgraded,
    NodeJustStarted,
    /// A rule of [`crate::rules`], by its index in [`crate::rules::all`]; its name in `CamelCase` is the reason's.
    ConfigRule(RuleIndex),
}

/// A rule of the registry that stands behind a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleIndex(u16);

/// How bad a reason is: of several findings of one condition the worst is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// All is well.
    Healthy,
    /// It is not known, or it is somebody's will.
    Unsure,
    /// It runs and does not do its work.
    Degraded,
    /// It does not run, or will not.
    Failed,
}

impl Severity {
    /// The word in the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unsure => "unsure",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// What the registry knows of a reason.
#[derive(Debug, Clone, Copy)]
pub struct ReasonSpec {
    /// The reason.
    pub reason: Reason,
    /// Its name in the condition; a part of the interface, never changed.
    pub name: &'static str,
    /// The condition that it belongs to; `None`: any, because it is about the Node as a whole.
    pub condition: Option<ConditionType>,
    /// The status that it stands for.
    pub status: Status,
    /// How bad it is.
    pub severity: Severity,
    /// When it enters.
    pub enter: Enter,
    /// When it leaves.
    pub leave: Leave,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// Probes of healthz that make a problem.
pub const PROBES: Samples = Samples {
    bad: 3,
    of: 3,
    what: "failed probes",
};
/// How long a young kubelet may take until its healthz answers. (Field practice; healthz is served only once the runtime
/// answers, kubernetes/kubernetes#11215.)
pub const START_GRACE: Duration = Duration::from_mins(2);
/// How long the last answer stands while the helper is away: a helper that is being upgraded is no news.
pub const AWAY_GRACE: Duration = Duration::from_mins(1);

/// Every reason that nodevigil publishes, but for the rules, which have a registry of their own.
pub const REASONS: &[ReasonSpec] = &[
    kubelet(
        Reason::KubeletIsHealthy,
        "KubeletIsHealthy",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process lives and its healthz answers 200.",
    ),
    kubelet(
        Reason::KubeletNotFound,
        "KubeletNotFound",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "There is no kubelet to watch: its unit is not installed or was never started, or more than one process could be it.",
    ),
    kubelet(
        Reason::KubeletStarting,
        "KubeletStarting",
        UNSURE,
        (Enter::AtOnce, Leave::Within(START_GRACE)),
        "The kubelet's process is young and its healthz has not answered yet.",
    ),
    kubelet(
        Reason::KubeletStoppedByOperator,
        "KubeletStoppedByOperator",
        UNSURE,
        (Enter::AtOnce, Leave::AtOnce),
        "The kubelet's process is gone and systemd had a stop job for its unit (systemctl stop, a shutdown): that is no fault.",
    ),
    kubelet(
        Reason::KubeletProbeFailed,
        "KubeletProbeFailed",
        UNSURE,
        (Enter::Sampled(PROBES), Leave::MinimumHold),
        "The kubelet's process lives, but its healthz could not be asked: the probe itself failed, or its address is not known.",
    ),
    kubelet(
        Reason::KubeletGone,
        "KubeletGone",
        FAILED,
        (Enter::AtOnce, Leave::Refined),
        "The kubelet's process is gone, nobody had asked for that, and systemd has not said how it ended.",
    ),
    kubelet(
        Reason::KubeletCrashed,
        "KubeletCrashed",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet's process ended by a signal or with an exit code other than 0, and nobody had asked for that.",
    ),
    kubelet(
        Reason::KubeletExitedClean,
        "KubeletExitedClean",
        FAILED,
        (Enter::AtOnce, Leave::HealthySpell),
        "The kubelet exited with code 0 and nobody had asked for that; with Restart=on-failure it stays away for ever.",
    ),
    kubelet(
        Reason::KubeletHung,
        "KubeletHung",
        DEGRADED,
        (Enter::Sampled(PROBES), Leave::HealthySpell),
        "The kubelet's process lives, but probes of its healthz time out.",
    ),
    kubelet(
        Reason::KubeletHealthzDown,
        "KubeletHealthzDown",
        DEGRADED,
        (Enter::Sampled(PROBES), Leave::HealthySpell),
        "The kubelet's process lives, but its healthz refuses probes or answers them with an error.",
    ),
    config(
        Reason::KubeletConfigIsValid,
        "KubeletConfigIsValid",
        GOOD,
        (Enter::AtOnce, Leave::AtOnce),
        "No rule finds an error in what the kubelet got or will get at its next start; warnings do not count.",
    ),
    config(
        Reason::KubeletConfigNotChecked,
        "KubeletConfigNotChecked",
        UNSURE,
        (Enter::After(AWAY_GRACE), Leave::MinimumHold),
        "The kubelet's configuration could not be checked: the helper is away, or there is no unit that runs a kubelet. At the agent's start it enters at once.",
    ),
    node(
        Reason::NodePaused,
        "NodePaused",
        Leave::HealthySpell,
        "There is a problem, and `nodevigil pause` or the annotation `nodevigil.io/pause` on the Node asks for it not to be told as one.",
    ),
    node(
        Reason::NodeInMaintenance,
        "NodeInMaintenance",
        Leave::HealthySpell,
        "There is a problem, and the Node has the condition MaintenanceInProgress=True.",
    ),
    node(
        Reason::NodeBeingDeleted,
        "NodeBeingDeleted",
        Leave::HealthySpell,
        "There is a problem, and the Node is being deleted, or a controller has marked it for that.",
    ),
    node(
        Reason::NodeShuttingDown,
        "NodeShuttingDown",
        Leave::HealthySpell,
        "There is a problem, and the host is going down.",
    ),
    node(
        Reason::NodeBeingUpgraded,
        "NodeBeingUpgraded",
        Leave::AtOnce,
        "There is a problem that may pass by itself, because a package manager is at work, and nothing was told before it. It holds five minutes at most.",
    ),
    node(
        Reason::NodeJustStarted,
        "NodeJustStarted",
        Leave::AtOnce,
        "There is a problem that may pass by itself, because the host or its Node has just started, and nothing was told before it. It holds two minutes at most.",
    ),
];

/// What a rule's reason has in common with every other.
const RULE_TIMING: (Enter, Leave) = (Enter::WhenRead, Leave::HealthySpell);

type Badness = (Status, Severity);
const GOOD: Badness = (Status::True, Severity::Healthy);
const UNSURE: Badness = (Status::Unknown, Severity::Unsure);
const DEGRADED: Badness = (Status::False, Severity::Degraded);
const FAILED: Badness = (Status::False, Severity::Failed);

const fn kubelet(
    reason: Reason,
    name: &'static str,
    badness: Badness,
    timing: (Enter, Leave),
    doc: &'static str,
) -> ReasonSpec {
    let condition = Some(ConditionType::KubeletHealthy);
    spec(condition, reason, name, (badness, timing), doc)
}

const fn config(
    reason: Reason,
    name: &'static str,
    badness: Badness,
    timing: (Enter, Leave),
    doc: &'static str,
) -> ReasonSpec {
    let condition = Some(ConditionType::KubeletConfigValid);
    spec(condition, reason, name, (badness, timing), doc)
}

/// A reason of somebody who asks for quiet: every condition may have it.
const fn node(reason: Reason, name: &'static str, leave: Leave, doc: &'static str) -> ReasonSpec {
    spec(None, reason, name, (UNSURE, (Enter::AtOnce, leave)), doc)
}

const fn spec(
    condition: Option<ConditionType>,
    reason: Reason,
    name: &'static str,
    ((status, severity), (enter, leave)): (Badness, (Enter, Leave)),
    doc: &'static str,
) -> ReasonSpec {
    ReasonSpec {
        reason,
        name,
        condition,
        status,
        severity,
        enter,
        leave,
        doc,
    }
}

/// A stand-in for a reason that this version does not know.
pub(super) fn kin(kind: ConditionType, status: Status) -> Reason {
    match (kind, status) {
        (ConditionType::KubeletHealthy, Status::True) => Reason::KubeletIsHealthy,
        (ConditionType::KubeletHealthy, Status::False) => Reason::KubeletGone,
        (ConditionType::KubeletHealthy, Status::Unknown) => Reason::KubeletNotFound,
        (ConditionType::KubeletConfigValid, Status::True) => Reason::KubeletConfigIsValid,
        (ConditionType::KubeletConfigValid, Status::False) => Reason::ConfigRule(RuleIndex(0)),
        (ConditionType::KubeletConfigValid, Status::Unknown) => Reason::KubeletConfigNotChecked,
    }
}

impl Reason {
    /// The reason of the rule with that id (`SD001`).
    pub fn of_rule(id: &str) -> Option<Self> {
        let index = rules::all().position(|rule| rule.id == id)?;
        Some(Self::ConfigRule(RuleIndex(u16::try_from(index).ok()?)))
    }

    /// The registry's row; `None` for a rule, which has its own.
    pub fn spec(self) -> Option<&'static ReasonSpec> {
        REASONS.iter().find(|spec| spec.reason == self)
    }

    /// The word in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigRule(RuleIndex(index)) => rules::reasons()
                .get(usize::from(index))
                .map_or("KubeletConfigInvalid", String::as_str),
            _ => self.spec().map_or("", |spec| spec.name),
        }
    }

    /// The status that the reason stands for.
    pub fn status(self) -> Status {
        self.spec().map_or(Status::False, |spec| spec.status)
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::ConfigRule(RuleIndex(index)) => {
                // The rule's own words: `fatal; error where …`.
                let rule = rules::all().nth(usize::from(index));
                if rule.is_some_and(|rule| rule.severity.starts_with("fatal")) {
                    Severity::Failed
                } else {
                    Severity::Degraded
                }
            }
            _ => self.spec().map_or(Severity::Degraded, |spec| spec.severity),
        }
    }

    /// When it enters.
    pub fn enter(self) -> Enter {
        self.spec().map_or(RULE_TIMING.0, |spec| spec.enter)
    }

    /// When it leaves.
    pub fn leave(self) -> Leave {
        self.spec().map_or(RULE_TIMING.1, |spec| spec.leave)
    }

    /// The condition that it belongs to; `None`: any.
    pub fn condition(self) -> Option<ConditionType> {
        let rules = Some(ConditionType::KubeletConfigValid);
        self.spec().map_or(rules, |spec| spec.condition)
    }

    /// Whether `kind` may have it.
    pub fn belongs_to(self, kind: ConditionType) -> bool {
        self.condition().is_none_or(|condition| condition == kind)
    }

    /// The reason of that name, if this version knows it.
    pub fn parse(name: &str) -> Option<Self> {
        let listed = REASONS.iter().find(|spec| spec.name == name);
        listed.map(|spec| spec.reason).or_else(|| {
            let index = rules::reasons().iter().position(|rule| rule == name)?;
            Some(Self::ConfigRule(RuleIndex(u16::try_from(index).ok()?)))
        })
    }
}
