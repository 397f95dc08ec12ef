//! Environment files: read by nobody, missing, skipped, or not read as they look.

use std::collections::BTreeMap;

use super::{
    Check, Finding, Report, Severity,
    lost::{Arrived, holds_flags, quoted, reload, restart, unit_name},
};
use crate::kubelet::{
    layers::Launcher,
    location::Location,
    snapshot::{Snapshot, UnreadFile},
    systemd::{Assignment, EnvFile, EnvFileState, EventKind},
};

pub(super) const RULES: &[(&str, Check)] = &[
    ("SD003", not_read),
    ("SD004", line_ignored),
    ("SD012", required_missing),
    ("SD013", dropped),
    ("SD014", quote_swallow),
];

fn not_read(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for file in &snapshot.unread_files {
        let telling = |assignment: &&Assignment| {
            holds_flags(&assignment.value)
                || (assignment.name.starts_with("KUBELET_") && !assignment.value.trim().is_empty())
        };
        let flagged = file.assignments.iter().find(|assignment| holds_flags(&assignment.value));
        if let Some(first) = flagged.or_else(|| file.assignments.iter().find(telling)) {
            report.add(unread(snapshot, &arrived, file, first));
        }
    }
}

fn unread(snapshot: &Snapshot, arrived: &Arrived<'_>, file: &UnreadFile, first: &Assignment) -> Finding {
    let text: Vec<&str> = file.assignments.iter().map(|assignment| assignment.value.as_str()).collect();
    let text = text.join("\n");
    let read = usual_file(snapshot);
    let unit = &snapshot.unit.name;
    let instead = match read {
        Some(read) => format!("{unit} reads {} ({})", read.path.display(), read.declared),
        None => format!("{unit} has no `EnvironmentFile=` that names it"),
    };
    let fix = match (snapshot.command.launcher, read) {
        (Launcher::K3s | Launcher::Rke2, _) => format!(
            "write the flags into the list `kubelet-arg` of /etc/rancher/{}/config.yaml and delete this file",
            if snapshot.command.launcher == Launcher::K3s { "k3s" } else { "rke2" }
        ),
        (_, Some(read)) => {
            format!("move the line to {} and delete this file, then {}", read.path.display(), restart(snapshot))
        }
        (_, None) => format!(
            "add `EnvironmentFile=-{}` and ${} to the unit, or move the flags to where `ExecStart=` reads them, then {}",
            file.at.file,
            first.name,
            reload(snapshot)
        ),
    };
    let finding = Finding::new(
        "SD003",
        arrived.error_if_wanted(&text, Severity::Warning),
        first.at.clone(),
        format!("this file sets {} but nothing reads it: {instead}{}", first.name, arrived.lost(&text)),
    )
    .fix(fix);
    let finding = file
        .assignments
        .iter()
        .filter(|assignment| assignment.at != first.at && holds_flags(&assignment.value))
        .fold(finding, |finding, more| {
            finding.step(more.at.clone(), format!("sets {}, read by nothing either", more.name))
        });
    match read {
        Some(read) => finding.step(read.declared.clone(), "the unit reads this file instead"),
        None => finding,
    }
}

/// The file that the unit reads for the operator's flags.
fn usual_file(snapshot: &Snapshot) -> Option<&EnvFile> {
    snapshot.unit.env_files.iter().rev().find(|file| !file.path.ends_with("kubeadm-flags.env"))
}

fn line_ignored(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for event in &snapshot.unit.events {
        let message = match &event.kind {
            EventKind::EnvLineIgnored { reason, bom: false } => {
                let reason = if reason == "export" { "`export` is for shells" } else { reason };
                format!("systemd ignores this line of the environment file: {reason}")
            }
            EventKind::EnvLineWithoutAssignment if holds_flags(&event.text) => {
                "systemd ignores this line of the environment file: it holds flags, but assigns them to no variable"
                    .to_owned()
            }
            _ => continue,
        };
        let severity = arrived.error_if_wanted(&event.text, Severity::Warning);
        let lost = arrived.lost(&event.text);
        report.add(Finding::new("SD004", severity, event.at.clone(), format!("{message}{lost}")).fix(format!(
            "write it as NAME=VALUE at {}, then {}",
            event.at,
            restart(snapshot)
        )));
    }
}

fn required_missing(snapshot: &Snapshot, report: &mut Report) {
    for file in &snapshot.unit.env_files {
        if file.optional || file.state != EnvFileState::Missing {
            continue;
        }
        report.add(
            Finding::new(
                "SD012",
                Severity::Fatal,
                file.declared.clone(),
                format!(
                    "{} cannot start: {} does not exist, and no dash before its path allows that",
                    snapshot.unit.name,
                    file.path.display()
                ),
            )
            .fix(format!(
                "create {0}, or write `EnvironmentFile=-{0}` at {1}, then {2}",
                file.path.display(),
                file.declared,
                reload(snapshot)
            )),
        );
    }
}

fn dropped(snapshot: &Snapshot, report: &mut Report) {
    for file in &snapshot.unit.env_files {
        let EnvFileState::Skipped { reason } = &file.state else {
            continue;
        };
        let path = file.path.display();
        let (severity, what) = if file.optional {
            (Severity::Error, "systemd skips all of it, without a word".to_owned())
        } else {
            let unit = &snapshot.unit.name;
            (Severity::Fatal, format!("{unit} cannot start (`Failed to load environment files`)"))
        };
        report.add(
            Finding::new(
                "SD013",
                severity,
                Location::file(&file.path),
                format!("{path} cannot be used ({reason}): {what}"),
            )
            .fix(format!(
                "save {path} as a regular file in UTF-8, without NUL, then `systemctl restart {}`",
                unit_name(snapshot)
            ))
            .step(file.declared.clone(), "this line loads it"),
        );
    }
    for event in &snapshot.unit.events {
        if let EventKind::BadEnvironmentFile { reason } = &event.kind {
            report.add(
                Finding::new(
                    "SD013",
                    Severity::Error,
                    event.at.clone(),
                    format!("systemd ignores this `EnvironmentFile=` ({reason}): no file is read"),
                )
                .fix(format!(
                    "write one absolute path, unquoted, with nothing between the dash and it, then {}",
                    reload(snapshot)
                )),
            );
        }
    }
}

fn quote_swallow(snapshot: &Snapshot, report: &mut Report) {
    let values = values_in_use(snapshot);
    for event in &snapshot.unit.events {
        let message = match &event.kind {
            EventKind::EnvQuoteNotClosed { lines } => format!(
                "the quote opened here is not closed: {lines} line{} became one value",
                if *lines == 1 { "" } else { "s" }
            ),
            EventKind::EnvTextAfterQuote => format!(
                "text stands behind the closing quote and becomes a part of the value: '{}'",
                quoted(&event.text)
            ),
            _ => continue,
        };
        let (file, line) = (&*event.at.file, event.at.line);
        let value = values.range(..=(file, line)).next_back();
        let in_use = value.is_some_and(|((other, _), last)| *other == file && line <= *last);
        let severity = if in_use || holds_flags(&event.text) { Severity::Error } else { Severity::Warning };
        report.add(Finding::new("SD014", severity, event.at.clone(), message).fix(format!(
            "close the quote at the end of the value, on the same line, put comments on lines of their own, then {}",
            restart(snapshot)
        )));
    }
}

/// Where the values stand that `ExecStart=` uses: file and first line, with the last line.
fn values_in_use(snapshot: &Snapshot) -> BTreeMap<(&str, u32), u32> {
    let used = snapshot.unit.variables.values();
    used.filter(|variable| !variable.referenced_at.is_empty())
        .map(|variable| {
            let at = &variable.effective.at;
            let last = variable.effective.marks.last().map_or(at.line, |(_, mark)| mark.line);
            ((&*at.file, at.line), last.max(at.line))
        })
        .collect()
}

#[cfg(test)]
mod tests;
