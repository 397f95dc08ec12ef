//! What is known of the API server and of this node's objects in it. The publisher writes it, monitors read it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use crate::condition::Uptime;

/// The present state, sent by the publisher whenever it changes.
#[derive(Debug, Clone, Default)]
pub struct ApiFacts {
    pub reach: Reach,
    /// The Node as last seen by the watch; none before the first sight, and while it does not exist.
    pub node: Option<NodeFacts>,
    /// The kubelet's Lease as last read. It is read only while a monitor wants it.
    pub lease: Option<LeaseFacts>,
    /// By the `Date` of an answer; none before the first one.
    pub server_time: Option<ServerTime>,
}

/// A moment by the API server's clock and by the time since boot, which no clock step changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTime {
    pub time: Timestamp,
    pub uptime: Uptime,
}

impl ServerTime {
    /// The time by the API server's clock.
    pub fn at(self, uptime: Uptime) -> Timestamp {
        let since = SignedDuration::try_from(uptime.saturating_sub(self.uptime)).unwrap_or_default();
        self.time.checked_add(since).unwrap_or(self.time)
    }

    /// How far the two are apart as clocks.
    pub fn differs_by(self, other: Self) -> SignedDuration {
        other.time.duration_since(self.at(other.uptime)).abs()
    }
}

/// Whether the API server answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// Nothing is published, by the settings or for want of an identity, which `why` tells.
    Off {
        why: String,
    },
    /// No request has been answered yet.
    #[default]
    Untried,
    Reached {
        since: Uptime,
    },
    Unreached {
        since: Uptime,
        error: String,
    },
}

/// This node's Node object.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    pub created: Timestamp,
    pub conditions: Vec<ObservedCondition>,
}

/// A condition as the Node shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedCondition {
    /// The type's name, of any owner.
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_heartbeat: Option<Timestamp>,
    pub last_transition: Option<Timestamp>,
}

/// The kubelet's Lease in kube-node-lease, which it renews every ten seconds while it works.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseFacts {
    /// By the kubelet's clock: compare it with other renewals, not with a clock.
    pub renewed: Timestamp,
    pub duration: Duration,
    /// When it was read.
    pub read_at: Uptime,
}

/// How many requests were sent to the API server, by verb and outcome, since the agent started.
#[derive(Debug, Clone, Default)]
pub struct RequestCounts(Arc<Mutex<BTreeMap<(Verb, Outcome), u64>>>);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Patch,
    Create,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// HTTP 2xx.
    Success,
    /// HTTP 401 and 403.
    Forbidden,
    /// HTTP 409 and 422: the object has changed, or another owner is in the way.
    Conflict,
    /// HTTP 429.
    Throttled,
    /// Any other answer.
    Refused,
    /// No answer within the deadline, or no connection.
    Unreached,
}

impl RequestCounts {
    /// Counts one request.
    pub fn count(&self, verb: Verb, outcome: Outcome) {
        *self.lock().entry((verb, outcome)).or_default() += 1;
    }

    /// All counts that are not zero.
    pub fn snapshot(&self) -> BTreeMap<(Verb, Outcome), u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Verb, Outcome), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
