use super::*;
use crate::kubelet::effective::From;
use crate::kubelet::layers::Launcher;
use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::Process;
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{kubeadm, says, with_settings};

fn cni(tree: &MemoryTree, inputs: Inputs) -> Vec<String> {
    says(&with_settings(tree, inputs, &[]), "NW001")
}

fn live() -> Inputs {
    Inputs { live: true, ..Inputs::default() }
}

fn running(age_secs: u64) -> Inputs {
    Inputs { process: Some(Process { age_secs: Some(age_secs), ..Process::default() }), ..live() }
}

#[test]
fn a_directory_without_a_configuration_is_an_error_once_the_first_minutes_are_over() {
    let empty = kubeadm().directory("/etc/cni/net.d");
    let found = cni(&empty, running(600));
    assert!(found[0].starts_with("error /etc/cni/net.d: ") && found[0].contains("600 s"), "{found:?}");
    assert!(cni(&empty, running(20))[0].starts_with("warning /etc/cni/net.d: "));
    assert!(cni(&kubeadm(), live())[0].contains("/etc/cni/net.d does not exist"));
    let there = kubeadm().file("/etc/cni/net.d/05-cilium.conflist", "{}");
    assert!(cni(&there, running(600)).is_empty());
}

#[test]
fn an_image_and_a_node_before_its_start_have_no_cni_by_nature() {
    let empty = kubeadm().directory("/etc/cni/net.d");
    assert!(cni(&empty, Inputs::default())[0].starts_with("not checked: the running host"));
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..live() };
    assert!(cni(&empty, before).is_empty());
}

#[test]
fn the_runtimes_own_directory_counts() {
    let text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = '/etc/cni/mine'\n";
    let tree = kubeadm().file("/etc/containerd/config.toml", text).file("/etc/cni/net.d/05-cilium.conflist", "{}");
    assert!(cni(&tree, live())[0].starts_with("error /etc/cni/mine: "));
    // k3s' directory is known once k3s has written its containerd's configuration.
    let endpoint = "unix:///run/k3s/containerd/containerd.sock".into();
    let pairs = [("containerRuntimeEndpoint", endpoint, From::Distribution)];
    let snapshot = with_settings(&tree, live(), &pairs);
    assert!(says(&snapshot, "NW001")[0].starts_with("not checked: the directory"));
}

const STUB: &str = "nameserver 127.0.0.53\noptions edns0\n";

/// What is said if `resolvConf` is set to `/etc/resolv.conf`, and the survey has read it.
fn resolv(tree: &MemoryTree, from: From, change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
    let pairs = [("resolvConf", "/etc/resolv.conf".into(), from)];
    let mut snapshot = with_settings(tree, Inputs::default(), &pairs);
    change(&mut snapshot);
    says(&snapshot, "NW003")
}

fn config(line: u32) -> From {
    From::File(Location::file("/var/lib/kubelet/config.yaml").at_line(line))
}

#[test]
fn a_loopback_name_server_makes_coredns_ask_itself() {
    let tree = kubeadm().file("/etc/resolv.conf", STUB);
    let found = resolv(&tree, config(4), |_| ());
    assert!(found[0].starts_with("warning /var/lib/kubelet/config.yaml:4: "), "{found:?}");
    assert!(found[0].contains("127.0.0.53 (/etc/resolv.conf:1)"), "{found:?}");
    let default = From::Default { legacy: false };
    assert!(resolv(&tree, default.clone(), |_| ())[0].starts_with("warning /etc/resolv.conf:1: "));
    let linked = kubeadm().link("/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf");
    assert_eq!(resolv(&linked, default.clone(), |_| ()).len(), 1);
    for good in ["nameserver 10.0.0.2\nnameserver fd00::1%eth0\n", "search x\n", ""] {
        let tree = kubeadm().file("/etc/resolv.conf", good);
        assert!(resolv(&tree, default.clone(), |_| ()).is_empty(), "{good}");
    }
    // k3s hands its kubelet another file.
    let k3s = |snapshot: &mut Snapshot| snapshot.command.launcher = Launcher::K3s;
    assert!(resolv(&tree, default, k3s).is_empty());
}

#[test]
fn a_missing_file_is_judged_on_a_running_host_alone() {
    let image = resolv(&kubeadm(), config(4), |_| ());
    assert_eq!(image, ["not checked: the file of resolvConf, which the running host writes"]);
    let host = resolv(&kubeadm(), config(4), |snapshot| snapshot.observed.live = true);
    assert!(
        host[0].starts_with(
            "warning /var/lib/kubelet/config.yaml:4: resolvConf is /etc/resolv.conf, which does not exist"
        ),
        "{host:?}"
    );
}

#[test]
fn pods_get_the_servers_that_systemd_resolved_asks() {
    let edits = |server: &str| {
        let tree = kubeadm().file("/etc/resolv.conf", format!("nameserver {server}\n"));
        let found = crate::rules::tests::support::findings_with(&tree, Inputs::default());
        found.into_iter().find(|one| one.rule == "NW003").unwrap().remedy.edits().cloned().collect::<Vec<_>>()
    };
    let line = "resolvConf: /run/systemd/resolve/resolv.conf";
    assert!(matches!(&edits("127.0.0.53")[0], crate::step::Step::Append { lines, .. } if lines == line));
    // Another name server of the host's has no such file.
    assert_eq!(edits("127.0.0.1"), []);
}
