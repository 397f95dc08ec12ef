//! What is left out of an apply, or kept in it, where the API server refuses the condition of a custom check.

use std::time::Duration;

use k8s_openapi::api::core::v1::NodeCondition;

use super::{Reconciler, Request, theirs};
use crate::condition::{ConditionType, Uptime};
use crate::host::clock::Now;

/// When the condition of a custom check that the API server refuses is tried again. Of several each is tried alone, so far apart, because one
/// of them may be the reason.
const REFUSED_FOR: Duration = Duration::from_mins(10);
const TRIED_APART: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Takes in that an apply was refused, and whether another one may be sent at once. A policy that does not list the type of a custom
    /// check must not hold nodevigil's own back: for a time those are left out that the Node does not have, and then those are kept that the
    /// settings no longer name.
    pub fn refused(&mut self, request: &Request, why: &str, now: Now) -> bool {
        let Request::Apply(applied) = request else { return false };
        self.sender.types.values_mut().for_each(|state| state.applied = None);
        let (facts, conditions) =
            (self.node(), applied.status.iter().flat_map(|status| status.conditions.iter().flatten()));
        let is_on_node = |condition: &NodeCondition| {
            let shown = facts.and_then(|facts| facts.condition(&condition.type_));
            shown.is_some_and(|shown| theirs(shown) == *condition)
        };
        let custom = conditions.filter_map(|condition| {
            let kind = ConditionType::by_name(&condition.type_)?;
            (matches!(kind, ConditionType::Custom(_)) && !is_on_node(condition)).then(|| kind.name())
        });
        let mut custom: Vec<_> = custom.collect();
        let was_refused = |name: &&str| self.sender.types.get(name).is_some_and(|state| state.refused.is_some());
        let is_known = custom.iter().any(was_refused);
        if is_known {
            custom.retain(was_refused);
        }
        self.sender.takes_rest &= is_known || self.sender.keeps_until > Uptime::ZERO;
        for (index, name) in (1..).zip(&custom) {
            let wait = if custom.len() == 1 { REFUSED_FOR } else { TRIED_APART * index };
            self.sender.types.entry(name).or_default().refused = Some((why.to_owned(), now.uptime + wait));
        }
        let is_any_left_out = !custom.is_empty() || self.keep_obsolete(now);
        if !is_any_left_out {
            // The rest is refused too: it is not for them.
            self.sender.types.values_mut().for_each(|state| state.refused = None);
            (self.sender.keeps_until, self.sender.takes_rest) = (Uptime::ZERO, false);
        }
        is_any_left_out
    }

    fn keep_obsolete(&mut self, now: Now) -> bool {
        let is_tried = now.uptime < self.sender.keeps_until;
        let is_any = self.node.as_ref().is_some_and(|node| self.sender.obsolete(node).next().is_some());
        if !is_tried && is_any {
            self.sender.keeps_until = now.uptime + REFUSED_FOR;
        }
        !is_tried && is_any
    }

    /// In a sentence for each, the conditions of custom checks that the API server refuses, while it takes the others.
    pub fn refused_types(&self) -> Option<String> {
        if !self.sender.takes_rest {
            return None;
        }
        let refused = self.sender.types.iter().filter_map(|(name, state)| {
            let (why, _) = state.refused.as_ref()?;
            Some(format!("the API server refuses condition {name} of a custom check: {why}; add the type to checkTypes in the policy"))
        });
        let kept = self
            .node
            .iter()
            .filter(|_| self.sender.keeps_until > Uptime::ZERO)
            .flat_map(|node| self.sender.obsolete(node));
        let kept = kept.map(|shown| {
            let kind = &shown.kind;
            format!("condition {kind} no longer belongs to a custom check, but cannot be removed: list the type in checkTypes until the Node no longer shows it")
        });
        Some(refused.chain(kept).collect::<Vec<_>>().join("; ")).filter(|all| !all.is_empty())
    }
}
