//! What the checks find now → verdicts, and one line in the journal for each that changes.

use tracing::info;

use super::{event::Effect, state::State};
use crate::{
    checks::{self, Check, kubelet::Assessment},
    clock::Now,
    health::{ConditionType, Conditions, Finding, Reason, Status, Verdict, suppress::Suppressor},
    host::journal::Kind,
};

impl State {
    /// `true` if what is to be published changed.
    pub(super) fn judge(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        let kubelet = checks::kubelet::SPEC;
        let before = self.health.get(kubelet.condition).adopted();
        let found = match self.kubelet.assess(before.map(|v| v.reason), now) {
            Assessment::Found(finding) => Some(finding),
            Assessment::NothingNew => None,
        };
        let driven = self.driven.iter().filter(|d| d.check.applies());
        let hints = driven.clone().filter_map(|driven| driven.check.hint());
        let told = told(&self.health);
        let words = [
            (kubelet, found.as_slice()),
            (checks::config::SPEC, self.checking.config.findings()),
        ]
        .into_iter()
        .chain(driven.map(|d| (d.check.spec(), word(&*d.check, told))))
        .chain(hints);
        if self
            .standing
            .must_ask_about_packages(&self.health, words.clone(), now)
        {
            effects.push(Effect::LookForPackages);
            return false;
        }
        let mut changed = false;
        // What is found is published: the time of a flip is the cluster's.
        let now = self.link.time.of(now);
        for (check, findings) in words {
            // An apply is the complete set: of ourselves nothing is said before something is of the node.
            if check.condition == ConditionType::NodevigilHealthy && self::told(&self.health) == 0 {
                continue;
            }
            let quiet = self.standing.suppressors();
            let before = reason(&self.health, check.condition);
            changed |= observe(&mut self.health, check, findings, quiet, now);
            if let Some(after) = reason(&self.health, check.condition)
                && before != Some(after)
            {
                self.counted.came_to(check.condition, after);
            }
        }
        for driven in self.driven.iter().filter(|d| !d.check.applies()) {
            let spec = driven.check.spec();
            changed |= self.health.withdraw(spec.condition, spec.id);
        }
        self.tell_warnings(now);
        changed
    }
}

/// The conditions that have been told in this life, as bits.
pub(super) fn told(health: &Conditions) -> u32 {
    let kinds = ConditionType::ALL.iter();
    let told = kinds.filter(|kind| health.get(**kind).verdict().is_some());
    told.fold(0, |bits, kind| bits | 1 << *kind as u32)
}

/// What a check says. From one that only adds to another's word, that all is well counts once that other one has spoken.
pub(super) fn word(check: &dyn Check, told: u32) -> &[Finding] {
    let findings = check.findings();
    let is_told = told & 1 << check.spec().condition as u32 != 0;
    let is_bad = |finding: &Finding| finding.reason.status() == Status::False;
    if check.is_beside() && !is_told && !findings.iter().any(is_bad) {
        return &[];
    }
    findings
}

/// What the condition says, in this life.
fn reason(health: &Conditions, kind: ConditionType) -> Option<Reason> {
    health.get(kind).verdict().map(|verdict| verdict.reason)
}

/// `true` if what is to be published changed.
fn observe(
    health: &mut Conditions,
    check: checks::Spec,
    findings: &[Finding],
    quiet: &[Suppressor],
    now: Now,
) -> bool {
    let kind = check.condition;
    let is_its_own = |finding: &Finding| {
        finding.reason.status() != Status::False || finding.reason.check() == check.id
    };
    debug_assert!(
        findings.iter().all(is_its_own),
        "{}: {findings:?}",
        check.id
    );
    let before = health.get(kind).adopted().cloned();
    let changed = health.observe(kind, check.id, findings, quiet, now);
    if changed && let Some(verdict) = health.get(kind).verdict() {
        log_change(kind, before.as_ref(), verdict);
    }
    changed
}

fn log_change(kind: ConditionType, before: Option<&Verdict>, verdict: &Verdict) {
    let flipped = before.is_none_or(|before| before.status != verdict.status);
    if flipped || before.is_some_and(|before| before.reason != verdict.reason) {
        let status = kind.shown(verdict.status).as_str();
        info!(
            message_id = Kind::ConditionChanged.id(),
            condition = kind.as_str(),
            status,
            reason = verdict.reason.as_str(),
            detail = %verdict.message,
            "{}={status} {}", kind.as_str(), verdict.reason.as_str(),
        );
    }
}
