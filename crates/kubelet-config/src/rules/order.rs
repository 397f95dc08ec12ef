//! The findings in the order in which they are shown: folded, linked, the worst first.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Kind, Location, Report, Severity, Step, rule};

/// The most findings of one rule: far more than a person reads, and a bound for a hostile tree.
const MAX_OF_A_RULE: usize = 100;

/// Puts a report in order. `is_env_file` tells files of `EnvironmentFile=`.
pub(super) fn settle(report: &mut Report, is_env_file: &dyn Fn(&str) -> bool) {
    sort(&mut report.findings);
    fold(&mut report.findings);
    cover(&mut report.findings);
    defer_to_text_errors(&mut report.findings);
    bound(&mut report.findings);
    explain(&mut report.findings, is_env_file);
    link(&mut report.findings);
    let mut seen = BTreeSet::new();
    report.not_checked.retain(|one| seen.insert((one.rule, one.lacks)));
}

/// The worst first, then by place, then by rule.
pub(super) fn sort(findings: &mut [Finding]) {
    findings.sort_by(|one, other| {
        let (ours, theirs) = ((&one.at, one.rule, &one.message), (&other.at, other.rule, &other.message));
        other.severity.cmp(&one.severity).then_with(|| ours.cmp(&theirs))
    });
}

/// The same thing said twice is said once.
fn fold(findings: &mut Vec<Finding>) {
    findings.dedup_by(|one, other| one.rule == other.rule && one.at == other.at && one.message == other.message);
}

/// What is said of words that SD016 calls one mistake goes; what explains the mistake stays.
fn cover(findings: &mut Vec<Finding>) {
    let strays = findings.iter().filter(|one| one.rule == "SD016" && one.at.width > 0);
    let mistakes: Vec<Location> = strays.map(|one| one.at.clone()).collect();
    let is_in = |at: &Location, mistake: &Location| {
        let columns = mistake.column..=mistake.column + mistake.width;
        at.column > 0 && at.file_line() == mistake.file_line() && columns.contains(&at.column)
    };
    let is_covered = |at: &Location| mistakes.iter().any(|mistake| is_in(at, mistake));
    findings.retain(|one| one.rule.starts_with("SD") || one.caused_by.is_some() || !is_covered(&one.at));
}

/// Of a rule that finds without end, the worst; the last of them says how many there are.
fn bound(findings: &mut Vec<Finding>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    findings.retain(|finding| {
        let count = counts.entry(finding.rule).or_default();
        *count += 1;
        *count <= MAX_OF_A_RULE
    });
    for (rule, count) in counts.into_iter().filter(|(_, count)| *count > MAX_OF_A_RULE) {
        if let Some(last) = findings.iter_mut().rfind(|finding| finding.rule == rule) {
            let note = format!(" ({} more findings of this rule are left out)", count - MAX_OF_A_RULE);
            last.message.push_str(&note);
        }
    }
}

/// What is wrong with an argument may follow from the text that it comes from: then that is to be corrected.
fn explain(findings: &mut [Finding], is_env_file: &dyn Fn(&str) -> bool) {
    let causes = findings.iter().map(|one| (text_of(one, findings, is_env_file), loss_of(one, findings)));
    let causes: Vec<_> = causes.collect();
    for (finding, (text, loss)) in findings.iter_mut().zip(causes).filter(|(finding, _)| finding.caused_by.is_none()) {
        if let Some((id, at)) = &text {
            finding.remedy = Step::say(format!("follow the fix of {id} at {at}")).into();
        }
        finding.caused_by = text.or(loss);
    }
}

/// Where text is an error that systemd reads otherwise than it looks, no other edit may build on its value.
fn defer_to_text_errors(findings: &mut [Finding]) {
    let on_text = |finding: &Finding| rule(finding.rule).is_some_and(|rule| rule.kind == Kind::Text);
    let errors = findings.iter().filter(|one| on_text(one) && one.severity >= Severity::Error && one.at.line > 0);
    let errors: BTreeMap<_, _> = errors.map(|one| (one.at.at_line(one.at.line), one.rule)).collect();
    for finding in findings.iter_mut() {
        let own = on_text(finding).then(|| finding.at.at_line(finding.at.line));
        let places = || finding.remedy.edits().filter_map(Step::at).map(|at| at.at_line(at.line));
        let error = places().filter(|line| own.as_ref() != Some(line)).find_map(|line| errors.get_key_value(&line));
        if let Some((at, id)) = error {
            finding.remedy =
                Step::say(format!("first follow the fix of {id} at {at}, then run the check again")).into();
        }
    }
}

/// The finding on the text that a finding on an argument follows from.
fn text_of(finding: &Finding, all: &[Finding], is_env_file: &dyn Fn(&str) -> bool) -> Option<(&'static str, Location)> {
    let rules = rule(finding.rule)?.explained_by;
    // In an environment file every variable has its own line: a step is its name, and the finding is in the value.
    let is_line = is_env_file(&finding.at.file);
    let is_same_line = |at: &Location| is_line && at.line > 0 && at.file_line() == finding.at.file_line();
    let is_step = |at: &Location| overlaps(at, &finding.at) || is_same_line(at);
    let places = |one: &Finding| one.chain.iter().any(|step| is_step(&step.at)) || overlaps(&one.at, &finding.at);
    let cause = rules.iter().find_map(|rule| all.iter().find(|one| one.rule == *rule && places(one)))?;
    Some((cause.rule, cause.at.clone()))
}

/// The finding on the lost flag without which there would be no finding.
fn loss_of(finding: &Finding, all: &[Finding]) -> Option<(&'static str, Location)> {
    let flag = rule(finding.rule)?.lost_flag;
    let cause = all.iter().find(|one| one.lost_flags.iter().any(|lost| lost == flag))?;
    Some((cause.rule, cause.at.clone()))
}

/// Whether two places are on one line and have a character in common, as far as their columns are known.
pub(super) fn overlaps(one: &Location, other: &Location) -> bool {
    let is_same = one.line == other.line && one.file == other.file;
    let is_known = one.width > 0 && other.width > 0;
    is_same && (!is_known || one.column < other.column + other.width && other.column < one.column + one.width)
}

/// A cause that no finding names is dropped.
fn link(findings: &mut [Finding]) {
    let places: BTreeSet<_> = findings.iter().map(|finding| (finding.rule, finding.at.file_line())).collect();
    for finding in findings {
        finding.caused_by = finding.caused_by.take().filter(|(rule, at)| places.contains(&(*rule, at.file_line())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::NotChecked;

    fn finding(rule: &'static str, severity: Severity, line: u32) -> Finding {
        let at = Location::file("/etc/x").at_line(line);
        Finding::new(rule, severity, at, "said")
    }

    #[test]
    fn the_worst_comes_first_and_a_repetition_is_folded() {
        let mut report = Report {
            findings: vec![
                finding("SD011", Severity::Warning, 1),
                finding("SD008", Severity::Fatal, 9),
                finding("SD008", Severity::Fatal, 2),
                finding("SD011", Severity::Warning, 1),
            ],
            ..Report::default()
        };
        report.not_checked = vec![NotChecked { rule: "SD020", lacks: "x" }, NotChecked { rule: "SD020", lacks: "x" }];
        settle(&mut report, &|_| false);
        let order: Vec<_> = report.findings.iter().map(|one| (one.rule, one.at.line)).collect();
        assert_eq!(order, [("SD008", 2), ("SD008", 9), ("SD011", 1)]);
        assert_eq!(report.not_checked.len(), 1);
    }

    #[test]
    fn a_cause_that_no_finding_names_is_dropped() {
        let at = |line| Location::file("/etc/x").at_line(line);
        let mut report = Report {
            findings: vec![
                finding("CL001", Severity::Error, 7).caused_by("SD001", at(1)),
                finding("CL001", Severity::Error, 8).caused_by("SD003", at(1)),
                finding("SD001", Severity::Error, 1),
            ],
            ..Report::default()
        };
        settle(&mut report, &|_| false);
        let causes: Vec<_> = report.findings.iter().map(|one| one.caused_by.clone()).collect();
        assert_eq!(causes, [None, Some(("SD001", at(1))), None]);
    }

    #[test]
    fn swap_that_a_lost_flag_would_allow_follows_from_that_loss() {
        let loss = finding("SD011", Severity::Error, 1).lost(vec!["--fail-swap-on=false".to_owned()]);
        let mut report = Report { findings: vec![finding("KN001", Severity::Fatal, 2), loss], ..Report::default() };
        settle(&mut report, &|_| false);
        assert_eq!(report.findings[0].caused_by.as_ref().unwrap().0, "SD011");
    }

    #[test]
    fn a_stray_word_is_explained_by_what_is_said_of_its_line() {
        let mut report = Report {
            findings: vec![
                finding("SD016", Severity::Fatal, 3),
                finding("SD016", Severity::Fatal, 4),
                finding("SD015", Severity::Fatal, 3),
                finding("SD011", Severity::Warning, 4),
            ],
            ..Report::default()
        };
        settle(&mut report, &|_| false);
        let causes: Vec<_> = report
            .findings
            .iter()
            .filter(|one| one.rule == "SD016")
            .map(|one| one.caused_by.as_ref().map(|(rule, _)| *rule))
            .collect();
        assert_eq!(causes, [Some("SD015"), None]);
    }

    #[test]
    fn text_explains_its_own_word_of_a_line_that_has_others() {
        let at = |column, width| Location::file("/etc/x").at(4, column, width);
        let causes = |is_env_file| {
            let mut report = Report {
                findings: vec![
                    finding("SD006", Severity::Error, 9).step(at(13, 16), "sets EXTRA"),
                    Finding::new("FL004", Severity::Fatal, at(37, 15), "said"),
                    Finding::new("FL004", Severity::Fatal, at(20, 3), "said"),
                ],
                ..Report::default()
            };
            settle(&mut report, &|_| is_env_file);
            let flags = report.findings.into_iter().filter(|one| one.rule == "FL004");
            flags.map(|one| one.caused_by.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(causes(false), [true, false]);
        assert_eq!(causes(true), [true, true]);
    }

    #[test]
    fn a_rule_without_end_is_bounded_and_says_so() {
        let mut report = Report::default();
        for line in 1..=250 {
            report.add(finding("SD004", Severity::Warning, line));
        }
        report.add(finding("SD003", Severity::Warning, 1));
        settle(&mut report, &|_| false);
        let kept: Vec<_> = report.findings.iter().filter(|one| one.rule == "SD004").collect();
        assert_eq!(kept.len(), MAX_OF_A_RULE);
        assert!(kept.last().unwrap().message.contains("150 more"));
        assert_eq!(report.findings.len(), MAX_OF_A_RULE + 1);
    }
}
