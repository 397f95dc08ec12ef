//! Selects, filters and sorts the findings.

use std::cmp::Reverse;
use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::tree::Tree;
use kubelet_config::rules::allow::{self, Allowed, Parted};
use kubelet_config::rules::{self, Finding, NotChecked, Report, Rule, Severity};

use crate::settings::rule::SEVERITIES;
use crate::settings::{CheckSettings, RuleName};

/// The options that select findings.
#[derive(Debug, Clone, clap::Args)]
pub struct Choice {
    /// Check only these rules: ids, names or the start of ids (SD001,FL); can be repeated
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    select: Vec<RuleName>,
    /// Skip these rules; can be repeated. Without --select, the rules of the setting `[check] ignore` are skipped too
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    ignore: Vec<RuleName>,
    /// Show only findings of this severity and worse; the exit code does not change [default: info; with --fix: error]
    #[arg(long, value_name = "SEVERITY", value_parser = severities())]
    severity: Option<Severity>,
    /// Exit with code 1 if there is a finding of this severity or worse
    #[arg(long, value_name = "SEVERITY", default_value = "error", value_parser = severities())]
    deny: Severity,
}

fn severities() -> impl TypedValueParser<Value = Severity> {
    let by_name = |name: String| SEVERITIES.iter().find(|(_, known)| *known == name);
    let names = PossibleValuesParser::new(SEVERITIES.map(|(_, name)| name));
    names.map(move |name| by_name(name).map_or(Severity::Info, |(severity, _)| *severity))
}

/// The selected findings.
#[derive(Debug)]
pub struct Chosen {
    /// The findings, worst first. Of the same severity, a cause comes before its consequences.
    pub findings: Vec<Finding>,
    /// Findings below this severity are not shown.
    shown_from: Severity,
    /// Findings from this severity on make the exit code 1.
    pub deny: Severity,
    /// The rules that were selected.
    pub rules: Vec<&'static Rule>,
    pub allowed: Vec<Allowed>,
    /// Comments that do not allow a finding, and why not.
    pub refused: Vec<(Location, &'static str)>,
    pub not_checked: Vec<NotChecked>,
}

impl Choice {
    /// The same without what the settings ignore. A rule that the command line selects is checked.
    pub fn with(&self, settings: &CheckSettings) -> Self {
        let mut choice = self.clone();
        if choice.select.is_empty() {
            choice.ignore.extend(settings.ignore.iter().cloned());
        }
        choice
    }

    fn wants(&self, rule: &Rule) -> bool {
        let is_among = |list: &[RuleName]| list.iter().any(|wanted| wanted.is(rule));
        (self.select.is_empty() || is_among(&self.select)) && !is_among(&self.ignore)
    }

    /// Whether `--fix` fixes it. By default only errors, because other edits may change the configuration of a node that works.
    pub fn is_to_be_fixed(&self, finding: &Finding) -> bool {
        finding.severity >= self.severity.unwrap_or(Severity::Error)
    }

    pub fn apply(&self, report: Report, tree: &dyn Tree) -> Chosen {
        let Report { mut findings, mut not_checked } = report;
        let rules: Vec<&Rule> = rules::rules().filter(|rule| self.wants(rule)).collect();
        let is_selected = |id: &str| rules.iter().any(|rule| rule.id == id);
        findings.retain(|finding| is_selected(finding.rule));
        not_checked.retain(|skipped| is_selected(skipped.rule));
        not_checked.sort_by_key(|skipped| (skipped.lacks, skipped.rule));
        not_checked.dedup();
        let Parted { mut findings, allowed, refused } = allow::part(tree, findings);
        findings.sort_by(|a, b| {
            let key = |finding: &Finding| (Reverse(finding.severity), finding.caused_by.is_some());
            (key(a), &a.at, a.rule).cmp(&(key(b), &b.at, b.rule))
        });
        let shown_from = self.severity.unwrap_or(Severity::Info);
        Chosen { findings, shown_from, deny: self.deny, rules, allowed, refused, not_checked }
    }
}

impl Chosen {
    /// Whether a finding makes the exit code 1.
    pub fn is_denied(&self, finding: &Finding) -> bool {
        finding.severity >= self.deny
    }

    /// The findings that are shown.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity >= self.shown_from)
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether a finding is about a file at the unit's path, such as a dangling link.
    pub fn is_about(&self, unit: &str, tree: &dyn Tree) -> bool {
        let is_about = |finding: &Finding| {
            let file = Path::new(&*finding.at.file);
            file.ends_with(unit) && tree.lstat(file).is_ok()
        };
        self.findings.iter().any(is_about)
    }
}
