//! Findings over time → verdicts: when a problem enters, when it leaves, and what a condition says meanwhile.
//!
//! Pure: every moment is handed in. The registry of reasons ([`reasons`]) is the one place that says which status a
//! reason stands for, when it enters and when it leaves; checks name reasons, nobody names a status by hand.

#[cfg(test)]
mod any_history;
mod bad_time;
pub mod damping;
mod engine;
#[cfg(test)]
mod flips;
pub mod late;
mod message;
pub mod news;
#[cfg(test)]
mod over_time;
mod problems;
mod reasons;
pub mod suppress;
#[cfg(test)]
mod tests;
pub mod timing;
pub mod turned;
mod waits;
pub mod witness;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Now;

use damping::Remembered;
pub use engine::Health;
pub use message::{MAX_MESSAGE_BYTES, bounded};
pub use problems::RECLASSED;
pub use reasons::{
    AWAY_GRACE, CRI_PROBES, Cause, LEASE_LOOKS, LOOKS, PROBES, Reason, ReasonSpec, Remedy,
    START_GRACE, Scope, Severity, THRASHING_FOR, UNKILLABLE_AFTER, reasons,
};
use suppress::{Holds, Suppressor};
use turned::{Turned, TurnedDown};

/// The status of a Node condition, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Good.
    True,
    /// If this lasts, replacing the node is a sane answer, but for reasons of the class [`Remedy::None`].
    False,
    /// We cannot tell, or it is somebody's will: never a reason to replace a node.
    Unknown,
}

impl Status {
    /// The word that stands in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A Node condition type that we publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    /// The kubelet's process lives and its healthz answers.
    KubeletHealthy,
    /// What the kubelet got, and will get at its next start, is what it needs.
    KubeletConfigValid,
    /// See [`ConditionType::doc`].
    ContainerRuntimeHealthy,
    /// See [`ConditionType::doc`].
    NodeStorageHealthy,
    /// See [`ConditionType::doc`].
    NodeKernelHealthy,
    /// See [`ConditionType::doc`].
    NodeMemoryHealthy,
    /// See [`ConditionType::doc`].
    MemoryExhaustionImminent,
    /// See [`ConditionType::doc`].
    NodeBootstrapped,
    /// See [`ConditionType::doc`].
    NodevigilHealthy,
}

impl ConditionType {
    /// All types, in the order in which they are shown.
    pub const ALL: &[Self] = &[
        Self::KubeletHealthy,
        Self::KubeletConfigValid,
        Self::ContainerRuntimeHealthy,
        Self::NodeStorageHealthy,
        Self::NodeKernelHealthy,
        Self::NodeMemoryHealthy,
        Self::MemoryExhaustionImminent,
        Self::NodeBootstrapped,
        Self::NodevigilHealthy,
    ];

    /// The condition's `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KubeletHealthy => "KubeletHealthy",
            Self::KubeletConfigValid => "KubeletConfigValid",
            Self::ContainerRuntimeHealthy => "ContainerRuntimeHealthy",
            Self::NodeStorageHealthy => "NodeStorageHealthy",
            Self::NodeKernelHealthy => "NodeKernelHealthy",
            Self::NodeMemoryHealthy => "NodeMemoryHealthy",
            Self::MemoryExhaustionImminent => "MemoryExhaustionImminent",
            Self::NodeBootstrapped => "NodeBootstrapped",
            Self::NodevigilHealthy => "NodevigilHealthy",
        }
    }

    /// What it says, and what its statuses mean, in a few sentences.
    pub fn doc(self) -> &'static str {
        match self {
            Self::KubeletHealthy => {
                "Whether the kubelet does its work. True: its process lives and its healthz answers. False: it is gone, or does not answer; if this lasts, replacing the node is a sane answer. Unknown: it was stopped by somebody, is starting, or cannot be asked."
            }
            Self::KubeletConfigValid => {
                "Whether what the kubelet got, and will get at its next start, is what it needs, by the rules of `nodevigil check`. False: a rule finds an error, which the message names with file and line. Unknown: it could not be checked."
            }
            Self::ContainerRuntimeHealthy => {
                "Whether the container runtime (containerd, CRI-O) does its work. True: its process lives and it answers over CRI. False: it is gone, does not answer, or says itself that it is not ready. Unknown: it was stopped by somebody, is starting, or cannot be asked. Not published on a host without one."
            }
            Self::NodeStorageHealthy => {
                "Whether the file systems of the kubelet and the container runtime can be written to. False: one is read-only, full, fails, or does not come back from a write. Unknown: they could not be looked at."
            }
            Self::NodeKernelHealthy => {
                "Whether the kernel is sound. False: it reports a fault after which a node is better replaced, or has run out of something that every process needs. Unknown: nothing that it reports can be read."
            }
            Self::NodeMemoryHealthy => {
                "Whether the host's memory is sound. False: the host thrashes and does not get out of it, or the kernel has killed the kubelet or the container runtime for memory. Unknown: it cannot be read. That memory runs out is MemoryExhaustionImminent."
            }
            Self::MemoryExhaustionImminent => {
                "Whether the host's memory is about to be exhausted, or is: a hint, in the polarity of MemoryPressure. True: within seconds; the message has the numbers. False: nothing says so. Unknown: it cannot be read. It tells a scheduler or a drainer to hurry, and is no reason to replace a node."
            }
            Self::NodeBootstrapped => {
                "Whether the node has become of use since its Node was created. True: it has, and that stays so, whatever befalls it later. False: the deadline has passed, and something is seen that keeps it from that. Unknown: it is on its way, or how far it is cannot be told. Not published of a Node that was there long before the agent and is not Ready."
            }
            Self::NodevigilHealthy => {
                "Whether nodevigil itself works as configured on this node. Unknown: part of it does not, and the message says which; what it then cannot judge is Unknown under that condition's own name. Never False: a failure of the agent is no failure of the node, and no reason to replace, drain or cordon it."
            }
        }
    }

    /// A status in the polarity that the condition has on the Node, and back: in all of this program `True` is good, and of
    /// the hint `True` is bad.
    pub fn shown(self, status: Status) -> Status {
        match (self, status) {
            (Self::MemoryExhaustionImminent, Status::True) => Status::False,
            (Self::MemoryExhaustionImminent, Status::False) => Status::True,
            _ => status,
        }
    }
}

/// What a check says now, by itself, without a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Why; its status follows.
    pub reason: Reason,
    /// One sentence for people, free of counters, so that the same state is the same sentence.
    pub message: String,
}

/// What a condition says: a finding with a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The condition's status.
    pub status: Status,
    /// Its reason.
    pub reason: Reason,
    /// Its message.
    pub message: String,
    /// `lastTransitionTime`: when `status` last flipped, and nothing else.
    pub since: Timestamp,
    /// What stands for `False` besides the reason, the worst first.
    pub others: Vec<Finding>,
    /// The worst of them, if it is the reason as soon as it has stood for long enough.
    pub next: Option<Reason>,
}

/// A verdict of an earlier life of the agent, from the API or the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The stored status.
    pub status: Status,
    /// The stored reason, perhaps of another version.
    pub reason: String,
    /// The stored message.
    pub message: String,
    /// The stored `lastTransitionTime`.
    pub since: Timestamp,
}

/// In which boot of the host a [`Stored`] verdict was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// In this one, as far as is known.
    InThisBoot,
    /// In an earlier one: what cannot outlive a boot is gone.
    InAnEarlierBoot,
}

/// The memories of all conditions.
#[derive(Debug)]
pub struct Conditions {
    memories: Vec<Health>,
    holds: Holds,
    turned: Turned,
}

impl Conditions {
    /// Conditions without a past. `healthy_for` is the spell of health that ends a problem.
    pub fn new(healthy_for: Duration) -> Self {
        let memory = |kind: &ConditionType| Health::new(*kind, healthy_for);
        Self {
            memories: ConditionType::ALL.iter().map(memory).collect(),
            holds: Holds::default(),
            turned: Turned::default(),
        }
    }

    /// The same, with what the operator has turned down.
    #[must_use]
    pub fn turned_down(mut self, choice: &TurnedDown) -> Self {
        self.turned.choice.clone_from(choice);
        self
    }

    /// What was found since the last call that is only a warning by `[reasons]`.
    pub fn take_warnings(&mut self) -> Vec<(ConditionType, Finding)> {
        std::mem::take(&mut self.turned.warnings)
    }

    /// Takes in what `check` says of `kind`: everything that it finds now, or nothing at all if it has nothing new to
    /// say. `suppression`: who asks for quiet at this moment. `true` if what is to be published changed.
    ///
    /// To be called at each turn, for each check: time and quiet count too.
    pub fn observe(
        &mut self,
        kind: ConditionType,
        check: &'static str,
        findings: &[Finding],
        suppression: &[Suppressor],
        now: Now,
    ) -> bool {
        let findings = self.turned.sift(kind, check, findings);
        let asking = self.holds.ask(suppression, now);
        self.memories[kind as usize].observe(check, &findings, asking, now)
    }

    /// There is nothing on this host that `check` could watch: what it said of `kind` counts no longer, and if no other
    /// check has spoken of it the condition is not told at all. `true` if what is to be published changed.
    pub fn withdraw(&mut self, kind: ConditionType, check: &'static str) -> bool {
        self.memories[kind as usize].withdraw(check)
    }

    /// Whether [`Conditions::observe`] would change nothing, were it told this while nobody asks for quiet: so it is at nearly
    /// every turn of a healthy node.
    pub fn is_at_rest(&self, kind: ConditionType, check: &str, findings: &[Finding]) -> bool {
        self.memories[kind as usize].is_at_rest(check, findings)
    }

    /// Whether [`Conditions::withdraw`] would change nothing.
    pub fn is_withdrawn(&self, kind: ConditionType, check: &str) -> bool {
        self.memories[kind as usize].is_withdrawn(check)
    }

    /// One condition's memory.
    pub fn get(&self, kind: ConditionType) -> &Health {
        &self.memories[kind as usize]
    }

    /// One condition's memory, to change it.
    pub fn get_mut(&mut self, kind: ConditionType) -> &mut Health {
        &mut self.memories[kind as usize]
    }

    /// The verdicts to publish, in the order of [`ConditionType::ALL`].
    pub fn verdicts(&self) -> impl Iterator<Item = (ConditionType, &Verdict)> {
        // Nothing before the first check has run. From then on a condition whose own check is still to run keeps what
        // the Node shows of it: it would vanish from the Node if an apply, which is the whole set, left it out.
        let any = self
            .memories
            .iter()
            .any(|health| health.verdict().is_some());
        self.memories
            .iter()
            .filter(move |_| any)
            .filter_map(|health| Some((health.kind(), health.adopted()?)))
    }

    /// When a healthy spell or a hold ends that has not ended by `now` (uptime).
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let ends = self.memories.iter().filter_map(Health::next_deadline);
        ends.filter(|at| *at > now.uptime).min()
    }

    /// What damping must not forget over a restart of the agent; bounded, as each memory is.
    pub fn remembered(&self) -> Vec<(ConditionType, Remembered)> {
        let memory = |health: &Health| Some((health.kind(), health.remembered()?));
        self.memories.iter().filter_map(memory).collect()
    }

    /// What an earlier life of the agent remembered, in this boot; to be told before anything is found. It flips nothing.
    pub fn remember(&mut self, memories: &[(ConditionType, Remembered)], now: Now) {
        for (kind, remembered) in memories {
            self.memories[*kind as usize].remember(remembered, now);
        }
    }

    /// The Node shows all of them.
    pub fn published(&mut self) {
        self.memories.iter_mut().for_each(Health::published);
    }

    /// The Node was made anew under our name: what befell before it was born is no longer its story, unless it lasts.
    pub fn node_is_new(&mut self) {
        self.memories.iter_mut().for_each(Health::node_is_new);
    }
}

impl Stored {
    /// The verdict, and whether this version knows its reason.
    fn verdict(self, kind: ConditionType) -> (Verdict, bool) {
        let known = Reason::parse(&self.reason)
            .filter(|reason| reason.status() == self.status && reason.belongs_to(kind));
        let verdict = Verdict {
            status: self.status,
            // A reason of another version is replaced by the check's next finding; until then its nearest kin stands in.
            reason: known.unwrap_or(reasons::kin(kind, self.status)),
            message: self.message,
            since: self.since,
            others: Vec::new(),
            next: None,
        };
        (verdict, known.is_some())
    }
}

impl From<&Verdict> for Stored {
    fn from(verdict: &Verdict) -> Self {
        Self {
            status: verdict.status,
            reason: verdict.reason.as_str().to_owned(),
            message: verdict.message.clone(),
            since: verdict.since,
        }
    }
}
