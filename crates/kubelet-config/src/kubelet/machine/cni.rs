//! The CNI configurations in the directory where the runtime looks for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Runtime;
use crate::kubelet::text::small;
use crate::kubelet::tree::{Kind, Tree};

/// Where both runtimes look if their configuration names no other directory.
const DEFAULT_DIRECTORY: &str = "/etc/cni/net.d";

/// How many names are kept.
const MAX_CONFIGS: usize = 100;

/// The directory in which the runtime looks; `None` where that is the distribution's secret until its first start.
pub(super) fn directory(runtime: Option<&Runtime>, socket: &str) -> Option<PathBuf> {
    if let Some(said) = runtime.and_then(|runtime| runtime.cni_conf_dir.as_ref()) {
        return Some(PathBuf::from(&said.value));
    }
    // k3s, k0s and MicroK8s start a containerd of their own, with directories of their own.
    let is_bundled = ["/run/k3s/", "/run/k0s/", "/var/snap/"].iter().any(|prefix| socket.starts_with(prefix));
    let is_whole = runtime.is_none_or(|runtime| runtime.is_whole);
    (is_whole && !is_bundled).then(|| PathBuf::from(DEFAULT_DIRECTORY))
}

/// The names of the configurations in a directory, sorted; `None` if it is not there.
pub(super) fn configs(tree: &dyn Tree, directory: &Path) -> Option<Vec<String>> {
    let names = tree.list(directory).ok()?.into_iter();
    let has_suffix = |suffix: &OsStr| ["conf", "conflist", "json"].iter().any(|one| suffix == *one);
    let configs = names
        .filter(|name| Path::new(name).extension().is_some_and(has_suffix))
        .filter(|name| tree.stat(&directory.join(name)).is_ok_and(|meta| meta.kind == Kind::File));
    Some(configs.take(MAX_CONFIGS).map(|name| name.to_string_lossy().into_owned()).collect())
}

/// The plugins of the first configuration, which is the one that the runtime takes; empty if it has none to be read.
pub(super) fn plugins(tree: &dyn Tree, directory: &Path, configs: &[String]) -> Vec<String> {
    let text = configs.first().and_then(|name| small(tree, directory.join(name).to_str()?));
    let config: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    let listed = config["plugins"].as_array().into_iter().flatten();
    let kinds = std::iter::once(&config).chain(listed).filter_map(|plugin| plugin["type"].as_str());
    kinds.take(MAX_CONFIGS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn the_first_configuration_names_the_plugins() {
        let directory = Path::new("/etc/cni/net.d");
        let tree = MemoryTree::new()
            .file("/etc/cni/net.d/10-x.conflist.bak", "")
            .file("/etc/cni/net.d/20-b.conf", "{\"type\": \"bridge\"}")
            .file("/etc/cni/net.d/05-c.conflist", "{\"plugins\": [{\"type\": \"flannel\"}, {\"type\": \"portmap\"}]}")
            .directory("/etc/cni/net.d/00-sub.conf");
        let found = configs(&tree, directory).unwrap();
        assert_eq!(found, ["05-c.conflist", "20-b.conf"]);
        assert_eq!(plugins(&tree, directory, &found), ["flannel", "portmap"]);
        assert_eq!(plugins(&tree, directory, &found[1..]), ["bridge"]);
        assert!(plugins(&tree, directory, &[]).is_empty());
        assert_eq!(configs(&tree, Path::new("/none")), None);
    }

    #[test]
    fn a_bundled_runtime_keeps_its_directory_to_itself() {
        assert_eq!(directory(None, "/run/x.sock").unwrap(), Path::new(DEFAULT_DIRECTORY));
        assert_eq!(directory(None, "/run/k3s/containerd/containerd.sock"), None);
    }
}
