//! CRI-O's configuration: `crio.conf` and the files of `crio.conf.d`, crio.conf(5).

use std::path::Path;

use super::toml_file::TomlFile;
use super::{Runtime, RuntimeKind};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::tree::{Kind, Tree};

/// The file that CRI-O reads if no other is named.
pub(super) const DEFAULT_CONFIG: &str = "/etc/crio/crio.conf";
pub(super) const DEFAULT_DIRECTORY: &str = "/etc/crio/crio.conf.d";

const MAX_FILES: usize = 256;

/// Reads the configuration. CRI-O's default is systemd's cgroups, which counts if it is `installed` or configured.
pub(super) fn read(tree: &dyn Tree, main: &Path, directory: &Path, version: Option<&str>, installed: bool) -> Runtime {
    let version = version.map(str::to_owned);
    let mut runtime = Runtime { kind: RuntimeKind::Crio, version, is_whole: true, ..Runtime::default() };
    let names = tree.list(directory).unwrap_or_default().into_iter().take(MAX_FILES);
    let drop_ins = names.map(|name| directory.join(name));
    let drop_ins = drop_ins.filter(|path| tree.stat(path).is_ok_and(|meta| meta.kind == Kind::File));
    let mut is_configured = installed;
    for path in std::iter::once(main.to_owned()).chain(drop_ins) {
        let text = match tree.read_text(&path) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => continue,
            Err(_) => {
                runtime.is_whole = false;
                continue;
            }
        };
        is_configured = true;
        match TomlFile::parse(&path, &text, true) {
            Ok(file) => take(&mut runtime, &file),
            Err(at) => {
                runtime.is_whole = false;
                runtime.cri_disabled = at.map(|at| Located { value: "TOML", at }).or(runtime.cri_disabled.take());
            }
        }
    }
    if runtime.systemd_cgroup.is_none() && is_configured && runtime.is_whole {
        runtime.systemd_cgroup = Some(Located { value: true, at: Location::file(main) });
    }
    runtime
}

/// Takes what a file says over what the earlier ones said.
fn take(runtime: &mut Runtime, file: &TomlFile<'_>) {
    let crio = file.table();
    if let Some(manager) = file.string(crio, &["crio", "runtime", "cgroup_manager"]) {
        runtime.systemd_cgroup = Some(Located { value: manager.value == "systemd", at: manager.at });
    }
    runtime.cni_conf_dir = file.string(crio, &["crio", "network", "network_dir"]).or(runtime.cni_conf_dir.take());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    fn of(tree: &MemoryTree) -> Runtime {
        let (main, directory) = (Path::new(DEFAULT_CONFIG), Path::new(DEFAULT_DIRECTORY));
        read(tree, main, directory, None, false)
    }

    #[test]
    fn the_last_file_that_says_it_counts() {
        let tree = MemoryTree::new()
            .file(DEFAULT_CONFIG, "[crio.runtime]\ncgroup_manager = \"systemd\"\n")
            .file("/etc/crio/crio.conf.d/10-crio.conf", "[crio.network]\nnetwork_dir = '/etc/cni/x'\n")
            .file("/etc/crio/crio.conf.d/20-driver", "[crio.runtime]\n\ncgroup_manager = \"cgroupfs\"\n");
        let found = of(&tree);
        let driver = found.systemd_cgroup.unwrap();
        assert!(!driver.value);
        assert_eq!(driver.at.to_string(), "/etc/crio/crio.conf.d/20-driver:3");
        assert_eq!(found.cni_conf_dir.unwrap().value, "/etc/cni/x");
    }

    #[test]
    fn systemd_is_the_default_of_a_configured_crio() {
        let tree = MemoryTree::new().file(DEFAULT_CONFIG, "[crio.image]\n");
        assert!(of(&tree).systemd_cgroup.unwrap().value);
        assert_eq!(of(&MemoryTree::new()).systemd_cgroup, None);
        let broken = MemoryTree::new().file(DEFAULT_CONFIG, "[crio.runtime\n");
        let found = of(&broken);
        assert_eq!(found.systemd_cgroup, None);
        assert!(!found.is_whole);
        assert_eq!(found.cri_disabled.unwrap().at.to_string(), "/etc/crio/crio.conf:1");
    }
}
