use crate::kubelet::config::fields::Kind;
use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::Lifecycle;
use crate::kubelet::tree::MemoryTree;
use crate::rules::Severity;
use crate::rules::tests::support::{DROP_IN, answered, carets, findings_with, fixed, found, kubeadm};

const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const REST: &str = "cgroupDriver: systemd\nclusterDNS:\n- 10.96.0.10\nsystemReserved:\n  memory: 500Mi\n";

fn text(more: &str) -> String {
    format!("{HEAD}{more}{REST}")
}

fn with(more: &str) -> MemoryTree {
    kubeadm().file(CONFIG, text(more))
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
    for rule in ["CF001", "CF002", "CF003", "CF004", "CF005", "CF007"] {
        assert!(found(&kubeadm(), Inputs::default(), rule).is_empty(), "{rule}");
    }
}

#[test]
fn an_edit_changes_no_more_than_its_finding_and_no_file_of_another_program() {
    let mut with_alias = with("evictionMinimumReclaim: &r {memory.available: 1}\nevictionSoftGracePeriod: *r\n");
    assert_eq!(fixed(&with_alias, &Inputs::default(), "CF001"), [""; 0]);
    with_alias = with("evictionMinimumReclaim: {memory.available: 1}\n");
    assert_eq!(fixed(&with_alias, &Inputs::default(), "CF001").len(), 1);
    let commented = with("RotateCertificates: true # ticket 4711\nrotateCertificates: true\n");
    assert_eq!(fixed(&commented, &Inputs::default(), "CF002"), [""; 0]);
    let openshift = with("RotateCertificates: true\n").file("/etc/os-release", "ID=rhcos\n");
    assert_eq!(fixed(&openshift, &Inputs::default(), "CF002"), [""; 0]);
    for (file, edits) in [("50-rancher.yaml", 0), ("50-own.yaml", 1)] {
        let path = format!("/etc/rancher/rke2/config.yaml.d/{file}");
        let rke2 = MemoryTree::new()
            .file("/etc/systemd/system/rke2-server.service", "[Service]\nExecStart=/usr/local/bin/rke2 server\n")
            .file(path, "kublet-arg:\n- max-pods=50\n");
        assert_eq!(fixed(&rke2, &version("1.33.4+rke2r1"), "SD029").len(), edits, "{file}");
    }
}

#[test]
fn a_fix_names_a_setting_as_it_is_written_at_its_place() {
    let fix = |tree: &MemoryTree, rule: &str| {
        let findings = findings_with(tree, Inputs::default());
        findings.into_iter().find(|finding| finding.rule == rule).and_then(|finding| finding.fix).unwrap()
    };
    let flag = |extra: &str| kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"{extra}\"\n"));
    let json =
        kubeadm().file(CONFIG, r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"}"#);
    let by_drop_in = kubeadm().file(
        "/etc/systemd/system/kubelet.service.d/20-own.conf",
        "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml --read-only-port=10255\"\n",
    );
    let misspelt = with("authentication:\n  x509:\n    clientCaFile: /ca\n");
    for (tree, rule, part) in [
        (with("authentication:\n  anonymous:\n    enabled: true\n"), "AU007", "write `enabled: false` at"),
        (misspelt, "CF002", "write `clientCAFile` in place of `clientCaFile` at"),
        (json, "AU003", "add `\"rotateCertificates\": true` at"),
        (with("authorization:\n  mode: AlwaysAllow\n"), "AU008", "write `mode: Webhook` at"),
        (with("imageGCLowThresholdPercent: 90\n"), "CF007", "write `imageGCLowThresholdPercent: 80` at"),
        (by_drop_in, "AU009", "then `systemctl daemon-reload && systemctl restart kubelet`"),
        (flag("--eviction-soft=memory.available<1Gi"), "CF007", "into --eviction-soft-grace-period"),
        (flag("--eviction-hard=memory.available<100Mi,nodefs.available<60%"), "RS003", "write nodefs.available<10%"),
    ] {
        let fix = fix(&tree, rule);
        assert!(fix.contains(part), "{fix}");
    }
}

#[test]
fn a_field_of_another_case_is_an_error_where_a_node_depends_on_it() {
    let tree = with("RotateCertificates: true\n");
    assert_eq!(carets(&tree, Inputs::default(), "CF002"), ["error /var/lib/kubelet/config.yaml:3:1+18"]);
    assert_eq!(fixed(&tree, &Inputs::default(), "CF002"), [text("rotateCertificates: true\n")]);
    assert!(found(&tree, Inputs::default(), "AU003").is_empty());
    // The right line is there too: nothing is lost.
    let both = with("RotateCertificates: true\nrotateCertificates: true\n");
    assert!(found(&both, Inputs::default(), "CF002")[0].starts_with("warning"));
    assert_eq!(fixed(&both, &Inputs::default(), "CF002"), [text("rotateCertificates: true\n")]);
}

#[test]
fn other_unknown_fields_are_warnings() {
    let fields = "rotateCertificates: true\nmax-pods: 20\nimageGCHighThreshold: 90\nmaxOpenFiles: 1\nmaxOpenFiles: 2\nnothingNear: 1\n";
    let tree = with(fields);
    let at = |line, column| format!("/var/lib/kubelet/config.yaml:{line}:1+{column}");
    let found = carets(&tree, Inputs::default(), "CF002");
    assert_eq!(
        found,
        [
            format!("error {}", at(4, 8)),
            format!("warning {}", at(5, 20)),
            format!("warning {}", at(7, 12)),
            format!("warning {}", at(8, 11)),
        ]
    );
    // What was meant by the last one is not known.
    let right = fields.replace("max-pods", "maxPods").replace("Threshold:", "ThresholdPercent:");
    assert_eq!(fixed(&tree, &Inputs::default(), "CF002"), [text(&right)]);
}

#[test]
fn a_threshold_of_the_image_garbage_collector_gets_its_counterpart() {
    let fixed = |tree: &MemoryTree| fixed(tree, &Inputs::default(), "CF007");
    let high = "imageGCHighThresholdPercent: 70\n";
    assert_eq!(fixed(&with(high)), [format!("{}imageGCLowThresholdPercent: 65\n", text(high))]);
    assert_eq!(fixed(&with("imageGCLowThresholdPercent: 90\n")), [text("imageGCLowThresholdPercent: 80\n")]);
    let json = "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"imageGCHighThresholdPercent\": 30}\n";
    let right = json.replace("{\"kind", "{\"imageGCLowThresholdPercent\": 25, \"kind");
    assert_eq!(fixed(&kubeadm().file(CONFIG, json)), [right]);
    let flag = |words: &str| format!("KUBELET_EXTRA_ARGS={words}\n");
    let tree = kubeadm().file("/etc/default/kubelet", flag("--v=2 --image-gc-low-threshold=90"));
    assert_eq!(fixed(&tree), [flag("--v=2 --image-gc-low-threshold=80")]);
    // Which of the two is wrong is not known.
    assert_eq!(fixed(&with("imageGCLowThresholdPercent: 60\nimageGCHighThresholdPercent: 50\n")), [""; 0]);
}

#[test]
fn a_value_of_another_type_is_written_in_the_right_one() {
    let fixed = |text: &str| fixed(&with(text), &Inputs::default(), "CF001");
    assert_eq!(fixed("maxPods: \"20\"\n"), [text("maxPods: 20\n")]);
    assert_eq!(fixed("failSwapOn: 'false'\n"), [text("failSwapOn: false\n")]);
    assert_eq!(fixed("kubeReserved: {cpu: 1}\n"), [text("kubeReserved: {cpu: \"1\"}\n")]);
    for unsure in ["maxPods: many\n", "syncFrequency: 10\n", "clusterDomain: yes\n"] {
        assert_eq!(fixed(unsure), [""; 0], "{unsure}");
    }
    let without_kind = kubeadm().file(CONFIG, "# ours\nkind: KubeletConfiguration\nmaxPods: 1\n");
    let right = "# ours\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 1\n";
    assert_eq!(super::super::tests::support::fixed(&without_kind, &Inputs::default(), "CF001"), [right]);
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
    assert!(found(&tree, before(), "CF001")[0].starts_with("fatal"), "kubeadm has written the kubeconfig, too");
    let image = tree.without("/etc/kubernetes/kubelet.conf");
    assert!(found(&image, before(), "CF001")[0].starts_with("info"));
}

#[test]
fn drop_ins_need_their_kind_and_a_directory() {
    let tree = with_dir().file("/d/a.conf", "maxPods: 1\n").file("/d/b.conf", format!("{HEAD}port: x\n"));
    assert!(found(&tree, version("1.33.0"), "CF005")[0].starts_with("fatal /d/a.conf: "));
    assert_eq!(fixed(&tree, &version("1.33.0"), "CF005"), [format!("{HEAD}maxPods: 1\n")]);
    assert!(found(&tree, version("1.33.0"), "CF001")[0].starts_with("fatal /d/b.conf:3"));
    assert!(found(&tree, version("1.33.0"), "CF003").is_empty());
    assert!(found(&with_dir(), version("1.33.0"), "CF003")[0].starts_with("fatal"));
    assert!(found(&with_dir(), before(), "CF003")[0].starts_with("fatal"));
}

#[test]
fn files_that_are_no_conf_are_not_read() {
    let tree = with_dir().file("/d/a.conf", HEAD).file("/d/b.yaml", HEAD).file("/d/README", "x");
    let ignored = carets(&tree, version("1.33.0"), "CF004");
    assert_eq!(ignored, ["warning /d/b.yaml:0+0", "info /d/README:0+0"]);
    let linked = with_dir().file("/real/a.conf", HEAD).link("/d", "/real");
    assert_eq!(carets(&linked, version("1.33.0"), "CF004"), ["warning /d:0+0"]);
}

#[test]
fn a_field_newer_than_the_kubelet_is_ignored() {
    let tree = with("rotateCertificates: true\nfailCgroupV1: false\n");
    assert_eq!(carets(&tree, version("1.30.4"), "CF002"), ["warning /var/lib/kubelet/config.yaml:4:1+12"]);
    assert_eq!(fixed(&tree, &version("1.30.4"), "CF002"), [text("rotateCertificates: true\n")]);
    assert!(found(&tree, version("1.31.0"), "CF002").is_empty());
}

#[test]
fn every_line_of_the_limits_is_a_setting_with_numbers_or_words() {
    let rows: Vec<[&str; 3]> = crate::kubelet::table::rows(super::limits::LIMITS).collect();
    assert!(rows.is_sorted());
    for [path, taken, gate] in rows {
        let field = crate::kubelet::config::fields::find(path);
        if path.starts_with("--") {
            continue;
        }
        let is_number = taken.split_once("..").is_some_and(|(least, _)| least.parse::<i64>().is_ok());
        let is_text = field.map(|field| matches!(field.kind, Kind::String | Kind::Duration | Kind::Flexible));
        assert_eq!(is_text, Some(!is_number), "{path} {taken}");
        assert!(gate == "-" || crate::kubelet::gates::find(gate).is_some(), "{gate}");
    }
}

/// What kubelets said of a sound configuration with one change: `x` if it exits, `-` if it runs. One letter is the answer of 1.36.3, four
/// are those of the releases; where they are the same, one release is tried.
#[test]
fn the_answers_of_real_kubelets_are_those_of_the_rules() {
    const RELEASES: [&str; 4] = ["1.34.4", "1.35.4", "1.36.3", "1.37.2"];
    let answers = include_str!("answers.txt");
    let mut wrong = Vec::new();
    for (index, line) in answers.lines().filter(|line| !line.starts_with('#')).enumerate() {
        let (answers, change) = line.split_once(' ').unwrap();
        let tree = answered(change);
        let releases = if answers.len() == 1 { &RELEASES[2..3] } else { &RELEASES[..] };
        assert_eq!(answers.len(), releases.len(), "{line}");
        let is_one = answers == "xxxx" || answers == "----";
        let asked = answers.chars().zip(releases).enumerate();
        for (_, (answer, release)) in asked.filter(|(place, _)| !is_one || place % 4 == index % 4) {
            let fatal = findings_with(&tree, version(release)).into_iter().find(|one| one.severity == Severity::Fatal);
            if fatal.is_some() != (answer == 'x') {
                wrong.push(format!("{release}: {line}: {:?}", fatal.map(|fatal| fatal.message)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_value_that_the_kubelet_cannot_decode_is_one_finding() {
    let listed = |tree: &MemoryTree| {
        let found = findings_with(tree, version("1.37.0")).into_iter();
        found.map(|one| (one.rule, one.message)).collect::<std::collections::BTreeSet<_>>()
    };
    let sound = listed(&with("rotateCertificates: true\n"));
    let more = |text: &str| {
        let found = listed(&with(&format!("rotateCertificates: true\n{text}\n")));
        found.difference(&sound).map(|(rule, _)| *rule).collect::<Vec<_>>()
    };
    let fields = crate::kubelet::config::fields::FIELDS.iter().filter(|field| !field.path.contains(['.', '[']));
    let own = ["rotateCertificates", "cgroupDriver", "clusterDNS", "systemReserved", "kind", "apiVersion"];
    for field in fields.filter(|field| !own.contains(&field.path)) {
        let value = if matches!(field.kind, Kind::List(_)) { "{a: b}" } else { "[1]" };
        assert_eq!(more(&format!("{}: {value}", field.path)), ["CF001"], "{}", field.path);
    }
    assert_eq!(more("shutdownGracePeriod: 30\nshutdownGracePeriodCriticalPods: 10s"), ["CF001"]);
}

#[test]
fn a_null_is_no_duration_unless_its_field_may_be_unset() {
    let found = |text: &str| found(&with(text), version("1.36.3"), "CF001");
    assert!(found("syncFrequency: null\n")[0].contains("syncFrequency takes a duration such as 1m30s, not null"));
    assert_eq!(found("shutdownGracePeriod: ~\nauthentication: {webhook: {cacheTTL: null}}\n").len(), 1);
    assert!(found("cpuCFSQuotaPeriod: null\nmaxPods: null\nlogging: {flushFrequency: null}\n").is_empty());
    let dropin = with_dir().file("/d/a.conf", format!("{HEAD}syncFrequency: null\n"));
    assert!(crate::rules::tests::support::found(&dropin, version("1.36.3"), "CF001").is_empty(), "deletes the field");
}

#[test]
fn the_kubelet_decodes_a_key_of_another_case_in_a_dropin() {
    for (text, fatal) in [("MaxPods: many", true), ("MaxPods: 5", false), ("Authentication: {X509: 5}", true)] {
        let tree = with_dir().file("/d/a.conf", format!("{HEAD}{text}\n"));
        assert_eq!(!found(&tree, version("1.36.3"), "CF001").is_empty(), fatal, "{text}");
    }
    assert!(
        found(&with("MaxPods: many\n"), version("1.36.3"), "CF001").is_empty(),
        "the main file takes no other case"
    );
}

#[test]
fn a_value_that_the_kubelet_refuses_is_fatal() {
    for text in [
        "maxPods: -1\n",
        "healthzPort: 70000\n",
        "oomScoreAdj: 1001\n",
        "imageGCLowThresholdPercent: 90\n",
        "imageGCHighThresholdPercent: 80\n",
        "maxParallelImagePulls: 2\nserializeImagePulls: true\n",
        "shutdownGracePeriodCriticalPods: 10s\n",
        "shutdownGracePeriod: 500ms\n",
        "evictionSoft: {memory.available: 1Gi}\n",
        "hairpinMode: bridge\n",
        "enforceNodeAllocatable: [none, pods]\n",
        "systemCgroups: /x\n",
        "runOnce: true\n",
        "tlsCipherSuites: [TLS_RSA_WITH_RC4]\n",
        "maxPods: -1\nuserNamespaces: {idsPerPod: 65536}\n",
        "kubeReserved: {cpu: -1m}\n",
        "registerWithTaints: [null]\n",
    ] {
        let found = found(&with(text), Inputs::default(), "CF007");
        assert!(found.len() == 1 && found[0].starts_with(&format!("fatal {CONFIG}:3: ")), "{text}: {found:?}");
    }
    let fine = "maxPods: 0\nreadOnlyPort: 0\nmaxParallelImagePulls: 2\nshutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";
    assert!(found(&with(fine), Inputs::default(), "CF007").is_empty());
    let flag = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--max-pods=-1\n");
    assert!(found(&flag, Inputs::default(), "CF007")[0].starts_with("fatal /etc/default/kubelet:1: "));
}

#[test]
fn the_runtimes_endpoint_has_a_default_since_1_27() {
    let judged = |tree: &MemoryTree, release: &str| {
        found(tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CF007").join("|")
    };
    for release in ["1.25.16", "1.26.9"] {
        let found = judged(&kubeadm(), release);
        assert!(found.starts_with("fatal /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7: "), "{found}");
        // In a file it is no field yet.
        let by_file = with("containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n");
        assert!(judged(&by_file, release).contains("--container-runtime-endpoint is not set"));
    }
    assert_eq!([judged(&kubeadm(), "1.27.1"), judged(&kubeadm(), "")], ["", ""]);
    // kubeadm join writes the flag into a file that an image does not have yet.
    let version = "1.25.16".parse().ok();
    let image = Inputs { version, lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    let later = "[Service]\nEnvironmentFile=-/var/lib/kubelet/later.env\n";
    let joins = kubeadm().file("/etc/systemd/system/kubelet.service.d/20-flags.conf", later);
    assert_eq!(found(&joins, image.clone(), "CF007").join("|"), "");
    assert!(!found(&kubeadm(), image, "CF007").is_empty());
    let given = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=/run/c.sock\n");
    assert_eq!(judged(&given, "1.26.9"), "");
}

#[test]
fn tracing_needs_its_gate_until_that_is_locked() {
    let judged = |text: &str, release: &str| {
        let tree =
            with(text).file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=/run/c.sock\n");
        found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CF007").join("|")
    };
    let traced = "tracing: {samplingRatePerMillion: 100}\n";
    let off = format!("{traced}featureGates: {{KubeletTracing: false}}\n");
    assert!(judged(&off, "1.33.4").contains("tracing needs the feature gate KubeletTracing"));
    assert!(judged(&off.replace("samplingRatePerMillion: 100", ""), "1.33.4").starts_with("fatal"), "the empty map");
    assert_eq!(judged("tracing: null\n", "1.26.4"), "");
    let both = "tracing: {endpoint: 'localhost:4317', samplingRatePerMillion: 100}\n";
    assert_eq!(judged(both, "1.26.4").matches("fatal").count(), 1, "one mistake is one finding");
    assert!(judged("tracing: {endpoint: 'localhost:4317'}\n", "1.26.4").starts_with("fatal"));
    assert_eq!(judged(traced, "1.33.4"), "");
}

#[test]
fn a_factor_of_memory_qos_needs_its_gate_since_1_37() {
    let judged = |factor: &str, gate: &str, release: &str| {
        let tree = with(&format!("memoryThrottlingFactor: {factor}\nfeatureGates: {{MemoryQoS: {gate}}}\n"));
        found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CF007").join("|")
    };
    let refused = judged("0.8", "false", "1.37.0");
    assert!(refused.contains("memoryThrottlingFactor needs the feature gate MemoryQoS"), "{refused}");
    for (factor, gate, release) in [("0.9", "false", "1.37.0"), ("0.8", "true", "1.37.0"), ("0.8", "false", "1.36.3")] {
        assert_eq!(judged(factor, gate, release), "", "{factor} {gate} {release}");
    }
}

/// The texts of kubelets 1.33.13 and 1.37.2: `getsubids: executable file not found`, `mismatched subuids and subgids`.
#[test]
fn the_user_kubelet_needs_subordinate_ids() {
    const LACK: &str = "lack one range alike, of multiples of 65536, for 110 pods";
    let range = "kubelet:65536:7208960\n";
    let with_ids = |uids: &str, gids: &str| {
        kubeadm()
            .file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nkubelet:x:999:999::/:/sbin/nologin\n")
            .file("/etc/subuid", uids)
            .file("/etc/subgid", gids)
    };
    let judged = |tree: &MemoryTree, release: &str| {
        found(tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CF007").join("|")
    };
    for (tree, at, why) in [
        (with_ids("", ""), "/etc/passwd:2", LACK),
        (with_ids(range, "kubelet:131072:7208960\n"), "/etc/subuid:1", LACK),
        (with_ids(range, ""), "/etc/subuid:1", LACK),
        (with_ids(&range.repeat(2), &range.repeat(2)), "/etc/subuid:1", LACK),
        (with_ids("999:65536:65536\n", "999:65536:65536\n"), "/etc/subuid:1", LACK),
        (with_ids("kubelet:100000:7208960\n", "kubelet:100000:7208960\n"), "/etc/subuid:1", LACK),
        (with_ids("kubelet:0:7208960\n", "kubelet:0:7208960\n"), "/etc/subuid:1", LACK),
        (with_ids(range, range).file("/usr/sbin/useradd", ""), "/etc/passwd:2", "getsubids is not installed"),
    ] {
        let found = judged(&tree, "1.33.4");
        assert!(found.starts_with(&format!("fatal {at}: ")) && found.contains(why), "{why}: {found}");
        assert_eq!(judged(&tree, "1.32.4"), "", "the gate is off");
    }
    let sound = with_ids(range, range);
    let installed = sound.clone().file("/usr/sbin/useradd", "").file("/usr/bin/getsubids", "");
    let remote = with_ids("", "").file("/etc/nsswitch.conf", "subid: sss\n");
    for tree in [sound, installed, remote, with_ids("", "").without("/etc/passwd")] {
        assert_eq!(judged(&tree, "1.33.4"), "");
    }
}

#[test]
fn memory_is_reserved_on_numa_nodes_that_are_there() {
    let by_node = "reservedMemory:\n- limits: {memory: 500Mi}\n- {numaNode: 1, limits: {memory: 100Mi}}\n";
    let judged = |policy: &str, nodes: &str| {
        let tree = with(&format!("memoryManagerPolicy: {policy}\n{by_node}"));
        found(&tree.file("/sys/devices/system/node/online", nodes), Inputs::default(), "CF007").join("|")
    };
    let missing = judged("Static", "0\n");
    assert!(missing.starts_with(&format!("fatal {CONFIG}:4: ")) && missing.contains("have: 1: the"), "{missing}");
    assert_eq!(judged("Static", "0-1\n"), "");
    assert_eq!(judged("None", "0\n"), "");
    let more = by_node.replace("500Mi}", "300Mi}")
        + "- {numaNode: 1, limits: {memory: 100Mi}}\n- {numaNode: 2, limits: {memory: 100Mi}}\n";
    let tree = with(&format!("memoryManagerPolicy: Static\n{more}")).file("/sys/devices/system/node/online", "0\n");
    let all = found(&tree, Inputs::default(), "CF007");
    assert!(all.len() == 1 && all[0].contains("have: 1, 2: the"), "one mistake is one finding: {all:?}");
    // Kubelet 1.31.4 makes no memory manager without the gate; since 1.32 it is locked.
    let without = format!("memoryManagerPolicy: Static\n{by_node}featureGates: {{MemoryManager: false}}\n");
    let tree = with(&without).file("/sys/devices/system/node/online", "0\n");
    assert!(found(&tree, version("1.31.4"), "CF007").is_empty());
    assert_eq!(found(&tree, version("1.33.4"), "CF007").len(), 1);
}

#[test]
fn a_field_that_is_not_indented_and_a_flag_in_the_file_are_told() {
    let tree = with(
        "rotateCertificates: true\nevictionHard:\n  memory.available: 100Mi\nnodefs.available: 10%\nnodeIP: 10.0.0.7\n",
    );
    let found = found(&tree, Inputs::default(), "CF002");
    assert!(found[0].starts_with(&format!("warning {CONFIG}:6: ")) && found[0].contains("not indented"), "{found:?}");
    assert!(found[1].contains("only the flag --node-ip"), "{found:?}");
}

#[test]
fn a_second_document_is_told_and_merge_keys_count() {
    let found_in = |text: &str| found(&kubeadm().file(CONFIG, text), Inputs::default(), "CF002").join("|");
    let two = found_in(&format!("---\n{}---\nmaxPods: 50\n", text("rotateCertificates: true\n")));
    assert!(two.starts_with(&format!("warning {CONFIG}:10: a second YAML document")), "{two}");
    assert_eq!(found_in(&format!("{}---\n# the end\n", text("rotateCertificates: true\n"))), "");
    let merged = with("x-own: &a {cpu: 100m, pid: '5'}\nkubeReserved:\n  <<: *a\n  cpu: 200m\n");
    let settings = crate::kubelet::resolve::resolve(&merged, Inputs::default()).settings;
    let reserved: Vec<_> = settings.map("kubeReserved").into_iter().collect();
    assert_eq!(reserved, [("cpu", "200m"), ("pid", "5")]);
    assert!(found(&with("kubeReserved:\n  <<: 5\n"), Inputs::default(), "CF001")[0].starts_with("fatal"));
}

#[test]
fn a_file_in_utf_16_is_read_if_a_byte_order_mark_announces_it() {
    let encoded = |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    let found = |file: Vec<u8>| found(&kubeadm().file(CONFIG, file), version("1.36.3"), "CF001");
    let marked = format!("\u{feff}{}", text("maxPods: many # é\n"));
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        assert!(found(encoded(&marked, bytes))[0].starts_with(&format!("fatal {CONFIG}:3: ")));
        assert!(found(encoded(&marked.replace("many", "50"), bytes)).is_empty());
        assert_eq!(found(encoded(&text("maxPods: 50\n"), bytes)).len(), 1);
    }
    assert!(found([&encoded(&marked, u16::to_le_bytes)[..], b"x"].concat())[0].contains("it is not UTF-8"));
}

#[test]
fn a_default_of_the_main_file_is_set_when_dropins_are_merged() {
    let tree = with_dir().file("/d/a.conf", format!("{HEAD}maxParallelImagePulls: 5\n"));
    assert!(found(&tree, version("1.33.0"), "CF007")[0].starts_with("fatal /d/a.conf:3: "));
    assert!(found(&with("maxParallelImagePulls: 5\n"), version("1.33.0"), "CF007").is_empty());
}

#[test]
fn a_cgroup_that_a_script_may_make_is_no_fatal_finding() {
    let text = format!("{HEAD}cgroupRoot: /kubelet\n");
    let tree = kubeadm().file(CONFIG, text).file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    assert!(found(&tree, Inputs::default(), "CF007")[0].contains("cgroupRoot is /kubelet"));
    let made = "[Service]\nExecStartPre=/kind/bin/create-kubelet-cgroup-v2\n";
    let tree = tree.file("/etc/systemd/system/kubelet.service.d/11-kind.conf", made);
    assert!(found(&tree, Inputs::default(), "CF007").is_empty());
}

#[test]
fn a_relative_path_of_a_drop_in_stays_relative() {
    let text = format!("{HEAD}podLogsDir: logs\n");
    assert!(found(&kubeadm().file(CONFIG, text.clone()), version("1.36.3"), "CF007").is_empty());
    let found = found(&with_dir().file("/d/a.conf", text), version("1.36.3"), "CF007");
    assert!(found[0].starts_with("fatal /d/a.conf:3: podLogsDir is 'logs'"), "{found:?}");
}

#[test]
fn the_first_kubelets_with_config_dir_need_a_variable() {
    let variable = "[Service]\nEnvironment=KUBELET_CONFIG_DROPIN_DIR_ALPHA=on\n";
    let set = with_dir().directory("/d").file("/etc/systemd/system/kubelet.service.d/20-alpha.conf", variable);
    let by = |lines: &str| {
        with_dir()
            .directory("/d")
            .file("/etc/systemd/system/kubelet.service.d/20-alpha.conf", format!("[Service]\n{lines}\n"))
    };
    let env = "ExecStart=\nExecStart=/usr/bin/env KUBELET_CONFIG_DROPIN_DIR_ALPHA=on /usr/bin/kubelet --config-dir=/d";
    for (tree, release, count) in [
        (with_dir().directory("/d"), "1.29.3", 1),
        (set, "1.29.3", 0),
        (by("PassEnvironment=A KUBELET_CONFIG_DROPIN_DIR_ALPHA\nPassEnvironment=B"), "1.29.3", 0),
        (by("EnvironmentFile=-/run/kubelet.env"), "1.29.3", 0),
        (by(env), "1.29.3", 0),
        (with_dir().directory("/d"), "1.30.0", 0),
    ] {
        let found = found(&tree, version(release), "CF003");
        assert_eq!(found.len(), count, "{release}: {found:?}");
        assert!(found.iter().all(|one| one.starts_with("fatal /var/lib/kubelet/kubeadm-flags.env:1: ")));
    }
}
