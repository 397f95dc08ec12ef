//! Memory, swap, settings and cgroups, as the kernel shows them.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Kernel, Swap};
use crate::kubelet::effective::Settings;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::{find_word, first_word, numbered, small, word};
use crate::kubelet::tree::Tree;

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn memory(tree: &dyn Tree) -> Option<Located<u64>> {
    let found = find_word(tree, "/proc/meminfo", |line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let Located { value: kib, at } = found?;
    Some(Located { value: kib.parse::<u64>().ok()?.checked_mul(1024)?, at })
}

/// The entries of `/proc/swaps`: everything below its heading, as the kubelet counts it.
fn swaps(tree: &dyn Tree) -> Option<Vec<Located<Swap>>> {
    const PATH: &str = "/proc/swaps";
    let text = small(tree, PATH)?;
    let file = Location::file(PATH);
    let entry = |(number, line): (u32, &str)| {
        let mut columns = line.split_whitespace();
        let Located { value: device, at } = word(&file, number, line, columns.next()?);
        let kib: u64 = columns.nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
        Some(Located { value: Swap { device, size_bytes: kib.saturating_mul(1024) }, at })
    };
    Some(numbered(&text).skip(1).filter_map(entry).collect())
}

/// What a kubelet with `protectKernelDefaults` wants, in the order in which it looks; from kubernetes/kubernetes,
/// `pkg/util/sysctl` and `pkg/kubelet/cm/container_manager_linux.go`.
pub(crate) const PROTECTED: &[(&str, &str)] = &[
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];

/// The others that rules read, by their names in sysctl.conf(5).
const FORWARDING: [&str; 3] =
    ["net.bridge.bridge-nf-call-iptables", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

fn sysctls(tree: &dyn Tree) -> BTreeMap<&'static str, Located<String>> {
    let path = |name: &str| format!("/proc/sys/{}", name.replace('.', "/"));
    let names = PROTECTED.iter().map(|(name, _)| *name).chain(FORWARDING);
    names.filter_map(|name| Some((name, first_word(tree, &path(name))?))).collect()
}

const CGROUPS: &str = "/sys/fs/cgroup";

/// Hierarchies of cgroup v1 that every systemd host of that time has.
const V1_HIERARCHIES: &[&str] = &["systemd", "memory", "cpu", "cpu,cpuacct", "pids"];

/// Whether `/sys/fs/cgroup` is the unified hierarchy: its root has `cgroup.controllers`, and no v1 hierarchy lies
/// next to it. A hybrid host counts as v1, as it does for the kubelet, which looks at the file system's type.
fn cgroup_v2(tree: &dyn Tree) -> Option<bool> {
    let directory = Path::new(CGROUPS);
    if tree.exists(&directory.join("cgroup.controllers")) {
        return Some(true);
    }
    V1_HIERARCHIES.iter().any(|name| tree.exists(&directory.join(name))).then_some(false)
}

/// The settings that name a cgroup which must exist before the kubelet starts.
const NAMED_BY: &[&str] = &["cgroupRoot", "kubeReservedCgroup", "systemReservedCgroup"];

/// The cgroups that the settings name, and whether they exist; empty where the host's cgroups are not to be seen.
fn cgroups(tree: &dyn Tree, settings: &Settings) -> BTreeMap<String, bool> {
    let Some(is_v2) = cgroup_v2(tree) else { return BTreeMap::new() };
    // Of the v1 hierarchies the kubelet needs several; the memory controller's is the one it always needs.
    let directory = Path::new(CGROUPS).join(if is_v2 { "" } else { "memory" });
    let by_systemd = settings.text("cgroupDriver") == Some("systemd");
    let exists = |setting: &&str| {
        let name = settings.text(setting)?;
        // Of cgroupRoot the kubelet takes the path as it is.
        let is_slice = by_systemd && *setting != "cgroupRoot";
        let path = if is_slice { slice_path(name) } else { name.trim_start_matches('/').to_owned() };
        Some((name.to_owned(), is_v2 && path == "system.slice" || tree.exists(&directory.join(path))))
    };
    NAMED_BY.iter().filter_map(exists).collect()
}

pub(super) fn read(tree: &dyn Tree, settings: &Settings) -> Kernel {
    Kernel {
        memory_bytes: memory(tree),
        swaps: swaps(tree),
        sysctls: sysctls(tree),
        cgroup_v2: cgroup_v2(tree),
        controllers: first_word(tree, "/sys/fs/cgroup/cgroup.controllers"),
        cpus: first_word(tree, "/sys/devices/system/cpu/online").map(|found| found.value),
        numa_nodes: first_word(tree, "/sys/devices/system/node/online").map(|found| found.value),
        cgroups: cgroups(tree, settings),
    }
}

/// The path of a slice as the systemd driver makes it from a name: `/a-b` → `a.slice/a-b.slice` (systemd.slice(5)).
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
    use crate::kubelet::machine::tests::settings;
    use crate::kubelet::tree::MemoryTree;

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
        assert_eq!(cgroup_v2(&MemoryTree::new().directory(CGROUPS)), None);
        let v2 = MemoryTree::new().file(controllers, "cpu memory\n");
        assert_eq!(cgroup_v2(&v2), Some(true));
        let hybrid = MemoryTree::new().directory("/sys/fs/cgroup/unified").directory("/sys/fs/cgroup/memory");
        assert_eq!(cgroup_v2(&hybrid), Some(false));
    }

    #[test]
    fn reserved_cgroups_are_looked_for_where_the_driver_puts_them() {
        assert_eq!(slice_path("/system.slice"), "system.slice");
        assert_eq!(slice_path("kubereserved"), "kubereserved.slice");
        assert_eq!(slice_path("/a/pool-kube.slice"), "pool.slice/pool-kube.slice");
        let tree = MemoryTree::new()
            .file("/sys/fs/cgroup/cgroup.controllers", "")
            .directory("/sys/fs/cgroup/runtime.slice")
            .directory("/sys/fs/cgroup/podruntime");
        let names =
            [("cgroupDriver", "systemd"), ("kubeReservedCgroup", "/runtime"), ("systemReservedCgroup", "/podruntime")];
        let found = cgroups(&tree, &settings(&names));
        assert_eq!((found["/runtime"], found["/podruntime"]), (true, false));
        // systemd itself has this one always.
        let own = cgroups(&tree, &settings(&[("cgroupDriver", "systemd"), ("systemReservedCgroup", "/system.slice")]));
        assert!(own["/system.slice"]);
        let mut by_path = names;
        by_path[0].1 = "cgroupfs";
        let found = cgroups(&tree, &settings(&by_path));
        assert_eq!((found["/runtime"], found["/podruntime"]), (false, true));
        assert!(cgroups(&MemoryTree::new(), &settings(&names)).is_empty());
    }

    #[test]
    fn swap_is_every_line_below_the_heading() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let tree = MemoryTree::new().file("/proc/swaps", heading);
        assert_eq!(swaps(&tree), Some(Vec::new()));
        assert_eq!(swaps(&MemoryTree::new()), None);
        let text = format!("{heading}/dev/zram0    partition\t4194304\t\t0\t\t100\n/swap file\n");
        let found = swaps(&MemoryTree::new().file("/proc/swaps", text)).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].value.device, "/dev/zram0");
        assert_eq!(found[0].value.size_bytes, 4 << 30);
        assert_eq!(found[0].at.to_string(), "/proc/swaps:2");
        assert_eq!((found[0].at.column, found[0].at.width), (1, 10));
    }

    #[test]
    fn the_memory_is_in_bytes() {
        let tree = MemoryTree::new().file("/proc/meminfo", "MemTotal:        8024832 kB\nMemFree: 1 kB\n");
        let found = memory(&tree).unwrap();
        assert_eq!(found.value, 8_024_832 * 1024);
        assert_eq!(found.at.to_string(), "/proc/meminfo:1");
        let odd = MemoryTree::new().file("/proc/meminfo", "MemTotal: lots\n");
        assert_eq!(memory(&odd), None);
    }
}
