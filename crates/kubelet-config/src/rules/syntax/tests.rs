use crate::{
    kubelet::resolve::Inputs,
    rules::testing::{carets, findings_with, found, kubeadm},
};

const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

fn drop_in(rule: &str, text: &str) -> Vec<String> {
    found(&kubeadm().file(OWN, text.to_owned()), Inputs::default(), rule)
}

#[test]
fn a_value_without_quotes_is_split() {
    let text = "[Service]\nEnvironment=KUBELET_X_ARGS=--cloud-provider=external --node-ip=10.0.0.9 --v=2\n";
    insta::assert_snapshot!(drop_in("SD005", text).join("\n"), @r"error /etc/systemd/system/kubelet.service.d/20-own.conf:2: the value is not quoted: systemd splits `Environment=` at blanks, so KUBELET_X_ARGS is only '--cloud-provider=external', and '--node-ip=10.0.0.9 --v=2' is ignored as an invalid assignment");
    let tree = kubeadm().file(OWN, text);
    assert_eq!(carets(&tree, Inputs::default(), "SD005"), [format!("error {OWN}:2:54+18")]);
    let fix = findings_with(&tree, Inputs::default())
        .into_iter()
        .find(|finding| finding.rule == "SD005")
        .and_then(|finding| finding.fix)
        .unwrap();
    assert!(
        fix.starts_with("write `Environment=\"KUBELET_X_ARGS=--cloud-provider=external --node-ip=10.0.0.9 --v=2\"` at"),
        "{fix}"
    );
}

#[test]
fn blanks_around_the_equals_sign_typographic_quotes_and_open_quotes_lose_words() {
    for (text, severity, hint) in [
        ("Environment=KUBELET_EXTRA_ARGS = --v=2", "error", "no assignment"),
        ("Environment=“KUBELET_EXTRA_ARGS=--v=2 --x=1”", "error", "typographic quote"),
        ("Environment=A=1 B", "warning", "is only '1'"),
        ("Environment=A=1 \"KUBELET_EXTRA_ARGS=--v=2", "error", "not closed"),
        ("Environment=\"KUBELET_EXTRA_ARGS=--v=2\"\n--node-ip=10.0.0.1", "error", "was wrapped"),
    ] {
        let found = drop_in("SD005", &format!("[Service]\n{text}\n"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(severity) && found[0].contains(hint), "{found:?}");
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
fn names_that_systemd_does_not_know_are_named_with_what_was_meant() {
    let text = "Environment=\"A=1\"\n[service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n[Service]\nEnviroment=\"B=--x\"\nnonsense\nX-Ours=1\n[Unit]\nEnvironment=C=1\n[X-Ours]\nAny=1\n";
    insta::assert_snapshot!(drop_in("SD011", text).join("\n"), @r"
warning /etc/systemd/system/kubelet.service.d/20-own.conf:1: the line stands before the first section: systemd ignores it
warning /etc/systemd/system/kubelet.service.d/20-own.conf:2: unknown section [service] (names are case-sensitive): its settings are ignored. Lost: --v=3
warning /etc/systemd/system/kubelet.service.d/20-own.conf:5: unknown key Enviroment in [Service]: systemd ignores the line. Lost: --x
warning /etc/systemd/system/kubelet.service.d/20-own.conf:6: this line is neither a section nor an assignment: systemd ignores 'nonsense'
warning /etc/systemd/system/kubelet.service.d/20-own.conf:9: unknown key Environment in [Unit]: systemd ignores the line
");
    let findings = findings_with(&kubeadm().file(OWN, text), Inputs::default());
    let fixes: Vec<String> = findings
        .into_iter()
        .filter(|finding| finding.rule == "SD011")
        .filter_map(|finding| finding.fix)
        .map(|fix| fix.split(", then").next().unwrap().to_owned())
        .collect();
    insta::assert_snapshot!(fixes.join("\n"), @r"
write `[Service]` above it
write the section's name as [Service], [Unit] or [Install]
write Environment= (names are case-sensitive)
write it as KEY=VALUE, or make it a comment with `#`
move the line to the section [Service]: Environment= has no meaning in [Unit]
");
    assert!(drop_in("SD011", "[Service]\nRestartSec=5\n# x\n").is_empty());
}

#[test]
fn a_malformed_header_loses_the_rest() {
    let found = drop_in("SD011", "[Service\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("error {OWN}:1: systemd stops reading the file here")), "{found:?}");
    assert!(found[0].ends_with("Lost: --v=3"), "{found:?}");
}

#[test]
fn a_blank_behind_the_backslash_is_an_argument() {
    let found = drop_in("SD015", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\ \n  --v=2\n");
    assert!(found.iter().any(|one| one.starts_with(&format!("fatal {OWN}:3"))), "{found:?}");
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
    // k3s' own unit ends its command that way.
    assert!(drop_in("SD015", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n    --v=2 \\\n\n").is_empty());
}
