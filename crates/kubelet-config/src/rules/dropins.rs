//! Files that look like drop-ins of the unit and are not read.

use super::{
    Check, Finding, Report, Severity,
    lost::{Arrived, not_a_drop_in, reload},
};
use crate::kubelet::{
    search::flags_in,
    snapshot::Snapshot,
    systemd::{Event, EventKind, NotADropIn},
};

pub(super) const RULES: &[(&str, Check)] = &[("SD009", ignored), ("SD010", hidden)];

/// Endings that package managers and editors give to what they set aside.
const SET_ASIDE: &[&str] = &[
    ".dpkg-old",
    ".dpkg-dist",
    ".dpkg-new",
    ".dpkg-tmp",
    ".rpmnew",
    ".rpmsave",
    ".rpmorig",
    ".ucf-old",
    ".ucf-dist",
    ".ucf-new",
    ".swp",
    ".swo",
    "~",
];

fn ignored(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for event in &snapshot.unit.events {
        if let EventKind::DropInNotRead { reason } = &event.kind {
            report.add(not_read(snapshot, &arrived, event, *reason));
        }
    }
}

fn not_read(snapshot: &Snapshot, arrived: &Arrived<'_>, event: &Event, reason: NotADropIn) -> Finding {
    let file = &*event.at.file;
    let name = file.rsplit('/').next().unwrap_or(file);
    let unit = &snapshot.unit.name;
    let is_conf = std::path::Path::new(name).extension().is_some_and(|end| end == "conf");
    let usual = match reason {
        NotADropIn::Prefix => Severity::Info,
        NotADropIn::Suffix if SET_ASIDE.iter().any(|ending| name.ends_with(ending)) => Severity::Info,
        NotADropIn::Hidden if !is_conf => Severity::Info,
        NotADropIn::Suffix | NotADropIn::Hidden | NotADropIn::Folder => Severity::Warning,
    };
    let lost = arrived.lost(&event.text);
    let new_name = name.trim_start_matches('.').split(".conf").next().unwrap_or(name);
    Finding::new(
        "SD009",
        arrived.error_if_wanted(&event.text, usual),
        event.at.clone(),
        format!("this file is not read for {unit}: {}{lost}", not_a_drop_in(reason)),
    )
    .fix(format!(
        "if it is meant to be read, `mv {file} /etc/systemd/system/{unit}.d/{new_name}.conf`, then {}; else delete it",
        reload(snapshot)
    ))
}

fn hidden(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for event in &snapshot.unit.events {
        let (by, message) = match &event.kind {
            EventKind::DropInShadowed { by } => (
                by,
                format!(
                    "this file is not read: {} has the same name and takes its place{}",
                    by.display(),
                    if is_type_level(&event.at.file) {
                        " (the unit's own folder beats service.d, even from /usr/lib)"
                    } else {
                        ""
                    }
                ),
            ),
            EventKind::DropInMasked { by, what } => (by, format!("this file is masked by {} ({what})", by.display())),
            _ => continue,
        };
        let absent = flags_in(&event.text).iter().any(|flag| !arrived.has_name(flag));
        let severity = if absent || arrived.lacks_one_of(&event.text) { Severity::Warning } else { Severity::Info };
        let lost = arrived.lost(&event.text);
        report.add(
            Finding::new("SD010", severity, event.at.clone(), format!("{message}{lost}"))
                .fix(format!(
                    "if both are meant to be read, give one of them another name, then {}; else delete {}",
                    reload(snapshot),
                    event.at.file
                ))
                .step(super::Location::file(by), "this file counts"),
        );
    }
}

/// Whether a file lies in a folder for every service.
fn is_type_level(file: &str) -> bool {
    file.contains("/service.d/")
}

#[cfg(test)]
mod tests;
