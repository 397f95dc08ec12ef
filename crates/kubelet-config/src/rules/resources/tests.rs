use crate::fix::plan;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::Lifecycle;
use crate::kubelet::tree::MemoryTree;
use crate::rules::lint;
use crate::rules::tests::support::{UNIT, findings_with, found, kubeadm};

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
    let place = "/var/lib/kubelet/config.yaml: ";
    assert!(one(&memory(with(""), 4 << 20), "RS001").starts_with(&format!("warning {place}")));
    assert_eq!(one(&memory(with(""), 16 << 20), "RS001"), "");
    assert_eq!(one(&with(""), "RS001"), "", "how small the machine is is not known");
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
    let bare = memory(bare, 4 << 20);
    assert!(one(&bare, "RS001").starts_with(&format!("warning {UNIT}:2: ")));
    // The legacy default has no threshold at all: it was not written.
    assert_eq!(one(&bare, "RS002"), "");
    let flagged = bare.file(UNIT, "[Service]\nExecStart=/usr/bin/kubelet --system-reserved=memory=1Gi\n");
    assert_eq!(one(&flagged, "RS001"), "");
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    assert!(found(&kubeadm().without(CONFIG), before, "RS001").is_empty());
}

#[test]
fn one_threshold_alone_takes_the_others_away() {
    let tree = with("evictionHard:\n  imagefs.available: 5%\n");
    let found = one(&tree, "RS002");
    assert!(found.starts_with("warning /var/lib/kubelet/config.yaml:5: "), "{found}");
    assert!(found.contains("memory.available and nodefs.available have no threshold"), "{found}");
    let finding = findings_with(&tree, Inputs::default()).into_iter().find(|finding| finding.rule == "RS002").unwrap();
    assert!(finding.fix.unwrap().contains("memory.available: 100Mi and nodefs.available: 10%"));
    let memory_only = with("evictionHard: {memory.available: 100Mi}\n");
    assert!(one(&memory_only, "RS002").contains("The disk fills up"));
    for fine in [
        "",
        "evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n",
        "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
    ] {
        assert_eq!(one(&with(fine), "RS002"), "", "{fine}");
    }
    let flag = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--eviction-hard=memory.available<1Gi\n");
    assert!(one(&flag, "RS002").starts_with("warning /etc/default/kubelet:1: "));
}

#[test]
fn thresholds_that_make_no_sense_are_told() {
    let hard = |value: &str, kib| {
        let text = format!("evictionHard: {{memory.available: {value}, nodefs.available: 5%}}\n");
        one(&memory(with(&text), kib), "RS003")
    };
    let gib = 1 << 20;
    assert!(hard("4Gi", 4 * gib).starts_with("error /var/lib/kubelet/config.yaml:5: "));
    assert!(hard("2Gi", 4 * gib).starts_with("warning"));
    assert!(hard("40%", 4 * gib).starts_with("warning"));
    for fine in ["10Mi", "1%", "100Mi", "5%", "500Mi", "0%", "100%", "nonsense"] {
        assert_eq!(hard(fine, 4 * gib), "", "{fine}");
    }
    let disk = with("evictionHard: {memory.available: 1Gi, nodefs.available: 60%}\n");
    assert!(one(&disk, "RS003").contains("nodefs.available<60%"));
    let soft = with(
        "evictionSoft: {memory.available: 50Mi, nodefs.available: 15%}\nevictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}\n",
    );
    assert!(one(&soft, "RS003").contains("the hard threshold, 100Mi, is reached first"));
    assert_eq!(one(&kubeadm(), "RS003"), "");
}

#[test]
fn enforcing_needs_a_cgroup_that_is_there() {
    let none = with("enforceNodeAllocatable: [pods, system-reserved]\n");
    assert!(one(&none, "RS005").starts_with("fatal /var/lib/kubelet/config.yaml:5: "));
    let named = with("enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube\n")
        .file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    assert!(one(&named, "RS005").contains("the cgroup /kube does not exist"));
    assert_eq!(one(&named.directory("/sys/fs/cgroup/kube.slice"), "RS005"), "");
    // nodeadm names the cgroups and enforces nothing.
    let eks = with("enforceNodeAllocatable: [pods]\nkubeReservedCgroup: /kube\n");
    assert_eq!(one(&eks, "RS005"), "");
}

/// The file after the edits of one rule.
fn edited(tree: &MemoryTree, rule: &str) -> String {
    let judge = |tree: &dyn crate::kubelet::tree::Tree| lint(&resolve(tree, Inputs::default()));
    let mut files = plan(tree, &judge, &|finding| finding.rule == rule).files;
    files.pop().map(|file| file.after).unwrap_or_default()
}

#[test]
fn only_what_stops_the_kubelet_or_every_pod_is_edited() {
    for (rule, text) in [
        ("RS001", "systemReserved: {cpu: 1}\n"),
        ("RS002", "evictionHard:\n  nodefs.available: 5%\n"),
        ("RS003", "evictionHard: {memory.available: 2Gi, nodefs.available: 5%}\n"),
        ("RS005", "enforceNodeAllocatable:\n- pods\n- system-reserved # why\n"),
    ] {
        assert_eq!(edited(&memory(with(text), 4 << 20), rule), "", "{text}");
    }
    let before = "kubeReserved: {memory: 1Gi}\nenforceNodeAllocatable:\n- pods\n- system-reserved\nmaxPods: 50\n";
    let after = format!("{HEAD}{}", before.replace("- system-reserved\n", ""));
    assert_eq!(edited(&memory(with(before), 4 << 20), "RS005"), after);
}

#[test]
fn a_state_file_of_another_policy_is_fatal_unless_the_unit_removes_it() {
    let state = "/var/lib/kubelet/memory_manager_state";
    let tree = with("memoryManagerPolicy: Static\n").file(state, "{\"policyName\":\"None\",\"checksum\":1}");
    assert!(one(&tree, "RS006").starts_with("fatal /var/lib/kubelet/config.yaml:5: "));
    let back = with("").file(state, "{\"policyName\":\"Static\"}");
    assert!(one(&back, "RS006").starts_with("fatal /var/lib/kubelet/config.yaml: "), "{}", one(&back, "RS006"));
    assert_eq!(one(&tree.clone().file(state, "{\"policyName\":\"Static\"}"), "RS006"), "");
    let elsewhere = tree.clone().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--root-dir=/data\n");
    assert_eq!(one(&elsewhere, "RS006"), "");
    let removed = tree.file(
        "/etc/systemd/system/kubelet.service.d/10-state.conf",
        "[Service]\nExecStartPre=/bin/rm -f /var/lib/kubelet/memory_manager_state\nExecStartPre=/bin/true\n",
    );
    assert_eq!(one(&removed, "RS006"), "");
    let before = |command: &str| {
        let unit = format!("[Service]\nExecStartPre={command}\n");
        one(&back.clone().file("/etc/systemd/system/kubelet.service.d/10-pre.conf", unit), "RS006")
    };
    for command in [
        "/bin/rm -f /var/lib/kubelet/*_state",
        "/usr/bin/find /var/lib/kubelet -maxdepth 1 -type f -delete",
        "/etc/kubernetes/prepare",
        "/bin/true\nExecStartPre=/opt/pre.sh",
    ] {
        assert!(before(command).starts_with("warning "), "{command}");
    }
    assert!(before("/sbin/modprobe br_netfilter").starts_with("fatal "));
}

#[test]
fn the_cpus_of_the_managers_state_are_the_machines() {
    const STATE: &str = "/var/lib/kubelet/cpu_manager_state";
    let judged = |more: &str, state: &str, online: &str| {
        let tree = with(&format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n{more}")).file(STATE, state);
        one(&tree.file("/sys/devices/system/cpu/online", format!("{online}\n")), "RS006")
    };
    let state = |free: &str, of_pod: &str| {
        format!(
            "{{\"policyName\":\"static\",\"defaultCpuSet\":\"{free}\",\"entries\":{{\"p\":{{\"c\":\"{of_pod}\"}}}}}}"
        )
    };
    assert_eq!(judged("", &state("0-1,4-7", "2-3"), "0-7"), "");
    let grown = judged("", &state("0-1", "2-3"), "0-7");
    assert!(grown.starts_with(&format!("fatal {STATE}: ")) && grown.contains("than the machine, 0-7"), "{grown}");
    assert!(judged("", &state("0,2-7", "1"), "0-7").contains("containers on reserved CPUs, 0-1"));
    assert_eq!(judged("", &state("", "1"), "0-7"), "", "an empty set is written anew");
    let strict = "cpuManagerPolicyOptions: {strict-cpu-reservation: 'true'}\n";
    assert_eq!(judged(strict, &state("2-7", ""), "0-7"), "");
    assert_eq!(judged("", "{\"policyName\":\"static\"}", "0-7"), "");
    let oldest = "{\"policyName\":\"static\",\"defaultCpuSet\":\"0\",\"entries\":{\"c\":\"1\"}}";
    assert_eq!(judged("", oldest, "0-7"), "");
}

#[test]
fn a_state_file_that_is_cut_off_is_fatal() {
    let says = |name: &str, text: &str, release: &str| {
        let tree = with("").file(format!("/var/lib/kubelet/{name}"), text);
        found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "RS006").join("|")
    };
    for text in ["", "[]", "{\"policyName\":", "{\"policyName\":\"none\"}\"}"] {
        for name in ["cpu_manager_state", "memory_manager_state", "allocated_pods_state", "actuated_pods_state"] {
            let said = says(name, text, "1.33.2");
            assert!(said.starts_with(&format!("fatal /var/lib/kubelet/{name}: ")), "{name} {text}: {said}");
        }
    }
    assert!(says("dra_manager_state", "{", "1.34.1").starts_with("fatal "));
    for (name, release, start) in [
        ("dra_manager_state", "1.33.2", ""),
        ("allocated_pods_state", "1.32.9", ""),
        ("actuated_pods_state", "1.28.4", ""),
        ("allocated_pods_state", "", "warning "),
        ("cpu_manager_state", "1.28.4", "fatal "),
    ] {
        let said = says(name, "{", release);
        assert!(said.starts_with(start) && said.is_empty() == start.is_empty(), "{name} {release}: {said}");
    }
    for (name, gate, release, start) in [
        ("dra_manager_state", "DynamicResourceAllocation: true", "1.33.2", "fatal "),
        ("dra_manager_state", "DynamicResourceAllocation: false", "1.34.1", ""),
        ("allocated_pods_state", "InPlacePodVerticalScaling: false", "1.33.2", ""),
        ("actuated_pods_state", "InPlacePodVerticalScaling: false", "1.34.1", ""),
        ("actuated_pods_state", "AllBeta: false", "1.34.1", "warning "),
    ] {
        let tree = with(&format!("featureGates: {{{gate}}}\n")).file(format!("/var/lib/kubelet/{name}"), "{");
        let said = found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "RS006").join("|");
        assert!(said.starts_with(start) && said.is_empty() == start.is_empty(), "{name} {gate} {release}: {said}");
    }
    assert_eq!(says("device-plugins/kubelet_internal_checkpoint", "{", "1.36.3"), "");
    assert_eq!(says("allocated_pods_state", "{\"entries\":{}}", "1.36.3"), "");
}

#[test]
fn a_flag_that_empties_the_map_of_the_file_takes_its_values_away() {
    let file = with("evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n");
    let tree =
        file.clone().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--eviction-hard=memory.available<2Gi\"\n");
    assert!(one(&tree, "RS007").starts_with("warning /var/lib/kubelet/config.yaml:5: "));
    let all = "KUBELET_EXTRA_ARGS=--eviction-hard=memory.available<2Gi,nodefs.available<6%\n";
    assert!(
        one(&file.file("/etc/default/kubelet", all), "RS007").starts_with("info "),
        "every threshold is given again"
    );
}

#[test]
fn a_misspelt_signal_is_one_mistake() {
    let tree = with("evictionHard: {memory.avaliable: 100Mi, nodefs.available: 10%}\n");
    assert!(one(&tree, "CF007").contains("memory.avaliable"));
    assert_eq!(one(&tree, "RS002"), "");
}

#[test]
fn an_amount_of_memory_has_a_unit() {
    for (text, line) in [("systemReserved: {memory: 500m}\n", 5), ("evictionHard: {memory.available: '100'}\n", 5)] {
        let found = found(&memory(with(text), 4 << 20), Inputs::default(), "RS003").join("|");
        assert!(
            found.starts_with(&format!("warning {CONFIG}:{line}: ")) && found.contains("less than 1 MiB"),
            "{found}"
        );
    }
    let fine = "systemReserved: {memory: 500Mi, cpu: 500m, pid: '1000'}\nevictionHard: {memory.available: 5%}\n";
    assert_eq!(one(&memory(with(fine), 4 << 20), "RS003"), "");
}
