use crate::{
    kubelet::{resolve::Inputs, snapshot::Lifecycle, tree::MemoryTree},
    rules::testing::{UNIT, findings_with, found, kubeadm},
};

const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nrotateCertificates: true\n";

fn with(more: &str) -> MemoryTree {
    kubeadm().file(CONFIG, format!("{HEAD}{more}"))
}

fn memory(tree: MemoryTree, kib: u64) -> MemoryTree {
    tree.file("/proc/meminfo", format!("MemTotal:       {kib} kB\nMemFree: 1 kB\n"))
}

fn one(tree: &MemoryTree, rule: &str) -> String {
    let found = found(tree, Inputs::default(), rule);
    assert!(found.len() <= 1, "{found:?}");
    found.into_iter().next().unwrap_or_default()
}

#[test]
fn a_small_machine_that_reserves_nothing_is_warned() {
    let place = "/var/lib/kubelet/config.yaml: neither kubeReserved nor systemReserved sets memory aside";
    assert!(
        one(&memory(with(""), 4 << 20), "RS001").starts_with(&format!("warning {place}: pods may use all of 4.0 GiB"))
    );
    assert!(one(&memory(with(""), 16 << 20), "RS001").starts_with(&format!("info {place}")));
    assert!(one(&with(""), "RS001").starts_with(&format!("info {place}")));
    assert!(one(&memory(with("systemReserved: {cpu: 1}\n"), 4 << 20), "RS001").starts_with("warning"));
    for fine in ["kubeReserved: {memory: 300Mi}\n", "systemReserved: {memory: 1Gi}\n"] {
        assert_eq!(one(&memory(with(fine), 4 << 20), "RS001"), "");
    }
}

#[test]
fn without_a_file_the_command_is_the_place_and_before_the_join_nothing_is_said() {
    let bare = MemoryTree::new()
        .file(UNIT, "[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=/k\n")
        .file("/usr/bin/kubelet", "");
    assert!(one(&bare, "RS001").starts_with(&format!("info {UNIT}:2: neither")));
    // The legacy default has no threshold at all: nobody wrote it.
    assert_eq!(one(&bare, "RS002"), "");
    let flagged = bare.file(UNIT, "[Service]\nExecStart=/usr/bin/kubelet --system-reserved=memory=1Gi\n");
    assert_eq!(one(&flagged, "RS001"), "");
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    assert!(found(&kubeadm().without(CONFIG), before, "RS001").is_empty());
}

#[test]
fn one_threshold_alone_takes_the_others_away() {
    let tree = with("evictionHard:\n  imagefs.available: 5%\n");
    assert_eq!(
        one(&tree, "RS002"),
        "warning /var/lib/kubelet/config.yaml:5: evictionHard names only imagefs.available: memory.available and nodefs.available have no threshold any more; under memory pressure the kernel's OOM killer acts, the kubelet does not evict"
    );
    let finding = findings_with(&tree, Inputs::default()).into_iter().find(|finding| finding.rule == "RS002").unwrap();
    assert!(finding.fix.unwrap().contains("memory.available: \"100Mi\""));
    let memory_only = with("evictionHard: {memory.available: 100Mi}\n");
    assert!(one(&memory_only, "RS002").contains("the disk fills up"));
    for fine in [
        "",
        "evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n",
        "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
    ] {
        assert_eq!(one(&with(fine), "RS002"), "", "{fine}");
    }
    let flag = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--eviction-hard=memory.available<1Gi\n");
    assert!(
        one(&flag, "RS002").starts_with("warning /etc/default/kubelet:1: evictionHard names only memory.available")
    );
}

#[test]
fn thresholds_that_make_no_sense_are_told() {
    let hard = |value: &str, kib| {
        let text = format!("evictionHard: {{memory.available: {value}, nodefs.available: 5%}}\n");
        one(&memory(with(&text), kib), "RS003")
    };
    let gib = 1 << 20;
    assert!(
        hard("4Gi", 4 * gib)
            .starts_with("error /var/lib/kubelet/config.yaml:5: evictionHard: memory.available<4Gi on 4096 MiB")
    );
    assert!(hard("2Gi", 4 * gib).starts_with("warning"));
    assert!(hard("40%", 4 * gib).starts_with("warning"));
    assert!(hard("10Mi", 4 * gib).contains("no time to evict"));
    assert!(hard("1%", 4 * gib).contains("no time to evict"));
    for fine in ["100Mi", "5%", "500Mi", "0%", "100%", "nonsense"] {
        assert_eq!(hard(fine, 4 * gib), "", "{fine}");
    }
    let disk = with("evictionHard: {memory.available: 1Gi, nodefs.available: 60%}\n");
    assert!(one(&disk, "RS003").contains("nodefs.available<60%"));
    let soft = with(
        "evictionSoft: {memory.available: 50Mi, nodefs.available: 15%}\nevictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}\n",
    );
    assert!(one(&soft, "RS003").contains("memory.available<50Mi is below the hard threshold 100Mi"));
    assert_eq!(one(&kubeadm(), "RS003"), "");
}

#[test]
fn enforcing_needs_a_cgroup_that_is_there() {
    let none = with("enforceNodeAllocatable: [pods, system-reserved]\n");
    assert!(one(&none, "RS005").starts_with("fatal /var/lib/kubelet/config.yaml:5: enforceNodeAllocatable has system-reserved, and systemReservedCgroup is not set"));
    let named = with("enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube\n")
        .file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    assert!(one(&named, "RS005").contains("its cgroup /kube does not exist"));
    assert_eq!(one(&named.folder("/sys/fs/cgroup/kube.slice"), "RS005"), "");
    // nodeadm names the cgroups and enforces nothing.
    let eks = with("enforceNodeAllocatable: [pods]\nkubeReservedCgroup: /kube\n");
    assert_eq!(one(&eks, "RS005"), "");
}
