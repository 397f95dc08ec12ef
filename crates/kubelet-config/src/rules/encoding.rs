//! Bytes that are not what they look like: byte order marks, CRLF, what is not UTF-8, characters that only resemble ASCII.

use std::collections::{BTreeMap, BTreeSet};

use super::lost::{Arrived, holds_flags, quoted};
use super::{Finding, Location, Report, Severity, Snapshot, Step};
use crate::kubelet::systemd::{Event, EventKind, Exec};

/// A character that looks like one of ASCII, and is none.
pub(super) fn odd_character(text: &str) -> Option<(char, &'static str)> {
    text.chars().find_map(|c| {
        let what = match c {
            '\u{a0}' | '\u{2007}' | '\u{202f}' => "no-break space",
            '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => "character of no width",
            '\u{2000}'..='\u{200a}' | '\u{3000}' => "typographic blank",
            '\u{2010}'..='\u{2015}' | '\u{2212}' => "typographic dash",
            '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => "typographic quote",
            _ => return None,
        };
        Some((c, what))
    })
}

/// A word of the command line in plain ASCII, as it was meant; `None` where that is not sure.
pub(super) fn plain(word: &str) -> Option<String> {
    let dashed = word.strip_prefix(['\u{2013}', '\u{2014}', '\u{2015}']).map(|rest| format!("--{rest}"));
    let plain: String = dashed
        .as_deref()
        .unwrap_or(word)
        .chars()
        .filter_map(|c| match odd_character(c.encode_utf8(&mut [0; 4])).map(|(_, what)| what) {
            None => Some(c),
            Some("no-break space" | "typographic blank") => Some(' '),
            Some("typographic dash") => Some('-'),
            Some(_) => None,
        })
        .collect();
    (plain.is_ascii() && plain.starts_with("--")).then_some(plain)
}

pub(super) fn encoding(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let references = snapshot.unit.exec.iter().flat_map(Exec::references);
    let used: BTreeSet<String> = references.map(|(name, _, _)| name).collect();
    // A file's worst defect speaks for the file.
    let mut files: BTreeMap<&str, Finding> = BTreeMap::new();
    for event in &snapshot.unit.events {
        let Some(finding) = encoding_of(&arrived, &used, event) else { continue };
        let known = files.get(&*event.at.file);
        if known.is_none_or(|known| known.severity < finding.severity) {
            files.insert(&event.at.file, finding);
        }
    }
    report.findings.extend(files.into_values());
    for word in snapshot.command.args.iter().filter(|word| !word.built_in && word.text.starts_with("--")) {
        if let Some((c, what)) = odd_character(&word.text) {
            let message = format!("the flag '{}' holds a {what} (U+{:04X})", quoted(&word.text), u32::from(c));
            let finding = Finding::new("SD025", Severity::Error, word.at().clone(), message);
            report.add(finding.with(in_ascii(word.at(), &word.text)));
        }
    }
}

/// Writes a word in plain ASCII: an edit if the word is in the file as it is.
pub(super) fn in_ascii(at: &Location, word: &str) -> Step {
    let is_as_written = usize::try_from(at.width).is_ok_and(|width| width == word.chars().count());
    match plain(word).filter(|_| is_as_written) {
        Some(plain) => Step::write(Some(at.clone()), at, "", plain),
        None => Step::say_at(at, "write plain blanks, dashes and quotes"),
    }
}

fn encoding_of(arrived: &Arrived<'_>, used: &BTreeSet<String>, event: &Event) -> Option<Finding> {
    let (severity, message, step) = match &event.kind {
        EventKind::EnvLineIgnored { bom: true, .. } => {
            let name = event.text.split('=').next().unwrap_or_default();
            let name = name.trim().trim_start_matches('\u{feff}');
            let is_lost = used.contains(name) || holds_flags(&event.text);
            let severity = if is_lost { Severity::Error } else { Severity::Warning };
            let message = format!(
                "the file starts with a byte order mark, which systemd takes as a part of the name {}: it ignores the line",
                quoted(name)
            );
            let mark = event.at.at(1, 1, 1);
            (severity, message, Step::Delete { at: mark, what: "delete the byte order mark".to_owned() })
        }
        EventKind::RestOfFileLost { reason } if reason.contains("UTF-8") => (
            if holds_flags(&event.text) { Severity::Error } else { Severity::Warning },
            format!("systemd stops reading the file here, because {reason}. It ignores the rest"),
            Step::say_at(&event.at, "save the file as UTF-8"),
        ),
        _ => return None,
    };
    let finding = Finding::new("SD025", severity, event.at.clone(), message);
    Some(finding.lost(arrived.lost(&event.text)).with(step))
}

#[cfg(test)]
mod tests;
