//! What is asked and said of the container runtime.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::helper::runtime::MAX_TIMEOUT;

/// How long the container runtime may take. Which one to ask the helper knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeRequest {
    /// How long it may take; 0: as long as the verb allows.
    pub timeout_millis: u32,
}

impl RuntimeRequest {
    /// How long the runtime may take.
    pub fn timeout(&self) -> Duration {
        match self.timeout_millis {
            0 => MAX_TIMEOUT,
            millis => Duration::from_millis(millis.into()),
        }
    }
}

/// What became of the question to the container runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeAnswer {
    /// Where it was asked; empty if there is no socket at any of the well-known places.
    pub socket: PathBuf,
    /// Whether neither the operator nor a running kubelet has named it: it is one of the well-known ones.
    #[serde(default)]
    pub is_guess: bool,
    /// The process that listens there, if somebody does and it is not systemd.
    pub listener: Option<Listener>,
    /// How long it took.
    pub took_micros: u64,
    /// Read when no answer came in time: the share of the last ten seconds in which every task that was not idle waited
    /// for a disk.
    pub io_full_percent: Option<u32>,
    /// What was heard.
    pub heard: Heard,
}

/// The process behind a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// Its pid.
    pub pid: i32,
    /// When it started (uptime).
    pub started: Duration,
    /// The unit in whose cgroup it is.
    pub unit: Option<String>,
}

/// What was heard of the container runtime. Each is a different fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// It answers both questions.
    Status(RuntimeStatus),
    /// It answers with an error: gRPC's code and the message.
    Error {
        /// As tonic calls it: `Unimplemented`.
        code: String,
        /// The runtime's words, shortened.
        message: String,
    },
    /// There is no socket.
    NoSocket,
    /// Nobody listens at the socket.
    Refused,
    /// Nobody takes a connection, and yet the kernel lists a listener there, or its list could not be read: which of the two. The agent
    /// adds it; the helper has no such list.
    #[serde(skip)]
    Doubted(String),
    /// We may not connect: the system's words.
    Denied(String),
    /// No answer within the deadline.
    TimedOut {
        /// Whether the connection was made: the kernel makes it for a process that hangs, too.
        connected: bool,
    },
    /// The connection broke, or what was said on it is no gRPC.
    Broken(String),
}

/// What a runtime says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeStatus {
    /// `containerd`, `cri-o`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Why its `RuntimeReady` is false, if it is; shortened.
    pub not_ready: Option<String>,
    /// Why its `NetworkReady` is false, if it is; shortened.
    pub network_not_ready: Option<String>,
}
