//! What is true of any history of findings, quiet and restarts: the rules of the design, told by a model that knows
//! nothing of how the engine keeps them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{suppress::Quiet, *};

/// The healthy spell and the minimum hold.
const HOLD: u64 = 30;
const LONGEST: u64 = HOLD * damping::LONGEST_SPELLS as u64;
const LOOK_SECS: u64 = 5;
const KIND: ConditionType = ConditionType::KubeletHealthy;
const CHECKS: [&str; 2] = ["one", "two"];

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
        Just(Suppressor::Maintenance),
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
    (0..40_u64, 0..2_usize, word, any_suppression(), restart).prop_map(
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

fn is_will(reason: Reason) -> bool {
    reason.condition().is_none()
}

/// What a reader of the condition and of the findings can know.
struct Model {
    conditions: Conditions,
    now: u64,
    words: BTreeMap<usize, Vec<Reason>>,
    good_since: Option<u64>,
    /// Since when a check has known that a reason's cause is gone.
    gone_since: BTreeMap<(usize, &'static str), u64>,
    /// What a check has known to be gone for a spell since it named it last, or has replaced by what says more.
    over: BTreeSet<(usize, &'static str)>,
    /// Which check has named what in this life.
    named: BTreeSet<(usize, &'static str)>,
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
            good_since: None,
            gone_since: BTreeMap::new(),
            over: BTreeSet::new(),
            named: BTreeSet::new(),
            shown: None,
            restarted_at: 0,
            flips_out: 0,
            flips_in: 0,
            held_flip: None,
        }
    }

    fn restart(&mut self) {
        self.conditions = Conditions::new(Duration::from_secs(HOLD));
        if let Some(shown) = &self.shown {
            self.conditions.get_mut(KIND).adopt(Stored::from(shown));
        }
        self.words.clear();
        self.gone_since.clear();
        self.named.clear();
        self.over.clear();
        (self.good_since, self.held_flip) = (None, None);
        self.restarted_at = self.now;
    }

    fn hear(&mut self, check: usize, word: &[Reason]) {
        let status = |reason: &Reason| reason.status();
        let gone = self.gone_since.iter();
        let over = gone.filter(|(_, since)| self.now - **since >= HOLD);
        self.over.extend(over.map(|(key, _)| *key));
        let certain = word.iter().map(status).all(|s| s != Status::Unknown);
        let names_problem = word.iter().map(status).any(|s| s == Status::False);
        let last = self.words.insert(check, word.to_vec()).unwrap_or_default();
        for spec in reasons() {
            let key = (check, spec.name);
            if word.contains(&spec.reason) {
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
        let all_good = self
            .words
            .values()
            .flatten()
            .all(|r| r.status() == Status::True);
        self.good_since = all_good.then(|| self.good_since.unwrap_or(self.now));
    }

    fn is_over(&self, reason: Reason) -> bool {
        let name = reason.as_str();
        let gone = |check: &usize| {
            let since = self.gone_since.get(&(*check, name));
            let now = since.is_some_and(|since| self.now - since >= HOLD);
            now || self.over.contains(&(*check, name))
        };
        let mut named = self
            .words
            .keys()
            .filter(|check| self.named.contains(&(**check, name)));
        // Of an earlier life's problem nobody knows which check named it.
        let adopted = self.restarted_at > 0 && self.now - self.restarted_at >= HOLD;
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
        if verdict.status != Status::False {
            // What was gone before it was told leaves no trace.
            let words = &self.words;
            let named = |check, name| words[check].iter().any(|reason| reason.as_str() == name);
            let gone = self
                .named
                .iter()
                .filter(|(check, name)| !named(check, *name));
            self.over.extend(gone);
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
        let stands_down = step
            .suppression
            .iter()
            .any(|s| s.quiet() == Quiet::StandDown);
        if before.status == Status::False {
            self.flips_out += 1;
            prop_assert_eq!(after.status, Status::True, "Unknown never clears a problem");
            let good_for = self.now - self.good_since.expect("everything is good");
            prop_assert!(good_for >= HOLD, "a healthy spell");
        }
        if after.status == Status::False {
            self.flips_in += 1;
            prop_assert!(!stands_down, "nobody is told what somebody wants quiet");
        }
        prop_assert!(self.flips_in <= self.flips_out + 1);
        let waits = before.status == Status::False
            || is_sampled(after.reason)
            || (before.status == Status::Unknown
                && is_sampled(before.reason)
                && after.status == Status::True);
        // A will that begins or ends is no flapping.
        if waits && !is_will(before.reason) && !is_will(after.reason) {
            if let Some(last) = self.held_flip {
                prop_assert!(self.now - last >= HOLD, "two flips within the hold");
            }
            self.held_flip = Some(self.now);
        }
        Ok(())
    }

    fn same_status(&self, before: &Verdict, after: &Verdict) -> Result<(), TestCaseError> {
        if after.status != Status::False || before.reason == after.reason {
            return Ok(());
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
            for check in 0..2 {
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

    /// The minimum hold alone: without facts and without anybody's will every flip waits for it.
    #[test]
    fn samples_flip_once_a_hold_at_most(
        steps in prop::collection::vec((prop::sample::select(vec![
            Reason::KubeletIsHealthy,
            Reason::KubeletHung,
            Reason::KubeletHealthzDown,
            Reason::KubeletProbeFailed,
        ]), 0..20_u64), 1..200)
    ) {
        let mut conditions = Conditions::new(Duration::from_secs(HOLD));
        let (mut now, mut flipped_at, mut status) = (1000, None, None);
        for (reason, wait) in steps {
            now += wait;
            let found = [Finding { reason, message: "m".to_owned() }];
            conditions.observe(KIND, CHECKS[0], &found, &[], at(now));
            let is = conditions.get(KIND).verdict().unwrap().status;
            if status.is_some_and(|was| was != is) {
                prop_assert!(flipped_at.is_none_or(|last| now - last >= HOLD), "{is:?}");
                flipped_at = Some(now);
            }
            status = Some(is);
        }
    }
}
