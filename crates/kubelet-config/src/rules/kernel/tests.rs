use super::*;
use crate::kubelet::effective::From;
use crate::kubelet::layers::Launcher;
use crate::kubelet::location::Location;
use crate::kubelet::resolve::Inputs;
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{findings_with, kubeadm, says, with_settings};

const HEADING: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
const DEFAULT: From = From::Default { legacy: false };

fn file(line: u32) -> From {
    From::File(Location::file("/var/lib/kubelet/config.yaml").at_line(line))
}

fn swapping() -> MemoryTree {
    let swaps = format!("{HEADING}/dev/zram0   partition\t4194304\t\t0\t\t100\n/swap file 1048576 0 -2\n");
    kubeadm().file("/proc/swaps", swaps)
}

fn swap(tree: &MemoryTree, inputs: Inputs, fails: bool, from: From) -> Vec<String> {
    says(&with_settings(tree, inputs, &[("failSwapOn", fails.into(), from)]), "KN001")
}

#[test]
fn swap_is_fatal_unless_the_configuration_allows_it() {
    let found = swap(&swapping(), Inputs::default(), true, DEFAULT);
    assert!(found[0].starts_with("fatal /proc/swaps:2: "), "{found:?}");
    assert!(found[0].contains("/dev/zram0, 4096 MiB, and 1 more") && found[0].contains("the default"), "{found:?}");
    let set = swap(&swapping(), Inputs::default(), true, file(9));
    assert!(set[0].starts_with("fatal ") && !set[0].contains("default"), "{set:?}");
    assert!(swap(&swapping(), Inputs::default(), false, file(9)).is_empty());
    assert!(swap(&kubeadm(), Inputs::default(), true, DEFAULT).is_empty());
}

#[test]
fn swap_before_the_configuration_is_written_is_a_warning_and_without_proc_nothing_is_said() {
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    let mut snapshot = with_settings(&swapping(), before, &[("failSwapOn", true.into(), DEFAULT)]);
    snapshot.config.files = vec![crate::kubelet::config::ConfigFile {
        at: Location::file("/var/lib/kubelet/config.yaml"),
        declared: Location::file("/u"),
        drop_in: false,
        state: crate::kubelet::config::ConfigFileState::Missing,
        document: None,
        comment_lines: std::collections::BTreeSet::new(),
        second_document: None,
    }];
    let found = says(&snapshot, "KN001");
    assert!(found[0].starts_with("warning /proc/swaps:2: "), "{found:?}");
    let image = kubeadm().without("/proc/swaps");
    let found = swap(&image, Inputs::default(), true, DEFAULT);
    assert_eq!(found, ["not checked: /proc/swaps of the host"]);
}

fn network(tree: &MemoryTree, rule: &str) -> Vec<String> {
    says(&with_settings(tree, Inputs::default(), &[]), rule)
}

#[test]
fn a_host_that_does_not_forward_is_an_error() {
    let off = kubeadm().file("/proc/sys/net/ipv4/ip_forward", "0\n");
    let found = network(&off, "KN002");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("error /proc/sys/net/ipv4/ip_forward:1: net.ipv4.ip_forward is 0"));
    let on = kubeadm().file("/proc/sys/net/ipv4/ip_forward", "1\n");
    assert!(network(&on, "KN002").is_empty());
    let image = network(&kubeadm(), "KN002");
    assert_eq!(image, ["not checked: /proc/sys/net/ipv4/ip_forward of the host"]);
}

#[test]
fn ipv6_forwarding_matters_to_a_node_with_such_an_address() {
    let tree =
        kubeadm().file("/proc/sys/net/ipv4/ip_forward", "1\n").file("/proc/sys/net/ipv6/conf/all/forwarding", "0\n");
    assert!(network(&tree, "KN002").is_empty());
    let at = From::Flag(Location::file("/u"));
    let address = [("--node-ip", "10.0.0.1,fd00::1".into(), at)];
    let found = says(&with_settings(&tree, Inputs::default(), &address), "KN002");
    assert!(found[0].contains("/proc/sys/net/ipv6/conf/all/forwarding:1"), "{found:?}");
}

#[test]
fn k3s_sets_its_kernel_settings_when_it_starts() {
    let off = kubeadm().file("/proc/sys/net/ipv4/ip_forward", "0\n");
    let mut snapshot = with_settings(&off, Inputs::default(), &[]);
    snapshot.command.launcher = Launcher::K3s;
    assert_eq!(says(&snapshot, "KN002").len(), 1);
    snapshot.lifecycle = Lifecycle::BeforeFirstStart;
    assert!(says(&snapshot, "KN002").is_empty());
}

#[test]
fn br_netfilter_matters_where_pods_hang_on_a_bridge() {
    let with = |plugin: &str| {
        kubeadm()
            .file("/proc/sys/net/ipv4/ip_forward", "1\n")
            .file("/etc/cni/net.d/10-x.conflist", format!("{{\"plugins\": [{{\"type\": \"{plugin}\"}}]}}"))
    };
    let missing = network(&with("flannel"), "KN003");
    assert!(missing[0].starts_with("warning /proc/sys/net/bridge/bridge-nf-call-iptables: "), "{missing:?}");
    assert!(missing[0].contains("br_netfilter is not loaded") && missing[0].contains("flannel"), "{missing:?}");
    let path = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let off = network(&with("bridge").file(path, "0\n"), "KN003");
    assert!(off[0].starts_with(&format!("warning {path}:1: ")), "{off:?}");
    assert!(network(&with("bridge").file(path, "1\n"), "KN003").is_empty());
    assert!(network(&with("cilium-cni"), "KN003").is_empty());
    assert!(network(&kubeadm(), "KN003")[0].starts_with("not checked: a CNI configuration"));
    let image = with("bridge").without("/proc/sys/net/ipv4/ip_forward");
    assert_eq!(network(&image, "KN003"), ["not checked: /proc/sys/net/bridge of the host"]);
}

fn host(values: [&str; 6]) -> MemoryTree {
    PROTECTED.iter().zip(values).fold(kubeadm(), |tree, ((name, _), value)| {
        tree.file(format!("/proc/sys/{}", name.replace('.', "/")), format!("{value}\n"))
    })
}

fn protected(tree: &MemoryTree, on: bool) -> Vec<String> {
    let settings = [("protectKernelDefaults", on.into(), file(7))];
    says(&with_settings(tree, Inputs::default(), &settings), "KN004")
}

#[test]
fn protected_kernel_defaults_name_every_wrong_value_once() {
    let wrong = host(["0", "0", "0", "1", "1000000", "25000000"]);
    let found = protected(&wrong, true);
    assert!(found[0].starts_with("fatal /proc/sys/vm/overcommit_memory:1: "), "{found:?}");
    for said in ["config.yaml:7", "vm.overcommit_memory is 0 (must be 1)", "kernel.panic is 0 (must be 10)"] {
        assert!(found[0].contains(said), "{found:?}");
    }
    assert!(protected(&wrong, false).is_empty());
    assert!(protected(&host(["1", "0", "10", "1", "1000000", "25000000"]), true).is_empty());
    assert_eq!(protected(&kubeadm(), true), ["not checked: /proc/sys of the host"]);
}

#[test]
fn the_setting_is_taken_back_where_it_is_written() {
    let fix = |tree: MemoryTree| {
        let findings = findings_with(&tree.file("/proc/sys/vm/overcommit_memory", "0\n"), Inputs::default());
        findings.into_iter().find(|one| one.rule == "KN004").unwrap().fix.unwrap()
    };
    let flag = fix(kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--protect-kernel-defaults\n"));
    assert!(flag.ends_with("Or write --protect-kernel-defaults=false at /etc/default/kubelet:1"), "{flag}");
    let rke2 = |words: &str, config: &str| {
        MemoryTree::new()
            .file(
                "/usr/local/lib/systemd/system/rke2-agent.service",
                format!("[Service]\nExecStart=/usr/local/bin/rke2 agent {words}\n"),
            )
            .file("/etc/rancher/rke2/config.yaml", config)
    };
    let option = fix(rke2("--protect-kernel-defaults", "server: https://a:9345\n"));
    assert!(option.contains("Or take protect-kernel-defaults out of /usr/local"), "{option}");
    let item = fix(rke2("", "kubelet-arg: [protect-kernel-defaults=true, v=2]\nprofile: cis\n"));
    assert!(item.contains("Or take protect-kernel-defaults out of /etc/rancher"), "{item}");
    let profile = fix(rke2("", "server: https://a:9345\nprofile: cis\n"));
    assert!(profile.contains("sysctl --system") && !profile.contains("Or "), "{profile}");
}

#[test]
fn cgroup_v2_needs_a_memory_controller() {
    let found = |controllers: &str, launcher: Launcher| {
        let tree = kubeadm().file("/sys/fs/cgroup/cgroup.controllers", controllers);
        let mut snapshot = with_settings(&tree, Inputs::default(), &[]);
        snapshot.command.launcher = launcher;
        says(&snapshot, "KN005").join("")
    };
    assert!(found("cpuset cpu io pids\n", Launcher::K3s).starts_with("fatal /sys/fs/cgroup/cgroup.controllers:1: "));
    assert!(found("cpuset cpu io pids\n", Launcher::Direct).starts_with("error "));
    for (controllers, launcher) in [("cpuset cpu memory\n", Launcher::K3s), ("\n", Launcher::Direct)] {
        assert_eq!(found(controllers, launcher), "");
    }
    let server = "[Service]\nExecStart=/usr/local/bin/k3s server --disable-agent\n";
    let tree = MemoryTree::new().file("/etc/systemd/system/k3s.service", server);
    let tree = tree.file("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n");
    assert!(findings_with(&tree, Inputs::default()).iter().all(|one| one.rule != "KN005"), "there is no kubelet");
}
