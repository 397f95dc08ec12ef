//! One condition's memory: what its checks have said, and what the Node is told of it.
//!
//! The rules, in the order in which [`Health::judge`] applies them:
//! - `False` ends by a healthy spell alone: every check of the condition has said for so long that all is well.
//! - A fact becomes `False` at once. What is sampled or read waits while somebody holds, and for the minimum hold: the
//!   configured spell since the status last flipped out of `False` or by such a reason.
//! - While somebody has us stand down, what would become `False` becomes `Unknown` with his reason.
//! - Of several problems the worst is shown, and as long as its cause lasts no lesser one takes its place.

mod rest;

use std::time::Duration;

use super::{
    ConditionType, Finding, Reason, Severity, Status, Stored, Verdict,
    damping::Damping,
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
    /// Since when every check has found everything good (uptime).
    good_since: Option<Duration>,
    /// When to judge again though nothing is found (uptime).
    judge_at: Option<Duration>,
    /// Whether what we say is tied to what the Node shows: by a record taken over, or by our own apply.
    anchored: bool,
    /// Whether the status has flipped since, after which an older record has nothing to teach.
    flipped: bool,
}

impl Health {
    /// A condition without a past. `healthy_for` is the spell of health that ends a problem, and the minimum hold.
    pub(super) fn new(kind: ConditionType, healthy_for: Duration) -> Self {
        Self {
            kind,
            words: Vec::new(),
            problems: Problems::default(),
            damping: Damping::new(healthy_for),
            verdict: None,
            sentence: String::new(),
            good_since: None,
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

    /// Takes back what an earlier life of the agent published, so that a restart neither flips the status nor moves
    /// its transition time. Late is fine: a record that comes after the first finding still gives its time.
    pub fn adopt(&mut self, stored: Stored) {
        if self.flipped {
            return;
        }
        self.anchored = true;
        let (verdict, is_known) = stored.verdict(self.kind);
        let is_taken = self.verdict.as_ref().is_none_or(|ours| {
            // Its reason too: it may remember what nobody can see any more, such as who stopped the kubelet. The next
            // finding is judged in its light.
            ours.status == verdict.status
                // A problem that was published ends by a healthy spell, not by our having been away; and not to have
                // known for a moment is no reason to take health back.
                || verdict.status == Status::False
                || (verdict.status == Status::True && ours.status == Status::Unknown)
        });
        if !is_taken {
            return;
        }
        message::without_additions(&verdict.message).clone_into(&mut self.sentence);
        if verdict.status == Status::False {
            self.problems
                .adopt(verdict.reason, &self.sentence, !is_known);
            self.judge_at = self.spell_ends();
        }
        self.verdict = Some(verdict);
    }

    /// The Node shows our verdict.
    pub(super) fn published(&mut self) {
        self.anchored = true;
    }

    /// The Node was made anew under our name: what befell before it was born is no longer its story, unless it is a fact
    /// that lasts. (A kubelet crash-loops by design until `kubeadm join`, and has no configuration; its Node must not be
    /// born with that.)
    pub(super) fn node_is_new(&mut self) {
        self.problems.forget_gone();
        self.damping.forget();
        let failed = |v: &Verdict| v.status == Status::False;
        let lasts = self
            .problems
            .worst(None, |problem| problem.reason.enter().is_fact())
            .is_some();
        if self.words.is_empty() || (!lasts && self.verdict.as_ref().is_some_and(failed)) {
            self.verdict = None;
        }
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
            self.judge(!findings.is_empty(), asking, now);
        }
        before.as_ref() != self.verdict()
    }

    /// See [`super::Conditions::withdraw`].
    pub(super) fn withdraw(&mut self, check: &'static str) -> bool {
        let before = self.words.len();
        self.words.retain(|(name, _)| *name != check);
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
        let spell = self.damping.spell();
        self.problems.hear(check, findings, spell, now.uptime);
        let good = |finding: &Finding| finding.reason.status() == Status::True;
        if self.findings().all(good) {
            self.good_since.get_or_insert(now.uptime);
        } else {
            self.good_since = None;
        }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.words.iter().flat_map(|(_, findings)| findings)
    }

    /// Makes the verdict anew. `heard`: a check has just spoken, which alone can end a problem.
    fn judge(&mut self, heard: bool, asking: Asking<'_>, now: Now) {
        self.judge_at = None;
        let over = heard && self.spell_ends().is_some_and(|at| now.uptime >= at);
        let before = self.verdict.as_ref().map(|v| (v.status, v.reason));
        match before {
            Some((Status::False, shown)) if !over => self.stay_false(shown, asking, now),
            Some((Status::False, _)) => {
                self.problems.forget_gone();
                self.damping.recovered(now.uptime);
                self.say_calm(&Waits::default(), now);
            }
            Some((status, reason)) => {
                if over {
                    self.problems.forget_gone();
                }
                // A will that has ended keeps nothing back, however short it was.
                let willed = status == Status::Unknown && reason.condition().is_none();
                self.consider(Some(reason), willed, asking, now);
            }
            None => self.consider(None, true, asking, now),
        }
    }

    fn spell_ends(&self) -> Option<Duration> {
        Some(self.good_since? + self.damping.spell())
    }

    fn stay_false(&mut self, shown: Reason, asking: Asking<'_>, now: Now) {
        self.judge_at = self.spell_ends();
        let Some(problem) = self.problems.worst(Some(shown), |_| true).cloned() else {
            return;
        };
        let note = asking
            .stand_down
            .map(|who| format!("{}{who}", message::STANDING_DOWN));
        self.say_problem(&problem, note.as_deref(), now);
    }

    fn say_problem(&mut self, problem: &Problem, note: Option<&str>, now: Now) {
        let others = self.problems.others(problem);
        self.sentence.clone_from(&problem.message);
        let message = message::compose(&problem.message, note, &others);
        self.set(Status::False, problem.reason, message, now);
    }

    /// The status is not `False`: may it become so? `unheld`: the minimum hold does not count.
    fn consider(&mut self, shown: Option<Reason>, unheld: bool, asking: Asking<'_>, now: Now) {
        let waits = self.waits(unheld, asking, now);
        let free = waits.to_worse().is_none();
        let enters = |p: &Problem| p.present && (free || p.reason.enter().is_fact());
        if let Some(problem) = self.problems.worst(shown, enters).cloned() {
            if let Some(who) = asking.stand_down {
                return self.stand_down(&problem, who, now);
            }
            let is_fact = problem.reason.enter().is_fact();
            self.damping.fell(is_fact, now.uptime);
            return self.say_problem(&problem, None, now);
        }
        let stands_down = shown.is_some_and(|reason| reason.condition().is_none());
        if stands_down
            && let Some(who) = asking.stand_down
            && let Some(problem) = self.problems.worst(None, |_| true).cloned()
        {
            // What was kept back leaves as it would have left otherwise.
            self.judge_at = self.spell_ends();
            return self.stand_down(&problem, who, now);
        }
        if let Some(problem) = self.problems.worst(None, |p| p.present)
            && let Some(held) = waits.to_worse()
        {
            let waiting = format!("{}: {}", problem.reason.as_str(), problem.message);
            return self.hold_back(&waiting, held, asking, now);
        }
        self.problems.forget_gone();
        self.say_calm(&waits, now);
    }

    /// What keeps everything but a fact from flipping the status.
    fn waits(&self, unheld: bool, asking: Asking<'_>, now: Now) -> Waits {
        let least = self.damping.held_until(now.uptime).filter(|_| !unheld);
        Waits {
            hold: asking.hold.map(|(who, until)| Held {
                until,
                why: format!("while {who}"),
            }),
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
        let others = self.problems.others(problem);
        let message = message::compose(&held_back, None, &others);
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
        let Some(calm) = self.calm(shown.map(|(_, reason)| reason)).cloned() else {
            return;
        };
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
        if flips.is_some_and(|(_, before)| is_sampled(before) || is_sampled(calm.reason)) {
            self.damping.turned(now.uptime);
        }
        let others: Vec<String> = self
            .findings()
            .filter(|f| f.reason.status() == status && **f != calm)
            .filter(|f| f.reason.severity() != Severity::Aside)
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
        });
    }
}
