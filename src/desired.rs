//! Verdicts → what our Node should have: the conditions in every dialect, the taints, and what is worth an event.
//!
//! Pure. A type of another dialect has a transition time of its own, so there is a memory for each ([`Desired`]).

mod dialects;
pub mod stopped;
pub mod taints;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use dialects::{Dialect, PublishedType, TYPES, TypeSpec};

use crate::{
    clock::Now,
    health::{
        ConditionType, MAX_MESSAGE_BYTES, Reason, Severity, Status, Stored, Verdict, bounded,
    },
};

/// One condition as it should stand on the Node; the heartbeat time is the publisher's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The condition's type.
    pub r#type: PublishedType,
    /// The condition's status.
    pub status: Status,
    /// The reason's name.
    pub reason: String,
    /// At most [`MAX_MESSAGE_BYTES`].
    pub message: String,
    /// When the status last flipped.
    pub last_transition_time: Timestamp,
}

/// Everything that one apply carries: never a delta, so that one apply brings the Node up to date after any outage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// The complete set of our conditions.
    pub conditions: Vec<Condition>,
    /// The annotation that says that we stand down, and for whom; `None` takes it away.
    pub standing_down: Option<String>,
}

/// What of all that is found is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The dialects, at least one.
    pub dialects: Vec<Dialect>,
    /// Conditions that are not told: under no name, as no taint, as no event.
    pub untold: Vec<ConditionType>,
    /// Nothing is written at all: what would be is shown.
    pub shadow: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            dialects: vec![Dialect::Native],
            untold: Vec::new(),
            shadow: false,
        }
    }
}

impl Choice {
    /// Whether this condition may be told.
    pub fn tells(&self, kind: ConditionType) -> bool {
        !self.untold.contains(&kind)
    }

    /// Whether this type is one that we publish.
    pub fn publishes(&self, r#type: PublishedType) -> bool {
        let spec = r#type.spec();
        self.dialects.contains(&spec.dialect) && spec.fed_by.iter().any(|kind| self.tells(*kind))
    }
}

/// A change that is worth an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Of which condition.
    pub kind: ConditionType,
    /// Its status on the Node from now on.
    pub status: Status,
    /// Whether it is about something to look at: a problem, or a hint of one.
    pub warning: bool,
    /// The reason's name.
    pub reason: &'static str,
    /// The condition's message.
    pub message: String,
}

/// What a type said last.
#[derive(Debug, Clone)]
struct Said {
    status: Status,
    reason: String,
    since: Timestamp,
}

#[derive(Debug, Clone, Default)]
struct Memory {
    said: Option<Said>,
    /// Whether what we say is tied to what the Node shows: by a record taken over, or by our own apply.
    anchored: bool,
    /// Whether the status has flipped since, after which an older record has nothing to teach.
    flipped: bool,
    /// Which reason was told of that waits to be shown.
    next: Option<Reason>,
}

/// What the Node should have, and since when each type has said what it says.
#[derive(Debug)]
pub struct Desired {
    choice: Choice,
    memories: Vec<Memory>,
    told: Vec<Condition>,
}

impl Desired {
    /// Nothing yet.
    pub fn new(choice: Choice) -> Self {
        Self {
            choice,
            memories: vec![Memory::default(); TYPES.len()],
            told: Vec::new(),
        }
    }

    /// What is published of all that is found.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Takes back what an earlier life published, so that a restart moves no transition time and repeats no event.
    pub fn adopt(&mut self, r#type: PublishedType, stored: &Stored) {
        let memory = &mut self.memories[r#type as usize];
        if memory.flipped {
            return;
        }
        memory.anchored = true;
        memory.said = Some(Said {
            status: stored.status,
            reason: stored.reason.clone(),
            since: stored.since,
        });
    }

    /// The Node shows what we wish.
    pub fn published(&mut self) {
        for memory in &mut self.memories {
            memory.anchored = true;
        }
    }

    /// The Node was made anew under our name: none of its types has a past.
    pub fn node_is_new(&mut self) {
        self.memories.fill(Memory::default());
    }

    /// Takes the verdicts in; says what is worth an event.
    pub fn update<'a>(
        &mut self,
        verdicts: impl Iterator<Item = (ConditionType, &'a Verdict)>,
        now: Now,
    ) -> Vec<Transition> {
        let verdicts: Vec<_> = verdicts.collect();
        let mut transitions = Vec::new();
        self.told.clear();
        for spec in TYPES {
            let fed = |kind: &ConditionType| {
                spec.fed_by.contains(kind) && (spec.is_native() || self.choice.tells(*kind))
            };
            let feeds: Vec<_> = verdicts.iter().filter(|(kind, _)| fed(kind)).collect();
            let Some((kind, worst)) = worst(&feeds) else {
                continue;
            };
            let memory = &mut self.memories[spec.published as usize];
            if spec.is_native() && self.choice.tells(kind) {
                transitions.extend(memory.transition(kind, spec.show(worst.reason), worst));
            }
            let (reason, message) = counting(spec, worst);
            let is_aside = reason != worst.reason;
            let newest = feeds.iter().map(|(_, v)| v.since).max();
            let since = if spec.is_native() {
                worst.since
            } else {
                memory.since(spec.show(reason), newest.filter(|_| !is_aside), now)
            };
            let condition = Condition {
                r#type: spec.published,
                status: spec.show(reason),
                reason: reason.as_str().to_owned(),
                message: bounded(message, MAX_MESSAGE_BYTES),
                last_transition_time: since,
            };
            memory.keep(&condition);
            memory.next = worst.next;
            if spec.is_native() || self.choice.publishes(spec.published) {
                self.told.push(condition);
            }
        }
        transitions
    }

    /// All that is found, under its own name and in the dialects that were asked for: for the ledger and for `status`.
    pub fn told(&self) -> &[Condition] {
        &self.told
    }

    /// The conditions to publish; `None` while there is nothing to say yet, and in the shadow always.
    pub fn conditions(&self) -> Option<Vec<Condition>> {
        if self.choice.shadow || self.told.is_empty() {
            return None;
        }
        let published = self.told.iter().filter(|c| self.choice.publishes(c.r#type));
        Some(published.cloned().collect())
    }
}

impl Memory {
    fn transition(
        &self,
        kind: ConditionType,
        shown: Status,
        verdict: &Verdict,
    ) -> Option<Transition> {
        if let Some(next) = verdict.next.filter(|next| self.next != Some(*next))
            && self.said.as_ref().is_some_and(|said| said.status == shown)
        {
            let mut others = verdict.others.iter();
            let named = others.find(|other| other.reason == next)?;
            return Some(Transition {
                kind,
                status: shown,
                warning: true,
                reason: next.as_str(),
                message: bounded(&named.message, MAX_MESSAGE_BYTES),
            });
        }
        let reason = verdict.reason.as_str();
        let warning =
            verdict.status == Status::False || verdict.reason.severity() == Severity::Warning;
        let was_hint = |said: &Said| {
            Reason::parse(&said.reason).is_some_and(|r| r.severity() == Severity::Warning)
        };
        let worth = match &self.said {
            // That all is well, or not known yet, is no news of a Node that we see for the first time.
            None => warning,
            Some(said) if said.status != shown => true,
            // What waited to be shown was told of when it came.
            Some(_) if self.next == Some(verdict.reason) => false,
            Some(said) => said.reason != reason && (warning || was_hint(said)),
        };
        worth.then(|| Transition {
            kind,
            status: shown,
            warning,
            reason,
            message: bounded(&verdict.message, MAX_MESSAGE_BYTES),
        })
    }

    /// When this type's status last flipped. A type that is new on the Node starts now, whatever its condition's age:
    /// a controller that waits, waits from here.
    fn since(&self, status: Status, newest: Option<Timestamp>, now: Now) -> Timestamp {
        match &self.said {
            Some(said) if said.status == status => said.since,
            Some(said) => newest.filter(|at| *at > said.since).unwrap_or(now.wall),
            None => now.wall,
        }
    }

    fn keep(&mut self, condition: &Condition) {
        let flips = (self.said.as_ref()).is_some_and(|said| said.status != condition.status);
        self.flipped |= flips && self.anchored;
        self.said = Some(Said {
            status: condition.status,
            reason: condition.reason.clone(),
            since: condition.last_transition_time,
        });
    }
}

/// The reason and message that a type shows: one that counts under its name is not hidden by one that does not.
fn counting<'a>(spec: &TypeSpec, verdict: &'a Verdict) -> (Reason, &'a str) {
    let counts = |reason: Reason| spec.show(reason) == spec.bad;
    let other = verdict.others.iter().find(|other| counts(other.reason));
    match other {
        Some(other) if !counts(verdict.reason) => (other.reason, &other.message),
        _ => (verdict.reason, &verdict.message),
    }
}

/// What shows of several verdicts: the first of the worst.
fn worst<'a>(feeds: &[&(ConditionType, &'a Verdict)]) -> Option<(ConditionType, &'a Verdict)> {
    let rank = |status| match status {
        Status::False => 0,
        Status::Unknown => 1,
        Status::True => 2,
    };
    let worst = feeds.iter().min_by_key(|(_, v)| rank(v.status))?;
    Some(**worst)
}

/// What a stored type of another dialect says of the condition that fed it: for a Node that has it under no name of its
/// own. `None`: it says nothing of it, because it tells of some reasons alone.
pub fn in_native(r#type: PublishedType, stored: &Stored) -> Option<(ConditionType, Stored)> {
    let spec = r#type.spec();
    if !spec.only.is_empty() && stored.status != spec.bad {
        return None;
    }
    if Reason::parse(&stored.reason).is_some_and(|reason| spec.except.contains(&reason)) {
        return None;
    }
    let kind = Reason::parse(&stored.reason)
        .and_then(Reason::condition)
        .filter(|kind| spec.fed_by.contains(kind))
        .unwrap_or(spec.fed_by[0]);
    let status = spec.turn(stored.status);
    let native = Stored {
        status,
        ..stored.clone()
    };
    Some((kind, native))
}

#[cfg(test)]
mod tests;
