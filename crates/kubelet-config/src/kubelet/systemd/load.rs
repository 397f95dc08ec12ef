//! From a unit's name to what systemd would run: fragment, drop-ins, lists, environment, argument list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::environment::{self, Lists};
use super::exec::{self, Context};
use super::names::{self, NameKind};
use super::paths::{self, Found, Index, Look, look};
use super::source::{SourceFile, bounded};
use super::specifiers::Specifiers;
use super::syntax::{self, Pair, ParseAbort, event};
use super::{
    Assignment, EventKind, Events, Exec, LoadState, Manager, Setting, Unit, Variable, builtin, dropins, expand, keys,
    verify,
};
use crate::kubelet::location::Location;
use crate::kubelet::tree::Tree;

/// Settings that add up instead of replacing each other, and cannot be reset.
const DEPENDENCIES: [&str; 9] =
    ["After", "Before", "BindsTo", "Conflicts", "PartOf", "Requires", "Requisite", "Upholds", "Wants"];
/// A list of a setting that adds up is not read beyond this.
const MAX_LIST_BYTES: usize = 15 << 10;
/// The most commands of one list.
const MAX_COMMANDS: usize = 1000;

/// What the files of a unit fill.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) lists: Lists,
    pub(super) execs: Vec<Exec>,
    pub(super) replaced: Vec<Exec>,
    /// The empty assignment that took the last commands away.
    pub(super) reset: Option<Location>,
    pub(super) settings: BTreeMap<(String, String), Setting>,
}

struct Loader<'a> {
    tree: &'a dyn Tree,
    manager: &'a Manager,
    loaded: Loaded,
    events: Events,
}

pub(super) fn resolve_unit(tree: &dyn Tree, name: &str, manager: &Manager) -> Unit {
    let mut loader = Loader { tree, manager, loaded: Loaded::default(), events: Events::default() };
    let mut unit = Unit::named(name);
    if !matches!(names::kind(name), Some(NameKind::Plain | NameKind::Instance)) {
        unit.load = LoadState::Error {
            at: Location::file(name),
            reason: "this is no name of a service that can be started".to_owned(),
        };
        return unit;
    }
    let directories = paths::search_path(tree, manager.unit_path.as_deref());
    let found = Index::scan(tree, &directories).find(tree, name);
    loader.hidden_fragments(&directories, &found, name);
    unit.load = loader.fragment(&mut unit, &found);
    // systemd learns the other names after the fragment, once it has opened that.
    let is_dangling = found.fragment.is_some() && unit.load == LoadState::NotFound;
    if !is_dangling && !matches!(unit.load, LoadState::Error { .. } | LoadState::BadSetting { .. }) {
        unit.names.clone_from(&found.names);
    }
    if matches!(unit.load, LoadState::Loaded | LoadState::Masked { .. }) {
        unit.dropins = dropins::find(tree, &directories, &found.names, &mut loader.events);
        let specifiers = builtin::specifiers(tree, manager, &found.id, unit.fragment.as_deref());
        for path in &unit.dropins {
            loader.drop_in(path, &specifiers);
        }
    }
    loader.finish(unit)
}

impl Loader<'_> {
    /// Tells of files of the unit's name that a higher one hides.
    fn hidden_fragments(&mut self, directories: &[PathBuf], found: &Found, name: &str) {
        let Some(fragment) = &found.fragment else { return };
        let mut wanted = vec![name, found.id.as_str()];
        wanted.dedup();
        for directory in directories {
            for name in &wanted {
                let path = directory.join(name);
                let leads_there = self.tree.real_path(&path).ok() == self.tree.real_path(fragment).ok();
                if path == *fragment || leads_there || self.tree.lstat(&path).is_err() {
                    continue;
                }
                let by = fragment.clone();
                let text = self.tree.read_text(&path).unwrap_or_default();
                let kind = EventKind::FragmentHidden { by };
                self.events.push(event(kind, Location::file(&path), &text));
            }
        }
    }

    fn fragment(&mut self, unit: &mut Unit, found: &Found) -> LoadState {
        let Some(path) = &found.fragment else { return LoadState::NotFound };
        let at = Location::file(path);
        let error = |reason: String| LoadState::Error { at: at.clone(), reason };
        let state = match look(self.tree, path) {
            Look::Missing => {
                let reason = "the link leads nowhere".to_owned();
                let kind = EventKind::FileUnreadable { reason };
                self.events.push(event(kind, at, ""));
                return LoadState::NotFound;
            }
            Look::Null | Look::Empty => LoadState::Masked { by: at },
            Look::Directory => error("it is a directory".to_owned()),
            Look::Other(reason) => error(reason),
            Look::File => match self.tree.read(path) {
                Err(failed) => error(failed.sentence()),
                Ok(bytes) => {
                    let specifiers = builtin::specifiers(self.tree, self.manager, &unit.name, Some(path));
                    match self.file(&SourceFile::of(path, bytes), &specifiers) {
                        Ok(()) => LoadState::Loaded,
                        Err(ParseAbort { at, reason, bad_setting: true }) => LoadState::BadSetting { at, reason },
                        Err(ParseAbort { at, reason, .. }) => LoadState::Error { at, reason },
                    }
                }
            },
        };
        unit.fragment = Some(path.clone());
        state
    }

    /// Reads a drop-in; whatever is wrong with it costs only the rest of it.
    fn drop_in(&mut self, path: &Path, specifiers: &Specifiers) {
        let reason = match look(self.tree, path) {
            Look::Null | Look::Empty => return,
            Look::Missing => "the link leads nowhere".to_owned(),
            Look::Directory => "it is a directory".to_owned(),
            Look::Other(reason) => reason,
            Look::File => match self.tree.read(path) {
                Err(failed) => failed.sentence(),
                Ok(bytes) => {
                    let source = SourceFile::of(path, bytes);
                    if let Err(lost) = self.file(&source, specifiers) {
                        let text = rest_of(&source, &lost.at);
                        let reason = lost.reason;
                        let kind = EventKind::RestOfFileLost { reason };
                        self.events.push(event(kind, lost.at, &text));
                    }
                    return;
                }
            },
        };
        let kind = EventKind::FileUnreadable { reason };
        self.events.push(event(kind, Location::file(path), ""));
    }

    fn file(&mut self, source: &SourceFile, specifiers: &Specifiers) -> Result<(), ParseAbort> {
        let version = self.manager.version;
        let loaded = &mut self.loaded;
        syntax::parse(source, &mut self.events, &mut |pair, events| {
            let context = Context { source, specifiers, version, at: pair.at.clone() };
            loaded.pair(&context, pair, events)
        })
    }

    fn finish(mut self, mut unit: Unit) -> Unit {
        let Loaded { lists, execs, replaced, settings, reset } = self.loaded;
        if unit.load == LoadState::Loaded {
            unit.load = verify::verify(&execs, &settings, reset.as_ref(), unit.fragment.as_deref());
        }
        let oneshot = verify::is_oneshot(&execs, &settings);
        let own = builtin::variables(self.tree, self.manager, &unit.name, &settings);
        let environment = environment::settle(self.tree, self.manager, &lists, own, &mut self.events);
        let winners: BTreeMap<String, Assignment> =
            environment.variables.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.clone()))).collect();
        // Of a oneshot service's commands the first is the one; of two that spoil a unit, the later is what was meant.
        unit.exec = if oneshot { execs.into_iter().next() } else { execs.into_iter().next_back() };
        let references = unit.exec.as_ref().map(expand::references).unwrap_or_default();
        if let Some(exec) = &unit.exec {
            unit.argv = expand::argv(exec, &winners, &mut self.events);
        }
        for (name, mut all) in environment.variables {
            let Some(effective) = all.pop() else { continue };
            unit.variables.insert(name.clone(), Variable { effective, overridden: all, referenced_at: Vec::new() });
        }
        for (name, at, _) in references {
            if let Some(variable) = unit.variables.get_mut(&name) {
                variable.referenced_at.push(at);
            }
        }
        unit.env_files = environment.files;
        unit.replaced_execs = replaced;
        unit.settings = settings;
        unit.events = self.events.into_vec();
        unit
    }
}

/// The text from a place to the end of its file.
fn rest_of(source: &SourceFile, at: &Location) -> String {
    let lines = source.bytes().split_inclusive(|byte| *byte == b'\n');
    let skip: usize = lines.take(at.line.saturating_sub(1) as usize).map(<[u8]>::len).sum();
    let rest = source.bytes().get(skip..).unwrap_or_default();
    bounded(&String::from_utf8_lossy(&rest[..rest.len().min(1 << 16)]))
}

impl Loaded {
    fn pair(&mut self, context: &Context<'_>, pair: Pair, events: &mut Events) -> Result<(), ParseAbort> {
        let service = pair.section == "Service";
        match pair.key.as_str() {
            "Environment" if service => self.lists.environment(context, &pair.value, events),
            "EnvironmentFile" if service => self.lists.file(context, &pair.value, events),
            "PassEnvironment" if service => {
                self.lists.names("PassEnvironment", context, &pair.value, events);
            }
            "UnsetEnvironment" if service => {
                self.lists.names("UnsetEnvironment", context, &pair.value, events);
            }
            "ExecStart" if service => return self.exec_start(context, &pair, events),
            key if service && verify::is_command(key) => {
                if !pair.value.is_empty() {
                    exec::parse(context, &pair.value, &mut Vec::new(), events)?;
                }
                self.set(context, pair);
            }
            key if keys::is_known(pair.section, key) => {
                verify::check(context, &pair)?;
                self.set(context, pair);
            }
            key if key.starts_with("X-") => {}
            key => {
                let kind = EventKind::UnknownKey { section: pair.section.to_owned(), key: key.to_owned() };
                let text = format!("{key}={}", pair.value.text());
                events.push(event(kind, pair.key_at, &text));
            }
        }
        Ok(())
    }

    fn exec_start(&mut self, context: &Context<'_>, pair: &Pair, events: &mut Events) -> Result<(), ParseAbort> {
        if pair.value.is_empty() {
            self.reset = Some(pair.at.clone());
            for exec in self.execs.drain(..) {
                let kind = EventKind::Reset { key: "ExecStart".to_owned(), by: pair.at.clone() };
                let words: Vec<&str> = exec.words.iter().map(|word| word.text.as_str()).collect();
                events.push(event(kind, exec.at.clone(), &words.join(" ")));
                self.replaced.push(exec);
            }
            self.replaced.truncate(MAX_COMMANDS);
            return Ok(());
        }
        let parsed = exec::parse(context, &pair.value, &mut self.execs, events);
        self.execs.truncate(MAX_COMMANDS);
        parsed
    }

    /// Keeps a setting that is not interpreted.
    fn set(&mut self, context: &Context<'_>, pair: Pair) {
        if !verify::takes(&pair) {
            return;
        }
        let mut value = match context.specifiers.expand(&pair.value) {
            Ok(expanded) => expanded.text.text(),
            Err(_) => pair.value.text(),
        };
        let at = if pair.value.is_empty() { pair.at } else { pair.value.place(context.source) };
        let is_list = builtin::is_directory_list(&pair.key) || pair.key.starts_with("Exec");
        let adds = DEPENDENCIES.contains(&pair.key.as_str()) || (is_list && !value.is_empty());
        let key = (pair.section.to_owned(), pair.key);
        if adds && let Some(before) = self.settings.get(&key) {
            if before.value.len() >= MAX_LIST_BYTES {
                return;
            }
            value = bounded(format!("{} {value}", before.value).trim());
        }
        self.settings.insert(key, Setting { value, at });
    }
}
