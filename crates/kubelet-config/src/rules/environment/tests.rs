use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::Intent;
use crate::rules::tests::support::{DROP_IN, carets, external, findings_with, fixed_files, found, kubeadm, lost};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";

fn drop_in(value: &str) -> String {
    format!("[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS={value}\"\n")
}

#[test]
fn a_packaged_empty_file_overrides_the_drop_in() {
    let tree = kubeadm().file(OWN, drop_in("--cloud-provider=external"));
    assert_eq!(lost(&tree, external(), "SD001"), ["error /etc/default/kubelet:1 --cloud-provider=external"]);
    assert_eq!(
        fixed_files(&tree, &external(), "SD001"),
        ["/etc/default/kubelet\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n"]
    );
    let findings = findings_with(&tree, external());
    let finding = findings.iter().find(|finding| finding.rule == "SD001").unwrap();
    let chain: Vec<String> = finding.chain.iter().map(|step| format!("{}:{}", step.at, step.at.column)).collect();
    assert_eq!(
        chain,
        [
            format!("{OWN}:2:33"),
            format!("{DROP_IN}:5:0"),
            "/etc/default/kubelet:1:1".to_owned(),
            format!("{DROP_IN}:7:96"),
        ]
    );
}

#[test]
fn the_flags_of_the_file_stay_and_a_flag_that_may_be_overridden_on_purpose_is_not_moved() {
    let file = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\"--v=4 --node-labels=c=d\"\n");
    let labels = file.clone().file(OWN, drop_in("--cloud-provider=external --node-labels=a=b"));
    assert_eq!(
        lost(&labels, external(), "SD001"),
        ["error /etc/default/kubelet:1 --cloud-provider=external --node-labels=a=b"]
    );
    assert_eq!(
        fixed_files(&labels, &external(), "SD001"),
        [format!(
            "{ENV}\nKUBELET_EXTRA_ARGS=\"--v=4 --node-labels=c=d --cloud-provider=external --node-labels=a=b\"\n"
        )]
    );
    assert_eq!(fixed_files(&labels, &Inputs::default(), "SD001"), [""; 0]);
    // Of two values it is not known which one is right.
    let other = file.file(OWN, drop_in("--v=2 --cloud-provider=external"));
    assert_eq!(fixed_files(&other, &external(), "SD001"), [""; 0]);
}

#[test]
fn a_flag_that_the_kubelet_would_exit_with_or_that_holds_a_variable_is_not_moved() {
    for value in ["--lvl=run", "--node-ip=$IP", "--cloud-config=/x"] {
        let tree = kubeadm().file(OWN, drop_in(value));
        let inputs = Inputs { version: Some("1.34.1".parse().unwrap()), ..Inputs::default() };
        assert_eq!(lost(&tree, inputs.clone(), "SD001"), [format!("warning /etc/default/kubelet:1 {value}")]);
        assert_eq!(fixed_files(&tree, &inputs, "SD001"), [""; 0], "{value}");
    }
    // The word `$KUBELET_EXTRA_ARGS` remains: in a file it is plain text as well.
    let tree = kubeadm().file(OWN, drop_in("$KUBELET_EXTRA_ARGS --root-dir=/data"));
    assert_eq!(
        fixed_files(&tree, &Inputs::default(), "SD001"),
        [format!("{ENV}\nKUBELET_EXTRA_ARGS=--root-dir=/data\n")]
    );
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
fn an_empty_file_that_overrides_nothing_is_no_finding() {
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
fn a_later_file_overrides_an_earlier_one_and_a_later_line_an_earlier_line() {
    let tree = kubeadm()
        .file(OWN, "[Service]\nEnvironmentFile=-/etc/sysconfig/kubelet\n")
        .file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n")
        .file("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=\n");
    assert!(found(&tree, external(), "SD001")[0].starts_with("error /etc/sysconfig/kubelet:1"));
    let unknown = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=--v=2\n").file(OWN, drop_in("--no-flag"));
    let finding = findings_with(&unknown, external()).into_iter().find(|finding| finding.rule == "SD001").unwrap();
    assert!(!finding.fix.unwrap().contains("systemctl"), "the kubelet gets what it has");
    let twice = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\nKUBELET_EXTRA_ARGS=--v=2\n");
    assert!(found(&twice, external(), "SD001")[0].starts_with("error /etc/default/kubelet:2"));
}

#[test]
fn an_expected_value_that_only_a_word_with_braces_makes_a_flag_is_an_error() {
    let text = "[Service]\nEnvironment=IP=10.0.0.9\nEnvironmentFile=-/etc/ip\nExecStart=\nExecStart=/usr/bin/kubelet --node-ip=${IP}\n";
    let tree = kubeadm().file(OWN, text).file("/etc/ip", "IP=10.0.0.8\n");
    let inputs =
        Inputs { intent: Intent { node_ip: Some("10.0.0.9".to_owned()), ..Intent::default() }, ..Inputs::default() };
    assert!(found(&tree, inputs.clone(), "SD001")[0].starts_with("error /etc/ip:1"));
    assert_eq!(fixed_files(&tree, &inputs, "SD001"), ["/etc/ip\nIP=10.0.0.9\n"]);
    assert!(found(&tree, external(), "SD001").is_empty());
}

#[test]
fn two_environment_lines_lose_the_first() {
    let early = "/etc/systemd/system/kubelet.service.d/05-early.conf";
    let tree = kubeadm().file(early, "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/early\"\n");
    assert_eq!(lost(&tree, external(), "SD024"), [format!("warning {early}:2 --config=/early")]);
    let tree = kubeadm()
        .without(ENV)
        .file(early, drop_in("--cloud-provider=external"))
        .file(OWN, "[Service]\nEnvironment=A=1 KUBELET_EXTRA_ARGS=--v=2 B=1\n");
    assert_eq!(
        fixed_files(&tree, &external(), "SD024"),
        [format!("{OWN}\n[Service]\nEnvironment=A=1 \"KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external\" B=1\n")]
    );
    assert_eq!(
        fixed_files(&tree, &Inputs::default(), "SD024"),
        [""; 0],
        "the new line may leave the flag out on purpose"
    );
    let in_unit = tree.without(early).file("/etc/systemd/system/kubelet.service", drop_in("--v=4"));
    let in_unit = found(&in_unit, external(), "SD024");
    assert!(in_unit[0].ends_with("because systemd loads drop-ins after the unit file. Lost: --v=4"), "{in_unit:?}");
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
    assert!(places.iter().any(|place| place.starts_with(&format!("error {DROP_IN}:2"))), "{places:?}");
    assert!(places.iter().any(|place| place.starts_with(&format!("warning {OWN}:2"))), "{places:?}");
    assert_eq!(fixed_files(&tree, &external(), "SD024"), [""; 0], "systemd documents the empty line as a reset");
}

#[test]
fn a_variable_that_is_taken_out_loses_its_flags() {
    let own = "/etc/systemd/system/kubelet.service.d/20-own.conf";
    let tree = kubeadm()
        .file(own, "[Service]\nUnsetEnvironment=KUBELET_EXTRA_ARGS\n")
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    let found_in = found(&tree, external(), "SD024");
    assert!(found_in[0].starts_with(&format!("error {own}:2: `UnsetEnvironment=`")), "{found_in:?}");
}
