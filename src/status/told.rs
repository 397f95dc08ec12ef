//! What the Node is told of a condition besides its own name: other names, taints, Events.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ConditionStatus;

/// A type under which a condition is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedAs {
    /// Its type, such as `ContainerRuntimeReady`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The dialect of that name.
    #[serde(default)]
    pub dialect: String,
    /// Its status, in that dialect's polarity.
    pub status: ConditionStatus,
    /// When that status last changed.
    #[serde(default)]
    pub last_transition_time: Option<Timestamp>,
    /// Why it is left out; `None`: it is not.
    #[serde(default)]
    pub refused: Option<String>,
}

/// News kept for whoever looks: so many, the oldest first. (Each has its Event, too.)
pub const MAX_NEWS: usize = 8;

/// Something that happened and is no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// Its name, which is the reason of its Event.
    pub name: String,
    /// What happened.
    #[serde(default)]
    pub note: String,
    /// Whether it is something to look at.
    #[serde(default)]
    pub warning: bool,
    /// When it was noticed.
    pub at: Timestamp,
}

/// The taints of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Taints {
    /// The conditions that taint.
    pub conditions: Vec<String>,
    /// Those on the Node, as `KEY=VALUE:EFFECT`.
    pub on_node: Vec<String>,
    /// Those that are to come, as `KEY`.
    pub to_add: Vec<String>,
    /// Why they are not as they should be.
    pub problem: Option<String>,
}

/// The Events so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Events {
    /// Requests that the API server has taken.
    pub sent: u64,
    /// What was never told.
    pub dropped: u64,
    /// What waits to be told.
    pub waiting: u64,
    /// Why they cannot be told.
    pub problem: Option<String>,
}
