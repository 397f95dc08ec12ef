use super::*;
use crate::kubelet::systemd::{Manager, resolve_unit};
use crate::kubelet::tree::MemoryTree;

/// A unit that reads `/etc/default/kubelet` alone.
fn host() -> MemoryTree {
    MemoryTree::new().file(
        "/usr/lib/systemd/system/kubelet.service",
        "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
    )
}

fn found(tree: &MemoryTree) -> Vec<String> {
    let unit = resolve_unit(tree, "kubelet.service", &Manager::default());
    find(tree, &unit)
        .into_iter()
        .map(|file| {
            let names: Vec<_> =
                file.assignments.iter().map(|assignment| format!("{}={}", assignment.name, assignment.value)).collect();
            format!("{}: {}", file.at, names.join(" "))
        })
        .collect()
}

#[test]
fn the_file_of_the_other_distribution_is_found_and_the_one_that_is_read_is_not() {
    let tree = host()
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--v=2\n")
        .file("/etc/sysconfig/kubelet", "# x\nKUBELET_EXTRA_ARGS=--max-pods=50\n")
        .file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.7\"\n");
    assert_eq!(
        found(&tree),
        [
            "/etc/sysconfig/kubelet: KUBELET_EXTRA_ARGS=--max-pods=50",
            "/var/lib/kubelet/kubeadm-flags.env: KUBELET_KUBEADM_ARGS=--node-ip=10.0.0.7",
        ]
    );
}

#[test]
fn a_file_that_is_read_by_another_name_is_read() {
    let tree = host()
        .link("/etc/default/kubelet", "../sysconfig/kubelet")
        .file("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--v=2\n");
    assert_eq!(found(&tree), Vec::<String>::new());
}

#[test]
fn a_file_that_nothing_reads_is_known_by_its_name_or_by_its_variables() {
    let tree = host()
        .file("/etc/default/kubelet-extra", "OPTS=\"--cloud-provider=external --v=2\"\n")
        .file("/etc/kubernetes/extra.env", "KUBELET_ARGS=\n");
    assert_eq!(
        found(&tree),
        [
            "/etc/default/kubelet-extra: OPTS=--cloud-provider=external --v=2",
            "/etc/kubernetes/extra.env: KUBELET_ARGS=",
        ]
    );
}

#[test]
fn what_is_no_environment_file_of_a_kubelets_is_left_alone() {
    let tree = host()
        .file("/etc/default/kubeletconfig.json", "{\"kind\": \"KubeletConfiguration\", \"x\": \"KUBELET_ --node-ip\"}")
        .file("/etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\n# KUBELET_X=--node-ip=1\n")
        .file("/etc/default/docker", "DOCKER_OPTS=\"--dns 8.8.8.8\"\n")
        .file("/etc/kubernetes/apiserver", "KUBE_API_ARGS=\"--cloud-provider=external\"\n")
        .file("/etc/sysconfig/kube-proxy", "ARGS=\"--hostname-override=n\"\n")
        .file("/etc/default/kubelet.dpkg-old", "KUBELET_EXTRA_ARGS=--v=2\n")
        .file("/etc/sysconfig/kubelet.sh", "#!/bin/sh\nKUBELET_EXTRA_ARGS=--v=2\n")
        .other("/etc/sysconfig/kubelet")
        .file("/etc/default/large", format!("KUBELET_X=--v=2\n{}", "#".repeat(MAX_BYTES)));
    assert_eq!(found(&tree), Vec::<String>::new());
}

#[test]
fn a_file_that_a_command_of_the_unit_names_may_be_read_by_it() {
    let tree = MemoryTree::new()
        .file(
            "/etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/bin/sh -c '. /etc/sysconfig/kubelet; exec kubelet $KUBELET_ARGS'\n",
        )
        .file("/etc/sysconfig/kubelet", "KUBELET_ARGS=--v=2\n");
    assert_eq!(found(&tree), Vec::<String>::new());
}

#[test]
fn a_directory_of_thousands_gives_a_bounded_answer() {
    let mut tree = host();
    for n in 0..3000 {
        tree = tree.file(format!("/etc/default/f{n:04}"), "KUBELET_X=--v=2\n");
    }
    assert_eq!(found(&tree).len(), MAX_FOUND);
}
