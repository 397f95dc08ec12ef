//! The registry of reasons: which status each stands for, when it enters and leaves, what it means.

use super::{ConditionType, Status};
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
    /// A rule of [`crate::rules`], by its index in [`crate::rules::all`]; its name in `CamelCase` is the reason's.
    ConfigRule(RuleIndex),
}

/// A rule of the registry that stands behind a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleIndex(u16);

/// What the registry knows of a reason.
#[derive(Debug, Clone, Copy)]
pub struct ReasonSpec {
    /// The reason.
    pub reason: Reason,
    /// Its name in the condition; a part of the interface, never changed.
    pub name: &'static str,
    /// The condition that it belongs to.
    pub condition: ConditionType,
    /// The status that it stands for.
    pub status: Status,
    /// When it enters and when it leaves.
    pub timing: &'static str,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

const HEALTHY_SPELL: &str = "leaves after `[kubelet] healthy_for_secs` of health";

/// Every reason that nodevigil publishes.
pub const REASONS: &[ReasonSpec] = &[
    kubelet(
        Reason::KubeletIsHealthy,
        "KubeletIsHealthy",
        Status::True,
        "enters at once, or after the healthy spell that ends a problem",
        "The kubelet's process lives and its healthz answers 200.",
    ),
    kubelet(
        Reason::KubeletNotFound,
        "KubeletNotFound",
        Status::Unknown,
        "enters and leaves at once",
        "There is no kubelet to watch: its unit is not installed or was never started, or more than one process could be it.",
    ),
    kubelet(
        Reason::KubeletStarting,
        "KubeletStarting",
        Status::Unknown,
        "enters at once; leaves at the first answer of healthz, or for a problem after 120 s",
        "The kubelet's process is young and its healthz has not answered yet.",
    ),
    kubelet(
        Reason::KubeletStoppedByOperator,
        "KubeletStoppedByOperator",
        Status::Unknown,
        "enters when the process is gone and systemd had a stop job for its unit",
        "Somebody stopped the kubelet's unit (systemctl stop, a shutdown): that is no fault.",
    ),
    kubelet(
        Reason::KubeletProbeFailed,
        "KubeletProbeFailed",
        Status::Unknown,
        "enters after 3 probes in a row that could not be made; leaves at the first answer",
        "The kubelet's process lives, but its healthz could not be asked: the probe itself failed, or its address is not known.",
    ),
    kubelet(
        Reason::KubeletGone,
        "KubeletGone",
        Status::False,
        HEALTHY_SPELL,
        "The kubelet's process is gone, nobody had asked for that, and systemd has not said how it ended.",
    ),
    kubelet(
        Reason::KubeletCrashed,
        "KubeletCrashed",
        Status::False,
        HEALTHY_SPELL,
        "The kubelet's process ended by a signal or with an exit code other than 0, and nobody had asked for that.",
    ),
    kubelet(
        Reason::KubeletExitedClean,
        "KubeletExitedClean",
        Status::False,
        HEALTHY_SPELL,
        "The kubelet exited with code 0 and nobody had asked for that; with Restart=on-failure it stays away for ever.",
    ),
    kubelet(
        Reason::KubeletHung,
        "KubeletHung",
        Status::False,
        HEALTHY_SPELL,
        "The kubelet's process lives, but 3 probes of its healthz in a row timed out.",
    ),
    kubelet(
        Reason::KubeletHealthzDown,
        "KubeletHealthzDown",
        Status::False,
        HEALTHY_SPELL,
        "The kubelet's process lives, but its healthz refused 3 probes in a row or answered them with an error.",
    ),
    config(
        Reason::KubeletConfigIsValid,
        "KubeletConfigIsValid",
        Status::True,
        "enters at once, or after the healthy spell that ends a problem",
        "No rule finds an error in what the kubelet got or will get at its next start; warnings do not count.",
    ),
    config(
        Reason::KubeletConfigNotChecked,
        "KubeletConfigNotChecked",
        Status::Unknown,
        "enters at once; leaves when the helper has answered",
        "The kubelet's configuration could not be checked: the helper is away, or there is no unit that runs a kubelet.",
    ),
];

const fn spec(
    condition: ConditionType,
    reason: Reason,
    name: &'static str,
    (status, timing, doc): (Status, &'static str, &'static str),
) -> ReasonSpec {
    ReasonSpec {
        reason,
        name,
        condition,
        status,
        timing,
        doc,
    }
}

const fn config(
    reason: Reason,
    name: &'static str,
    status: Status,
    timing: &'static str,
    doc: &'static str,
) -> ReasonSpec {
    spec(
        ConditionType::KubeletConfigValid,
        reason,
        name,
        (status, timing, doc),
    )
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

const fn kubelet(
    reason: Reason,
    name: &'static str,
    status: Status,
    timing: &'static str,
    doc: &'static str,
) -> ReasonSpec {
    spec(
        ConditionType::KubeletHealthy,
        reason,
        name,
        (status, timing, doc),
    )
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

    /// The condition that the reason belongs to.
    pub fn condition(self) -> ConditionType {
        self.spec()
            .map_or(ConditionType::KubeletConfigValid, |spec| spec.condition)
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
