//! Node conditions: their types, the table of reasons, and the engine that computes the conditions from the monitors' reports.
//!
//! Nothing here does I/O or reads a clock; the time is handed in. Uses no other module.

pub mod custom;
pub mod engine;
pub mod profile;
mod reasons;
pub mod suppression;
mod uptime;

use serde::{Deserialize, Serialize};

use custom::CustomType;
pub use profile::Published;
pub use reasons::Reason;
pub use suppression::Suppression;
pub use uptime::Uptime;

/// One row for each of nodevigil's own types: its name on the Node, and the end of its taint's key. Pods tolerate a taint by its key, so that
/// no key ever changes.
macro_rules! condition_types {
    ($($name:ident: $taint:literal;)*) => {
        /// The condition types that nodevigil owns: its own, and those of the custom checks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ConditionType {
            $($name,)*
            #[serde(skip)]
            Custom(CustomType),
        }

        impl ConditionType {
            /// nodevigil's own.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The type's name on the Node.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Custom(custom) => &custom.definition().name,
                }
            }

            /// The end of its taint's key.
            pub fn taint(self) -> String {
                match self {
                    $(Self::$name => $taint.to_owned(),)*
                    Self::Custom(_) => format!("check-{}", self.name().replace('/', "_")),
                }
            }
        }
    };
}

condition_types! {
    KubeletHealthy: "kubelet-unhealthy";
    KubeletConfigValid: "kubelet-config-invalid";
    ContainerRuntimeHealthy: "container-runtime-unhealthy";
    NodeMemoryHealthy: "memory-unhealthy";
    MemoryExhaustionImminent: "memory-exhaustion-imminent";
    NodeStorageHealthy: "storage-unhealthy";
    NodeKernelHealthy: "kernel-unhealthy";
    NodeGPUHealthy: "gpu-unhealthy";
    NodeBootstrapped: "not-bootstrapped";
}

impl ConditionType {
    /// nodevigil's own, and those of the custom checks.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().chain(custom::all())
    }

    /// The status of the condition while there is a problem: `False`, but for a type that names a problem.
    pub fn problem_status(self) -> Status {
        match self {
            Self::MemoryExhaustionImminent => Status::True,
            Self::Custom(custom) => custom.definition().problem_status,
            _ => Status::False,
        }
    }

    /// The status of the condition without a problem.
    pub fn healthy_status(self) -> Status {
        self.problem_status().opposite()
    }

    /// Whether the condition is written on the Node. That of a custom check that names no type is not.
    pub fn is_published(self) -> bool {
        if let Self::Custom(custom) = self { custom.definition().is_published } else { true }
    }

    /// Whether only hosts with certain hardware have the condition.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::NodeGPUHealthy)
    }

    /// The type of that name, if nodevigil owns it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }
}

/// A condition's status, as in the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub const ALL: &[Self] = &[Self::True, Self::False, Self::Unknown];

    /// The status as it is written on the Node.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// `False` for `True` and the reverse.
    pub const fn opposite(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }

    /// The status of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.name() == name)
    }
}

/// The least action that repairs the node, if the problem is the node's own. Controllers that match reasons choose by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    None,
    Restart,
    Reboot,
    Replace,
}

/// A row of the table of reasons.
#[derive(Debug)]
pub struct ReasonSpec {
    pub name: &'static str,
    /// The condition that can have it; none if every condition can.
    pub condition: Option<ConditionType>,
    pub status: Status,
    /// Sampled reasons need several probes in a row. They are suppressed shortly after boot.
    pub sampled: bool,
    pub remedy: Remedy,
    /// Whether the problem can outlive a reboot of the host.
    pub survives_boot: bool,
    pub meaning: &'static str,
}

/// A finding of a monitor.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub reason: Reason,
    /// The reason's status, unless the settings downgrade the reason.
    pub status: Status,
    pub message: String,
}

impl Finding {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, status: reason.spec().status, message: message.into() }
    }
}

/// A monitor's present view of one condition. It replaces the previous view.
#[derive(Debug, Clone, PartialEq)]
pub enum View {
    /// The monitor could evaluate the condition: `findings`, worst first. Without findings it is healthy, with the message `healthy`.
    Seen { healthy: String, findings: Vec<Finding> },
    /// The monitor could not evaluate the condition. Problems stay as they are.
    Unknown(Finding),
    /// Nothing new: what is shown stays, as during a planned restart. The finding is shown if nothing has been shown yet.
    Unchanged(Finding),
    /// It does not work for an unknown reason. A reason that is shown stays, unless it is healthy. Otherwise the finding is shown.
    Unexplained(Finding),
    /// The same as `view`, which does not know about every problem. Those with these reasons have ended.
    Ended { reasons: Vec<Reason>, view: Box<Self> },
    /// The state is intended, as after `systemctl stop kubelet`: problems end now.
    Excused(Finding),
}

impl View {
    /// A healthy condition with this message.
    pub fn healthy(message: impl Into<String>) -> Self {
        Self::Seen { healthy: message.into(), findings: Vec::new() }
    }

    /// A view with this finding alone.
    pub fn found(reason: Reason, message: impl Into<String>) -> Self {
        Self::Seen { healthy: String::new(), findings: vec![Finding::new(reason, message)] }
    }

    /// Whether it has a finding with one of these reasons.
    pub fn has(&self, reasons: &[Reason]) -> bool {
        matches!(self, Self::Seen { findings, .. } if findings.iter().any(|finding| reasons.contains(&finding.reason)))
    }
}

/// One condition as the Node should show it. The publisher sets its transition time.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub kind: ConditionType,
    pub status: Status,
    pub reason: String,
    pub message: String,
    /// When the status changed last, or the condition was first known. The publisher compares it with that of what it sent last: a
    /// status that changed and changed back in between is a new transition.
    pub since: Uptime,
}

impl Condition {
    /// Whether it shows a problem, which for most types is status `False`.
    pub fn is_problem(&self) -> bool {
        self.status == self.kind.problem_status()
    }

    /// Whether it is the problem of a custom check without a condition, which is an Event and nothing else.
    pub fn is_event_alone(&self) -> bool {
        let is_healthy = || self.reason == Reason::healthy(self.kind).spec().name;
        !self.kind.is_published() && self.status == self.kind.healthy_status() && !is_healthy()
    }

    /// Whether it is worse than the other: a problem is worse than `Unknown`, and that is worse than health.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        let is_bad = |condition: &Self| condition.is_problem() || condition.is_event_alone();
        let severity = |condition: &Self| (is_bad(condition), condition.status == Status::Unknown);
        severity(self) > severity(other)
    }
}

/// How a downgraded reason is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownAs {
    /// With the status of a healthy condition and a warning Event.
    Warning,
    /// Not at all.
    Off,
}

/// The state that the publisher applies to the Node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// The Node whose conditions the engine has adopted. The publisher writes to no other: before the adoption it would overwrite what
    /// an earlier run of the agent knew.
    pub node_uid: Option<String>,
    pub conditions: Vec<Condition>,
    /// The same as they are written on the Node.
    pub published: Vec<Published>,
    /// The conditions of which no monitor reports a problem any more. A problem is still shown for `healthy_for_secs`.
    pub ending: Vec<ConditionType>,
    /// Whether the Node should have no taint of ours, whatever the conditions are: nodevigil is paused or stops.
    pub without_taints: bool,
}

/// A condition's status or reason has changed. It becomes an Event about the Node.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// None when the condition is shown for the first time.
    pub from: Option<Condition>,
    pub to: Condition,
    pub at: Uptime,
}

/// What becomes an Event about the Node.
#[derive(Debug, Clone, PartialEq)]
pub enum Occurrence {
    Transition(Transition),
    /// Something else that happened once.
    Note {
        reason: &'static str,
        text: String,
        is_warning: bool,
        at: Uptime,
    },
}
