use crate::fix::plan;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{UNIT, findings_with, found, kubeadm};
use crate::rules::{Finding, Severity, lint};
use crate::step::Step;

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

/// The only finding of a rule.
fn one(tree: &MemoryTree, rule: &str) -> Finding {
    let mut found: Vec<_> = findings_with(tree, Inputs::default()).into_iter().filter(|one| one.rule == rule).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn sd023_names_what_hides_the_words() {
    let tree = kubeadm().file(UNIT, "[Service]\nExecStart=/bin/sh -c 'exec /usr/bin/kubelet $KUBELET_EXTRA_ARGS'\n");
    let tree = tree.without(crate::rules::tests::support::DROP_IN);
    let found = judged(&tree, "SD023");
    assert!(found[0].starts_with("info /usr/lib/systemd/system/kubelet.service:2: "), "{found:?}");
    assert!(found[0].contains("/bin/sh is a shell"), "{found:?}");
    let script = k3s().file("/etc/rancher/k3s/config.yaml", "kubelet-arg: [\n");
    let found = judged(&script, "SD023");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("fatal /etc/rancher/k3s/config.yaml"), "{found:?}");
    assert!(judged(&script, "RS001").is_empty(), "what the file says is not known");
    let wrapper = kubeadm().file("/usr/bin/kubelet", "#!/bin/bash\nexec /opt/kubelet --v=2 \"$@\"\n");
    assert!(judged(&wrapper, "SD023")[0].contains("is a script (#!/bin/bash)"));
}

#[test]
fn sd023_names_a_file_that_k3s_does_not_read() {
    let file = "/etc/rancher/k3s/config.yml";
    let tree = MemoryTree::new()
        .file("/etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
        .file(file, "kubelet-arg: [max-pods=50]\n");
    assert!(judged(&tree, "SD023")[0].starts_with(&format!("warning {file}: k3s does not read")));
    assert_eq!(judged(&tree.clone().file("/etc/rancher/k3s/config.yaml", ""), "SD023"), [""; 0]);
    let unit = "[Service]\nExecStart=/usr/local/bin/k3s server --config=/etc/rancher/k3s/other.yaml\n";
    assert_eq!(judged(&tree.file("/etc/systemd/system/k3s.service", unit), "SD023"), [""; 0]);
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
    let finding = one(&tree, "SD027");
    assert_eq!(
        (finding.severity, finding.at.to_string()),
        (Severity::Error, "/etc/rancher/k3s/config.yaml.d/50-x.yaml:1".to_owned())
    );
    assert_eq!(finding.lost_flags, ["--cloud-provider=external"]);
    assert!(matches!(finding.remedy.edits().next(), Some(Step::Replace { new, .. }) if new == "kubelet-arg+"));
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
    let found = judged(&microk8s("--v=2\n--node-ip=10.0.0.5  --max-pods=50\n--node-labels=\"a=b c=d\"\n"), "SD028");
    let places: Vec<&str> = found.iter().map(|text| text.split(": ").next().unwrap_or_default()).collect();
    let file = "fatal /var/snap/microk8s/current/args/kubelet";
    assert_eq!(places, [format!("{file}:2"), format!("{file}:3")]);
}

#[test]
fn sd028_knows_which_snap_reads_how() {
    let unquoted = "--eviction-hard=memory.available<1Gi\n";
    assert_eq!(judged(&microk8s(unquoted), "SD028"), Vec::<String>::new());
    let found = judged(&k8s(unquoted), "SD028");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("fatal /var/snap/k8s/common/args/kubelet:1: `<`"), "{found:?}");
    let quoted = "# flags\n--eviction-hard='memory.available<1Gi'  --v=2\n";
    assert_eq!(judged(&k8s(quoted), "SD028"), Vec::<String>::new());
    assert_eq!(judged(&microk8s("--eviction-hard=\"memory.available<1Gi\"\n"), "SD028"), Vec::<String>::new());
}

const CONFIG: &str = "/etc/rancher/k3s/config.yaml";

fn server() -> MemoryTree {
    MemoryTree::new()
        .file("/etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
        .file("/proc/meminfo", "MemTotal: 8132748 kB\n")
}

/// The configuration after the edits of one rule.
fn edited(tree: &MemoryTree, rule: &str) -> String {
    let judge = |tree: &dyn crate::kubelet::tree::Tree| lint(&resolve(tree, Inputs::default()));
    let mut files = plan(tree, &judge, &|finding| finding.rule == rule).files;
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0).after
}

#[test]
fn sd029_a_misspelt_key_loses_its_flags_and_gets_the_right_name() {
    let tree = server().file(CONFIG, "token: x\nkublet-arg:\n- max-pods=50\n");
    let finding = one(&tree, "SD029");
    assert_eq!((finding.severity, finding.at.to_string()), (Severity::Error, format!("{CONFIG}:2")));
    assert_eq!(finding.lost_flags, ["--max-pods=50"]);
    assert_eq!(edited(&tree, "SD029"), "token: x\nkubelet-arg:\n- max-pods=50\n");
    let json = server().file(CONFIG, "{\"kublet-arg\": [\"max-pods=50\"]}\n");
    assert_eq!(edited(&json, "SD029"), "{\"kubelet-arg\": [\"max-pods=50\"]}\n");
    // The list is there already.
    let both = server().file(CONFIG, "kubelet-arg: [v=2]\nkublet-arg: [max-pods=50]\n");
    assert_eq!(edited(&both, "SD029"), "kubelet-arg: [v=2]\nkubelet-arg+: [max-pods=50]\n");
}

#[test]
fn sd029_an_item_that_the_kubelet_would_refuse_is_corrected_or_left_alone() {
    let tree = server().file(CONFIG, "kublet-arg: \"maxPods=50\"\n");
    assert_eq!(edited(&tree, "SD029"), "kubelet-arg: \"max-pods=50\"\n");
    for item in ["max-pods=many", "no-such-flag=1"] {
        let finding = one(&server().file(CONFIG, format!("kublet-arg: [{item}]\n")), "SD029");
        assert_eq!(finding.remedy.edits().count(), 0, "{item}");
    }
}

#[test]
fn sd029_a_flag_of_the_kubelet_moves_into_the_list() {
    for (before, after) in [
        ("max-pods: 50\n", "kubelet-arg:\n- \"max-pods=50\"\n"),
        ("max-pods: 50\nkubelet-arg:\n  - v=2\n", "kubelet-arg:\n  - \"max-pods=50\"\n  - v=2\n"),
        ("max-pods: 50\nkubelet-arg: [v=2]\n", "kubelet-arg: [\"max-pods=50\", v=2]\n"),
    ] {
        assert_eq!(edited(&server().file(CONFIG, before), "SD029"), after);
    }
}

#[test]
fn sd029_only_an_agent_of_k3s_exits_also_because_of_an_option_of_the_server() {
    let severity_with = |version: &str, program: &str, command: &str, key: &str| {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/{program} {command}\n");
        let tree = MemoryTree::new()
            .file(format!("/etc/systemd/system/{program}-{command}.service"), unit)
            .file(format!("/etc/rancher/{program}/config.yaml"), format!("{key}: x\n"));
        let inputs = Inputs { version: version.parse().ok(), ..Inputs::default() };
        findings_with(&tree, inputs).iter().find(|one| one.rule == "SD029").map(|one| one.severity)
    };
    let severity = |program: &str, command: &str, key: &str| severity_with("1.36.1+k3s1", program, command, key);
    for version in ["1.37.0+k3s1", "not known"] {
        assert_eq!(severity_with(version, "k3s", "agent", "disable"), Some(Severity::Warning), "{version}");
    }
    assert_eq!(severity("k3s", "agent", "disable"), Some(Severity::Fatal));
    assert_eq!(severity("rke2", "agent", "disable"), None);
    assert_eq!(severity("rke2", "agent", "disabel"), Some(Severity::Warning));
    assert_eq!(severity("rke2", "server", "flannel-backend"), Some(Severity::Warning));
    assert_eq!(severity("k3s", "agent", "node-label"), None);
}

#[test]
fn sd029_a_line_that_has_other_keys_is_not_deleted() {
    for text in [
        "{\"max-pods\": 50, \"node-ip\": \"10.0.0.1\",\n \"kubelet-arg\": [\"v=2\"]}\n",
        "{max-pods: 50}\n",
        "max-pods: 50 # 4711\n",
    ] {
        assert_eq!(one(&server().file(CONFIG, text), "SD029").remedy.edits().count(), 0, "{text}");
    }
}

#[test]
fn sd023_names_a_map_among_the_items_of_a_list() {
    let tree = k3s().file("/etc/rancher/k3s/config.yaml", "kubelet-arg:\n- cloud-provider: external\n- max-pods=50\n");
    let command = resolve(&tree, Inputs::default()).command;
    assert_eq!((command.slips.len(), command.unreadable.len()), (1, 0), "the file was read");
    let later = |key: &str| tree.clone().file("/etc/rancher/k3s/config.yaml.d/1.yaml", format!("{key}: [v=2]\n"));
    assert_eq!(judged(&later("kubelet-arg"), "SD023"), [""; 0], "the list does not count");
    assert_eq!(judged(&later("kubelet-arg+"), "SD023").len(), 1);
    let found = judged(&tree, "SD023");
    assert!(found[0].starts_with("fatal /etc/rancher/k3s/config.yaml:2: "), "{found:?}");
    assert!(found[0].contains("k3s hands it on") && found[0].contains("the kubelet"), "{found:?}");
    let fix = one(&tree, "SD023").fix.unwrap();
    assert!(fix.starts_with("write `- cloud-provider=external` at /etc/rancher/k3s/config.yaml:2"), "{fix}");
}

#[test]
fn sd029_names_flags_of_the_kubelet_among_those_of_k0s() {
    let k0s = |words: &str| {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/k0s worker {words}\n");
        MemoryTree::new().file("/etc/systemd/system/k0sworker.service", unit)
    };
    let inputs = || Inputs { version: "1.33.4".parse().ok(), ..Inputs::default() };
    let lost = found(&k0s("--kubelet-extra-args=--node-ip=10.0.0.7 --cloud-provider=external"), inputs(), "SD029");
    assert!(lost[0].starts_with("fatal /etc/systemd/system/k0sworker.service:2: "), "{lost:?}");
    assert!(lost[0].contains("unknown flag: --cloud-provider"), "{lost:?}");
    let fine = k0s(
        "--config=/etc/k0s/k0s.yaml --enable-cloud-provider --labels=a=b --profile=x --feature-gates=A=true --cluster-dns=10.96.0.10",
    );
    assert!(found(&fine, inputs(), "SD029").is_empty());
    let in_next_word = k0s("--kubelet-extra-args \"--node-ip=10.0.0.7 --v=2\"");
    assert_eq!(found(&in_next_word, inputs(), "SD029"), [""; 0]);
    let one = k0s("--kubelet-extra-args --node-ip=10.0.0.7 --cloud-provider=external");
    assert_eq!(found(&one, inputs(), "SD029").len(), 1);
    assert_eq!(resolve(&k0s(&"--v=2 ".repeat(1000)), inputs()).command.unknown_options.len(), 100);
    // What k0s makes of its own options the kubelet may refuse as well.
    let label = found(&k0s("--labels=node-role.kubernetes.io/gpu=true"), inputs(), "CL009");
    assert!(label[0].starts_with("fatal /etc/systemd/system/k0sworker.service:2: "), "{label:?}");
    let two = k0s("--enable-cloud-provider --kubelet-extra-args=--node-ip=10.0.0.7,fd00::7");
    let old = Inputs { version: "1.25.4".parse().ok(), ..Inputs::default() };
    assert!(found(&two, old, "CL006")[0].starts_with("fatal"));
}

#[test]
fn fl004_names_systemd_only_where_systemd_would_have_expanded_the_variable() {
    let agent = k3s().file("/etc/rancher/k3s/config.yaml", "kubelet-arg:\n  - root-dir=$DIR\n");
    for tree in [k8s("--root-dir='$DIR'\n"), agent] {
        let finding = one(&tree, "FL004");
        assert!(finding.message.ends_with("no program expands the variable in it"), "{}", finding.message);
    }
}

#[test]
fn a_snap_without_any_flag_is_one_mistake() {
    for tree in [microk8s("# flags\n"), k8s("")] {
        let findings = findings_with(&tree, Inputs::default());
        let rules: Vec<_> = findings.iter().filter(|one| one.rule.starts_with("AU")).map(|one| one.rule).collect();
        assert_eq!(rules, ["AU011"]);
        let fix = findings.into_iter().find(|one| one.rule == "AU011").and_then(|one| one.fix).unwrap();
        assert!(fix.starts_with("restore the whole file") && !fix.contains("--kubeconfig"), "{fix}");
        assert!(judged(&tree, "AU011")[0].starts_with("error "));
    }
    assert!(judged(&microk8s("--v=2\n"), "AU007")[0].starts_with("error "));
}
