//! The distribution's configuration files: `config.yaml`, and those of `config.yaml.d` by name.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Options, Values, is_known, long_name, meant, replace};
use crate::kubelet::config::document::{self, Node, Value};
use crate::kubelet::layers::rancher::Program;
use crate::kubelet::layers::{KubeletCommand, Launcher, NewArgument, Slip, UnknownOption};
use crate::kubelet::location::Location;
use crate::kubelet::systemd::{Arg, Unit};
use crate::kubelet::tree::{Kind, Tree};

const MAX_FILES: usize = 256;

/// The most unknown keys that are kept, and the most items of each.
const MAX_UNKNOWN: usize = 100;

/// The most maps among the items of a list that are kept.
const MAX_MAPS: usize = 100;

const KUBELET_ARG: &str = "kubelet-arg";

/// The configuration files, in the order in which they are read. The variable goes before the option.
pub(super) fn find(
    tree: &dyn Tree,
    unit: &Unit,
    program: Program,
    given: &BTreeMap<String, Values>,
    kubelet: &mut KubeletCommand,
) -> Vec<PathBuf> {
    let named = program.variable(unit, "config-file").or_else(|| given.get("config")?.items.first().cloned());
    let main = match &named {
        Some(word) if word.text.starts_with("http://") || word.text.starts_with("https://") => {
            let reason = format!("the configuration is at {}, which is not asked", word.text);
            kubelet.unreadable.push((word.at().clone(), reason, false));
            return Vec::new();
        }
        Some(word) if word.text.is_empty() => return Vec::new(),
        Some(word) => word.text.clone(),
        None => format!("/etc/rancher/{}/config.yaml", program.name()),
    };
    let directory = PathBuf::from(format!("{main}.d"));
    let main = PathBuf::from(main);
    let is_yaml = |suffix: &OsStr| suffix.eq_ignore_ascii_case("yaml") || suffix.eq_ignore_ascii_case("yml");
    let names = tree.list(&directory).unwrap_or_default().into_iter();
    let drop_ins = names
        .map(|name| directory.join(name))
        .filter(|path| path.extension().is_some_and(is_yaml))
        .filter(|path| tree.lstat(path).is_ok_and(|meta| meta.kind != Kind::Directory))
        .take(MAX_FILES);
    kubelet.new_argument = Some(new_key(Location::file(&main)));
    let has_main = tree.lstat(&main).is_ok();
    let others = ["config.yml", "conf.yaml", "conf.yml"].map(|name| main.with_file_name(name));
    let misnamed = others.iter().find(|path| named.is_none() && !has_main && tree.exists(path));
    kubelet.slips.extend(misnamed.map(|path| (Location::file(path), Slip::FileName)));
    has_main.then_some(main).into_iter().chain(drop_ins).collect()
}

/// Reads a configuration file over what the earlier ones gave.
pub(super) fn read(
    tree: &dyn Tree,
    path: &Path,
    program: Program,
    options: &mut Options,
    kubelet: &mut KubeletCommand,
) {
    let place = Location::file(path);
    let (document, text) = match open(tree, path, &place) {
        Ok(found) => found,
        Err(unreadable) => {
            kubelet.unreadable.push(unreadable);
            kubelet.new_argument = None;
            return;
        }
    };
    new_argument(&document, &text, &place, options, kubelet);
    kubelet.files.push(place);
    let Value::Map(mut entries) = document.value else { return };
    // The parser makes `--kubelet-arg=v=2` of `kubelet-arg=v: 2`, which adds to what the key kubelet-arg gives (k3s-io/k3s#5488).
    entries.sort_by_key(|entry| entry.key.contains('='));
    for entry in entries {
        let is_null = entry.node.value == Value::Null;
        let bare = entry.key.strip_suffix('+').unwrap_or(&entry.key);
        let mut values = Values { at: entry.at, items: items(&entry.node), maps: maps(&entry.node) };
        let argument = bare.split_once('=').filter(|(key, _)| is_known(program, key));
        if let Some((_, name)) = argument {
            values.items.iter_mut().for_each(|item| item.text = format!("{name}={}", item.text));
        }
        let key = argument.map_or(bare, |(key, _)| key);
        let appends = argument.is_some() || bare.len() < entry.key.len();
        let option = long_name(key).to_owned();
        // An option's letter: the table has only their long names.
        let has_option = option.len() == 1 || is_known(program, &option);
        if !has_option && kubelet.unknown_options.len() < MAX_UNKNOWN {
            let line = usize::try_from(values.at.line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
            let has_comment = line.is_some_and(|line| line.contains('#'));
            kubelet.unknown_options.push(unknown(option, values, has_comment, program));
            continue;
        }
        match options.0.get_mut(&option) {
            Some(_) if appends && is_null => {}
            Some(existing) if appends => {
                existing.items.extend(values.items);
                existing.maps.extend(values.maps);
                existing.maps.truncate(MAX_MAPS);
            }
            _ => replace(options, option, values, kubelet),
        }
    }
}

/// A file's options and its text; else where it is wrong, why, and whether the program exits because of it.
fn open(tree: &dyn Tree, path: &Path, place: &Location) -> Result<(Node, String), (Location, String, bool)> {
    let text = tree.read_text(path).map_err(|error| (place.clone(), error.sentence(), false))?;
    let document = document::parse(place, &text).map_err(|error| (error.at, error.reason, true))?;
    match document.value {
        Value::Map(_) | Value::Null => Ok((document, text)),
        _ => Err((document.at, "it is no map of options, as `key: value`".to_owned(), true)),
    }
}

/// `k3s agent` hands keys that it does not know on to the parser of its command line, which refuses them; the others
/// pass over them (`stripInvalidFlags` in k3s' pkg/configfilearg, `ValidFlags` in k3s and RKE2).
fn unknown(key: String, values: Values, has_comment: bool, program: Program) -> UnknownOption {
    let items = values.items.into_iter().take(MAX_UNKNOWN);
    UnknownOption {
        meant: meant(program, &key),
        is_given: false,
        has_comment,
        key,
        at: values.at,
        items: items.map(|item| (item.text, item.declared)).collect(),
        is_fatal: program.launcher == Launcher::K3s && !program.is_server,
    }
}

/// A file that gets the key.
fn new_key(file: Location) -> NewArgument {
    NewArgument { at: file, before: "kubelet-arg:\n- ".to_owned(), after: String::new() }
}

/// Notes where the files take another item of `kubelet-arg`: the last list counts.
fn new_argument(document: &Node, text: &str, file: &Location, options: &Options, kubelet: &mut KubeletCommand) {
    let entry = document.entries().iter().rev().find(|entry| entry.key.trim_end_matches('+') == KUBELET_ARG);
    let Some(entry) = entry else {
        let is_block = !text.trim_start().starts_with('{');
        if !options.0.contains_key(KUBELET_ARG) {
            kubelet.new_argument = is_block.then(|| new_key(file.clone()));
        }
        return;
    };
    kubelet.new_argument = entry.node.items().first().and_then(|item| {
        let line = text.lines().nth(usize::try_from(item.at.line).ok()?.checked_sub(1)?)?;
        let prefix: String = line.chars().take(usize::try_from(item.at.column).ok()?.checked_sub(1)?).collect();
        let after = if prefix.trim() == "-" { format!("\n{prefix}") } else { ", ".to_owned() };
        let at = item.at.at(item.at.line, item.at.column, 0);
        Some(NewArgument { at, before: String::new(), after })
    });
}

fn maps(node: &Node) -> Vec<(Location, String)> {
    let maps = node.items().iter().filter_map(|item| item.entries().first());
    let meant = maps.map(|pair| (pair.at.clone(), format!("{}={}", pair.key, pair.node.text().unwrap_or_default())));
    meant.take(MAX_MAPS).collect()
}

/// The values of a key: of a list each, of anything else one. A map, which no option takes, gives none.
fn items(node: &Node) -> Vec<Arg> {
    let word = |node: &Node| {
        let text = match node.value {
            Value::Null => String::new(),
            _ => node.text()?,
        };
        Some(Arg::new(text, node.at.clone()))
    };
    match &node.value {
        Value::List(items) => items.iter().filter_map(word).collect(),
        _ => word(node).into_iter().collect(),
    }
}
