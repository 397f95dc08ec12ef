//! From a unit's name to what systemd would run: fragment, drop-ins, lists, environment, argument list.

use std::path::Path;

use super::environment::{self, Lists};
use super::exec::{self, Context};
use super::names::{self, NameKind};
use super::paths::{self, Found, Index};
use super::source::{SourceFile, bounded};
use super::specifiers::Specifiers;
use super::syntax::{self, Pair};
use super::{EventKind, Events, Exec, LoadState, Manager, Settings, Unit, Variable};
use super::{builtin, dropins, expand, keys, verify};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::tree::Tree;

/// Settings that add up instead of replacing each other, and cannot be reset.
const DEPENDENCIES: [&str; 9] =
    ["After", "Before", "BindsTo", "Conflicts", "PartOf", "Requires", "Requisite", "Upholds", "Wants"];
/// A list of a setting that adds up is not read beyond this.
const MAX_LIST_BYTES: usize = 15 << 10;
const MAX_COMMANDS: usize = 1000;

#[derive(Default)]
pub(super) struct Loaded {
    pub(super) lists: Lists,
    pub(super) execs: Vec<Exec>,
    pub(super) replaced: Vec<Exec>,
    /// The empty assignment that took the last commands away.
    pub(super) reset: Option<Location>,
    pub(super) settings: Settings,
}

struct Loader<'a> {
    tree: &'a dyn Tree,
    manager: &'a Manager,
    loaded: Loaded,
    events: Events,
}

/// Resolves a unit as systemd would load it from `tree` and start it.
pub fn resolve_unit(tree: &dyn Tree, name: &str, manager: &Manager) -> Unit {
    let mut loader = Loader { tree, manager, loaded: Loaded::default(), events: Events::default() };
    let mut unit = Unit { name: name.to_owned(), names: vec![name.to_owned()], ..Unit::default() };
    if !matches!(names::kind(name), Some(NameKind::Plain | NameKind::Instance)) {
        let reason = "this is no name of a service that can be started".to_owned();
        return Unit { load: LoadState::Error { at: Location::file(name), reason }, ..unit };
    }
    let directories = paths::search_path(tree, manager.unit_path.as_deref());
    let found = Index::scan(tree, &directories).find(tree, name);
    unit.load = loader.fragment(name, &found);
    let is_dangling = found.fragment.is_some() && unit.load == LoadState::NotFound;
    if !is_dangling {
        unit.fragment.clone_from(&found.fragment);
    }
    // systemd learns the other names after the fragment, once it has opened that.
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
    fn fragment(&mut self, name: &str, found: &Found) -> LoadState {
        let Some(path) = &found.fragment else { return LoadState::NotFound };
        let at = Location::file(path);
        let bytes = match paths::read(self.tree, path) {
            Ok(bytes) if bytes.is_empty() => return LoadState::Masked { by: at },
            Ok(bytes) => bytes,
            Err(None) => {
                self.unreadable(at, "the link leads nowhere".to_owned());
                return LoadState::NotFound;
            }
            Err(Some(reason)) => return LoadState::Error { at, reason },
        };
        let specifiers = builtin::specifiers(self.tree, self.manager, name, Some(path));
        self.file(&SourceFile::new(at, bytes), &specifiers).err().unwrap_or(LoadState::Loaded)
    }

    /// Reads a drop-in; whatever is wrong with it costs only the rest of it.
    fn drop_in(&mut self, path: &Path, specifiers: &Specifiers) {
        let reason = match paths::read(self.tree, path) {
            Ok(bytes) => {
                let source = SourceFile::new(Location::file(path), bytes);
                let lost = self.file(&source, specifiers);
                if let Err(LoadState::BadSetting { at, reason } | LoadState::Error { at, reason }) = lost {
                    let text = rest_of(&source, &at);
                    self.events.add(EventKind::RestOfFileLost { reason }, at, &text);
                }
                return;
            }
            Err(reason) => reason.unwrap_or_else(|| "the link leads nowhere".to_owned()),
        };
        self.unreadable(Location::file(path), reason);
    }

    fn unreadable(&mut self, at: Location, reason: String) {
        self.events.add(EventKind::FileUnreadable { reason }, at, "");
    }

    fn file(&mut self, source: &SourceFile, specifiers: &Specifiers) -> Result<(), LoadState> {
        let version = self.manager.version;
        let loaded = &mut self.loaded;
        syntax::parse(source, syntax::SERVICE, &mut self.events, &mut |pair, events| {
            loaded.pair(&mut Context { source, specifiers, version, at: pair.at.clone(), events }, pair)
        })
    }

    fn finish(mut self, mut unit: Unit) -> Unit {
        let Loaded { lists, execs, replaced, settings, reset } = self.loaded;
        if unit.load == LoadState::Loaded {
            unit.load = verify::verify(&execs, &settings, reset.as_ref(), unit.fragment.as_deref());
        }
        let oneshot = verify::is_oneshot(&execs, &settings);
        let own = builtin::variables(self.tree, self.manager, &unit.name, &settings, &mut self.events);
        let (variables, env_files) = environment::settle(self.tree, self.manager, &lists, own, &mut self.events);
        for (name, mut overridden) in variables {
            let Some(effective) = overridden.pop() else { continue };
            unit.variables.insert(name, Variable { effective, overridden, referenced_at: Vec::new() });
        }
        // Of a oneshot service's commands the first is the one; of two that spoil a unit, the later is what was meant.
        unit.exec = if oneshot { execs.into_iter().next() } else { execs.into_iter().next_back() };
        if let Some(exec) = &unit.exec {
            unit.argv = expand::argv(exec, &unit.variables);
            for (name, at, _) in exec.references() {
                unit.variables.entry(name).and_modify(|variable| variable.referenced_at.push(at));
            }
        }
        unit.env_files = env_files;
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
    fn pair(&mut self, context: &mut Context<'_>, pair: Pair) -> Result<(), LoadState> {
        let service = pair.section == "Service";
        match pair.key.as_str() {
            "Environment" if service => self.lists.environment(context, &pair.value),
            "EnvironmentFile" if service => self.lists.file(context, &pair.value),
            "PassEnvironment" if service => {
                self.lists.names("PassEnvironment", context, &pair.value);
                self.set(context, pair);
            }
            "UnsetEnvironment" if service => self.lists.names("UnsetEnvironment", context, &pair.value),
            "ExecStart" if service => return self.exec_start(context, &pair),
            key if service && verify::is_command(key) => {
                if !pair.value.is_empty() {
                    exec::parse(context, &pair.value, &mut Vec::new())?;
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
                context.events.add(kind, pair.key_at, &text);
            }
        }
        Ok(())
    }

    fn exec_start(&mut self, context: &mut Context<'_>, pair: &Pair) -> Result<(), LoadState> {
        if pair.value.is_empty() {
            self.reset = Some(pair.at.clone());
            for exec in self.execs.drain(..) {
                let kind = EventKind::Reset { key: "ExecStart".to_owned(), by: pair.at.clone() };
                let words: Vec<&str> = exec.words.iter().map(|word| word.text.as_str()).collect();
                context.events.add(kind, exec.at.clone(), &words.join(" "));
                self.replaced.push(exec);
            }
            self.replaced.truncate(MAX_COMMANDS);
            return Ok(());
        }
        let parsed = exec::parse(context, &pair.value, &mut self.execs);
        self.execs.truncate(MAX_COMMANDS);
        parsed
    }

    /// Keeps a setting that is not interpreted.
    fn set(&mut self, context: &Context<'_>, pair: Pair) {
        if !verify::takes(&pair) {
            return;
        }
        let expanded = context.specifiers.expand(&pair.value);
        let mut value = expanded.map_or_else(|_| pair.value.text(), |(text, _)| text.text());
        let at = if pair.value.is_empty() { pair.at } else { pair.value.place(context.source) };
        let is_list =
            builtin::is_directory_list(&pair.key) || pair.key.starts_with("Exec") || pair.key == "PassEnvironment";
        let adds = DEPENDENCIES.contains(&pair.key.as_str()) || (is_list && !value.is_empty());
        let key = (pair.section.to_owned(), pair.key);
        if adds && let Some(before) = self.settings.get(&key) {
            if before.value.len() >= MAX_LIST_BYTES {
                return;
            }
            value = bounded(format!("{} {value}", before.value).trim());
        }
        self.settings.insert(key, Located { value, at });
    }
}
