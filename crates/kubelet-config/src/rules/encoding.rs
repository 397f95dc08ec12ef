//! Bytes that are not what they look like: byte order marks, CRLF, what is not UTF-8, characters that only resemble ASCII.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Check, Finding, Report, Severity,
    lost::{Arrived, holds_flags, quoted, reload, restart},
};
use crate::kubelet::{
    search::flags_in,
    snapshot::Snapshot,
    systemd::{Event, EventKind, Exec},
};

pub(super) const RULES: &[(&str, Check)] = &[("SD025", encoding)];

/// A character that looks like one of ASCII, and is none.
pub(super) fn odd_character(text: &str) -> Option<(char, &'static str)> {
    text.chars().find_map(|c| {
        let what = match c {
            '\u{a0}' | '\u{2007}' | '\u{202f}' => "no-break space",
            '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' => "character of no width",
            '\u{2010}'..='\u{2015}' | '\u{2212}' => "typographic dash",
            '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => "typographic quote",
            _ => return None,
        };
        Some((c, what))
    })
}

fn encoding(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let references = snapshot.unit.exec.iter().flat_map(Exec::references);
    let used: BTreeSet<String> = references.map(|(name, _, _)| name).collect();
    // A file's worst defect speaks for the file.
    let mut files: BTreeMap<&str, Finding> = BTreeMap::new();
    for event in &snapshot.unit.events {
        let Some(finding) = encoding_of(snapshot, &arrived, &used, event) else {
            continue;
        };
        let known = files.get(&*event.at.file);
        if known.is_none_or(|known| known.severity < finding.severity) {
            files.insert(&event.at.file, finding);
        }
    }
    report.findings.extend(files.into_values());
    for (index, word) in snapshot.command.args.iter().enumerate() {
        let built_in = snapshot.command.built_in.get(index) == Some(&true);
        if let Some((c, what)) = odd_character(&word.text).filter(|_| !built_in && word.text.starts_with("--")) {
            report.add(
                Finding::new(
                    "SD025",
                    Severity::Error,
                    word.at().clone(),
                    format!("the flag '{}' holds a {what} (U+{:04X})", quoted(&word.text), u32::from(c)),
                )
                .fix(format!("write plain blanks, dashes and quotes, then {}", reload(snapshot))),
            );
        }
    }
}

fn encoding_of(snapshot: &Snapshot, arrived: &Arrived<'_>, used: &BTreeSet<String>, event: &Event) -> Option<Finding> {
    let lost = arrived.lost(&event.text);
    let (severity, message) = match &event.kind {
        EventKind::EnvLineIgnored { bom: true, .. } => {
            let name = event.text.split('=').next().unwrap_or_default();
            let name = name.trim().trim_start_matches('\u{feff}');
            let severity = if used.contains(name) || !flags_in(&event.text).is_empty() {
                Severity::Error
            } else {
                Severity::Warning
            };
            (
                severity,
                format!(
                    "the file starts with a byte order mark: the first variable's name is not {}, and systemd ignores \
                     the line{lost}",
                    quoted(name)
                ),
            )
        }
        EventKind::RestOfFileLost { reason } if reason.contains("UTF-8") => (
            if holds_flags(&event.text) { Severity::Error } else { Severity::Warning },
            format!("systemd stops reading the file here ({reason}): the rest of it is lost{lost}"),
        ),
        EventKind::Encoding { what } => (
            Severity::Warning,
            format!("the file has {what}: systemd reads it in spite of that, other programs may not"),
        ),
        _ => return None,
    };
    let after =
        if matches!(event.kind, EventKind::EnvLineIgnored { .. }) { restart(snapshot) } else { reload(snapshot) };
    Some(
        Finding::new("SD025", severity, event.at.clone(), message).fix(format!(
            "save {} as UTF-8 without a byte order mark and with LF line ends, then {after}",
            event.at.file
        )),
    )
}

#[cfg(test)]
mod tests;
