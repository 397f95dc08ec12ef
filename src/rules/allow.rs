//! Findings that the configuration itself allows: `# nodevigil: allow SD003 kept for the old image`.
//!
//! The comment stands on the line above the finding's (or higher in the same block of comments, or above the first of
//! several continued lines), or in YAML and TOML behind the line itself; for a finding on a file as a whole it stands in the
//! block of comments at the file's start. Several rules are separated by commas. The reason is required: an allow
//! without one allows nothing, and is reported.

use std::{collections::BTreeMap, path::Path};

use super::{Allowed, Finding, Report, Rule, Severity, all, order};
use crate::kubelet::{place::Place, snapshot::Snapshot, tree::Tree};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "AL001",
    name: "allow-without-reason",
    severity: "warning",
    doc: "A comment `# nodevigil: allow RULE` would allow a finding, but gives no reason, or names no rule, or one that \
              does not exist. It allows nothing until it does.",
    source: "ruff's blanket `noqa` (PGH004) and ESLint's require-description say the same of theirs",
    fix: "Write `# nodevigil: allow SD003 the reason`.",
    run: judged_elsewhere,
}];

/// The files' text is not in the snapshot: [`apply`] reports for this rule.
fn judged_elsewhere(_: &Snapshot, _: &mut Report) {}

const MARK: &str = "nodevigil:";

/// What a comment allows.
#[derive(Debug, PartialEq, Eq)]
enum Allow<'a> {
    /// These rules, for this reason.
    Rules(Vec<&'a str>, &'a str),
    /// Nothing, because it is not complete.
    Nothing(String),
}

/// Reads a comment's text, behind its `#`.
fn parse(comment: &str) -> Option<Allow<'_>> {
    let rest = comment
        .trim_start_matches(['#', ';'])
        .trim()
        .strip_prefix(MARK)?
        .trim_start();
    let rest = rest.strip_prefix("allow")?;
    let mut rest = rest
        .strip_prefix([' ', '\t', ':', '('])
        .unwrap_or(rest)
        .trim_start();
    let mut rules = Vec::new();
    loop {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if !looks_like_a_rule(word) {
            break;
        }
        rules.push(word);
        let after = after.trim_start_matches([')', ':']).trim_start();
        rest = after.strip_prefix(',').map_or(after, str::trim_start);
    }
    let reason = rest
        .trim_start_matches([')', ':', '-', '–', '—', ' ', '\t'])
        .trim();
    let unknown = rules.iter().find(|id| !all().any(|rule| rule.id == **id));
    Some(match (rules.is_empty(), unknown, reason.is_empty()) {
        (true, ..) => Allow::Nothing("it names no rule".to_owned()),
        (false, Some(id), _) => Allow::Nothing(format!("there is no rule {id}")),
        (false, None, true) => Allow::Nothing("it gives no reason".to_owned()),
        (false, None, false) => Allow::Rules(rules, reason),
    })
}

/// Two capital letters and three digits.
fn looks_like_a_rule(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() == 5
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2..].iter().all(u8::is_ascii_digit)
}

/// Moves the findings that the configuration allows to [`Report::allowed`], and reports allows that lack something.
pub(super) fn apply(report: &mut Report, tree: &dyn Tree) {
    let mut texts: BTreeMap<std::sync::Arc<str>, String> = BTreeMap::new();
    for finding in &report.findings {
        let file = &finding.at.file;
        if !texts.contains_key(file) {
            let text = tree.read_text(Path::new(&**file)).ok();
            let text = text.filter(|text| text.contains(MARK)).unwrap_or_default();
            texts.insert(std::sync::Arc::clone(file), text);
        }
    }
    let lines: BTreeMap<&str, Vec<&str>> = texts
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(file, text)| (&**file, text.lines().collect()))
        .collect();
    if lines.is_empty() {
        return;
    }
    let mut incomplete = Vec::new();
    let mut kept = Vec::new();
    for finding in std::mem::take(&mut report.findings) {
        let comments = lines
            .get(&*finding.at.file)
            .map(|lines| comments_for(lines, finding.at.line))
            .unwrap_or_default();
        let allows = comments
            .iter()
            .filter_map(|(line, text)| Some((*line, parse(text)?)));
        let mut reason = None;
        for (line, allow) in allows {
            let at = finding.at.at_line(line);
            match allow {
                Allow::Rules(rules, why) if rules.contains(&finding.rule) => {
                    reason = Some((why.to_owned(), at));
                }
                Allow::Rules(..) => {}
                Allow::Nothing(why) => incomplete.push(not_complete(at, &why)),
            }
        }
        match reason {
            Some((reason, at)) => report.allowed.push(Allowed {
                finding,
                reason,
                at,
            }),
            None => kept.push(finding),
        }
    }
    kept.append(&mut incomplete);
    order::sort(&mut kept);
    kept.dedup_by(|one, other| one == other);
    report.findings = kept;
}

fn not_complete(at: Place, why: &str) -> Finding {
    Finding::new(
        "AL001",
        Severity::Warning,
        at,
        format!("this comment allows nothing: {why}"),
    )
    .fix("write it as `# nodevigil: allow SD003 the reason`")
}

/// The comments that bear on a line, each with its number.
fn comments_for<'a>(lines: &[&'a str], line: u32) -> Vec<(u32, &'a str)> {
    let is_comment = |text: &str| text.trim_start().starts_with(['#', ';']);
    let number = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
    let Some(index) = (line as usize).checked_sub(1) else {
        return lines
            .iter()
            .enumerate()
            .take_while(|(_, text)| is_comment(text) || text.trim().is_empty())
            .map(|(index, text)| (number(index), *text))
            .collect();
    };
    let mut found = Vec::new();
    let trailing = lines.get(index).and_then(|text| behind(text));
    if let Some(comment) = trailing.filter(|_| has_trailing_comments(lines)) {
        found.push((number(index), comment));
    }
    for above in (0..index.min(lines.len())).rev() {
        let text = lines[above];
        if is_comment(text) {
            found.push((number(above), text));
        } else if !text.ends_with('\\') {
            break;
        }
    }
    found
}

/// A comment behind a value.
fn behind(line: &str) -> Option<&str> {
    let start = line.find(MARK)?;
    let hash = line[..start].rfind('#')?;
    line[..hash].ends_with([' ', '\t']).then(|| &line[hash..])
}

/// Whether a file's format has comments behind values: YAML and TOML have, systemd's units and environment files have not,
/// where such text would be a part of the value.
fn has_trailing_comments(lines: &[&str]) -> bool {
    let key = |line: &&str| {
        let line = line.trim();
        line == "---"
            || line.starts_with("- ")
            || line.split_once(':').is_some_and(|(key, value)| {
                !key.is_empty()
                    && key
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+'))
                    && (value.is_empty() || value.starts_with(' '))
            })
            || line.split_once(" = ").is_some()
    };
    let content =
        |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with(['#', ';', '[']);
    lines.iter().find(content).is_some_and(key)
}

#[cfg(test)]
mod tests;
