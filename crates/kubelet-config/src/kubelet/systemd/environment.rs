//! The environment of a service: `Environment=`, `EnvironmentFile=`, `PassEnvironment=`, `UnsetEnvironment=`, and which
//! assignment counts; systemd.exec(5), "ENVIRONMENT".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::env_file::{self, ParsedEnvFile};
use super::exec::{Context, simplified};
use super::glob::glob;
use super::source::{Mapped, is_utf8};
use super::words::{Flags, next_word};
use super::{Assignment, EnvFile, EnvFileState, EventKind, Events, Manager, Source, paths};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::tree::Tree;

/// The most assignments of one unit, its files not counted.
const MAX_ASSIGNMENTS: usize = 20_000;
const MAX_ENV_FILES: usize = 200;
/// How much the values of all files may take together.
const MAX_VALUE_BYTES: usize = 32 << 20;

#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) path: String,
    pub(super) optional: bool,
    pub(super) at: Location,
}

#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) environment: Vec<Assignment>,
    pub(super) files: Vec<Declared>,
    /// The names of `PassEnvironment=`.
    pub(super) pass: Vec<Located<String>>,
    /// The names and assignments of `UnsetEnvironment=`.
    pub(super) unset: Vec<Located<String>>,
}

impl Lists {
    pub(super) fn environment(&mut self, context: &mut Context<'_>, value: &Mapped) {
        if value.is_empty() {
            for lost in self.environment.drain(..) {
                reset("Environment", context, lost.at, &format!("{}={}", lost.name, lost.value));
            }
            return;
        }
        let mut first: Option<(String, String)> = None;
        for_each_word(context, value, true, &mut |text, at, context| {
            let Some(assigned) = assignment(context, text, &at) else {
                context.events.add(EventKind::InvalidAssignment { first: first.clone() }, at, &text.text());
                return;
            };
            if first.is_none() {
                first = Some((assigned.name.clone(), assigned.value.clone()));
            }
            if self.environment.len() < MAX_ASSIGNMENTS {
                self.environment.push(assigned);
            }
        });
    }

    pub(super) fn file(&mut self, context: &mut Context<'_>, value: &Mapped) {
        if value.is_empty() {
            for lost in self.files.drain(..) {
                reset("EnvironmentFile", context, lost.at, &lost.path);
            }
            return;
        }
        let at = value.place(context.source);
        let Some(text) = expand(context, value, &at) else { return };
        let text = text.text();
        let path = text.strip_prefix('-').unwrap_or(&text);
        let reason = if !path.starts_with('/') {
            "the path is not absolute"
        } else if path.split('/').any(|part| part == "..") {
            "the path is not normalized"
        } else if path.len() > 4095 || path.split('/').any(|part| part.len() > 255) {
            "the path has an invalid length"
        } else {
            if self.files.len() < MAX_ENV_FILES {
                let optional = path.len() < text.len();
                self.files.push(Declared { path: simplified(path), optional, at: context.at.clone() });
            }
            return;
        };
        context.events.add(EventKind::BadEnvironmentFile { reason }, at, &text);
    }

    /// Takes a `PassEnvironment=` or `UnsetEnvironment=` line.
    pub(super) fn names(&mut self, key: &'static str, context: &mut Context<'_>, value: &Mapped) {
        let unsets = key == "UnsetEnvironment";
        let list = if unsets { &mut self.unset } else { &mut self.pass };
        if value.is_empty() {
            for lost in list.drain(..) {
                reset(key, context, lost.at, &lost.value);
            }
            return;
        }
        for_each_word(context, value, unsets, &mut |word, at, context| {
            let text = word.text();
            if !env_file::is_variable_name(&text) && (!unsets || assignment(context, word, &at).is_none()) {
                context.events.add(EventKind::InvalidAssignment { first: None }, at, &text);
            } else if list.len() < MAX_ASSIGNMENTS {
                list.push(Located { value: text, at });
            }
        });
    }
}

/// Hands on the words of a value, expanded; after an unclosed quote or an escape that is none, no more.
fn for_each_word(
    context: &mut Context<'_>,
    value: &Mapped,
    c_escapes: bool,
    each: &mut dyn FnMut(&Mapped, Location, &mut Context<'_>),
) {
    let flags = Flags { c_escapes, ..Flags::default() };
    let mut position = 0;
    loop {
        let start = position;
        let Ok(word) = next_word(value, &mut position, flags) else {
            let rest = value.slice(start..value.len());
            return context.events.add(EventKind::BadQuoting, rest.place(context.source), &rest.text());
        };
        let Some(word) = word else { return };
        let at = context.place(value, word.place);
        if let Some(text) = expand(context, &word.text, &at) {
            each(&text, at, context);
        }
    }
}

fn reset(key: &str, context: &mut Context<'_>, at: Location, text: &str) {
    context.events.add(EventKind::Reset { key: key.to_owned(), by: context.at.clone() }, at, text);
}

/// Expands specifiers; `None` if there is one that cannot be, which costs the word.
fn expand(context: &mut Context<'_>, text: &Mapped, at: &Location) -> Option<Mapped> {
    let expanded = context.expand(text, at);
    expanded.map_err(|letter| context.events.add(EventKind::BadSpecifier { letter }, at.clone(), &text.text())).ok()
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

/// Puts the environment together: what systemd sets itself, what it passes on, `Environment=`, the files, each over the
/// one before; what `UnsetEnvironment=` names is taken out at the end. Of each variable all assignments come back, the
/// one that counts last, and then the files.
pub(super) fn settle(
    tree: &dyn Tree,
    manager: &Manager,
    lists: &Lists,
    own: Vec<Assignment>,
    events: &mut Events,
) -> (BTreeMap<String, Vec<Assignment>>, Vec<EnvFile>) {
    let mut variables: BTreeMap<String, Vec<Assignment>> = BTreeMap::new();
    let mut add = |assignment: Assignment| {
        variables.entry(assignment.name.clone()).or_default().push(assignment);
    };
    own.into_iter().for_each(&mut add);
    for Located { value: name, at } in &lists.pass {
        if let Some(value) = manager.environment.get(name) {
            add(Assignment::new(name, value, at, Source::Passed));
        }
    }
    lists.environment.iter().cloned().for_each(&mut add);
    let files = read_files(tree, manager, &lists.files, events);
    files.iter().flat_map(|file| file.assignments.iter().cloned()).for_each(&mut add);
    for Located { value: text, at } in &lists.unset {
        let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
        let effective = variables.get(name).and_then(|all| all.last());
        if let Some(effective) = effective.filter(|effective| value.is_none_or(|value| value == effective.value)) {
            let kind = EventKind::Unset { name: name.to_owned(), by: at.clone() };
            events.add(kind, effective.at.clone(), &effective.value);
            variables.remove(name);
        }
    }
    (variables, files)
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
                parsed.iter().flat_map(|parsed| &parsed.events).for_each(|event| events.push(event.clone()));
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
    let skipped = |reason: &str| (EnvFileState::Skipped { reason: reason.to_owned() }, Vec::new());
    let (state, assignments) = match parsed {
        Err(state) => (state.clone(), Vec::new()),
        Ok(ParsedEnvFile { unusable: Some(reason), .. }) => skipped(reason),
        Ok(parsed) => {
            let size: usize = parsed.assignments.iter().map(|assignment| assignment.value.len()).sum();
            let source = Source::File { declared: declared.at.clone() };
            let own = parsed.assignments.iter().map(|one| Assignment { source: source.clone(), ..one.clone() });
            match budget.checked_sub(size) {
                Some(left) => {
                    *budget = left;
                    (EnvFileState::Read, own.collect())
                }
                None => skipped("the unit's environment is too large"),
            }
        }
    };
    EnvFile { path, declared: declared.at.clone(), optional: declared.optional, state, assignments }
}

fn read_file(tree: &dyn Tree, path: &Path, version: u32) -> Result<ParsedEnvFile, EnvFileState> {
    match paths::read(tree, path) {
        Ok(bytes) => Ok(env_file::parse(&Location::file(path), &bytes, version)),
        Err(None) => Err(EnvFileState::Missing),
        Err(Some(reason)) => Err(EnvFileState::Skipped { reason }),
    }
}
