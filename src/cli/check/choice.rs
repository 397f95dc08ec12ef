//! Selects, filters and sorts the findings.

use std::cmp::Reverse;
use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::tree::Tree;
use kubelet_config::rules::allow::{self, Allowed, Parted};
use kubelet_config::rules::{self, Finding, NotChecked, Report, Severity};

/// The options that select findings.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// Check only these rules: ids, names or the start of ids (SD001,FL); can be repeated
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule)]
    select: Vec<String>,
    /// Do not check these rules; can be repeated
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule)]
    ignore: Vec<String>,
    /// Show only findings of this severity and worse; the exit code does not change [default: info; with --fix: error]
    #[arg(long, value_name = "SEVERITY", value_parser = severities())]
    severity: Option<Severity>,
}

/// The severities, worst first, with their names.
pub const SEVERITIES: [(Severity, &str); 4] =
    [(Severity::Fatal, "fatal"), (Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "info")];

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
    pub allowed: Vec<Allowed>,
    /// Comments that do not allow a finding, and why not.
    pub refused: Vec<(Location, &'static str)>,
    pub not_checked: Vec<NotChecked>,
}

/// Parses a rule's id or name, or the start of an id.
fn rule(text: &str) -> Result<String, String> {
    let wanted = text.trim();
    if !wanted.is_empty() && rules::rules().any(|rule| is_named(wanted, rule.id)) {
        return Ok(wanted.to_owned());
    }
    Err("no rule has this id, name or start of an id; list the rules with: nodevigil explain".to_owned())
}

/// Whether `wanted` is the rule's id or name, or the start of its id.
fn is_named(wanted: &str, id: &str) -> bool {
    let is_beginning = id.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted));
    is_beginning || name_of(id) == wanted
}

/// A rule's name.
pub fn name_of(id: &str) -> &'static str {
    rules::rules().find(|rule| rule.id == id).map_or("", |rule| rule.name)
}

impl Choice {
    fn wants(&self, id: &str) -> bool {
        let is_among = |list: &[String]| list.iter().any(|wanted| is_named(wanted, id));
        (self.select.is_empty() || is_among(&self.select)) && !is_among(&self.ignore)
    }

    /// Whether `--fix` fixes it. By default only errors, because other edits may change the configuration of a node that works.
    pub fn is_to_be_fixed(&self, finding: &Finding) -> bool {
        finding.severity >= self.severity.unwrap_or(Severity::Error)
    }

    pub fn apply(&self, report: Report, tree: &dyn Tree) -> Chosen {
        let Report { mut findings, mut not_checked } = report;
        findings.retain(|finding| self.wants(finding.rule));
        not_checked.retain(|skipped| self.wants(skipped.rule));
        not_checked.sort_by_key(|skipped| (skipped.lacks, skipped.rule));
        not_checked.dedup();
        let Parted { mut findings, allowed, refused } = allow::part(tree, findings);
        findings.sort_by(|a, b| {
            let key = |finding: &Finding| (Reverse(finding.severity), finding.caused_by.is_some());
            (key(a), &a.at, a.rule).cmp(&(key(b), &b.at, b.rule))
        });
        Chosen { findings, shown_from: self.severity.unwrap_or(Severity::Info), allowed, refused, not_checked }
    }
}

impl Chosen {
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
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
