use serde_json::{Value, json};

use super::*;
use crate::kubelet::config;
use crate::kubelet::flags::parse::parse_argv;
use crate::kubelet::tree::MemoryTree;
use crate::kubelet::version::Version;

mod hosts;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// The settings of these flags; `main` is the file after `--config`, `drop_in` one after `--config-dir`.
fn settled(argv: &[&str], main: Option<&str>, drop_in: Option<&str>, version: &str) -> Settings {
    let mut tree = MemoryTree::new();
    let mut words = [&["kubelet"], argv].concat();
    if let Some(text) = main {
        tree = tree.file("/c.yaml", format!("{HEAD}{text}"));
        words.push("--config=/c.yaml");
    }
    if let Some(text) = drop_in {
        tree = tree.file("/d/a.conf", format!("{HEAD}{text}"));
        words.push("--config-dir=/d");
    }
    let version: Version = version.parse().unwrap();
    let flags = parse_argv(&words, &Location::file("/unit"));
    let config = config::load_config(&tree, &flags, Some(&version));
    effective_settings(&flags, &config, Some(&version))
}

fn value(settings: &Settings, path: &str) -> Value {
    settings.get(path).map_or(Value::Null, |setting| setting.value.clone())
}

#[test]
fn the_defaults_depend_on_whether_a_file_is_given() {
    let with = settled(&[], Some(""), None, "1.33");
    let without = settled(&[], None, None, "1.33");
    for (path, given, legacy) in [
        ("authentication.anonymous.enabled", json!(false), json!(true)),
        ("authentication.webhook.enabled", json!(true), json!(false)),
        ("authorization.mode", json!("Webhook"), json!("AlwaysAllow")),
        ("readOnlyPort", json!(0), json!(10255)),
        ("maxPods", json!(110), json!(110)),
        ("rotateCertificates", json!(false), json!(false)),
    ] {
        assert_eq!(value(&with, path), given, "{path}");
        assert_eq!(value(&without, path), legacy, "{path}");
    }
    assert_eq!(with.map("evictionHard").len(), 5);
    assert!(without.map("evictionHard").is_empty());
    assert_eq!(without.get("readOnlyPort").unwrap().from, From::Default { legacy: true });
    assert_eq!(without.get("maxPods").unwrap().from, From::Default { legacy: false });
    assert_eq!(value(&with, "--cert-dir"), json!("/var/lib/kubelet/pki"));
}

#[test]
fn the_defaults_depend_on_the_version() {
    let at = |version, path| value(&settled(&[], Some(""), None, version), path);
    assert_eq!(at("1.30", "failCgroupV1"), Value::Null);
    assert_eq!(at("1.34", "failCgroupV1"), json!(false));
    assert_eq!(at("1.35", "failCgroupV1"), json!(true));
    assert_eq!(at("1.26", "kubeAPIQPS"), json!(5));
    assert_eq!(at("1.27", "kubeAPIQPS"), json!(50));
    assert_eq!(at("1.26", "containerRuntimeEndpoint"), Value::Null);
    assert_eq!(at("1.27", "containerRuntimeEndpoint"), json!("unix:///run/containerd/containerd.sock"));
}

#[test]
fn flags_beat_drop_ins_beat_the_file_beats_defaults() {
    let main = "maxPods: 1\nport: 1\nreadOnlyPort: 1\nsyncFrequency: 90s\n";
    let settings = settled(&["--max-pods=3"], Some(main), Some("maxPods: 2\nport: 2\n"), "1.33");
    let of = |path| {
        let setting = settings.get(path).unwrap();
        let from = match &setting.from {
            From::Flag(at) => format!("flag {at}"),
            From::File(at) => format!("file {at}"),
            From::Default { .. } => "default".to_owned(),
            From::Distribution => "distribution".to_owned(),
        };
        format!("{} {from}", setting.value)
    };
    assert_eq!(of("maxPods"), "3 flag /unit");
    assert_eq!(of("port"), "2 file /d/a.conf:4");
    assert_eq!(of("readOnlyPort"), "1 file /c.yaml:5");
    assert_eq!(of("syncFrequency"), "\"1m30s\" file /c.yaml:6");
    assert_eq!(of("healthzPort"), "10248 default");
}

#[test]
fn maps_and_lists_of_flags_replace_the_files_and_then_grow() {
    let main = "systemReserved: {cpu: 1m, memory: 1Gi}\nclusterDNS: [a]\nfeatureGates: {A: true, B: true}\nevictionHard: {memory.available: 5%}\n";
    let argv = [
        "--system-reserved=cpu=2m",
        "--system-reserved=pid=7,cpu=3m",
        "--cluster-dns=b",
        "--cluster-dns=c,d",
        "--feature-gates=B=false,C=true",
        "--node-labels=a=1,b",
        "--node-labels=a=2",
        "--eviction-hard=nodefs.available<1%",
        "--register-with-taints=a=b:NoSchedule",
        "--v=4",
        "--authentication-token-webhook-cache-ttl=90s",
        "--seccomp-default=false",
        "--reserved-memory=0:memory=1Gi",
    ];
    let settings = settled(&argv, Some(&format!("{main}seccompDefault: true\n")), None, "1.33");
    assert_eq!(value(&settings, "systemReserved"), json!({"pid": "7", "cpu": "3m"}));
    assert_eq!(value(&settings, "clusterDNS"), json!(["b", "c", "d"]));
    assert_eq!(value(&settings, "featureGates"), json!({"A": true, "B": false, "C": true}));
    assert_eq!(value(&settings, "--node-labels"), json!({"a": "2", "b": ""}));
    assert_eq!(value(&settings, "evictionHard"), json!({"nodefs.available": "1%"}));
    assert_eq!(value(&settings, "registerWithTaints"), json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]));
    assert_eq!(value(&settings, "logging.verbosity"), json!(4));
    assert_eq!(value(&settings, "authentication.webhook.cacheTTL"), json!("1m30s"));
    assert_eq!(value(&settings, "seccompDefault"), json!(true));
    assert_eq!(value(&settings, "reservedMemory"), json!([{"numaNode": 0, "limits": {"memory": "1Gi"}}]));
    let gates = &settings.get("featureGates").unwrap().keys;
    assert_eq!(gates["A"], From::File(Location::file("/c.yaml").at(5, 16, 1)));
    assert_eq!(gates["B"], From::Flag(Location::file("/unit")));
}

#[test]
fn one_threshold_in_the_main_file_takes_the_others_away() {
    let hard = |main: Option<&str>, drop_in: Option<&str>| value(&settled(&[], main, drop_in, "1.33"), "evictionHard");
    let memory = "evictionHard: {memory.available: 200Mi}\n";
    assert_eq!(hard(Some(memory), None), json!({"memory.available": "200Mi"}));
    let all = json!({
        "memory.available": "200Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
        "imagefs.available": "15%", "imagefs.inodesFree": "5%",
    });
    let merged = format!("{memory}mergeDefaultEvictionSettings: true\n");
    assert_eq!(hard(Some(&merged), None), all);
    // The defaults are laid under the main file before drop-ins are merged, and not again.
    assert_eq!(hard(Some(""), Some(memory)), all);
    assert_eq!(hard(None, Some(memory)), json!({"memory.available": "200Mi"}));
    assert_eq!(
        hard(Some(memory), Some("evictionHard: {nodefs.available: 3%}\nmergeDefaultEvictionSettings: true\n")),
        json!({"memory.available": "200Mi", "nodefs.available": "3%"})
    );
    assert_eq!(hard(Some("evictionHard: {}\n"), None), json!({}));
}

#[test]
fn a_written_zero_is_no_value_where_the_field_is_no_pointer() {
    let main = "maxPods: 0\nport: 0\nsyncFrequency: 0s\ncgroupDriver: \"\"\nhealthzPort: 0\nresolvConf: \"\"\nenforceNodeAllocatable: []\npodPidsLimit: -7\n";
    let settings = settled(&[], Some(main), None, "1.33");
    for (path, expected) in [
        ("maxPods", json!(110)),
        ("port", json!(10250)),
        ("syncFrequency", json!("1m0s")),
        ("cgroupDriver", json!("cgroupfs")),
        ("healthzPort", json!(0)),
        ("resolvConf", json!("")),
        ("enforceNodeAllocatable", json!([])),
        ("podPidsLimit", json!(-1)),
    ] {
        assert_eq!(value(&settings, path), expected, "{path}");
    }
}

#[test]
fn defaults_that_follow_from_other_settings_do() {
    let settings = settled(&[], Some("nodeStatusUpdateFrequency: 20s\nmaxParallelImagePulls: 3\n"), None, "1.33");
    assert_eq!(value(&settings, "nodeStatusReportFrequency"), json!("20s"));
    assert_eq!(value(&settings, "serializeImagePulls"), json!(false));
    // What a drop-in takes away gets a default once more, by then of a period that has one.
    for (drop_in, report) in [("0s", "10s"), ("null", "10s"), ("7m", "7m0s")] {
        let settings = settled(&[], Some(""), Some(&format!("nodeStatusReportFrequency: {drop_in}\n")), "1.36");
        assert_eq!(value(&settings, "nodeStatusReportFrequency"), json!(report), "{drop_in}");
    }
}

#[test]
fn what_the_kubelet_refuses_sets_nothing_and_headers_are_masked() {
    let argv = ["--max-pods=many", "--cloud-config=/x", "--manifest-url-header=Authorization:s3cret"];
    let settings = settled(&argv, Some("staticPodURLHeader: {a: [s3cret]}\n"), None, "1.34");
    assert_eq!(value(&settings, "maxPods"), json!(110));
    assert_eq!(value(&settings, "--cloud-config"), Value::Null);
    assert_eq!(value(&settings, "staticPodURLHeader"), json!({"Authorization": ["<masked>"]}));
}
