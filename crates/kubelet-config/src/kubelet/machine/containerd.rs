//! containerd's configuration: the main file, its imports, the versions of its schema. Checked against containerd's
//! `cmd/containerd/server/config` (1.7 and 2.x).

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::Runtime;
use super::toml_file::{self, TomlFile, table};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::systemd::glob;
use crate::kubelet::text::to_u32;
use crate::kubelet::tree::Tree;

/// The file that containerd reads if no other is named.
pub(super) const DEFAULT_CONFIG: &str = "/etc/containerd/config.toml";

/// How many files, and how many bytes of all of them, are read before no more are.
const MAX_FILES: usize = 64;
const MAX_BYTES: usize = 1 << 20;

/// The CRI plugin's names: the URI of schemas 3 and later, that of 2, the name of 1.
const RUNTIME_URI: &str = "io.containerd.cri.v1.runtime";
const GRPC_URI: &str = "io.containerd.grpc.v1.cri";
const SHORT: &str = "cri";
/// Without the image service the CRI service does not start either.
const IMAGES_URI: &str = "io.containerd.cri.v1.images";

/// Reads the configuration at `main`. A file that is not there counts as containerd's defaults if `installed`, else as
/// unknown. `version` is containerd's, where it is known.
pub(super) fn read(tree: &dyn Tree, main: &Path, version: Option<&str>, installed: bool) -> Runtime {
    let mut runtime = Runtime { version: version.map(str::to_owned), is_whole: true, ..Runtime::default() };
    let texts = load(tree, main, &mut runtime);
    let files: Vec<TomlFile<'_>> =
        texts.iter().filter_map(|(path, text)| TomlFile::parse(path, text, true).ok()).collect();
    runtime.schema = files.first().map(schema);
    let is_whole = runtime.is_whole;
    if files.is_empty() && !(installed && is_whole) {
        return runtime;
    }
    let release = version.map(release).filter(|release| release[0] > 0);
    let major = release.map(|[major, ..]| major).or_else(|| runtime.schema.filter(|schema| *schema > 2).map(|_| 2));
    // Where the version is not known, only what both would do is certain.
    let [old, new] = [1, 2].map(|guess| sections(&files, major.unwrap_or(guess), RUNTIME_URI));
    let driver = |sections: &[Section<'_>]| driver(sections, main, is_whole);
    runtime.systemd_cgroup =
        driver(&old).filter(|of_old| driver(&new).is_some_and(|of_new| of_new.value == of_old.value));
    if runtime.systemd_cgroup.as_ref().is_some_and(|driver| driver.at.line == 0) {
        runtime.idle_driver = files.iter().find_map(|file| idle_driver(file, &old, major));
    }
    let directory = |sections: &[Section<'_>]| string(sections, &["cni", "conf_dir"]);
    runtime.cni_conf_dir = directory(&old).filter(|of_old| directory(&new).as_ref() == Some(of_old));
    let too_new = release.zip(files.last()).and_then(|(release, file)| too_new(file, release));
    let found = runtime.cri_disabled.or(too_new).or_else(|| files.iter().find_map(|file| disabled(file, major)));
    let found = found.or_else(|| files.iter().find_map(|file| short_name(file, release)));
    // Containerd 2 knows no such key, and so do those before 1.3.
    runtime.cri_disabled = found.or_else(|| old_switch(&old).filter(|_| release.is_some_and(is_strict)));
    if runtime.cri_disabled.is_none() && is_whole {
        let [old_images, new_images] = [1, 2].map(|guess| sections(&files, major.unwrap_or(guess), IMAGES_URI));
        let registries = two_registries(&old_images).filter(|_| two_registries(&new_images).is_some());
        let unknown = unknown_default(&old).filter(|_| unknown_default(&new).is_some());
        runtime.cri_disabled = registries.or(unknown);
    }
    runtime
}

/// The plugin's `systemd_cgroup`, which only the runtime of containerd 1.0 takes.
fn old_switch(sections: &[Section<'_>]) -> Option<Located<&'static str>> {
    let default = default_runtime(sections);
    let kind = string(sections, &["containerd", "default_runtime", "runtime_type"]);
    let kind = kind.or_else(|| string(sections, &["containerd", "runtimes", &default, "runtime_type"]));
    let said = sections.iter().find_map(|(file, cri)| file.bool(cri, &["systemd_cgroup"]))?;
    let is_taken = !said.value || kind.is_some_and(|kind| kind.value == "io.containerd.runtime.v1.linux");
    (!is_taken).then_some(Located { value: "systemd_cgroup", at: said.at })
}

/// A `config_path` next to the older `mirrors` or `tls`, which the plugin takes without it (`ValidateRegistryConfig`).
fn two_registries(sections: &[Section<'_>]) -> Option<Located<&'static str>> {
    const PATH: [&str; 2] = ["registry", "config_path"];
    // One that is empty counts, too.
    let (file, cri) = sections.iter().find(|(_, cri)| toml_file::get(cri, &PATH).is_some())?;
    let path = file.string(cri, &PATH)?;
    let any = |key, is_old: fn(&DeTable<'_>) -> bool| {
        sections.iter().any(|(_, cri)| table(cri, &["registry", key]).is_some_and(is_old))
    };
    let has_tls = |configs: &DeTable<'_>| configs.values().any(|one| one.get_ref().get("tls").is_some());
    let is_old = any("mirrors", |mirrors| !mirrors.is_empty()) || any("configs", has_tls);
    is_old.then_some(Located { value: "config_path", at: path.at })
}

/// A default runtime of which no section says anything (`ValidatePluginConfig`).
fn unknown_default(sections: &[Section<'_>]) -> Option<Located<&'static str>> {
    let name = string(sections, &["containerd", "default_runtime_name"]).filter(|name| name.value != "runc")?;
    let paths = [&["containerd", "default_runtime"][..], &["containerd", "runtimes", &name.value]];
    let is_known = sections.iter().any(|(_, cri)| paths.iter().any(|path| table(cri, path).is_some()));
    (!is_known).then_some(Located { value: "default_runtime_name", at: name.at })
}

/// `[2, 1, 4]` of `2.1.4`.
pub(crate) fn release(version: &str) -> [u32; 3] {
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    [(); 3].map(|()| numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// The line with a byte order mark, or the first byte that is not UTF-8, which has become U+FFFD in the text.
fn line_not_of_utf8(tree: &dyn Tree, path: &Path, text: &str) -> Option<u32> {
    if text.starts_with('\u{FEFF}') {
        return Some(1);
    }
    let bytes = tree.read(path).ok().filter(|_| text.contains('\u{FFFD}'))?;
    let end = std::str::from_utf8(&bytes).err()?.valid_up_to();
    Some(to_u32(bytes[..end].split(|byte| *byte == b'\n').count()))
}

/// Reads the main file and, in the order in which containerd merges them, its imports.
fn load(tree: &dyn Tree, main: &Path, runtime: &mut Runtime) -> Vec<(PathBuf, String)> {
    let mut pending = VecDeque::from([main.to_owned()]);
    let mut seen = BTreeSet::new();
    let mut texts: Vec<(PathBuf, String)> = Vec::new();
    // The parser of containerd 2 is as strict as this one, that of 1.x is not.
    let is_new = runtime.version.as_deref().is_some_and(|version| release(version) >= [2, 0, 0]);
    while let Some(path) = pending.pop_front() {
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        if texts.len() == MAX_FILES || bytes > MAX_BYTES {
            runtime.is_whole = false;
            break;
        }
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = match tree.read_text(&path) {
            Ok(text) => text,
            Err(error) if error.is_not_found() && path == main => break,
            Err(_) => {
                runtime.is_whole = false;
                continue;
            }
        };
        match TomlFile::parse(&path, &text, is_new) {
            Ok(file) => {
                if let Some(line) = line_not_of_utf8(tree, &path, &text).filter(|_| is_new) {
                    let at = Location::file(&path).at_line(line);
                    runtime.cri_disabled = Some(Located { value: "UTF-8", at });
                    runtime.is_whole = false;
                    continue;
                }
                let directory = path.parent().unwrap_or(Path::new("/"));
                for import in file.strings(file.table(), &["imports"]) {
                    pending.extend(imported(tree, &directory.join(import.value)));
                }
                texts.push((path, text));
            }
            Err(at) => {
                runtime.is_whole = false;
                runtime.cri_disabled = at.map(|at| Located { value: "TOML", at }).or(runtime.cri_disabled.take());
            }
        }
    }
    texts
}

/// The files that an import names: containerd takes it for a pattern if it has an asterisk.
fn imported(tree: &dyn Tree, path: &Path) -> Vec<PathBuf> {
    let pattern = path.to_string_lossy();
    if pattern.contains('*') { glob(tree, &pattern) } else { vec![path.to_owned()] }
}

fn schema(file: &TomlFile<'_>) -> u32 {
    toml_file::get(file.table(), &["version"])
        .and_then(|version| version.get_ref().as_integer())
        .and_then(|version| u32::from_str_radix(version.as_str(), version.radix()).ok())
        .filter(|version| *version > 0)
        .unwrap_or(1)
}

type Section<'a> = (&'a TomlFile<'a>, &'a DeTable<'a>);

/// The sections of the plugin `uri` that count for containerd of this major version, the strongest first. 1.x has one
/// plugin for both, and replaces its section by an import's; 2.x merges them.
fn sections<'a>(files: &'a [TomlFile<'a>], major: u32, uri: &'static str) -> Vec<Section<'a>> {
    let mut sections = Vec::new();
    for file in files.iter().rev() {
        let names: &[&str] = match (schema(file), major) {
            (..=1, 1) => &[SHORT],
            (..=1, _) => &[GRPC_URI, SHORT],
            (2, 1) => &[GRPC_URI],
            (2, _) => &[uri, GRPC_URI],
            _ => &[uri],
        };
        let found = names.iter().filter_map(|name| Some((file, table(file.table(), &["plugins", name])?)));
        sections.extend(found);
    }
    if major == 1 {
        sections.truncate(1);
    }
    sections
}

fn string(sections: &[Section<'_>], path: &[&str]) -> Option<Located<String>> {
    sections.iter().find_map(|(file, cri)| file.string(cri, path))
}

fn default_runtime(sections: &[Section<'_>]) -> String {
    string(sections, &["containerd", "default_runtime_name"]).map_or_else(|| "runc".to_owned(), |name| name.value)
}

/// Whether the default runtime uses systemd's cgroups. Without `SystemdCgroup` runc's shims do not; other runtimes
/// keep their settings elsewhere. A file that could not be read might have said it.
fn driver(sections: &[Section<'_>], main: &Path, is_whole: bool) -> Option<Located<bool>> {
    // Before 1.3 the default runtime was a table of its own, which 1.x still takes.
    if sections.iter().any(|(_, cri)| table(cri, &["containerd", "default_runtime"]).is_some()) {
        return None;
    }
    let name: &str = &default_runtime(sections);
    let runtime = ["containerd", "runtimes", name];
    let said = |(file, cri): &Section<'_>| file.bool(table(cri, &runtime)?, &["options", "SystemdCgroup"]);
    if let Some(said) = sections.iter().find_map(said) {
        return Some(said);
    }
    let kind = string(sections, &["containerd", "runtimes", name, "runtime_type"]);
    let is_runc = kind.map_or(name == "runc", |kind| kind.value.starts_with("io.containerd.runc."));
    (is_runc && is_whole).then(|| Located { value: false, at: Location::file(main) })
}

/// A `SystemdCgroup = true` in a table that does not count, and why it does not.
fn idle_driver(file: &TomlFile<'_>, sections: &[Section<'_>], major: Option<u32>) -> Option<Located<String>> {
    let default = default_runtime(sections);
    for name in [RUNTIME_URI, GRPC_URI, SHORT] {
        let Some(runtimes) = table(file.table(), &["plugins", name, "containerd", "runtimes"]) else { continue };
        for runtime in runtimes.keys() {
            let runtime = runtime.get_ref().as_ref();
            let said = file.bool(table(runtimes, &[runtime])?, &["options", "SystemdCgroup"]);
            let Some(said) = said.filter(|said| said.value) else { continue };
            let why = match (schema(file), name) {
                (..=1, GRPC_URI | RUNTIME_URI) => {
                    "the file has no `version = 2`, without which no plugin has this table".to_owned()
                }
                (3.., GRPC_URI | SHORT) => {
                    format!("with `version = {}` the table is plugins.'{RUNTIME_URI}'", schema(file))
                }
                (2, SHORT) => format!("with `version = 2` the table is plugins.\"{GRPC_URI}\""),
                (2, RUNTIME_URI) if major == Some(1) => {
                    format!("containerd 1 reads plugins.\"{GRPC_URI}\" and not this table")
                }
                _ if runtime != default => {
                    format!("it belongs to the runtime {runtime}, and the default runtime is {default}")
                }
                _ => continue,
            };
            return Some(Located { value: why, at: said.at });
        }
    }
    None
}

/// Whether this release looks at the names of tables (`ValidateV2`).
fn is_strict(release: [u32; 3]) -> bool {
    ([1, 3, 0]..[2, 0, 0]).contains(&release)
}

/// A plugin's name that is no URI, which a file of schema 2 or later must not have: as a table, which only some releases
/// refuse, or in one of these lists (`ValidateVersion` of 2.x wants a dot).
fn short_name(file: &TomlFile<'_>, release: Option<[u32; 3]>) -> Option<Located<&'static str>> {
    let strict = release.filter(|release| is_strict(*release));
    let is_short = |name: &str| match strict {
        Some(release) => name.split('.').count() < 4 || release >= [1, 7, 0] && !name.starts_with("io.containerd."),
        None => !name.contains('.'),
    };
    let lists = ["disabled_plugins", "required_plugins"].into_iter();
    let listed = lists.flat_map(|list| file.strings(file.table(), &[list])).find(|name| is_short(&name.value));
    let tables = || table(file.table(), &["plugins"]).filter(|_| strict.is_some());
    let named = || tables()?.keys().find(|key| is_short(key.get_ref())).map(|key| file.at(&key.span()));
    let at = listed.map(|name| name.at).or_else(named).filter(|_| schema(file) > 1)?;
    Some(Located { value: "plugins", at })
}

/// A `version` that this release does not take; those before 1.6.32 and 1.7.17 do not look at it.
fn too_new(file: &TomlFile<'_>, release: [u32; 3]) -> Option<Located<&'static str>> {
    let most = match release {
        [2, 3 | 4, _] => 4,
        [2, ..3, _] => 3,
        [1, 6, (32..)] | [1, 7, (17..)] => 2,
        _ => return None,
    };
    let version = toml_file::get(file.table(), &["version"]).filter(|_| schema(file) > most)?;
    Some(Located { value: "version", at: file.at(&version.span()) })
}

/// Where `disabled_plugins` names the CRI plugin; the lists of all files count together.
fn disabled(file: &TomlFile<'_>, major: Option<u32>) -> Option<Located<&'static str>> {
    let mut disabled = file.strings(file.table(), &["disabled_plugins"]).into_iter();
    let hit = disabled.find(|id| match id.value.as_str() {
        // In a file of schema 2 or later the short name keeps containerd from starting at all.
        SHORT | RUNTIME_URI | IMAGES_URI => true,
        GRPC_URI => schema(file) > 1 || major.is_some_and(|major| major > 1),
        _ => false,
    });
    hit.map(|id| Located { value: "disabled_plugins", at: id.at })
}

#[cfg(test)]
mod tests;
