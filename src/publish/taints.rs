//! The taints of conditions that show a problem. Decides what the Node's list of taints should be; nothing here does I/O or reads a clock.
//!
//! - A taint is set when its condition shows a problem, and taken away when the condition is healthy. `Unknown` changes nothing.
//! - A reason that was found by sampling taints when monitors have reported a problem for a minute. A short hang, which is shown for some
//!   time after its end, taints nothing.
//! - The list of taints is written as a whole, so others' taints stay as they were read, and the write fails if the Node has changed
//!   since. A taint of ours that another writer drops, as Karpenter 1.15 may with its taint `karpenter.sh/rebooting`, is set again.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::clock::whole_seconds;
use super::observed::{ObservedNode, TAINT_PREFIX, is_ours};
use super::pacing::Backoff;
use super::step::{Request, Step};
use crate::condition::{Condition, ConditionType, Desired, Reason, Uptime};
use crate::host::clock::Now;
use crate::settings::TaintSettings;

/// How long a problem that was found by sampling must have been reported.
const SAMPLED_AFTER: Duration = Duration::from_mins(1);
/// The longest time between two writes that the API server refuses or another writer undoes.
const LONGEST_DELAY: Duration = Duration::from_mins(10);

/// A merge patch that replaces the Node's list of taints, if the Node has not changed since it was read.
pub fn patch(node: &ObservedNode, taints: &[Taint]) -> Value {
    json!({"metadata": {"resourceVersion": node.version}, "spec": {"taints": taints}})
}

/// Which taints the Node should have, and what was tried.
#[derive(Debug)]
pub struct Tainter {
    /// As in `[taints] effect`.
    effect: String,
    /// The conditions that are listed there.
    kinds: BTreeSet<ConditionType>,
    /// Since when monitors have reported a problem of each condition.
    problems: HashMap<ConditionType, Uptime>,
    pub backoff: Backoff,
}

impl Tainter {
    pub fn new(settings: &TaintSettings) -> Self {
        let kinds = settings.conditions.iter().filter_map(|name| ConditionType::by_name(name)).collect();
        let effect = format!("{:?}", settings.effect);
        Self { effect, kinds, problems: HashMap::new(), backoff: Backoff::new(LONGEST_DELAY) }
    }

    /// What to do now about the taints of a Node that the engine has adopted.
    pub fn step(&mut self, desired: &Desired, node: &ObservedNode, now: Now) -> Step {
        let (taints, due) = self.wanted(desired, &node.taints, now);
        match self.backoff.until(now.uptime) {
            _ if taints == node.taints => Step::WaitUntil(due),
            Some(until) => Step::WaitUntil(until),
            None => Step::Send(Request::Taint(patch(node, &taints))),
        }
    }

    /// Takes in that a write ended. Even one that succeeded delays the next one, as another writer may undo each.
    pub fn answered(&mut self, now: Now) {
        self.backoff.failed(now.uptime, Duration::ZERO);
    }

    /// The taints that the Node should have now, and when the next one is due.
    fn wanted(&mut self, desired: &Desired, present: &[Taint], now: Now) -> (Vec<Taint>, Uptime) {
        let is_ours_to_set =
            |taint: &Taint| taint.effect == self.effect && self.kinds.iter().any(|kind| key(*kind) == taint.key);
        let mut taints: Vec<_> =
            present.iter().filter(|taint| !is_ours(taint) || is_ours_to_set(taint)).cloned().collect();
        let mut due = Uptime::MAX;
        for kind in &self.kinds {
            let key = key(*kind);
            let condition = desired.conditions.iter().find(|condition| condition.kind == *kind);
            let is_problem = condition.is_some_and(Condition::is_problem) && !desired.ending.contains(kind);
            let Some(condition) = condition.filter(|_| is_problem && !desired.without_taints) else {
                self.problems.remove(kind);
                if desired.without_taints || condition.is_some_and(|shown| shown.status == kind.healthy_status()) {
                    taints.retain(|taint| taint.key != key);
                }
                continue;
            };
            // It may have ended and come back between two steps.
            let since = (*self.problems.entry(*kind).or_insert(now.uptime)).max(condition.since);
            let is_sampled = Reason::of(*kind, &condition.reason).is_none_or(|reason| reason.spec().sampled);
            let at = since + if is_sampled { SAMPLED_AFTER } else { Duration::ZERO };
            if taints.iter().any(|taint| taint.key == key) {
                continue; // with the reason of the time when it was set
            }
            if now.uptime < at {
                due = due.min(at);
                continue;
            }
            let (value, time_added) = (Some(condition.reason.clone()), Some(whole_seconds(now.server).into()));
            taints.push(Taint { key, value, effect: self.effect.clone(), time_added });
        }
        (taints, due)
    }
}

/// The key of a condition's taint.
pub fn key(kind: ConditionType) -> String {
    format!("{TAINT_PREFIX}{}", kind.taint())
}

#[cfg(test)]
mod tests;
