//! Computes each condition from the monitors' reports over time.
//!
//! - A problem (a finding with the type's [`ConditionType::problem_status`], usually `False`) is shown as soon as a monitor reports it; monitors count failed probes themselves.
//! - It ends when the monitor has reported without it for `healthy_for`. A report of `Unknown` restarts that time.
//! - Of several problems the worst is shown. One with another remedy than the shown one waits five minutes, because controllers
//!   that match reasons measure from `lastTransitionTime`, and that moves with the status only (Karpenter 1.15, `RepairPolicy`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Condition, ConditionType, Finding, Reason, Remedy, ShownAs, Status, Suppression, Uptime, View};

/// How long a problem with another remedy waits until it replaces the reason that is shown.
const REMEDY_CHANGES_AFTER: Duration = Duration::from_mins(5);
/// A problem that its monitor can neither confirm nor deny for this long is dropped.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// The condition of a monitor that has not reported for this long is `Unknown`.
const SILENT_AFTER: Duration = Duration::from_mins(1);
/// The longest message of a condition, in bytes. The API server has no limit, but every Node of every list carries it.
const MESSAGE_MAX: usize = 1024;

/// The state of all conditions.
#[derive(Debug)]
pub struct Engine {
    healthy_for: Duration,
    downgraded: BTreeMap<Reason, ShownAs>,
    conditions: Vec<ConditionState>,
    suppression: Option<Suppression>,
}

#[derive(Debug)]
struct ConditionState {
    kind: ConditionType,
    /// The monitor's last view and when it came; none before its first report.
    view: Option<(View, Uptime)>,
    /// Problems that were reported and have not ended, worst first.
    problems: Vec<Problem>,
    /// The result of the last evaluation.
    shown: Option<Condition>,
}

#[derive(Debug, Clone)]
struct Problem {
    /// None if only another version of nodevigil knows the reason.
    reason: Option<Reason>,
    name: String,
    message: String,
    since: Uptime,
    /// When the monitor last reported or denied it.
    known_at: Uptime,
    /// Since when the monitor has reported without it.
    absent_since: Option<Uptime>,
}

impl Engine {
    /// An engine for all conditions; a problem ends after its monitor has reported without it for `healthy_for`.
    pub fn new(healthy_for: Duration, downgraded: BTreeMap<Reason, ShownAs>) -> Self {
        let conditions = ConditionType::all().map(ConditionState::new).collect();
        Self { healthy_for, downgraded, conditions, suppression: None }
    }

    /// Takes over what the Node shows from an earlier run of the agent. `booted_since`: whether the host has booted since the
    /// condition was last written. Problems that do not survive a reboot are dropped then.
    pub fn adopt(&mut self, observed: Condition, booted_since: bool, now: Uptime) {
        let state = self.state(observed.kind);
        // What this run showed before was never on the Node: a status that the Node has too is the Node's.
        for shown in state.shown.iter_mut().filter(|shown| shown.status == observed.status) {
            shown.since = observed.since;
        }
        if observed.is_problem() {
            state.adopt_problem(observed, booted_since, now);
        } else {
            state.shown = Some(observed);
        }
    }

    /// The Node is seen for the first time, with conditions of these types. A problem of another type was never on it, and counts as new.
    pub fn node_seen(&mut self, shown: &[ConditionType]) {
        for state in self.conditions.iter_mut().filter(|state| !shown.contains(&state.kind)) {
            state.shown.take_if(|shown| shown.is_problem());
        }
    }

    /// The Node was deleted and created again: a problem that its monitor does not report at present belongs to the former one.
    pub fn node_replaced(&mut self) {
        for state in &mut self.conditions {
            state.problems.retain(|problem| problem.absent_since.is_none());
        }
    }

    /// Records a monitor's present view of a condition.
    pub fn report(&mut self, kind: ConditionType, view: View, now: Uptime) {
        let (ended, view) = match downgrade(kind, view, &self.downgraded) {
            View::Ended { reasons, view } => (reasons, *view),
            view => (Vec::new(), view),
        };
        let state = self.state(kind);
        match &view {
            View::Seen { findings, .. } => state.report_findings(findings, now),
            View::Unknown(_) | View::Unchanged(_) | View::Unexplained(_) | View::Ended { .. } => {
                for problem in &mut state.problems {
                    let has_ended = problem.reason.is_some_and(|reason| ended.contains(&reason));
                    problem.absent_since = problem.absent_since.or(Some(now)).filter(|_| has_ended);
                }
            }
            View::Excused(_) => state.problems.clear(),
        }
        state.view = Some((view, now));
    }

    /// The host was suspended: what the monitors reported before is not old.
    pub fn resumed(&mut self, now: Uptime) {
        for state in &mut self.conditions {
            state.view.iter_mut().for_each(|(_, reported_at)| *reported_at = now);
            for problem in &mut state.problems {
                problem.known_at = now;
                problem.absent_since = problem.absent_since.map(|_| now);
            }
        }
    }

    /// Sets the suppression that applies, if any.
    pub fn suppress(&mut self, by: Option<Suppression>) {
        self.suppression = by;
    }

    /// Whether no monitor has reported a finding or `Unknown`.
    pub fn is_well(&self) -> bool {
        let is_well = |view: &View| matches!(view, View::Seen { findings, .. } if findings.is_empty());
        self.conditions.iter().all(|state| state.view.as_ref().is_none_or(|(view, _)| is_well(view)))
    }

    /// The conditions of which no monitor reports a problem any more. One may still be shown.
    pub fn ending(&self) -> Vec<ConditionType> {
        let is_ending = |state: &&ConditionState| state.problems.iter().all(|problem| problem.absent_since.is_some());
        self.conditions.iter().filter(is_ending).map(|state| state.kind).collect()
    }

    /// The conditions that the Node should show now. A condition is left out until its monitor reports or the Node shows it.
    pub fn evaluate(&mut self, now: Uptime) -> Vec<Condition> {
        let (healthy_for, by) = (self.healthy_for, self.suppression.as_ref());
        self.conditions.iter_mut().filter_map(|state| state.evaluate(healthy_for, by, now)).collect()
    }

    fn state(&mut self, kind: ConditionType) -> &mut ConditionState {
        let state = self.conditions.iter_mut().find(|state| state.kind == kind);
        state.expect("there is a state for each type")
    }
}

/// The view without the findings of disabled reasons, and with downgraded findings after the problems.
fn downgrade(kind: ConditionType, view: View, downgraded: &BTreeMap<Reason, ShownAs>) -> View {
    match view {
        View::Seen { healthy, mut findings } => {
            findings.retain(|finding| downgraded.get(&finding.reason) != Some(&ShownAs::Off));
            for finding in &mut findings {
                if downgraded.contains_key(&finding.reason) {
                    finding.status = kind.healthy_status();
                }
            }
            findings.sort_by_key(|finding| (finding.status != kind.problem_status(), finding.reason));
            View::Seen { healthy, findings }
        }
        other => other,
    }
}

impl ConditionState {
    fn new(kind: ConditionType) -> Self {
        Self { kind, view: None, problems: Vec::new(), shown: None }
    }

    fn adopt_problem(&mut self, observed: Condition, booted_since: bool, now: Uptime) {
        let reason = Reason::of(self.kind, &observed.reason);
        let is_over = booted_since && reason.is_some_and(|reason| !reason.spec().survives_boot);
        let is_excused = matches!(self.view, Some((View::Excused(_), _)));
        // Written with other settings of a custom check, or by another agent: what was health there is no problem here.
        let is_other = reason.is_some_and(|reason| reason.spec().status != observed.status);
        if is_over || is_excused || is_other {
            return;
        }
        if !self.problems.iter().any(|problem| problem.name == observed.reason) {
            let absent_since = matches!(self.view, Some((View::Seen { .. }, _))).then_some(now);
            let Condition { reason: name, message, .. } = observed.clone();
            self.problems.push(Problem { reason, name, message, since: now, known_at: now, absent_since });
            self.sort_problems();
        }
        self.shown = Some(observed);
    }

    fn report_findings(&mut self, findings: &[Finding], now: Uptime) {
        let kind = self.kind;
        let found = || findings.iter().filter(|finding| finding.status == kind.problem_status());
        for problem in &mut self.problems {
            let is_reported = found().any(|finding| Some(finding.reason) == problem.reason);
            problem.known_at = now;
            problem.absent_since = if is_reported { None } else { problem.absent_since.or(Some(now)) };
        }
        for finding in found() {
            match self.problems.iter_mut().find(|problem| problem.reason == Some(finding.reason)) {
                Some(problem) => problem.message.clone_from(&finding.message),
                None => self.problems.push(Problem {
                    reason: Some(finding.reason),
                    name: finding.reason.spec().name.to_owned(),
                    message: finding.message.clone(),
                    since: now,
                    known_at: now,
                    absent_since: None,
                }),
            }
        }
        self.sort_problems();
    }

    /// Worst first; a reason that is not in the table last.
    fn sort_problems(&mut self) {
        self.problems.sort_by_key(|problem| (problem.reason.is_none(), problem.reason));
    }

    fn evaluate(&mut self, healthy_for: Duration, by: Option<&Suppression>, now: Uptime) -> Option<Condition> {
        // What was over before it was shown as a problem, as in a package upgrade, is not shown later either.
        if !self.shown.as_ref().is_some_and(Condition::is_problem) {
            self.problems.retain(|problem| problem.absent_since.is_none());
        }
        let problem = self.problem_to_show(healthy_for, now).cloned();
        // What the Node has not shown yet may have begun long ago.
        let first = problem.as_ref().filter(|_| self.shown.is_none()).map(|problem| problem.since);
        let shown = problem.as_ref().map(|problem| problem.name.clone());
        self.problems.retain(|problem| !problem.is_over(healthy_for, now) || Some(&problem.name) == shown.as_ref());
        let mut condition = match problem {
            Some(Problem { reason, name, message, .. }) => {
                self.suppressed(self.condition(self.kind.problem_status(), &name, &message), reason, by)
            }
            None => self.without_problem(by, now)?,
        };
        if let (Some(Suppression::PackageUpgrade { .. }), Some(shown)) = (by, &self.shown)
            && condition.is_worse_than(shown)
        {
            condition = shown.clone();
        }
        let same = self.shown.as_ref().filter(|shown| shown.status == condition.status);
        condition.since = same.map_or_else(|| first.unwrap_or(now), |shown| shown.since);
        self.shown = Some(condition);
        self.shown.clone()
    }

    /// The worst problem that is not over. One with another remedy than the shown one waits for `REMEDY_CHANGES_AFTER`; until then the
    /// shown one stays, even if it is over.
    fn problem_to_show(&self, healthy_for: Duration, now: Uptime) -> Option<&Problem> {
        let worst = self.problems.iter().find(|problem| !problem.is_over(healthy_for, now))?;
        let shown = self.shown.as_ref().filter(|shown| shown.is_problem());
        let current = shown.and_then(|shown| self.problems.iter().find(|problem| problem.name == shown.reason));
        let waits = |current: &&Problem| current.remedy() != worst.remedy() && now < worst.since + REMEDY_CHANGES_AFTER;
        current.filter(waits).or(Some(worst))
    }

    /// A problem, or the warning of a check without a condition, as it is shown under suppression.
    fn suppressed(&self, problem: Condition, reason: Option<Reason>, by: Option<&Suppression>) -> Condition {
        let is_shown = self.shown.as_ref().is_some_and(|shown| shown.is_problem() || shown.is_event_alone());
        let is_sampled = reason.is_some_and(|reason| reason.spec().sampled);
        let text = format!("{}: {}", problem.reason, problem.message);
        let unknown =
            |reason: Reason, why: &str| self.condition(Status::Unknown, reason.spec().name, &format!("{why}; {text}"));
        match by {
            Some(Suppression::Paused { why }) => unknown(Reason::NodePaused, why),
            Some(Suppression::InMaintenance { why }) if !is_shown => unknown(Reason::NodeInMaintenance, why),
            Some(Suppression::PackageUpgrade { why }) if self.shown.is_none() => {
                unknown(Reason::NodeInMaintenance, why)
            }
            Some(Suppression::JustStarted) if !is_shown && is_sampled => {
                self.condition(Status::Unknown, Reason::NodeJustStarted.spec().name, &text)
            }
            _ => problem,
        }
    }

    /// The condition without a problem: healthy, a warning or `Unknown`. None before the first report of a condition that the Node does not
    /// have.
    fn without_problem(&self, by: Option<&Suppression>, now: Uptime) -> Option<Condition> {
        let Some((view, reported_at)) = &self.view else { return self.shown.clone() };
        if now >= *reported_at + SILENT_AFTER {
            let message = format!("the monitor has not reported for {} s", (now - *reported_at).as_secs());
            return Some(self.condition(Status::Unknown, Reason::MonitorSilent.spec().name, &message));
        }
        let finding = match view {
            // Unless it is a problem, which has ended or was forgotten.
            View::Unchanged(_) if self.shown.as_ref().is_some_and(|shown| !shown.is_problem()) => {
                return self.shown.clone();
            }
            View::Unexplained(_) if self.shows_a_reason_of_its_own() => return self.shown.clone(),
            View::Unchanged(finding) | View::Unexplained(finding) | View::Unknown(finding) | View::Excused(finding) => {
                finding
            }
            View::Ended { .. } => return None,
            View::Seen { healthy, findings } => {
                let Some(finding) = findings.first() else {
                    let spec = Reason::healthy(self.kind).spec();
                    return Some(self.condition(spec.status, spec.name, healthy));
                };
                finding
            }
        };
        let condition = self.condition(finding.status, finding.reason.spec().name, &finding.message);
        Some(if condition.is_event_alone() { self.suppressed(condition, Some(finding.reason), by) } else { condition })
    }

    /// Whether it is `Unknown` with a reason of its own, not one that every condition can have.
    fn shows_a_reason_of_its_own(&self) -> bool {
        let shown = self.shown.as_ref().filter(|shown| shown.status == Status::Unknown);
        shown.is_some_and(|shown| Reason::of(self.kind, &shown.reason).is_some())
    }

    fn condition(&self, status: Status, reason: &str, message: &str) -> Condition {
        let end = message.floor_char_boundary(MESSAGE_MAX);
        let message = message[..end].to_owned();
        Condition { kind: self.kind, status, reason: reason.to_owned(), message, since: Uptime::ZERO }
    }
}

impl Problem {
    /// Whether its monitor has reported without it for long enough, or has neither confirmed nor denied it for too long.
    fn is_over(&self, healthy_for: Duration, now: Uptime) -> bool {
        self.absent_since.is_some_and(|since| now >= since + healthy_for) || now >= self.known_at + FORGOTTEN_AFTER
    }

    fn remedy(&self) -> Remedy {
        self.reason.map_or(Remedy::None, |reason| reason.spec().remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::ConditionType::KubeletHealthy;
    use super::*;

    const HEALTHY_FOR: Duration = Duration::from_mins(1);

    fn at(secs: u64) -> Uptime {
        Uptime::from_secs(secs)
    }

    fn engine() -> Engine {
        Engine::new(HEALTHY_FOR, BTreeMap::new())
    }

    fn healthy() -> View {
        View::Seen { healthy: "kubelet pid 1 answers".into(), findings: vec![] }
    }

    fn finding(reason: Reason) -> Finding {
        Finding::new(reason, "m")
    }

    fn problem(reason: Reason) -> View {
        View::Seen { healthy: String::new(), findings: vec![finding(reason)] }
    }

    fn observed(status: Status, reason: &str) -> Condition {
        Condition { kind: KubeletHealthy, status, reason: reason.into(), message: "m".into(), since: at(0) }
    }

    fn shown(engine: &mut Engine, now: Uptime) -> (Status, String) {
        let condition = engine.evaluate(now).pop().expect("the monitor has reported");
        (condition.status, condition.reason)
    }

    #[track_caller]
    fn assert_shows(engine: &mut Engine, secs: u64, status: Status, reason: &str) {
        assert_eq!(shown(engine, at(secs)), (status, reason.to_owned()));
    }

    #[test]
    fn a_problem_shows_at_once_and_ends_after_a_healthy_minute() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(10));
        assert_shows(&mut engine, 10, Status::False, "KubeletCrashed");
        assert!(!engine.ending().contains(&KubeletHealthy));
        engine.report(KubeletHealthy, healthy(), at(12));
        assert!(engine.ending().contains(&KubeletHealthy));
        engine.report(KubeletHealthy, healthy(), at(71));
        assert_shows(&mut engine, 71, Status::False, "KubeletCrashed");
        assert_shows(&mut engine, 72, Status::True, "KubeletIsHealthy");
        assert_eq!(engine.evaluate(at(73))[0].since, at(72));
    }

    #[test]
    fn not_knowing_neither_starts_nor_ends_a_problem() {
        let silent = || View::Unknown(finding(Reason::KubeletHealthzSilent));
        let mut engine = engine();
        engine.report(KubeletHealthy, silent(), at(1));
        assert_shows(&mut engine, 1, Status::Unknown, "KubeletHealthzSilent");
        engine.report(KubeletHealthy, problem(Reason::KubeletHung), at(2));
        engine.report(KubeletHealthy, healthy(), at(3));
        engine.report(KubeletHealthy, silent(), at(40));
        assert_shows(&mut engine, 70, Status::False, "KubeletHung");
        assert_shows(&mut engine, 3 + 600, Status::Unknown, "MonitorSilent");
    }

    #[test]
    fn an_operators_stop_ends_problems_at_once() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(1));
        engine.report(KubeletHealthy, View::Excused(finding(Reason::KubeletStoppedByOperator)), at(2));
        assert_shows(&mut engine, 2, Status::Unknown, "KubeletStoppedByOperator");
    }

    #[test]
    fn a_planned_restart_keeps_what_is_shown() {
        let mut engine = engine();
        let starting = || View::Unchanged(finding(Reason::KubeletStarting));
        engine.report(KubeletHealthy, starting(), at(1));
        assert_shows(&mut engine, 1, Status::Unknown, "KubeletStarting");
        engine.report(KubeletHealthy, healthy(), at(2));
        assert_shows(&mut engine, 2, Status::True, "KubeletIsHealthy");
        engine.report(KubeletHealthy, starting(), at(3));
        assert_shows(&mut engine, 3, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_problem_with_another_remedy_waits_five_minutes() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletHung), at(1));
        assert_shows(&mut engine, 1, Status::False, "KubeletHung");
        engine.report(KubeletHealthy, problem(Reason::KubeletUnkillable), at(2));
        for secs in [62, 122, 182, 242, 301] {
            engine.report(KubeletHealthy, problem(Reason::KubeletUnkillable), at(secs));
            assert_shows(&mut engine, secs, Status::False, "KubeletHung");
        }
        assert_shows(&mut engine, 302, Status::False, "KubeletUnkillable");
        engine.report(KubeletHealthy, healthy(), at(302));
        engine.report(KubeletHealthy, healthy(), at(361));
        assert_shows(&mut engine, 362, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_restarted_agent_keeps_what_the_node_shows_until_its_monitor_knows_better() {
        let hung = || observed(Status::False, "KubeletHung");
        let mut kept = engine();
        kept.adopt(hung(), false, at(100));
        assert_shows(&mut kept, 100, Status::False, "KubeletHung");
        kept.report(KubeletHealthy, healthy(), at(101));
        assert_shows(&mut kept, 160, Status::False, "KubeletHung");
        kept.report(KubeletHealthy, healthy(), at(160));
        assert_shows(&mut kept, 161, Status::True, "KubeletIsHealthy");

        let mut booted = engine();
        booted.adopt(hung(), true, at(5));
        assert!(booted.evaluate(at(5)).is_empty(), "a hang does not survive a boot");

        let mut other = engine();
        other.adopt(observed(Status::False, "KubeletIsHealthy"), false, at(5));
        assert!(other.evaluate(at(5)).is_empty(), "a reason of health is no problem, whatever the status");

        let mut late = engine();
        late.report(KubeletHealthy, healthy(), at(1));
        late.adopt(hung(), false, at(2));
        assert_shows(&mut late, 2, Status::False, "KubeletHung");
        late.report(KubeletHealthy, healthy(), at(50));
        assert_shows(&mut late, 62, Status::True, "KubeletIsHealthy");

        let mut stopped = engine();
        stopped.report(KubeletHealthy, View::Unexplained(finding(Reason::KubeletNotFound)), at(1));
        assert_shows(&mut stopped, 1, Status::Unknown, "KubeletNotFound");
        stopped.adopt(observed(Status::Unknown, "KubeletStoppedByOperator"), false, at(2));
        assert_shows(&mut stopped, 2, Status::Unknown, "KubeletStoppedByOperator");
        let mut well = engine();
        well.report(KubeletHealthy, View::Unexplained(finding(Reason::KubeletNotFound)), at(0));
        assert_shows(&mut well, 0, Status::Unknown, "KubeletNotFound");
        well.report(KubeletHealthy, healthy(), at(1));
        assert_shows(&mut well, 1, Status::True, "KubeletIsHealthy");
        well.adopt(observed(Status::True, "KubeletIsHealthy"), false, at(1));
        assert_eq!(well.evaluate(at(1))[0].since, at(0), "the Node has shown no other status");
        well.report(KubeletHealthy, View::Unexplained(finding(Reason::KubeletNotFound)), at(2));
        assert_shows(&mut well, 2, Status::Unknown, "KubeletNotFound");
    }

    #[test]
    fn a_problem_from_before_the_node_was_seen_has_the_time_when_it_began() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(1));
        assert_shows(&mut engine, 1, Status::False, "KubeletCrashed");
        engine.node_seen(&[]);
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(50));
        assert_eq!(engine.evaluate(at(50))[0].since, at(1));
    }

    #[test]
    fn an_unknown_reason_is_kept_and_ends_like_any_other() {
        let mut engine = engine();
        engine.adopt(observed(Status::False, "KubeletOfNextYear"), false, at(1));
        engine.report(KubeletHealthy, healthy(), at(1));
        assert_shows(&mut engine, 1, Status::False, "KubeletOfNextYear");
        engine.report(KubeletHealthy, healthy(), at(60));
        assert_shows(&mut engine, 61, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_node_that_was_created_again_inherits_no_problem_that_is_over() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(1));
        engine.node_replaced();
        assert_shows(&mut engine, 1, Status::False, "KubeletCrashed");
        engine.report(KubeletHealthy, healthy(), at(2));
        engine.node_replaced();
        assert_shows(&mut engine, 2, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_reason_that_is_turned_down_is_a_warning_or_nothing() {
        let downgraded = |how| Engine::new(HEALTHY_FOR, BTreeMap::from([(Reason::KubeletHung, how)]));
        let mut warning = downgraded(ShownAs::Warning);
        warning.report(KubeletHealthy, problem(Reason::KubeletHung), at(1));
        assert_shows(&mut warning, 1, Status::True, "KubeletHung");
        let mut off = downgraded(ShownAs::Off);
        off.report(KubeletHealthy, problem(Reason::KubeletHung), at(1));
        assert_shows(&mut off, 1, Status::True, "KubeletIsHealthy");
    }

    #[test]
    fn a_suspended_host_forgets_no_problem() {
        let mut engine = engine();
        engine.report(KubeletHealthy, problem(Reason::KubeletCrashed), at(1));
        engine.resumed(at(1000));
        assert_shows(&mut engine, 1000, Status::False, "KubeletCrashed");
        engine.report(KubeletHealthy, healthy(), at(1001));
        engine.resumed(at(2000));
        assert_shows(&mut engine, 2000, Status::False, "KubeletCrashed");
    }

    #[test]
    fn a_message_is_bounded() {
        let mut engine = engine();
        let message = "ä".repeat(1000);
        engine.report(KubeletHealthy, View::Seen { healthy: message, findings: vec![] }, at(1));
        assert_eq!(engine.evaluate(at(1))[0].message.len(), MESSAGE_MAX);
    }
}
