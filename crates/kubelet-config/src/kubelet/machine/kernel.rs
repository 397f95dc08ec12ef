//! Kernel settings and cgroups.

use std::{collections::BTreeMap, path::Path};

use super::{
    super::{effective::Settings, text, tree::Tree},
    Kernel, Located, memory,
};

/// The kernel settings that rules read, by their names in sysctl.conf(5).
const SYSCTLS: &[&str] = &[
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "net.bridge.bridge-nf-call-iptables",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
];

/// The kernel settings that are there.
fn sysctls(tree: &dyn Tree) -> BTreeMap<&'static str, Located<String>> {
    let path = |name: &str| format!("/proc/sys/{}", name.replace('.', "/"));
    SYSCTLS.iter().filter_map(|name| Some((*name, text::first_word(tree, &path(name))?))).collect()
}

const CGROUPS: &str = "/sys/fs/cgroup";

/// Hierarchies of cgroup v1 that every systemd host of that time has.
const V1_HIERARCHIES: &[&str] = &["systemd", "memory", "cpu", "cpu,cpuacct", "pids"];

/// Whether `/sys/fs/cgroup` is the unified hierarchy: its root has `cgroup.controllers`, and no v1 hierarchy lies
/// beside it. A hybrid host counts as v1, as it does for the kubelet, which looks at the file system's type.
fn cgroup_v2(tree: &dyn Tree) -> Option<bool> {
    let folder = Path::new(CGROUPS);
    if tree.exists(&folder.join("cgroup.controllers")) {
        return Some(true);
    }
    V1_HIERARCHIES.iter().any(|name| tree.exists(&folder.join(name))).then_some(false)
}

/// The settings that name a cgroup which must exist before the kubelet starts.
const NAMED_BY: &[&str] = &["cgroupRoot", "kubeReservedCgroup", "systemReservedCgroup"];

/// The cgroups that the settings name, as they are written there, and whether they exist; empty where the host's
/// cgroups are not to be seen.
fn cgroups(tree: &dyn Tree, settings: &Settings) -> BTreeMap<String, bool> {
    let Some(is_v2) = cgroup_v2(tree) else {
        return BTreeMap::new();
    };
    let by_systemd = settings.text("cgroupDriver") == Some("systemd");
    NAMED_BY
        .iter()
        .filter_map(|setting| settings.text(setting))
        .map(|name| {
            let path = if by_systemd { slice_path(name) } else { name.trim_start_matches('/').to_owned() };
            // Of the v1 hierarchies the kubelet needs several; the memory controller's is the one it always needs.
            let folder = if is_v2 { CGROUPS.to_owned() } else { format!("{CGROUPS}/memory") };
            let exists = tree.exists(&Path::new(&folder).join(path));
            (name.to_owned(), exists)
        })
        .collect()
}

/// Reads all of it.
pub(super) fn read(tree: &dyn Tree, settings: &Settings) -> Kernel {
    Kernel {
        memory_bytes: memory::total(tree),
        swaps: memory::swaps(tree),
        sysctls: sysctls(tree),
        cgroup_v2: cgroup_v2(tree),
        cgroups: cgroups(tree, settings),
    }
}

/// The path of a slice as the kubelet's systemd driver makes it from a name: `/a-b` → `a.slice/a-b.slice`
/// (systemd.slice(5): each dash is a level).
fn slice_path(name: &str) -> String {
    let base = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name);
    let base = base.strip_suffix(".slice").unwrap_or(base);
    let ends = base.match_indices('-').map(|(at, _)| at).chain([base.len()]).take(MAX_LEVELS);
    ends.filter_map(|end| base.get(..end)).map(|part| format!("{part}.slice")).collect::<Vec<_>>().join("/")
}

/// More levels of slices than anyone nests; a path is bounded by the kernel anyway.
const MAX_LEVELS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::{machine::testing::settings, tree::MemoryTree};

    #[test]
    fn a_setting_of_the_kernel_knows_its_file() {
        let tree = MemoryTree::new()
            .file("/proc/sys/vm/overcommit_memory", "0\n")
            .file("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n");
        let found = sysctls(&tree);
        assert_eq!(found.len(), 2);
        let at = &found["vm.overcommit_memory"].at;
        assert_eq!(at.to_string(), "/proc/sys/vm/overcommit_memory:1");
        assert_eq!(found["net.bridge.bridge-nf-call-iptables"].value, "1");
    }

    #[test]
    fn the_hierarchy_is_told_by_what_lies_in_it() {
        let controllers = "/sys/fs/cgroup/cgroup.controllers";
        assert_eq!(cgroup_v2(&MemoryTree::new()), None);
        assert_eq!(cgroup_v2(&MemoryTree::new().folder(CGROUPS)), None);
        let v2 = MemoryTree::new().file(controllers, "cpu memory\n");
        assert_eq!(cgroup_v2(&v2), Some(true));
        let hybrid = MemoryTree::new().folder("/sys/fs/cgroup/unified").folder("/sys/fs/cgroup/memory");
        assert_eq!(cgroup_v2(&hybrid), Some(false));
    }

    #[test]
    fn reserved_cgroups_are_looked_for_where_the_driver_puts_them() {
        assert_eq!(slice_path("/system.slice"), "system.slice");
        assert_eq!(slice_path("kubereserved"), "kubereserved.slice");
        assert_eq!(slice_path("/a/pool-kube.slice"), "pool.slice/pool-kube.slice");
        let tree = MemoryTree::new()
            .file("/sys/fs/cgroup/cgroup.controllers", "")
            .folder("/sys/fs/cgroup/runtime.slice")
            .folder("/sys/fs/cgroup/podruntime");
        let names =
            [("cgroupDriver", "systemd"), ("kubeReservedCgroup", "/runtime"), ("systemReservedCgroup", "/podruntime")];
        let found = cgroups(&tree, &settings(&names));
        assert_eq!((found["/runtime"], found["/podruntime"]), (true, false));
        let mut by_path = names;
        by_path[0].1 = "cgroupfs";
        let found = cgroups(&tree, &settings(&by_path));
        assert_eq!((found["/runtime"], found["/podruntime"]), (false, true));
        assert!(cgroups(&MemoryTree::new(), &settings(&names)).is_empty());
    }
}
