//! The findings and everything they rest on, as one JSON document: docs/reference/check-json.md, check.schema.json.

mod unit;

use std::collections::BTreeMap;

use serde::Serialize;

use unit::{Kubelet, Unit, VariableRow, WordRow, kubelet, rows, unit, variables};
pub(super) use unit::{launcher_word, shown_value, source_word, texts};

use super::{Check, choice::Chosen};
use crate::{
    kubelet::{
        effective::From,
        shown::hide_in_words,
        snapshot::{Intent, Phase, Snapshot},
    },
    rules::{self, Finding, Severity},
};

/// Raised when a field changes its meaning or goes away; a new field does not raise it.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document {
    schema: u32,
    nodevigil: &'static str,
    root: String,
    phase: &'static str,
    host: Host,
    intent: Wanted,
    unit: Unit,
    argv: Vec<String>,
    argv_order_significant: bool,
    words: Vec<WordRow>,
    variables: BTreeMap<String, VariableRow>,
    kubelet: Kubelet,
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Running>,
    effective: BTreeMap<String, SettingRow>,
    findings: Vec<FindingRow>,
    not_checked: Vec<NotCheckedRow>,
    allowed: Vec<AllowedRow>,
    notes: Vec<String>,
    summary: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
struct Host {
    hostname: Option<String>,
    kubelet_version: Option<String>,
}

#[derive(Serialize)]
struct Wanted {
    cloud_provider: Option<String>,
    node_ip: Option<String>,
    provider_id: Option<String>,
    node_labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Running {
    pid: u32,
    argv: Vec<String>,
    age_secs: Option<u64>,
}

#[derive(Serialize)]
struct SettingRow {
    value: serde_json::Value,
    from: String,
}

#[derive(Serialize)]
pub(super) struct FindingRow {
    rule: &'static str,
    name: &'static str,
    severity: Severity,
    at: String,
    line: u32,
    column: u32,
    width: u32,
    message: String,
    fix: Option<String>,
    caused_by: Option<Cause>,
    chain: Vec<StepRow>,
}

#[derive(Serialize)]
struct Cause {
    rule: &'static str,
    at: String,
}

#[derive(Serialize)]
struct StepRow {
    at: String,
    column: u32,
    text: String,
}

#[derive(Serialize)]
struct NotCheckedRow {
    rule: &'static str,
    name: &'static str,
    lacks: &'static str,
}

#[derive(Serialize)]
struct AllowedRow {
    reason: String,
    by: String,
    finding: FindingRow,
}

/// A rule's name.
pub(super) fn name_of(id: &str) -> &'static str {
    rules::all()
        .find(|rule| rule.id == id)
        .map_or("", |rule| rule.name)
}

impl Document {
    pub(super) fn new(
        check: &Check,
        snapshot: &Snapshot,
        chosen: &Chosen,
        notes: &[String],
    ) -> Self {
        let hostname = snapshot.machine.hostname.as_ref();
        let mut summary = BTreeMap::new();
        for (severity, word) in [
            (Severity::Fatal, "fatal"),
            (Severity::Error, "error"),
            (Severity::Warning, "warning"),
            (Severity::Info, "info"),
        ] {
            summary.insert(word, chosen.count(severity));
        }
        Self {
            schema: SCHEMA,
            nodevigil: env!("CARGO_PKG_VERSION"),
            root: check.root.display().to_string(),
            phase: match snapshot.phase {
                Phase::Before => "before",
                Phase::After => "after",
            },
            host: Host {
                hostname: hostname.map(|found| found.value.clone()),
                kubelet_version: snapshot.version.as_ref().map(ToString::to_string),
            },
            intent: wanted(&snapshot.intent),
            unit: unit(snapshot),
            argv: texts(&snapshot.unit.argv),
            argv_order_significant: snapshot.launch.order_significant,
            words: rows(&snapshot.unit.argv),
            variables: variables(snapshot),
            kubelet: kubelet(snapshot),
            running: snapshot.process.as_ref().map(|process| Running {
                pid: process.pid,
                argv: hide_in_words(process.argv.iter().map(String::as_str)),
                age_secs: process.age_secs,
            }),
            effective: effective(snapshot),
            findings: chosen.shown().map(finding).collect(),
            not_checked: chosen
                .not_checked
                .iter()
                .map(|skipped| NotCheckedRow {
                    rule: skipped.rule,
                    name: name_of(skipped.rule),
                    lacks: skipped.lacks,
                })
                .collect(),
            allowed: chosen
                .allowed
                .iter()
                .map(|allowed| AllowedRow {
                    reason: allowed.reason.clone(),
                    by: allowed.by.file_line(),
                    finding: finding(&allowed.finding),
                })
                .collect(),
            notes: notes.to_vec(),
            summary,
        }
    }

    pub(super) fn print(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("every key is text, so nothing in it cannot be written");
        text.push('\n');
        text
    }
}

fn wanted(intent: &Intent) -> Wanted {
    Wanted {
        cloud_provider: intent.cloud_provider.clone(),
        node_ip: intent.node_ip.clone(),
        provider_id: intent.provider_id.clone(),
        node_labels: intent.node_labels.clone(),
    }
}

/// Where a setting comes from, in words.
pub(super) fn from_words(from: &From) -> String {
    match from {
        From::Flag(at) | From::File(at) => at.file_line(),
        From::Default { legacy: false } => "default".to_owned(),
        From::Default { legacy: true } => "default without --config".to_owned(),
        From::Distribution => "distribution".to_owned(),
    }
}

fn effective(snapshot: &Snapshot) -> BTreeMap<String, SettingRow> {
    let rows = snapshot.settings.0.iter().map(|(path, setting)| {
        let row = SettingRow {
            value: setting.value.clone(),
            from: from_words(&setting.from),
        };
        (path.clone(), row)
    });
    rows.collect()
}

fn finding(finding: &Finding) -> FindingRow {
    FindingRow {
        rule: finding.rule,
        name: name_of(finding.rule),
        severity: finding.severity,
        at: finding.at.file_line(),
        line: finding.at.line,
        column: finding.at.column,
        width: finding.at.width,
        message: finding.message.clone(),
        fix: finding.fix.clone(),
        caused_by: finding.caused_by.as_ref().map(|(rule, at)| Cause {
            rule,
            at: at.file_line(),
        }),
        chain: finding
            .chain
            .iter()
            .map(|step| StepRow {
                at: step.at.file_line(),
                column: step.at.column,
                text: step.text.clone(),
            })
            .collect(),
    }
}
