//! Files that look like drop-ins of the unit and are not read.

use super::lost::Arrived;
use super::{Finding, Location, Report, Severity, Snapshot, flags_in};
use crate::kubelet::systemd::{Event, EventKind, NotADropIn};

/// How the endings begin that package managers and editors give to what they set aside (`.dpkg-old`, `.swp`).
const SET_ASIDE: &[&str] = &["dpkg-", "rpmnew", "rpmorig", "rpmsave", "ucf-", "swo", "swp"];

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
    let ending = name.rsplit('.').next().unwrap_or_default();
    let is_set_aside = name.ends_with('~') || SET_ASIDE.iter().any(|start| ending.starts_with(start));
    let (usual, why) = match reason {
        NotADropIn::Suffix if is_set_aside => (Severity::Info, "its name does not end in .conf"),
        NotADropIn::Suffix => (Severity::Warning, "its name does not end in .conf"),
        NotADropIn::Hidden if ending == "conf" => (Severity::Warning, "its name starts with a dot"),
        NotADropIn::Hidden => (Severity::Info, "its name starts with a dot"),
        NotADropIn::Prefix => {
            (Severity::Info, "this directory is for units whose names begin with the directory's name, up to the dash")
        }
        NotADropIn::Directory => (Severity::Warning, "its directory is not a drop-in directory of this unit"),
    };
    let message = format!("systemd does not read this file for {unit}: {why}");
    Finding::new("SD009", arrived.error_if_expected(&event.text, usual), event.at.clone(), message)
        .lost(arrived.lost(&event.text))
        .say_at(
            &event.at,
            format!("if the kubelet needs its settings, move to /etc/systemd/system/{unit}.d/NAME.conf what is"),
        )
        .say("Otherwise delete it")
}

pub(super) fn hidden(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    for event in &snapshot.unit.events {
        let (by, message) = match &event.kind {
            EventKind::DropInShadowed { by } => {
                let why = if event.at.file.contains("/service.d/") {
                    " (a file of the unit's own directory replaces one of service.d, even in /usr/lib)"
                } else {
                    ""
                };
                (by, format!("systemd reads {}, which has the same name, in place of this file{why}", by.display()))
            }
            EventKind::DropInMasked { by, what } => (by, format!("{} ({what}) masks this file", by.display())),
            _ => continue,
        };
        let absent = flags_in(&event.text).iter().any(|flag| !arrived.has_name(flag));
        if !absent && !arrived.lacks_one_of(&event.text) {
            continue; // Nothing is lost.
        }
        let by = Location::file(by);
        let fix = match &event.kind {
            EventKind::DropInMasked { .. } => "if its settings are needed, delete the file",
            _ => "if both are needed, give another name to the file",
        };
        let finding =
            Finding::new("SD010", Severity::Warning, event.at.clone(), message).lost(arrived.lost(&event.text));
        report.add(finding.say_at(&by, fix).step(by, "systemd reads this file"));
    }
}

#[cfg(test)]
mod tests;
