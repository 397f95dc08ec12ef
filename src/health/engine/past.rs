//! A condition's past: what an earlier life of the agent has told, and what of it counts no longer.

use std::time::Duration;

use super::{
    super::{Stored, Written, damping::Remembered, problems::Problem},
    Health, Status, Verdict, message,
};
use crate::clock::Now;

impl Health {
    /// Takes back what an earlier life of the agent published, so that a restart neither flips the status nor moves
    /// its transition time. Late is fine: a record that comes after the first finding still gives its time.
    ///
    /// A problem that cannot outlive the boot in which it was `written` is not taken back: what is found now decides.
    pub fn adopt(&mut self, stored: Stored, written: Written) {
        if self.flipped {
            return;
        }
        self.anchored = true;
        let (verdict, is_known) = stored.verdict(self.kind);
        let stands = verdict.status == Status::False
            && (written == Written::InThisBoot || verdict.reason.survives_boot());
        let is_taken = self.verdict.as_ref().is_none_or(|ours| {
            // Its reason too: it may remember what nobody can see any more, such as who stopped the kubelet. The next
            // finding is judged in its light.
            ours.status == verdict.status
                // A problem that was published ends by a healthy spell, not by our having been away; and not to have
                // known for a moment is no reason to take health back.
                || stands
                || (verdict.status == Status::True && ours.status == Status::Unknown)
        });
        if !is_taken {
            return;
        }
        message::without_additions(&verdict.message).clone_into(&mut self.sentence);
        if stands {
            self.problems
                .adopt(verdict.reason, &self.sentence, !is_known);
        }
        self.verdict = Some(verdict);
    }

    /// What damping must not forget over a restart of the agent.
    pub(in crate::health) fn remembered(&self) -> Option<Remembered> {
        self.damping.remembered()
    }

    /// What an earlier life of the agent remembered, in this boot; to be told before anything is found.
    pub(in crate::health) fn remember(&mut self, remembered: &Remembered, now: Now) {
        self.damping.remember(remembered, now.uptime);
    }

    /// The Node shows our verdict.
    pub(in crate::health) fn published(&mut self) {
        self.anchored = true;
    }

    /// The Node was made anew under our name: what befell before it was born is no longer its story, unless it is a fact
    /// that lasts. (A kubelet crash-loops by design until `kubeadm join`, and has no configuration; its Node must not be
    /// born with that.)
    pub(in crate::health) fn node_is_new(&mut self) {
        self.problems.begin_anew();
        self.damping.forget();
        let failed = |v: &Verdict| v.status == Status::False;
        let lasts = self.problems.any(Problem::is_fact);
        if self.words.is_empty() || (!lasts && self.verdict.as_ref().is_some_and(failed)) {
            self.verdict = None;
        }
    }

    /// See [`crate::health::Conditions::withdraw`].
    pub(in crate::health) fn withdraw(&mut self, check: &'static str) -> bool {
        let before = self.words.len();
        self.words.retain(|(name, _)| *name != check);
        self.problems.withdraw(check);
        let was_said = self.words.len() != before || self.verdict.is_some();
        if !self.words.is_empty() || !was_said {
            return false;
        }
        *self = Self {
            damping: self.damping.clone(),
            ..Self::new(self.kind, Duration::ZERO)
        };
        true
    }
}
