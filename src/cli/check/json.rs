//! The findings and everything they rest on, as one JSON document: docs/reference/check-json.md, check.schema.json.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Check,
    choice::Chosen,
    source::{Sources, hide_secrets, is_secret_name},
};
use crate::{
    kubelet::{
        effective::From,
        layers::Launcher,
        place::Place,
        snapshot::{Intent, Phase, Snapshot},
        systemd::{Assignment, EnvFileState, LoadState, Source, Word},
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
struct Unit {
    name: String,
    load: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_reason: Option<String>,
    fragment: Option<String>,
    dropins: Vec<String>,
    env_files: Vec<EnvFileRow>,
}

#[derive(Serialize)]
struct EnvFileRow {
    path: String,
    declared: String,
    optional: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
pub(super) struct WordRow {
    text: String,
    at: String,
    column: u32,
    declared: String,
    variables: Vec<String>,
}

#[derive(Serialize)]
struct VariableRow {
    value: String,
    from: String,
    source: &'static str,
    overrides: Vec<Lost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referenced_at: Option<String>,
}

#[derive(Serialize)]
struct Lost {
    at: String,
    value: String,
}

#[derive(Serialize)]
struct Kubelet {
    launcher: &'static str,
    in_process: bool,
    order_significant: bool,
    flags: Vec<String>,
    words: Vec<WordRow>,
    files: Vec<String>,
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
        _sources: &Sources<'_>,
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
            argv: snapshot.unit.argv.iter().map(word_text).collect(),
            argv_order_significant: snapshot.launch.order_significant,
            words: snapshot.unit.argv.iter().map(word).collect(),
            variables: variables(snapshot),
            kubelet: kubelet(snapshot),
            running: snapshot.process.as_ref().map(|process| Running {
                pid: process.pid,
                argv: process.argv.iter().map(|word| hide_secrets(word)).collect(),
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

fn unit(snapshot: &Snapshot) -> Unit {
    let unit = &snapshot.unit;
    let (load, load_reason) = match &unit.load {
        LoadState::Loaded => ("loaded", None),
        LoadState::NotFound => ("not-found", None),
        LoadState::Masked { by } => ("masked", Some(by.file_line())),
        LoadState::BadSetting { at, reason } => ("bad-setting", Some(format!("{at}: {reason}"))),
        LoadState::Error { at, reason } => ("error", Some(format!("{at}: {reason}"))),
    };
    Unit {
        name: unit.name.clone(),
        load,
        load_reason,
        fragment: unit
            .fragment
            .as_ref()
            .map(|path| path.display().to_string()),
        dropins: unit
            .dropins
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        env_files: unit
            .env_files
            .iter()
            .map(|file| {
                let (state, reason) = match &file.state {
                    EnvFileState::Read => ("read", None),
                    EnvFileState::Missing => ("missing", None),
                    EnvFileState::Skipped { reason } => ("skipped", Some(reason.clone())),
                };
                EnvFileRow {
                    path: file.path.display().to_string(),
                    declared: file.declared.file_line(),
                    optional: file.optional,
                    state,
                    reason,
                }
            })
            .collect(),
    }
}

fn word_text(word: &Word) -> String {
    hide_secrets(&word.text)
}

fn word(word: &Word) -> WordRow {
    WordRow {
        text: word_text(word),
        at: word.at().file_line(),
        column: word.at().column,
        declared: word.declared.file_line(),
        variables: word
            .origins
            .iter()
            .filter(|origin| !origin.variable.is_empty())
            .map(|origin| origin.variable.clone())
            .collect(),
    }
}

/// A variable's value, or stars.
pub(super) fn shown_value(assignment: &Assignment) -> String {
    if is_secret_name(&assignment.name) && !assignment.value.is_empty() {
        "********".to_owned()
    } else {
        hide_secrets(&assignment.value)
    }
}

pub(super) fn source_word(source: &Source) -> &'static str {
    match source {
        Source::Manager => "manager",
        Source::Passed => "PassEnvironment",
        Source::Environment => "Environment",
        Source::File { .. } => "EnvironmentFile",
    }
}

fn variables(snapshot: &Snapshot) -> BTreeMap<String, VariableRow> {
    let rows = snapshot.unit.variables.iter().map(|(name, variable)| {
        let winner = &variable.winner;
        let row = VariableRow {
            value: shown_value(winner),
            from: winner.at.file_line(),
            source: source_word(&winner.source),
            overrides: variable
                .losers
                .iter()
                .map(|loser| Lost {
                    at: loser.at.file_line(),
                    value: shown_value(loser),
                })
                .collect(),
            referenced_at: variable.referenced_at.first().map(Place::file_line),
        };
        (name.clone(), row)
    });
    rows.collect()
}

pub(super) fn launcher_word(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::Direct => "direct",
        Launcher::K3s => "k3s",
        Launcher::Rke2 => "rke2",
        Launcher::MicroK8s => "microk8s",
        Launcher::K8sSnap => "k8s-snap",
        Launcher::Script => "script",
    }
}

fn kubelet(snapshot: &Snapshot) -> Kubelet {
    let launch = &snapshot.launch;
    let words = launch.words.get(1..).unwrap_or_default();
    Kubelet {
        launcher: launcher_word(launch.launcher),
        in_process: launch.launcher.is_in_process(),
        order_significant: launch.order_significant,
        flags: words.iter().map(word_text).collect(),
        words: words.iter().map(word).collect(),
        files: launch.files.iter().map(Place::file_line).collect(),
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
