//! Findings as SARIF 2.1.0, as much of it as GitHub's code scanning reads.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use super::{choice::Chosen, json::name_of, source::Sources};
use crate::{
    kubelet::place::Place,
    rules::{self, Finding, Severity},
};

pub(super) fn print(root: &Path, sources: &Sources<'_>, chosen: &Chosen) -> String {
    let used: BTreeSet<&str> = chosen.shown().map(|finding| finding.rule).collect();
    let rules: Vec<Value> = rules::all()
        .filter(|rule| used.contains(rule.id))
        .map(|rule| {
            json!({
                "id": rule.id,
                "name": rule.name,
                "shortDescription": {"text": rule.name},
                "fullDescription": {"text": rule.doc},
                "help": {"text": format!("{}\nSeen: {}", rule.fix, rule.source)},
            })
        })
        .collect();
    let results: Vec<Value> = chosen
        .shown()
        .map(|finding| result(root, sources, finding))
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "nodevigil",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn result(root: &Path, sources: &Sources<'_>, finding: &Finding) -> Value {
    let fix = finding.fix.as_ref().map(|fix| format!("\n{fix}"));
    let text = format!("{}{}", finding.message, fix.unwrap_or_default());
    let related: Vec<Value> = finding
        .chain
        .iter()
        .zip(1..)
        .map(|(step, id)| {
            let mut location = location(root, sources, &step.at);
            if let Some(fields) = location.as_object_mut() {
                fields.insert("id".to_owned(), json!(id));
                fields.insert("message".to_owned(), json!({"text": step.text}));
            }
            location
        })
        .collect();
    json!({
        "ruleId": finding.rule,
        "level": match finding.severity {
            Severity::Fatal | Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "note",
        },
        "message": {"text": text},
        "locations": [location(root, sources, &finding.at)],
        "relatedLocations": related,
        "properties": {"severity": finding.severity, "name": name_of(finding.rule)},
    })
}

fn location(root: &Path, sources: &Sources<'_>, place: &Place) -> Value {
    let mut region = json!({"startLine": place.line});
    if place.column > 0 {
        region["startColumn"] = json!(place.column);
        let width = place.width.max(1);
        let length = sources.line(place).map_or(u32::MAX, |line| {
            u32::try_from(line.chars().count()).unwrap_or(u32::MAX)
        });
        let end = place.column.saturating_add(width);
        region["endColumn"] = json!(end.min(length.saturating_add(1)).max(place.column));
    }
    let mut physical = json!({"artifactLocation": {"uri": uri(root, &place.file)}});
    if place.line > 0 {
        physical["region"] = region;
    }
    json!({"physicalLocation": physical})
}

/// Relative to the folder where the program was started, as code scanning wants it, where the root is.
fn uri(root: &Path, file: &str) -> String {
    let below = file.trim_start_matches('/');
    let path = root.join(below);
    let text = path.to_string_lossy();
    let relative = text.strip_prefix("./").unwrap_or(&text);
    let escaped: String = relative
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'@' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    if path.is_absolute() {
        format!("file://{escaped}")
    } else {
        escaped
    }
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
