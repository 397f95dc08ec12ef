//! Compares the Node's conditions with the desired ones and decides which request to send next. Nothing here does I/O or reads a clock.
//!
//! - `lastTransitionTime` is set here. The Node's stays while the Node's status is the desired one. If the status has changed, or has
//!   changed and changed back, `lastTransitionTime` becomes the time at which it is sent.
//! - A condition that another field manager owns is never written. If another manager overwrites ours, it is written again with its old
//!   `lastTransitionTime`, at most three times an hour; after that it is applied with the other manager's values, because the API server
//!   would delete it if the apply left it out.

mod refused;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::clock::{is_plausible, whole_seconds};
use super::connection::Failure;
use super::observed::ObservedNode;
use super::pacing::{Backoff, Budget};
use super::step::{Request, Step};
use super::taints::Tainter;
use crate::condition::profile::ConditionNames;
use crate::condition::{Condition, ConditionType, Desired, Published, Status, Uptime};
use crate::facts::{NodeFacts, ObservedCondition};
use crate::host::clock::{Now, ServerTime};
use crate::settings::TaintSettings;

/// A condition's longest message (packaging/kubernetes/policy.yaml refuses longer ones).
const MAX_MESSAGE_BYTES: usize = 1024;
/// The conditions are written again after this time, ± 10 %.
const HEARTBEAT: Duration = Duration::from_mins(30);
const LATEST_HEARTBEAT: Duration = Duration::from_mins(33);
/// A fault that is published later has its own time in the message, as `lastTransitionTime` is that of the write.
const PUBLISHED_WITHIN: SignedDuration = SignedDuration::from_secs(5);
/// Who undoes what nodevigil writes, if the Node names no other field manager.
const ANOTHER: &str = "another nodevigil, an admission policy or a controller that removes conditions";
/// The longest time between two attempts to write what the API server refuses.
const LONGEST_DELAY: Duration = Duration::from_mins(1);

/// What the Node shows, and what may be sent to it.
#[derive(Debug)]
pub struct Reconciler {
    /// None before the Node is seen, and while it does not exist.
    node: Option<ObservedNode>,
    sender: Sender,
}

/// What was sent to the Node, and when what else may be sent.
#[derive(Debug)]
struct Sender {
    /// The uid of the Node that `types` and `heartbeat_at` are about.
    uid: String,
    names: ConditionNames,
    types: BTreeMap<&'static str, TypeState>,
    tainter: Tainter,
    /// Whether a request without an answer may have been carried out.
    must_read: bool,
    /// [`Desired::without_taints`] at the last step.
    without_taints: bool,
    backoff: Backoff,
    /// How often only texts may be written: no controller acts on them, and a number in a message may change all the time.
    text_changes: Budget,
    heartbeat_at: Uptime,
    /// Until then conditions of ours stay on the Node that the settings no longer name: the policy did not let them be removed.
    keeps_until: Uptime,
    /// Whether the API server accepted the last apply, so that it refuses only what that apply left out.
    takes_rest: bool,
}

#[derive(Debug)]
struct TypeState {
    sent: Option<Sent>,
    /// For a transition that was sent late, by its time: when the fault began.
    late: Option<(ServerTime, ServerTime)>,
    /// How often it may be written again after another field manager has overwritten it.
    rewrites: Budget,
    /// What was applied last, and how often it may be applied again if something other than a field manager undoes it.
    applied: Option<Published>,
    again: Budget,
    /// Who owns, overwrites or removes it, while our values are not written for that reason.
    left_to: Option<String>,
    /// Of a custom check: why the API server refuses it, and until when it is left as it is on the Node.
    refused: Option<(String, Uptime)>,
}

/// What was sent last; in the beginning, what the Node showed first.
#[derive(Debug, Clone, Copy)]
struct Sent {
    status: Status,
    /// [`Published::since`] at that time; none of what an earlier run of the agent wrote, until the engine has adopted it.
    since: Option<Uptime>,
    /// Each request had its own `lastTransitionTime`, from `first` to `last`. Until the Node shows one of them, any may be carried out.
    first: ServerTime,
    last: ServerTime,
    is_shown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    None,
    /// Of a message, or the reason of a condition that shows no problem.
    Text,
    /// Of what controllers act on: the status, its time, or the reason of a problem.
    Status,
}

/// Desired conditions, and how the Node should show each.
type Wanted<'d> = Vec<(&'d Published, NodeCondition)>;

impl Default for TypeState {
    fn default() -> Self {
        let (rewrites, again) = (Budget::new(3, Duration::from_hours(1)), Budget::new(3, Duration::from_mins(10)));
        Self { sent: None, late: None, rewrites, applied: None, again, left_to: None, refused: None }
    }
}

impl Reconciler {
    /// Nothing is known of the Node yet.
    pub fn new(taints: &TaintSettings, names: ConditionNames) -> Self {
        let sender = Sender {
            uid: String::new(),
            names,
            types: BTreeMap::new(),
            tainter: Tainter::new(taints),
            must_read: false,
            without_taints: false,
            backoff: Backoff::new(LONGEST_DELAY),
            text_changes: Budget::new(12, Duration::from_mins(5)),
            heartbeat_at: Uptime::ZERO,
            keeps_until: Uptime::ZERO,
            takes_rest: false,
        };
        Self { node: None, sender }
    }

    /// Takes in an event of the watch. It is ignored if it is older than the last answer, because our own write is not in it.
    pub fn watched(&mut self, node: Option<ObservedNode>, now: Now) {
        let known = self.node.as_ref().map(ObservedNode::version_number);
        if node.as_ref().is_none_or(|node| Some(node.version_number()) >= known) {
            self.observe(node, now);
        }
    }

    /// Has the Node read before anything is written: a request may have been cut off.
    pub fn read_first(&mut self) {
        self.sender.must_read = true;
    }

    /// Takes in how a request ended: the Node as the answer shows it, none if it does not exist.
    pub fn answered(&mut self, request: &Request, answer: Result<Option<ObservedNode>, Failure>, now: Now) {
        let failure = answer.as_ref().err().copied();
        match answer {
            Ok(node) => {
                self.sender.must_read = false;
                self.observe(node, now);
            }
            Err(failure) => self.sender.must_read |= failure != Failure::Refused,
        }
        self.sender.answered(request, failure, now);
    }

    fn observe(&mut self, node: Option<ObservedNode>, now: Now) {
        self.node = node.inspect(|node| self.sender.observe(node, now));
    }

    /// The Node as last seen.
    pub fn node(&self) -> Option<&NodeFacts> {
        self.node.as_ref().map(|node| &node.facts)
    }

    /// In a sentence for each, the conditions that are left to another field manager, or undone; none if all are ours.
    pub fn foreign_owners(&self) -> Option<String> {
        let node = &self.node()?.name;
        let foreign = self.sender.types.iter().filter_map(|(name, state)| {
            let what = format!("{} also writes condition {name} of Node {node}", state.left_to.as_ref()?);
            Some(format!("{what}; nodevigil no longer writes it: stop one of the two"))
        });
        Some(foreign.collect::<Vec<_>>().join("; ")).filter(|all| !all.is_empty())
    }

    /// Whether the Node does not show yet what cannot wait: a problem, or that nodevigil is paused or stops.
    pub fn is_urgent(&self, desired: &Desired) -> bool {
        let is_shown = |wanted: &Published| {
            let shown = self.node().and_then(|node| node.condition(wanted.name));
            let is_refused = self.sender.types.get(wanted.name).is_some_and(|state| state.refused.is_some());
            is_refused
                || shown.is_some_and(|shown| (&*shown.status, &shown.reason) == (wanted.status.name(), &wanted.reason))
        };
        let matters = desired.without_taints || desired.conditions.iter().any(Condition::is_problem);
        matters && !desired.published.iter().all(is_shown)
    }

    /// What to do now. Conditions come before taints.
    pub fn step(&mut self, desired: &Desired, now: Now) -> Step {
        let adopted = self.node.as_ref().filter(|node| desired.node_uid.as_ref() == Some(&node.facts.uid));
        adopted.map_or(Step::WaitUntil(Uptime::MAX), |node| self.sender.step(desired, node, now))
    }
}

impl Sender {
    fn answered(&mut self, request: &Request, failure: Option<Failure>, now: Now) {
        if failure.is_some() {
            self.types.values_mut().for_each(|state| state.applied = None);
        }
        let must_wait = match (request, failure) {
            // Taints that are refused do not delay the conditions.
            (Request::Taint(_), _) => return self.tainter.answered(now),
            (Request::Apply(_), None) => {
                self.takes_rest = true;
                self.heartbeat_at = now.uptime + HEARTBEAT.mul_f64(0.9 + fastrand::f64() / 5.0);
                self.types
                    .values_mut()
                    .for_each(|state| state.refused = state.refused.take().filter(|(_, until)| now.uptime < *until));
                // Else something, such as an admission webhook, has changed what was sent.
                let is_shown = self.types.values().all(TypeState::is_shown);
                if is_shown {
                    self.backoff.succeeded();
                }
                !is_shown
            }
            // Paced by `ApiConnection`, as any request. For an apply this is not enough: reads may be answered while writes are not.
            (Request::Read, Some(Failure::Unanswered)) => false,
            (_, Some(Failure::Refused)) => return self.backoff.denied(now.uptime),
            (_, failure) => failure.is_some(),
        };
        if must_wait {
            self.backoff.failed(now.uptime, Duration::ZERO);
        }
    }

    fn observe(&mut self, node: &ObservedNode, now: Now) {
        if node.facts.uid != self.uid {
            self.uid.clone_from(&node.facts.uid);
            self.types.clear();
            // At random, so that a fleet whose agents restart together does not write together. But names of other settings go at once.
            let spread = if self.obsolete(node).next().is_some() { 0.0 } else { fastrand::f64() };
            let ours = node.facts.conditions.iter().filter(|shown| node.ownership(&shown.kind).ours);
            let age = ours.filter_map(|shown| Some(now.server.duration_since(shown.last_heartbeat?))).max();
            // After a longer absence the whole fleet may be late.
            let rest = age.and_then(|age| LATEST_HEARTBEAT.checked_sub(age.try_into().ok()?)).unwrap_or(HEARTBEAT);
            self.heartbeat_at = now.uptime + HEARTBEAT.mul_f64(spread).min(rest);
        }
        for (name, state) in &mut self.types {
            node.facts.condition(name).inspect(|shown| state.observe(shown));
        }
    }

    /// The conditions that an earlier run with other settings has written.
    fn obsolete<'a>(&self, node: &'a ObservedNode) -> impl Iterator<Item = &'a ObservedCondition> {
        let names = self.names;
        let is_obsolete = move |kind: &str| names.find(kind).is_none() && node.ownership(kind).ours;
        node.facts.conditions.iter().filter(move |shown| is_obsolete(&shown.kind))
    }

    fn step(&mut self, desired: &Desired, node: &ObservedNode, now: Now) -> Step {
        if desired.without_taints && !self.without_taints {
            // A stop lasts only a moment: what is written now does not wait because of earlier failures.
            self.backoff.succeeded();
            self.tainter.backoff.succeeded();
        }
        self.without_taints = desired.without_taints;
        match self.conditions_step(desired, node, now) {
            Step::WaitUntil(until) => self.tainter.step(desired, node, now).or_after(until),
            send @ Step::Send(_) => send,
        }
    }

    fn conditions_step(&mut self, desired: &Desired, node: &ObservedNode, now: Now) -> Step {
        if let Some(until) = self.backoff.until(now.uptime) {
            return Step::WaitUntil(until);
        }
        if self.must_read {
            return Step::Send(Request::Read);
        }
        let wanted = self.wanted(desired, node, now);
        let heartbeat_at = if wanted.is_empty() { Uptime::MAX } else { self.heartbeat_at };
        let is_due = match wanted.iter().map(|(_, condition)| difference(condition, node)).max() {
            _ if now.uptime >= heartbeat_at => true,
            None | Some(Difference::None) => false,
            Some(Difference::Text) => self.text_changes.take(now.uptime),
            Some(Difference::Status) => true,
        };
        if is_due {
            return Step::Send(Request::Apply(Box::new(self.apply(node, wanted, now))));
        }
        let again = self.types.values().flat_map(|state| state.again_at(now.uptime));
        let again = again.chain([self.text_changes.spent_until(now.uptime)]).flatten();
        Step::WaitUntil(again.filter(|until| now.uptime < *until).fold(heartbeat_at, Ord::min))
    }

    /// The desired conditions that we own or may own, as the Node should show them.
    fn wanted<'d>(&mut self, desired: &'d Desired, node: &ObservedNode, now: Now) -> Wanted<'d> {
        let mut wanted = Vec::new();
        for published in &desired.published {
            let (shown, ownership) = (node.facts.condition(published.name), node.ownership(published.name));
            let state = self.types.entry(published.name).or_default();
            shown.inspect(|shown| state.observe(shown));
            if let Some(sent) = &mut state.sent {
                // The engine has adopted what the Node shows: a later time is that of a change.
                sent.since.get_or_insert(published.since);
            }
            // What another manager has overwritten or removed is no transition.
            let has_status = |shown: &ObservedCondition| shown.status == published.status.name();
            // A condition that the Node has never shown has the time of the write, not that of an attempt that was refused.
            let was_there = state.sent.is_some_and(|sent| sent.is_shown);
            let is_kept = shown.map_or(was_there, |shown| ownership.foreign.is_some() || has_status(shown));
            let transition = state.transition(published, is_kept, node.facts.created, now);
            let condition = written(published, transition, state.began(published, transition, now), now);
            let differs = difference(&condition, node) != Difference::None;
            let is_undone =
                differs && state.applied.as_ref() == Some(published) && state.again.spent_until(now.uptime).is_some();
            let foreign = ownership
                .foreign
                .filter(|_| !ownership.ours || (differs && state.rewrites.spent_until(now.uptime).is_some()));
            let foreign = foreign.map(|manager| format!("field manager {manager}"));
            state.left_to = foreign.or_else(|| is_undone.then(|| ANOTHER.to_owned()));
            if state.is_written(now) {
                wanted.push((published, condition));
            } else {
                // What is there stays: the API server would delete it if the apply left it out.
                wanted.extend(shown.filter(|_| ownership.ours).map(|shown| (published, theirs(shown))));
            }
        }
        wanted
    }

    /// What to apply: all that we own, because the API server deletes what an apply leaves out.
    fn apply(&mut self, node: &ObservedNode, wanted: Wanted<'_>, now: Now) -> Node {
        let (mut is_conditional, mut conditions) = (false, Vec::new());
        for (published, condition) in wanted {
            let (state, ownership) = (self.types.entry(published.name).or_default(), node.ownership(published.name));
            is_conditional |= state.left_to.is_some() || !ownership.ours;
            if state.is_written(now) {
                let differs = difference(&condition, node) != Difference::None;
                if ownership.foreign.is_some() && differs {
                    state.rewrites.take(now.uptime);
                } else if differs && state.applied.as_ref() == Some(published) {
                    state.again.take(now.uptime);
                }
                state.applied = Some(published.clone());
                state.sent(published, &condition);
            }
            conditions.push(condition);
        }
        if now.uptime < self.keeps_until {
            conditions.extend(self.obsolete(node).map(theirs));
            is_conditional = true;
        }
        let metadata = ObjectMeta {
            name: Some(node.facts.name.clone()),
            // A precondition: a Node that was re-created in the meantime is not written.
            uid: Some(node.facts.uid.clone()),
            // A precondition as well: no other manager has become the owner, or changed what is its own, since the Node was read.
            resource_version: is_conditional.then(|| node.version.clone()),
            ..ObjectMeta::default()
        };
        let status = NodeStatus { conditions: Some(conditions), ..NodeStatus::default() };
        Node { metadata, status: Some(status), ..Node::default() }
    }
}

impl Step {
    /// The same, after `until` at the latest.
    pub fn or_after(self, until: Uptime) -> Self {
        match self {
            Self::WaitUntil(other) => Self::WaitUntil(until.min(other)),
            Self::Send(_) => self,
        }
    }
}

impl TypeState {
    /// Whether our values are written: it is not left to another field manager, nor refused by the API server until later.
    fn is_written(&self, now: Now) -> bool {
        self.left_to.is_none() && self.refused.as_ref().is_none_or(|(_, until)| now.uptime >= *until)
    }

    /// When it may be written again after it was refused, overwritten or undone.
    fn again_at(&self, now: Uptime) -> [Option<Uptime>; 3] {
        [self.rewrites.spent_until(now), self.again.spent_until(now), self.refused.as_ref().map(|(_, until)| *until)]
    }

    /// Whether the Node shows what was sent last, or our values are not written.
    fn is_shown(&self) -> bool {
        self.left_to.is_some() || self.refused.is_some() || self.sent.is_none_or(|sent| sent.is_shown)
    }

    /// Takes in what the Node shows.
    fn observe(&mut self, shown: &ObservedCondition) {
        let (Some(status), Some(time)) = (Status::by_name(&shown.status), shown.last_transition) else { return };
        let (since, is_ours) = match &self.sent {
            Some(sent) => (sent.since, sent.status == status && (sent.first..=sent.last).contains(&time)),
            None => (None, true),
        };
        if is_ours {
            self.sent = Some(Sent { status, since, first: time, last: time, is_shown: true });
        }
    }

    /// The `lastTransitionTime` that the condition should have.
    fn transition(&self, wanted: &Published, is_kept: bool, created: ServerTime, now: Now) -> ServerTime {
        let kept = self.sent.filter(|sent| {
            // If only one time was sent, it is right, even if the Node shows that of an older request.
            (sent.is_shown || sent.first == sent.last)
                && is_kept
                && (sent.status, sent.since) == (wanted.status, Some(wanted.since))
                && is_plausible(sent.last, created, now)
        });
        // `Date` has whole seconds, so the server's time is up to a second behind: a Node has no transition before its creation.
        kept.map_or_else(|| whole_seconds(now.server).max(whole_seconds(created)), |sent| sent.last)
    }

    /// When the fault began, if that is long before the transition. It stays as it was found first, whatever becomes of the clock.
    fn began(&mut self, wanted: &Published, transition: ServerTime, now: Now) -> Option<ServerTime> {
        ConditionType::by_name(wanted.name).filter(|kind| kind.problem_status() == wanted.status)?;
        if self.late.is_none_or(|(late, _)| late != transition) {
            self.late = Some((transition, now.server_at(wanted.since)));
        }
        self.late.map(|(_, began)| began).filter(|began| transition.duration_since(*began) > PUBLISHED_WITHIN)
    }

    /// Notes that the condition is sent.
    fn sent(&mut self, published: &Published, condition: &NodeCondition) {
        let last = condition.last_transition_time.clone().map(ServerTime::from).unwrap_or_default();
        let (status, since) = (published.status, Some(published.since));
        let again = self.sent.filter(|sent| !sent.is_shown && (sent.status, sent.since) == (status, since));
        let first = again.map_or(last, |sent| sent.first.min(last));
        self.sent = Some(Sent { status, since, first, last, is_shown: false });
    }
}

fn written(condition: &Published, transition: ServerTime, since: Option<ServerTime>, now: Now) -> NodeCondition {
    let since = since.map(|since| format!(" (since {}Z)", since.timestamp().strftime("%H:%M:%S"))).unwrap_or_default();
    let message = redact::bounded(&condition.message, MAX_MESSAGE_BYTES - since.len());
    NodeCondition {
        type_: condition.name.to_owned(),
        status: condition.status.name().to_owned(),
        reason: Some(condition.reason.clone()),
        message: Some(message + &since),
        last_heartbeat_time: Some(whole_seconds(now.server).into()),
        last_transition_time: Some(transition.into()),
    }
}

/// The condition as another manager has written it.
fn theirs(shown: &ObservedCondition) -> NodeCondition {
    NodeCondition {
        type_: shown.kind.clone(),
        status: shown.status.clone(),
        reason: Some(shown.reason.clone()),
        message: Some(shown.message.clone()),
        last_heartbeat_time: shown.last_heartbeat.map(Time::from),
        last_transition_time: shown.last_transition.map(Time::from),
    }
}

fn difference(written: &NodeCondition, node: &ObservedNode) -> Difference {
    let Some(shown) = node.facts.condition(&written.type_) else { return Difference::Status };
    let transition = written.last_transition_time.clone().map(ServerTime::from);
    // A condition of a profile shows a problem only together with one of nodevigil's own.
    let is_problem =
        ConditionType::by_name(&written.type_).is_some_and(|kind| kind.problem_status().name() == written.status);
    let is_other_reason = Some(&shown.reason) != written.reason.as_ref();
    if shown.status != written.status || shown.last_transition != transition || (is_problem && is_other_reason) {
        Difference::Status
    } else if is_other_reason || Some(&shown.message) != written.message.as_ref() {
        Difference::Text
    } else {
        Difference::None
    }
}

#[cfg(test)]
mod tests;
