//! What is true of any history of findings, quiet and restarts: the rules of the design, told by a model that knows
//! nothing of how the engine keeps them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{suppress::Quiet, *};

/// The healthy spell and the minimum hold.
const HOLD: u64 = 30;
const LONGEST: u64 = damping::LONGEST_SPELL.as_secs();
const LOOK_SECS: u64 = 5;
const KIND: ConditionType = ConditionType::KubeletHealthy;
const CHECKS: [&str; 3] = ["kubelet", "lease", "certificate"];

#[derive(Debug, Clone)]
struct Step {
    wait: u64,
    check: usize,
    /// What the check says: nothing new if it is empty.
    word: Vec<Reason>,
    suppression: Vec<Suppressor>,
    /// The agent restarts before it.
    restart: bool,
}

fn any_reason() -> impl Strategy<Value = Reason> {
    let of_this: Vec<Reason> = reasons()
        .filter(|spec| spec.condition == Some(KIND))
        .map(|spec| spec.reason)
        .collect();
    // Health, often enough for a spell of it.
    prop_oneof![
        2 => Just(Reason::KubeletIsHealthy),
        3 => prop::sample::select(of_this),
    ]
}

fn any_suppression() -> impl Strategy<Value = Vec<Suppressor>> {
    let who = prop_oneof![
        Just(Suppressor::Maintenance {
            sign: "MaintenanceInProgress=True".to_owned(),
        }),
        Just(Suppressor::Paused {
            by: "nodevigil pause".to_owned(),
            until: None
        }),
        Just(Suppressor::BootGrace),
        Just(Suppressor::PackageUpgrade {
            manager: "dpkg".to_owned()
        }),
    ];
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(who, 1..3)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        1 => Just(Vec::new()),
        6 => any_reason().prop_map(|reason| vec![reason]),
        2 => prop::collection::vec(any_reason(), 2..4),
    ];
    let restart = prop::bool::weighted(0.03);
    (0..40_u64, 0..CHECKS.len(), word, any_suppression(), restart).prop_map(
        |(wait, check, word, suppression, restart)| Step {
            wait,
            check,
            word,
            suppression,
            restart,
        },
    )
}

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
    }
}

fn is_sampled(reason: Reason) -> bool {
    !reason.enter().is_fact()
}

/// How long it must be gone at the least until it may be over.
fn least_spell(reason: Reason) -> u64 {
    if is_sampled(reason) {
        damping::LASTS.as_secs().min(HOLD)
    } else {
        HOLD
    }
}

fn is_will(reason: Reason) -> bool {
    reason.condition().is_none()
}

/// What a reader of the condition and of the findings can know.
struct Model {
    conditions: Conditions,
    now: u64,
    words: BTreeMap<usize, Vec<Reason>>,
    /// Since when a check has known that a reason's cause is gone.
    gone_since: BTreeMap<(usize, Reason), u64>,
    /// What a check has known to be gone for a spell since it named it last, or has replaced by what says more.
    over: BTreeSet<(usize, Reason)>,
    /// Since when a reason may have stood: a check has named it, and it was not over since.
    stood_since: BTreeMap<Reason, u64>,
    /// Which check has named what in this life.
    named: BTreeSet<(usize, Reason)>,
    shown: Option<Verdict>,
    restarted_at: u64,
    flips_out: u64,
    flips_in: u64,
    /// The last flip that waits for the minimum hold.
    held_flip: Option<u64>,
}

impl Model {
    fn new() -> Self {
        Self {
            conditions: Conditions::new(Duration::from_secs(HOLD)),
            now: 1000,
            words: BTreeMap::new(),
            gone_since: BTreeMap::new(),
            over: BTreeSet::new(),
            stood_since: BTreeMap::new(),
            named: BTreeSet::new(),
            shown: None,
            restarted_at: 0,
            flips_out: 0,
            flips_in: 0,
            held_flip: None,
        }
    }

    fn restart(&mut self) {
        let remembered = self.conditions.remembered();
        self.conditions = Conditions::new(Duration::from_secs(HOLD));
        self.conditions.remember(&remembered, at(self.now));
        if let Some(shown) = &self.shown {
            let health = self.conditions.get_mut(KIND);
            health.adopt(Stored::from(shown), Written::InThisBoot);
        }
        self.words.clear();
        self.gone_since.clear();
        self.named.clear();
        self.stood_since.clear();
        self.over.clear();
        self.held_flip = None;
        self.restarted_at = self.now;
    }

    fn hear(&mut self, check: usize, word: &[Reason]) {
        let status = |reason: &Reason| reason.status();
        let gone = self.gone_since.iter();
        let over = gone.filter(|((_, r), since)| self.now - **since >= least_spell(*r));
        self.over.extend(over.map(|(key, _)| *key));
        let certain = word.iter().map(status).all(|s| s != Status::Unknown);
        let names_problem = word.iter().map(status).any(|s| s == Status::False);
        let last = self.words.insert(check, word.to_vec()).unwrap_or_default();
        // Of another condition's nothing is ever said, nor asked.
        for spec in reasons().filter(|spec| spec.condition == Some(KIND)) {
            let key = (check, spec.reason);
            if word.contains(&spec.reason) {
                self.stood_since.entry(spec.reason).or_insert(self.now);
                self.named.insert(key);
                self.over.remove(&key);
            }
            if word.contains(&spec.reason) || !certain {
                self.gone_since.remove(&key);
            } else {
                self.gone_since.entry(key).or_insert(self.now);
            }
            let is_named = word.contains(&spec.reason);
            let refined = match spec.leave {
                timing::Leave::Refined => last.contains(&spec.reason) && names_problem,
                timing::Leave::RefinedBy(reasons) => word.iter().any(|r| reasons.contains(r)),
                _ => false,
            };
            if refined && !is_named {
                self.over.insert(key);
            }
        }
    }

    fn is_over(&self, reason: Reason) -> bool {
        let least = least_spell(reason);
        let gone = |check: &usize| {
            let since = self.gone_since.get(&(*check, reason));
            let now = since.is_some_and(|since| self.now - since >= least);
            now || self.over.contains(&(*check, reason))
        };
        let mut named = self
            .words
            .keys()
            .filter(|check| self.named.contains(&(**check, reason)));
        // Of an earlier life's problem nobody knows which check named it.
        let adopted = self.restarted_at > 0 && self.now - self.restarted_at >= least;
        named.all(gone) || (adopted && self.words.keys().any(gone))
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now += step.wait;
        if step.restart {
            self.restart();
        }
        if !step.word.is_empty() {
            self.hear(step.check, &step.word);
        }
        let findings: Vec<Finding> = step
            .word
            .iter()
            .map(|reason| Finding {
                reason: *reason,
                message: reason.as_str().to_owned(),
            })
            .collect();
        let now = at(self.now);
        let (check, quiet) = (CHECKS[step.check], &step.suppression);
        let changed = self.conditions.observe(KIND, check, &findings, quiet, now);
        let verdict = self.conditions.get(KIND).verdict().cloned();
        if self.words.is_empty() {
            prop_assert_eq!(verdict, None, "nothing is said before a check has run");
            return Ok(());
        }
        prop_assert!(changed || verdict == self.shown || step.restart);
        let verdict = verdict.unwrap();
        prop_assert_eq!(verdict.reason.status(), verdict.status);
        prop_assert!(!verdict.message.is_empty());
        prop_assert!(verdict.message.len() <= MAX_MESSAGE_BYTES);
        let was_false = (self.shown.as_ref()).is_some_and(|shown| shown.status == Status::False);
        match self.shown.clone() {
            None if verdict.status == Status::False => self.flips_in += 1,
            Some(before) if before.status != verdict.status => {
                prop_assert_eq!(verdict.since, now.wall, "the true flip");
                self.flip(&before, &verdict, step)?;
            }
            Some(before) => {
                prop_assert_eq!(verdict.since, before.since, "no flip, no new time");
                self.same_status(&before, &verdict)?;
            }
            None => {}
        }
        if verdict.status != Status::False || !was_false {
            // What was gone before it was told, or before it was told again, leaves no trace.
            let words = &self.words;
            let gone = self
                .named
                .iter()
                .filter(|(check, reason)| !words[check].contains(reason));
            self.over.extend(gone);
        }
        // The earliest moment, so that what the property asks for is never too much: a lift is not the end of what it lifts.
        if verdict.status != Status::False && !is_will(verdict.reason) {
            let named: Vec<_> = self.words.values().flatten().collect();
            self.stood_since.retain(|reason, _| named.contains(&reason));
        }
        self.shown = Some(verdict);
        Ok(())
    }

    fn flip(
        &mut self,
        before: &Verdict,
        after: &Verdict,
        step: &Step,
    ) -> Result<(), TestCaseError> {
        let mut asks = step.suppression.iter();
        let stands_down = asks.any(|s| s.quiet() == Quiet::StandDown);
        let is_lifted = step.suppression.iter().any(Suppressor::lifts);
        if before.status == Status::False {
            self.flips_out += 1;
        }
        if before.status == Status::False && is_lifted {
            let is_paused = after.reason == Reason::NodePaused;
            prop_assert!(is_paused || self.is_over(before.reason), "{after:?}");
        } else if before.status == Status::False {
            prop_assert!(
                !is_will(after.reason),
                "who has not asked for it lifts nothing"
            );
            prop_assert!(self.is_over(before.reason), "its check has seen it gone");
            let mut words = self.words.values().flatten();
            let is_bad = |reason: &Reason| reason.status() == Status::False;
            prop_assert!(!words.any(is_bad), "nothing bad is there");
        }
        if after.status == Status::False {
            self.flips_in += 1;
            prop_assert!(!stands_down, "nobody is told what somebody wants quiet");
        }
        prop_assert!(self.flips_in <= self.flips_out + 1);
        // A will that begins or ends is no flapping, and False has its own rules.
        let is_told = after.status == Status::False || is_will(before.reason);
        if is_told || is_will(after.reason) {
            return Ok(());
        }
        let recovers = before.status == Status::False;
        let by_sample =
            is_sampled(after.reason) || (is_sampled(before.reason) && after.status == Status::True);
        if let Some(last) = self.held_flip.filter(|_| by_sample && !recovers) {
            prop_assert!(self.now - last >= HOLD, "two flips within the hold");
        }
        if recovers || by_sample {
            self.held_flip = Some(self.now);
        }
        Ok(())
    }

    fn same_status(&self, before: &Verdict, after: &Verdict) -> Result<(), TestCaseError> {
        if after.status != Status::False {
            return Ok(());
        }
        // Whatever the reason is: the message names each fact at once.
        let facts = self.words.values().flatten();
        for fact in facts.filter(|r| r.status() == Status::False && !is_sampled(**r)) {
            prop_assert!(after.message.contains(fact.as_str()), "{fact:?}: {after:?}");
        }
        if before.reason == after.reason {
            return Ok(());
        }
        if before.reason.remedy() != after.reason.remedy() {
            let since = self.stood_since.get(&after.reason);
            let stood = since.map(|since| self.now - since);
            prop_assert!(
                stood.is_some_and(|stood| stood >= RECLASSED.as_secs()),
                "{:?} took the place of {:?}, of another class, after {stood:?} s",
                after.reason,
                before.reason
            );
        }
        let rises = after.reason.severity() > before.reason.severity();
        prop_assert!(
            rises || self.is_over(before.reason),
            "{:?} gave way to {:?} while its cause lasts",
            before.reason,
            after.reason
        );
        Ok(())
    }

    /// So it is from now on.
    fn lasts(&mut self, reason: Reason, secs: u64) -> Result<Status, TestCaseError> {
        for _ in 0..=secs / LOOK_SECS {
            for check in 0..CHECKS.len() {
                self.step(&Step {
                    wait: if check == 0 { LOOK_SECS } else { 0 },
                    check,
                    word: vec![reason],
                    suppression: Vec::new(),
                    restart: false,
                })?;
            }
        }
        Ok(self.shown.as_ref().unwrap().status)
    }
}

proptest! {
    #[test]
    fn any_history_keeps_the_rules(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut model = Model::new();
        for step in &steps {
            model.step(step)?;
        }
        // And what lasts is told in the end, bad or good.
        prop_assert_eq!(model.lasts(Reason::KubeletHung, HOLD)?, Status::False);
        prop_assert_eq!(model.lasts(Reason::KubeletIsHealthy, LONGEST)?, Status::True);
    }
}
