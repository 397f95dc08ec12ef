//! The problems of one condition: which are there, which are over, which is shown.

use std::{cmp::Ordering, time::Duration};

use super::{Finding, Reason, Status, timing::Leave};

/// Something that stands for `False`, from when it is found until its cause has cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    /// What the check said of it last.
    pub(super) message: String,
    /// The check that names it; `None`: an earlier life of the agent did, and no check has yet.
    check: Option<&'static str>,
    /// Whether the check's last word names it.
    pub(super) present: bool,
    /// Since when the check has known that it is gone (uptime).
    gone_since: Option<Duration>,
    /// Its place in the check's word: the check knows what comes of what.
    place: usize,
    /// Whether it only stands for a reason that this version does not know.
    stand_in: bool,
}

impl Problem {
    /// An order that does not depend on history.
    fn cmp_place(&self, other: &Self) -> Ordering {
        let by_name = || self.reason.as_str().cmp(other.reason.as_str());
        let place = self.place.cmp(&other.place).then_with(by_name);
        place.then_with(|| self.check.cmp(&other.check))
    }
}

/// All of them, each reason once a check: no more than there are reasons and checks.
#[derive(Debug, Clone, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    /// The whole word of one check. `spell`: how long a problem must be gone before another one is shown in its place.
    pub(super) fn hear(
        &mut self,
        check: &'static str,
        findings: &[Finding],
        spell: Duration,
        uptime: Duration,
    ) {
        let certain = findings
            .iter()
            .all(|finding| finding.reason.status() != Status::Unknown);
        let bad = |finding: &&Finding| finding.reason.status() == Status::False;
        let named = findings.iter().any(|finding| bad(&finding));
        self.0.retain_mut(|problem| {
            if problem.check.is_some_and(|other| other != check) {
                return true;
            }
            if findings.iter().any(|f| f.reason == problem.reason) {
                return true;
            }
            let refined = match problem.reason.leave() {
                Leave::Refined => problem.present,
                Leave::RefinedBy(reasons) => findings.iter().any(|f| reasons.contains(&f.reason)),
                _ => false,
            };
            problem.present = false;
            problem.gone_since = certain.then(|| problem.gone_since.unwrap_or(uptime));
            // Failing to know clears nothing, and neither does another check's word.
            !(named && (refined || problem.stand_in))
        });
        for (index, finding) in findings.iter().filter(bad).enumerate() {
            let earlier = findings.iter().filter(bad).take(index);
            let again = earlier.clone().any(|f| f.reason == finding.reason);
            self.found(check, finding, (index, again));
        }
        if self.any_present() {
            self.0.retain(|problem| {
                let gone_for = problem.gone_since.map(|at| uptime.saturating_sub(at));
                gone_for.is_none_or(|time| time < spell)
            });
        }
    }

    /// `again`: the same word has named the reason before, with another sentence.
    fn found(&mut self, check: &'static str, finding: &Finding, (place, again): (usize, bool)) {
        let is_it = |p: &&mut Problem| {
            p.reason == finding.reason && p.check.is_none_or(|owner| owner == check)
        };
        match self.0.iter_mut().find(is_it) {
            Some(problem) if again => {
                problem.message.push_str("; ");
                problem.message.push_str(&finding.message);
            }
            Some(problem) => {
                problem.message.clone_from(&finding.message);
                (problem.check, problem.place) = (Some(check), place);
                (problem.present, problem.stand_in) = (true, false);
                problem.gone_since = None;
            }
            None => self.0.push(Problem {
                reason: finding.reason,
                message: finding.message.clone(),
                check: Some(check),
                present: true,
                gone_since: None,
                place,
                stand_in: false,
            }),
        }
    }

    /// What an earlier life has told; it lasts until a check knows better.
    pub(super) fn adopt(&mut self, reason: Reason, message: &str, stand_in: bool) {
        if self.0.iter().all(|problem| problem.reason != reason) {
            self.0.push(Problem {
                reason,
                message: message.to_owned(),
                check: None,
                present: false,
                gone_since: None,
                place: 0,
                stand_in,
            });
        }
    }

    /// The worst of those that `counts`; of equals the one that is `shown`, then one that is there.
    pub(super) fn worst(
        &self,
        shown: Option<Reason>,
        counts: impl Fn(&Problem) -> bool,
    ) -> Option<&Problem> {
        self.0.iter().filter(|p| counts(p)).max_by(|a, b| {
            let key = |p: &Problem| (p.reason.severity(), Some(p.reason) == shown, p.present);
            key(a).cmp(&key(b)).then_with(|| b.cmp_place(a))
        })
    }

    /// What else is not over, the worst first, each as a sentence.
    pub(super) fn others(&self, shown: &Problem) -> Vec<String> {
        let is_other = |p: &&Problem| (p.reason, p.check) != (shown.reason, shown.check);
        let mut others: Vec<&Problem> = self.0.iter().filter(is_other).collect();
        others.sort_by(|a, b| {
            let worse = b.reason.severity().cmp(&a.reason.severity());
            worse.then_with(|| a.cmp_place(b))
        });
        let sentence = |p: &&Problem| format!("{}: {}", p.reason.as_str(), p.message);
        others.iter().map(sentence).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn any_present(&self) -> bool {
        self.0.iter().any(|problem| problem.present)
    }

    /// Forgets what is gone.
    pub(super) fn forget_gone(&mut self) {
        self.0.retain(|problem| problem.present);
    }
}
