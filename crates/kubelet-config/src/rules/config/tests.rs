use crate::{
    kubelet::{resolve::Inputs, snapshot::Lifecycle, tree::MemoryTree},
    rules::testing::{DROP_IN, findings_with, found, kubeadm},
};

const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const REST: &str = "cgroupDriver: systemd\nclusterDNS:\n- 10.96.0.10\nsystemReserved:\n  memory: 500Mi\n";

fn with(more: &str) -> MemoryTree {
    kubeadm().file(CONFIG, format!("{HEAD}{more}{REST}"))
}

/// A host whose kubelet is given `--config-dir=/d`.
fn with_dir() -> MemoryTree {
    kubeadm().file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--config-dir=/d\"\n")
}

fn version(text: &str) -> Inputs {
    Inputs { version: Some(text.parse().unwrap()), ..Inputs::default() }
}

fn before() -> Inputs {
    Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() }
}

#[test]
fn a_healthy_configuration_gives_nothing() {
    for rule in ["CF001", "CF002", "CF003", "CF004", "CF005", "CF007", "CF008"] {
        assert!(found(&kubeadm(), Inputs::default(), rule).is_empty(), "{rule}");
    }
}

#[test]
fn a_field_of_another_case_is_an_error_where_a_node_depends_on_it() {
    let tree = with("RotateCertificates: true\n");
    assert_eq!(
        found(&tree, Inputs::default(), "CF002"),
        [
            "error /var/lib/kubelet/config.yaml:3: unknown field RotateCertificates (names are case-sensitive): the kubelet logs a warning and goes on without it, with rotateCertificates: false; the client certificate will expire; did you mean rotateCertificates?"
        ]
    );
    let finding = &findings_with(&tree, Inputs::default()).into_iter().find(|finding| finding.rule == "CF002").unwrap();
    assert_eq!((finding.at.column, finding.at.width), (1, 18));
    assert!(finding.fix.as_ref().unwrap().contains("rotateCertificates: true"));
    assert!(found(&tree, Inputs::default(), "AU003").is_empty());
    // The right line is there too: nothing is lost.
    let both = with("RotateCertificates: true\nrotateCertificates: true\n");
    assert!(found(&both, Inputs::default(), "CF002")[0].starts_with("warning"));
}

#[test]
fn other_unknown_fields_are_warnings() {
    let tree =
        with("rotateCertificates: true\nmax-pods: 20\nimageGCHighThreshold: 3\nmaxOpenFiles: 1\nmaxOpenFiles: 2\n");
    let found = found(&tree, Inputs::default(), "CF002");
    assert!(
        found[0].starts_with("error")
            && found[0].contains("max-pods (a flag's name)")
            && found[0].contains("maxPods: 110")
    );
    assert!(found[1].starts_with("warning") && found[1].contains("imageGCHighThreshold"));
    assert!(found[2].starts_with("warning") && found[2].contains("maxOpenFiles stands twice"));
    assert_eq!(found.len(), 3);
}

#[test]
fn what_cannot_be_loaded_is_fatal() {
    for (text, part) in [
        (format!("{HEAD}maxPods: many\n"), ":3: the kubelet cannot load"),
        (format!("{HEAD}\tmaxPods: 1\n"), ":3: the kubelet cannot load"),
        ("kind: Config\napiVersion: v1\n".to_owned(), ":1: the kubelet cannot load"),
        (String::new(), "config.yaml: the kubelet cannot load"),
    ] {
        let found = found(&kubeadm().file(CONFIG, text), Inputs::default(), "CF001");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("fatal") && found[0].contains(part), "{found:?}");
    }
}

#[test]
fn a_missing_file_is_normal_before_the_join() {
    let tree = kubeadm().without(CONFIG);
    let after = found(&tree, Inputs::default(), "CF001");
    assert!(after[0].starts_with(&format!("fatal {DROP_IN}:3")), "{after:?}");
    assert!(found(&tree, before(), "CF001")[0].starts_with("info"));
}

#[test]
fn drop_ins_need_their_kind_and_a_folder() {
    let tree = with_dir().file("/d/a.conf", "maxPods: 1\n").file("/d/b.conf", format!("{HEAD}port: x\n"));
    assert_eq!(
        found(&tree, version("1.33.0"), "CF005"),
        ["fatal /d/a.conf: the drop-in /d/a.conf has no kind: write kind: KubeletConfiguration: the kubelet exits"]
    );
    assert!(found(&tree, version("1.33.0"), "CF001")[0].starts_with("fatal /d/b.conf:3"));
    assert!(found(&tree, version("1.33.0"), "CF003").is_empty());
    assert!(found(&with_dir(), version("1.33.0"), "CF003")[0].starts_with("fatal"));
    assert!(found(&with_dir(), before(), "CF003")[0].starts_with("warning"));
}

#[test]
fn config_dir_wants_its_variable_in_1_28_and_1_29() {
    let tree = with_dir().file("/d/a.conf", HEAD);
    let found_in = |tree: &MemoryTree, text| found(tree, version(text), "CF003");
    assert!(found_in(&tree, "1.29.6")[0].contains("KUBELET_CONFIG_DROPIN_DIR_ALPHA"));
    assert!(found_in(&tree, "1.30.0").is_empty());
    let set = tree.file("/etc/default/kubelet", "KUBELET_CONFIG_DROPIN_DIR_ALPHA=true\n");
    assert!(found_in(&set, "1.29.6").is_empty());
}

#[test]
fn files_that_are_no_conf_are_told() {
    let tree = with_dir().file("/d/a.conf", HEAD).file("/d/b.yaml", HEAD).file("/d/README", "x");
    assert_eq!(
        found(&tree, version("1.33.0"), "CF004"),
        [
            "warning /d/b.yaml: /d/b.yaml is not read: --config-dir takes files that end in .conf alone",
            "info /d/README: /d/README is not read: --config-dir takes files that end in .conf alone",
        ]
    );
    let linked = with_dir().file("/real/a.conf", HEAD).link("/d", "/real");
    assert!(found(&linked, version("1.33.0"), "CF004")[0].contains("nothing in it is read"));
}

#[test]
fn a_field_newer_than_the_kubelet_is_told() {
    let tree = with("rotateCertificates: true\nfailCgroupV1: false\n");
    assert_eq!(
        found(&tree, version("1.30.4"), "CF008"),
        [
            "warning /var/lib/kubelet/config.yaml:4: failCgroupV1 exists since 1.31; this kubelet is 1.30.4 and passes over it"
        ]
    );
    assert!(found(&tree, version("1.30.4"), "CF002").is_empty());
    assert!(found(&tree, version("1.31.0"), "CF008").is_empty());
}

#[test]
fn a_value_that_the_kubelet_refuses_is_fatal() {
    for (text, part) in [
        ("maxPods: -1\n", "maxPods is -1, and must be 0 or more"),
        ("healthzPort: 70000\n", "healthzPort is 70000, and must be 65535 or less"),
        ("oomScoreAdj: 1001\n", "oomScoreAdj is 1001"),
        (
            "imageGCLowThresholdPercent: 90\n",
            "imageGCLowThresholdPercent 90 must be less than imageGCHighThresholdPercent 85",
        ),
        ("imageGCHighThresholdPercent: 80\n", "imageGCHighThresholdPercent does not fit"),
        ("maxParallelImagePulls: 2\nserializeImagePulls: true\n", "serializeImagePulls is true"),
        ("shutdownGracePeriodCriticalPods: 10s\n", "longer than shutdownGracePeriod"),
        ("shutdownGracePeriod: 500ms\n", "0 or at least 1s"),
        ("evictionSoft: {memory.available: 1Gi}\n", "evictionSoft has memory.available"),
        ("hairpinMode: bridge\n", "hairpinMode is bridge, and must be one of"),
        ("enforceNodeAllocatable: [none, pods]\n", "has none beside others"),
        ("systemCgroups: /x\n", "cgroupRoot is not"),
        ("runOnce: true\n", "runOnce is true"),
    ] {
        let found = found(&with(text), Inputs::default(), "CF007");
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(&format!("fatal {CONFIG}:3: ")) && found[0].contains(part), "{found:?}");
    }
    let fine = "maxPods: 0\nreadOnlyPort: 0\nmaxParallelImagePulls: 2\nshutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";
    assert!(found(&with(fine), Inputs::default(), "CF007").is_empty());
    let flag = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--max-pods=-1\n");
    assert!(found(&flag, Inputs::default(), "CF007")[0].starts_with("fatal /etc/default/kubelet:1: "));
}
