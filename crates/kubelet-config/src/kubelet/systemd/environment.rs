//! The environment of a service: `Environment=`, `EnvironmentFile=`, `PassEnvironment=`, `UnsetEnvironment=`, and which
//! assignment counts; systemd.exec(5), "ENVIRONMENT".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::env_file::{self, ParsedEnvFile};
use super::exec::{Context, simplified};
use super::glob::glob;
use super::paths::{Look, look};
use super::source::{Mapped, is_utf8};
use super::syntax::event;
use super::words::{Flags, next_word};
use super::{Assignment, EnvFile, EnvFileState, Event, EventKind, Events, Manager, Source};
use crate::kubelet::location::Location;
use crate::kubelet::tree::{Tree, Unreadable};

/// The most assignments of one unit, its files not counted.
const MAX_ASSIGNMENTS: usize = 20_000;
/// The most environment files of one unit.
const MAX_ENV_FILES: usize = 200;
/// How much the values of all files may take together.
const MAX_VALUE_BYTES: usize = 32 << 20;

/// An `EnvironmentFile=` line.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) path: String,
    pub(super) optional: bool,
    pub(super) at: Location,
}

/// A name of `PassEnvironment=` or `UnsetEnvironment=`.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) text: String,
    pub(super) at: Location,
}

/// The lists that a service's files fill.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) environment: Vec<Assignment>,
    pub(super) files: Vec<Declared>,
    pub(super) pass: Vec<Listed>,
    pub(super) unset: Vec<Listed>,
}

impl Lists {
    /// Takes an `Environment=` line.
    pub(super) fn environment(&mut self, context: &Context<'_>, value: &Mapped, events: &mut Events) {
        if value.is_empty() {
            for lost in self.environment.drain(..) {
                let text = format!("{}={}", lost.name, lost.value);
                events.push(reset("Environment", context, lost.at, &text));
            }
            return;
        }
        let mut position = 0;
        let mut first: Option<(String, String)> = None;
        let flags = Flags { c_escapes: true, ..Flags::default() };
        loop {
            let start = position;
            let word = match next_word(value, &mut position, flags) {
                Ok(Some(word)) => word,
                Ok(None) => return,
                Err(_) => {
                    let rest = value.slice(start..value.len());
                    let at = rest.place(context.source);
                    events.push(event(EventKind::BadQuoting, at, &rest.text()));
                    return;
                }
            };
            let at = value.slice(word.start..word.end).place(context.source);
            let Some(text) = expand(context, &word.text, &at, events) else { continue };
            let Some(assigned) = assignment(context, &text, &at) else {
                let kind = EventKind::InvalidAssignment { first: first.clone() };
                events.push(event(kind, at, &text.text()));
                continue;
            };
            if first.is_none() {
                first = Some((assigned.name.clone(), assigned.value.clone()));
            }
            if self.environment.len() < MAX_ASSIGNMENTS {
                self.environment.push(assigned);
            }
        }
    }

    /// Takes an `EnvironmentFile=` line.
    pub(super) fn file(&mut self, context: &Context<'_>, value: &Mapped, events: &mut Events) {
        if value.is_empty() {
            for lost in self.files.drain(..) {
                events.push(reset("EnvironmentFile", context, lost.at, &lost.path));
            }
            return;
        }
        let at = value.place(context.source);
        let Some(text) = expand(context, value, &at, events) else { return };
        let text = text.text();
        let (path, optional) = match text.strip_prefix('-') {
            Some(path) => (path, true),
            None => (text.as_str(), false),
        };
        let reason = if !path.starts_with('/') {
            "the path is not absolute"
        } else if path.split('/').any(|part| part == "..") {
            "the path is not normalized"
        } else if path.len() > 4095 || path.split('/').any(|part| part.len() > 255) {
            "the path has an invalid length"
        } else {
            if self.files.len() < MAX_ENV_FILES {
                self.files.push(Declared { path: simplified(path), optional, at: context.at.clone() });
            }
            return;
        };
        let kind = EventKind::BadEnvironmentFile { reason: reason.to_owned() };
        events.push(event(kind, at, &text));
    }

    /// Takes a `PassEnvironment=` or `UnsetEnvironment=` line.
    pub(super) fn names(&mut self, key: &'static str, context: &Context<'_>, value: &Mapped, events: &mut Events) {
        let unsets = key == "UnsetEnvironment";
        let list = if unsets { &mut self.unset } else { &mut self.pass };
        if value.is_empty() {
            for lost in list.drain(..) {
                events.push(reset(key, context, lost.at, &lost.text));
            }
            return;
        }
        let flags = Flags { c_escapes: unsets, ..Flags::default() };
        let mut position = 0;
        loop {
            let start = position;
            let Ok(word) = next_word(value, &mut position, flags) else {
                let rest = value.slice(start..value.len());
                let at = rest.place(context.source);
                events.push(event(EventKind::BadQuoting, at, &rest.text()));
                return;
            };
            let Some(word) = word else { return };
            let at = value.slice(word.start..word.end).place(context.source);
            let Some(text) = expand(context, &word.text, &at, events) else { continue };
            let valid =
                env_file::is_variable_name(&text.text()) || (unsets && assignment(context, &text, &at).is_some());
            if !valid {
                let kind = EventKind::InvalidAssignment { first: None };
                events.push(event(kind, at, &text.text()));
            } else if list.len() < MAX_ASSIGNMENTS {
                list.push(Listed { text: text.text(), at });
            }
        }
    }
}

fn reset(key: &str, context: &Context<'_>, at: Location, text: &str) -> Event {
    let kind = EventKind::Reset { key: key.to_owned(), by: context.at.clone() };
    event(kind, at, text)
}

/// Expands specifiers; `None` if there is one that cannot be, which costs the word.
fn expand(context: &Context<'_>, text: &Mapped, at: &Location, events: &mut Events) -> Option<Mapped> {
    match context.specifiers.expand(text) {
        Ok(expanded) => {
            if expanded.has_specifiers {
                events.push(event(EventKind::Specifiers, at.clone(), &text.text()));
            }
            Some(expanded.text)
        }
        Err(letter) => {
            events.push(event(EventKind::BadSpecifier { letter }, at.clone(), &text.text()));
            None
        }
    }
}

/// `NAME=value`, if that is what a word is.
fn assignment(context: &Context<'_>, word: &Mapped, at: &Location) -> Option<Assignment> {
    let equals = word.bytes.iter().position(|byte| *byte == b'=')?;
    let name = word.slice(0..equals).text();
    let value = word.slice(equals + 1..word.len());
    let valid = env_file::is_variable_name(&name) && is_utf8(&value.bytes);
    valid.then(|| Assignment {
        name,
        value: value.text(),
        at: at.clone(),
        source: Source::Environment,
        marks: value.marks(context.source),
    })
}

/// The environment: for each variable its assignments, the one that counts last.
pub(super) struct Environment {
    pub(super) variables: BTreeMap<String, Vec<Assignment>>,
    pub(super) files: Vec<EnvFile>,
}

/// Puts the environment together: what systemd sets itself, what it passes on, `Environment=`, the files, each over the
/// one before; what `UnsetEnvironment=` names is taken out at the end.
pub(super) fn settle(
    tree: &dyn Tree,
    manager: &Manager,
    lists: &Lists,
    own: Vec<Assignment>,
    events: &mut Events,
) -> Environment {
    let mut variables: BTreeMap<String, Vec<Assignment>> = BTreeMap::new();
    let mut add = |assignment: Assignment| {
        variables.entry(assignment.name.clone()).or_default().push(assignment);
    };
    own.into_iter().for_each(&mut add);
    for listed in &lists.pass {
        if let Some(value) = manager.environment.get(&listed.text) {
            add(Assignment {
                name: listed.text.clone(),
                value: value.clone(),
                at: listed.at.clone(),
                source: Source::Passed,
                marks: Vec::new(),
            });
        }
    }
    lists.environment.iter().cloned().for_each(&mut add);
    let files = read_files(tree, manager, &lists.files, events);
    files.iter().flat_map(|file| file.assignments.iter().cloned()).for_each(&mut add);
    for listed in &lists.unset {
        let (name, value) = match listed.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (listed.text.as_str(), None),
        };
        let effective = variables.get(name).and_then(|all| all.last());
        let Some(effective) = effective.filter(|effective| value.is_none_or(|value| value == effective.value)) else {
            continue;
        };
        let kind = EventKind::Unset { name: name.to_owned(), by: listed.at.clone() };
        events.push(event(kind, effective.at.clone(), &effective.value));
        variables.remove(name);
    }
    Environment { variables, files }
}

fn read_files(tree: &dyn Tree, manager: &Manager, declared: &[Declared], events: &mut Events) -> Vec<EnvFile> {
    let mut files = Vec::new();
    let mut read: BTreeMap<PathBuf, Result<ParsedEnvFile, EnvFileState>> = BTreeMap::new();
    let mut budget = MAX_VALUE_BYTES;
    for declared in declared {
        let matches = glob(tree, &declared.path);
        let found = if matches.is_empty() { vec![PathBuf::from(&declared.path)] } else { matches };
        for path in found {
            if files.len() >= MAX_ENV_FILES {
                return files;
            }
            let parsed = read.entry(path.clone()).or_insert_with(|| {
                let parsed = read_file(tree, &path, manager.version);
                if let Ok(parsed) = &parsed {
                    parsed.events.iter().for_each(|event| events.push(event.clone()));
                }
                parsed
            });
            files.push(env_file(path, declared, parsed, &mut budget));
        }
    }
    files
}

fn env_file(
    path: PathBuf,
    declared: &Declared,
    parsed: &Result<ParsedEnvFile, EnvFileState>,
    budget: &mut usize,
) -> EnvFile {
    let mut file = EnvFile {
        path,
        declared: declared.at.clone(),
        optional: declared.optional,
        state: EnvFileState::Read,
        assignments: Vec::new(),
    };
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(state) => {
            file.state = state.clone();
            return file;
        }
    };
    let size: usize = parsed.assignments.iter().map(|a| a.value.len()).sum();
    let reason = if parsed.unusable.is_some() {
        parsed.unusable.clone()
    } else if size > *budget {
        Some("the unit's environment is too large".to_owned())
    } else {
        None
    };
    if let Some(reason) = reason {
        file.state = EnvFileState::Skipped { reason };
        return file;
    }
    *budget -= size;
    let own = |assignment: &Assignment| Assignment {
        source: Source::File { declared: declared.at.clone() },
        ..assignment.clone()
    };
    file.assignments = parsed.assignments.iter().map(own).collect();
    file
}

fn read_file(tree: &dyn Tree, path: &Path, version: u32) -> Result<ParsedEnvFile, EnvFileState> {
    let skipped = |reason: String| Err(EnvFileState::Skipped { reason });
    match look(tree, path) {
        Look::Null | Look::Empty => Ok(ParsedEnvFile::default()),
        Look::Missing => Err(EnvFileState::Missing),
        Look::Directory => skipped("it is a directory".to_owned()),
        Look::Other(reason) => skipped(reason),
        Look::File => match tree.read(path) {
            Ok(bytes) => Ok(env_file::parse(&Location::file(path), &bytes, version)),
            Err(Unreadable::NotFound) => Err(EnvFileState::Missing),
            Err(error) => skipped(error.sentence()),
        },
    }
}
