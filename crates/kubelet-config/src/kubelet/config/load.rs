//! Reads `--config` and the drop-ins of `--config-dir`, as `cmd/kubelet/app/server.go` does (read from 1.36.3, and tried
//! with that kubelet): the file strictly and then leniently, drop-ins strictly alone.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::document::{self, Node, Value};
use super::{ConfigFile, ConfigFileState, Configuration, check, merge};
use crate::kubelet::flags::{CommandLine, FlagUse};
use crate::kubelet::location::Location;
use crate::kubelet::text::{numbered, to_u32};
use crate::kubelet::tree::{Kind, Tree, Unreadable};
use crate::kubelet::version::Version;

/// The most entries of a `--config-dir` that are looked at.
const MAX_DROP_INS: usize = 2000;

/// Reads the configuration that the flags name, for a kubelet that is started in the directory `/`.
pub fn load_config(tree: &dyn Tree, flags: &CommandLine, version: Option<&Version>) -> Configuration {
    load_config_from(tree, flags, version, Path::new("/"))
}

/// The same for one that is started in the directory `working` (`WorkingDirectory=`).
pub(in crate::kubelet) fn load_config_from(
    tree: &dyn Tree,
    flags: &CommandLine,
    version: Option<&Version>,
    working: &Path,
) -> Configuration {
    let mut config = Configuration::default();
    let mut merged = None;
    if let Some((used, path)) = path_of(flags, "config", working) {
        config.given = true;
        let mut file = read(tree, &path, used, false);
        if let Some(document) = &file.document {
            let wrong = check::check(document, version, false, &mut config.unknown);
            merged = Some(merge::known(document.clone(), "", version, false));
            if let (ConfigFileState::Read, Some(wrong)) = (&file.state, wrong.into_iter().next()) {
                file.state = wrong;
            }
        }
        config.files.push(file);
    }
    if let Some((used, directory)) = path_of(flags, "config-dir", working) {
        for path in walk(tree, &directory, used, &mut config.files) {
            let file = read(tree, &path, used, true);
            if let Some(document) = file.document.clone() {
                check::check(&document, version, false, &mut config.unknown);
                // The kubelet exits over a duplicate here, which is said of the file.
                config.unknown.retain(|field| !field.duplicate || field.at.file != file.at.file);
                merged = Some(merge::patch(merged, merge::known(document, "", version, true)));
            }
            config.files.push(file);
        }
        if let Some(merged) = &merged {
            judge_merge(&mut config.files, merged, version);
        }
    }
    config.merged = merged;
    config
}

/// A flag's path as the kubelet takes it: from the directory that the unit starts it in.
fn path_of<'a>(flags: &'a CommandLine, name: &str, directory: &Path) -> Option<(&'a FlagUse, PathBuf)> {
    let used = flags.last(name).filter(|used| !used.value.is_empty())?;
    Some((used, directory.join(&used.value)))
}

/// Drop-ins are decoded after they are merged, so that a later one may correct an earlier one.
fn judge_merge(files: &mut [ConfigFile], merged: &Node, version: Option<&Version>) {
    for wrong in check::check(merged, version, true, &mut Vec::new()) {
        let ConfigFileState::Bad { at, .. } = &wrong else { continue };
        let file = files.iter_mut().find(|file| file.drop_in && file.at.file == at.file);
        if let Some(file) = file.filter(|file| file.state == ConfigFileState::Read) {
            file.state = wrong;
        }
    }
}

/// The files of a `--config-dir` that are read: `*.conf`, in lexical order, directories in their place. The others go to
/// `files`. A link in the directory's own place is not followed, and no directory that a link leads to is entered.
fn walk(tree: &dyn Tree, directory: &Path, used: &FlagUse, files: &mut Vec<ConfigFile>) -> Vec<PathBuf> {
    let other = |path: &Path, state| ConfigFile {
        at: Location::file(path),
        declared: used.at.clone(),
        drop_in: true,
        state,
        document: None,
        comment_lines: BTreeSet::new(),
        second_document: None,
    };
    let unread = |path: &Path, error: &Unreadable| other(path, unreadable(&Location::file(path), error));
    let root = if used.value.ends_with('/') { tree.stat(directory) } else { tree.lstat(directory) };
    let mut found = Vec::new();
    let mut rest = match root {
        Ok(meta) => vec![(directory.to_owned(), meta.kind)],
        Err(error) => {
            files.push(unread(directory, &error));
            return found;
        }
    };
    for _ in 0..MAX_DROP_INS {
        let Some((path, kind)) = rest.pop() else { return found };
        if kind == Kind::Directory {
            match tree.list(&path) {
                Ok(names) => rest.extend(names.into_iter().rev().map(|name| {
                    let below = path.join(name);
                    let kind = tree.lstat(&below).map_or(Kind::Other, |meta| meta.kind);
                    (below, kind)
                })),
                Err(error) => files.push(unread(&path, &error)),
            }
        } else if path.as_os_str().as_bytes().ends_with(b".conf") {
            found.push(path);
        } else {
            files.push(other(&path, ConfigFileState::Ignored));
        }
    }
    if !rest.is_empty() {
        let reason = format!("it holds more than the {MAX_DROP_INS} files that are read");
        files.push(other(directory, bad(Location::file(directory), reason)));
    }
    found
}

fn unreadable(at: &Location, error: &Unreadable) -> ConfigFileState {
    if error.is_not_found() { ConfigFileState::Missing } else { bad(at.clone(), error.sentence()) }
}

fn bad(at: Location, reason: impl Into<String>) -> ConfigFileState {
    ConfigFileState::Bad { at, reason: reason.into(), right: None }
}

fn read(tree: &dyn Tree, path: &Path, used: &FlagUse, drop_in: bool) -> ConfigFile {
    let at = Location::file(path);
    let mut comment_lines = BTreeSet::new();
    let mut second_document = None;
    let (state, document) = match tree.read(path) {
        Err(error) => (unreadable(&at, &error), None),
        Ok(bytes) => {
            let bytes = from_utf16(&bytes).unwrap_or(bytes);
            let lines = (1..).zip(bytes.split(|byte| *byte == b'\n'));
            comment_lines.extend(lines.filter(|(_, line)| line.contains(&b'#')).map(|(number, _)| number));
            second_document = second(&bytes).map(|line| at.at(line, 1, 3));
            parse(&at, &bytes, drop_in)
        }
    };
    ConfigFile { at, declared: used.at.clone(), drop_in, state, document, comment_lines, second_document }
}

/// A file in UTF-16 that a byte order mark announces, in UTF-8: the kubelet reads it as well.
fn from_utf16(bytes: &[u8]) -> Option<Vec<u8>> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xFF, 0xFE, ..] => u16::from_le_bytes,
        [0xFE, 0xFF, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    String::from_utf16(&units).ok().map(String::into_bytes)
}

/// The line on which a second document begins, if it holds anything.
fn second(bytes: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(bytes);
    let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with(['#', '%']);
    let is_start = |line: &str| line.trim_end() == "---" || line.starts_with("--- ");
    let mut lines = numbered(&text).filter(|(_, line)| is_content(line)).skip_while(|(_, line)| is_start(line));
    let (line, _) = lines.by_ref().find(|(_, line)| is_start(line))?;
    lines.any(|(_, line)| !is_start(line) && line.trim_end() != "...").then_some(line)
}

/// A document, and whether the kubelet exits over it.
fn parse(at: &Location, bytes: &[u8], drop_in: bool) -> (ConfigFileState, Option<Node>) {
    let text = match std::str::from_utf8(bytes) {
        Ok("") => return (bad(at.clone(), "it is empty"), None),
        Ok(text) => text,
        Err(_) => return (bad(at.clone(), "it is not UTF-8"), None),
    };
    let document = match document::parse(at, text) {
        Ok(document) => document,
        Err(error) => return (bad(error.at, error.reason), None),
    };
    // What begins with a brace is read as JSON, which is stricter than YAML's flow style.
    let json_error =
        text.trim_start().starts_with('{').then(|| serde_json::from_str::<serde::de::IgnoredAny>(text).err());
    let wrong = match json_error.flatten() {
        Some(error) => {
            let reason = "it begins with a brace, so the kubelet reads it as JSON, but it is not JSON";
            Some((at.at(to_u32(error.line()), to_u32(error.column()), 0), reason.to_owned()))
        }
        None => wrong_kind(at, &document).or_else(|| drop_in.then(|| first_duplicate(&document)).flatten()),
    };
    (wrong.map_or(ConfigFileState::Read, |(at, reason)| bad(at, reason)), Some(document))
}

/// What makes a document a configuration of the kubelet's.
pub(crate) const KIND: [(&str, &str); 2] =
    [("kind", "KubeletConfiguration"), ("apiVersion", "kubelet.config.k8s.io/v1beta1")];

/// Why a document is no `KubeletConfiguration`, and where.
pub(super) fn wrong_kind(at: &Location, document: &Node) -> Option<(Location, String)> {
    if !matches!(document.value, Value::Map(_)) {
        return Some((at.clone(), format!("it holds {}, not a KubeletConfiguration", document.kind())));
    }
    for (key, wanted) in KIND {
        // Go's own decoder reads these two, and takes any case.
        let entry = document.entries().iter().rev().find(|entry| entry.key.eq_ignore_ascii_case(key));
        match entry.map(|entry| (&entry.node.value, &entry.node.at)) {
            Some((Value::String(text), _)) if text == wanted => {}
            Some((Value::Null, _)) | None => return Some((at.clone(), format!("it has no {key}"))),
            Some((_, place)) => return Some((place.clone(), format!("its {key} is not {wanted}"))),
        }
    }
    None
}

/// The first key that is twice in its map: no drop-in may have one.
fn first_duplicate(node: &Node) -> Option<(Location, String)> {
    let mut seen = std::collections::HashSet::new();
    for entry in node.entries() {
        if !seen.insert(entry.key.as_str()) {
            let reason = "it has a key twice in one map, which the kubelet refuses in a drop-in";
            return Some((entry.at.clone(), reason.to_owned()));
        }
        if let Some(found) = first_duplicate(&entry.node) {
            return Some(found);
        }
    }
    node.items().iter().find_map(first_duplicate)
}
