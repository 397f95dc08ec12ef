//! Environment files: not read, missing, skipped, or not read as they look.

use super::lost::{Arrived, MAX_FINDINGS, holds_flags, quoted, two_paths};
use super::references::own_arguments;
use super::remedy::{add_flags, delete_line_if, env_file_line, is_one_line, meant_assignment, usual_file};
use super::{Finding, Lifecycle, Location, Report, Severity, Snapshot, Step};
use crate::kubelet::snapshot::UnreadFile;
use crate::kubelet::systemd::{Assignment, EnvFile, EnvFileState, Event, EventKind, Exec};
use crate::kubelet::unread;

pub(super) fn not_read(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let together = snapshot.unit.env_files.iter().filter_map(|file| two_paths(&file.path)).flatten();
    let together = together.map(|path| path.trim_start_matches('-'));
    let named: Vec<&str> = snapshot.unit.events.iter().filter_map(unread::meant_file).chain(together).collect();
    for file in snapshot.unread_files.iter().filter(|file| !named.contains(&&*file.at.file)) {
        let is_meant = |one: &&Assignment| {
            holds_flags(&one.value) || one.name.starts_with("KUBELET_") && !one.value.trim().is_empty()
        };
        let telling: Vec<&Assignment> = file.assignments.iter().filter(is_meant).collect();
        let flagged = telling.iter().find(|one| holds_flags(&one.value));
        if let Some(first) = flagged.or(telling.first()) {
            report.add(unread(snapshot, &arrived, file, first, &telling));
        }
    }
}

fn unread(
    snapshot: &Snapshot,
    arrived: &Arrived<'_>,
    file: &UnreadFile,
    first: &Assignment,
    telling: &[&Assignment],
) -> Finding {
    let values: Vec<&str> = file.assignments.iter().map(|one| one.value.as_str()).collect();
    let text = values.join("\n");
    let read = usual_file(snapshot);
    let unit = &snapshot.unit.name;
    let instead = match read {
        Some(read) => format!("{unit} reads {} ({})", read.path.display(), read.declared),
        None => format!("{unit} has no `EnvironmentFile=` that names it"),
    };
    let lost = arrived.lost(&text);
    let message = format!("this file sets {}, but nothing reads it: {instead}", first.name);
    // Whoever writes all flags into ExecStart= has chosen to do without such files.
    let is_chosen = snapshot.unit.exec.as_ref().is_some_and(|exec| exec.references().is_empty()) && read.is_none();
    let severity = arrived.error_if_expected(&text, if is_chosen { Severity::Info } else { Severity::Warning });
    let others = telling.iter().filter(|other| other.at != first.at && holds_flags(&other.value));
    let finding = Finding::new("SD003", severity, first.at.clone(), message)
        .lost(lost.clone())
        .steps(others.map(|other| (other.at.clone(), format!("sets {}, which nothing reads either", other.name))))
        .steps(read.map(|read| (read.declared.clone(), "the unit reads this file instead")));
    if let Some((_, place)) = own_arguments(snapshot) {
        return finding.say(format!("write the flags into {place} and delete this file"));
    }
    let Some(read) = read.filter(|_| !file.at.file.ends_with("/kubeadm-flags.env")) else {
        let exec = snapshot.unit.exec.as_ref().map_or(&file.at, |exec| &exec.at);
        let path = &file.at.file;
        let what = format!(
            "add the line `EnvironmentFile=-{path}` to [Service], and the word ${} to `ExecStart=`",
            first.name
        );
        return finding.say_at(exec, what);
    };
    if lost.is_empty() && holds_flags(&first.value) {
        return finding.say("delete this line: the kubelet gets these flags from elsewhere");
    }
    let deletion = delete_line_if(telling.len() == 1 && is_one_line(first), &first.at);
    match add_flags(snapshot, Some(&first.name), &lost).filter(|_| !lost.is_empty()) {
        // Without an expected flag it may be a file that was left over on purpose.
        Some(remedy) => finding.remedy(remedy.only_if(severity == Severity::Error).and_delete(deletion)),
        None => finding.say_at(&first.at, format!("move the line to {}, from its place", read.path.display())),
    }
}

pub(super) fn line_ignored(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let ignored = snapshot.unit.events.iter().filter_map(|event| {
        let reason = match &event.kind {
            EventKind::EnvLineIgnored { reason, bom: false } if reason == "export" => "`export` is for shells",
            EventKind::EnvLineIgnored { reason, bom: false } => reason,
            EventKind::EnvLineWithoutAssignment if holds_flags(&event.text) => {
                "it holds flags, but assigns them to no variable"
            }
            _ => return None,
        };
        Some((event, reason))
    });
    for (event, reason) in ignored.take(MAX_FINDINGS) {
        let severity = arrived.error_if_expected(&event.text, Severity::Warning);
        let lost = arrived.lost(&event.text);
        let message = format!("systemd ignores this line of the environment file: {reason}");
        let finding = Finding::new("SD004", severity, event.at.clone(), message).lost(lost.clone());
        report.add(assigned(snapshot, finding, event, &lost));
    }
    let continued = snapshot.unit.events.iter().filter(|event| event.kind == EventKind::EnvCommentContinued);
    for event in continued.filter(|event| holds_flags(&event.text)).take(MAX_FINDINGS) {
        let severity = arrived.error_if_expected(&event.text, Severity::Warning);
        let message =
            "the comment above ends in a backslash: systemd before 254 takes this line as a part of the comment";
        let finding = Finding::new("SD004", severity, event.at.clone(), message).lost(arrived.lost(&event.text));
        report.add(finding.say_at(&event.at, "delete the backslash at the end of the comment above the line"));
    }
}

/// With the line as an assignment: without `export`, or its flags in a variable that is used.
fn assigned(snapshot: &Snapshot, finding: Finding, event: &Event, lost: &[String]) -> Finding {
    let name = event.text.split('=').next().unwrap_or_default();
    if let Some(name) = name.strip_prefix("export").map(str::trim).filter(|_| event.at.width > 0) {
        let what = "delete `export`".to_owned();
        return finding.with(Step::replace(Some(event.at.clone()), &event.at, what, name.to_owned()));
    }
    let is_flags = event.text.starts_with('-') && !lost.is_empty();
    match add_flags(snapshot, None, lost).filter(|_| is_flags) {
        Some(remedy) => finding.remedy(remedy.and_delete(Step::delete_line(&event.at))),
        None => finding.say_at(&event.at, "write it as NAME=VALUE"),
    }
}

/// What may still write an environment file before the kubelet starts, in words.
fn may_come(snapshot: &Snapshot, file: &EnvFile) -> Option<String> {
    (file.state == EnvFileState::Missing && two_paths(&file.path).is_none()).then_some(())?;
    let is_before = snapshot.lifecycle == Lifecycle::BeforeFirstStart;
    if file.path.starts_with("/run") || file.path.starts_with("/var/run") {
        return (is_before || !snapshot.observed.live).then(|| "/run is empty until the boot".to_owned());
    }
    // Most units name optional files that never exist.
    (is_before && !file.optional).then_some(())?;
    let service = snapshot.machine.beside.writer.as_ref()?;
    Some(format!("{service}, which the unit requires, may write it"))
}

/// Whether a file is still to come that may set any variable.
pub(super) fn are_to_come(snapshot: &Snapshot) -> bool {
    snapshot.unit.env_files.iter().any(|file| may_come(snapshot, file).is_some())
}

/// Whether flags may still be written before the first start: into a file that is optional, as `kubeadm join` does, or as a variable
/// that nothing sets yet.
pub(super) fn flags_may_come(snapshot: &Snapshot) -> bool {
    let unit = &snapshot.unit;
    let is_unset = |(name, ..): (String, Location, bool)| !unit.variables.contains_key(&name);
    snapshot.lifecycle == Lifecycle::BeforeFirstStart
        && (unit.env_files.iter().any(|file| file.state == EnvFileState::Missing)
            || unit.exec.iter().flat_map(Exec::references).any(is_unset))
}

/// The words of `ExecStart=` with a variable that such a file may set.
pub(super) fn not_known_yet(snapshot: &Snapshot) -> Vec<Location> {
    let references = snapshot.unit.exec.iter().filter(|_| are_to_come(snapshot)).flat_map(Exec::references);
    references.filter(|(name, ..)| !snapshot.unit.variables.contains_key(name)).map(|(_, at, _)| at).collect()
}

pub(super) fn required_missing(snapshot: &Snapshot, report: &mut Report) {
    let unit = &snapshot.unit.name;
    let files = snapshot.unit.env_files.iter();
    let is_missing = |file: &&EnvFile| file.state == EnvFileState::Missing && two_paths(&file.path).is_none();
    for file in files.filter(|file| !file.optional).filter(is_missing) {
        let (path, declared) = (file.path.display(), &file.declared);
        if let Some(why) = may_come(snapshot, file) {
            let message = format!("{path} does not exist yet, and systemd cannot start {unit} without it: {why}");
            let finding = Finding::new("SD012", Severity::Info, declared.clone(), message);
            report.add(finding.say("nothing, if it is written before the kubelet starts"));
            continue;
        }
        let message = format!("systemd cannot start {unit}: {path} does not exist, and `EnvironmentFile=` requires it");
        let fix = format!("create {path}, or write `EnvironmentFile=-{path}`");
        report.add(Finding::new("SD012", Severity::Fatal, declared.clone(), message).say_at(declared, fix));
    }
}

fn two_on_one_line(snapshot: &Snapshot, file: &EnvFile) -> Option<Finding> {
    let paths = two_paths(&file.path).filter(|_| file.state == EnvFileState::Missing)?;
    let at = &file.declared;
    let severity = if file.optional { Severity::Error } else { Severity::Fatal };
    let what = match paths.len() {
        1 => "has a comment after its path, and systemd takes it for a part of the path: it reads no file".to_owned(),
        files => format!("names {files} files, and systemd takes them for one path with a space in it: it reads none"),
    };
    let message = format!("the `EnvironmentFile=` at {at} {what}");
    let arrived = Arrived::of(snapshot);
    let is_meant = |file: &&UnreadFile| paths.iter().any(|path| path.trim_start_matches('-') == &*file.at.file);
    let unread = snapshot.unread_files.iter().filter(is_meant).flat_map(|file| &file.assignments);
    let lost: Vec<String> = unread.flat_map(|one| arrived.lost(&one.value)).collect();
    let dash = if file.optional { "-" } else { "" };
    let lines = paths.iter().map(|path| match path.strip_prefix('-') {
        Some(path) => format!("EnvironmentFile=-{path}"),
        None => format!("EnvironmentFile={dash}{path}"),
    });
    let lines: Vec<String> = lines.collect();
    // Without the line: what it holds looks like one path to the reader, too.
    let finding = Finding::new("SD013", severity, Location::file(&*at.file), message).lost(lost);
    Some(finding.with(Step::lines(at, lines.join("\n"))))
}

pub(super) fn dropped(snapshot: &Snapshot, report: &mut Report) {
    report.findings.extend(snapshot.unit.env_files.iter().filter_map(|file| two_on_one_line(snapshot, file)));
    for file in &snapshot.unit.env_files {
        let EnvFileState::Skipped { reason } = &file.state else { continue };
        let path = file.path.display();
        let (severity, what) = if file.optional {
            (Severity::Error, "it ignores the whole file and logs nothing".to_owned())
        } else {
            let unit = &snapshot.unit.name;
            (Severity::Fatal, format!("it does not start {unit} (`Failed to load environment files`)"))
        };
        let message = format!("systemd cannot use {path} ({reason}): {what}");
        let place = Location::file(&file.path);
        let fix = Step::say_at(&place, "save a regular file in UTF-8, without NUL bytes,");
        let finding = Finding::new("SD013", severity, place, message).with(fix);
        report.add(finding.step(file.declared.clone(), "this line loads it"));
    }
    for event in &snapshot.unit.events {
        let EventKind::BadEnvironmentFile { reason } = &event.kind else { continue };
        let message =
            format!("systemd ignores this `EnvironmentFile=`, because {reason}. It reads no file for this line");
        let fix =
            "write one absolute path without quotes, and no blank after the dash that allows the file to be missing,";
        report.add(Finding::new("SD013", Severity::Error, event.at.clone(), message).say_at(&event.at, fix));
    }
}

pub(super) fn quote_swallow(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let is_quote =
        |event: &&Event| matches!(event.kind, EventKind::EnvQuoteNotClosed { .. } | EventKind::EnvTextAfterQuote);
    for event in snapshot.unit.events.iter().filter(is_quote).take(MAX_FINDINGS) {
        let assignment = assignment_at(snapshot, &event.at);
        let message = match &event.kind {
            EventKind::EnvQuoteNotClosed { lines: 1 } => "the quote that opens here is not closed".to_owned(),
            EventKind::EnvQuoteNotClosed { lines } => {
                format!("the quote that opens here is not closed: systemd takes {lines} lines as one value")
            }
            EventKind::EnvTextAfterQuote if assignment.is_some_and(|one| is_one_word(one, event)) => continue,
            EventKind::EnvTextAfterQuote => format!(
                "systemd appends the text after the closing quote to the value, without the blank between them: '{}'",
                quoted(&event.text)
            ),
            _ => continue,
        };
        let in_use = assignment.is_some_and(|one| {
            let variable = snapshot.unit.variables.get(&one.name);
            variable.is_some_and(|variable| variable.effective.at == one.at && !variable.referenced_at.is_empty())
        });
        let severity = if in_use || holds_flags(&event.text) { Severity::Error } else { Severity::Warning };
        let finding = Finding::new("SD014", severity, event.at.clone(), message).lost(arrived.lost(&event.text));
        report.add(closed(finding, event, assignment));
    }
}

/// The assignment that begins at or before a place in an environment file, the last one.
fn assignment_at<'a>(snapshot: &'a Snapshot, at: &Location) -> Option<&'a Assignment> {
    let mut files = snapshot.unit.env_files.iter().filter(|file| file.path.to_str() == Some(&*at.file));
    let assignments = &files.next()?.assignments;
    let behind = assignments.partition_point(|assignment| assignment.at.line <= at.line);
    assignments.get(behind.checked_sub(1)?)
}

/// Whether text follows its quote without a blank: a shell reads `"a"b` as systemd does. A flag was meant as a word.
fn is_one_word(assignment: &Assignment, event: &Event) -> bool {
    let quoted = assignment.value.strip_suffix(event.text.as_str()).unwrap_or_default();
    quoted.char_indices().last().is_some_and(|(last, _)| {
        let end = assignment.place_of(last, quoted.len()).column + 1;
        let is_plain = !event.text.starts_with(['-', '#']) && !event.text.contains([' ', '\t', '"', '\'']);
        is_plain && event.at.column == end + 1
    })
}

/// With one pair of quotes around all of the value.
fn closed(finding: Finding, event: &Event, assignment: Option<&Assignment>) -> Finding {
    let lines = assignment.and_then(|assignment| match &event.kind {
        EventKind::EnvTextAfterQuote => one_value(assignment),
        _ => first_line(assignment),
    });
    match (lines, assignment) {
        (Some(lines), Some(Assignment { at, .. })) => finding.with(Step::lines(at, lines.join("\n"))),
        _ => finding,
    }
}

/// The quoted text and the text after the quote as one value; a comment gets a line of its own.
fn one_value(assignment: &Assignment) -> Option<Vec<String>> {
    let value = &assignment.value;
    // The value as it is in the file: what is between two parts is a quote, a blank or both.
    let starts: Vec<usize> = assignment.marks.iter().map(|(start, _)| *start).chain([value.len()]).collect();
    let is_comment = |start: &&usize| value.get(**start..).is_some_and(|part| part.starts_with('#'));
    let end = *starts.iter().skip(1).find(is_comment).unwrap_or(&value.len());
    let parts = starts.windows(2).filter(|part| part[1] <= end).filter_map(|part| value.get(part[0]..part[1]));
    let flags = parts.map(str::trim).collect::<Vec<_>>().join(" ");
    let is_plain = is_one_line(assignment) && !flags.contains(['$', '"', '\\']);
    let line = env_file_line(&assignment.name, flags.trim());
    let comment = value.get(end..).filter(|comment| !comment.is_empty()).map(str::to_owned);
    is_plain.then(|| comment.into_iter().chain([line]).collect())
}

/// The value up to the end of its first line, where the second one is another assignment or a comment.
fn first_line(assignment: &Assignment) -> Option<Vec<String>> {
    let mut lines = assignment.value.lines();
    let first = lines.next()?.trim();
    let is_another = |line: &str| line.is_empty() || line.starts_with(['#', ';']) || meant_assignment(line).is_some();
    let ends = lines.next().is_none_or(|line| is_another(line.trim()));
    (ends && !first.contains(['$', '"', '\\'])).then(|| vec![env_file_line(&assignment.name, first)])
}

#[cfg(test)]
mod tests;
