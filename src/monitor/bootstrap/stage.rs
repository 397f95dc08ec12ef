//! The stages of the bootstrap.

use std::time::Duration;

use serde::Serialize;

use crate::condition::Uptime;

/// A stage of the bootstrap, in the order in which nodes go through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Instance,
    CloudInit,
    Runtime,
    Kubelet,
    Credential,
    Registered,
    CloudController,
    Network,
    Ready,
}

/// All stages: name, and how many seconds each may take after those before it, which is about three times as long as on most nodes.
pub const STAGES: [(Stage, &str, u64); 9] = [
    (Stage::Instance, "instance", 60),
    (Stage::CloudInit, "cloud-init", 300),
    (Stage::Runtime, "runtime", 60),
    (Stage::Kubelet, "kubelet", 60),
    (Stage::Credential, "credential", 60),
    (Stage::Registered, "registered", 30),
    (Stage::CloudController, "cloud-controller", 120),
    (Stage::Network, "network", 180),
    (Stage::Ready, "ready", 120),
];

impl Stage {
    pub const fn name(self) -> &'static str {
        STAGES[self as usize].1
    }

    pub const fn usual_time(self) -> Duration {
        Duration::from_secs(STAGES[self as usize].2)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Progress {
    Done,
    /// This node does not need it.
    Skipped,
    Running,
    /// It takes longer than usual.
    Late,
    /// It has failed and is not retried.
    Failed,
    Unknown,
    /// A stage before it is not done.
    Pending,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageState {
    pub status: Progress,
    /// When it was done, as far as that is known.
    #[serde(skip)]
    pub done_at: Option<Uptime>,
    /// What was observed, with the probable cause.
    pub message: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
}

pub fn done(done_at: Option<Uptime>, message: impl Into<String>) -> StageState {
    StageState { done_at, ..of(Progress::Done, message, "") }
}

pub fn skipped(message: impl Into<String>) -> StageState {
    of(Progress::Skipped, message, "")
}

pub fn unknown(message: impl Into<String>) -> StageState {
    of(Progress::Unknown, message, "")
}

pub fn running(message: impl Into<String>, advice: impl Into<String>) -> StageState {
    of(Progress::Running, message, advice)
}

pub fn failed(message: impl Into<String>, advice: impl Into<String>) -> StageState {
    of(Progress::Failed, message, advice)
}

fn of(status: Progress, message: impl Into<String>, advice: impl Into<String>) -> StageState {
    StageState { status, done_at: None, message: message.into(), advice: advice.into() }
}
