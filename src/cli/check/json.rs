//! The findings and their inputs as one JSON document: docs/reference/check-json.md, check.schema.json.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kubelet_config::kubelet::effective::From;
use kubelet_config::kubelet::layers::Launcher;
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::snapshot::{Lifecycle, Snapshot};
use kubelet_config::kubelet::systemd::{Arg, Assignment, EnvFile, EnvFileState, LoadState, Source, Unit};
use kubelet_config::rules::Finding;
use redact::{hide_in_words, hide_secrets, is_secret_variable};
use serde_json::{Map, Value, json};

use super::choice::Chosen;
use crate::settings::rule::{SEVERITIES, name_of};

/// Incremented when a field changes its meaning or is removed, not when one is added.
const SCHEMA: u32 = 1;

/// `denied`: the files that could not be read for lack of permission.
pub fn document(
    root: &Path,
    snapshot: &Snapshot,
    chosen: &Chosen,
    notes: &[String],
    denied: &BTreeSet<PathBuf>,
) -> Value {
    let mut document = json!({
        "schema": SCHEMA,
        "nodevigil": env!("CARGO_PKG_VERSION"),
        "root": root.display().to_string(),
        "phase": if snapshot.lifecycle == Lifecycle::BeforeFirstStart { "before" } else { "after" },
        "host": {
            "hostname": snapshot.machine.hostname.as_ref().map(|found| &found.value),
            "kubelet_version": snapshot.version.as_ref().map(ToString::to_string),
        },
        "intent": snapshot.intent,
        "unit": unit(&snapshot.unit),
        "argv": texts(&snapshot.unit.argv),
        "argv_order_significant": snapshot.command.launcher.is_order_significant(),
        "words": words(&snapshot.unit.argv),
        "variables": variables(&snapshot.unit),
        "kubelet": kubelet(snapshot),
        "effective": effective(snapshot),
        "files": files(snapshot),
        "findings": chosen.shown().map(finding).collect::<Vec<_>>(),
        "not_checked": chosen.not_checked.iter().map(|skipped| json!({
            "rule": skipped.rule, "name": name_of(skipped.rule), "lacks": skipped.lacks,
        })).collect::<Vec<_>>(),
        "allowed": chosen.allowed.iter().map(|allowed| json!({
            "reason": allowed.reason, "by": allowed.by.file_line(), "finding": finding(&allowed.finding),
        })).collect::<Vec<_>>(),
        "notes": notes,
        "denied": denied.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "summary": Map::from_iter(SEVERITIES.map(|(severity, name)| (name.to_owned(), chosen.count(severity).into()))),
    });
    if let Some(process) = &snapshot.observed.process {
        let argv = hide_in_words(process.argv.iter().map(String::as_str));
        document["running"] = json!({"pid": process.pid, "argv": argv, "age_secs": process.age_secs});
    }
    document
}

fn unit(unit: &Unit) -> Value {
    let (load, reason) = match &unit.load {
        LoadState::Loaded => ("loaded", None),
        LoadState::NotFound => ("not-found", None),
        LoadState::Masked { by } => ("masked", Some(by.file_line())),
        LoadState::BadSetting { at, reason } => ("bad-setting", Some(format!("{at}: {reason}"))),
        LoadState::Error { at, reason } => ("error", Some(format!("{at}: {reason}"))),
    };
    let shown = |path: &Path| path.display().to_string();
    let mut row = json!({
        "name": unit.name,
        "load": load,
        "fragment": unit.fragment.as_deref().map(shown),
        "dropins": unit.dropins.iter().map(|path| shown(path)).collect::<Vec<_>>(),
        "env_files": unit.env_files.iter().map(env_file).collect::<Vec<_>>(),
    });
    if let Some(reason) = reason {
        row["load_reason"] = reason.into();
    }
    row
}

fn env_file(file: &EnvFile) -> Value {
    let (state, reason) = match &file.state {
        EnvFileState::Read => ("read", None),
        EnvFileState::Missing => ("missing", None),
        EnvFileState::Skipped { reason } => ("skipped", Some(reason)),
    };
    let mut row = json!({
        "path": file.path.display().to_string(), "declared": file.declared.file_line(), "optional": file.optional, "state": state,
    });
    if let Some(reason) = reason {
        row["reason"] = reason.as_str().into();
    }
    row
}

/// The text of each word, without secrets.
fn texts(words: &[Arg]) -> Vec<String> {
    let hidden = hide_in_words(words.iter().map(|word| word.text.as_str()));
    let show = |(word, text): (&Arg, String)| {
        let is_secret = word.origins.iter().any(|origin| is_secret_variable(&origin.variable));
        match text.split_once('=') {
            Some((flag, _)) if is_secret && flag.starts_with("--") => format!("{flag}=***"),
            _ if is_secret => "***".to_owned(),
            _ => text,
        }
    };
    words.iter().zip(hidden).map(show).collect()
}

fn words(words: &[Arg]) -> Vec<Value> {
    let row = |(word, text): (&Arg, String)| {
        let variables = word.origins.iter().map(|origin| &origin.variable).filter(|name| !name.is_empty());
        json!({
            "text": text, "at": word.at().file_line(), "column": word.at().column, "declared": word.declared.file_line(),
            "variables": variables.collect::<Vec<_>>(),
        })
    };
    words.iter().zip(texts(words)).map(row).collect()
}

fn variables(unit: &Unit) -> Map<String, Value> {
    let value = |assignment: &Assignment| {
        let is_secret = is_secret_variable(&assignment.name) && !assignment.value.is_empty();
        if is_secret { "********".to_owned() } else { hide_secrets(&assignment.value) }
    };
    let rows = unit.variables.iter().map(|(name, variable)| {
        let effective = &variable.effective;
        let source = match effective.source {
            Source::Manager => "manager",
            Source::Passed => "PassEnvironment",
            Source::Environment => "Environment",
            Source::File { .. } => "EnvironmentFile",
        };
        let lost = |overridden: &Assignment| json!({"at": overridden.at.file_line(), "value": value(overridden)});
        let mut row = json!({
            "value": value(effective), "from": effective.at.file_line(), "source": source,
            "overrides": variable.overridden.iter().map(lost).collect::<Vec<_>>(),
        });
        if let Some(at) = variable.referenced_at.first() {
            row["referenced_at"] = at.file_line().into();
        }
        (name.clone(), row)
    });
    rows.collect()
}

fn kubelet(snapshot: &Snapshot) -> Value {
    let command = &snapshot.command;
    let own_words = command.args.get(1..).unwrap_or_default();
    let launcher = match command.launcher {
        Launcher::Direct => "direct",
        Launcher::K3s => "k3s",
        Launcher::Rke2 => "rke2",
        Launcher::K0s => "k0s",
        Launcher::MicroK8s => "microk8s",
        Launcher::K8sSnap => "k8s-snap",
        Launcher::Script => "script",
    };
    json!({
        "launcher": launcher,
        "in_process": command.launcher.is_in_process(),
        "order_significant": command.launcher.is_order_significant(),
        "flags": texts(own_words),
        "words": words(own_words),
        "files": command.files.iter().map(Location::file_line).collect::<Vec<_>>(),
    })
}

fn effective(snapshot: &Snapshot) -> Map<String, Value> {
    let rows = snapshot.settings.0.iter().map(|(path, setting)| {
        let from = match &setting.from {
            From::Flag(at) | From::File(at) => at.file_line(),
            From::Default { legacy: false } => "default".to_owned(),
            From::Default { legacy: true } => "default without --config".to_owned(),
            From::Distribution => "distribution".to_owned(),
        };
        (path.clone(), json!({"value": without_secrets(&setting.value), "from": from}))
    });
    rows.collect()
}

/// The paths whose change can change the kubelet's configuration: files that exist or may appear, and their directories.
fn files(snapshot: &Snapshot) -> BTreeSet<String> {
    let unit = &snapshot.unit;
    let of_unit = unit.fragment.iter().chain(&unit.dropins);
    let directories = of_unit.clone().filter_map(|path| path.parent()).map(Path::to_owned);
    let tops = ["/etc/systemd/system.control", "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];
    let usual =
        tops.map(Path::new).into_iter().flat_map(|top| [top.join(&unit.name), top.join(format!("{}.d", unit.name))]);
    let distribution = match snapshot.command.launcher {
        Launcher::K3s => Some("/etc/rancher/k3s"),
        Launcher::Rke2 => Some("/etc/rancher/rke2"),
        _ => None,
    };
    let distribution =
        distribution.into_iter().flat_map(|top| ["config.yaml", "config.yaml.d"].map(|name| Path::new(top).join(name)));
    let environment = unit.env_files.iter().map(|file| &file.path);
    let paths = of_unit.chain(environment).cloned().chain(directories).chain(usual).chain(distribution);
    let of_kubelet = snapshot.command.files.iter().chain(snapshot.config.files.iter().map(|file| &file.at));
    let config_dir = snapshot.flags.value("config-dir").map(|path| Path::new("/").join(path).display().to_string());
    let others = of_kubelet.map(|location| location.file.to_string()).chain(config_dir);
    paths.map(|path| path.display().to_string()).chain(others).filter(|path| path.starts_with('/')).collect()
}

/// The value of a setting without secrets: a URL may contain a password or a signature.
fn without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => hide_secrets(text).into(),
        Value::Array(items) => items.iter().map(without_secrets).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), without_secrets(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn finding(finding: &Finding) -> Value {
    let chain = finding
        .chain
        .iter()
        .map(|step| json!({"at": step.at.file_line(), "column": step.at.column, "text": step.text}));
    json!({
        "rule": finding.rule,
        "name": name_of(finding.rule),
        "severity": finding.severity,
        "at": finding.at.file_line(),
        "line": finding.at.line,
        "column": finding.at.column,
        "width": finding.at.width,
        "message": finding.message,
        "fix": finding.fix,
        "lost_flags": finding.lost_flags,
        "caused_by": finding.caused_by.as_ref().map(|(rule, at)| json!({"rule": rule, "at": at.file_line()})),
        "chain": chain.collect::<Vec<_>>(),
    })
}
