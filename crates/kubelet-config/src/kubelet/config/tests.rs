use serde_json::json;

use super::*;
use crate::kubelet::flags::parse::parse_argv;
use crate::kubelet::tree::MemoryTree;
use crate::kubelet::version::{Minor, Version};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const MAIN: &str = "/var/lib/kubelet/config.yaml";

fn with(files: &[(&str, &str)]) -> MemoryTree {
    files.iter().fold(MemoryTree::new(), |tree, (path, text)| tree.file(*path, text.replace("HEAD\n", HEAD)))
}

fn loaded(tree: &MemoryTree, version: Option<&str>) -> Configuration {
    let argv = ["kubelet", "--config=/var/lib/kubelet/config.yaml", "--config-dir=/d"];
    let flags = parse_argv(&argv, &Location::file("/unit"));
    let version = version.map(|text| text.parse::<Version>().unwrap());
    load_config(tree, &flags, version.as_ref())
}

/// The main file alone, in the newest version.
fn main_file(text: &str) -> Configuration {
    let tree = with(&[(MAIN, text)]);
    let flags = parse_argv(&["kubelet".to_owned(), format!("--config={MAIN}")], &Location::file("/unit"));
    load_config(&tree, &flags, None)
}

fn unknown(config: &Configuration) -> Vec<String> {
    config
        .unknown
        .iter()
        .map(|field| {
            let meant = field.meant.unwrap_or("-");
            let twice = if field.duplicate { " twice" } else { "" };
            format!("{} {}{twice} -> {meant}", field.at, field.path)
        })
        .collect()
}

fn states(config: &Configuration) -> Vec<String> {
    config
        .files
        .iter()
        .map(|file| match &file.state {
            ConfigFileState::Bad { at, reason, .. } => format!("{at}: {reason}"),
            state => format!("{} {state:?}", file.at),
        })
        .collect()
}

#[test]
fn unknown_keys_say_what_was_meant() {
    let config = main_file(
        "HEAD\nRotateCertificates: true\nmax-pods: 1\nmaxpods: 2\nevictionhard: {}\nanonymous: {enabled: false}\nmaxPodss: 3\nsomethingElse: 4\nmaxPods: 5\nmaxPods: 6\nsystemReserved: {cpu: 1m, cpu: 2m}\nauthentication:\n  Anonymous: {}\n  webhook: {cache-ttl: 1s}\n",
    );
    assert_eq!(
        unknown(&config),
        [
            "/var/lib/kubelet/config.yaml:3 RotateCertificates -> rotateCertificates",
            "/var/lib/kubelet/config.yaml:4 max-pods -> maxPods",
            "/var/lib/kubelet/config.yaml:5 maxpods -> maxPods",
            "/var/lib/kubelet/config.yaml:6 evictionhard -> evictionHard",
            "/var/lib/kubelet/config.yaml:7 anonymous -> authentication.anonymous",
            "/var/lib/kubelet/config.yaml:8 maxPodss -> maxPods",
            "/var/lib/kubelet/config.yaml:9 somethingElse -> -",
            "/var/lib/kubelet/config.yaml:11 maxPods twice -> maxPods",
            "/var/lib/kubelet/config.yaml:12 systemReserved.cpu twice -> -",
            "/var/lib/kubelet/config.yaml:14 authentication.Anonymous -> authentication.anonymous",
            "/var/lib/kubelet/config.yaml:15 authentication.webhook.cache-ttl -> authentication.webhook.cacheTTL",
        ]
    );
    assert_eq!(config.get("maxPods").unwrap().to_json(), json!(6));
    assert_eq!(config.get("RotateCertificates"), None);
    assert_eq!(states(&config), ["/var/lib/kubelet/config.yaml Read"]);
}

#[test]
fn a_field_is_unknown_to_a_kubelet_that_is_older() {
    let tree = with(&[(MAIN, "HEAD\nfailCgroupV1: false\n"), ("/d/a.conf", "HEAD\n")]);
    let old = loaded(&tree, Some("1.30.2"));
    assert_eq!(old.unknown.len(), 1);
    assert_eq!(old.unknown[0].since, Some(Minor(31)));
    assert_eq!(old.get("failCgroupV1"), None);
    let new = loaded(&tree, Some("1.31.0"));
    assert!(new.unknown.is_empty() && new.get("failCgroupV1").is_some());
}

/// Documents that the kubelet refuses, and what is said of each.
const REFUSED: &[(&str, &str)] = &[
    ("HEAD\nmaxPods: \"5\"\n", ":3: "),
    ("HEAD\nsystemReserved: {memory: 500}\n", ":3: "),
    ("HEAD\nsyncFrequency: 60\n", ":3: "),
    ("HEAD\nsyncFrequency: 60x\n", ":3: "),
    ("HEAD\nfailSwapOn: \"no\"\n", ":3: "),
    ("HEAD\nclusterDNS: 10.0.0.10\n", ":3: "),
    ("HEAD\nregisterWithTaints: [{key: 1}]\n", ":3: "),
    ("HEAD\nregisterWithTaints: [x]\n", ":3: "),
    ("HEAD\nport: 99999999999\n", ":3: "),
    ("HEAD\na: [\n", ""),
    ("kind: KubeletConfiguration\n", ": "),
    ("apiVersion: v1\nkind: Config\n", ":2: "),
    ("{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration}\n", ":1: "),
    ("just words\n", ": "),
    ("", ": "),
    ("# nothing\n", ": "),
];

#[test]
fn what_makes_the_kubelet_exit_is_bad() {
    for (text, expected) in REFUSED {
        let states = states(&main_file(text));
        assert!(
            states[0].starts_with(&format!("{MAIN}{expected}")) && !states[0].contains("Read"),
            "{text}: {states:?}"
        );
    }
    // `yes` is a boolean, `1e4` a whole number, to the kubelet too.
    let fine = main_file("HEAD\nfailSwapOn: no\nport: 1e4\nmaxPods: ~\nlogging: {flushFrequency: 5000000000}\n");
    assert_eq!(states(&fine), ["/var/lib/kubelet/config.yaml Read"]);
}

#[test]
fn drop_ins_are_merged_in_lexical_order_and_conf_alone() {
    let tree = with(&[
        (MAIN, "HEAD\nmaxPods: 1\nsystemReserved: {cpu: 1m, memory: 1Gi}\nclusterDNS: [a, b]\nstaticPodPath: /x\n"),
        ("/d/20.conf", "HEAD\nsystemReserved: {memory: 3Gi}\n"),
        (
            "/d/10.conf",
            "HEAD\nmaxPods: 2\nsystemReserved: {memory: 2Gi, pid: '9'}\nclusterDNS: [c]\nstaticPodPath: null\n",
        ),
        ("/d/15.conf/x.conf", "HEAD\nmaxPods: 3\n"),
        ("/d/30.yaml", "HEAD\nmaxPods: 4\n"),
        ("/d/.40.conf", "HEAD\nport: 7\n"),
    ]);
    let config = loaded(&tree, None);
    assert_eq!(
        states(&config),
        [
            "/var/lib/kubelet/config.yaml Read",
            "/d/30.yaml Ignored",
            "/d/.40.conf Read",
            "/d/10.conf Read",
            "/d/15.conf/x.conf Read",
            "/d/20.conf Read",
        ]
    );
    let value = |path| config.get(path).map(Node::to_json);
    assert_eq!(value("maxPods"), Some(json!(3)));
    assert_eq!(value("systemReserved"), Some(json!({"cpu": "1m", "memory": "3Gi", "pid": "9"})));
    assert_eq!(value("clusterDNS"), Some(json!(["c"])));
    assert_eq!(value("staticPodPath"), None);
    assert_eq!(config.entry("maxPods").unwrap().at.file_line(), "/d/15.conf/x.conf:3");
    assert_eq!(config.entry("systemReserved.cpu").unwrap().at.file_line(), "/var/lib/kubelet/config.yaml:4");
    assert_eq!(config.entry("systemReserved.memory").unwrap().at.file_line(), "/d/20.conf:3");
}

#[test]
fn drop_ins_are_strict_about_kind_and_duplicates_and_judged_when_merged() {
    let one = |text: &str| {
        let tree = with(&[(MAIN, "HEAD\n"), ("/d/a.conf", text)]);
        states(&loaded(&tree, None)).pop().unwrap()
    };
    assert!(one("HEAD\nport: 1\nport: 2\n").starts_with("/d/a.conf:4: "));
    assert!(one("maxPods: 1\n").starts_with("/d/a.conf: "));
    assert!(one("").starts_with("/d/a.conf: "));
    assert!(one("HEAD\nport: x\n").starts_with("/d/a.conf:3: "));
    let corrected = with(&[(MAIN, "HEAD\n"), ("/d/a.conf", "HEAD\nport: x\n"), ("/d/b.conf", "HEAD\nport: 1\n")]);
    assert_eq!(states(&loaded(&corrected, None))[1..], ["/d/a.conf Read", "/d/b.conf Read"]);
}

#[test]
fn what_is_no_field_of_an_item_does_not_count() {
    let config = main_file("shutdownGracePeriodByPodPriority: [{priority: 5, x: 1}]\n");
    let found = config.get("shutdownGracePeriodByPodPriority").unwrap().to_json();
    assert_eq!(found, json!([{"priority": 5}]));
}

#[test]
fn missing_files_and_directories_are_told() {
    let config = loaded(&MemoryTree::new(), None);
    assert_eq!(states(&config), ["/var/lib/kubelet/config.yaml Missing", "/d Missing"]);
    assert!(config.given);
    // filepath.WalkDir does not follow a link in the directory's own place, and takes it for a file.
    let linked = with(&[(MAIN, "HEAD\n"), ("/real/a.conf", "HEAD\nport: x\n")]).link("/d", "/real");
    assert_eq!(states(&loaded(&linked, None))[1..], ["/d Ignored"]);
    let flags = parse_argv(&["kubelet", "--config-dir=/d/"], &Location::file("/unit"));
    assert_eq!(load_config(&linked, &flags, None).files.len(), 1);
    let loop_ = with(&[(MAIN, "HEAD\n")]).link("/d/a.conf", "/d/a.conf").other("/d/b.conf").file("/d/c.conf", [0xff]);
    assert_eq!(
        states(&loaded(&loop_, None))[1..],
        [
            "/d/a.conf: it has too many levels of symbolic links",
            "/d/b.conf: it is not a regular file",
            "/d/c.conf: it is not UTF-8",
        ]
    );
}
