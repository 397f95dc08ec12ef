//! A condition at rest: what would change nothing need not be judged.

use super::{Asking, Finding, Health, Status};

impl Health {
    /// Whether [`Health::observe`] would change nothing, were it told this while nobody asks for quiet.
    pub(in crate::health) fn is_at_rest(&self, check: &str, findings: &[Finding]) -> bool {
        let is_untold = self.words.is_empty() && findings.is_empty();
        is_untold || self.is_calm(check, findings, Asking::default())
    }

    /// Whether [`Health::withdraw`] would change nothing.
    pub(in crate::health) fn is_withdrawn(&self, check: &str) -> bool {
        let has_word = self.words.iter().any(|(name, _)| *name == check);
        let is_silent = !has_word && !self.problems.are_of(check);
        is_silent && (!self.words.is_empty() || self.verdict.is_none())
    }

    /// Whether nothing can come of it: all is well, it was before, the check says what it said, and nobody waits for anything.
    /// So it is at nearly every turn of a healthy node, and a verdict that is made anew costs some microseconds.
    pub(super) fn is_calm(&self, check: &str, findings: &[Finding], asking: Asking<'_>) -> bool {
        let good = |finding: &Finding| finding.reason.status() == Status::True;
        let said = || {
            let word = self.words.iter().find(|(name, _)| *name == check);
            word.is_some_and(|(_, word)| word == findings && word.iter().all(good))
        };
        let quiet = asking.stand_down.is_none() && asking.hold.is_none() && self.judge_at.is_none();
        let well = self
            .verdict
            .as_ref()
            .is_some_and(|v| v.status == Status::True);
        quiet
            && well
            && self.all_good
            && self.problems.is_empty()
            && !self.damping.is_bad()
            && (findings.is_empty() || said())
    }
}
