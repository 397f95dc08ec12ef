//! containerd's configuration: the main file, its imports, the versions of its schema. Checked against containerd's
//! `cmd/containerd/server/config` (1.7 and 2.x).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

use toml::de::DeTable;

use super::{
    super::{location::Location, systemd::glob, tree::Tree},
    Located, Runtime, RuntimeKind,
    toml_file::{self, MAX_ITEMS, TomlFile, get, table},
};

/// The file that containerd reads if no other is named.
pub(super) const DEFAULT_CONFIG: &str = "/etc/containerd/config.toml";

/// How many files of imports are read.
const MAX_FILES: usize = 64;

/// The CRI plugin's names: the URI of schemas 3 and later, that of 2, the name of 1.
const RUNTIME_URI: &str = "io.containerd.cri.v1.runtime";
const GRPC_URI: &str = "io.containerd.grpc.v1.cri";
const SHORT: &str = "cri";
/// Without the image service the CRI service does not start either.
const IMAGES_URI: &str = "io.containerd.cri.v1.images";

/// What one file says.
struct Layer {
    at: Location,
    schema: u32,
    /// The CRI plugin's section, by the name that it is under.
    sections: BTreeMap<&'static str, Section>,
    disabled: Vec<Located<String>>,
    address: Option<Located<String>>,
    imports: Vec<String>,
}

/// The CRI plugin's settings, as far as they matter here.
#[derive(Default, Clone)]
struct Section {
    default_runtime: Option<String>,
    runtimes: BTreeMap<String, Handler>,
    conf_dir: Option<Located<String>>,
}

/// A `runtimes.NAME` table.
#[derive(Default, Clone)]
struct Handler {
    kind: Option<String>,
    systemd_cgroup: Option<Located<bool>>,
}

/// Reads the configuration at `main`. A file that is not there counts as containerd's defaults if `installed`, else as
/// unknown. `version` is containerd's, where it is known: 1.x replaces a plugin's section by an import's, 2.x merges
/// them.
pub(super) fn read(tree: &dyn Tree, main: &Path, version: Option<&str>, installed: bool) -> Runtime {
    let mut problems = Vec::new();
    let layers = load(tree, main, &mut problems);
    let schema = layers.first().map(|layer| layer.schema);
    let mut runtime = Runtime {
        kind: RuntimeKind::Containerd,
        version: version.map(str::to_owned),
        schema,
        systemd_cgroup: None,
        cri_disabled: None,
        cni_conf_dir: None,
        socket: None,
        problems,
    };
    let is_whole = runtime.problems.is_empty();
    if layers.is_empty() && !(installed && is_whole) {
        return runtime;
    }
    let major = match (version.and_then(major), schema) {
        (Some(major), _) => Some(major),
        (None, Some(3..)) => Some(2),
        _ => None,
    };
    let old = settle(&layers, 1);
    let new = settle(&layers, 2);
    // Where the version is not known, only what both would do is certain.
    let (first, second) = match major {
        Some(0..=1) => (&old, &old),
        Some(_) => (&new, &new),
        None => (&old, &new),
    };
    let driver = first.driver(main, is_whole);
    runtime.systemd_cgroup = driver.filter(|driver| {
        let other = second.driver(main, is_whole);
        other.is_some_and(|other| other.value == driver.value)
    });
    runtime.cri_disabled = disabled(&layers, major);
    runtime.cni_conf_dir = first.conf_dir.clone().filter(|_| first.conf_dir == second.conf_dir);
    runtime.socket = layers.into_iter().rev().find_map(|layer| layer.address);
    runtime
}

/// `2` of `2.1.4`.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// Reads the main file and, in the order in which containerd merges them, its imports.
fn load(tree: &dyn Tree, main: &Path, problems: &mut Vec<(Location, String)>) -> Vec<Layer> {
    let mut pending = VecDeque::from([(main.to_owned(), None::<Location>)]);
    let mut seen = BTreeSet::new();
    let mut layers = Vec::new();
    while let Some((path, importer)) = pending.pop_front() {
        if layers.len() == MAX_FILES {
            let what = format!("it imports more than {MAX_FILES} files; the others were not read");
            problems.push((Location::file(main), what));
            break;
        }
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = match toml_file::read(tree, &path) {
            Ok(text) => text,
            Err(error) if error.is_not_found() && importer.is_none() => break,
            Err(error) => {
                let at = importer.unwrap_or_else(|| Location::file(&path));
                problems.push((at, format!("{} {error}", path.display())));
                continue;
            }
        };
        match TomlFile::parse(&path, &text) {
            Ok(file) => {
                let layer = layer(&file);
                let folder = path.parent().unwrap_or(Path::new("/"));
                for import in &layer.imports {
                    let found = imported(tree, &folder.join(import));
                    let at = layer.at.clone();
                    pending.extend(found.into_iter().map(|path| (path, Some(at.clone()))));
                }
                layers.push(layer);
            }
            Err(at) => problems.push((at, "not valid TOML: containerd does not start".to_owned())),
        }
    }
    layers
}

/// The files that an import names: containerd takes it for a pattern if it has an asterisk.
fn imported(tree: &dyn Tree, path: &Path) -> Vec<PathBuf> {
    let pattern = path.to_string_lossy();
    if pattern.contains('*') { glob(tree, &pattern) } else { vec![path.to_owned()] }
}

fn layer(file: &TomlFile<'_>) -> Layer {
    let root = file.table();
    let schema = get(root, &["version"])
        .and_then(|version| version.get_ref().as_integer())
        .and_then(|version| u32::from_str_radix(version.as_str(), version.radix()).ok())
        .filter(|version| *version > 0)
        .unwrap_or(1);
    let sections = [SHORT, GRPC_URI, RUNTIME_URI]
        .into_iter()
        .filter_map(|name| Some((name, section(file, table(root, &["plugins", name])?))))
        .collect();
    let new_address = ["plugins", "io.containerd.server.v1.grpc", "address"];
    Layer {
        at: Location::file(file.path()),
        schema,
        sections,
        disabled: file.strings(root, &["disabled_plugins"]),
        address: file.string(root, &new_address).or_else(|| file.string(root, &["grpc", "address"])),
        imports: file.strings(root, &["imports"]).into_iter().map(|import| import.value).collect(),
    }
}

fn section(file: &TomlFile<'_>, cri: &DeTable<'_>) -> Section {
    let handler = |table: &DeTable<'_>| Handler {
        kind: get(table, &["runtime_type"]).and_then(|kind| kind.get_ref().as_str()).map(str::to_owned),
        systemd_cgroup: file.bool(table, &["options", "SystemdCgroup"]),
    };
    let mut runtimes: BTreeMap<String, Handler> = table(cri, &["containerd", "runtimes"])
        .into_iter()
        .flatten()
        .take(MAX_ITEMS)
        .filter_map(|(name, table)| {
            let table = table.get_ref().as_table()?;
            Some((name.get_ref().clone().into_owned(), handler(table)))
        })
        .collect();
    let mut default_runtime = get(cri, &["containerd", "default_runtime_name"])
        .and_then(|name| name.get_ref().as_str())
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    // Before 1.3 a table of its own; 1.x still takes it, under the name `default`.
    let own = table(cri, &["containerd", "default_runtime"]).map(handler);
    if let Some(own) = own.filter(|own| own.kind.as_ref().is_some_and(|kind| !kind.is_empty())) {
        runtimes.insert("default".to_owned(), own);
        default_runtime = Some("default".to_owned());
    }
    Section { default_runtime, runtimes, conf_dir: file.string(cri, &["cni", "conf_dir"]) }
}

/// The names that the CRI plugin's section has in a file of this schema, for this major version of containerd.
fn names(schema: u32, major: u32) -> &'static [&'static str] {
    match (schema, major) {
        (..=1, 1) => &[SHORT],
        (..=1, _) => &[SHORT, GRPC_URI],
        (2, 1) => &[GRPC_URI],
        (2, _) => &[GRPC_URI, RUNTIME_URI],
        _ => &[RUNTIME_URI],
    }
}

/// The section that containerd of this major version gets from all files.
fn settle(layers: &[Layer], major: u32) -> Section {
    let mut settled = Section::default();
    for layer in layers {
        let found = names(layer.schema, major).iter().filter_map(|name| layer.sections.get(name));
        for section in found {
            if major == 1 {
                settled = section.clone();
            } else {
                settled.merge(section);
            }
        }
    }
    settled
}

impl Section {
    fn merge(&mut self, from: &Self) {
        for (name, handler) in &from.runtimes {
            let to = self.runtimes.entry(name.clone()).or_default();
            to.kind = handler.kind.clone().or_else(|| to.kind.take());
            let driver = handler.systemd_cgroup.clone();
            to.systemd_cgroup = driver.or_else(|| to.systemd_cgroup.take());
        }
        let name = from.default_runtime.clone();
        self.default_runtime = name.or_else(|| self.default_runtime.take());
        let folder = from.conf_dir.clone();
        self.conf_dir = folder.or_else(|| self.conf_dir.take());
    }

    /// Whether the default runtime uses systemd's cgroups. Without `SystemdCgroup` runc's shims do not; other runtimes
    /// keep their settings elsewhere. A file that could not be read might have said it.
    fn driver(&self, main: &Path, is_whole: bool) -> Option<Located<bool>> {
        let name = self.default_runtime.as_deref().unwrap_or("runc");
        let handler = self.runtimes.get(name);
        if let Some(said) = handler.and_then(|handler| handler.systemd_cgroup.clone()) {
            return Some(said);
        }
        let kind = handler.and_then(|handler| handler.kind.as_deref());
        let is_runc = kind.map_or(name == "runc", |kind| kind.starts_with("io.containerd.runc."));
        (is_runc && is_whole).then(|| Located { value: false, at: Location::file(main) })
    }
}

/// Where `disabled_plugins` names the CRI plugin; the lists of all files count together.
fn disabled(layers: &[Layer], major: Option<u32>) -> Option<Location> {
    layers.iter().find_map(|layer| {
        let hit = layer.disabled.iter().find(|id| match id.value.as_str() {
            // In a file of schema 2 or later the short name keeps containerd from starting at all.
            SHORT | RUNTIME_URI | IMAGES_URI => true,
            GRPC_URI => layer.schema > 1 || major.is_some_and(|major| major > 1),
            _ => false,
        });
        hit.map(|id| id.at.clone())
    })
}

#[cfg(test)]
mod tests;
