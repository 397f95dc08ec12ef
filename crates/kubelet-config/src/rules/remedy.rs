//! Remedies that several rules share: a flag written where the kubelet gets it, an assignment deleted or quoted.

use std::collections::BTreeMap;
use std::path::Path;

use super::config::edits;
use super::lost::{quoted, two_paths};
use super::{From, Launcher, Location, Remedy, Snapshot, Step, at, flags_in, layers, settings};
use crate::kubelet::flags::{Repeat, table};
use crate::kubelet::systemd::{Assignment, EnvFile, EnvFileState, EventKind, Exec, Source};
use crate::step::NOT_THE_OPERATORS;

/// How long a value may be that a fix writes out.
const MAX_VALUE_BYTES: usize = 4000;

impl Remedy {
    /// The same, and the finding's own line is deleted. What is written comes first, so that lines keep their numbers.
    pub(super) fn and_delete(mut self, line: Step) -> Self {
        if self.steps.iter().any(|step| step.at().is_some()) {
            self.steps.push(line);
        }
        self
    }

    /// Without the edit where the kubelet may be meant to do without the flags.
    pub(super) fn only_if(mut self, is_sure: bool) -> Self {
        let starts = |what: &str| ["if ", "delete "].iter().any(|start| what.starts_with(start));
        let is_conditional = matches!(self.steps.first(), Some(Step::Say { what, .. }) if starts(what));
        if !is_sure && !is_conditional {
            self.steps.insert(0, Step::say("if the kubelet needs these flags"));
        }
        self.by_hand |= !is_sure;
        self
    }

    /// Without the flags that cannot be written elsewhere as they are.
    fn without(mut self, flags: &Writable) -> Self {
        let Writable { good, unknown, variables } = flags;
        if good.is_empty() && !(unknown.is_empty() && variables.is_empty()) {
            self.steps.clear();
        }
        self.by_hand |= !(unknown.is_empty() && variables.is_empty());
        self.steps.extend(variables.iter().map(Step::say));
        if !unknown.is_empty() {
            let verb = if self.steps.is_empty() { "delete" } else { "leave out" };
            let unknown = unknown.join(" and ");
            self.steps.push(Step::say(format!("{verb} {unknown} (a kubelet exits with a flag that it does not know)")));
        }
        self
    }
}

/// An assignment as one would write it into an environment file.
pub(super) fn env_file_line(name: &str, value: &str) -> String {
    if !value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '$' | '`')) {
        return format!("{name}={value}");
    }
    let escaped = value.replace('\\', r"\\").replace('"', r#"\""#).replace('$', r"\$").replace('`', r"\`");
    format!("{name}=\"{escaped}\"")
}

/// An assignment as one would write it after `Environment=`.
pub(super) fn environment_word(name: &str, value: &str) -> String {
    let escaped = value.replace('\\', r"\\").replace('"', r#"\""#).replace('%', "%%");
    format!("\"{name}={escaped}\"")
}

/// The file that the unit reads for the operator's flags.
pub(super) fn usual_file(snapshot: &Snapshot) -> Option<&EnvFile> {
    let mut files = snapshot.unit.env_files.iter().rev();
    files.find(|file| !file.path.ends_with("kubeadm-flags.env") && two_paths(&file.path).is_none())
}

/// Whether an assignment is on one line, as far as its value tells.
pub(super) fn is_one_line(assignment: &Assignment) -> bool {
    assignment.at.line > 0
        && assignment.marks.iter().all(|(_, mark)| mark.line == assignment.at.line)
        && !assignment.value.contains('\n')
}

/// The assignments of `Environment=` lines, by line.
pub(super) struct EnvironmentLines<'a>(BTreeMap<Location, Vec<&'a Assignment>>);

impl<'a> EnvironmentLines<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let mut lines: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for variable in snapshot.unit.variables.values() {
            let all = variable.overridden.iter().chain([&variable.effective]);
            for one in all.filter(|one| one.source == Source::Environment) {
                lines.entry(one.at.at_line(one.at.line)).or_default().push(one);
            }
        }
        Self(lines)
    }

    /// Those of the line of a place.
    pub(super) fn at(&self, at: &Location) -> &[&'a Assignment] {
        self.0.get(&at.at_line(at.line)).map_or(&[], Vec::as_slice)
    }

    /// Deletes the line of an assignment: an edit if it is the whole line.
    pub(super) fn deletion(&self, assignment: &Assignment) -> Step {
        /// The column after `Environment=`.
        const FIRST: u32 = 13;
        let at = &assignment.at;
        let is_whole = assignment.source != Source::Environment || at.column == FIRST && self.at(at).len() == 1;
        delete_line_if(is_one_line(assignment) && is_whole, at)
    }
}

/// Deletes a line, which takes a person where it is not sure that nothing else is in it.
pub(super) fn delete_line_if(is_sure: bool, at: &Location) -> Step {
    if is_sure { Step::delete_line(at) } else { Step::say_at(at, "delete the assignment") }
}

/// The flags that can be written elsewhere as they are, and the others.
#[derive(Default)]
struct Writable {
    good: Vec<String>,
    /// Those that the kubelet does not know.
    unknown: Vec<String>,
    /// What is to be done about those with a variable.
    variables: Vec<String>,
}

fn writable(snapshot: &Snapshot, flags: &[String]) -> Writable {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    let is_known = |name: &str| table::find(name).is_some_and(|spec| minor.is_none_or(|minor| spec.known_in(minor)));
    let mut all = Writable::default();
    for text in flags {
        match flags_in(text).into_iter().find(|flag| !is_known(&flag.name)) {
            Some(flag) => all.unknown.push(format!("--{}", quoted(&flag.name))),
            None if text.contains('$') => {
                all.variables.push(format!("write the value of the variable in {}", quoted(text)));
            }
            None => all.good.push(text.clone()),
        }
    }
    all
}

/// Gives the kubelet these flags by the variable `name`, or by the one for the operator's own flags (`…_EXTRA_ARGS`):
/// where it is set, or in the file that the unit reads.
pub(super) fn add_flags(snapshot: &Snapshot, name: Option<&str>, flags: &[String]) -> Option<Remedy> {
    if snapshot.command.launcher != Launcher::Direct {
        return None;
    }
    let names: Vec<String> = snapshot.unit.exec.iter().flat_map(Exec::references).map(|(name, _, _)| name).collect();
    let named = name.filter(|name| names.iter().any(|used| used == name));
    let name = named.or_else(|| names.iter().map(String::as_str).find(|name| name.ends_with("EXTRA_ARGS")))?;
    if let Some(variable) = snapshot.unit.variables.get(name) {
        // A variable in the value should have added flags: SD001 and SD016 say which.
        return with_flags(snapshot, &variable.effective, flags).filter(|_| !variable.effective.value.contains('$'));
    }
    let file = usual_file(snapshot).filter(|file| matches!(file.state, EnvFileState::Read | EnvFileState::Missing))?;
    let flags = writable(snapshot, flags);
    let lines = env_file_line(name, &flags.good.join(" "));
    Some(Remedy::from(Step::Append { to: Location::file(&file.path), lines }).without(&flags))
}

/// Gives the kubelet a flag (`max-pods=50`) where this host has its flags.
pub(super) fn with_flag(snapshot: &Snapshot, flag: &str) -> Remedy {
    let command = &snapshot.command;
    if settings::are_managed(snapshot) {
        return layers::with_argument(snapshot, flag).into();
    }
    let flag = format!("--{flag}");
    // The arguments file of a snap has one flag a line.
    if let Some(file) = command.files.first() {
        return Step::Append { to: file.clone(), lines: flag }.into();
    }
    let is_sure = command.launcher == Launcher::Direct;
    let exec = snapshot.unit.exec.as_ref();
    add_flags(snapshot, None, std::slice::from_ref(&flag)).unwrap_or_else(|| match exec {
        Some(exec) => add_word(exec, &flag, is_sure).into(),
        None => Step::say(format!("give the kubelet {flag}")).into(),
    })
}

/// Gives a setting this value: where it is set, else in the configuration file, else as a flag.
pub(super) fn set(snapshot: &Snapshot, path: &str, value: &str) -> Remedy {
    let flag = settings::flag_of(path).unwrap_or_default();
    match (settings::from(snapshot, path), snapshot.flags.last(flag)) {
        (Some(From::Flag(_)), Some(used)) => at::set_value(snapshot, used, value).into(),
        (Some(From::File(_)), _) => edits::set(snapshot, path, value).into(),
        _ if settings::config_file(snapshot).is_some() && !settings::are_managed(snapshot) => {
            edits::set(snapshot, path, value).into()
        }
        _ => with_flag(snapshot, &format!("{flag}={value}")),
    }
}

/// Adds a word after the last one of a command.
pub(super) fn add_word(exec: &Exec, word: &str, is_sure: bool) -> Step {
    let last = exec.words.last().map(|last| &last.at).filter(|at| is_sure && at.width > 0);
    let end = last.map(|at| at.at(at.line, at.column + at.width, 0));
    let what = format!("add `{}` to the command", quoted(word));
    Step::replace(end, &exec.at, what, format!(" {word}"))
}

/// Puts flags into an assignment that counts.
pub(super) fn with_flags(snapshot: &Snapshot, effective: &Assignment, flags: &[String]) -> Option<Remedy> {
    let (name, at) = (&effective.name, &effective.at);
    let in_file = match effective.source {
        Source::File { .. } => true,
        Source::Environment => false,
        Source::Manager | Source::Passed => return None,
    };
    if effective.value.len() > MAX_VALUE_BYTES {
        return Some(Step::say_at(at, format!("add {} to {name}", flags.join(" "))).into());
    }
    let flags = writable(snapshot, flags);
    let (value, replaces) = joined(name, &effective.value, &flags.good);
    let is_packaged = NOT_THE_OPERATORS.iter().any(|directory| Path::new(&*at.file).starts_with(directory));
    let is_literal = in_file || !has_specifiers(snapshot, at);
    let word = environment_word(name, &value);
    let step = if in_file {
        Step::lines(at, env_file_line(name, &value))
    } else if is_packaged {
        let lines = format!("[Service]\nEnvironment={word}");
        Step::Append { to: Location::file(own_drop_in(snapshot, at)?), lines }
    } else {
        Step::write(Some(at.clone()), at, "Environment=", word)
    };
    let is_sure = is_one_line(effective) && is_literal && !replaces && !value.contains('$');
    let condition = replaces.then(|| Step::say(format!("if {} is right", flags.good.join(" "))));
    Some(Remedy { steps: condition.into_iter().chain([step]).collect(), by_hand: !is_sure }.without(&flags))
}

/// A drop-in of the operator's that is loaded after a packaged file: an update of the package leaves it alone.
fn own_drop_in(snapshot: &Snapshot, packaged: &Location) -> Option<String> {
    const NAME: &str = "90-local.conf";
    let unit = &snapshot.unit;
    let is_drop_in = unit.dropins.iter().any(|path| path.to_str() == Some(&*packaged.file));
    let is_later = !is_drop_in || Path::new(&*packaged.file).file_name()?.to_str()? < NAME;
    is_later.then(|| format!("/etc/systemd/system/{}.d/{NAME}", unit.name))
}

/// Whether a line has specifiers (`%H`), of which only what they stand for is known here.
pub(super) fn has_specifiers(snapshot: &Snapshot, at: &Location) -> bool {
    let mut events = snapshot.unit.events.iter();
    events.any(|event| event.kind == EventKind::Specifiers && event.at.line == at.line && event.at.file == at.file)
}

/// Whether a word is this variable: `$NAME` or `${NAME}`.
pub(super) fn is_variable(word: &str, name: &str) -> bool {
    word.strip_prefix('$').is_some_and(|rest| rest.trim_matches(['{', '}']) == name)
}

/// A value with flags after it, without the variable itself, which systemd does not expand there. And whether one of the
/// flags replaces another value of the same flag: then it is not known which one is right.
fn joined(name: &str, value: &str, flags: &[String]) -> (String, bool) {
    let text = flags.join(" ");
    let new: Vec<String> = flags_in(&text)
        .into_iter()
        .filter(|flag| table::find(&flag.name).is_none_or(|spec| spec.repeat == Repeat::LastWins))
        .map(|flag| flag.name)
        .collect();
    let mut kept = value.to_owned();
    let mut replaces = false;
    for old in flags_in(value).iter().rev().filter(|old| new.contains(&old.name)) {
        let mut end = old.offset + old.text.len();
        if let Some(next) = old.next {
            end += value[end..].find(next).map_or(0, |gap| gap + next.len());
        }
        kept.replace_range(old.offset..end, "");
        replaces = true;
    }
    let words = kept.split_whitespace().filter(|word| !is_variable(word, name));
    let words: Vec<&str> = words.chain(flags.iter().map(String::as_str)).collect();
    (words.join(" "), replaces)
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
