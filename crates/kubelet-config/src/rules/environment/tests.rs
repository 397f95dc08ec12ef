use crate::{
    kubelet::{resolve::Inputs, snapshot::Intent},
    rules::testing::{DROP_IN, carets, external, findings_with, found, kubeadm},
};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";

fn drop_in(value: &str) -> String {
    format!("[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS={value}\"\n")
}

#[test]
fn a_packaged_empty_file_beats_the_drop_in() {
    let tree = kubeadm().file(OWN, drop_in("--cloud-provider=external"));
    insta::assert_snapshot!(found(&tree, external(), "SD001").join("\n"), @r"error /etc/default/kubelet:1: KUBELET_EXTRA_ARGS is empty here; /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:5 loads this file, and a file always beats `Environment=` (/etc/systemd/system/kubelet.service.d/20-cloud.conf:2), whatever the order of the drop-ins. Lost: --cloud-provider=external");
    let findings = findings_with(&tree, external());
    let finding = findings.iter().find(|finding| finding.rule == "SD001").unwrap();
    assert_eq!(
        finding.fix.as_deref().unwrap(),
        "write `KUBELET_EXTRA_ARGS=--cloud-provider=external` at /etc/default/kubelet:1, then `systemctl restart \
         kubelet` (an environment file needs no daemon-reload)"
    );
    let chain: Vec<String> =
        finding.chain.iter().map(|step| format!("{}:{} {}", step.at, step.at.column, step.text)).collect();
    insta::assert_snapshot!(chain.join("\n"), @r"
/etc/systemd/system/kubelet.service.d/20-cloud.conf:2:33 this is lost
/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:5:0 loads /etc/default/kubelet
/etc/default/kubelet:1:1 this counts
/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7:96 used here
");
}

#[test]
fn what_is_lost_and_not_wanted_is_a_warning_and_keeps_the_winners_words() {
    let tree = kubeadm()
        .file(ENV, "KUBELET_EXTRA_ARGS=\"--v=4 --max-pods=50\"\n")
        .file(OWN, drop_in("--v=2 --node-labels=a=b"));
    let findings = findings_with(&tree, external());
    let finding = findings.iter().find(|finding| finding.rule == "SD001").unwrap();
    assert_eq!(finding.severity, crate::rules::Severity::Warning);
    assert!(finding.message.ends_with("Lost: --v=2 --node-labels=a=b"), "{}", finding.message);
    let fix = finding.fix.as_deref().unwrap();
    assert!(fix.contains("`KUBELET_EXTRA_ARGS=\"--max-pods=50 --v=2 --node-labels=a=b\"`"), "{fix}");
}

#[test]
fn an_equal_value_and_one_that_arrives_otherwise_are_only_worth_a_line() {
    let equal = kubeadm()
        .file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n")
        .file(OWN, drop_in("--cloud-provider=external"));
    assert_eq!(carets(&equal, external(), "SD001"), [format!("info {OWN}:2:13+46")]);
    let elsewhere = kubeadm()
        .file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=--cloud-provider=external\n")
        .file(OWN, drop_in("--cloud-provider=external"));
    assert_eq!(found(&elsewhere, external(), "SD001").len(), 1);
    assert!(found(&elsewhere, external(), "SD001")[0].starts_with("info"));
}

#[test]
fn an_empty_file_that_beats_nothing_is_no_finding() {
    assert!(found(&kubeadm(), external(), "SD001").is_empty());
    let empty = kubeadm().file(OWN, drop_in(""));
    assert!(found(&empty, external(), "SD001").is_empty());
    let unused = kubeadm().file(OWN, "[Service]\nEnvironment=\"OTHER=--a=1\"\nEnvironmentFile=-/etc/o\n");
    assert!(found(&unused.file("/etc/o", "OTHER=\n"), external(), "SD001").is_empty());
}

#[test]
fn a_default_beside_its_override_is_only_worth_a_line() {
    let text = "[Service]\nEnvironment=LOG=--v=2\nEnvironmentFile=-/etc/sysconfig/log\nExecStart=\nExecStart=/usr/bin/kubelet $LOG\n";
    let tree = kubeadm().file(OWN, text).file("/etc/sysconfig/log", "LOG=--v=4\n");
    assert!(found(&tree, external(), "SD001")[0].starts_with("info /etc/sysconfig/log:1"));
}

#[test]
fn a_later_file_beats_an_earlier_one_and_a_later_line_an_earlier_line() {
    let tree = kubeadm()
        .file(OWN, "[Service]\nEnvironmentFile=-/etc/sysconfig/kubelet\n")
        .file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n")
        .file("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=\n");
    assert!(found(&tree, external(), "SD001")[0].starts_with("error /etc/sysconfig/kubelet:1"));
    let twice = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\nKUBELET_EXTRA_ARGS=--v=2\n");
    assert!(found(&twice, external(), "SD001")[0].starts_with("error /etc/default/kubelet:2"));
}

#[test]
fn a_wanted_value_that_only_a_word_with_braces_makes_a_flag_is_an_error() {
    let text = "[Service]\nEnvironment=IP=10.0.0.9\nEnvironmentFile=-/etc/ip\nExecStart=\nExecStart=/usr/bin/kubelet --node-ip=${IP}\n";
    let tree = kubeadm().file(OWN, text).file("/etc/ip", "IP=10.0.0.8\n");
    let inputs =
        Inputs { intent: Intent { node_ip: Some("10.0.0.9".to_owned()), ..Intent::default() }, ..Inputs::default() };
    assert!(found(&tree, inputs, "SD001")[0].starts_with("error /etc/ip:1"));
    assert!(found(&tree, external(), "SD001").is_empty());
}

#[test]
fn two_environment_lines_lose_the_first() {
    let tree = kubeadm().file(
        "/etc/systemd/system/kubelet.service.d/05-early.conf",
        "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/early\"\n",
    );
    insta::assert_snapshot!(found(&tree, external(), "SD024").join("\n"), @r"warning /etc/systemd/system/kubelet.service.d/05-early.conf:2: KUBELET_CONFIG_ARGS is set here and again at /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:3, which is loaded later (10-kubeadm.conf sorts after 05-early.conf; the directories do not matter). Lost: --config=/early");
    let same = kubeadm().file(
        "/etc/systemd/system/kubelet.service.d/05-early.conf",
        "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\" LVL=x\n",
    );
    assert!(found(&same, external(), "SD024").is_empty());
}

#[test]
fn an_empty_environment_line_clears_the_others() {
    let tree = kubeadm()
        .file("/etc/systemd/system/kubelet.service.d/90-late.conf", "[Service]\nEnvironment=\n")
        .file(OWN, "[Service]\nEnvironment=\"KUBELET_KUBEADM_ARGS=--v=2\"\n");
    let places = carets(&tree, external(), "SD024");
    assert!(places.iter().any(|place| place.starts_with(&format!("warning {DROP_IN}:2"))), "{places:?}");
    assert!(places.iter().any(|place| place.starts_with(&format!("warning {OWN}:2"))), "{places:?}");
}
