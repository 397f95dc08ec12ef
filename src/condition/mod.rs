//! Node conditions: their types, the table of reasons, and the engine that turns monitors' reports into what the Node should show.
//!
//! Nothing here does I/O or reads a clock; the time is handed in. Uses no other module.

pub mod engine;
pub mod profile;
mod reasons;
pub mod suppression;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use profile::Published;
pub use reasons::Reason;
pub use suppression::Suppression;

/// A moment, as time since boot (`CLOCK_BOOTTIME`), so that clock steps change nothing.
pub type Uptime = Duration;

/// The condition types that nodevigil owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    KubeletHealthy,
    KubeletConfigValid,
    ContainerRuntimeHealthy,
    NodeMemoryHealthy,
    MemoryExhaustionImminent,
    NodeStorageHealthy,
    NodeKernelHealthy,
    NodeGPUHealthy,
    NodeBootstrapped,
}

impl ConditionType {
    pub const ALL: &[Self] = &[
        Self::KubeletHealthy,
        Self::KubeletConfigValid,
        Self::ContainerRuntimeHealthy,
        Self::NodeMemoryHealthy,
        Self::MemoryExhaustionImminent,
        Self::NodeStorageHealthy,
        Self::NodeKernelHealthy,
        Self::NodeGPUHealthy,
        Self::NodeBootstrapped,
    ];

    /// The type's name on the Node.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeletHealthy => "KubeletHealthy",
            Self::KubeletConfigValid => "KubeletConfigValid",
            Self::ContainerRuntimeHealthy => "ContainerRuntimeHealthy",
            Self::NodeMemoryHealthy => "NodeMemoryHealthy",
            Self::MemoryExhaustionImminent => "MemoryExhaustionImminent",
            Self::NodeStorageHealthy => "NodeStorageHealthy",
            Self::NodeKernelHealthy => "NodeKernelHealthy",
            Self::NodeGPUHealthy => "NodeGPUHealthy",
            Self::NodeBootstrapped => "NodeBootstrapped",
        }
    }

    /// The status of the condition while there is a problem: `False`, but for a type that names a problem.
    pub const fn problem_status(self) -> Status {
        match self {
            Self::MemoryExhaustionImminent => Status::True,
            _ => Status::False,
        }
    }

    /// The status of the condition without a problem.
    pub const fn healthy_status(self) -> Status {
        self.problem_status().opposite()
    }

    /// Whether only some hosts have what it is about; the others get no such condition.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::NodeGPUHealthy)
    }

    /// The type of that name, if nodevigil owns it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
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

/// The least that repairs the node, if the problem is the node's own. Controllers that match reasons choose by it.
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
    /// The condition that can have it; none of a reason that every condition can have.
    pub condition: Option<ConditionType>,
    pub status: Status,
    /// Sampled reasons come from several probes in a row. They are held back shortly after boot.
    pub sampled: bool,
    pub remedy: Remedy,
    /// Whether the problem can outlive a reboot of the host.
    pub survives_boot: bool,
    pub meaning: &'static str,
}

/// One thing that a monitor sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub reason: Reason,
    /// The reason's own, unless the settings turn the reason down.
    pub status: Status,
    pub message: String,
}

impl Finding {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, status: reason.spec().status, message: message.into() }
    }
}

/// What a monitor sees of one condition at present. It replaces the monitor's previous view.
#[derive(Debug, Clone, PartialEq)]
pub enum View {
    /// The monitor looked: `findings`, worst first; without any the condition is healthy, which `healthy` says in a sentence.
    Seen { healthy: String, findings: Vec<Finding> },
    /// The monitor could not look. Problems stay as they are.
    CannotTell(Finding),
    /// Nothing new: what is shown stays, as during a planned restart. The finding is shown where nothing has been shown yet.
    Unchanged(Finding),
    /// It does not work, and why is not known: a reason that is shown stays, health does not. Else the finding is shown.
    Unexplained(Finding),
    /// The state is somebody's will, such as `systemctl stop kubelet`: problems end now.
    Excused(Finding),
}

impl View {
    /// There is no problem, which the message says in a sentence.
    pub fn healthy(message: impl Into<String>) -> Self {
        Self::Seen { healthy: message.into(), findings: Vec::new() }
    }

    /// This alone was found.
    pub fn found(reason: Reason, message: impl Into<String>) -> Self {
        Self::Seen { healthy: String::new(), findings: vec![Finding::new(reason, message)] }
    }

    /// Whether it has a finding with one of these reasons.
    pub fn has(&self, reasons: &[Reason]) -> bool {
        matches!(self, Self::Seen { findings, .. } if findings.iter().any(|finding| reasons.contains(&finding.reason)))
    }
}

/// One condition as the Node should show it. Its transition time is the publisher's business.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub kind: ConditionType,
    pub status: Status,
    pub reason: String,
    pub message: String,
    /// How often the status has changed since the agent started. The publisher compares it with the count when Node and agent last
    /// agreed: a status that changed and changed back in between is a new transition.
    pub flips: u32,
}

impl Condition {
    /// Whether it shows a problem, which for most types is status `False`.
    pub fn is_problem(&self) -> bool {
        self.status == self.kind.problem_status()
    }

    /// Whether its status is a worse one than the other's: a problem is worse than `Unknown`, and that is worse than health.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        let severity = |condition: &Self| (condition.is_problem(), condition.status == Status::Unknown);
        severity(self) > severity(other)
    }
}

/// How a reason that the settings turn down is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownAs {
    /// With the status of a healthy condition and a warning Event.
    Warning,
    /// Not at all.
    Off,
}

/// What the publisher should make the Node show.
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
