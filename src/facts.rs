//! The state of the API server and of this node's objects. The publisher writes it, and monitors read it.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::condition::Uptime;
use crate::condition::suppression::MaintenanceSignal;
use crate::host::clock::{ServerClock, ServerTime};
use crate::host::process::ProcessId;

/// The present state, sent by the publisher whenever it changes.
#[derive(Debug, Clone, Default)]
pub struct ApiFacts {
    pub reach: Reach,
    /// Until when the credential is valid; none if it does not say.
    pub credential_until: Option<Timestamp>,
    /// Whether this is a dry run: the agent reads everything and writes nothing.
    pub is_dry_run: bool,
    /// The Node, as last observed by the watch; none before that, and while the Node does not exist.
    pub node: Option<NodeFacts>,
    /// The uid of the Node before this one, and since when it is gone.
    pub former: Option<(String, Uptime)>,
    /// The kubelet's Lease as last read. It is read only while a monitor wants it.
    pub lease: Option<LeaseFacts>,
    /// What this process of the kubelet says of its sync loop; none before it was asked.
    pub sync_loop: Option<(ProcessId, SyncLoop)>,
    /// The API server's clock, by the `Date` of an answer; none before the first one.
    pub server_clock: Option<ServerClock>,
}

/// Whether the API server answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// Nothing is published, because of the settings or for lack of an identity.
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    pub created: ServerTime,
    /// `spec.providerID`, which the cloud controller or the kubelet sets.
    pub provider_id: Option<String>,
    pub taint_keys: Vec<String>,
    pub conditions: Vec<ObservedCondition>,
    /// The maintenance signals on the Node, and since when each is there if it says so.
    pub signals: Vec<(MaintenanceSignal, Option<ServerTime>)>,
    /// The value of the annotation nodevigil.io/pause.
    pub pause: Option<String>,
    /// Whether it has a taint of ours.
    pub has_our_taints: bool,
}

impl NodeFacts {
    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&ObservedCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// The answer to a request for this node's Node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAnswer {
    /// It was not asked, and why.
    NotAsked(String),
    /// It did not answer, and what happened instead.
    Unreached(String),
    /// It refuses the request.
    Refused {
        http_status: u16,
        message: String,
    },
    /// There is no Node of that name.
    NoNode(String),
    Node(Box<NodeFacts>),
}

/// A condition as the Node shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedCondition {
    /// The type's name, of any owner.
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    /// Both are by the clock of the owner: of nodevigil's by the API server's, of the kubelet's by this host's.
    pub last_heartbeat: Option<ServerTime>,
    pub last_transition: Option<ServerTime>,
}

/// The kubelet's Lease in kube-node-lease, which it renews every ten seconds while it works.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseFacts {
    pub renewed: Renewal,
    pub duration: Duration,
    /// When it was read.
    pub read_at: Uptime,
}

/// The `renewTime` of a Lease, by the kubelet's clock: another one shows that it was renewed, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal(pub Timestamp);

/// What the kubelet says of the loop in which it starts and stops pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncLoop {
    Runs,
    /// It has begun no round for five minutes: the number of such answers in a row, and the times of the first and the last.
    Stalled {
        answers: u32,
        first: Uptime,
        last: Uptime,
    },
    /// It does not tell us, and why.
    Unwatched(String),
}

impl SyncLoop {
    const LASTS: Duration = Duration::from_mins(1);

    /// The first answer that it stalls.
    pub const fn stalled(now: Uptime) -> Self {
        Self::Stalled { answers: 1, first: now, last: now }
    }

    /// This answer after the one before.
    pub fn after(self, before: Option<&Self>) -> Self {
        match (self, before) {
            (Self::Stalled { last, .. }, Some(Self::Stalled { answers, first, last: before }))
                if last < *before + Self::LASTS =>
            {
                Self::Stalled { answers: answers + 1, first: *first, last }
            }
            (answer, _) => answer,
        }
    }

    /// Whether it said so three times, for at least a minute, the last time a short while ago.
    pub fn is_stalled(&self, now: Uptime) -> bool {
        match self {
            Self::Stalled { answers, first, last } => {
                *answers >= 3 && *last - *first >= Self::LASTS && now < *last + Self::LASTS
            }
            Self::Runs | Self::Unwatched(_) => false,
        }
    }
}

/// How many requests were sent to the API server since the agent started, by the labels `verb` and `outcome`.
pub type RequestCounts = Family<[(&'static str, &'static str); 2], Counter>;
