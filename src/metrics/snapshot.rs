//! What is known at one moment, for the one who writes it down.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Counted, HelperTally};
use crate::{
    cluster::tally::Tally,
    health::{ConditionType, Severity, Status, Verdict, suppress::Quiet},
    host::systemd::Cause,
};

/// Everything that an exposition says.
#[derive(Debug, Clone)]
pub struct Snapshot<'a> {
    /// The moment.
    pub wall: Timestamp,
    /// The agent's version.
    pub version: &'a str,
    /// The Node's name.
    pub node: String,
    /// When the agent started.
    pub started: Timestamp,
    /// Whether nothing is written to the API: what is shown here is what would have been.
    pub shadow: bool,
    /// Who asks for quiet.
    pub quiet: Vec<Quiet>,
    /// The conditions as they are told, or would be.
    pub conditions: Vec<(ConditionType, &'a Verdict)>,
    /// When their statuses flipped, as the Node shows it where it does.
    pub transitions: Vec<(ConditionType, Timestamp)>,
    /// The conditions that the Node has as they stand here.
    pub published: Vec<ConditionType>,
    /// What the loop has counted.
    pub counted: &'a Counted,
    /// The requests to the API server, counted.
    pub requests: &'a Tally,
    /// The questions to the helper, counted.
    pub helper: HelperTally,
    /// Who is asked, and whether he answers; `None`: that is not known, or he is not asked.
    pub peers: [(Peer, Option<bool>); Peer::ALL.len()],
    /// When the API server last took our conditions.
    pub heartbeat: Option<Timestamp>,
    /// By how much the node's wall clock is ahead of the API server's; `None` before its first answer.
    pub clock_ahead: Option<SignedDuration>,
    /// Requests for Events that the API server has taken.
    pub events_sent: u64,
    /// Events that were never told.
    pub events_dropped: u64,
    /// Log lines that the journal did not take.
    pub log_lines_dropped: u64,
    /// Words to systemd that it did not take.
    pub notifications_dropped: u64,
    /// What came over the system bus and was not believed, by cause.
    pub bus_dropped: [(Cause, u64); Cause::ALL.len()],
    /// Our own process; `None`: it could not be read.
    pub process: Option<Process>,
}

/// Another program, or a part of the kernel, that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The API server.
    Api,
    /// The system bus.
    Bus,
    /// The privileged helper.
    Helper,
    /// The kernel's log.
    Kmsg,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Api, Self::Bus, Self::Helper, Self::Kmsg];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Bus => "bus",
            Self::Helper => "helper",
            Self::Kmsg => "kmsg",
        }
    }
}

/// Our own process, as the kernel has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    /// Resident memory.
    pub resident_bytes: u64,
    /// Memory that the kernel keeps for it once it was touched: `VmLck`.
    pub locked_bytes: u64,
    /// Pages that were read from a disk since it started.
    pub major_faults: u64,
    /// User and system time.
    pub cpu: Duration,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Threads.
    pub threads: u64,
}

/// A status as kube-state-metrics spells it.
pub(super) fn status_word(status: Status) -> &'static str {
    match status {
        Status::True => "true",
        Status::False => "false",
        Status::Unknown => "unknown",
    }
}

/// Every status, in the order in which they are shown.
pub(super) const STATUSES: [Status; 3] = [Status::True, Status::False, Status::Unknown];

/// Every severity.
pub(super) const SEVERITIES: [Severity; 5] = [
    Severity::Healthy,
    Severity::Warning,
    Severity::Unsure,
    Severity::Degraded,
    Severity::Failed,
];

/// How far a request for quiet goes, with its word.
pub(super) const QUIETS: [(Quiet, &str); 2] =
    [(Quiet::StandDown, "stand-down"), (Quiet::Hold, "hold")];
