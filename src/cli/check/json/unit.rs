//! The unit, its environment and the words that reach the kubelet, as JSON has them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kubelet::{
    layers::Launcher,
    place::Place,
    shown::{hide_in_words, hide_secrets, is_secret_variable},
    snapshot::Snapshot,
    systemd::{Assignment, EnvFileState, LoadState, Source, Word},
};

#[derive(Serialize)]
pub(super) struct Unit {
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
pub(super) struct VariableRow {
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
pub(super) struct Kubelet {
    launcher: &'static str,
    in_process: bool,
    order_significant: bool,
    flags: Vec<String>,
    words: Vec<WordRow>,
    files: Vec<String>,
}

pub(super) fn unit(snapshot: &Snapshot) -> Unit {
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

/// What may be shown of each word.
pub(in crate::cli::check) fn texts(words: &[Word]) -> Vec<String> {
    let hidden = hide_in_words(words.iter().map(|word| word.text.as_str()));
    let is_secret = |word: &Word| {
        let mut names = word.origins.iter().map(|origin| origin.variable.as_str());
        names.any(is_secret_variable)
    };
    let texts = words.iter().zip(hidden);
    texts
        .map(|(word, text)| match text.split_once('=') {
            Some((flag, _)) if is_secret(word) && flag.starts_with("--") => format!("{flag}=***"),
            _ if is_secret(word) => "***".to_owned(),
            _ => text,
        })
        .collect()
}

pub(super) fn rows(words: &[Word]) -> Vec<WordRow> {
    words
        .iter()
        .zip(texts(words))
        .map(|(word, text)| row(word, text))
        .collect()
}

fn row(word: &Word, text: String) -> WordRow {
    WordRow {
        text,
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
pub(in crate::cli::check) fn shown_value(assignment: &Assignment) -> String {
    if is_secret_variable(&assignment.name) && !assignment.value.is_empty() {
        "********".to_owned()
    } else {
        hide_secrets(&assignment.value)
    }
}

pub(in crate::cli::check) fn source_word(source: &Source) -> &'static str {
    match source {
        Source::Manager => "manager",
        Source::Passed => "PassEnvironment",
        Source::Environment => "Environment",
        Source::File { .. } => "EnvironmentFile",
    }
}

pub(super) fn variables(snapshot: &Snapshot) -> BTreeMap<String, VariableRow> {
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

pub(in crate::cli::check) fn launcher_word(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::Direct => "direct",
        Launcher::K3s => "k3s",
        Launcher::Rke2 => "rke2",
        Launcher::MicroK8s => "microk8s",
        Launcher::K8sSnap => "k8s-snap",
        Launcher::Script => "script",
    }
}

pub(super) fn kubelet(snapshot: &Snapshot) -> Kubelet {
    let launch = &snapshot.launch;
    let words = launch.words.get(1..).unwrap_or_default();
    Kubelet {
        launcher: launcher_word(launch.launcher),
        in_process: launch.launcher.is_in_process(),
        order_significant: launch.order_significant,
        flags: texts(words),
        words: rows(words),
        files: launch.files.iter().map(Place::file_line).collect(),
    }
}
