//! When to look at our Node's taints, and what to do after a try: a read and a guarded write, which starts anew when
//! somebody else was faster.
//!
//! Pure. The watch shows the list as it was; if it is not as wished, a try reads it anew, for the plan must be made
//! from the list that is there.

use std::time::Duration;

use serde_json::Value;

use super::{
    api::{ApiError, TaintTry},
    backoff::Backoff,
};
use crate::{
    clock::Now,
    desired::taints::{Rules, Suppression, Want, Wished, plan, wished},
};

/// So often in a row somebody may have been faster; the next time it is a failure like others, and the gate's.
const MAX_RACES: u32 = 4;

/// What a try did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tainted {
    /// The list is this now.
    Done(Value),
    /// Somebody else has changed the Node in between.
    Raced,
}

/// The state of our taints.
#[derive(Debug)]
pub struct Tainter {
    rules: Rules,
    wished: Vec<Wished>,
    /// The taints that are asked for, and since when without a break (uptime). A restart of the agent begins anew: a taint
    /// that is there stays, and one that is not is late and never early.
    asked: Vec<(String, Duration)>,
    uid: Option<String>,
    /// `spec.taints`, as seen last.
    seen: Value,
    attempts: u64,
    in_flight: bool,
    races: u32,
    /// After a lost race: from when on (uptime) to try again.
    again_at: Duration,
    random: Backoff,
    error: Option<ApiError>,
    /// Why no try is made at all.
    refused: Option<&'static str>,
    said: bool,
}

impl Tainter {
    /// Nothing is known of the Node yet.
    pub fn new(rules: Rules, node: &str) -> Self {
        Self {
            // Until a check has said something, nothing of what is asked for comes or goes.
            wished: wished(&rules, std::iter::empty(), Suppression::NoNew),
            rules,
            asked: Vec::new(),
            uid: None,
            seen: Value::Null,
            attempts: 0,
            in_flight: false,
            races: 0,
            again_at: Duration::ZERO,
            random: Backoff::new(node, "taints"),
            error: None,
            refused: None,
            said: false,
        }
    }

    /// What conditions taint, and how.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the taints should be from now on.
    pub fn want(&mut self, wished: Vec<Wished>, now: Now) {
        let is_asked = |w: &&Wished| matches!(w.want, Want::Present(_));
        let asked = wished.iter().filter(is_asked).map(|wish| {
            let before = self.asked.iter().find(|(key, _)| *key == wish.key);
            (wish.key.clone(), before.map_or(now.uptime, |(_, at)| *at))
        });
        self.asked = asked.collect();
        self.wished = wished;
    }

    /// From when on (uptime) a taint that is asked for may be set.
    fn ripe_at(&self, wish: &Wished) -> Duration {
        let asked = self.asked.iter().find(|(key, _)| *key == wish.key);
        asked
            .filter(|_| wish.waits)
            .map_or(Duration::ZERO, |(_, at)| *at + self.rules.after)
    }

    /// What the taints should be now: what must wait is not set, and stays if it is there.
    fn ripe(&self, now: Now) -> Vec<Wished> {
        let ripe = |wish: &Wished| match wish.want {
            Want::Present(_) if self.ripe_at(wish) > now.uptime => Wished {
                want: Want::Kept,
                ..wish.clone()
            },
            _ => wish.clone(),
        };
        self.wished.iter().map(ripe).collect()
    }

    /// This is the Node, and these are its taints; `None`: there is none.
    pub fn seen(&mut self, node: Option<(&str, &Value)>) {
        let uid = node.map(|(uid, _)| uid);
        if self.uid.as_deref() != uid {
            self.uid = uid.map(str::to_owned);
        }
        self.seen = node.map_or(Value::Null, |(_, taints)| taints.clone());
    }

    /// Whether tries are made, and if not, why; `true` if that is to be said now.
    pub fn refuse(&mut self, why: Option<&'static str>) -> bool {
        self.refused = why;
        self.said &= why.is_some();
        let say = why.is_some() && !self.said && self.concerns_us();
        self.said |= say;
        say
    }

    /// Our own taints on the Node, as `KEY=VALUE:EFFECT`.
    pub fn shown(&self) -> impl Iterator<Item = String> {
        let taints = self.seen.as_array().into_iter().flatten();
        taints.filter_map(|taint| {
            let text = |name: &str| taint[name].as_str().unwrap_or_default();
            let ours = self.rules.owns(text("key"));
            ours.then(|| format!("{}={}:{}", text("key"), text("value"), text("effect")))
        })
    }

    /// The keys of those that are to come.
    pub fn to_add(&self) -> Vec<String> {
        self.missing().map(|w| w.key.clone()).collect()
    }

    fn missing(&self) -> impl Iterator<Item = &Wished> {
        let is_there = move |key: &str| {
            let mut shown = self.seen.as_array().into_iter().flatten();
            shown.any(|taint| taint["key"] == key && taint["effect"] == self.rules.effect.as_str())
        };
        self.wished
            .iter()
            .filter(move |w| matches!(w.want, Want::Present(_)) && !is_there(&w.key))
    }

    /// Why the taints are not as wished, if they cannot be.
    pub fn problem(&self) -> Option<String> {
        let refused = self.refused.filter(|_| self.concerns_us());
        refused
            .map(str::to_owned)
            .or_else(|| Some(self.error.as_ref()?.to_string()))
    }

    /// Whether taints are asked for, or are there.
    pub fn concerns_us(&self) -> bool {
        !self.rules.conditions.is_empty() || self.shown().next().is_some()
    }

    /// The try that is due now, if any; it is in flight until [`Tainter::done`].
    pub fn next(&mut self, now: Now) -> Option<TaintTry> {
        self.next_deadline(now).filter(|at| now.uptime >= *at)?;
        self.in_flight = true;
        self.attempts += 1;
        Some(TaintTry {
            attempt: self.attempts,
            uid: self.uid.clone()?,
            rules: self.rules.clone(),
            wished: self.ripe(now),
        })
    }

    /// When a try is due (uptime), unless what is known changes.
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        if self.in_flight || self.refused.is_some() || self.uid.is_none() {
            return None;
        }
        if plan(&self.rules, &self.ripe(now), &self.seen, now.wall).is_some() {
            return Some(self.again_at);
        }
        let ripe_at = self.missing().map(|wish| self.ripe_at(wish)).min()?;
        Some(ripe_at.max(self.again_at))
    }

    /// Whether a try is under way.
    pub fn is_busy(&self) -> bool {
        self.in_flight
    }

    /// Whatever was in flight will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        self.in_flight = false;
    }

    /// Takes in how a try ended: what the API server has to say to it, or nothing, if it was given up.
    pub fn done(
        &mut self,
        attempt: u64,
        result: Result<Tainted, ApiError>,
        now: Now,
    ) -> Option<Result<(), ApiError>> {
        if !self.in_flight || attempt != self.attempts {
            return None;
        }
        self.in_flight = false;
        let answer = match result {
            Ok(Tainted::Done(list)) => {
                self.seen = list;
                self.races = 0;
                Ok(())
            }
            Ok(Tainted::Raced) if self.races < MAX_RACES => {
                self.races += 1;
                self.again_at = now.uptime + self.random.step(1) * self.races / 4;
                return Some(Ok(()));
            }
            Ok(Tainted::Raced) => Err(ApiError::Refused {
                code: 422,
                message: "the Node's taints change all the time, or a policy refuses ours"
                    .to_owned(),
            }),
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.races = 0;
        }
        self.error = answer.clone().err();
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
