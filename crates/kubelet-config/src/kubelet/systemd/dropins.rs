//! Drop-ins: which are read, in which order, and which look as if they were; systemd.unit(5), `src/shared/dropin.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::paths::{Look, look};
use super::{EventKind, Events, NotADropIn, names};
use crate::kubelet::location::Location;
use crate::kubelet::tree::{Kind, Tree};

const MAX_DROP_INS: usize = 2000;
/// How much of a file that is not read goes into an event.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The drop-ins of the unit that has these names (its id first), in the order in which they are read.
pub(super) fn find(
    tree: &dyn Tree,
    directories: &[PathBuf],
    unit_names: &[String],
    events: &mut Events,
) -> Vec<PathBuf> {
    let mut found: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    let mut visited: Vec<PathBuf> = Vec::new();
    for directory in candidates(directories, unit_names) {
        // systemd names a drop-in by its directory's real path.
        let Ok(real) = tree.real_path(&directory) else { continue };
        if visited.contains(&real) {
            continue;
        }
        for name in tree.list(&real).unwrap_or_default() {
            let path = real.join(&name);
            if let Some(reason) = not_a_drop_in(tree, &path, &name) {
                not_read(tree, &path, reason, events);
            } else if let Some(effective) = found.get(&name) {
                tell(tree, &path, hidden(tree, effective), events);
            } else if found.len() < MAX_DROP_INS {
                found.insert(name, path);
            }
        }
        visited.push(real);
    }
    near_misses(tree, directories, unit_names, &visited, events);
    found.into_values().collect()
}

/// The directories in the order in which a file name is looked for.
fn candidates(directories: &[PathBuf], unit_names: &[String]) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    for unit in unit_names {
        let drop_in_names = names::drop_in_names(unit);
        for directory in directories {
            for name in &drop_in_names {
                candidates.push(directory.join(format!("{name}.d")));
            }
        }
    }
    candidates.extend(directories.iter().map(|directory| directory.join("service.d")));
    candidates
}

/// Why a file in a drop-in directory is no drop-in.
fn not_a_drop_in(tree: &dyn Tree, path: &Path, name: &OsStr) -> Option<NotADropIn> {
    let name = name.as_bytes();
    if name.starts_with(b".") {
        return Some(NotADropIn::Hidden);
    }
    if name.ends_with(b".conf") {
        return None;
    }
    match tree.stat(path) {
        Ok(meta) if meta.kind == Kind::Directory => Some(NotADropIn::Directory),
        _ => Some(NotADropIn::Suffix),
    }
}

/// Tells of a file, or of the files in a directory, that is not read.
fn not_read(tree: &dyn Tree, path: &Path, reason: NotADropIn, events: &mut Events) {
    let kind = EventKind::DropInNotRead { reason };
    if !tree.stat(path).is_ok_and(|meta| meta.kind == Kind::Directory) {
        return tell(tree, path, kind, events);
    }
    for name in tree.list(path).unwrap_or_default() {
        let inner = path.join(name);
        if tree.stat(&inner).is_ok_and(|meta| meta.kind == Kind::File) {
            tell(tree, &inner, kind.clone(), events);
        }
    }
}

/// Tells what became of a file, with its text.
fn tell(tree: &dyn Tree, path: &Path, kind: EventKind, events: &mut Events) {
    let bytes = tree.read_bounded(path, 1 << 20).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]);
    events.add(kind, Location::file(path).at_line(1), &text);
}

/// What `effective` does to a drop-in of the same name: it replaces or hides it.
fn hidden(tree: &dyn Tree, effective: &Path) -> EventKind {
    let by = effective.to_owned();
    let what = match look(tree, effective) {
        Look::Null => "link to /dev/null",
        Look::Empty => "empty file",
        Look::Directory => "directory",
        Look::Missing => "dangling link",
        Look::File | Look::Other(_) => return EventKind::DropInShadowed { by },
    };
    EventKind::DropInMasked { by, what }
}

/// Directories that look as if they were the unit's.
fn near_misses(
    tree: &dyn Tree,
    directories: &[PathBuf],
    unit_names: &[String],
    visited: &[PathBuf],
    events: &mut Events,
) {
    // `/etc/systemd/kubelet.service.d` lacks a directory.
    let above: BTreeSet<&Path> = directories.iter().filter_map(|directory| directory.parent()).collect();
    for path in above.iter().flat_map(|above| unit_names.iter().map(move |unit| above.join(format!("{unit}.d")))) {
        if tree.list(&path).is_ok() && !visited.contains(&path) {
            not_read(tree, &path, NotADropIn::Directory, events);
        }
    }
    for directory in directories {
        for entry in tree.list(directory).unwrap_or_default() {
            let Some(name) = entry.to_str() else { continue };
            let Some(reason) = unit_names.iter().find_map(|unit| near_miss(unit, name)) else { continue };
            let path = directory.join(name);
            let real = tree.real_path(&path).unwrap_or_else(|_| path.clone());
            let is_directory = tree.stat(&path).is_ok_and(|meta| meta.kind == Kind::Directory);
            if is_directory && !visited.contains(&real) {
                not_read(tree, &path, reason, events);
            }
        }
    }
}

/// Whether `directory` looks like a drop-in directory of `unit`, and is none.
fn near_miss(unit: &str, directory: &str) -> Option<NotADropIn> {
    let stem = names::stem(unit);
    if directory == format!("{stem}-.service.d") {
        return Some(NotADropIn::Prefix);
    }
    let base = directory.strip_suffix(".d")?;
    let base = base.strip_suffix(".conf").unwrap_or(base);
    let base = base.strip_suffix(".service").unwrap_or(base);
    let base = base.strip_suffix(".service").unwrap_or(base);
    base.eq_ignore_ascii_case(stem).then_some(NotADropIn::Directory)
}
