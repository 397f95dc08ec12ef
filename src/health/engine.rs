//! One condition's memory: what its checks have said, and what the Node is told of it.
//!
//! The rules, in the order in which [`Health::judge`] applies them:
//! - A problem ends by the word of its own check: it has known for a spell that it is gone. [`Damping`] has the spell.
//! - A fact enters at once. What is sampled or read waits while somebody holds, and, if such a thing has ended within the hour,
//!   until it is more than a moment's trouble.
//! - `False` lasts as long as a problem that has entered. While somebody has us stand down, what would become `False` becomes
//!   `Unknown` with his reason; an explicit pause does that to what is `False` already, too. It ends no problem.
//! - Of several problems the worst is shown, and as long as its cause lasts no lesser one takes its place.
//! - Under a `False` that stands, a reason of another class is shown only once it has stood for five minutes itself: who repairs by
//!   reasons counts from the flip of the status. Until then the message names it, and [`Verdict::next`] does.

mod past;
mod rest;

use std::time::Duration;

use super::{
    ConditionType, Finding, Reason, Severity, Status, Verdict,
    damping::{Damping, LASTS},
    message,
    problems::{Problem, Problems},
    suppress::{Asking, Suppressor},
    waits::{Held, Waits},
};
use crate::clock::Now;

/// One condition's memory.
#[derive(Debug)]
pub struct Health {
    kind: ConditionType,
    /// The last word of each check that has run in this life.
    words: Vec<(&'static str, Vec<Finding>)>,
    problems: Problems,
    damping: Damping,
    verdict: Option<Verdict>,
    /// The verdict's sentence without what was added to it.
    sentence: String,
    /// Whether every check finds everything good.
    all_good: bool,
    /// When to judge again though nothing is found (uptime).
    judge_at: Option<Duration>,
    /// Whether what we say is tied to what the Node shows: by a record taken over, or by our own apply.
    anchored: bool,
    /// Whether the status has flipped since, after which an older record has nothing to teach.
    flipped: bool,
}

impl Health {
    /// A condition without a past. `healthy_for` is the spell of health that ends a problem.
    pub(super) fn new(kind: ConditionType, healthy_for: Duration) -> Self {
        Self {
            kind,
            words: Vec::new(),
            problems: Problems::default(),
            damping: Damping::new(healthy_for),
            verdict: None,
            sentence: String::new(),
            all_good: false,
            judge_at: None,
            anchored: false,
            flipped: false,
        }
    }

    /// Its type.
    pub fn kind(&self) -> ConditionType {
        self.kind
    }

    /// The verdict to publish: none until a check has really run in this life.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref().filter(|_| !self.words.is_empty())
    }

    /// What an earlier life said last, if nothing has been found since.
    pub fn adopted(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Takes in the whole word of a check, or that it has nothing new to say if `findings` is empty; `true` if what is
    /// to be published changed.
    pub(super) fn observe(
        &mut self,
        check: &'static str,
        findings: &[Finding],
        asking: Asking<'_>,
        now: Now,
    ) -> bool {
        if self.is_calm(check, findings, asking) {
            return false;
        }
        let before = self.verdict().cloned();
        if !findings.is_empty() {
            self.hear(check, findings, now);
        }
        if !self.words.is_empty() {
            let heard = (!findings.is_empty()).then_some(check);
            self.judge(heard, asking, now);
        }
        before.as_ref() != self.verdict()
    }

    /// When to judge again though nothing is found (uptime): a healthy spell or a hold ends.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.judge_at
    }

    fn hear(&mut self, check: &'static str, findings: &[Finding], now: Now) {
        match self.words.iter_mut().find(|(name, _)| *name == check) {
            Some((_, word)) if word == findings => {}
            Some((_, word)) => *word = findings.to_vec(),
            None => self.words.push((check, findings.to_vec())),
        }
        self.problems.hear(check, findings, now.uptime);
        let good = |finding: &Finding| finding.reason.status() == Status::True;
        let all_good = self.findings().all(good);
        self.all_good = all_good;
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.words.iter().flat_map(|(_, findings)| findings)
    }

    /// Makes the verdict anew. `heard`: the check that has just spoken, which alone can end a problem.
    fn judge(&mut self, heard: Option<&'static str>, asking: Asking<'_>, now: Now) {
        let shown = self.verdict.as_ref().map(|v| (v.status, v.reason));
        let was_false = shown.is_some_and(|(status, _)| status == Status::False);
        if !was_false && asking.stand_down.is_none() {
            // Over when the will ends, it is reported as nothing.
            self.problems.forget_gone();
        }
        self.let_out(heard, now);
        self.let_in(shown, asking, now);
        self.judge_at = self.next_over();
        let shown_reason = shown.map(|(_, reason)| reason);
        let entered = self.problems.worst(shown_reason, |p| p.entered).cloned();
        if let Some(problem) = entered {
            return match asking.stand_down {
                Some(who) if !was_false || who.lifts() => self.stand_down(&problem, who, now),
                who => {
                    let note = who.map(|who| format!("{}{who}", message::STANDING_DOWN));
                    let stands = shown_reason.filter(|_| was_false);
                    self.say_problem(&problem, stands, note.as_deref(), now);
                }
            };
        }
        if let Some(problem) = self.problems.worst(None, |p| p.present) {
            let waiting = format!("{}: {}", problem.reason.as_str(), problem.message);
            let held = self.held(asking, now);
            return self.hold_back(&waiting, &held, asking, now);
        }
        let waits = if was_false {
            self.damping.recovered(now.uptime);
            Waits::default()
        } else {
            self.waits(shown, asking, now)
        };
        self.say_calm(&waits, now);
    }

    /// Notes what is bad, and lets go of the problems of the check that has spoken which are over.
    fn let_out(&mut self, heard: Option<&'static str>, now: Now) {
        let is_bad = self.problems.any(|p| p.present && !p.is_fact());
        self.damping.note(is_bad, now.uptime);
        let damping = &self.damping;
        let is_over = |problem: &Problem| {
            let since = problem.gone_since();
            since.is_some_and(|since| damping.is_over(problem.is_fact(), since, now.uptime))
        };
        if let Some(check) = heard {
            self.problems.expire(check, is_over);
        }
    }

    /// Lets the problems in that may enter.
    fn let_in(&mut self, shown: Option<(Status, Reason)>, asking: Asking<'_>, now: Now) {
        let stood = |problem: &Problem| problem.entered && !problem.is_fact();
        let waits = |problem: &Problem| problem.present && !problem.entered && !problem.is_fact();
        if self.problems.any(stood) {
            self.damping.goes_on(now.uptime);
        } else if !self.damping.stands() && self.problems.any(waits) {
            // What was told gives way to what is there now, not to the same status without a reason.
            let is_told = match shown {
                Some((Status::False, _)) => !self.problems.any(|p| p.entered),
                Some((Status::Unknown, reason)) => is_will(reason) && asking.is_none(),
                _ => false,
            };
            let is_free = asking.hold.is_none();
            let is_due = self.damping.enters_at(now.uptime) <= now.uptime;
            if is_told || (is_free && is_due) {
                self.damping.entered(now.uptime);
            }
        }
        let stands = self.damping.stands();
        self.problems
            .enter(|problem| problem.is_fact() || stands, now.uptime);
        if stands && !self.problems.any(stood) {
            self.damping.ended(now.uptime);
        }
    }

    /// When the first problem is over (uptime), if it stays away.
    fn next_over(&self) -> Option<Duration> {
        let over_at = |p: &Problem| Some(self.damping.over_at(p.is_fact(), p.gone_since()?));
        self.problems.iter().filter_map(over_at).min()
    }

    /// `stands`: the reason of the `False` that stands.
    fn say_problem(
        &mut self,
        worst: &Problem,
        stands: Option<Reason>,
        note: Option<&str>,
        now: Now,
    ) {
        let waits = |p: &Problem| {
            let is_another = |stands: Reason| stands.remedy() != p.reason.remedy();
            let is_early = p.waits_until().is_none_or(|until| now.uptime < until);
            p.entered && stands.is_some_and(is_another) && is_early
        };
        let may = |p: &Problem| p.entered && !waits(p);
        // The reason that stands may be over, or have been refined into one that waits: it stays until then.
        let shown = self.problems.worst(stands, may).cloned();
        let due = self.problems.iter().filter(|p| waits(p));
        let due = due.filter_map(Problem::waits_until).min();
        self.judge_at = self.judge_at.into_iter().chain(due).min();
        let others: Vec<Finding> = self
            .problems
            .others(shown.as_ref())
            .into_iter()
            .map(Problem::finding)
            .collect();
        let reason = shown.as_ref().map_or(stands, |shown| Some(shown.reason));
        if let Some(shown) = &shown {
            self.sentence.clone_from(&shown.message);
        }
        let message = message::compose(&self.sentence, note, &sentences(&others));
        self.set(Status::False, reason.unwrap_or(worst.reason), message, now);
        if let Some(verdict) = &mut self.verdict {
            verdict.next = waits(worst).then_some(worst.reason);
            verdict.others = others;
        }
    }

    /// What keeps a problem back that is there and has not entered.
    fn held(&self, asking: Asking<'_>, now: Now) -> Held {
        asking.hold.map_or_else(
            || Held {
                until: self.damping.enters_at(now.uptime),
                why: format!(
                    "until it has lasted {} s, since the last such trouble ended within the hour",
                    LASTS.as_secs()
                ),
            },
            Held::by,
        )
    }

    /// What keeps what is sampled from flipping the status between `True` and `Unknown`.
    fn waits(&self, shown: Option<(Status, Reason)>, asking: Asking<'_>, now: Now) -> Waits {
        // A will that has ended keeps nothing back, however short it was.
        let is_willed =
            shown.is_none_or(|(status, reason)| status == Status::Unknown && is_will(reason));
        let least = self.damping.held_until(now.uptime).filter(|_| !is_willed);
        Waits {
            hold: asking.hold.map(Held::by),
            least: least.map(|until| Held {
                until,
                why: "because the status has just flipped".to_owned(),
            }),
        }
    }

    fn stand_down(&mut self, problem: &Problem, who: &Suppressor, now: Now) {
        let held_back = format!(
            "{who}; held back: {}: {}",
            problem.reason.as_str(),
            problem.message
        );
        let others = self.problems.others(Some(problem));
        let others: Vec<Finding> = others.into_iter().map(Problem::finding).collect();
        let message = message::compose(&held_back, None, &sentences(&others));
        self.sentence = held_back;
        self.set(Status::Unknown, who.reason(), message, now);
    }

    /// The status stays as it is; the message says what waits, and for what.
    fn hold_back(&mut self, waiting: &str, held: &Held, asking: Asking<'_>, now: Now) {
        self.judge_at = Some(held.until);
        let shown = self.verdict.as_ref().map(|v| (v.status, v.reason));
        match (shown, asking.hold) {
            (Some((status, reason)), _) if reason.condition().is_some() => {
                let note = format!("{}{}: {waiting}", message::HELD_BACK, held.why);
                let message = message::compose(&self.sentence, Some(&note), &[]);
                self.set(status, reason, message, now);
            }
            // Nothing was told that could stay.
            (_, Some((who, _))) => {
                let held_back = format!("{who}; held back: {waiting}");
                let message = message::compose(&held_back, None, &[]);
                self.sentence = held_back;
                self.set(Status::Unknown, who.reason(), message, now);
            }
            (_, None) => {}
        }
    }

    /// No problem is there: the worst of the rest is said.
    fn say_calm(&mut self, waits: &Waits, now: Now) {
        let shown = self.verdict.as_ref().map(|v| (v.status, v.reason));
        let Some(mut calm) = self.calm(shown.map(|(_, reason)| reason)).cloned() else {
            return;
        };
        let is_healthy = |f: &&Finding| f.reason.severity() == Severity::Healthy;
        if is_healthy(&&calm) && self.findings().filter(is_healthy).any(|f| *f != calm) {
            calm.message = message::all_well(&calm);
        }
        let status = calm.reason.status();
        let flips = shown.filter(|(before, _)| *before != status);
        // To come by a sample and to go from one are the same: both wait.
        let is_sampled = |reason: Reason| !reason.enter().is_fact();
        let waits_for = if is_sampled(calm.reason) {
            waits.to_worse()
        } else if status != Status::True && waits.hold.is_some() {
            waits.hold.as_ref() // a package's script that stops the kubelet starts it again
        } else if flips.is_some_and(|(_, before)| is_sampled(before)) && status == Status::True {
            waits.least.as_ref()
        } else {
            None
        };
        if flips.is_some()
            && let Some(held) = waits_for
        {
            let waiting = format!("{}: {}", calm.reason.as_str(), calm.message);
            return self.hold_back(&waiting, held, Asking::default(), now);
        }
        if let Some((before_status, before)) = flips
            && before_status != Status::False
            && (is_sampled(before) || is_sampled(calm.reason))
        {
            self.damping.turned(status == Status::True, now.uptime);
        }
        let others: Vec<String> = self
            .findings()
            .filter(|f| f.reason.status() == status && **f != calm)
            .filter(|f| f.reason.severity() > Severity::Healthy)
            .map(|f| format!("{}: {}", f.reason.as_str(), f.message))
            .collect();
        let message = message::compose(&calm.message, None, &others);
        self.sentence = calm.message;
        self.set(status, calm.reason, message, now);
    }

    /// The worst of what is no problem; of equals the one that is `shown`.
    fn calm(&self, shown: Option<Reason>) -> Option<&Finding> {
        self.findings()
            .filter(|finding| finding.reason.status() != Status::False)
            .max_by(|a, b| {
                let key = |f: &Finding| (f.reason.severity(), Some(f.reason) == shown);
                let by_name = || b.reason.as_str().cmp(a.reason.as_str());
                key(a).cmp(&key(b)).then_with(by_name)
            })
    }

    fn set(&mut self, status: Status, reason: Reason, message: String, now: Now) {
        let since = match &self.verdict {
            Some(verdict) if verdict.status == status => verdict.since,
            Some(_) => {
                self.flipped |= self.anchored;
                now.wall
            }
            None => now.wall,
        };
        self.verdict = Some(Verdict {
            status,
            reason,
            message,
            since,
            others: Vec::new(),
            next: None,
        });
    }
}

/// `KubeletHung: it does not answer`, of each.
fn sentences(findings: &[Finding]) -> Vec<String> {
    let sentence = |f: &Finding| format!("{}: {}", f.reason.as_str(), f.message);
    findings.iter().map(sentence).collect()
}

fn is_will(reason: Reason) -> bool {
    reason.condition().is_none()
}
