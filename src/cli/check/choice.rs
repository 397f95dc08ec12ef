//! Which findings count, which are shown, and in which order.

use std::path::Path;

use crate::{
    kubelet::{place::Place, tree::Tree},
    rules::{
        self, Finding, NotChecked, Report, Severity,
        allow::{Allowed, Parted},
    },
};

/// What the operator wants to hear of.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub(super) select: &'a [String],
    pub(super) ignore: &'a [String],
    pub(super) shown_from: Severity,
}

/// What is reported.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Every finding that counts, the worst first; within a severity what explains others before what it explains.
    pub(super) findings: Vec<Finding>,
    /// From here on findings are too mild to be shown.
    pub(super) shown_from: Option<Severity>,
    pub(super) allowed: Vec<Allowed>,
    pub(super) refused: Vec<(Place, &'static str)>,
    pub(super) not_checked: Vec<NotChecked>,
}

/// A rule's id or name, or the beginning of an id: refused if it is none.
pub(super) fn rule(text: &str) -> Result<String, String> {
    let wanted = text.trim();
    let known = rules::all().any(|rule| is_named(wanted, rule.id));
    if known && !wanted.is_empty() {
        return Ok(wanted.to_owned());
    }
    let near = rules::all()
        .flat_map(|rule| [rule.id, rule.name])
        .map(|name| (strsim::osa_distance(wanted, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min();
    let hint = near.map_or_else(
        || "docs/reference/rules.md lists them".to_owned(),
        |(_, name)| format!("did you mean {name}?"),
    );
    Err(format!("no rule has this id, name or beginning; {hint}"))
}

/// Whether `wanted` (an id, a name, the beginning of an id) means the rule.
fn is_named(wanted: &str, id: &str) -> bool {
    let starts = id
        .get(..wanted.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(wanted));
    starts || rules::all().any(|rule| rule.id == id && rule.name == wanted)
}

impl Choice<'_> {
    fn wants(&self, id: &str) -> bool {
        let among = |list: &[String]| list.iter().any(|wanted| is_named(wanted, id));
        (self.select.is_empty() || among(self.select)) && !among(self.ignore)
    }

    pub(super) fn apply(
        &self,
        report: Report,
        part: impl FnOnce(Vec<Finding>) -> Parted,
    ) -> Chosen {
        let mut findings = report.findings;
        findings.retain(|finding| self.wants(finding.rule));
        let mut not_checked = report.not_checked;
        not_checked.retain(|skipped| self.wants(skipped.rule));
        not_checked.sort_by_key(|skipped| (skipped.lacks, skipped.rule));
        not_checked.dedup();
        let Parted {
            mut findings,
            allowed,
            refused,
        } = part(findings);
        findings.sort_by(|a, b| {
            let key = |finding: &Finding| {
                (
                    std::cmp::Reverse(finding.severity),
                    finding.caused_by.is_some(),
                )
            };
            (key(a), &a.at, a.rule).cmp(&(key(b), &b.at, b.rule))
        });
        Chosen {
            findings,
            shown_from: Some(self.shown_from),
            allowed,
            refused,
            not_checked,
        }
    }
}

impl Chosen {
    pub(super) fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Those that are shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| Some(finding.severity) >= self.shown_from)
    }

    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Whether a finding is about something that stands in the unit's place, such as a link that leads nowhere.
    pub(super) fn is_about(&self, unit: &str, tree: &dyn Tree) -> bool {
        self.findings.iter().any(|finding| {
            let file = Path::new(&*finding.at.file);
            file.ends_with(unit) && tree.lstat(file).is_ok()
        })
    }
}
