use crate::{
    kubelet::{resolve::Inputs, tree::MemoryTree},
    rules::testing::{DROP_IN, UNIT, carets, external, findings_with, found, kubeadm},
};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

fn exec(words: &str) -> String {
    format!("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {words}\n")
}

#[test]
fn a_name_with_a_slip_is_an_error_and_the_fix_says_what_to_write() {
    let tree = kubeadm().file(ENV, "KUBELET_EXTRA_ARG=--max-pods=50\n");
    insta::assert_snapshot!(found(&tree, Inputs::default(), "SD002").join("\n"), @r"error /etc/default/kubelet:1: KUBELET_EXTRA_ARG is set here, but no `ExecStart=` refers to it; /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7 uses $KUBELET_EXTRA_ARGS. Lost: --max-pods=50");
    let findings = findings_with(&tree, Inputs::default());
    let finding = findings.iter().find(|finding| finding.rule == "SD002").unwrap();
    assert!(
        finding
            .fix
            .as_deref()
            .unwrap()
            .starts_with("rename KUBELET_EXTRA_ARG to KUBELET_EXTRA_ARGS at /etc/default/kubelet:1")
    );
    let both = tree.file(OWN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2\"\n");
    let findings = findings_with(&both, Inputs::default());
    let fix = findings.iter().find(|finding| finding.rule == "SD002").unwrap().fix.clone().unwrap();
    assert!(fix.contains("`KUBELET_EXTRA_ARGS=\"--v=2 --max-pods=50\"`"), "{fix}");
}

#[test]
fn flags_under_another_name_are_a_warning_and_a_slip_without_flags_is_worth_a_line() {
    let far = kubeadm().file(ENV, "MY_OWN_FLAGS=--max-pods=50\nPATH=/bin\n");
    assert_eq!(carets(&far, Inputs::default(), "SD002"), ["warning /etc/default/kubelet:1:1+12"]);
    let slip = kubeadm().file(ENV, "kubelet_extra_args=x\n");
    assert!(found(&slip, Inputs::default(), "SD002")[0].starts_with("info"));
}

#[test]
fn what_has_no_flags_and_what_others_use_is_silent() {
    let silent = |tree: &MemoryTree| assert_eq!(found(tree, Inputs::default(), "SD002"), [""; 0]);
    silent(&kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\nHTTPS_PROXY=http://10.0.0.1:3128\nNAME=\"x\"\nPATH=/bin\n"));
    silent(&kubeadm().file(OWN, "[Service]\nEnvironment=\"PRE=--flush\"\nExecStartPre=/sbin/tool ${PRE}\n"));
    // A script may read what it likes of its environment.
    silent(
        &kubeadm().file(OWN, "[Service]\nEnvironment=\"X=--a=1\"\nExecStart=\nExecStart=/bin/sh -c 'exec kubelet'\n"),
    );
    // Unset variables in a command are the normal shape of kubespray and AKS.
    silent(&kubeadm().file(OWN, exec("$KUBE_LOGTOSTDERR $KUBELET_PORT $DOCKER_SOCKET")));
}

#[test]
fn braces_keep_a_list_in_one_word() {
    let env = "Environment=\"X=--a=1 --b=2\" \"Y=a b\" \"Z=a=b,c=d\"";
    let lines = |words: &str| {
        let text = format!("[Service]\n{env}\nExecStart=\nExecStart=/usr/bin/kubelet {words}\n");
        carets(&kubeadm().file(OWN, text), Inputs::default(), "SD006")
    };
    assert_eq!(lines("${X}"), [format!("error {OWN}:4:28+4")]);
    assert_eq!(lines("--node-labels=a=${X}").len(), 1);
    assert_eq!(lines("${Y}").len(), 1);
    assert_eq!(lines("${UNSET}").len(), 1);
    for good in ["$X", "--node-labels=\"${Z}\"", "--sp=${Y}", "$UNSET", "${Z}", "--x=${UNSET}"] {
        assert_eq!(lines(good), [""; 0], "{good}");
    }
}

#[test]
fn a_command_that_forgets_a_variable_is_an_error() {
    let tree = kubeadm()
        .file(ENV, "KUBELET_EXTRA_ARGS=--max-pods=50\n")
        .file(OWN, exec("$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS"));
    insta::assert_snapshot!(found(&tree, Inputs::default(), "SD007").join("\n"), @r"error /etc/systemd/system/kubelet.service.d/20-own.conf:3: this `ExecStart=` replaces an earlier one and does not use $KUBELET_EXTRA_ARGS any more. Lost: --max-pods=50");
    assert!(found(&tree, Inputs::default(), "SD002").is_empty(), "said once");
}

#[test]
fn a_wanted_flag_of_the_old_command_is_missed_and_others_are_not() {
    let unit = "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external --v=2\n";
    let tree = kubeadm().file(UNIT, unit);
    assert_eq!(carets(&tree, external(), "SD007").len(), 1);
    assert!(carets(&tree, external(), "SD007")[0].starts_with(&format!("error {DROP_IN}:7")));
    assert!(found(&tree, Inputs::default(), "SD007").is_empty());
}

#[test]
fn flags_that_the_new_command_gives_itself_are_not_lost() {
    let same = exec(
        "--config=/var/lib/kubelet/config.yaml $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS",
    );
    assert!(found(&kubeadm().file(OWN, same), Inputs::default(), "SD007").is_empty());
    let other = exec("--config=/etc/other.yaml $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS");
    assert!(found(&kubeadm().file(OWN, other), Inputs::default(), "SD007")[0].starts_with("info"));
}
