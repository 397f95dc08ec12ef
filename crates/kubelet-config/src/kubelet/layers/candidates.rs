//! Which units of a tree could run a kubelet.

use std::collections::BTreeSet;
use std::path::Path;

use crate::kubelet::systemd::SEARCH_PATH;
use crate::kubelet::tree::{Kind, Tree};

/// The names under which a kubelet is usually started, the likeliest first.
pub const NAMES: [&str; 10] = [
    "kubelet.service",
    "k3s-agent.service",
    "k3s.service",
    "rke2-agent.service",
    "rke2-server.service",
    "k0sworker.service",
    "k0scontroller.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.k8s.kubelet.service",
    "kubelite.service",
];

/// The most that are named, in addition to [`NAMES`].
const MAX_OTHERS: usize = 16;

/// The units of this tree that could run a kubelet, the likeliest first: those that start at boot, then those that are
/// there, then masked ones. `kubelet.service` if there is none.
pub fn candidate_units(tree: &dyn Tree) -> Vec<String> {
    let names = NAMES.into_iter().map(str::to_owned).chain(others(tree));
    let mut found: Vec<String> = names.filter(|name| rank(tree, name).is_some()).collect();
    found.sort_by_cached_key(|name| rank(tree, name));
    if found.is_empty() { vec!["kubelet.service".to_owned()] } else { found }
}

/// `kubelet-*.service` and `k3s-*.service`.
fn others(tree: &dyn Tree) -> BTreeSet<String> {
    let names = SEARCH_PATH.iter().filter_map(|directory| tree.list(Path::new(directory)).ok()).flatten();
    names.filter_map(|name| name.into_string().ok()).filter(|name| is_other(name)).take(MAX_OTHERS).collect()
}

fn is_other(name: &str) -> bool {
    let has_prefix = name.starts_with("kubelet-") || name.starts_with("k3s-");
    has_prefix && name.ends_with(".service") && !NAMES.contains(&name)
}

/// 0 for a unit that starts at boot, 1 for one that is there, 2 for a mask; `None` for none.
fn rank(tree: &dyn Tree, name: &str) -> Option<u8> {
    let path =
        SEARCH_PATH.iter().map(|directory| Path::new(directory).join(name)).find(|path| tree.lstat(path).is_ok())?;
    let meta = tree.stat(&path);
    let is_mask = meta.is_ok_and(|meta| meta.kind == Kind::Null || meta.kind == Kind::File && meta.size_bytes == 0);
    Some(if is_mask { 2 } else { u8::from(!is_wanted(tree, name)) })
}

/// Whether a target pulls the unit in: a link in a `.wants` or `.requires` directory.
fn is_wanted(tree: &dyn Tree, name: &str) -> bool {
    let mut entries = SEARCH_PATH.iter().flat_map(|directory| {
        let names = tree.list(Path::new(directory)).unwrap_or_default().into_iter();
        names.map(move |name| Path::new(directory).join(name))
    });
    let is_of_target = |entry: &Path| entry.extension().is_some_and(|end| end == "wants" || end == "requires");
    entries.any(|entry| is_of_target(&entry) && tree.lstat(&entry.join(name)).is_ok())
}
