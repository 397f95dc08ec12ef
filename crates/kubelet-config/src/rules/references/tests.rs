use crate::kubelet::resolve::Inputs;
use crate::kubelet::tree::MemoryTree;
use crate::rules::Severity;
use crate::rules::tests::support::{DROP_IN, UNIT, carets, external, findings_with, fixed_files, found, kubeadm, lost};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

fn exec(words: &str) -> String {
    format!("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {words}\n")
}

#[test]
fn a_name_with_a_slip_is_an_error_and_is_renamed_or_its_flags_are_moved() {
    let inputs = Inputs::default();
    let tree = kubeadm().file(ENV, "KUBELET_EXTRA_ARG=--max-pods=50\n");
    assert_eq!(lost(&tree, inputs.clone(), "SD002"), ["error /etc/default/kubelet:1 --max-pods=50"]);
    assert_eq!(fixed_files(&tree, &inputs, "SD002"), [format!("{ENV}\nKUBELET_EXTRA_ARGS=--max-pods=50\n")]);
    let newer = tree.clone().file(OWN, "[Service]\nEnvironment=\"KUBELET_KUBEADM_ARGS=--max-pods=30\"\n");
    let newer = newer.without("/var/lib/kubelet/kubeadm-flags.env");
    assert_eq!(fixed_files(&newer, &inputs, "SD002"), [""; 0], "the kubelet gets the flag from elsewhere");
    let both = tree.file(OWN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2\"\n");
    assert_eq!(
        fixed_files(&both, &inputs, "SD002"),
        [format!("{ENV}\n"), format!("{OWN}\n[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2 --max-pods=50\"\n"),]
    );
    // An empty assignment of a file overrides `Environment=` under the right name, too.
    let drop_in = kubeadm().file(OWN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARG=--max-pods=50\"\n");
    assert_eq!(
        fixed_files(&drop_in, &inputs, "SD002"),
        [format!("{ENV}\nKUBELET_EXTRA_ARGS=--max-pods=50\n"), format!("{OWN}\n[Service]\n")]
    );
    let renamed = fixed_files(&drop_in.without(ENV), &inputs, "SD002");
    assert_eq!(renamed, [format!("{OWN}\n[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--max-pods=50\"\n")]);
}

#[test]
fn flags_under_another_name_are_a_warning_and_stay_and_a_slip_without_flags_is_worth_a_line() {
    for name in ["KUBE_PROXY_ARGS", "KUBELET_DNS_ARGS", "KUBELET_EXTRA_ARGS_2"] {
        let far = kubeadm().file(ENV, format!("{name}=--cloud-provider=external\nPATH=/bin\n"));
        assert_eq!(lost(&far, external(), "SD002"), ["warning /etc/default/kubelet:1 --cloud-provider=external"]);
        assert_eq!(fixed_files(&far, &external(), "SD002"), [""; 0], "{name}");
    }
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
    assert_eq!(lines("${UNSET}"), [format!("fatal {OWN}:4:28+8")]);
    assert_eq!(lines("--node-labels=a=${X}").len(), 1);
    assert_eq!(lines("${Y}").len(), 1);
    assert_eq!(lines("--fail-swap-on ${UNSET}").len(), 1);
    let tree = kubeadm().file(OWN, exec("\"${KUBELET_CONFIG_ARGS} \" \"${UNSET}\" --v=2"));
    assert_eq!(
        fixed_files(&tree, &Inputs::default(), "SD006"),
        [format!("{OWN}\n{}", exec("\"${KUBELET_CONFIG_ARGS} \" $UNSET --v=2"))]
    );
    for good in [
        "$X",
        "--node-labels=\"${Z}\"",
        "--sp=${Y}",
        "$UNSET",
        "${Z}",
        "--x=${UNSET}",
        "--node-ip ${UNSET} --node-labels \"${UNSET}\"", // The value of the flag before it.
    ] {
        assert_eq!(lines(good), [""; 0], "{good}");
    }
}

#[test]
fn a_command_that_forgets_a_variable_is_an_error() {
    let tree = kubeadm()
        .file(ENV, "KUBELET_EXTRA_ARGS=--max-pods=50\n")
        .file(OWN, exec("$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS"));
    assert_eq!(lost(&tree, Inputs::default(), "SD007"), [format!("error {OWN}:3 --max-pods=50")]);
    let all = "$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS";
    assert_eq!(fixed_files(&tree, &Inputs::default(), "SD007"), [format!("{OWN}\n{}", exec(all))]);
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

#[test]
fn a_default_as_a_shell_has_it_and_the_colon_are_named() {
    let unit = |exec: &str| {
        let text = format!("[Service]\nEnvironment=IP=10.0.0.7\nExecStart=\nExecStart={exec}\n");
        kubeadm().file("/etc/systemd/system/kubelet.service.d/20-own.conf", text)
    };
    let tree = unit("/usr/bin/kubelet --node-ip=${IP:-}");
    let shell_has = found(&tree, Inputs::default(), "SD006");
    assert!(shell_has[0].starts_with("error /etc/systemd/system/kubelet.service.d/20-own.conf:4"), "{shell_has:?}");
    assert!(crate::rules::tests::support::fixed(&tree, &Inputs::default(), "SD006")[0].contains("--node-ip=${IP}\n"));
    let nothing = found(&unit("/usr/bin/kubelet --node-ip=${IP-10.0.0.7}"), Inputs::default(), "SD006");
    assert!(nothing[0].starts_with("error") && nothing[0].contains("gets nothing for it"), "{nothing:?}");
    let colon = unit(":/usr/bin/kubelet $IP $ARGS");
    let fatal = findings_with(&colon, Inputs::default()).into_iter().filter(|one| one.severity == Severity::Fatal);
    let fatal: Vec<_> = fatal.map(|one| one.rule).collect();
    assert_eq!(fatal, ["SD016"], "one mistake, one finding");
}

#[test]
fn a_command_as_a_shell_has_it_is_one_mistake() {
    for (words, severity) in [
        ("--node-ip=$(hostname -I | cut -d ' ' -f1) --v=2", Severity::Fatal),
        ("--node-ip=`cat /etc/node-ip`", Severity::Fatal),
        ("--node-ip=$(hostname)", Severity::Error),
    ] {
        let file = "/etc/default/kubelet";
        let tree = kubeadm().file(file, format!("KUBELET_EXTRA_ARGS={words}\n"));
        let found = findings_with(&tree, Inputs::default());
        let own = found.iter().filter(|one| one.severity >= Severity::Error && one.caused_by.is_none());
        let own: Vec<_> = own.map(|one| (one.rule, one.severity, one.at.file_line())).collect();
        assert_eq!(own, [("SD006", severity, format!("{file}:1"))], "{words}: {found:?}");
    }
}

#[test]
fn what_a_misspelt_flag_would_have_set_is_not_judged() {
    for (variable, flag) in [
        ("KUBELET_CONFIG_ARGS", "--confg=/var/lib/kubelet/config.yaml"),
        ("KUBELET_CONFIG_ARGS", "-config=/var/lib/kubelet/config.yaml"),
        ("KUBELET_CONFIG_ARGS", "—config=/var/lib/kubelet/config.yaml"),
        ("KUBELET_CONFIG_ARGS", "'--config /var/lib/kubelet/config.yaml'"),
        ("KUBELET_KUBECONFIG_ARGS", "--kubeconfg=/etc/kubernetes/kubelet.conf"),
    ] {
        let text = format!("[Service]\nEnvironment=\"{variable}={flag}\"\n");
        let tree = kubeadm().file("/etc/systemd/system/kubelet.service.d/20-own.conf", text);
        let found = findings_with(&tree, Inputs { version: "1.33.4".parse().ok(), ..Inputs::default() });
        let judged = found.iter().filter(|one| one.rule.starts_with("AU") || one.rule == "CF007");
        assert_eq!(judged.map(|one| one.rule).collect::<Vec<_>>(), [""; 0], "{flag}");
        assert!(found.iter().any(|one| one.severity == Severity::Fatal), "{flag}");
    }
}

#[test]
fn a_slip_at_a_flag_or_between_two_is_one_mistake() {
    for (line, rule) in [
        ("KUBELET_KUBEADM_ARGS=--cloud-providr=external", "FL001"),
        ("KUBELET_KUBEADM_ARGS=-cloud-provider=external", "FL001"),
        ("KUBELET_KUBEADM_ARGS=cloud-provider=external", "SD016"),
        ("KUBELET_KUBEADM_ARGS=--v=2,--cloud-provider=external", "FL004"),
        ("KUBELET_KUBEADM_ARGS=--root-dir=/x,--cloud-provider=external", "FL004"),
        ("KUBELET_KUBEADM_ARGS=--node-ip=10.0.0.7;--cloud-provider=external", "FL004"),
        ("KUBELET_KUBEADM_ARG=--cloud-provider=external", "SD002"),
    ] {
        let tree = kubeadm().file("/var/lib/kubelet/kubeadm-flags.env", format!("{line}\n"));
        let inputs = Inputs { version: "1.33.4".parse().ok(), ..external() };
        let found = findings_with(&tree, inputs);
        let own = found.iter().filter(|one| one.severity >= Severity::Warning && one.caused_by.is_none());
        let own: Vec<_> = own.filter(|one| !one.rule.starts_with("RS")).map(|one| one.rule).collect();
        assert_eq!(own, [rule], "{line}");
    }
}

#[test]
fn kubeadms_variable_that_is_set_nowhere_is_named() {
    let file = "/var/lib/kubelet/kubeadm-flags.env";
    let tree = kubeadm().file(file, "KUBELET_EXTRA_ARGS=\"--v=4\"\n");
    let found = found(&tree, Inputs::default(), "SD002");
    assert!(found[0].starts_with(&format!("warning {file}:1: KUBELET_KUBEADM_ARGS")), "{found:?}");
}

#[test]
fn a_kubelet_that_is_to_be_standalone_lacks_no_kubeconfig() {
    const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-etcd-service-manager.conf";
    const FILE: &str = "/etc/systemd/system/kubelet.service.d/kubelet.conf";
    let says = |flags: &str, config: &str| {
        let exec = format!("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {flags}\n");
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n";
        let tree = kubeadm().file(OWN, exec).file(FILE, format!("{head}{config}"));
        let findings = findings_with(&tree, Inputs::default()).into_iter();
        let own = findings.filter(|one| matches!(one.rule, "SD007" | "SD011" | "AU008"));
        own.map(|one| format!("{:?} {}", one.severity, one.rule)).collect::<Vec<_>>().join("|")
    };
    let config = format!("--config={FILE}");
    let off = "authentication: {webhook: {enabled: false}, anonymous: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\nstaticPodPath: /etc/kubernetes/manifests\n";
    assert_eq!(says(&config, off), "Warning AU008|Info SD007|Info SD007|Info SD007");
    let old = "--address=127.0.0.1 --pod-manifest-path=/etc/kubernetes/manifests --cgroup-driver=systemd";
    assert!(!says(old, off).contains("Error SD007"));
    assert!(says(&config, "staticPodPath: /etc/kubernetes/manifests\n").contains("Error SD007"), "it exits");
    assert!(says("--max-pods=200", off).contains("Error SD007"), "it runs no pod");
}
