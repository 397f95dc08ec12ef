use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::{CloudFacts, ClusterFacts, Intent, Process};
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{external, findings_with, fixed_files, found, kubeadm};

const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";
const LINE: &str = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";

fn places(tree: &MemoryTree, inputs: Inputs) -> Vec<String> {
    let messages = found(tree, inputs, "CL001");
    messages.iter().map(|message| message.split(": ").next().unwrap().to_owned()).collect()
}

#[test]
fn the_hetzner_mistake_is_named_and_explained() {
    let tree = kubeadm().file(OWN, LINE);
    assert_eq!(places(&tree, external()), [format!("error {OWN}:2")]);
    let findings = findings_with(&tree, external());
    let finding = findings.iter().find(|finding| finding.rule == "CL001").unwrap();
    let (rule, at) = finding.caused_by.as_ref().unwrap();
    assert_eq!((*rule, at.to_string()), ("SD001", "/etc/default/kubelet:1".to_owned()));
    let chain: Vec<String> = finding.chain.iter().map(|step| step.at.to_string()).collect();
    assert_eq!(chain, ["/etc/default/kubelet:1"]);
}

#[test]
fn every_cause_is_linked_to_the_finding_that_explains_it() {
    let env = "/etc/default/kubelet";
    let later = "[Service]\nEnvironment=\"KUBELET_KUBEADM_ARGS=--v=3\"\n";
    let flag = "--cloud-provider=external";
    for (rule, path, text) in [
        ("SD002", env, format!("KUBELET_EXTRA_ARG={flag}\n")),
        ("SD004", env, format!("export KUBELET_EXTRA_ARGS={flag}\n")),
        ("SD025", env, format!("\u{feff}KUBELET_EXTRA_ARGS={flag}\n")),
        ("SD005", OWN, format!("[Service]\nEnvironment=KUBELET_X=--v=2 {flag}\n")),
        ("SD011", OWN, format!("[service]\nEnvironment=\"KUBELET_EXTRA_ARGS={flag}\"\n")),
        ("SD011", OWN, format!("[Service]\nEnviroment=\"KUBELET_EXTRA_ARGS={flag}\"\n")),
        ("SD009", "/etc/systemd/system/kubelet.service.d/x.conf.bak", LINE.to_owned()),
        ("SD010", "/run/systemd/system/kubelet.service.d/30-later.conf", LINE.to_owned()),
        ("SD018", OWN, format!("[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS={flag} --root-dir=/a%20b\"\n")),
        ("SD016", env, "KUBELET_EXTRA_ARGS=–cloud-provider=external\n".to_owned()),
        ("FL005", env, format!("KUBELET_EXTRA_ARGS=\"{flag} --cloud-provider=\"\n")),
        (
            "SD006",
            OWN,
            format!("[Service]\nEnvironment=\"X=--v=2 {flag}\"\nExecStart=\nExecStart=/usr/bin/kubelet ${{X}}\n"),
        ),
        (
            "SD007",
            OWN,
            format!("[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS={flag}\"\nExecStart=\nExecStart=/usr/bin/kubelet\n"),
        ),
    ] {
        let tree =
            kubeadm().file("/etc/systemd/system/kubelet.service.d/30-later.conf", later).file(path, text.clone());
        let findings = findings_with(&tree, external());
        let finding = findings.iter().find(|finding| finding.rule == "CL001");
        let cause = finding.and_then(|finding| finding.caused_by.as_ref()).map(|(rule, _)| *rule);
        assert_eq!(cause, Some(rule), "{text}: {findings:#?}");
    }
}

#[test]
fn nowhere_is_said_at_the_command_with_the_line_to_write() {
    let findings = findings_with(&kubeadm(), external());
    let finding = findings.iter().find(|finding| finding.rule == "CL001").unwrap();
    assert_eq!(finding.at.to_string(), format!("{}:7", crate::rules::tests::support::DROP_IN));
    assert_eq!(
        fixed_files(&kubeadm(), &external(), "CL001"),
        ["/etc/default/kubelet\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n"]
    );
    let without = kubeadm().without("/etc/default/kubelet");
    assert_eq!(fixed_files(&without, &external(), "CL001"), fixed_files(&kubeadm(), &external(), "CL001"));
}

#[test]
fn a_command_without_a_variable_for_the_operators_flags_gets_the_flag_itself() {
    let tree = kubeadm().file(OWN, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2\nRestart=always\n");
    let text = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2 --cloud-provider=external\nRestart=always\n";
    assert_eq!(fixed_files(&tree, &external(), "CL001"), [format!("{OWN}\n{text}")]);
}

#[test]
fn it_is_silent_where_the_flag_arrives_or_nobody_wants_it() {
    let given = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    assert!(places(&given, external()).is_empty());
    let none =
        Inputs { intent: Intent { cloud_provider: Some("none".to_owned()), ..Intent::default() }, ..Inputs::default() };
    assert!(places(&kubeadm(), none).is_empty());
    let report = crate::rules::lint(&crate::kubelet::resolve::resolve(&kubeadm(), Inputs::default()));
    assert!(report.findings.iter().all(|finding| finding.rule != "CL001"));
    assert!(report.not_checked.iter().any(|one| one.rule == "CL001"), "the intent does not say whether it is wanted");
}

#[test]
fn a_cloud_controller_is_expected_where_the_cluster_or_the_cloud_shows_one() {
    let cluster = |facts: ClusterFacts| Inputs { cluster: Some(facts), ..Inputs::default() };
    let others = |others| ClusterFacts { others_have_provider_id: Some(others), ..ClusterFacts::default() };
    assert_eq!(places(&kubeadm(), cluster(others(true))).len(), 1);
    assert_eq!(places(&kubeadm(), cluster(others(false))).len(), 0);
    let tainted = ClusterFacts { taints: Some(vec![super::UNINITIALIZED.to_owned()]), ..ClusterFacts::default() };
    assert_eq!(places(&kubeadm(), cluster(tainted)).len(), 1);
    let cloud = |provider: &str| Inputs {
        cloud: Some(CloudFacts { provider: Some(provider.to_owned()), ..CloudFacts::default() }),
        ..Inputs::default()
    };
    // Who has a server of a cloud need not run a cloud controller.
    assert!(places(&kubeadm(), cloud("hetzner"))[0].starts_with("info "));
    assert!(places(&kubeadm().file(OWN, LINE), cloud("hetzner"))[0].starts_with("warning "), "somebody wrote it");
    assert_eq!(places(&kubeadm(), cloud("none")).len(), 0);
    // A kubelet that still has a cloud provider of its own needs no controller.
    let aws = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=aws\n");
    let old = |version: &str| Inputs { version: Some(version.parse().unwrap()), ..cloud("aws") };
    assert_eq!(places(&aws, old("1.26.0")).len(), 0);
    assert_eq!(places(&aws, old("1.31.0")).len(), 1);
}

#[test]
fn another_value_is_shown_where_it_stands() {
    let tree = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=hcloud\n");
    let messages = found(&tree, external(), "CL001");
    assert!(messages[0].contains("its value here is 'hcloud'"), "{messages:?}");
    assert!(messages[0].starts_with("error /etc/default/kubelet:1"));
}

#[test]
fn behind_a_script_the_process_tells() {
    let tree = kubeadm()
        .file("/usr/local/bin/start", "#!/bin/sh\nexec kubelet\n")
        .mode("/usr/local/bin/start", 0o755)
        .file(OWN, "[Service]\nExecStart=\nExecStart=/bin/sh -c /usr/local/bin/start\n");
    let running = |argv: &[&str]| Inputs {
        process: Some(Process { pid: 7, argv: argv.iter().map(|word| (*word).to_owned()).collect(), age_secs: None }),
        ..external()
    };
    assert!(places(&tree, running(&["kubelet", "--cloud-provider=external"])).is_empty());
    assert_eq!(places(&tree, running(&["kubelet", "--v=2"])).len(), 1);
    assert!(places(&tree, external()).is_empty());
}

#[test]
fn on_k3s_the_flag_becomes_an_item_of_kubelet_arg() {
    let unit = "[Service]\nExecStart=/usr/local/bin/k3s server --disable-cloud-controller\n";
    let k3s = MemoryTree::new()
        .file("/etc/systemd/system/k3s.service", unit)
        .file("/etc/rancher/k3s/config.yaml", "kubelet-arg:\n- v=2\n");
    let after = "/etc/rancher/k3s/config.yaml\nkubelet-arg:\n- \"cloud-provider=external\"\n- v=2\n";
    assert_eq!(fixed_files(&k3s, &external(), "CL001"), [after]);
}
