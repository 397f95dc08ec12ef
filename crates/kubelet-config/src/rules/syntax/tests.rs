use crate::kubelet::resolve::Inputs;
use crate::rules::tests::support::{carets, findings_with, fixed_files, found, kubeadm, lost};

const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

fn drop_in(rule: &str, text: &str) -> Vec<String> {
    found(&kubeadm().file(OWN, text.to_owned()), Inputs::default(), rule)
}

fn fixed_drop_in(rule: &str, text: &str) -> Vec<String> {
    let tree = kubeadm().without("/etc/default/kubelet").file(OWN, format!("[Service]\n{text}\n"));
    let files = fixed_files(&tree, &Inputs::default(), rule);
    files.iter().map(|file| file.strip_prefix(&format!("{OWN}\n[Service]\n")).unwrap().trim_end().to_owned()).collect()
}

#[test]
fn a_value_without_quotes_is_split() {
    let text = "[Service]\nEnvironment=KUBELET_X_ARGS=--cloud-provider=external --node-ip=10.0.0.9 --v=2\n";
    let tree = kubeadm().file(OWN, text);
    assert_eq!(lost(&tree, Inputs::default(), "SD005"), [format!("error {OWN}:2 --node-ip=10.0.0.9 --v=2")]);
    assert_eq!(carets(&tree, Inputs::default(), "SD005"), [format!("error {OWN}:2:54+18")]);
}

#[test]
fn words_that_are_no_assignment_are_found_and_quoted() {
    for (text, severity, after) in [
        ("KUBELET_EXTRA_ARGS=--v=2 --max-pods=5", "error", "\"KUBELET_EXTRA_ARGS=--v=2 --max-pods=5\""),
        ("A=1 KUBELET_EXTRA_ARGS=--v=2 --max-pods=5", "error", "A=1 \"KUBELET_EXTRA_ARGS=--v=2 --max-pods=5\""),
        ("KUBELET_EXTRA_ARGS = --v=2", "error", "\"KUBELET_EXTRA_ARGS=--v=2\""),
        ("KUBELET_EXTRA_ARGS= --v=2", "error", "\"KUBELET_EXTRA_ARGS=--v=2\""),
        ("“KUBELET_EXTRA_ARGS=--v=2 --max-pods=5”", "error", "\"KUBELET_EXTRA_ARGS=--v=2 --max-pods=5\""),
        ("A=1 B", "warning", "\"A=1 B\""),
        ("A=1 \"KUBELET_EXTRA_ARGS=--v=2", "error", "A=1 \"KUBELET_EXTRA_ARGS=--v=2\""),
        ("KUBELET_EXTRA_ARGS=--v=2\"", "error", "\"KUBELET_EXTRA_ARGS=--v=2\""),
        ("\"KUBELET_EXTRA_ARGS=--v=2\"\n--max-pods=5", "error", "\"KUBELET_EXTRA_ARGS=--v=2 --max-pods=5\""),
    ] {
        let found = drop_in("SD005", &format!("[Service]\nEnvironment={text}\n"));
        assert!(found.len() == 1 && found[0].starts_with(severity), "{text}: {found:?}");
        assert_eq!(fixed_drop_in("SD005", &format!("Environment={text}")), [format!("Environment={after}")], "{text}");
    }
    // What a specifier stands for is not what was written, and systemd expands no variable here.
    for text in ["A=%H --v=2", "A=$A --v=2", "A=\"x\" --y='z"] {
        assert_eq!(drop_in("SD005", &format!("[Service]\nEnvironment={text}\n")).len(), 1, "{text}");
        assert_eq!(fixed_drop_in("SD005", &format!("Environment={text}")), [""; 0], "{text}");
    }
    for good in [
        "Environment=\"A=--x=1 --y=2\" 'B=--z'",
        "Environment=A=\"--x --y\"",
        "Environment=A=1 B=2 \\\n  C=3",
        "Environment=",
    ] {
        let found = drop_in("SD005", &format!("[Service]\n{good}\n"));
        assert!(found.is_empty(), "{good}: {found:?}");
    }
}

#[test]
fn a_path_behind_environment_was_meant_for_environment_file() {
    let there = kubeadm().file(OWN, "[Service]\nEnvironment=/etc/x.env\n").file("/etc/x.env", "A=1\nB=--v=2\n");
    assert_eq!(lost(&there, Inputs::default(), "SD005"), [format!("error {OWN}:2 --v=2")]);
    assert_eq!(
        fixed_files(&there, &Inputs::default(), "SD005"),
        [format!("{OWN}\n[Service]\nEnvironmentFile=/etc/x.env\n")]
    );
    let findings = findings_with(&there, Inputs::default());
    let finding = findings.iter().find(|finding| finding.rule == "SD005").unwrap();
    let steps: Vec<String> = finding.chain.iter().map(|step| step.at.to_string()).collect();
    assert_eq!(steps, ["/etc/x.env:1", "/etc/x.env:2"]);
    // A file that is missing would keep the unit from starting.
    assert_eq!(fixed_drop_in("SD005", "Environment=/etc/x.env"), ["EnvironmentFile=-/etc/x.env"]);
}

#[test]
fn names_that_systemd_does_not_know_are_found_and_corrected() {
    let text = "Environment=\"A=1\"\n[service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n[Service]\nEnviroment=\"B=--x\"\nnonsense\nX-Ours=1\n[Unit]\nEnvironment=C=1\n[X-Ours]\nAny=1\n";
    let tree = kubeadm().file(OWN, text);
    let found = lost(&tree, Inputs::default(), "SD011");
    let expected = ["error 2 --v=3", "error 5 --x", "warning 1", "warning 6", "warning 9"];
    assert_eq!(found, expected.map(|one| one.replacen(' ', &format!(" {OWN}:"), 1)));
    let fixed = fixed_files(&tree, &Inputs::default(), "SD011");
    let after = "[Service]\nEnvironment=\"A=1\"\n[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n[Service]\nEnvironment=\"B=--x\"\nnonsense\nX-Ours=1\n[Unit]\n[X-Ours]\nAny=1\n\n[Service]\nEnvironment=C=1\n";
    assert_eq!(fixed, [format!("{OWN}\n{after}")]);
    assert!(drop_in("SD011", "[Service]\nRestartSec=5\n# x\n").is_empty());
}

#[test]
fn a_line_before_the_first_section_is_corrected_as_a_whole() {
    let own = "/etc/systemd/system/kubelet.service.d/10-kebeadm.conf";
    let tree = kubeadm().without("/etc/default/kubelet").file(own, "environment=KUBELET_EXTRA_ARGS=--v=2\"\n");
    assert_eq!(
        fixed_files(&tree, &Inputs::default(), "SD011"),
        [format!("{own}\n[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2\"\n")]
    );
}

#[test]
fn a_malformed_header_loses_the_rest() {
    let found = drop_in("SD011", "[Service\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("error {OWN}:1: ")), "{found:?}");
    let tree = kubeadm().file(OWN, "[Service\nEnvironment=\"A=1\"\n");
    assert_eq!(fixed_files(&tree, &Inputs::default(), "SD011"), [format!("{OWN}\n[Service]\nEnvironment=\"A=1\"\n")]);
}

#[test]
fn a_blank_behind_the_backslash_is_an_argument() {
    let found = drop_in("SD015", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\ \n  --v=2\n");
    assert!(found.iter().any(|one| one.starts_with(&format!("fatal {OWN}:3"))), "{found:?}");
    assert_eq!(
        fixed_drop_in("SD015", "ExecStart=\nExecStart=/usr/bin/kubelet \\ \t\n  --v=2"),
        ["ExecStart=\nExecStart=/usr/bin/kubelet \\\n  --v=2"]
    );
    let good = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n  --v=2\n";
    assert!(drop_in("SD015", good).is_empty());
}

#[test]
fn an_empty_line_ends_a_continued_line_and_what_follows_is_lost() {
    let text = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n\n  --v=3 \\\n  --max-pods=5\n";
    let found = drop_in("SD015", text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("error") && found[0].contains("--v=3"), "{found:?}");
    assert!(drop_in("SD005", text).is_empty(), "said once");
    assert!(drop_in("SD011", text).is_empty(), "said once");
    assert_eq!(
        fixed_drop_in("SD015", "ExecStart=\nExecStart=/usr/bin/kubelet \\\n\n\n  --v=3"),
        ["ExecStart=\nExecStart=/usr/bin/kubelet \\\n  --v=3"]
    );
    // k3s' own unit ends its command that way.
    assert!(drop_in("SD015", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n    --v=2 \\\n\n").is_empty());
}

#[test]
fn a_percent_sign_that_is_no_specifier_costs_the_assignment() {
    let text = "Environment=A=1 \"HTTPS_PROXY=http://svc:p%40ss%2Fw%C3@10.0.0.1:3128\"";
    let found = drop_in("SD018", &format!("[Service]\n{text}\n"));
    assert!(found.len() == 1 && found[0].starts_with(&format!("warning {OWN}:2: ")), "{found:?}");
    assert!(!found[0].contains("p%40ss"), "a secret: {found:?}");
    assert_eq!(
        fixed_drop_in("SD018", text),
        ["Environment=A=1 \"HTTPS_PROXY=http://svc:p%%40ss%%2Fw%%C3@10.0.0.1:3128\""]
    );
    let flags = kubeadm().file(OWN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2 --root-dir=/a%20b\"\n");
    assert_eq!(lost(&flags, Inputs::default(), "SD018"), [format!("error {OWN}:2 --v=2 --root-dir=/a%20b")]);
    assert_eq!(carets(&flags, Inputs::default(), "SD018"), [format!("error {OWN}:2:52+2")]);
    for good in ["Environment=A=5%,6%", "Environment=A=%%40", "Environment=A=%n"] {
        assert!(drop_in("SD018", &format!("[Service]\n{good}\n")).is_empty(), "{good}");
    }
    let command = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --root-dir=/a%20b\n";
    assert!(drop_in("SD018", command).is_empty(), "SD008 says so");
}

#[test]
fn what_is_said_to_bring_a_line_back_leaves_out_what_the_kubelet_refuses() {
    let fix = |flags: &str, version: &str| {
        let text = format!("[Service]\nEnviroment=\"KUBELET_X_ARGS={flags}\"\n");
        let inputs = Inputs { version: version.parse().ok(), ..Inputs::default() };
        let found = findings_with(&kubeadm().file(OWN, text), inputs);
        found.into_iter().find(|one| one.rule == "SD011").and_then(|one| one.fix).unwrap()
    };
    assert!(!fix("--v=4 --max-pods=50", "1.36.3").contains("Leave out"));
    let removed = fix("--network-plugin=cni --v=4", "1.36.3");
    assert!(removed.ends_with(". Leave out `--network-plugin=cni`, with which kubelet 1.36.3 exits"), "{removed}");
    assert!(fix("--max-pods=many", "1.36.3").contains("Leave out `--max-pods=many`"), "a value that it does not take");
    assert!(fix("--max-pod=5", "1.36.3").contains("Leave out `--max-pod=5`"), "a flag that no release has");
    assert!(
        fix("--network-plugin=cni", "").contains("with which kubelets from 1.34 exit"),
        "no release that is supported"
    );
}
