//! Which findings count, which are shown, and in which order.

use std::{cmp::Reverse, path::Path};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kubelet_config::{
    kubelet::{location::Location, tree::Tree},
    rules::{
        self, Finding, NotChecked, Report, Severity,
        allow::{self, Allowed, Parted},
    },
};

/// Which findings are wanted.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// Only these rules: ids, names or beginnings of ids (SD001,FL); can be repeated
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule)]
    select: Vec<String>,
    /// Not these rules; can be repeated
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule)]
    ignore: Vec<String>,
    /// Show no findings below this severity (the exit code does not change) [default: info; of --fix: error]
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

/// What is reported.
#[derive(Debug)]
pub struct Chosen {
    /// Every finding that counts, worst first. Of the same severity, what explains others comes before what it explains.
    pub findings: Vec<Finding>,
    /// Findings below it are not shown.
    shown_from: Severity,
    pub allowed: Vec<Allowed>,
    /// Comments that allow nothing, and why.
    pub refused: Vec<(Location, &'static str)>,
    pub not_checked: Vec<NotChecked>,
}

/// A rule's id or name, or the beginning of an id: refused if there is none.
fn rule(text: &str) -> Result<String, String> {
    let wanted = text.trim();
    if !wanted.is_empty() && rules::rules().any(|rule| is_named(wanted, rule.id)) {
        return Ok(wanted.to_owned());
    }
    Err("no rule has this id, name or beginning of an id; docs/reference/rules.md lists them".to_owned())
}

/// Whether `wanted` (an id, a name, the beginning of an id) means the rule.
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

    /// Whether `--fix` is to fix it. An edit for what is no error may change what a node that works gets.
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

    /// Those that are shown.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity >= self.shown_from)
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether a finding is about something in the unit's place, such as a link that leads nowhere.
    pub fn is_about(&self, unit: &str, tree: &dyn Tree) -> bool {
        let is_about = |finding: &Finding| {
            let file = Path::new(&*finding.at.file);
            file.ends_with(unit) && tree.lstat(file).is_ok()
        };
        self.findings.iter().any(is_about)
    }
}
