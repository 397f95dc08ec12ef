use crate::rules::tests::support::{DROP_IN, external, found, kubeadm};

const DIRECTORY: &str = "/etc/systemd/system/kubelet.service.d";
const FLAG: &str = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";

#[test]
fn a_file_that_is_no_drop_in_is_an_error_with_a_wanted_flag() {
    for (path, text, severity) in [
        (format!("{DIRECTORY}/20-cloud.conf.bak"), FLAG, "error"),
        (format!("{DIRECTORY}/20-cloud.conf.bak"), "[Service]\n", "warning"),
        (format!("{DIRECTORY}/20-cloud.conf.dpkg-old"), "[Service]\n", "info"),
        (format!("{DIRECTORY}/20-cloud.conf~"), "[Service]\n", "info"),
        (format!("{DIRECTORY}/20-cloud.config"), "[Service]\n", "warning"),
        (format!("{DIRECTORY}/.20-cloud.conf"), "[Service]\n", "warning"),
        (format!("{DIRECTORY}/.20-cloud.conf.swp"), "[Service]\n", "info"),
        ("/etc/systemd/system/kubelet.d/20-cloud.conf".to_owned(), FLAG, "error"),
        ("/etc/systemd/kubelet.service.d/20-cloud.conf".to_owned(), FLAG, "error"),
        ("/usr/lib/systemd/kubelet.service.d/20-cloud.conf".to_owned(), FLAG, "error"),
        ("/etc/systemd/system/kubelet-.service.d/20-cloud.conf".to_owned(), "[Service]\n", "info"),
    ] {
        let found = found(&kubeadm().file(&path, text), external(), "SD009");
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(found[0].starts_with(&format!("{severity} {path}:1")), "{found:?}");
    }
    assert!(
        found(&kubeadm().file(format!("{DIRECTORY}/20-cloud.conf"), "[Service]\n"), external(), "SD009").is_empty()
    );
}

#[test]
fn the_better_directory_hides_a_file_of_the_same_name() {
    let tree = kubeadm()
        .file(format!("{DIRECTORY}/10-kubeadm.conf"), "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2\n");
    let found = found(&tree, external(), "SD010");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("error {DROP_IN}:1: ")), "its flags are given nowhere: {found:?}");
}

#[test]
fn a_copy_with_the_same_flags_loses_nothing() {
    // image-builder's own 10-kubeadm.conf hides the packaged one.
    let text = "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b --kubeconfig=/k\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/c\"\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS\n";
    let found = found(&kubeadm().file(format!("{DIRECTORY}/10-kubeadm.conf"), text), external(), "SD010");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_mask_is_named_with_what_it_is() {
    let masked = |tree: crate::kubelet::tree::MemoryTree| found(&tree, external(), "SD010");
    let vendor = "/usr/lib/systemd/system/kubelet.service.d/20-cloud.conf";
    let tree = kubeadm().file(vendor, FLAG);
    let link = masked(tree.clone().link(format!("{DIRECTORY}/20-cloud.conf"), "/dev/null"));
    assert!(link[0].starts_with("warning") && link[0].contains("link to /dev/null"), "{link:?}");
    let empty = masked(tree.clone().file(format!("{DIRECTORY}/20-cloud.conf"), ""));
    assert!(empty[0].contains("empty file"), "{empty:?}");
    assert!(masked(tree).is_empty());
}
