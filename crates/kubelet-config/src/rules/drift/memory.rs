//! The unit on disk compared with the unit in systemd's memory, as D-Bus tells of it.

use crate::rules::{Location, Snapshot};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Differences;
use crate::kubelet::snapshot::Loaded;
use crate::kubelet::systemd::{Assignment, Exec, Source, Unit};
use crate::rules::lost::{quoted, shown_value};

/// A path without the `/usr` before `/lib`: on most hosts they are one directory.
pub(super) fn one_usr(path: &str) -> &str {
    path.strip_prefix("/usr").filter(|rest| rest.starts_with("/lib/")).unwrap_or(path)
}

/// Compares the variables of `Environment=`.
pub(super) fn environment(unit: &Unit, loaded: &Loaded, fragment: &Location, found: &mut Differences) {
    let mut remembered: BTreeMap<&str, &str> =
        loaded.environment.iter().filter_map(|entry| entry.split_once('=')).collect();
    for (name, variable) in &unit.variables {
        let mut all = variable.overridden.iter().chain([&variable.effective]);
        let own: Option<&Assignment> = all.rfind(|assignment| assignment.source == Source::Environment);
        let Some(own) = own else { continue };
        let old = remembered.remove(name.as_str());
        if old != Some(own.value.as_str()) {
            let old = old.map_or_else(|| "not set".to_owned(), shown_value);
            found.add(&own.at, format!("{name} is {old} in memory"), &own.value);
        }
    }
    let references: BTreeSet<String> = unit.exec.iter().flat_map(Exec::references).map(|(name, _, _)| name).collect();
    for (name, value) in remembered {
        // What `UnsetEnvironment=` takes away is in systemd's list all the same.
        if references.contains(name) || crate::rules::lost::holds_flags(value) {
            found.add(fragment, format!("{} is {} in memory alone", quoted(name), shown_value(value)), "");
        }
    }
}

/// Compares the `EnvironmentFile=` lines. In memory they stand as written, globs and all; on disk a glob is its matches.
pub(super) fn environment_files(unit: &Unit, loaded: &Loaded, fragment: &Location, found: &mut Differences) {
    for file in &unit.env_files {
        let path = file.path.to_string_lossy();
        let known = loaded
            .environment_files
            .iter()
            .any(|(pattern, optional)| *optional == file.optional && is_match(pattern, &path));
        if !known {
            let text: Vec<&str> = file.assignments.iter().map(|assignment| assignment.value.as_str()).collect();
            found.add(&file.declared, format!("its `EnvironmentFile=` for {path} is not in memory"), &text.join("\n"));
        }
    }
    for (pattern, optional) in &loaded.environment_files {
        let known = is_glob(pattern)
            || unit.env_files.iter().any(|file| file.optional == *optional && file.path.to_string_lossy() == *pattern);
        if !known {
            let dash = if *optional { "-" } else { "" };
            found.add(fragment, format!("`EnvironmentFile={dash}{}` is in memory alone", quoted(pattern)), "");
        }
    }
}

fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

/// Whether a path is that of a line, or may match its glob: the text around the wildcards is compared.
fn is_match(pattern: &str, path: &str) -> bool {
    if !is_glob(pattern) {
        return pattern == path;
    }
    let before = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    let after = pattern.rsplit(['*', '?', ']']).next().unwrap_or_default();
    path == pattern || (path.starts_with(before) && path.ends_with(after))
}

/// Compares the command, before its variables are expanded.
pub(super) fn exec(unit: &Unit, loaded: &Loaded, found: &mut Differences) {
    let Some(exec) = &unit.exec else { return };
    let own: Vec<&str> = exec.words.iter().skip(1).map(|word| word.text.as_str()).collect();
    let program = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let first = exec.words.first().map(|word| program(&word.text));
    let same = match loaded.exec_start.as_slice() {
        [old] => {
            old.iter().skip(1).map(String::as_str).eq(own.iter().copied())
                && old.first().map(|word| program(word)) == first
        }
        _ => false,
    };
    if !same {
        let old = loaded.exec_start.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; ");
        found.add(&exec.at, format!("`ExecStart=` is {} in memory", shown_value(&old)), &own.join(" "));
    }
}

/// The words that a start without a daemon-reload would give: all from memory, but the environment files as they are.
pub(super) fn words(snapshot: &Snapshot, loaded: &Loaded) -> Vec<String> {
    let mut variables: BTreeMap<&str, &str> =
        loaded.manager_environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    variables.extend(loaded.environment.iter().filter_map(|entry| entry.split_once('=')));
    let read = snapshot.unit.env_files.iter().map(|file| (file.path.to_string_lossy(), &file.assignments));
    let unread = snapshot.unread_files.iter().map(|file| (file.at.file.to_string().into(), &file.assignments));
    let files: Vec<(Cow<'_, str>, &Vec<Assignment>)> = read.chain(unread).collect();
    for (pattern, _) in &loaded.environment_files {
        let matching = files.iter().filter(|(path, _)| is_match(pattern, path));
        variables.extend(matching.flat_map(|(_, assignments)| *assignments).map(|one| (&*one.name, &*one.value)));
    }
    loaded.exec_start.iter().flatten().map(|word| expand(word, &variables)).collect()
}

/// A word with the values of its variables, not split.
fn expand(word: &str, variables: &BTreeMap<&str, &str>) -> String {
    let value = |name: &str| variables.get(name).copied().unwrap_or_default();
    if let Some(name) = word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
        return value(name).to_owned();
    }
    let mut parts = word.split("${");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or(("", part));
        text.push_str(value(name));
        text.push_str(rest);
    }
    text
}
