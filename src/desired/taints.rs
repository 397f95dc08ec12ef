//! Which taints the Node should have, and what to do to the list that it has: only our own are touched.
//!
//! `spec.taints` is one atomic list that many write. The list is therefore read just before, everything foreign in it
//! is kept as it stands, and the request that carries the new list proves that the old one was still the same.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::health::{ConditionType, Reason, Status, Verdict, timing::Enter};

/// The prefix that autoscalers leave out of their templates of a new node.
pub const DEFAULT_PREFIX: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-";
/// The longest value of a taint, which is that of a label.
const MAX_VALUE_BYTES: usize = 63;

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// No new pods.
    #[default]
    NoSchedule,
    /// New pods if there is no other place.
    PreferNoSchedule,
    /// No new pods, and those that run are deleted at once, without asking their disruption budgets.
    NoExecute,
}

impl Effect {
    /// Every effect.
    pub const ALL: &[Self] = &[Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Which conditions taint, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The conditions whose `False` is a taint.
    pub conditions: Vec<ConditionType>,
    /// What our keys begin with; ends with `/nodevigil-`.
    pub prefix: String,
    /// The effect of all of them.
    pub effect: Effect,
    /// How long a condition must have been `False` for a sampled reason until it taints.
    pub after: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            conditions: Vec::new(),
            prefix: DEFAULT_PREFIX.to_owned(),
            effect: Effect::default(),
            after: Duration::from_mins(1),
        }
    }
}

impl Rules {
    /// The key of a condition's taint.
    pub fn key(&self, kind: ConditionType) -> String {
        format!("{}{}", self.prefix, slug(kind))
    }

    /// Whether a taint with this key is ours.
    pub fn owns(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) || key.starts_with(DEFAULT_PREFIX)
    }
}

fn slug(kind: ConditionType) -> &'static str {
    match kind {
        ConditionType::KubeletHealthy => "kubelet-unhealthy",
        ConditionType::KubeletConfigValid => "kubelet-config-invalid",
        ConditionType::ContainerRuntimeHealthy => "container-runtime-unhealthy",
        ConditionType::NodeStorageHealthy => "storage-unhealthy",
        ConditionType::NodeKernelHealthy => "kernel-unhealthy",
        ConditionType::NodeMemoryHealthy => "memory-unhealthy",
        ConditionType::MemoryExhaustionImminent => "memory-exhaustion-imminent",
        ConditionType::NodeBootstrapped => "not-bootstrapped",
        ConditionType::NodevigilHealthy => "nodevigil-unhealthy",
    }
}

/// What a configured condition asks of its taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wished {
    /// The taint's key.
    pub key: String,
    /// What is to be with it.
    pub want: Want,
    /// Whether it is set only after [`Rules::after`]: the reason was found by samples, and may be over in a moment.
    pub waits: bool,
}

/// What is to be with a taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// It is to be there; set now, its value is this.
    Present(String),
    /// It is to be there if it is there: nothing new is known, or nothing new may be done.
    Kept,
    /// It is to be gone.
    Absent,
}

/// Who keeps the taints from following the verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppression {
    /// Nobody.
    None,
    /// Somebody's will: no new ones.
    NoNew,
    /// An explicit pause: none at all. They come back when it ends, if the problem is still there.
    Lifted,
}

/// What the taints should be.
pub fn wished<'a>(
    rules: &Rules,
    verdicts: impl Iterator<Item = (ConditionType, &'a Verdict)>,
    suppression: Suppression,
) -> Vec<Wished> {
    let verdicts: Vec<_> = verdicts.collect();
    let want = |kind: ConditionType| {
        if suppression == Suppression::Lifted {
            return Want::Absent;
        }
        let verdict = verdicts.iter().find(|(k, _)| *k == kind);
        match verdict.map(|(_, verdict)| verdict) {
            Some(v) if v.status == Status::True => Want::Absent,
            Some(v) if v.status == Status::False && suppression == Suppression::None => {
                Want::Present(value(v.reason.as_str()))
            }
            _ => Want::Kept,
        }
    };
    let conditions = rules.conditions.iter();
    conditions
        .map(|kind| Wished {
            key: rules.key(*kind),
            want: want(*kind),
            waits: verdicts
                .iter()
                .any(|(k, verdict)| k == kind && is_sampled(verdict.reason)),
        })
        .collect()
}

/// Whether several looks, or a time, make the reason: what the kernel, systemd or a file says is a fact.
fn is_sampled(reason: Reason) -> bool {
    matches!(reason.enter(), Enter::Sampled(_) | Enter::After(_))
}

/// A reason's name as a taint's value: a word, for a number would make some tools read it as one.
fn value(reason: &str) -> String {
    let end = reason.floor_char_boundary(MAX_VALUE_BYTES);
    reason[..end].to_owned()
}

/// The new list, if the `current` one (`spec.taints`, or null) is not as wished.
pub fn plan(rules: &Rules, wished: &[Wished], current: &Value, now: Timestamp) -> Option<Value> {
    let none = Vec::new();
    let current = current.as_array().unwrap_or(&none);
    let effect = rules.effect.as_str();
    let is = |taint: &Value, key: &str| taint["key"] == key && taint["effect"] == effect;
    let keeps = |taint: &&Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        let is_wished = |w: &Wished| w.want != Want::Absent && is(taint, &w.key);
        !rules.owns(key) || wished.iter().any(is_wished)
    };
    let mut new: Vec<Value> = current.iter().filter(keeps).cloned().collect();
    for wish in wished {
        let Want::Present(value) = &wish.want else {
            continue;
        };
        if !new.iter().any(|taint| is(taint, &wish.key)) {
            new.push(taint(&wish.key, value, effect, now));
        }
    }
    (new != *current).then_some(Value::Array(new))
}

fn taint(key: &str, value: &str, effect: &str, now: Timestamp) -> Value {
    let mut taint = Map::new();
    taint.insert("key".to_owned(), key.into());
    taint.insert("value".to_owned(), value.into());
    taint.insert("effect".to_owned(), effect.into());
    // Consumers that wait, wait on it; the API server does not set it.
    let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
    taint.insert("timeAdded".to_owned(), json!(time.to_string()));
    Value::Object(taint)
}

#[cfg(test)]
mod tests;
