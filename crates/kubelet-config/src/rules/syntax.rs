//! Text of units and drop-ins that systemd reads otherwise than it looks: split, unknown, cut off.

use std::collections::BTreeSet;

use super::{
    Check, Finding, Report, Severity,
    encoding::odd_character,
    lost::{Arrived, environment_line, holds_flags, quoted, reload},
};
use crate::kubelet::{
    snapshot::Snapshot,
    systemd::{Event, EventKind, LoadState},
};

pub(super) const RULES: &[(&str, Check)] =
    &[("SD005", assignment_split), ("SD011", unknown), ("SD015", continuation_broken)];

/// Whether an ignored line looks like the rest of one that was wrapped.
fn is_wrapped(event: &Event) -> bool {
    matches!(event.kind, EventKind::MalformedLine | EventKind::UnknownKey { .. } | EventKind::OutsideSection)
        && event.text.trim_start().starts_with('-')
}

fn assignment_split(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    // All words that one line loses are one finding.
    let mut line: Vec<&Event> = Vec::new();
    let mut ended = None;
    for (index, event) in snapshot.unit.events.iter().enumerate() {
        match &event.kind {
            EventKind::InvalidAssignment { .. } => {
                if line.last().is_some_and(|last| !is_same_line(last, event)) {
                    report.add(split(snapshot, &std::mem::take(&mut line)));
                }
                line.push(event);
            }
            EventKind::BadQuoting if !in_command(snapshot, index) => {
                report.add(not_closed(snapshot, &arrived, event));
            }
            EventKind::ContinuationEnded => ended = Some(event),
            _ if is_wrapped(event) && !ended.is_some_and(|ended| is_behind(ended, event)) => {
                report.add(wrapped(snapshot, &arrived, event));
            }
            _ => {}
        }
    }
    if !line.is_empty() {
        report.add(split(snapshot, &line));
    }
}

/// Whether two ignored words come from one assignment, in one line or in lines that continue each other.
fn is_same_line(first: &Event, second: &Event) -> bool {
    const MAX_LINES: u32 = 40;
    first.kind == second.kind
        && first.at.file == second.at.file
        && first.at.line <= second.at.line
        && second.at.line - first.at.line <= MAX_LINES
}

/// Whether a quote that is not closed is one of a command, of which SD008 tells.
fn in_command(snapshot: &Snapshot, index: usize) -> bool {
    let event = &snapshot.unit.events[index];
    match &snapshot.unit.load {
        LoadState::BadSetting { at, .. } | LoadState::Error { at, .. } => at.file == event.at.file,
        _ => is_bad_command(&snapshot.unit.events, index + 1),
    }
}

fn split(snapshot: &Snapshot, events: &[&Event]) -> Finding {
    let event = events[0];
    let ignored: Vec<&str> = events.iter().map(|event| event.text.trim()).collect();
    let ignored = ignored.join(" ");
    let first = match &event.kind {
        EventKind::InvalidAssignment { first } => first.as_ref(),
        _ => None,
    };
    let holds = holds_flags(&ignored) || first.is_some_and(|(_, value)| value.starts_with("--"));
    let severity = if holds { Severity::Error } else { Severity::Warning };
    let hint = odd_character(&ignored).map(|(_, what)| format!(" (it holds a {what})")).unwrap_or_default();
    let (message, fix) = match first {
        Some((name, value)) => (
            format!(
                "the value is not quoted: systemd splits `Environment=` at blanks, so {name} is only '{}', and '{}' is \
                 ignored as an invalid assignment{hint}",
                quoted(value),
                quoted(&ignored)
            ),
            format!(
                "write `{}` at {}, then {}",
                environment_line(name, &format!("{value} {ignored}")),
                event.at,
                reload(snapshot)
            ),
        ),
        None => (
            format!("'{}' is ignored: it is no assignment of a variable{hint}", quoted(&ignored)),
            format!(
                "write Environment=\"NAME=VALUE\" at {}, without blanks around the first `=`, then {}",
                event.at,
                reload(snapshot)
            ),
        ),
    };
    Finding::new("SD005", severity, event.at.clone(), message).fix(fix)
}

fn not_closed(snapshot: &Snapshot, arrived: &Arrived<'_>, event: &Event) -> Finding {
    let severity = if holds_flags(&event.text) { Severity::Error } else { Severity::Warning };
    Finding::new(
        "SD005",
        severity,
        event.at.clone(),
        format!(
            "a quote in this line is not closed, or an escape is not known: the rest of it is ignored{}",
            arrived.lost(&event.text)
        ),
    )
    .fix(format!("close the quote at the end of the assignment, then {}", reload(snapshot)))
}

fn wrapped(snapshot: &Snapshot, arrived: &Arrived<'_>, event: &Event) -> Finding {
    Finding::new(
        "SD005",
        Severity::Error,
        event.at.clone(),
        format!(
            "this line starts with a flag: the line before it was wrapped, and systemd ignores this part{}",
            arrived.lost(&event.text)
        ),
    )
    .fix(format!("join it with the line before it, then {}", reload(snapshot)))
}

/// Whether an ignored line belongs to a continuation that ended before it.
fn is_behind(ended: &Event, event: &Event) -> bool {
    /// An empty line or two, and the lines behind it that were meant to continue.
    const MAX_LINES: u32 = 20;
    ended.at.file == event.at.file && ended.at.line < event.at.line && event.at.line - ended.at.line <= MAX_LINES
}

fn unknown(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let events = &snapshot.unit.events;
    for (index, event) in events.iter().enumerate() {
        if is_wrapped(event) || is_bad_command(events, index) {
            continue;
        }
        let Some((severity, message, fix)) = ignored_line(event) else {
            continue;
        };
        let inside = events.get(index + 1..).unwrap_or_default().iter().take_while(|inside| {
            event.kind == EventKind::UnknownSection
                && matches!(inside.kind, EventKind::InUnknownSection { .. })
                && inside.at.file == event.at.file
        });
        let inside: Vec<&Event> = inside.filter(|inside| holds_flags(&inside.text)).collect();
        let text: Vec<&str> =
            std::iter::once(event).chain(inside.iter().copied()).map(|event| event.text.as_str()).collect();
        let finding =
            Finding::new("SD011", severity, event.at.clone(), format!("{message}{}", arrived.lost(&text.join("\n"))))
                .fix(format!("{fix}, then {}", reload(snapshot)));
        report.add(
            inside
                .into_iter()
                .fold(finding, |finding, inside| finding.step(inside.at.clone(), "ignored with its section")),
        );
    }
}

/// What there is to say of a line that systemd ignores for its form.
fn ignored_line(event: &Event) -> Option<(Severity, String, String)> {
    let (message, fix) = match &event.kind {
        EventKind::UnknownSection => (
            format!(
                "unknown section {} (names are case-sensitive): its settings are ignored",
                quoted(event.text.lines().next().unwrap_or_default())
            ),
            "write the section's name as [Service], [Unit] or [Install]".to_owned(),
        ),
        EventKind::UnknownKey { section, key } => (
            format!("unknown key {} in [{}]: systemd ignores the line", quoted(key), quoted(section)),
            meant_key(section, key),
        ),
        EventKind::OutsideSection => (
            "the line stands before the first section: systemd ignores it".to_owned(),
            "write `[Service]` above it".to_owned(),
        ),
        EventKind::MalformedLine => (
            format!("this line is neither a section nor an assignment: systemd ignores '{}'", quoted(&event.text)),
            "write it as KEY=VALUE, or make it a comment with `#`".to_owned(),
        ),
        EventKind::RestOfFileLost { reason } if !reason.contains("UTF-8") => (
            format!("systemd stops reading the file here ({reason}): the rest of it is lost"),
            "correct this line".to_owned(),
        ),
        EventKind::FileUnreadable { reason } => (
            format!("systemd cannot read this file ({reason})"),
            "make it a readable regular file, or delete it".to_owned(),
        ),
        _ => return None,
    };
    let cuts_off = matches!(event.kind, EventKind::RestOfFileLost { .. });
    let severity = if cuts_off && holds_flags(&event.text) { Severity::Error } else { Severity::Warning };
    Some((severity, message, fix))
}

/// Whether the rest of a file is lost because of a command, of which SD008 tells: the event before it says so.
pub(super) fn is_bad_command(events: &[Event], index: usize) -> bool {
    let is_cut = |event: &Event| matches!(event.kind, EventKind::RestOfFileLost { .. });
    let cause = index.checked_sub(1).and_then(|index| events.get(index));
    events.get(index).is_some_and(is_cut)
        && cause.is_some_and(|cause| {
            cause.at.file == events[index].at.file
                && matches!(
                    cause.kind,
                    EventKind::BadQuoting | EventKind::BadSpecifier { .. } | EventKind::BadCommand { .. }
                )
        })
}

/// The keys that matter to a kubelet's unit, for a hint at what was meant.
const KEYS: &[&str] = &[
    "Environment",
    "EnvironmentFile",
    "ExecStart",
    "ExecStartPre",
    "PassEnvironment",
    "UnsetEnvironment",
    "Restart",
    "RestartSec",
    "Slice",
    "Type",
    "User",
];

fn meant_key(section: &str, key: &str) -> String {
    const MAX_KEY_BYTES: usize = 64;
    if section != "Service" && KEYS.contains(&key) {
        return format!("move the line to the section [Service]: {key}= has no meaning in [{}]", quoted(section));
    }
    let nearest = KEYS
        .iter()
        .filter(|_| key.len() <= MAX_KEY_BYTES)
        .map(|known| (strsim::levenshtein(&key.to_ascii_lowercase(), &known.to_ascii_lowercase()), known))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    match nearest {
        Some((_, known)) => format!("write {known}= (names are case-sensitive)"),
        None => "correct the key, or delete the line".to_owned(),
    }
}

fn continuation_broken(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let words = snapshot.unit.argv.iter();
    let backslashes: BTreeSet<(&str, u32)> =
        words.filter(|word| word.text.trim() == "\\").map(|word| (&*word.declared.file, word.declared.line)).collect();
    let mut ended: Option<&Event> = None;
    for event in &snapshot.unit.events {
        match event.kind {
            EventKind::BackslashBlank => {
                let is_word = backslashes.contains(&(&*event.at.file, event.at.line));
                report.add(backslash_blank(snapshot, event, is_word));
            }
            EventKind::ContinuationEnded => ended = Some(event),
            _ if is_wrapped(event) => {
                if let Some(ended) = ended.filter(|ended| is_behind(ended, event)) {
                    report.add(cut_off(snapshot, &arrived, event, ended));
                }
            }
            _ => {}
        }
    }
}

fn backslash_blank(snapshot: &Snapshot, event: &Event, is_word: bool) -> Finding {
    let (severity, what) = if is_word {
        (Severity::Fatal, "the kubelet gets an argument '\\' and exits with `unknown command`")
    } else {
        (Severity::Error, "the line is not continued")
    };
    Finding::new(
        "SD015",
        severity,
        event.at.clone(),
        format!("the backslash at the end of this line is followed by a blank: {what}"),
    )
    .fix(format!("remove the blanks behind the backslash, then {}", reload(snapshot)))
}

fn cut_off(snapshot: &Snapshot, arrived: &Arrived<'_>, event: &Event, ended: &Event) -> Finding {
    Finding::new(
        "SD015",
        Severity::Error,
        event.at.clone(),
        format!(
            "the empty line at {} ends the continued line before it, and systemd ignores this part{}",
            ended.at,
            arrived.lost(&event.text)
        ),
    )
    .fix(format!("delete the empty line, then {}", reload(snapshot)))
    .step(ended.at.clone(), "the continuation ends here")
}

#[cfg(test)]
mod tests;
