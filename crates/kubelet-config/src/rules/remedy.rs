//! Remedies that several rules share: a flag written where the kubelet gets it, an assignment deleted or quoted.

use std::path::Path;

use super::{
    Finding,
    lost::{quoted, reload, restart},
};
use crate::{
    edit::{Change, NOT_THE_OPERATORS},
    kubelet::{
        flag_text::flags_in,
        flags::{Repeat, table},
        layers::Launcher,
        location::Location,
        snapshot::Snapshot,
        systemd::{Assignment, EnvFile, EnvFileState, EventKind, Exec, Source},
    },
};

/// How long a value may be that a fix writes out.
const MAX_VALUE_BYTES: usize = 4000;

/// What to write and where, in words and as an edit where that is sure.
#[derive(Debug)]
pub(super) struct Remedy {
    pub(super) fix: String,
    pub(super) edit: Option<(Location, Change)>,
}

impl Remedy {
    pub(super) fn of(self, finding: Finding) -> Finding {
        let finding = finding.fix(self.fix);
        match self.edit {
            Some((at, change)) => finding.edit(&at, change),
            None => finding,
        }
    }
}

/// An assignment as one would write it into an environment file.
pub(super) fn env_file_line(name: &str, value: &str) -> String {
    if value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '$' | '`')) {
        let mut escaped = String::with_capacity(value.len() + 2);
        for c in value.chars() {
            if matches!(c, '"' | '\\' | '$' | '`') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        format!("{name}=\"{escaped}\"")
    } else {
        format!("{name}={value}")
    }
}

/// An assignment as one would write it behind `Environment=`.
pub(super) fn environment_word(name: &str, value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '%' => escaped.push_str("%%"),
            c => escaped.push(c),
        }
    }
    format!("\"{name}={escaped}\"")
}

/// The file that the unit reads for the operator's flags.
pub(super) fn usual_file(snapshot: &Snapshot) -> Option<&EnvFile> {
    let mut files = snapshot.unit.env_files.iter().rev();
    files.find(|file| !file.path.ends_with("kubeadm-flags.env"))
}

/// Whether an assignment stands on one line, as far as its value tells.
pub(super) fn is_one_line(assignment: &Assignment) -> bool {
    assignment.at.line > 0
        && assignment.marks.iter().all(|(_, mark)| mark.line == assignment.at.line)
        && !assignment.value.contains('\n')
}

/// Deletes the line of an assignment, if it is the whole line.
pub(super) fn deletion(snapshot: &Snapshot, assignment: &Assignment) -> Option<(Location, Change)> {
    let all = snapshot.unit.variables.values().flat_map(|one| one.overridden.iter().chain([&one.effective]));
    let mut beside = all.filter(|other| other.at.file == assignment.at.file && other.at.line == assignment.at.line);
    let is_first = assignment.source != Source::Environment || assignment.at.column == BEHIND_KEY;
    (is_one_line(assignment) && is_first && beside.all(|other| other.at == assignment.at))
        .then(|| (assignment.at.clone(), Change::Lines(Vec::new())))
}

/// The column behind `Environment=`.
const BEHIND_KEY: u32 = 13;

/// Why flags cannot be written elsewhere as they are.
pub(super) fn obstacle(snapshot: &Snapshot, flags: &[String]) -> Option<String> {
    flags.iter().find_map(|text| {
        if text.contains('$') {
            return Some(format!("write the value in place of the variable in {}, systemd does not expand it", quoted(text)));
        }
        let minor = snapshot.version.as_ref().map(|version| version.minor);
        let is_known = |name: &str| {
            table::find(name).is_some_and(|spec| minor.is_none_or(|minor| spec.known_in(minor)))
        };
        let unknown = flags_in(text).into_iter().find(|flag| !is_known(&flag.name))?;
        Some(format!("leave out --{}: this kubelet does not know it and would exit", quoted(&unknown.name)))
    })
}

/// Gives the kubelet these flags by the variable `name`, or by the one for the operator's own flags (`…_EXTRA_ARGS`):
/// where it is set, or in the file that the unit reads.
pub(super) fn add_flags(snapshot: &Snapshot, name: Option<&str>, flags: &[String]) -> Option<Remedy> {
    if snapshot.command.launcher != Launcher::Direct {
        return None;
    }
    let names: Vec<String> =
        snapshot.unit.exec.iter().flat_map(Exec::references).map(|(name, _, _)| name).collect();
    let named = name.filter(|name| names.iter().any(|used| used == name));
    let name = named.or_else(|| names.iter().map(String::as_str).find(|name| name.ends_with("EXTRA_ARGS")))?;
    if let Some(variable) = snapshot.unit.variables.get(name) {
        return with_flags(snapshot, &variable.effective, flags);
    }
    let file = usual_file(snapshot).filter(|file| matches!(file.state, EnvFileState::Read | EnvFileState::Missing))?;
    let (path, line) = (file.path.display(), env_file_line(name, &flags.join(" ")));
    let (fix, is_sure) = with_obstacle(snapshot, format!("add the line `{line}` to {path}"), flags);
    let fix = format!("{fix}, then {}", restart(snapshot));
    Some(Remedy { fix, edit: is_sure.then(|| (Location::file(&file.path), Change::Append(line))) })
}

fn with_obstacle(snapshot: &Snapshot, fix: String, flags: &[String]) -> (String, bool) {
    match obstacle(snapshot, flags) {
        Some(obstacle) => (format!("{fix} ({obstacle})"), false),
        None => (fix, true),
    }
}

/// Puts flags into an assignment that counts.
pub(super) fn with_flags(snapshot: &Snapshot, effective: &Assignment, flags: &[String]) -> Option<Remedy> {
    let at = &effective.at;
    let in_file = match effective.source {
        Source::File { .. } => true,
        Source::Environment => false,
        Source::Manager | Source::Passed => return None,
    };
    let after = if in_file { restart(snapshot) } else { reload(snapshot) };
    if effective.value.len() > MAX_VALUE_BYTES {
        let fix = format!("add {} to {} at {at}, then {after}", flags.join(" "), effective.name);
        return Some(Remedy { fix, edit: None });
    }
    let (value, replaces) = joined(&effective.value, flags);
    let is_literal = in_file || !has_specifiers(snapshot, at);
    let is_writable = is_one_line(effective) && is_literal && !replaces && !value.contains('$');
    if !in_file && NOT_THE_OPERATORS.iter().any(|folder| Path::new(&*at.file).starts_with(folder)) {
        return in_drop_in(snapshot, effective, &value, flags, is_literal && !replaces && !value.contains('$'));
    }
    let (shown, change) = if in_file {
        let line = env_file_line(&effective.name, &value);
        (line.clone(), Change::Lines(vec![line]))
    } else {
        let word = environment_word(&effective.name, &value);
        (format!("Environment={word}"), Change::Text(word))
    };
    let (fix, is_sure) = with_obstacle(snapshot, format!("write `{shown}` at {at}"), flags);
    let edit = (is_sure && is_writable && (in_file || at.width > 0)).then(|| (at.clone(), change));
    Some(Remedy { fix: format!("{fix}, then {after}"), edit })
}

/// An assignment of a packaged unit is overridden by one in a drop-in of the operator's, which is loaded later.
fn in_drop_in(
    snapshot: &Snapshot,
    effective: &Assignment,
    value: &str,
    flags: &[String],
    is_writable: bool,
) -> Option<Remedy> {
    const NAME: &str = "90-local.conf";
    let unit = &snapshot.unit;
    let is_drop_in = unit.dropins.iter().any(|path| path.to_str() == Some(&*effective.at.file));
    if is_drop_in && Path::new(&*effective.at.file).file_name()?.to_str()? >= NAME {
        return None;
    }
    let path = format!("/etc/systemd/system/{}.d/{NAME}", unit.name);
    let line = format!("Environment={}", environment_word(&effective.name, value));
    let (fix, is_sure) = with_obstacle(snapshot, format!("write `{line}` behind `[Service]` into {path}"), flags);
    let change = Change::Append(format!("[Service]\n{line}"));
    let edit = (is_sure && is_writable).then(|| (Location::file(&path), change));
    Some(Remedy { fix: format!("{fix}, then {}", reload(snapshot)), edit })
}

/// Whether a line has specifiers (`%H`), of which only what they stand for is known here.
pub(super) fn has_specifiers(snapshot: &Snapshot, at: &Location) -> bool {
    let mut events = snapshot.unit.events.iter();
    events.any(|event| event.kind == EventKind::Specifiers && event.at.file_line() == at.file_line())
}

/// A value with flags behind it, without words `$X`, which systemd does not expand in a value; and whether one of them takes the place of another value of the same flag: then nobody
/// knows which one is right.
fn joined(value: &str, flags: &[String]) -> (String, bool) {
    let text = flags.join(" ");
    let new: Vec<String> = flags_in(&text)
        .into_iter()
        .filter(|flag| table::find(&flag.name).is_none_or(|spec| spec.repeat == Repeat::LastWins))
        .map(|flag| flag.name)
        .collect();
    let mut kept = Vec::new();
    let mut replaces = false;
    let mut words = value.split_whitespace().filter(|word| !word.starts_with('$')).peekable();
    while let Some(word) = words.next() {
        let (name, has_value) = match word.strip_prefix("--").and_then(|word| word.split_once('=')) {
            Some((name, _)) => (name, true),
            None => (word.trim_start_matches('-'), false),
        };
        if !word.starts_with("--") || !new.contains(&name.replace('_', "-")) {
            kept.push(word);
            continue;
        }
        replaces = true;
        if !has_value && words.peek().is_some_and(|next| !next.starts_with('-')) {
            words.next();
        }
    }
    kept.extend(flags.iter().map(String::as_str));
    (kept.join(" "), replaces)
}

/// `NAME=value` in a text that was meant to be one assignment, without the quotes around it or around the value.
pub(super) fn meant_assignment(text: &str) -> Option<(String, String)> {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\u{2018}'..='\u{201f}');
    let (name, value) = text.trim().trim_matches(is_quote).split_once('=')?;
    let (name, value) = (name.trim(), value.trim().trim_matches(is_quote).trim());
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_plain = !value.contains(|c: char| is_quote(c) || c.is_control() || matches!(c, '\\' | '$'));
    (is_name && is_plain).then(|| (name.to_owned(), value.to_owned()))
}
