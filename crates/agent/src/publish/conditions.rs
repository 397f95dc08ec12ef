//! Compares the Node's conditions with the desired ones and decides which request to send next. Nothing here does I/O or reads a clock.
//!
//! - `lastTransitionTime` is set here. The Node's stays while the Node's status is the desired one. If the status has changed, or has
//!   changed and changed back, `lastTransitionTime` becomes the time at which it is sent.
//! - A condition that another field manager owns is never written. If another manager overwrites ours, it is written again, at most
//!   three times an hour.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, NodeStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::Value;

use super::{
    clock::{Now, is_sane, whole_seconds},
    connection::Failure,
    observed::ObservedNode,
    pacing::{Backoff, Budget},
    taints::Tainter,
};
use crate::{
    condition::{ConditionType, Desired, Published, Status, Uptime},
    host::api::{NodeFacts, ObservedCondition},
    settings::TaintSettings,
};

/// A condition's longest message (packaging/kubernetes/policy.yaml refuses longer ones).
const MAX_MESSAGE_BYTES: usize = 1024;
/// The conditions are written again after this time, ± 10 %.
const HEARTBEAT: Duration = Duration::from_mins(5);
/// The longest time between two attempts to write what the API server refuses.
const LONGEST_DELAY: Duration = Duration::from_mins(1);
/// With nothing to do the comparison is made again after this time.
const IDLE: Duration = Duration::from_hours(1);

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Nothing before `until`, unless the Node or the desired conditions change.
    Wait { until: Uptime },
    /// Read the Node: what is known of it may be out of date.
    Read,
    /// Apply this to the Node's status, as our field manager and with force.
    Apply(Box<Node>),
    /// Change the Node's taints by this merge patch.
    Taint(Value),
}

/// What is known of the Node, and of what was sent to it.
#[derive(Debug)]
pub struct Reconciler {
    /// None before the Node is seen, and while it does not exist.
    node: Option<ObservedNode>,
    /// The uid of the Node that `types` and `heartbeat_at` are about.
    uid: String,
    types: HashMap<&'static str, TypeState>,
    tainter: Tainter,
    /// Whether a request may have been carried out whose answer has not come.
    must_read: bool,
    backoff: Backoff,
    /// How often only a message may be written: no controller acts on it, and a number in it may change all the time.
    message_changes: Budget,
    /// The same of a reason of a condition that shows no problem.
    reason_changes: Budget,
    heartbeat_at: Uptime,
}

#[derive(Debug)]
struct TypeState {
    agreed: Option<Agreement>,
    attempt: Option<Attempt>,
    /// How often it may be written again after another field manager has overwritten it.
    rewrites: Budget,
    /// The field manager that owns or overwrites it, while it is not written for that reason.
    left_to: Option<String>,
}

/// The Node's condition when its status was last the desired one.
#[derive(Debug, Clone, Copy)]
struct Agreement {
    status: Status,
    /// [`Published::flips`] at that time; none of a condition that an earlier run of the agent wrote, until the engine has adopted it.
    flips: Option<u32>,
    transition: Timestamp,
}

/// A condition that was sent and has not been seen on the Node since. Each request for it had its own `lastTransitionTime`, from `first`
/// to `last`; any of them may have been carried out.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    status: Status,
    flips: u32,
    first: Timestamp,
    last: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    None,
    Message,
    Reason,
    /// Of what controllers act on: the status, its time, or the reason of a problem.
    Status,
}

impl Default for TypeState {
    fn default() -> Self {
        Self { agreed: None, attempt: None, rewrites: Budget::new(3, Duration::from_hours(1)), left_to: None }
    }
}

impl Reconciler {
    /// Nothing is known of the Node yet.
    pub fn new(taints: TaintSettings) -> Self {
        Self {
            node: None,
            uid: String::new(),
            types: HashMap::new(),
            tainter: Tainter::new(taints),
            must_read: false,
            backoff: Backoff::new(LONGEST_DELAY),
            message_changes: Budget::new(6, Duration::from_mins(5)),
            reason_changes: Budget::new(12, Duration::from_mins(5)),
            heartbeat_at: Uptime::ZERO,
        }
    }

    /// Takes in an event of the watch. It is ignored if it is older than the last answer, because our own write is not in it.
    pub fn watched(&mut self, node: Option<ObservedNode>, now: Now) {
        let is_older = |node: &ObservedNode| {
            let known = self.node.as_ref().map_or(0, |known| known.version_number);
            node.version_number < known
        };
        if !node.as_ref().is_some_and(is_older) {
            let must_read = self.must_read && node.is_some();
            self.observed(node, now);
            self.must_read = must_read;
        }
    }

    /// Takes in the Node from the answer to a request; none if it does not exist.
    pub fn observed(&mut self, node: Option<ObservedNode>, now: Now) {
        self.must_read = false;
        self.node = node;
        let Some(node) = &self.node else { return };
        if node.facts.uid != self.uid {
            self.uid.clone_from(&node.facts.uid);
            self.types.clear();
            // At random, so that a fleet whose agents restart together does not write together.
            self.heartbeat_at = now.uptime + HEARTBEAT.mul_f64(fastrand::f64());
        }
        for (name, state) in &mut self.types {
            if let Some(shown) = node.condition(name) {
                state.observe(shown);
            }
        }
    }

    /// Has the Node read before anything is written: a request may have been cut off.
    pub fn read_first(&mut self) {
        self.must_read = true;
    }

    /// Takes in how an apply ended.
    pub fn applied(&mut self, answer: Result<Option<ObservedNode>, Failure>, now: Now) {
        match answer {
            Ok(node) => {
                self.observed(node, now);
                self.heartbeat_at = now.uptime + HEARTBEAT.mul_f64(0.9 + fastrand::f64() / 5.0);
                if self.types.values().all(|state| state.attempt.is_none()) {
                    self.backoff.succeeded();
                } else {
                    // Something, such as an admission webhook, has changed what was sent.
                    self.backoff.failed(now.uptime, Duration::ZERO);
                }
            }
            Err(failure) => self.failed(failure, now),
        }
    }

    /// Takes in how a change of the taints ended. One that is refused does not delay the conditions.
    pub fn tainted(&mut self, answer: Result<Option<ObservedNode>, Failure>, now: Now) {
        self.tainter.answered(answer.as_ref().err().copied(), now);
        match answer {
            Ok(node) => self.observed(node, now),
            Err(failure) => self.must_read |= failure != Failure::Refused,
        }
    }

    /// Takes in that a request failed. Requests that are not answered are paced by `ApiConnection`.
    pub fn failed(&mut self, failure: Failure, now: Now) {
        self.must_read |= failure != Failure::Refused;
        if failure != Failure::Unanswered {
            self.backoff.failed(now.uptime, Duration::ZERO);
        }
    }

    /// The Node as last seen.
    pub fn node(&self) -> Option<&NodeFacts> {
        self.node.as_ref().map(|node| &node.facts)
    }

    /// In a sentence for each, the conditions that are left to another field manager; none if all are ours.
    pub fn foreign_owners(&self) -> Option<String> {
        let node = &self.node()?.name;
        let of = |(name, state): (&&str, &TypeState)| {
            let manager = state.left_to.as_ref()?;
            Some(format!(
                "field manager {manager} also writes condition {name} of Node {node}; nodevigil no longer writes it: \
                 stop one of the two"
            ))
        };
        let mut all: Vec<_> = self.types.iter().filter_map(of).collect();
        all.sort();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Decides what to do next. Conditions come before taints.
    pub fn step(&mut self, desired: &Desired, now: Now) -> Step {
        let idle = Step::Wait { until: now.uptime + IDLE };
        let Some(node) = self.node.clone() else { return idle };
        if desired.node_uid.as_ref() != Some(&node.facts.uid) {
            return idle;
        }
        match self.conditions_step(desired, &node, now) {
            Step::Wait { until } => match self.tainter.step(desired, &node, now) {
                Step::Wait { until: taints_until } => Step::Wait { until: until.min(taints_until) },
                step => step,
            },
            step => step,
        }
    }

    fn conditions_step(&mut self, desired: &Desired, node: &ObservedNode, now: Now) -> Step {
        if let Some(until) = self.backoff.until(now.uptime) {
            return Step::Wait { until };
        }
        if self.must_read {
            return Step::Read;
        }
        let wanted = self.wanted(desired, node, now);
        let difference = wanted.iter().map(|(_, condition)| difference(condition, node)).max();
        let budget = match difference {
            None => return Step::Wait { until: now.uptime + IDLE },
            Some(Difference::None) if now.uptime < self.heartbeat_at => return Step::Wait { until: self.heartbeat_at },
            Some(Difference::Message) => Some(&mut self.message_changes),
            Some(Difference::Reason) => Some(&mut self.reason_changes),
            Some(Difference::None | Difference::Status) => None,
        };
        if let Some(budget) = budget
            && now.uptime < self.heartbeat_at
            && !budget.take(now.uptime)
        {
            return Step::Wait { until: budget.room_at(now.uptime).min(self.heartbeat_at) };
        }
        Step::Apply(Box::new(self.apply(node, wanted, now)))
    }

    /// The desired conditions that are ours to write, as they should stand on the Node.
    fn wanted<'d>(
        &mut self,
        desired: &'d Desired,
        node: &ObservedNode,
        now: Now,
    ) -> Vec<(&'d Published, NodeCondition)> {
        let mut wanted = Vec::new();
        for condition in &desired.published {
            let shown = node.condition(condition.name);
            let state = self.types.entry(condition.name).or_default();
            shown.inspect(|shown| state.observe(shown));
            state.adopted(condition);
            let transition = state.transition(condition, shown, node.facts.created, now);
            let written = written(condition, transition, now);
            let ownership = node.ownership(condition.name);
            let differs = difference(&written, node) != Difference::None;
            state.left_to =
                ownership.foreign.filter(|_| !ownership.ours || (differs && !state.rewrites.has_room(now.uptime)));
            if state.left_to.is_none() {
                wanted.push((condition, written));
            }
        }
        wanted
    }

    /// What to apply: all desired conditions, because the API server deletes those of ours that an apply leaves out.
    fn apply(&mut self, node: &ObservedNode, wanted: Vec<(&Published, NodeCondition)>, now: Now) -> Node {
        let mut is_first = false;
        let mut conditions = Vec::new();
        let is_wanted = |name: &str| wanted.iter().any(|(condition, _)| condition.name == name);
        for (_, state) in self.types.iter_mut().filter(|(name, _)| !is_wanted(name)) {
            state.attempt = None;
        }
        for (condition, written) in wanted {
            let state = self.types.entry(condition.name).or_default();
            let ownership = node.ownership(condition.name);
            is_first |= !ownership.ours;
            if ownership.foreign.is_some() && difference(&written, node) != Difference::None {
                state.rewrites.take(now.uptime);
            }
            state.attempted(condition, &written);
            conditions.push(written);
        }
        let metadata = ObjectMeta {
            name: Some(node.facts.name.clone()),
            // A precondition: a Node that was re-created in the meantime is not written.
            uid: Some(node.facts.uid.clone()),
            // A precondition as well: no other manager has become the owner since managedFields was read.
            resource_version: is_first.then(|| node.version.clone()),
            ..ObjectMeta::default()
        };
        let status = NodeStatus { conditions: Some(conditions), ..NodeStatus::default() };
        Node { metadata, status: Some(status), ..Node::default() }
    }
}

impl TypeState {
    /// Takes in what the Node shows.
    fn observe(&mut self, shown: &ObservedCondition) {
        let (Some(status), Some(transition)) = (Status::by_name(&shown.status), shown.last_transition) else { return };
        let carried_out = self
            .attempt
            .filter(|attempt| attempt.status == status && (attempt.first..=attempt.last).contains(&transition));
        if let Some(attempt) = carried_out {
            self.agreed = Some(Agreement { status, flips: Some(attempt.flips), transition });
            self.attempt = None;
        } else if self.agreed.is_none() {
            self.agreed = Some(Agreement { status, flips: None, transition });
        }
    }

    /// The engine has adopted what the Node shows: flips count from here.
    fn adopted(&mut self, condition: &Published) {
        if let Some(agreed) = &mut self.agreed {
            agreed.flips.get_or_insert(condition.flips);
        }
    }

    /// The `lastTransitionTime` that the condition should have.
    fn transition(
        &self,
        wanted: &Published,
        shown: Option<&ObservedCondition>,
        created: Timestamp,
        now: Now,
    ) -> Timestamp {
        let is_shown = shown.is_some_and(|shown| shown.status == wanted.status.name());
        let kept = self.agreed.filter(|agreed| {
            is_shown
                && (agreed.status, agreed.flips) == (wanted.status, Some(wanted.flips))
                && is_sane(agreed.transition, created, now)
        });
        // `Date` has whole seconds, so the server's time is up to a second behind: a Node has no transition before its creation.
        kept.map_or_else(|| whole_seconds(now.server).max(whole_seconds(created)), |agreed| agreed.transition)
    }

    /// Notes that the condition is sent.
    fn attempted(&mut self, condition: &Published, written: &NodeCondition) {
        let last = written.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let (status, flips) = (condition.status, condition.flips);
        let before = self.attempt.filter(|before| (before.status, before.flips) == (status, flips));
        let first = before.map_or(last, |before| before.first.min(last));
        self.attempt = Some(Attempt { status, flips, first, last });
    }
}

fn written(condition: &Published, transition: Timestamp, now: Now) -> NodeCondition {
    NodeCondition {
        type_: condition.name.to_owned(),
        status: condition.status.name().to_owned(),
        reason: Some(condition.reason.clone()),
        message: Some(redact::bounded(&condition.message, MAX_MESSAGE_BYTES)),
        last_heartbeat_time: Some(Time(whole_seconds(now.server))),
        last_transition_time: Some(Time(transition)),
    }
}

fn difference(written: &NodeCondition, node: &ObservedNode) -> Difference {
    let Some(shown) = node.condition(&written.type_) else { return Difference::Status };
    let transition = written.last_transition_time.as_ref().map(|time| time.0);
    // A name of a profile shows a problem only beside one of ours.
    let is_problem =
        ConditionType::by_name(&written.type_).is_some_and(|kind| kind.problem_status().name() == written.status);
    let is_other_reason = Some(&shown.reason) != written.reason.as_ref();
    if shown.status != written.status || shown.last_transition != transition || (is_problem && is_other_reason) {
        Difference::Status
    } else if is_other_reason {
        Difference::Reason
    } else if Some(&shown.message) == written.message.as_ref() {
        Difference::None
    } else {
        Difference::Message
    }
}

#[cfg(test)]
mod tests;
