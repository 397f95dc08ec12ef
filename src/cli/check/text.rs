//! Findings as text, in the style of rustc: the source line, labels below its words, and what to do.

mod snippet;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use annotate_snippets::{Group, Level, Renderer};
use kubelet_config::fix::Plan;
use kubelet_config::kubelet::config::ConfigFileState;
use kubelet_config::kubelet::snapshot::Snapshot;
use kubelet_config::kubelet::systemd::EnvFileState;
use kubelet_config::rules::{Finding, Severity};
use redact::escape_controls;
use textwrap::{Options, WordSplitter};

use super::choice::Chosen;
use super::fix::mends;
use super::source::Sources;
use crate::settings::rule::{SEVERITIES, name_of, severity_name};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub is_colored: bool,
    pub columns: usize,
    /// Whether the rules that were not checked are listed.
    pub is_verbose: bool,
}

/// What `--fix` would do.
#[derive(Clone, Copy)]
pub struct Fix<'a> {
    pub plan: &'a Plan,
    /// The command that applies the patch.
    pub command: &'a str,
}

/// The whole report.
pub fn report(
    snapshot: &Snapshot,
    sources: &Sources,
    chosen: &Chosen,
    notes: &[String],
    fix: Fix<'_>,
    style: Style,
) -> String {
    let mut out = String::new();
    let mut fixed = 0;
    for finding in chosen.shown() {
        let is_fixed = mends(fix.plan, finding);
        fixed += usize::from(is_fixed);
        _ = write!(out, "{}\n\n", one(finding, sources, is_fixed, style));
    }
    let mut asides = Vec::new();
    for allowed in &chosen.allowed {
        let (finding, reason) = (&allowed.finding, &allowed.reason);
        asides.push(format!("allowed: {} at {}, by line {}: {reason}", finding.rule, finding.at, allowed.by.line));
    }
    asides.extend(chosen.refused.iter().map(|(at, why)| format!("note: the comment at {at} {why}")));
    asides.extend(notes.iter().map(|note| format!("note: {note}")));
    if style.is_verbose {
        let mut by_lack: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for skipped in &chosen.not_checked {
            by_lack.entry(skipped.lacks).or_default().push(skipped.rule);
        }
        asides.extend(by_lack.iter().map(|(lacks, rules)| format!("not checked: {} ({lacks})", rules.join(", "))));
    }
    asides.push(summary(snapshot, chosen, style));
    for aside in asides {
        _ = writeln!(out, "{}", hang(&escape_controls(&aside), style.columns, 0, 2));
    }
    if fixed > 0 {
        // The command is on a line of its own, so that it can be copied.
        _ = writeln!(out, "--fix fixes {fixed} of them:\n  {}", escape_controls(fix.command));
    }
    out
}

/// Wraps `text` at blanks into lines of at most `columns` characters; a longer word gets its own line. The first line is shorter by
/// `taken` characters, and the others begin with `indent` blanks.
fn hang(text: &str, columns: usize, taken: usize, indent: usize) -> String {
    let (first, others) = (" ".repeat(taken), " ".repeat(indent));
    let options = Options::new(columns).initial_indent(&first).subsequent_indent(&others);
    let options = options.break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options).get(taken..).unwrap_or_default().to_owned()
}

fn plural(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn summary(snapshot: &Snapshot, chosen: &Chosen, style: Style) -> String {
    let counts = SEVERITIES.iter().filter_map(|(severity, name)| match (chosen.count(*severity), severity) {
        (0, _) => None,
        (count, Severity::Error | Severity::Warning) => Some(plural(count, name)),
        (count, _) => Some(format!("{count} {name}")),
    });
    let counts: Vec<String> = counts.collect();
    let fragment = snapshot.unit.fragment.as_ref().map(|path| path.display().to_string());
    let unit = fragment.unwrap_or_else(|| snapshot.unit.name.clone());
    let mut text = format!("{} in {unit}", if counts.is_empty() { "nothing found".into() } else { counts.join(", ") });
    let files = files(snapshot);
    if files > 0 {
        _ = write!(text, " and {}", plural(files, "file"));
    }
    let hidden = chosen.findings.len() - chosen.shown().count();
    if hidden > 0 {
        _ = write!(text, "; {hidden} not shown (--severity)");
    }
    let not_checked: BTreeSet<&str> = chosen.not_checked.iter().map(|skipped| skipped.rule).collect();
    if !not_checked.is_empty() {
        let advice = if style.is_verbose { "" } else { " (--verbose lists them)" };
        _ = write!(text, "; {} not checked{advice}", plural(not_checked.len(), "rule"));
    }
    text
}

/// The number of files that were read in addition to the unit's fragment.
fn files(snapshot: &Snapshot) -> usize {
    let env_files = snapshot.unit.env_files.iter().filter(|file| file.state == EnvFileState::Read);
    let config = snapshot.config.files.iter().filter(|file| file.state == ConfigFileState::Read);
    snapshot.unit.dropins.len() + env_files.count() + snapshot.command.files.len() + config.count()
}

/// One finding.
fn one(finding: &Finding, sources: &Sources, is_fixed: bool, style: Style) -> String {
    let (level, color) = match finding.severity {
        Severity::Fatal | Severity::Error => (Level::ERROR, "1;91"),
        Severity::Warning => (Level::WARNING, "1;93"),
        Severity::Info => (Level::INFO, "1;94"),
    };
    let name = severity_name(finding.severity);
    let tag = format!("{name}[{}]", format!("{} {}", finding.rule, name_of(finding.rule)).trim_end());
    let message = hang(&escape_controls(&finding.message), style.columns, tag.chars().count() + 2, 2);
    let (mut group, mut footnotes) = snippet::draw(finding, sources, style, Group::with_level(level));
    if let Some((rule, at)) = &finding.caused_by {
        footnotes.push(format!("follows from {rule} at {at}"));
    }
    footnotes.extend(is_fixed.then(|| "`nodevigil check --fix` fixes this".to_owned()));
    let width = style.columns.saturating_sub(12);
    for note in footnotes {
        group = group.element(Level::NOTE.message(hang(&escape_controls(&note), width, 0, 0)));
    }
    if let Some(fix) = &finding.fix {
        let lines: Vec<_> = fix.lines().map(escape_controls).collect();
        group = group.element(Level::HELP.message(hang(&lines.join("\n"), width, 0, 0)));
    }
    let (heading, renderer) = if style.is_colored {
        (format!("\x1b[{color}m{tag}\x1b[0m\x1b[1m: {message}\x1b[0m"), Renderer::styled())
    } else {
        (format!("{tag}: {message}"), Renderer::plain())
    };
    format!("{heading}\n{}", renderer.term_width(style.columns).render(&[group]))
}

#[cfg(test)]
mod tests;
