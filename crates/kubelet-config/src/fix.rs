//! Edits that remedy findings. Each is tried on a copy in memory, and kept only if its finding goes and none comes.

mod overlay;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::overlay::Overlay;
use crate::kubelet::tree::Tree;
use crate::rules::{Finding, Report, Rule, Severity, rule};
use crate::step::{NOT_THE_OPERATORS, Remedy, edited};

/// The edits of a host that were found to help.
#[derive(Debug, Default)]
pub struct Plan {
    /// The files that change, by path.
    pub files: Vec<ChangedFile>,
    /// The findings that are gone then, in the order in which they were remedied.
    pub fixed: Vec<Finding>,
    /// What is found then.
    pub left: Report,
}

/// A file that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Its path on the host.
    pub path: PathBuf,
    /// Its text; `None` if it is not there yet.
    pub before: Option<String>,
    /// Its text afterwards.
    pub after: String,
}

/// The most edits that are tried: each costs a check of the whole tree.
const MAX_TRIALS: usize = 50;

/// Tries the edits of the findings that are chosen, the worst first. `judge` resolves a tree and runs the rules.
pub fn plan(tree: &dyn Tree, judge: &dyn Fn(&dyn Tree) -> Report, is_chosen: &dyn Fn(&Finding) -> bool) -> Plan {
    let mut overlay = Overlay::new(tree);
    let mut report = judge(&overlay);
    let mut fixed = Vec::new();
    let mut tried: Vec<Finding> = Vec::new();
    for _ in 0..MAX_TRIALS {
        let mut candidates =
            report.findings.iter().filter(|finding| finding.remedy.edits().next().is_some() && is_chosen(finding));
        let Some(finding) = candidates.find(|finding| !tried.contains(finding)) else {
            break;
        };
        tried.push(finding.clone());
        let Some(trial) = apply(&overlay, &finding.remedy) else { continue };
        let after = judge(&trial);
        if is_better(&report, &after, finding) {
            fixed.push(finding.clone());
            overlay = trial;
            report = after;
        }
    }
    Plan { files: overlay.changed(), fixed, left: report }
}

/// The tree with these edits; `None` if one does not fit or changes a file that is not the operator's.
fn apply<'a>(overlay: &Overlay<'a>, remedy: &Remedy) -> Option<Overlay<'a>> {
    let mut trial = overlay.clone();
    for edit in remedy.edits() {
        let path = Path::new(&*edit.at()?.file);
        if is_vendors(overlay, path) {
            return None;
        }
        let text = match trial.read(path) {
            Ok(bytes) => String::from_utf8(bytes).ok()?,
            Err(error) if error.is_not_found() => String::new(),
            Err(_) => return None,
        };
        let text = edited(&text, edit)?;
        trial.write(path, text);
    }
    Some(trial)
}

fn is_vendors(tree: &dyn Tree, path: &Path) -> bool {
    let real = tree.real_path(path).unwrap_or_else(|_| path.to_owned());
    NOT_THE_OPERATORS.iter().any(|directory| path.starts_with(directory) || real.starts_with(directory))
}

/// Whether a finding is gone or less severe, and no rule finds more errors in a file than before.
fn is_better(before: &Report, after: &Report, finding: &Finding) -> bool {
    let same = |other: &&Finding| {
        other.rule == finding.rule && other.at.file == finding.at.file && other.severity >= finding.severity
    };
    let count = |report: &Report| report.findings.iter().filter(same).count();
    let lost: BTreeSet<&String> = before.findings.iter().flat_map(|one| &one.lost_flags).collect();
    let (old, new) = (errors(before, &BTreeSet::new()), errors(after, &lost));
    let is_worse = new.iter().any(|(key, count)| old.get(key).is_none_or(|old| old < count));
    count(after) < count(before) && !is_worse
}

/// How many errors a rule finds in a file, of what is not drift. A flag that was `lost` before may be lost at the
/// next obstacle now: that and its consequences do not count.
fn errors<'a>(report: &'a Report, lost: &BTreeSet<&String>) -> BTreeMap<(&'static str, &'a str), usize> {
    let is_lost_before =
        |one: &&Finding| !one.lost_flags.is_empty() && one.lost_flags.iter().all(|flag| lost.contains(flag));
    let losses = report.findings.iter().filter(is_lost_before).map(|one| (one.rule, one.at.file_line()));
    let losses: BTreeSet<_> = losses.collect();
    let is_consequence =
        |one: &Finding| one.caused_by.as_ref().is_some_and(|(rule, at)| losses.contains(&(*rule, at.file_line())));
    let mut errors = BTreeMap::new();
    let severe = report.findings.iter().filter(|finding| finding.severity >= Severity::Error);
    let severe = severe.filter(|one| one.severity == Severity::Fatal || !is_lost_before(one) && !is_consequence(one));
    for finding in severe.filter(|finding| !rule(finding.rule).is_some_and(Rule::is_drift)) {
        *errors.entry((finding.rule, &*finding.at.file)).or_default() += 1;
    }
    errors
}

#[cfg(test)]
mod tests;
