//! The distribution's configuration files: `config.yaml`, and those of `config.yaml.d` by name.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    super::{
        super::{
            super::{
                config::document::{self, Node, Value},
                location::Location,
                systemd::{Arg, Unit},
                tree::{Kind, Tree},
            },
            KubeletCommand,
        },
        Flavor,
    },
    Options, Values,
    command_line::long_name,
    of_variable, replace,
};

/// The most files of `config.yaml.d` that are read.
const MAX_FILES: usize = 256;

/// The configuration files, in the order in which they are read. The variable goes before the option.
pub(super) fn find(
    tree: &dyn Tree,
    unit: &Unit,
    flavor: &Flavor,
    given: &[(String, Values)],
    kubelet: &mut KubeletCommand,
) -> Vec<PathBuf> {
    let named = of_variable(unit, &format!("{}CONFIG_FILE", flavor.variables))
        .or_else(|| given.iter().find(|(option, _)| option == "config")?.1.items.first().cloned());
    let main = match &named {
        Some(word) if word.text.starts_with("http://") || word.text.starts_with("https://") => {
            kubelet
                .unreadable
                .push((word.at().clone(), format!("the configuration is at {}, which is not asked", word.text)));
            return Vec::new();
        }
        Some(word) if word.text.is_empty() => return Vec::new(),
        Some(word) => PathBuf::from(&word.text),
        None => PathBuf::from(format!("/etc/rancher/{}/config.yaml", flavor.name)),
    };
    let mut folder = main.clone().into_os_string();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    let drop_ins = tree.list(&folder).unwrap_or_default();
    let drop_ins = drop_ins
        .into_iter()
        .filter(|name| {
            let name = name.as_bytes().to_ascii_lowercase();
            name.ends_with(b".yaml") || name.ends_with(b".yml")
        })
        .map(|name| folder.join(name))
        .filter(|path| tree.lstat(path).is_ok_and(|meta| meta.kind != Kind::Folder))
        .take(MAX_FILES);
    let has_main = tree.lstat(&main).is_ok();
    has_main.then(|| main.clone()).into_iter().chain(drop_ins).collect()
}

/// Reads a configuration file over what the earlier ones gave.
pub(super) fn read(tree: &dyn Tree, path: &Path, options: &mut Options, kubelet: &mut KubeletCommand) {
    let place = Location::file(path);
    let document = match tree.read_text(path) {
        Ok(text) => document::parse(&place, &text),
        Err(error) => {
            kubelet.unreadable.push((place, error.to_string()));
            return;
        }
    };
    let document = match document {
        Ok(document) => document,
        Err(error) => {
            kubelet.unreadable.push((error.at, error.reason));
            return;
        }
    };
    kubelet.files.push(place);
    let entries = match document.value {
        Value::Map(entries) => entries,
        Value::Null => return,
        _ => {
            kubelet.unreadable.push((document.at, "is no map of options, as `key: value`".to_owned()));
            return;
        }
    };
    for entry in entries {
        let (key, appends) = match entry.key.strip_suffix('+') {
            Some(key) => (key, true),
            None => (entry.key.as_str(), false),
        };
        let option = long_name(key).to_owned();
        let is_null = entry.node.value == Value::Null;
        let values = Values { at: entry.at, items: items(&entry.node) };
        match options.0.get_mut(&option) {
            Some(_) if appends && is_null => {}
            Some(existing) if appends => existing.items.extend(values.items),
            _ => replace(options, option, values, false, kubelet),
        }
    }
}

/// The values of a key: of a list each, of anything else one. A map, which no option takes, gives none.
fn items(node: &Node) -> Vec<Arg> {
    let word = |node: &Node| {
        let text = match node.value {
            Value::Null => String::new(),
            _ => node.text()?,
        };
        Some(Arg { text, declared: node.at.clone(), origins: Vec::new() })
    };
    match &node.value {
        Value::List(items) => items.iter().filter_map(word).collect(),
        _ => word(node).into_iter().collect(),
    }
}
