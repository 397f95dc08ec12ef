//! Each rule fires, and stays silent where it must.

use super::super::{
    Report, Severity, run,
    testing::{found, kubeadm},
};
use crate::kubelet::{
    location::Location,
    machine::{Certificate, ClientCredential, FileState, Kubeconfig},
    resolve::{Inputs, snapshot},
    snapshot::{CloudFacts, ClusterFacts, Lifecycle, Snapshot},
    tree::MemoryTree,
};

fn host(extra: &str) -> MemoryTree {
    kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={extra}\n"))
}

fn inputs(version: &str) -> Inputs {
    Inputs { version: Some(version.parse().unwrap()), hostname: Some("node-1".to_owned()), ..Inputs::default() }
}

fn of(extra: &str, inputs: Inputs, rule: &str) -> Vec<String> {
    found(&host(extra), inputs, rule)
}

/// Everything, of a snapshot that `change` has changed.
fn judged(extra: &str, inputs: Inputs, change: impl FnOnce(&mut Snapshot)) -> Report {
    let mut snapshot = snapshot(&host(extra), inputs);
    change(&mut snapshot);
    run(&snapshot)
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
    let of = |name: &str, version: &str| of(&format!("--cloud-provider={name}"), inputs(version), "CL002").join("");
    assert!(of("hcloud", "1.30.14").starts_with("fatal /etc/default/kubelet:1: --cloud-provider=hcloud: only 'external' is meaningful; kubelet 1.30.14 exits with 'unknown cloud provider \"hcloud\"'"));
    assert!(of("hcloud", "1.33.4").contains("exits with 'cloud provider \"hcloud\" was specified"));
    assert!(of("hcloud", "1.34.1").starts_with("error /etc/default/kubelet:1: "));
    assert!(of("hcloud", "1.34.1").contains("has no effect since 1.34"));
    assert!(of("aws", "1.27.1").contains("unknown cloud provider"));
    assert!(of("vsphere", "1.29.1").contains("built-in cloud providers are disabled"));
    for (name, version) in [("external", "1.36.3"), ("", "1.36.3"), ("aws", "1.26.1"), ("gce", "1.28.15")] {
        assert_eq!(of(name, version), "", "{name} {version}");
    }
    let gate = "--cloud-provider=gce --feature-gates=DisableCloudProviders=false";
    assert_eq!(found(&host(gate), inputs("1.29.6"), "CL002"), [""; 0]);
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
    let findings = of(EXTERNAL, cluster(3600, &["a"], None), "CL004");
    assert_eq!(
        findings,
        ["error /etc/default/kubelet:1: this Node was created 60 min ago, before --cloud-provider=external was in \
          effect: it has neither the uninitialized taint nor spec.providerID, so the cloud controller ignores it"]
    );
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
            zone: None,
        }),
        ..inputs("1.33.4")
    }
}

#[test]
fn cl005_compares_with_the_machine() {
    let hetzner = || cloud("hetzner", "4711", "node-1");
    assert_eq!(
        of("--provider-id=hcloud://42", hetzner(), "CL005"),
        [
            "error /etc/default/kubelet:1: providerID is hcloud://42, this machine is 4711: the autoscaler will take this \
          Node for another server"
        ]
    );
    assert_eq!(of("--provider-id=hcloud://4711", hetzner(), "CL005"), [""; 0]);
    let aws = cloud("aws", "i-0c0ffee0123456789", "ip-10-0-31-17.eu-central-1.compute.internal");
    assert_eq!(of("--provider-id=aws:///eu-central-1a/i-0c0ffee0123456789", aws, "CL005"), [""; 0]);
    assert!(lacks(&judged("--provider-id=hcloud://1", inputs("1.33.4"), |_| ()), "CL005"));
    for bad in
        ["4711", "hcloud://", "hcloud://node-1", "aws://eu/i-1", "gce://p/z", "vsphere://42", "azure://x", "://1"]
    {
        let findings = of(&format!("--provider-id={bad}"), inputs("1.33.4"), "CL005");
        assert_eq!(findings.len(), usize::from(bad != "://1"), "{bad}: {findings:?}");
    }
}

#[test]
fn cl005_misses_an_id_only_where_others_have_one() {
    let with = |others, extra: &str, age| {
        let mut inputs = cluster(age, &[], None);
        inputs.cluster.as_mut().unwrap().others_have_provider_id = others;
        of(extra, inputs, "CL005")
    };
    assert!(with(Some(true), "", 600)[0].starts_with(
        "warning /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7: this Node has no spec.providerID"
    ));
    assert_eq!(with(Some(false), "", 600), [""; 0]);
    assert_eq!(with(Some(true), "", 10), [""; 0]);
    // CL004 has it.
    assert_eq!(with(Some(true), EXTERNAL, 600), [""; 0]);
}

fn addresses(list: &[&str], lifecycle: Lifecycle) -> Inputs {
    Inputs { addresses: Some(list.iter().map(|&address| address.to_owned()).collect()), lifecycle, ..inputs("1.33.4") }
}

#[test]
fn cl006_wants_an_address_of_this_host() {
    let local = || addresses(&["127.0.0.1", "10.0.0.7/24", "fd00::7"], Lifecycle::Running);
    for (extra, expected) in [
        ("--node-ip=10.0.0.8", Some("error /etc/default/kubelet:1: --node-ip=10.0.0.8: 10.0.0.8 is on no interface")),
        (
            "--node-ip=127.0.0.1",
            Some("error /etc/default/kubelet:1: --node-ip=127.0.0.1: 127.0.0.1 can be no node's address"),
        ),
        ("--node-ip=10.0.0.7,10.0.0.7", Some("fatal /etc/default/kubelet:1: ")),
        ("--node-ip=node-1", Some("error /etc/default/kubelet:1: --node-ip=node-1: 'node-1' is no IP address")),
        ("--node-ip=10.0.0.7,fd00::7", None),
        ("--node-ip=10.0.0.7", None),
        ("--node-ip=::", None),
        ("--node-ip=", None),
    ] {
        let findings = of(extra, local(), "CL006");
        assert_eq!(findings.len(), usize::from(expected.is_some()), "{extra}: {findings:?}");
        assert!(expected.is_none_or(|start| findings[0].starts_with(start)), "{findings:?}");
    }
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
    assert!(unset(&two, Lifecycle::BeforeFirstStart)[0].starts_with("warning /etc/default/kubelet:1: --node-ip is not set and this host has several addresses (203.0.113.9, 10.0.0.7)"));
    assert_eq!(unset(&two, Lifecycle::Running), [""; 0]);
    assert_eq!(unset(&["127.0.0.1", "10.0.0.7"], Lifecycle::BeforeFirstStart), [""; 0]);
}

#[test]
fn cl007_compares_with_the_cloud() {
    let other = || cloud("hetzner", "4711", "pool1-4f2a");
    assert_eq!(
        of(EXTERNAL, other(), "CL007"),
        [
            "error /etc/hostname: the node would register as node-1; the cloud knows the machine as pool1-4f2a: the cloud \
          controller will not find it and may delete the Node"
        ]
    );
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
        certificate: name.map(|name| Certificate {
            at: Location::file(file),
            common_name: Some(format!("system:node:{name}")),
            not_before_secs: 0,
            not_after_secs: 0,
        }),
        certificate_problem: None,
        files: Vec::new(),
        missing_files: Vec::new(),
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
    assert_eq!(after("Node-1").as_deref(), Some("warning"));
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
}

#[test]
fn cl009_points_at_the_label() {
    let report = judged("--node-labels=pool=blue,node-role.kubernetes.io/worker=,a=b", inputs("1.33.4"), |_| ());
    let finding = report.findings.iter().find(|finding| finding.rule == "CL009").unwrap();
    assert_eq!(finding.severity, Severity::Fatal);
    assert_eq!(finding.at.to_string(), "/etc/default/kubelet:1");
    // KUBELET_EXTRA_ARGS=--node-labels=pool=blue,node-role.kubernetes.io/worker=,a=b
    assert_eq!((finding.at.column, finding.at.width), (44, 31));
    assert!(finding.message.starts_with("--node-labels sets node-role.kubernetes.io/worker: the kubelet refuses"));
    assert!(finding.fix.as_ref().unwrap().ends_with("kubectl label node node-1 node-role.kubernetes.io/worker="));
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
}

#[test]
fn au004_and_au005_judge_what_is_handed_in() {
    let asked = |reachable: &str, token: Option<bool>, joined: bool| {
        let facts = ClusterFacts {
            reachable: Some(reachable.to_owned()),
            bootstrap_token_accepted: token,
            ..ClusterFacts::default()
        };
        let report = judged("", Inputs { cluster: Some(facts), ..inputs("1.33.4") }, |snapshot| {
            snapshot.machine.bootstrap_kubeconfig = kubeconfig(None);
            snapshot.machine.kubeconfig = if joined {
                kubeconfig(Some("node-1"))
            } else {
                FileState::Missing { at: Location::file("/etc/kubernetes/kubelet.conf") }
            };
        });
        (severities(&report, "AU004").len(), severities(&report, "AU005").len())
    };
    assert_eq!(asked("ok", Some(false), false), (1, 0));
    assert_eq!(asked("ok", Some(true), false), (0, 0));
    assert_eq!(asked("ok", Some(false), true), (0, 0));
    assert_eq!(asked("refused", None, false), (0, 1));
    let silent = judged("", inputs("1.33.4"), |snapshot| {
        snapshot.machine.kubeconfig = FileState::Missing { at: Location::file("/etc/kubernetes/kubelet.conf") };
        snapshot.machine.bootstrap_kubeconfig = kubeconfig(None);
    });
    assert!(lacks(&silent, "AU004") && lacks(&silent, "AU005"));
}

#[test]
fn a_healthy_host_has_no_finding() {
    let report = judged("--cloud-provider=external --provider-id=hcloud://4711", inputs("1.36.3"), |_| ());
    let ours: Vec<_> =
        report.findings.iter().filter(|finding| super::RULES.iter().any(|(id, _)| *id == finding.rule)).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
