//! Findings as SARIF 2.1.0, with the fields that GitHub's code scanning reads.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use kubelet_config::kubelet::location::Location;
use kubelet_config::rules::{self, Finding, Severity};
use serde_json::{Value, json};

use super::choice::{Chosen, name_of};
use super::source::Sources;

pub fn log(root: &Path, sources: &Sources, chosen: &Chosen) -> Value {
    let used: BTreeSet<&str> = chosen.shown().map(|finding| finding.rule).collect();
    let rules = rules::rules().filter(|rule| used.contains(rule.id)).map(|rule| {
        json!({
            "id": rule.id,
            "name": rule.name,
            "shortDescription": {"text": rule.summary},
            "fullDescription": {"text": rule.meaning()},
            "help": {"text": format!("{}\nSeen: {}", rule.fix, rule.seen)},
        })
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
            "results": chosen.shown().map(|finding| result(root, sources, finding)).collect::<Vec<_>>(),
        }],
    })
}

fn result(root: &Path, sources: &Sources, finding: &Finding) -> Value {
    let fix = finding.fix.as_ref().map(|fix| format!("\n{fix}")).unwrap_or_default();
    let related = finding.chain.iter().zip(1..).map(|(step, id)| {
        let mut location = location(root, sources, &step.at);
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
        "locations": [location(root, sources, &finding.at)],
        "relatedLocations": related.collect::<Vec<_>>(),
        "properties": {"severity": finding.severity, "name": name_of(finding.rule)},
    })
}

fn location(root: &Path, sources: &Sources, location: &Location) -> Value {
    let mut physical = json!({"artifactLocation": {"uri": uri(root, &location.file)}});
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

/// Relative to the working directory if the root is, as code scanning expects.
fn uri(root: &Path, file: &str) -> String {
    let path = root.join(file.trim_start_matches('/'));
    let text = path.to_string_lossy();
    let mut uri = String::from(if path.is_absolute() { "file://" } else { "" });
    for byte in text.strip_prefix("./").unwrap_or(&text).bytes() {
        if byte.is_ascii_alphanumeric() || b"/.-_~@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files_are_uris() {
        let at = |root: &str, file: &str| uri(Path::new(root), file);
        assert_eq!(at("/", "/etc/a b"), "file:///etc/a%20b");
        assert_eq!(at("images/worker", "/etc/x"), "images/worker/etc/x");
        assert_eq!(at(".", "/etc/ü"), "etc/%C3%BC");
    }
}
