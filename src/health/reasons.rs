//! The registry of reasons: which status each stands for, how bad it is, when it enters and leaves, what it means.

mod bootstrap;
mod class;
mod config;
mod kernel;
mod kubelet;
mod memory;
mod node;
mod nodevigil;
mod origin;
mod runtime;
mod storage;

use std::{sync::LazyLock, time::Duration};

pub use class::{Cause, Remedy, Scope};
pub use runtime::CRI_PROBES;
pub use storage::LOOKS;

use super::{
    ConditionType, Status,
    timing::{Enter, Leave, Samples},
    witness::{OneOf, Witness},
};
use crate::rules;

/// Why a condition has its status: a stable, documented `CamelCase` word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "its table documents each, and a test walks it")]
pub enum Reason {
    KubeletIsHealthy,
    KubeletNotFound,
    KubeletStarting,
    KubeletStoppedByOperator,
    KubeletAwaitsDependency,
    KubeletStoppedWithDependency,
    KubeletProbeFailed,
    KubeletGone,
    KubeletCrashed,
    KubeletExitedClean,
    KubeletHung,
    KubeletHealthzDown,
    KubeletHealthzUnreachable,
    KubeletHealthzSilent,
    KubeletCrashLooping,
    KubeletStartLimitHit,
    KubeletWatchdogKilled,
    KubeletOOMKilled,
    KubeletUnkillable,
    KubeletFrozen,
    KubeletStartSlow,
    KubeletStopStuck,
    KubeletAwaitsJoin,
    KubeletStarved,
    KubeletAPIConnectionStalled,
    KubeletClientCertExpired,
    KubeletClientCertNotYetValid,
    KubeletClientCertExpiring,
    KubeletClientCertDoubtful,
    KubeletNothingBeside,
    KubeletConfigIsValid,
    KubeletConfigNotChecked,
    ContainerRuntimeIsHealthy,
    ContainerRuntimeSlow,
    ContainerRuntimeNotFound,
    ContainerRuntimeStarting,
    ContainerRuntimeStoppedByOperator,
    ContainerRuntimeProbeFailed,
    ContainerRuntimeDown,
    ContainerRuntimeOOMKilled,
    ContainerRuntimeHung,
    ContainerRuntimeSilent,
    ContainerRuntimeNotReady,
    ContainerRuntimeUnconfirmed,
    StorageIsHealthy,
    StorageProbeFailed,
    StorageNearlyFull,
    StorageInodesNearlyExhausted,
    StorageErrorsLogged,
    StorageFull,
    StorageInodesExhausted,
    StorageHung,
    StorageIOError,
    FilesystemReadOnly,
    KernelIsHealthy,
    KernelLogUnreadable,
    KernelTaskHung,
    KernelHungTaskDetectionOff,
    KernelStalled,
    KernelOops,
    KernelMemoryLost,
    KernelNetdeviceStuck,
    KernelDeadlocked,
    KernelLockedUp,
    KernelOopsRepeated,
    KernelHardwareFailing,
    KernelPidsNearlyExhausted,
    KernelPidsExhausted,
    KernelPodPidsNearlyExhausted,
    KernelFilesNearlyExhausted,
    KernelFilesExhausted,
    KernelConntrackNearlyFull,
    KernelConntrackFull,
    KernelClockUnsynchronised,
    MemoryIsHealthy,
    MemoryUnreadable,
    MemoryExhausted,
    MemoryThrashing,
    MemoryKilledContainerRuntime,
    MemoryKilledKubelet,
    MemoryIsEnough,
    MemoryOutlookUnknown,
    MemoryPodsRunOut,
    MemoryRunsOut,
    NodeIsBootstrapped,
    NodeBootstrapping,
    BootstrapStuckAtRuntime,
    BootstrapStuckAtKubelet,
    BootstrapStuckAtCredential,
    BootstrapStuckAtCloudController,
    BootstrapStuckAtNetwork,
    BootstrapStuckAtVolumes,
    BootstrapStuckAtReady,
    NodePaused,
    NodeInMaintenance,
    NodeBeingDeleted,
    NodeShuttingDown,
    NodeBeingUpgraded,
    NodeJustStarted,
    NodevigilStopped,
    NodevigilIsHealthy,
    NodevigilConfigRefused,
    NodevigilHelperAway,
    NodevigilBusLost,
    /// A rule of [`crate::rules`], by its index in [`crate::rules::all`]; its name in `CamelCase` is the reason's.
    ConfigRule(RuleIndex),
}

/// A rule of the registry that stands behind a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleIndex(u16);

/// How bad a reason is: of several findings of one condition the worst is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A check beside the condition's own finds nothing wrong. By itself that is no news, and it is never shown.
    Aside,
    /// All is well.
    Healthy,
    /// All is well, with a hint: the status stays `True`, and the hint becomes an Event.
    Warning,
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
            Self::Aside => "aside",
            Self::Healthy => "healthy",
            Self::Warning => "warning",
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
    /// Who must say so before it is published: one of each.
    pub witnesses: &'static [OneOf],
}

/// Probes of healthz that make a problem.
pub const PROBES: Samples = Samples {
    bad: 3,
    of: 3,
    what: "failed probes",
};
/// Looks at the kubelet's Lease, on suspicion, that make a problem: each five seconds after the last.
pub const LEASE_LOOKS: Samples = Samples {
    bad: 3,
    of: 3,
    what: "looks at the Lease that show the same old renewal",
};
/// How long a young kubelet may take until its healthz answers. (Field practice; healthz is served only once the runtime
/// answers, kubernetes/kubernetes#11215.)
pub const START_GRACE: Duration = Duration::from_mins(2);
/// A thread that has waited in the kernel for so long, uninterruptible, is stuck; and a process that lives so long after
/// SIGKILL is too. (A busy disk answers within seconds.)
pub const UNKILLABLE_AFTER: Duration = Duration::from_secs(10);
/// How long the last answer stands while the helper is away: a helper that is being upgraded is no news.
pub const AWAY_GRACE: Duration = Duration::from_mins(1);

/// A host that has thrashed for so long does not get out of it by itself.
pub const THRASHING_FOR: Duration = Duration::from_mins(1);

/// Every reason that nodevigil publishes, but for the rules, which have a registry of their own: a table a condition.
const TABLES: &[&[ReasonSpec]] = &[
    kubelet::TABLE,
    config::TABLE,
    runtime::TABLE,
    storage::TABLE,
    kernel::TABLE,
    memory::TABLE,
    bootstrap::TABLE,
    node::TABLE,
    nodevigil::TABLE,
];

/// Every reason that nodevigil publishes, but for the rules, which have a registry of their own.
pub fn reasons() -> impl Iterator<Item = &'static ReasonSpec> {
    TABLES.iter().copied().flatten()
}

/// What a rule's reason has in common with every other.
const RULE_TIMING: (Enter, Leave) = (Enter::WhenRead, Leave::HealthySpell);

type Badness = (Status, Severity);
const ASIDE: Badness = (Status::True, Severity::Aside);
const GOOD: Badness = (Status::True, Severity::Healthy);
const WARNING: Badness = (Status::True, Severity::Warning);
const UNSURE: Badness = (Status::Unknown, Severity::Unsure);
const DEGRADED: Badness = (Status::False, Severity::Degraded);
const FAILED: Badness = (Status::False, Severity::Failed);

/// Whose reasons a table has: one condition's, or any's.
#[derive(Clone, Copy)]
struct Of(Option<ConditionType>);

impl Of {
    const fn row(
        self,
        reason: Reason,
        name: &'static str,
        (status, severity): Badness,
        (enter, leave): (Enter, Leave),
        doc: &'static str,
    ) -> ReasonSpec {
        ReasonSpec {
            reason,
            name,
            condition: self.0,
            status,
            severity,
            enter,
            leave,
            doc,
            witnesses: &[],
        }
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
        (ConditionType::ContainerRuntimeHealthy, Status::True) => Reason::ContainerRuntimeIsHealthy,
        (ConditionType::ContainerRuntimeHealthy, Status::False) => Reason::ContainerRuntimeDown,
        (ConditionType::ContainerRuntimeHealthy, Status::Unknown) => {
            Reason::ContainerRuntimeProbeFailed
        }
        (ConditionType::NodeStorageHealthy, Status::True) => Reason::StorageIsHealthy,
        (ConditionType::NodeStorageHealthy, Status::False) => Reason::FilesystemReadOnly,
        (ConditionType::NodeStorageHealthy, Status::Unknown) => Reason::StorageProbeFailed,
        (ConditionType::NodeKernelHealthy, Status::True) => Reason::KernelIsHealthy,
        (ConditionType::NodeKernelHealthy, Status::False) => Reason::KernelLockedUp,
        (ConditionType::NodeKernelHealthy, Status::Unknown) => Reason::KernelLogUnreadable,
        (ConditionType::NodeMemoryHealthy, Status::True) => Reason::MemoryIsHealthy,
        (ConditionType::NodeMemoryHealthy, Status::False) => Reason::MemoryThrashing,
        (ConditionType::NodeMemoryHealthy, Status::Unknown) => Reason::MemoryUnreadable,
        (ConditionType::MemoryExhaustionImminent, Status::True) => Reason::MemoryIsEnough,
        (ConditionType::MemoryExhaustionImminent, Status::False) => Reason::MemoryRunsOut,
        (ConditionType::MemoryExhaustionImminent, Status::Unknown) => Reason::MemoryOutlookUnknown,
        (ConditionType::NodeBootstrapped, Status::True) => Reason::NodeIsBootstrapped,
        (ConditionType::NodeBootstrapped, Status::False) => Reason::BootstrapStuckAtReady,
        (ConditionType::NodeBootstrapped, Status::Unknown) => Reason::NodeBootstrapping,
        (ConditionType::NodevigilHealthy, Status::True) => Reason::NodevigilIsHealthy,
        // It is never False; a version that says so is another one, and is followed by this one's own finding.
        (ConditionType::NodevigilHealthy, _) => Reason::NodevigilHelperAway,
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
        // Sorted, because an idle agent asks this a dozen times a second, of tables that no cache still holds.
        static SORTED: LazyLock<Vec<&ReasonSpec>> = LazyLock::new(|| {
            let mut all: Vec<_> = reasons().collect();
            all.sort_unstable_by_key(|spec| spec.reason);
            all
        });
        let at = SORTED.binary_search_by_key(&self, |spec| spec.reason);
        SORTED.get(at.ok()?).copied()
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

    /// The status that its condition has on the Node.
    pub fn shown(self) -> Status {
        let status = self.status();
        self.condition().map_or(status, |kind| kind.shown(status))
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
        let listed = reasons().find(|spec| spec.name == name);
        listed.map(|spec| spec.reason).or_else(|| {
            let index = rules::reasons().iter().position(|rule| rule == name)?;
            Some(Self::ConfigRule(RuleIndex(u16::try_from(index).ok()?)))
        })
    }
}
