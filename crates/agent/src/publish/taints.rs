//! The taints of conditions that show a problem. Decides what the Node's list of taints should be; nothing here does I/O or reads a clock.
//!
//! - A taint is set when its condition shows a problem, and taken away when the condition is healthy. `Unknown` changes nothing.
//! - A reason that was found by sampling taints when monitors have reported a problem for a minute. A short hang, which is shown for some
//!   time after its end, taints nothing.
//! - The list of taints is written as a whole, so others' taints stay as they were read, and the write fails if the Node has changed
//!   since. A taint of ours that another writer drops, as Karpenter 1.15 may with its taint `karpenter.sh/rebooting`, is set again.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::{
    clock::{Now, whole_seconds},
    conditions::Step,
    connection::Failure,
    observed::ObservedNode,
    pacing::{Backoff, Budget},
};
use crate::{
    condition::{ConditionType, Desired, Reason, Uptime},
    settings::TaintSettings,
};

/// With this prefix cluster-autoscaler does not take the taint for one that all nodes of the group have
/// (<https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md>, status taints).
pub const PREFIX: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-";
/// How long a problem that was found by sampling must have been reported.
const SAMPLED_AFTER: Duration = Duration::from_mins(1);
/// The longest time between two attempts that the API server refuses.
const LONGEST_DELAY: Duration = Duration::from_mins(10);

/// Whether a taint is nodevigil's.
pub fn is_ours(taint: &Taint) -> bool {
    taint.key.starts_with(PREFIX)
}

/// A merge patch that replaces the Node's list of taints, if the Node has not changed since it was read.
pub fn patch(node: &ObservedNode, taints: &[Taint]) -> Value {
    json!({"metadata": {"resourceVersion": node.version}, "spec": {"taints": taints}})
}

/// Which taints the Node should have, and what was tried.
#[derive(Debug)]
pub struct Tainter {
    settings: TaintSettings,
    /// Since when each condition has a problem, and its [`flips`](crate::condition::Condition::flips): others mean another problem.
    problems: HashMap<ConditionType, (u32, Uptime)>,
    backoff: Backoff,
    /// How often the taints may be written: another writer may take ours away each time.
    changes: Budget,
}

/// What a condition asks of its taint.
enum Wish {
    /// It should be there from that time on, with the reason as its value.
    Set(Uptime, String),
    Keep,
    Remove,
}

impl Tainter {
    pub fn new(settings: TaintSettings) -> Self {
        let changes = Budget::new(10, Duration::from_mins(5));
        Self { settings, problems: HashMap::new(), backoff: Backoff::new(LONGEST_DELAY), changes }
    }

    /// Decides what to do next with the taints of a Node that the engine has adopted.
    pub fn step(&mut self, desired: &Desired, node: &ObservedNode, now: Now) -> Step {
        let (taints, due) = self.wanted(desired, &node.taints, now);
        if taints == node.taints {
            Step::Wait { until: due.unwrap_or(Uptime::MAX) }
        } else if let Some(until) = self.backoff.until(now.uptime) {
            Step::Wait { until }
        } else if self.changes.take(now.uptime) {
            Step::Taint(patch(node, &taints))
        } else {
            Step::Wait { until: self.changes.room_at(now.uptime) }
        }
    }

    /// Takes in how a write ended. One that was not answered is paced by `ApiConnection`.
    pub fn answered(&mut self, failure: Option<Failure>, now: Now) {
        match failure {
            None => _ = self.backoff.succeeded(),
            Some(Failure::Unanswered) => {}
            Some(_) => self.backoff.failed(now.uptime, Duration::ZERO),
        }
    }

    /// The taints that the Node should have now, and when the next one is due.
    fn wanted(&mut self, desired: &Desired, present: &[Taint], now: Now) -> (Vec<Taint>, Option<Uptime>) {
        let effect = format!("{:?}", self.settings.effect);
        let kinds: Vec<_> = self.settings.conditions.iter().copied().collect();
        let wishes: Vec<_> = kinds.into_iter().map(|kind| (key(kind), self.wish(kind, desired, now))).collect();
        let is_kept = |taint: &&Taint| {
            let is_wished = |(key, wish): &(String, Wish)| *key == taint.key && !matches!(wish, Wish::Remove);
            !is_ours(taint) || (taint.effect == effect && wishes.iter().any(is_wished))
        };
        let mut taints: Vec<_> = present.iter().filter(is_kept).cloned().collect();
        let mut due = None;
        for (key, wish) in wishes {
            let Wish::Set(at, reason) = wish else { continue };
            if taints.iter().any(|taint| taint.key == key) {
                continue; // with the reason of the time when it was set
            }
            if now.uptime < at {
                due = Some(due.map_or(at, |due: Uptime| due.min(at)));
                continue;
            }
            let time_added = Some(Time(whole_seconds(now.server)));
            taints.push(Taint { key, value: Some(reason), effect: effect.clone(), time_added });
        }
        (taints, due)
    }

    fn wish(&mut self, kind: ConditionType, desired: &Desired, now: Now) -> Wish {
        if desired.without_taints {
            return Wish::Remove;
        }
        let condition = desired.conditions.iter().find(|condition| condition.kind == kind);
        let Some(condition) = condition.filter(|shown| shown.is_problem() && !desired.ending.contains(&kind)) else {
            self.problems.remove(&kind);
            let is_healthy = condition.is_some_and(|shown| shown.status == kind.healthy_status());
            return if is_healthy { Wish::Remove } else { Wish::Keep };
        };
        let (flips, since) = self.problems.entry(kind).or_insert((condition.flips, now.uptime));
        if *flips != condition.flips {
            (*flips, *since) = (condition.flips, now.uptime);
        }
        let is_fact = Reason::by_name(&condition.reason).is_some_and(|reason| !reason.spec().sampled);
        let at = if is_fact { *since } else { *since + SAMPLED_AFTER };
        Wish::Set(at, condition.reason.clone())
    }
}

/// The key of a condition's taint. Pods tolerate it by this name: it never changes.
fn key(kind: ConditionType) -> String {
    let name = match kind {
        ConditionType::KubeletHealthy => "kubelet-unhealthy",
        ConditionType::KubeletConfigValid => "kubelet-config-invalid",
        ConditionType::ContainerRuntimeHealthy => "container-runtime-unhealthy",
        ConditionType::NodeMemoryHealthy => "memory-unhealthy",
        ConditionType::MemoryExhaustionImminent => "memory-exhaustion-imminent",
        ConditionType::NodeStorageHealthy => "storage-unhealthy",
        ConditionType::NodeKernelHealthy => "kernel-unhealthy",
        ConditionType::NodeBootstrapped => "not-bootstrapped",
    };
    format!("{PREFIX}{name}")
}

#[cfg(test)]
mod tests;
