//! Findings as SARIF 2.1.0, with the fields that GitHub's code scanning reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{self, Path};

use kubelet_config::kubelet::location::Location;
use kubelet_config::rules::{self, Finding, Severity};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::choice::Chosen;
use super::source::Sources;
use crate::settings::rule::name_of;

/// The page that explains the rules.
const RULES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/reference/rules.md");
/// The name of the root that was checked: what files are relative to.
const ROOT: &str = "ROOT";
/// What is escaped in the path of a URI.
const OUTSIDE_PATHS: AsciiSet =
    NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'@');

pub fn log(root: &Path, sources: &Sources, chosen: &Chosen) -> Value {
    let used: BTreeSet<&str> = chosen.shown().map(|finding| finding.rule).collect();
    let rules = rules::rules().filter(|rule| used.contains(rule.id)).map(|rule| {
        json!({
            "id": rule.id,
            "name": rule.name,
            "shortDescription": {"text": rule.summary},
            "fullDescription": {"text": rule.meaning()},
            "helpUri": format!("{RULES}#{}-{}", rule.id.to_lowercase(), rule.name),
            "help": {"text": format!("{}\nSeen: {}", rule.fix, rule.seen)},
        })
    });
    let base = path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let mut seen = BTreeMap::new();
    let results = chosen.shown().map(|finding| {
        let line = fingerprint(sources, finding);
        let count = seen.entry(line.clone()).and_modify(|count| *count += 1).or_insert(1);
        result(sources, finding, &format!("{line}:{count}"))
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "nodevigil",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules.collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {ROOT: {"uri": format!("file://{}/", escaped(&base.to_string_lossy()).trim_end_matches('/'))}},
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

/// The same for a finding in the next run, whatever lines were added above it: code scanning does not report it again.
fn fingerprint(sources: &Sources, finding: &Finding) -> String {
    let text = sources.line(&finding.at).unwrap_or_default().trim();
    let digest = digest(&SHA256, format!("{}\0{}\0{text}", finding.rule, finding.at.file).as_bytes());
    let start = digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    format!("{start:016x}")
}

fn result(sources: &Sources, finding: &Finding, fingerprint: &str) -> Value {
    let fix = finding.fix.as_ref().map(|fix| format!("\n{fix}")).unwrap_or_default();
    let related = finding.chain.iter().zip(1..).map(|(step, id)| {
        let mut location = location(sources, &step.at);
        location["id"] = json!(id);
        location["message"] = json!({"text": step.text});
        location
    });
    json!({
        "ruleId": finding.rule,
        "level": match finding.severity {
            Severity::Fatal | Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "note",
        },
        "message": {"text": format!("{}{fix}", finding.message)},
        "locations": [location(sources, &finding.at)],
        "partialFingerprints": {"primaryLocationLineHash": fingerprint},
        "relatedLocations": related.collect::<Vec<_>>(),
        "properties": {"severity": finding.severity, "name": name_of(finding.rule)},
    })
}

fn location(sources: &Sources, location: &Location) -> Value {
    let uri = escaped(location.file.trim_start_matches('/'));
    let mut physical = json!({"artifactLocation": {"uri": uri, "uriBaseId": ROOT}});
    if location.line > 0 {
        physical["region"] = json!({"startLine": location.line});
    }
    if location.line > 0 && location.column > 0 {
        let length = sources.line(location).and_then(|line| u32::try_from(line.chars().count()).ok());
        let line_end = length.unwrap_or(u32::MAX).saturating_add(1);
        let end = location.column.saturating_add(location.width.max(1));
        physical["region"]["startColumn"] = json!(location.column);
        physical["region"]["endColumn"] = json!(end.min(line_end).max(location.column));
    }
    json!({"physicalLocation": physical})
}

/// A path as a URI has it.
fn escaped(path: &str) -> String {
    utf8_percent_encode(path, &OUTSIDE_PATHS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped() {
        assert_eq!(escaped("etc/a b:ü"), "etc/a%20b%3A%C3%BC");
    }
}
