//! Files that look like drop-ins of the unit and are not read.

use super::{
    Finding, Report, Severity,
    lost::{Arrived, reload},
};
use crate::kubelet::{
    flag_text::flags_in,
    snapshot::Snapshot,
    systemd::{Event, EventKind, NotADropIn},
};

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

pub(super) fn ignored(snapshot: &Snapshot, report: &mut Report) {
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
    let message = format!("systemd does not read this file for {unit}: {}", not_a_drop_in(reason));
    Finding::new("SD009", arrived.error_if_expected(&event.text, usual), event.at.clone(), message)
        .lost(arrived.lost(&event.text))
        .fix(format!(
            "if the kubelet needs its settings, move it to /etc/systemd/system/{unit}.d/ under a name of its own that ends in .conf, then {}; else delete it",
            reload(snapshot)
        ))
}

/// Why a file is no drop-in.
fn not_a_drop_in(reason: NotADropIn) -> &'static str {
    match reason {
        NotADropIn::Suffix => "its name does not end in .conf",
        NotADropIn::Hidden => "its name starts with a dot",
        NotADropIn::Prefix => "this folder is for units whose names begin with the folder's name, up to the dash",
        NotADropIn::Folder => "its directory is not a drop-in directory of this unit",
    }
}

pub(super) fn hidden(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for event in &snapshot.unit.events {
        let (by, message) = match &event.kind {
            EventKind::DropInShadowed { by } => {
                let why = if is_type_level(&event.at.file) {
                    " (a file of the unit's own folder replaces one of service.d, even in /usr/lib)"
                } else {
                    ""
                };
                (by, format!("systemd reads {}, which has the same name, in place of this file{why}", by.display()))
            }
            EventKind::DropInMasked { by, what } => (by, format!("{} ({what}) masks this file", by.display())),
            _ => continue,
        };
        let absent = flags_in(&event.text).iter().any(|flag| !arrived.has_name(flag));
        let severity = if absent || arrived.lacks_one_of(&event.text) { Severity::Warning } else { Severity::Info };
        report.add(
            Finding::new("SD010", severity, event.at.clone(), message)
                .lost(arrived.lost(&event.text))
                .fix(format!(
                    "to have both read, give one of them another name, then {}; else delete {}",
                    reload(snapshot),
                    event.at.file
                ))
                .step(super::Location::file(by), "systemd reads this file"),
        );
    }
}

/// Whether a file lies in a folder for every service.
fn is_type_level(file: &str) -> bool {
    file.contains("/service.d/")
}

#[cfg(test)]
mod tests;
