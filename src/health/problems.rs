//! The problems of one condition: which are there, which are over, which is shown.

use std::{cmp::Ordering, time::Duration};

use super::{Finding, Reason, Status, timing::Leave};

/// How long a reason of another class must have stood until it is shown under a `False` that stands.
pub const RECLASSED: Duration = Duration::from_mins(5);

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
    /// Whether it has entered: until then it leaves no trace when it goes.
    pub(super) entered: bool,
    /// When it entered (uptime), if it has. What an earlier life has told enters again when a check of this life names it: for how
    /// long it had stood nobody knows any more.
    entered_at: Option<Duration>,
    /// Since when the check has known that it is gone (uptime).
    gone_since: Option<Duration>,
    /// Its place in the check's word: the check knows what comes of what.
    place: usize,
    /// Whether it only stands for a reason that this version does not know.
    stand_in: bool,
}

impl Problem {
    /// The check whose word it lives and ends by.
    fn owner(&self) -> &'static str {
        self.check.unwrap_or(self.reason.check())
    }

    /// Whether the minimum hold and the memory of the last hour do not count for it.
    pub(super) fn is_fact(&self) -> bool {
        self.reason.enter().is_fact()
    }

    /// Until when (uptime) it waits to be the reason under a `False` that stands with a reason of another class: a consumer that
    /// matches reasons counts from the flip of the status. `None`: until a check names it.
    pub(super) fn waits_until(&self) -> Option<Duration> {
        self.entered_at.map(|at| at + RECLASSED)
    }

    /// What it says.
    pub(super) fn finding(&self) -> Finding {
        Finding {
            reason: self.reason,
            message: self.message.clone(),
        }
    }

    /// Since when its check has known that it is gone (uptime).
    pub(super) fn gone_since(&self) -> Option<Duration> {
        self.gone_since
    }

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
    /// The whole word of one check: what it says of its own problems, and of nobody else's.
    pub(super) fn hear(&mut self, check: &'static str, findings: &[Finding], uptime: Duration) {
        let certain = findings
            .iter()
            .all(|finding| finding.reason.status() != Status::Unknown);
        let bad = |finding: &&Finding| finding.reason.status() == Status::False;
        let named = findings.iter().any(|finding| bad(&finding));
        self.0.retain_mut(|problem| {
            if problem.owner() != check {
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
            self.found(check, finding, (index, again), uptime);
        }
        self.0.retain(|problem| problem.present || problem.entered);
    }

    /// Forgets those of a check that has just spoken that are over.
    pub(super) fn expire(&mut self, check: &str, is_over: impl Fn(&Problem) -> bool) {
        self.0
            .retain(|problem| problem.present || problem.owner() != check || !is_over(problem));
    }

    /// Those that are there and that `may` enter.
    pub(super) fn enter(&mut self, may: impl Fn(&Problem) -> bool, uptime: Duration) {
        let waiting = self.0.iter_mut().filter(|p| p.present && !p.entered);
        for problem in waiting {
            problem.entered = may(problem);
            problem.entered_at = Some(uptime);
        }
    }

    /// Forgets those of a check that watches nothing any more.
    pub(super) fn withdraw(&mut self, check: &str) {
        self.0.retain(|problem| problem.owner() != check);
    }

    /// Whether `check` has any.
    pub(super) fn are_of(&self, check: &str) -> bool {
        self.any(|problem| problem.owner() == check)
    }

    /// `again`: the same word has named the reason before, with another sentence.
    fn found(
        &mut self,
        check: &'static str,
        finding: &Finding,
        (place, again): (usize, bool),
        uptime: Duration,
    ) {
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
                if problem.check.is_none() && problem.entered {
                    problem.entered_at = Some(uptime);
                }
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
                entered: false,
                entered_at: None,
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
                entered: true,
                entered_at: None,
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

    /// What else is not over, the worst first; all of it if the shown one is over itself.
    pub(super) fn others(&self, shown: Option<&Problem>) -> Vec<&Problem> {
        let shown = shown.map(|shown| (shown.reason, shown.check));
        let is_other = |p: &&Problem| Some((p.reason, p.check)) != shown;
        let mut others: Vec<&Problem> = self.0.iter().filter(is_other).collect();
        others.sort_by(|a, b| {
            let worse = b.reason.severity().cmp(&a.reason.severity());
            worse.then_with(|| a.cmp_place(b))
        });
        others
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn any(&self, is: impl Fn(&Problem) -> bool) -> bool {
        self.0.iter().any(is)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Forgets what is gone.
    pub(super) fn forget_gone(&mut self) {
        self.0.retain(|problem| problem.present);
    }

    /// Forgets what is gone, and that what is sampled had entered.
    pub(super) fn begin_anew(&mut self) {
        self.forget_gone();
        for problem in &mut self.0 {
            problem.entered = problem.is_fact();
        }
    }
}
