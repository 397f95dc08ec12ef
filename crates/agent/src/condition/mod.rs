//! Node conditions: their types, the table of reasons, and the engine that turns monitors' reports into what the Node should show.
//!
//! Nothing here does I/O or reads a clock; the time is handed in.

pub mod engine;
mod reasons;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use reasons::Reason;

/// A moment, as time since boot (`CLOCK_BOOTTIME`), so that clock steps change nothing.
pub type Uptime = Duration;

/// The condition types that nodevigil owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    KubeletHealthy,
}

impl ConditionType {
    pub const ALL: &[Self] = &[Self::KubeletHealthy];

    /// The type's name on the Node.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeletHealthy => "KubeletHealthy",
        }
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

/// How a reason that the settings turn down is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownAs {
    /// As status `True` with a warning Event.
    Warning,
    /// Not at all.
    Off,
}

/// Why problems are not published as such at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suppression {
    /// nodevigil was paused: what is `False` becomes `Unknown`. `why` says by whom and until when.
    Paused { why: String },
    /// The host booted or the Node was created less than two minutes ago: no sampled problem becomes `False`.
    JustStarted,
}

/// What the publisher should make the Node show.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// The Node whose conditions the engine has adopted. The publisher writes to no other: before the adoption it would overwrite what
    /// an earlier run of the agent knew.
    pub node_uid: Option<String>,
    pub conditions: Vec<Condition>,
}

/// A condition's status or reason has changed. It becomes an Event about the Node.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// None when the condition is shown for the first time.
    pub from: Option<Condition>,
    pub to: Condition,
}
