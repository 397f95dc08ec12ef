//! Text of units and drop-ins that systemd reads otherwise than it looks: split, unknown, cut off.

use std::collections::BTreeSet;

use super::encoding::odd_character;
use super::lost::{Arrived, MAX_FINDINGS, holds_flags, quoted};
use super::remedy::{EnvironmentLines, environment_word, has_specifiers, is_one_line, meant_assignment};
use super::{Finding, Location, Report, Severity, Snapshot, Step};
use crate::kubelet::systemd::{Assignment, Event, EventKind, LoadState};
use crate::kubelet::text::nearest;
use crate::kubelet::unread;

/// Whether an ignored line looks like the rest of one that was wrapped.
fn is_wrapped(event: &Event) -> bool {
    matches!(event.kind, EventKind::MalformedLine | EventKind::UnknownKey { .. } | EventKind::OutsideSection)
        && event.text.trim_start().starts_with('-')
}

pub(super) fn assignment_split(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let lines = EnvironmentLines::of(snapshot);
    let mut findings = Vec::new();
    // All words that one line loses are one finding.
    let mut line: Vec<&Event> = Vec::new();
    let mut ended = None;
    for (index, event) in snapshot.unit.events.iter().enumerate() {
        match &event.kind {
            _ if findings.len() == MAX_FINDINGS => break,
            EventKind::InvalidAssignment { .. } if unread::meant_file(event).is_some() => {
                findings.push(names_a_file(snapshot, &arrived, &lines, event));
            }
            EventKind::InvalidAssignment { .. } => {
                if line.last().is_some_and(|last| !is_same_line(last, event)) {
                    findings.push(split(snapshot, &arrived, &lines, &std::mem::take(&mut line)));
                }
                line.push(event);
            }
            EventKind::BadQuoting if !in_command(snapshot, index) => {
                findings.push(not_closed(&arrived, event));
            }
            EventKind::ContinuationEnded => ended = Some(event),
            _ if is_wrapped(event) && !ended.is_some_and(|ended| is_behind(ended, event)) => {
                findings.push(wrapped(snapshot, &arrived, &lines, event));
            }
            _ => {}
        }
    }
    if !line.is_empty() {
        findings.push(split(snapshot, &arrived, &lines, &line));
    }
    report.findings.extend(findings);
}

fn names_a_file(snapshot: &Snapshot, arrived: &Arrived<'_>, lines: &EnvironmentLines<'_>, event: &Event) -> Finding {
    let path = unread::meant_file(event).unwrap_or_default();
    let file = snapshot.unread_files.iter().find(|file| &*file.at.file == path);
    let message = format!(
        "systemd ignores '{}', which is not an assignment of a variable: {}",
        quoted(path),
        if file.is_some() { "nothing reads this file" } else { "`Environment=` reads no file" }
    );
    // Without the dash the unit would not start if the file is missing.
    let line = format!("EnvironmentFile={}{path}", if file.is_some() { "" } else { "-" });
    let assignments: Vec<&Assignment> = file.iter().flat_map(|file| &file.assignments).collect();
    let steps = assignments.iter().take(20).map(|one| {
        let text = format!("{} is not set to '{}'", one.name, quoted(&one.value));
        (one.at.clone(), text)
    });
    let is_alone = lines.at(&event.at).is_empty();
    Finding::new("SD005", Severity::Error, event.at.clone(), message)
        .lost(assignments.iter().flat_map(|one| arrived.lost(&one.value)).collect())
        .with(Step::lines(&event.at, line))
        .by_hand_if(!is_alone)
        .steps(steps)
}

/// Whether two ignored words come from one assignment, in one line or in lines that continue each other.
fn is_same_line(first: &Event, second: &Event) -> bool {
    const MAX_LINES: u32 = 40;
    let is_behind_one = first.kind != EventKind::InvalidAssignment { first: None };
    first.kind == second.kind
        && first.at.file == second.at.file
        && first.at.line <= second.at.line
        && second.at.line - first.at.line <= if is_behind_one { MAX_LINES } else { 0 }
}

/// Whether a quote that is not closed is one of a command, of which SD008 tells.
fn in_command(snapshot: &Snapshot, index: usize) -> bool {
    let event = &snapshot.unit.events[index];
    match &snapshot.unit.load {
        LoadState::BadSetting { at, .. } | LoadState::Error { at, .. } => at.file == event.at.file,
        _ => is_bad_command(&snapshot.unit.events, index + 1),
    }
}

fn split(snapshot: &Snapshot, arrived: &Arrived<'_>, lines: &EnvironmentLines<'_>, events: &[&Event]) -> Finding {
    let event = events[0];
    let ignored: Vec<&str> = events.iter().map(|event| event.text.trim()).collect();
    let ignored = ignored.join(" ");
    let same_line = lines.at(&event.at);
    let before = same_line.iter().filter(|one| one.at.column < event.at.column).max_by_key(|one| one.at.column);
    let holds = holds_flags(&ignored) || before.is_some_and(|before| before.value.starts_with("--"));
    let severity = if holds { Severity::Error } else { Severity::Warning };
    let hint = odd_character(&ignored).map(|(_, what)| format!(" (it holds a {what})")).unwrap_or_default();
    let message = match before {
        Some(Assignment { name, value, .. }) => format!(
            "the value is not quoted: systemd splits `Environment=` at whitespace, sets {name} to '{}' and ignores '{}'{hint}",
            quoted(value),
            quoted(&ignored)
        ),
        None => format!("systemd ignores '{}': it is not an assignment of a variable{hint}", quoted(&ignored)),
    };
    let finding = Finding::new("SD005", severity, event.at.clone(), message).lost(arrived.lost(&ignored));
    let (start, text) = match before {
        Some(before) => (&before.at, format!("{}={} {ignored}", before.name, before.value)),
        None => (&event.at, ignored),
    };
    let Some((name, value)) = meant_assignment(&text).filter(|_| !has_specifiers(snapshot, start)) else {
        return finding;
    };
    let word = environment_word(&name, &value);
    // From the assignment to the last ignored word, if nothing else is between them.
    let end = &events[events.len() - 1].at;
    let is_between = |one: &&Assignment| (start.column + 1..end.column).contains(&one.at.column);
    let is_sure = end.line == start.line && end.width > 0 && !same_line.iter().any(is_between);
    let width = (end.column + end.width).saturating_sub(start.column);
    let exact = is_sure.then(|| start.at(start.line, start.column, width));
    finding.with(Step::write(exact, &event.at, "Environment=", word))
}

fn not_closed(arrived: &Arrived<'_>, event: &Event) -> Finding {
    let severity = if holds_flags(&event.text) { Severity::Error } else { Severity::Warning };
    let message = "a quote is not closed or an escape is not known: systemd ignores the rest of this line";
    let finding = Finding::new("SD005", severity, event.at.clone(), message).lost(arrived.lost(&event.text));
    let is_one_line = usize::try_from(event.at.width).is_ok_and(|width| width == event.text.chars().count());
    match meant_assignment(&event.text).filter(|_| is_one_line && !event.text.contains('%')) {
        Some((name, value)) => {
            let word = environment_word(&name, &value);
            finding.with(Step::write(Some(event.at.clone()), &event.at, "Environment=", word))
        }
        None => finding,
    }
}

fn wrapped(snapshot: &Snapshot, arrived: &Arrived<'_>, lines: &EnvironmentLines<'_>, event: &Event) -> Finding {
    let message = "systemd ignores this line. It starts with a flag: the line above, which it continues, ends early";
    let finding = Finding::new("SD005", Severity::Error, event.at.clone(), message).lost(arrived.lost(&event.text));
    let above = lines.at(&event.at.at_line(event.at.line.saturating_sub(1))).iter().max_by_key(|one| one.at.column);
    let above = above.filter(|above| is_one_line(above));
    let joined = above.and_then(|above| {
        let text = format!("{}={} {}", above.name, above.value, event.text);
        let (name, value) = meant_assignment(&text).filter(|_| !has_specifiers(snapshot, &above.at))?;
        Some((above, environment_word(&name, &value)))
    });
    match joined {
        Some((above, word)) => finding
            .with(Step::write(Some(above.at.clone()), &above.at, "Environment=", word))
            .with(Step::delete_line(&event.at)),
        None => finding.say_at(&event.at, "join the line with the one above"),
    }
}

/// Whether an ignored line belongs to a continuation that ended before it.
fn is_behind(ended: &Event, event: &Event) -> bool {
    /// An empty line or two, and the lines after it that were meant to continue.
    const MAX_LINES: u32 = 20;
    ended.at.file == event.at.file && ended.at.line < event.at.line && event.at.line - ended.at.line <= MAX_LINES
}

pub(super) fn unknown(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let events = &snapshot.unit.events;
    let is_own = |(index, event): &(usize, &Event)| !is_wrapped(event) && !is_bad_command(events, *index);
    let ignored = events.iter().enumerate().filter(is_own);
    let ignored = ignored.filter_map(|(index, event)| Some((index, event, ignored_line(snapshot, event)?)));
    for (index, event, finding) in ignored.take(MAX_FINDINGS) {
        let inside = events.get(index + 1..).unwrap_or_default().iter().take_while(|inside| {
            event.kind == EventKind::UnknownSection
                && inside.kind == EventKind::InUnknownSection
                && inside.at.file == event.at.file
        });
        let inside: Vec<&Event> = inside.filter(|inside| holds_flags(&inside.text)).collect();
        let text: Vec<&str> =
            std::iter::once(event).chain(inside.iter().copied()).map(|event| event.text.as_str()).collect();
        let mut finding = finding.lost(arrived.lost(&text.join("\n")));
        if !finding.lost_flags.is_empty() {
            finding.severity = Severity::Error;
        }
        report.add(finding.steps(inside.iter().map(|inside| (inside.at.clone(), "ignored with its section"))));
    }
}

/// What there is to say of a line that systemd ignores for its form.
fn ignored_line(snapshot: &Snapshot, event: &Event) -> Option<Finding> {
    let at = &event.at;
    let new = |message: String| Finding::new("SD011", Severity::Warning, at.clone(), message);
    let header = event.text.lines().next().unwrap_or_default();
    let finding = match &event.kind {
        EventKind::UnknownSection => {
            let message = format!("systemd does not know the section {} and ignores its settings", quoted(header));
            header_corrected(new(message), event, header)
        }
        EventKind::UnknownKey { section, key } => unknown_key(event, section, key, new),
        // The documentation of kubeadm has the kubelet's configuration among the drop-ins.
        _ if snapshot.config.files.iter().any(|file| file.at.file == at.file) => return None,
        EventKind::OutsideSection => outside_section(snapshot, event, new),
        EventKind::MalformedLine => {
            new(format!("this line is neither a section nor an assignment: systemd ignores '{}'", quoted(&event.text)))
                .say_at(at, "write the line as KEY=VALUE, or make it a comment with `#`,")
        }
        EventKind::RestOfFileLost { reason } if !reason.contains("UTF-8") => {
            let message = format!("systemd stops reading the file here, because {reason}. It ignores the rest");
            header_corrected(new(message), event, header)
        }
        EventKind::FileUnreadable { reason } => {
            let message = format!("systemd cannot read this file: {reason}");
            Finding::new("SD011", Severity::Error, at.clone(), message)
                .say_at(at, "make a readable regular file of it, or delete it,")
        }
        _ => return None,
    };
    Some(finding)
}

/// With the section's name that is meant, where it is near.
fn header_corrected(finding: Finding, event: &Event, header: &str) -> Finding {
    let name = header.trim().trim_matches(['[', ']']);
    match nearest(name, ["Service", "Unit", "Install"].into_iter()).filter(|_| header.starts_with('[')) {
        Some(known) => finding.with(Step::lines(&event.at, format!("[{known}]"))).say("Names are case-sensitive"),
        None => finding.say_at(&event.at, "write the section's name as [Service], [Unit] or [Install]"),
    }
}

fn unknown_key(event: &Event, section: &str, key: &str, new: impl FnOnce(String) -> Finding) -> Finding {
    let at = &event.at;
    let finding = new(format!("systemd does not know {}= in [{}] and ignores the line", quoted(key), quoted(section)));
    if section != "Service" && KEYS.contains(&key) {
        let lines = format!("\n[Service]\n{}", event.text);
        return finding.with(Step::delete_line(at)).with(Step::Append { to: at.clone(), lines });
    }
    match nearest(key, KEYS.iter().copied()) {
        Some(known) => finding.with(Step::rename(Some(at.clone()), at, key, known)).say("Names are case-sensitive"),
        None => finding.say_at(at, "correct the key, or delete the line,"),
    }
}

/// An assignment before the first section: the section is written above it, and what else is wrong is corrected, too.
fn outside_section(snapshot: &Snapshot, event: &Event, new: impl FnOnce(String) -> Finding) -> Finding {
    let message = "this line is before the first section: systemd ignores it".to_owned();
    let (key, value) = event.text.split_once('=').unwrap_or_default();
    let Some(known) = nearest(key.trim(), KEYS.iter().copied()) else {
        return new(message).say_at(&event.at, "write the name of its section above the line");
    };
    let line = match meant_assignment(value).filter(|_| known == "Environment" && !value.contains('%')) {
        Some((name, value)) => format!("{known}={}", environment_word(&name, &value)),
        None => format!("{known}={}", value.trim()),
    };
    let file = event.at.file.rsplit('/').next().unwrap_or_default();
    let dropins = snapshot.unit.dropins.iter().filter_map(|path| path.file_name()?.to_str());
    let near = nearest(file, dropins.take(50).filter(|name| *name != file));
    let near = near.map(|name| format!(". Perhaps the name of this file was meant to be {name}, not {}", quoted(file)));
    new(message + &near.unwrap_or_default()).with(Step::lines(&event.at, format!("[Service]\n{line}")))
}

/// Whether the rest of a file is lost because of a command, of which SD008 tells: the event before it says so.
pub(super) fn is_bad_command(events: &[Event], index: usize) -> bool {
    let Some([cause, cut]) = index.checked_sub(1).and_then(|first| events.get(first..=index)) else { return false };
    matches!(cut.kind, EventKind::RestOfFileLost { .. })
        && matches!(cause.kind, EventKind::BadQuoting | EventKind::BadSpecifier { .. } | EventKind::BadCommand)
        && cause.at.file == cut.at.file
}

/// The keys that matter to a kubelet's unit, for a hint at what was meant.
const KEYS: &[&str] =
    &["Environment", "EnvironmentFile", "ExecStart", "ExecStartPre", "Restart", "RestartSec", "Slice", "Type", "User"];

pub(super) fn continuation_broken(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let words = snapshot.unit.argv.iter();
    let backslashes: BTreeSet<(&str, u32)> =
        words.filter(|word| word.text.trim() == "\\").map(|word| (&*word.declared.file, word.declared.line)).collect();
    let mut ended: Option<&Event> = None;
    for event in &snapshot.unit.events {
        match event.kind {
            EventKind::BackslashBlank => {
                let is_word = backslashes.contains(&(&*event.at.file, event.at.line));
                report.add(backslash_blank(event, is_word));
            }
            EventKind::ContinuationEnded => ended = Some(event),
            _ if is_wrapped(event) => {
                if let Some(ended) = ended.filter(|ended| is_behind(ended, event)) {
                    report.add(cut_off(&arrived, event, ended));
                }
            }
            _ => {}
        }
    }
}

fn backslash_blank(event: &Event, is_word: bool) -> Finding {
    let (severity, what) = if is_word {
        (Severity::Fatal, "the kubelet gets the argument '\\' and exits with `unknown command`")
    } else {
        (Severity::Error, "systemd does not continue the line")
    };
    let message = format!("a space follows the backslash at the end of this line: {what}");
    let (at, what) = (event.at.clone(), "delete the blanks after the backslash".to_owned());
    Finding::new("SD015", severity, event.at.clone(), message).with(Step::Delete { at, what })
}

fn cut_off(arrived: &Arrived<'_>, event: &Event, ended: &Event) -> Finding {
    let message = format!("the empty line at {} ends the continued line above it: systemd ignores this line", ended.at);
    let lines = (ended.at.line..event.at.line).rev();
    let steps: Vec<Step> = lines.map(|line| Step::delete_line(&ended.at.at_line(line))).collect();
    Finding::new("SD015", Severity::Error, event.at.clone(), message)
        .lost(arrived.lost(&event.text))
        .remedy(steps)
        .step(ended.at.clone(), "the continued line ends here")
}

pub(super) fn bad_specifier(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let bad = snapshot.unit.events.iter().enumerate().filter_map(|(index, event)| match event.kind {
        // Of a command SD008 says so.
        EventKind::BadSpecifier { letter } if !in_command(snapshot, index) => Some((event, letter)),
        _ => None,
    });
    for (event, letter) in bad.take(MAX_FINDINGS) {
        // A value may be a secret: the variable's name is enough.
        let what = match event.text.split_once('=') {
            Some((name, _)) => format!("ignores the whole assignment of {}", quoted(name)),
            None => "ignores this setting".to_owned(),
        };
        let lost = arrived.lost(&event.text);
        let severity = if lost.is_empty() { Severity::Warning } else { Severity::Error };
        let message = format!("systemd does not know the specifier `%{letter}` and {what}");
        let is_label = lost.iter().any(|flag| flag.starts_with("--node-labels=") && flag.contains('%'));
        let signs = if is_label { Vec::new() } else { doubled(event, letter) };
        let at = percent(event, letter);
        let finding = Finding::new("SD018", severity, at.clone(), message).lost(lost);
        let finding = if is_label {
            finding.say_at(&at, "correct the label, which may not hold a percent sign,")
        } else if signs.is_empty() {
            finding.say_at(&at, format!("write `%%{letter}` for `%{letter}`"))
        } else {
            let signs = signs.into_iter().map(|sign| Step::rename(Some(sign), &at, "%", "%%"));
            finding.remedy(signs.collect::<Vec<_>>())
        };
        let finding = finding.say("Every literal percent sign is written as `%%`");
        report.add(finding);
    }
}

/// The place of the percent sign in question.
fn percent(event: &Event, letter: char) -> Location {
    let signs = doubled(event, letter);
    signs.last().map_or_else(|| event.at.clone(), |at| at.at(at.line, at.column, 2))
}

/// The percent signs to double, from right to left: those of the unknown specifier, and those before two hexadecimal
/// digits, as in a URL. None where the columns are not sure.
fn doubled(event: &Event, letter: char) -> Vec<Location> {
    // What is doubled already is passed over.
    let chars: Vec<char> = event.text.replace("%%", "  ").chars().collect();
    // One pair of quotes is before the percent sign, or none.
    let quote = match usize::try_from(event.at.width).unwrap_or_default().checked_sub(chars.len()) {
        Some(0) => 0,
        Some(2) => 1,
        _ => return Vec::new(),
    };
    let is_meant = |at: &usize| {
        let is_hex = |offset: usize| chars.get(at + offset).is_some_and(char::is_ascii_hexdigit);
        chars[*at] == '%' && (chars.get(at + 1) == Some(&letter) || is_hex(1) && is_hex(2))
    };
    let signs = (0..chars.len()).rev().filter(is_meant).take(MAX_FINDINGS);
    let columns = signs.map(|at| event.at.column + quote + u32::try_from(at).unwrap_or_default());
    columns.map(|column| event.at.at(event.at.line, column, 1)).collect()
}

#[cfg(test)]
mod tests;
