use crate::{
    kubelet::{resolve::Inputs, tree::MemoryTree},
    rules::testing::{UNIT, found, kubeadm},
};

fn k3s() -> MemoryTree {
    MemoryTree::new().file("/etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n")
}

fn microk8s(args: &str) -> MemoryTree {
    MemoryTree::new()
        .file(
            "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
            "[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
        )
        .link("/var/snap/microk8s/current", "7394")
        .file("/var/snap/microk8s/7394/args/kubelet", args)
}

fn k8s(args: &str) -> MemoryTree {
    MemoryTree::new()
        .file("/etc/systemd/system/snap.k8s.kubelet.service", "[Service]\nExecStart=/usr/bin/snap run k8s.kubelet\n")
        .file("/var/snap/k8s/common/args/kubelet", args)
}

fn judged(tree: &MemoryTree, rule: &str) -> Vec<String> {
    found(tree, Inputs::default(), rule)
}

#[test]
fn sd023_names_what_hides_the_words() {
    let tree = kubeadm().file(UNIT, "[Service]\nExecStart=/bin/sh -c 'exec /usr/bin/kubelet $KUBELET_EXTRA_ARGS'\n");
    let tree = tree.without(crate::rules::testing::DROP_IN);
    assert_eq!(
        judged(&tree, "SD023"),
        ["info /usr/lib/systemd/system/kubelet.service:2: the kubelet's arguments cannot be derived from the unit \
             kubelet.service: /bin/sh is a shell, and the kubelet's arguments are in its command"]
    );
    let script = k3s().file("/etc/rancher/k3s/config.yaml", "kubelet-arg: [\n");
    let found = judged(&script, "SD023");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("info /etc/rancher/k3s/config.yaml"), "{found:?}");
}

#[test]
fn sd023_is_silent_about_wrappers_that_hand_the_words_on() {
    assert_eq!(judged(&kubeadm(), "SD023"), Vec::<String>::new());
    let tree = kubeadm().file(
        "/etc/systemd/system/kubelet.service.d/20-nice.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/nice -n -5 /usr/bin/kubelet --v=2\n",
    );
    assert_eq!(judged(&tree, "SD023"), Vec::<String>::new());
    assert_eq!(judged(&k3s(), "SD023"), Vec::<String>::new());
}

#[test]
fn sd027_names_the_later_key_and_what_is_lost() {
    let tree = k3s()
        .file(
            "/etc/rancher/k3s/config.yaml",
            "node-ip: 10.0.0.21\nkubelet-arg:\n  - cloud-provider=external\n  - max-pods=50\n",
        )
        .file("/etc/rancher/k3s/config.yaml.d/50-x.yaml", "kubelet-arg:\n  - max-pods=60\n");
    assert_eq!(
        judged(&tree, "SD027"),
        ["error /etc/rancher/k3s/config.yaml.d/50-x.yaml:1: kubelet-arg here replaces the list of \
             /etc/rancher/k3s/config.yaml:2 (k3s: later files win; lists are not joined). Lost: \
             cloud-provider=external"]
    );
}

#[test]
fn sd027_is_silent_where_nothing_is_lost() {
    let first = "kubelet-arg:\n  - max-pods=50\nnode-label: a=b\n";
    for later in ["kubelet-arg+:\n  - v=2\n", "kubelet-arg:\n  - max-pods=60\n  - v=2\n", "node-ip: 10.0.0.1\n"] {
        let tree =
            k3s().file("/etc/rancher/k3s/config.yaml", first).file("/etc/rancher/k3s/config.yaml.d/50-x.yaml", later);
        assert_eq!(judged(&tree, "SD027"), Vec::<String>::new(), "{later}");
    }
}

#[test]
fn sd028_names_the_two_blanks_and_the_lost_quotes() {
    assert_eq!(
        judged(&microk8s("--v=2\n--node-ip=10.0.0.5  --max-pods=50\n--node-labels=\"a=b c=d\"\n"), "SD028"),
        [
            "fatal /var/snap/microk8s/current/args/kubelet:2: two blanks between flags at \
             /var/snap/microk8s/current/args/kubelet:2: the kubelet gets an empty argument and exits with `unknown \
             command`",
            "fatal /var/snap/microk8s/current/args/kubelet:3: the quotes at \
             /var/snap/microk8s/current/args/kubelet:3 are deleted and their blank splits: the kubelet gets what \
             follows as an argument of its own and exits with `unknown command`",
        ]
    );
}

#[test]
fn sd028_knows_which_snap_reads_how() {
    let unquoted = "--eviction-hard=memory.available<1Gi\n";
    assert_eq!(judged(&microk8s(unquoted), "SD028"), Vec::<String>::new());
    let found = judged(&k8s(unquoted), "SD028");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("fatal /var/snap/k8s/common/args/kubelet:1: `<` at"), "{found:?}");
    let quoted = "# flags\n--eviction-hard='memory.available<1Gi'  --v=2\n";
    assert_eq!(judged(&k8s(quoted), "SD028"), Vec::<String>::new());
    assert_eq!(judged(&microk8s("--eviction-hard=\"memory.available<1Gi\"\n"), "SD028"), Vec::<String>::new());
}
