//! Files that look as if they were meant for the kubelet, and that nothing reads: the environment file of the other
//! distribution, one that a guide names, one that a drop-in no longer names.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::flag_text::flags_in;
use super::flags::table;
use super::location::Location;
use super::snapshot::UnreadFile;
use super::systemd::{Assignment, Event, EventKind, Unit, env_file};
use super::tree::Tree;

/// Where distributions and installers keep the kubelet's environment.
const WELL_KNOWN: [&str; 12] = [
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/etc/conf.d/kubelet",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/var/lib/kubelet/extra_args",
    "/etc/kubernetes/kubelet",
    "/etc/kubernetes/kubelet.env",
    "/etc/kubernetes/kubelet-env",
    "/etc/kubernetes/kubelet-workaround",
    "/etc/kubernetes/kubelet/env",
    "/etc/eks/kubelet/environment",
    "/run/kubelet/extra-args.env",
];

/// Where others of that kind would lie.
const DIRECTORIES: [&str; 3] = ["/etc/default", "/etc/sysconfig", "/etc/kubernetes"];

/// What editors and package managers leave next to a file.
const LEFTOVERS: [&str; 10] =
    ["~", ".bak", ".old", ".orig", ".swp", ".rpmnew", ".rpmorig", ".rpmsave", ".ucf-dist", ".ucf-old"];

/// The most entries that are looked at in a directory.
const MAX_ENTRIES: usize = 1000;
/// The largest file that is looked at: an environment file has a few lines.
const MAX_BYTES: usize = 64 * 1024;
/// The most files that are named.
const MAX_FOUND: usize = 32;
/// systemd's version before which a comment may swallow a line; the older reading finds less.
const SYSTEMD: u32 = 252;

/// Finds them: `/etc/default/kubelet`, `/etc/sysconfig/kubelet`, `kubeadm-flags.env` and their like.
pub(crate) fn find(tree: &dyn Tree, unit: &Unit) -> Vec<UnreadFile> {
    let read: BTreeSet<PathBuf> = unit
        .env_files
        .iter()
        .flat_map(|file| [Some(file.path.clone()), tree.real_path(&file.path).ok()])
        .flatten()
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let named: Vec<PathBuf> = unit.events.iter().filter_map(meant_file).take(MAX_FOUND).map(PathBuf::from).collect();
    for path in named.iter().cloned().chain(candidates(tree)) {
        let Ok(real) = tree.real_path(&path) else { continue };
        if read.contains(&path) || read.contains(&real) || is_named(unit, &path) {
            continue;
        }
        let assignments = meant_for_a_kubelet(tree, &path, named.contains(&path));
        if !assignments.is_empty() && seen.insert(real) {
            found.push(UnreadFile { assignments, at: Location::file(&path) });
        }
        if found.len() == MAX_FOUND {
            break;
        }
    }
    found.sort_by(|one, other| one.at.cmp(&other.at));
    found
}

/// The path in `Environment=/path`, which systemd ignores: `EnvironmentFile=/path` is meant.
pub(crate) fn meant_file(event: &Event) -> Option<&str> {
    let path = event.text.strip_prefix('-').unwrap_or(&event.text);
    let is_path = path.starts_with('/') && !path.contains(['=', ' ']);
    (event.kind == EventKind::InvalidAssignment { first: None } && is_path).then_some(path)
}

/// The well-known files, then the other files of their directories.
fn candidates(tree: &dyn Tree) -> Vec<PathBuf> {
    let others = DIRECTORIES.iter().flat_map(|directory| {
        tree.list(Path::new(directory))
            .unwrap_or_default()
            .into_iter()
            .take(MAX_ENTRIES)
            .filter(|name| !is_leftover(&name.to_string_lossy()))
            .map(|name| Path::new(directory).join(name))
    });
    WELL_KNOWN.iter().map(PathBuf::from).chain(others).collect()
}

fn is_leftover(name: &str) -> bool {
    name.starts_with('.') || name.contains(".dpkg-") || LEFTOVERS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a command of the unit names the file: a shell there may read it.
fn is_named(unit: &Unit, path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let commands =
        unit.settings.iter().filter(|((_, key), _)| key.starts_with("Exec")).map(|(_, setting)| setting.value.as_str());
    let words = unit.argv.iter().map(|word| word.text.as_str());
    commands.chain(words).any(|text| text.contains(path))
}

/// A file's assignments, if it is an environment file that is meant for a kubelet: a kubeconfig, a
/// `KubeletConfiguration` or a script is none, whatever its name. One that the unit names is meant.
fn meant_for_a_kubelet(tree: &dyn Tree, path: &Path, is_named: bool) -> Vec<Assignment> {
    let Ok(bytes) = tree.read_bounded(path, MAX_BYTES) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    if is_document(&text) || !(is_named || text.contains("KUBELET_") || text.contains("--")) {
        return Vec::new();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_kubelets =
        name.contains("kubelet") || name.contains("kubeadm") || WELL_KNOWN.iter().any(|known| Path::new(known) == path);
    let has_flag = |text: &str| flags_in(text).iter().any(|flag| table::find(&flag.name).is_some());
    let parsed = env_file::parse(&Location::file(path), &bytes, SYSTEMD);
    let is_meant = |one: &Assignment| one.name.contains("KUBELET") || is_kubelets && has_flag(&one.value);
    if is_named || parsed.assignments.iter().any(is_meant) { parsed.assignments } else { Vec::new() }
}

/// YAML or JSON with a kind, or a script.
fn is_document(text: &str) -> bool {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    start.starts_with('{')
        || start.starts_with("#!")
        || text.lines().any(|line| line.starts_with("kind:") || line.starts_with("apiVersion:"))
}
