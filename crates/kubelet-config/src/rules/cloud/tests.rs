//! Each rule fires, and stays silent where it must.

use crate::fix::plan;
use crate::kubelet::location::Location;
use crate::kubelet::machine::{Certificate, ClientCredential, FileState, Kubeconfig};
use crate::kubelet::resolve::{Inputs, Overrides, resolve};
use crate::kubelet::snapshot::{CloudFacts, ClusterFacts, Intent, Lifecycle, Snapshot};
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{found, kubeadm};
use crate::rules::{Finding, Report, Severity, lint};

const ENV: &str = "/etc/default/kubelet";
/// What cloud-init has written on a server of Hetzner and on an instance of AWS.
const INSTANCE_DATA: &str = "/run/cloud-init/instance-data.json";
const HETZNER: &str = include_str!("../../kubelet/cloud/hetzner.json");
const AWS: &str = include_str!("../../kubelet/cloud/aws.json");

fn host(extra: &str) -> MemoryTree {
    kubeadm().file(ENV, format!("KUBELET_EXTRA_ARGS={extra}\n"))
}

fn inputs(version: &str) -> Inputs {
    Inputs { version: Some(version.parse().unwrap()), hostname: Some("node-1".to_owned()), ..Inputs::default() }
}

fn of(extra: &str, inputs: Inputs, rule: &str) -> Vec<String> {
    found(&host(extra), inputs, rule)
}

/// Everything, of a snapshot that `change` has changed.
fn judged(extra: &str, inputs: Inputs, change: impl FnOnce(&mut Snapshot)) -> Report {
    let mut snapshot = resolve(&host(extra), inputs);
    change(&mut snapshot);
    lint(&snapshot)
}

/// Before the kubelet starts for the first time.
fn first(inputs: Inputs) -> Inputs {
    Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..inputs }
}

/// The extra arguments when every edit is made that helps against a finding of `rule`.
fn fixed_command(tree: &MemoryTree, inputs: &Inputs, rule: &str) -> Option<String> {
    let judge = |tree: &dyn crate::kubelet::tree::Tree| lint(&resolve(tree, inputs.clone()));
    let mut plan = plan(tree, &judge, &|finding: &Finding| finding.rule == rule);
    let text = plan.files.pop()?.after;
    Some(text.trim().strip_prefix("KUBELET_EXTRA_ARGS=")?.to_owned())
}

fn severities(report: &Report, rule: &str) -> Vec<Severity> {
    let findings = report.findings.iter().filter(|finding| finding.rule == rule);
    findings.map(|finding| finding.severity).collect()
}

fn lacks(report: &Report, rule: &str) -> bool {
    report.not_checked.iter().any(|lack| lack.rule == rule)
}

const EXTERNAL: &str = "--cloud-provider=external";

#[test]
fn cl002_follows_the_releases() {
    let severity = |extra: &str, version: &str| severities(&judged(extra, inputs(version), |_| ()), "CL002");
    let of = |name: &str, version: &str| severity(&format!("--cloud-provider={name}"), version);
    for (name, version) in
        [("hcloud", "1.30.14"), ("hcloud", "1.34.1"), ("aws", "1.29.9"), ("aws", "1.31.1"), ("External", "1.36.3")]
    {
        assert_eq!(of(name, version), [Severity::Fatal], "{name} {version}");
    }
    for (name, version) in [("external", "1.36.3"), ("", "1.36.3"), ("aws", "1.26.1"), ("gce", "1.28.15")] {
        assert_eq!(of(name, version), [], "{name} {version}");
    }
    let extra = "--cloud-provider hcloud --v=2";
    assert_eq!(fixed_command(&host(extra), &inputs("1.34.1"), "CL002").unwrap(), "--cloud-provider external --v=2");
    let none = Intent { cloud_provider: Some("none".to_owned()), ..Intent::default() };
    let none = Inputs { intent: none, ..inputs("1.34.1") };
    assert_eq!(fixed_command(&host(extra), &none, "CL002"), None, "a Node with the taint would wait forever");
}

fn cluster(age: u64, taints: &[&str], provider_id: Option<&str>) -> Inputs {
    Inputs {
        cluster: Some(ClusterFacts {
            node_exists: Some(true),
            node_age_secs: Some(age),
            taints: Some(taints.iter().map(|&taint| taint.to_owned()).collect()),
            provider_id: provider_id.map(str::to_owned),
            ..ClusterFacts::default()
        }),
        ..inputs("1.33.4")
    }
}

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

#[test]
fn cl004_sees_a_node_that_is_older_than_the_flag() {
    assert_eq!(severities(&judged(EXTERNAL, cluster(3600, &["a"], None), |_| ()), "CL004"), [Severity::Error]);
    for fine in [
        cluster(10, &[TAINT], None),
        cluster(10, &[], Some("hcloud://1")),
        Inputs {
            cluster: Some(ClusterFacts { node_exists: Some(false), ..ClusterFacts::default() }),
            ..inputs("1.33.4")
        },
    ] {
        assert_eq!(of(EXTERNAL, fine, "CL004"), [""; 0]);
    }
    assert_eq!(of("", cluster(3600, &[], None), "CL004"), [""; 0]);
    assert!(lacks(&judged(EXTERNAL, inputs("1.33.4"), |_| ()), "CL004"));
    assert!(!lacks(&judged("", inputs("1.33.4"), |_| ()), "CL004"));
}

#[test]
fn cp005_waits_before_it_complains() {
    let severity = |age| {
        of(EXTERNAL, cluster(age, &[TAINT], None), "CP005")
            .first()
            .map(|finding| finding.split(' ').next().unwrap().to_owned())
    };
    assert_eq!(severity(60), None);
    assert_eq!(severity(121).as_deref(), Some("warning"));
    assert_eq!(severity(900).as_deref(), Some("error"));
    assert_eq!(of(EXTERNAL, cluster(900, &[], Some("hcloud://1")), "CP005"), [""; 0]);
}

fn cloud(provider: &str, id: &str, name: &str) -> Inputs {
    Inputs {
        cloud: Some(CloudFacts {
            provider: Some(provider.to_owned()),
            instance_id: Some(id.to_owned()),
            name: Some(name.to_owned()),
            ..CloudFacts::default()
        }),
        ..inputs("1.33.4")
    }
}

#[test]
fn cl005_compares_with_the_machine() {
    let hetzner = || cloud("hetzner", "4711", "node-1");
    let wrong = judged("--provider-id=hcloud://42", hetzner(), |_| ());
    assert_eq!(severities(&wrong, "CL005"), [Severity::Error]);
    let host_42 = host("--provider-id=hcloud://42");
    assert_eq!(fixed_command(&host_42, &first(hetzner()), "CL005").unwrap(), "--provider-id=hcloud://4711");
    // The Node that exists would have to be deleted first.
    assert_eq!(fixed_command(&host_42, &hetzner(), "CL005"), None);
    assert_eq!(of("--provider-id=hcloud://bm-4711", inputs("1.33.4"), "CL005"), [""; 0]);
    assert_eq!(of("--provider-id=hcloud://4711", hetzner(), "CL005"), [""; 0]);
    assert_eq!(of("--provider-id=ocid1.instance.oc1.iad.anuwcljt", inputs("1.33.4"), "CL005"), [""; 0]);
    let aws = cloud("aws", "i-0c0ffee0123456789", "ip-10-0-31-17.eu-central-1.compute.internal");
    assert_eq!(of("--provider-id=aws:///eu-central-1a/i-0c0ffee0123456789", aws, "CL005"), [""; 0]);
    assert!(lacks(&judged("--provider-id=hcloud://1", inputs("1.33.4"), |_| ()), "CL005"));
    for bad in
        ["4711", "hcloud://", "hcloud://node-1", "aws://eu/i-1", "gce://p/z", "vsphere://42", "azure://x", "://1"]
    {
        let findings = of(&format!("--provider-id={bad}"), inputs("1.33.4"), "CL005");
        assert_eq!(findings.len(), usize::from(bad != "://1"), "{bad}: {findings:?}");
    }
    let declared = Intent { provider_id: Some("hcloud://7".to_owned()), ..Intent::default() };
    let declared = Inputs { intent: declared, ..hetzner() };
    assert_eq!(
        fixed_command(&host("--provider-id=hcloud://4711"), &first(declared), "CL005").unwrap(),
        "--provider-id=hcloud://7"
    );
}

#[test]
fn what_cloud_init_has_from_the_cloud_is_compared_without_facts() {
    let on = |data: &str, extra: &str| host(extra).file(INSTANCE_DATA, data);
    let of = |tree: &MemoryTree, rule: &str| severities(&lint(&resolve(tree, inputs("1.33.4"))), rule);
    let wrong = on(HETZNER, "--provider-id=hcloud://42");
    assert_eq!(of(&wrong, "CL005"), [Severity::Error]);
    assert_eq!(fixed_command(&wrong, &first(inputs("1.33.4")), "CL005").unwrap(), "--provider-id=hcloud://47110815");
    let wrong = on(AWS, "--provider-id=aws:///eu-central-1a/i-42");
    let right = "--provider-id=aws:///eu-central-1a/i-0c0ffee0123456789";
    assert_eq!(fixed_command(&wrong, &first(inputs("1.33.4")), "CL005").unwrap(), right);
    assert_eq!(of(&on(AWS, right), "CL005"), []);
    assert_eq!(of(&on(HETZNER, "--provider-id=metal3://0c0ffee"), "CL005"), [], "another controller's");
    // The server may have been renamed since cloud-init asked.
    let named = |data: &str, name: &str| of(&on(data, &format!("{EXTERNAL} --hostname-override={name}")), "CL007");
    assert_eq!(named(HETZNER, "node-7"), [Severity::Warning]);
    assert_eq!(named(HETZNER, "pool1-4f2a"), []);
    assert_eq!(named(AWS, "node-7"), [Severity::Warning]);
    for name in ["ip-10-0-31-17.eu-central-1.compute.internal", "ip-10-0-31-17.example.com", "i-0c0ffee0123456789"] {
        assert_eq!(named(AWS, name), [], "{name}");
    }
    let wrong = on(HETZNER, &format!("{EXTERNAL} --hostname-override=node-7"));
    let right = format!("{EXTERNAL} --hostname-override=pool1-4f2a");
    assert_eq!(fixed_command(&wrong, &first(inputs("1.33.4")), "CL007").unwrap(), right);
    // What the caller says counts more.
    let given = Inputs { cloud: Some(CloudFacts::default()), ..inputs("1.33.4") };
    assert_eq!(found(&wrong, given, "CL007"), [""; 0]);
    let cut = &HETZNER[..HETZNER.len() / 2];
    let report = lint(&resolve(&on(cut, "--provider-id=hcloud://42"), inputs("1.33.4")));
    let lack = report.not_checked.iter().find(|lack| lack.rule == "CL005").unwrap();
    assert!(lack.lacks.contains(INSTANCE_DATA), "{}", lack.lacks);
}

#[test]
fn cl005_misses_an_id_only_where_others_have_one() {
    let with = |others, extra: &str, age| {
        let mut inputs = cluster(age, &[], None);
        inputs.cluster.as_mut().unwrap().others_have_provider_id = others;
        of(extra, inputs, "CL005")
    };
    assert!(
        with(Some(true), "", 600)[0]
            .starts_with("warning /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7: ")
    );
    assert_eq!(with(Some(false), "", 600), [""; 0]);
    assert_eq!(with(Some(true), "", 10), [""; 0]);
    // CL004 has it.
    assert_eq!(with(Some(true), EXTERNAL, 600), [""; 0]);
}

fn addresses(list: &[&str], lifecycle: Lifecycle) -> Inputs {
    let addresses = Some(list.iter().map(|&address| address.to_owned()).collect());
    Inputs { overrides: Overrides { addresses, ..Overrides::default() }, lifecycle, ..inputs("1.33.4") }
}

#[test]
fn cl006_wants_an_address_of_this_host() {
    let local = || addresses(&["127.0.0.1", "10.0.0.7/24", "fd00::7"], Lifecycle::Running);
    for (extra, expected) in [
        ("--node-ip=10.0.0.8", Some(Severity::Error)),
        ("--node-ip=127.0.0.1", Some(Severity::Error)),
        ("--node-ip=10.0.0.7,fe80::7", Some(Severity::Error)),
        ("--node-ip=169.254.0.7", Some(Severity::Error)),
        ("--node-ip=10.0.0.7,10.0.0.7", Some(Severity::Fatal)),
        ("--node-ip=node-1", Some(Severity::Error)),
        ("--node-ip=10.0.0.7,fd00::7", None),
        ("--node-ip=10.0.0.7", None),
        ("--node-ip=::", None),
        ("--node-ip=", None),
    ] {
        let severities = severities(&judged(extra, local(), |_| ()), "CL006");
        assert_eq!(severities, expected.into_iter().collect::<Vec<_>>(), "{extra}");
    }
    let declared = Intent { node_ip: Some("10.0.0.7".to_owned()), ..Intent::default() };
    let declared = Inputs { intent: declared, ..local() };
    assert_eq!(
        fixed_command(&host("--node-ip=10.0.0.8 --v=2"), &declared, "CL006").unwrap(),
        "--node-ip=10.0.0.7 --v=2"
    );
    assert!(lacks(&judged("--node-ip=10.0.0.7", inputs("1.33.4"), |_| ()), "CL006"));
}

#[test]
fn cl006_warns_of_a_choice_before_the_start_only() {
    let unset = |list: &[&str], lifecycle| {
        let tree = kubeadm()
            .file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={EXTERNAL}\n"))
            .file("/var/lib/kubelet/kubeadm-flags.env", "");
        found(&tree, addresses(list, lifecycle), "CL006")
    };
    let two = ["127.0.0.1/8", "203.0.113.9", "10.0.0.7", "fe80::1"];
    let found = &unset(&two, Lifecycle::BeforeFirstStart)[0];
    assert!(
        found.starts_with("warning /etc/default/kubelet:1: ") && found.contains("(203.0.113.9, 10.0.0.7)"),
        "{found}"
    );
    assert_eq!(unset(&two, Lifecycle::Running), [""; 0]);
    assert_eq!(unset(&["127.0.0.1", "10.0.0.7"], Lifecycle::BeforeFirstStart), [""; 0]);
}

#[test]
fn cl007_compares_with_the_cloud() {
    let other = || cloud("hetzner", "4711", "pool1-4f2a");
    assert_eq!(severities(&judged(EXTERNAL, other(), |_| ()), "CL007"), [Severity::Error]);
    for (extra, inputs) in [
        ("--cloud-provider=external --hostname-override=pool1-4f2a", other()),
        ("--cloud-provider=external --hostname-override=4711", other()),
        ("--cloud-provider=external --provider-id=hcloud://4711", other()),
        ("", other()),
        (EXTERNAL, cloud("hetzner", "4711", "Node-1")),
        (EXTERNAL, inputs("1.33.4")),
    ] {
        assert_eq!(of(extra, inputs, "CL007"), [""; 0], "{extra}");
    }
    assert!(lacks(&judged(EXTERNAL, inputs("1.33.4"), |_| ()), "CL007"));
}

fn kubeconfig(name: Option<&str>) -> FileState<Kubeconfig> {
    let file = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    FileState::Present(Kubeconfig {
        at: Location::file("/etc/kubernetes/kubelet.conf"),
        server: Some("https://10.0.0.1:6443".to_owned()),
        credential: ClientCredential::CertificateFile { path: file.to_owned() },
        renewed: None,
        certificate: name.map(|name| Certificate {
            at: Location::file(file),
            common_name: Some(format!("system:node:{name}")),
            not_before_secs: 0,
            not_after_secs: 0,
        }),
        certificate_problem: None,
        files: Vec::new(),
        missing_files: Vec::new(),
        missing_authority: None,
    })
}

#[test]
fn cl007_compares_with_the_certificate() {
    let of = |name| {
        severities(
            &judged("", inputs("1.33.4"), |s| {
                s.machine.kubeconfig = kubeconfig(name);
            }),
            "CL007",
        )
    };
    assert_eq!(of(Some("node-2")), [Severity::Error]);
    assert_eq!(of(Some("node-1")), []);
    assert_eq!(of(None), []);
}

#[test]
fn cl008_knows_names_that_are_none() {
    let named = |name: &str, lifecycle| {
        let inputs = Inputs { hostname: Some(name.to_owned()), lifecycle, ..inputs("1.33.4") };
        of("", inputs, "CL008").first().map(|finding| finding.split(' ').next().unwrap().to_owned())
    };
    let after = |name: &str| named(name, Lifecycle::Running);
    let long = "a".repeat(64);
    for bad in ["localhost", "localhost.localdomain", "(none)", "node_1", "-node", "node..1", &long] {
        assert_eq!(after(bad).as_deref(), Some("error"), "{bad}");
    }
    assert_eq!(after(" ").as_deref(), Some("fatal"));
    assert_eq!(after("Node-1").as_deref(), Some("info"), "the kubelet writes it in lower case");
    let upper = Inputs { hostname: Some("Node-1".to_owned()), ..inputs("1.33.4") };
    assert!(of("--cloud-provider=external", upper, "CL008")[0].starts_with("warning"));
    assert_eq!(named("localhost", Lifecycle::BeforeFirstStart).as_deref(), Some("warning"));
    for fine in ["node-1", "ip-10-0-31-17.eu-central-1.compute.internal", "4711"] {
        assert_eq!(after(fine), None, "{fine}");
    }
    let overridden = of(
        "--hostname-override=node-7",
        Inputs { hostname: Some("localhost".to_owned()), ..inputs("1.33.4") },
        "CL008",
    );
    assert_eq!(overridden, [""; 0]);
    let upper = host("--hostname-override=Node-7 --v=2");
    assert_eq!(fixed_command(&upper, &first(inputs("1.33.4")), "CL008").unwrap(), "--hostname-override=node-7 --v=2");
}

#[test]
fn cl009_points_at_the_label() {
    let report = judged("--node-labels=pool=blue,node-role.kubernetes.io/worker=,a=b", inputs("1.33.4"), |_| ());
    let finding = report.findings.iter().find(|finding| finding.rule == "CL009").unwrap();
    assert_eq!(finding.severity, Severity::Fatal);
    assert_eq!(finding.at.to_string(), "/etc/default/kubelet:1");
    // KUBELET_EXTRA_ARGS=--node-labels=pool=blue,node-role.kubernetes.io/worker=,a=b
    assert_eq!((finding.at.column, finding.at.width), (44, 31));
    assert!(finding.fix.as_ref().unwrap().contains("kubectl label node node-1 node-role.kubernetes.io/worker="));
    for (before, after) in [
        ("pool=blue,node-role.kubernetes.io/worker=,a=b", "pool=blue,a=b"),
        ("node-role.kubernetes.io/worker=,a=b,k8s.io/c=d", "a=b"),
    ] {
        let fixed = fixed_command(&host(&format!("--node-labels={before}")), &inputs("1.33.4"), "CL009");
        assert_eq!(fixed.unwrap(), format!("--node-labels={after}"), "{before}");
    }
    let alone = host("--node-labels=node-role.kubernetes.io/worker=");
    assert_eq!(fixed_command(&alone, &inputs("1.33.4"), "CL009").unwrap(), "");
    let two = of("--node-labels=kubernetes.io/role=x --node-labels sub.k8s.io/y=z", inputs("1.33.4"), "CL009");
    assert_eq!(two.len(), 2);
}

#[test]
fn cl009_leaves_others_labels_and_openshift_alone() {
    for extra in [
        "--node-labels=kubernetes.azure.com/agentpool=a,cloud.google.com/gke-nodepool=b,role=c",
        "--node-labels=node.kubernetes.io/pool=blue,topology.kubernetes.io/zone=a",
        "--node-labels=node-role.kubernetes.io/worker= --config-dir=/etc/openshift/kubelet.conf.d",
    ] {
        assert_eq!(of(extra, inputs("1.33.4"), "CL009"), [""; 0], "{extra}");
    }
    let on_coreos = judged("--node-labels=node-role.kubernetes.io/worker=", inputs("1.33.4"), |snapshot| {
        snapshot.machine.os_ids = vec!["rhcos".to_owned()];
    });
    assert_eq!(severities(&on_coreos, "CL009"), []);
}

#[test]
fn cp001_follows_the_policy() {
    let skew = |kubelet: &str, server: &str| {
        let mut inputs = inputs(kubelet);
        inputs.cluster = Some(ClusterFacts { server_version: Some(server.to_owned()), ..ClusterFacts::default() });
        of("", inputs, "CP001").len()
    };
    assert_eq!(skew("1.34.0", "v1.33.9"), 1);
    assert_eq!(skew("1.29.0", "v1.33.9"), 1);
    assert_eq!(skew("1.24.0", "1.27.1"), 1);
    for (kubelet, server) in
        [("1.33.1", "v1.33.9+k3s1"), ("1.30.0", "v1.33.9"), ("1.25.0", "1.28.0"), ("1.25.0", "1.27.0")]
    {
        assert_eq!(skew(kubelet, server), 0, "{kubelet} {server}");
    }
    assert!(lacks(&judged("", inputs("1.33.4"), |_| ()), "CP001"));
    // A control plane's own API server, as kubeadm and RKE2 write it.
    let beside = |kubelet: &str, image: &str| {
        let manifest = format!("spec:\n  containers:\n  - name: kube-apiserver\n    image: {image}\n");
        let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n";
        let tree = kubeadm()
            .file("/var/lib/kubelet/config.yaml", config)
            .file("/etc/kubernetes/manifests/kube-apiserver.yaml", manifest);
        let report = lint(&resolve(&tree, inputs(kubelet)));
        let finding = report.findings.into_iter().find(|finding| finding.rule == "CP001")?;
        Some(finding.chain[0].at.to_string())
    };
    let image = "/etc/kubernetes/manifests/kube-apiserver.yaml:4".to_owned();
    assert_eq!(beside("1.34.0", "registry.k8s.io/kube-apiserver:v1.33.2"), Some(image.clone()));
    assert_eq!(beside("1.34.0", "localhost:5000/kube-apiserver:v1.33.2-rke2r1@sha256:0c0ffee"), Some(image));
    assert_eq!(beside("1.33.0", "registry.k8s.io/kube-apiserver:v1.33.2"), None);
    assert_eq!(beside("1.34.0", "localhost:5000/kube-apiserver"), None);
    let rke2 = MemoryTree::new()
        .file("/etc/systemd/system/rke2-server.service", "[Service]\nExecStart=/usr/local/bin/rke2 server\n")
        .file(
            "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml",
            "spec:\n  containers:\n  - name: kube-apiserver\n    image: x/kube-apiserver:v1.33.2-rke2r1\n",
        );
    let found = found(&rke2, inputs("1.34.0+rke2r1"), "CP001");
    assert!(found.len() == 1 && found[0].starts_with("warning "), "{found:?}");
}

#[test]
fn a_healthy_host_has_no_finding() {
    let report = judged("--cloud-provider=external --provider-id=hcloud://4711", inputs("1.36.3"), |_| ());
    let ours: Vec<_> = report.findings.iter().filter(|one| ["CL", "CP"].contains(&&one.rule[..2])).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn cl006_two_addresses_with_a_cloud_came_with_a_release() {
    let judged = |release: &str, words: &str| {
        let tree = kubeadm().file("/var/lib/kubelet/kubeadm-flags.env", format!("KUBELET_KUBEADM_ARGS=\"{words}\"\n"));
        let found = found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CL006");
        found.iter().any(|one| one.starts_with("fatal"))
    };
    let words = "--node-ip=10.0.0.7,fd00::7 --cloud-provider=external";
    assert!(judged("1.27.4", words) && judged("1.25.4", words));
    assert!(!judged("1.29.0", words) && !judged("1.36.3", words) && !judged("", words));
    assert!(!judged("1.27.4", "--node-ip=10.0.0.7,fd00::7"), "without a cloud");
    assert!(!judged("1.27.4", &format!("{words} --feature-gates=CloudDualStackNodeIPs=true")));
}
