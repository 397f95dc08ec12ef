//! Each rule fires, and stays silent where it must.

use super::super::testing::{DROP_IN, found, kubeadm};
use crate::kubelet::{resolve::Inputs, tree::MemoryTree};

const EXTRA: &str = "/etc/default/kubelet";

/// The healthy host with words of its own in `/etc/default/kubelet`.
fn host(extra: &str) -> MemoryTree {
    kubeadm().file(EXTRA, format!("KUBELET_EXTRA_ARGS={extra}\n"))
}

fn version(version: &str) -> Inputs {
    Inputs { version: Some(version.parse().unwrap()), ..Inputs::default() }
}

/// What a rule finds of those words, with kubelet 1.33.4.
fn of(extra: &str, rule: &str) -> Vec<String> {
    found(&host(extra), version("1.33.4"), rule)
}

#[test]
fn fl001_names_the_flag_that_was_meant() {
    assert_eq!(
        of("--cloud-provder=external", "FL001"),
        [
            "fatal /etc/default/kubelet:1: unknown flag --cloud-provder in 1.33.4: the kubelet exits with 'unknown flag: \
          --cloud-provder'; did you mean --cloud-provider?"
        ]
    );
    let nothing_near = of("--no-such-thing", "FL001");
    assert!(!nothing_near[0].contains("did you mean"), "{nothing_near:?}");
    let too_new = found(&host("--config-dir=/x"), version("1.27.1"), "FL001");
    assert!(too_new[0].contains("exists since 1.28 and this kubelet is 1.27.1"), "{too_new:?}");
}

#[test]
fn fl001_knows_what_one_dash_does() {
    assert_eq!(
        of("-cloud-provider=external", "FL001"),
        ["fatal /etc/default/kubelet:1: -cloud-provider is no flag of the kubelet: it exits with 'unknown shorthand \
          flag: 'c' in -cloud-provider=external'"]
    );
    assert!(of("---v=2", "FL001")[0].contains("bad flag syntax: ---v=2"));
}

#[test]
fn fl001_is_no_more_than_a_warning_where_the_table_may_lack_a_flag() {
    for inputs in [version("1.33.5+k3s1"), version("1.38.0"), Inputs::default()] {
        let found = found(&host("--vendor-flag=1"), inputs, "FL001");
        assert!(found[0].starts_with("warning "), "{found:?}");
    }
}

#[test]
fn fl001_is_silent_on_underscores_letters_and_values() {
    for extra in ["--cloud_provider=external", "-v 2", "-v=2", "--v 2", "--node-labels --x=y"] {
        assert_eq!(of(extra, "FL001"), [""; 0], "{extra}");
    }
}

#[test]
fn fl002_tells_what_to_write_instead() {
    let tree = host("--pod-infra-container-image=registry.k8s.io/pause:3.10 --container_runtime=remote");
    let findings = found(&tree, version("1.35.0"), "FL002");
    assert_eq!(
        findings[0],
        "fatal /etc/default/kubelet:1: --pod-infra-container-image was removed in 1.35 and this kubelet is 1.35.0: it \
         exits with 'unknown flag: --pod-infra-container-image'"
    );
    assert!(findings[1].contains("--container_runtime was removed in 1.27"), "{findings:?}");
    assert_eq!(found(&tree, version("1.26.15"), "FL002"), [""; 0]);
}

#[test]
fn fl002_needs_a_version() {
    use crate::{kubelet::resolve::snapshot, rules::run};
    let report = run(&snapshot(&host("--cloud-config=/x"), Inputs::default()));
    assert!(report.not_checked.iter().any(|lack| lack.rule == "FL002"));
    assert!(report.findings.iter().any(|finding| finding.rule == "FL003"));
}

#[test]
fn fl003_warns_if_the_next_release_removes_it() {
    let tree = host("--pod-infra-container-image=x");
    let one = |v| found(&tree, version(v), "FL003").join("");
    assert!(one("1.33.4").starts_with("info /etc/default/kubelet:1: --pod-infra-container-image is removed in 1.35"));
    assert!(one("1.34.1").starts_with("warning "));
    assert_eq!(one("1.35.0"), "");
    assert_eq!(of("--node-ip=10.0.0.1", "FL003"), [""; 0]);
}

#[test]
fn fl004_speaks_as_the_kubelet_does() {
    assert_eq!(
        of("--max-pods=many", "FL004"),
        [
            "fatal /etc/default/kubelet:1: invalid argument \"many\" for --max-pods: strconv.ParseInt: parsing \"many\": \
          invalid syntax: the kubelet exits"
        ]
    );
    for (extra, part) in [
        ("--system-reserved=cpu=memory=200Mi", "failed to parse quantity \"memory=200Mi\" for \"cpu\""),
        ("--kube-reserved=gpu=1", "cannot reserve \"gpu\" resource"),
        ("--node-status-update-frequency=10", "missing unit in duration"),
        ("--eviction-hard=memory.available=100Mi", "expect string<string"),
        ("--node-ip --v=2", "takes the next word, '--v=2'"),
        ("--v=2 --node-ip", "--node-ip is the last word and lacks its value"),
    ] {
        let findings = of(extra, "FL004");
        assert!(findings.len() == 1 && findings[0].contains(part), "{extra}: {findings:?}");
    }
}

#[test]
fn fl004_takes_what_the_kubelet_takes() {
    for extra in [
        "--max-pods=0x6E --v=2 -v 4 --fail-swap-on=F --address= --node-labels=a,b=c",
        "--eviction-hard=memory.available<5%,nodefs.available<10% --feature-gates=A=true,",
        "--kube-reserved=cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000",
        "--register-with-taints=a=b:NoSchedule --cloud-config=x --unknown=1",
        "--hostname-override -x",
    ] {
        assert_eq!(of(extra, "FL004"), [""; 0], "{extra}");
    }
}

#[test]
fn fl005_tells_who_wins() {
    assert_eq!(
        of("\"--v=2 \\\n--v=4\"", "FL005"),
        ["info /etc/default/kubelet:2: --v is given twice: the last one (4) wins (also at /etc/default/kubelet:1)"]
    );
    assert_eq!(
        of("--node-labels=disk=ssd,rack=r7 --node-labels=rack=r8", "FL005"),
        [
            "warning /etc/default/kubelet:1: --node-labels is given twice: the pairs accumulate, but rack=r7 is replaced by \
          rack=r8 (also at /etc/default/kubelet:1)"
        ]
    );
    let taints = of("--register-with-taints=a=b:NoSchedule --register_with_taints=c=d:NoExecute", "FL005");
    assert!(taints[0].contains("replaces all taints; lost: a=b:NoSchedule"), "{taints:?}");
}

#[test]
fn fl005_is_silent_where_nothing_is_lost() {
    for extra in [
        "--node-labels=a=b --node-labels=c=d",
        "--node-labels=a=b --node-labels=a=b",
        "--cluster-dns=10.0.0.1 --cluster-dns=10.0.0.2",
        "--v=2 --vmodule=x=1",
    ] {
        assert_eq!(of(extra, "FL005"), [""; 0], "{extra}");
    }
}

#[test]
fn sd016_tells_the_cause() {
    for (extra, part) in [
        ("\"--v=2 # noisy at night\"", "comment behind a value"),
        ("–v=2", "a typographic dash (U+2013)"),
        ("--v=2 –cloud-provider=external", "a typographic dash"),
        ("--v=2\u{a0}--node-ip=1", ""),
        ("--fail-swap-on false", "--fail-swap-on takes its value only behind '='"),
        ("--node-ip = 10.0.0.1", "--node-ip took '=' as its value"),
        ("--node-ip= 10.0.0.1", "--node-ip= has an empty value"),
        ("--node-labels=a=b, c=d", "a blank follows the comma"),
        ("--v=2 > /var/log/kubelet", "a shell"),
        ("--v=2 2>&1", "a shell"),
        ("--v=2 -- --node-ip=1", "'--' ends the flags"),
        ("--v=2 start", "$KUBELET_EXTRA_ARGS is split at blanks"),
    ] {
        let findings = of(extra, "SD016");
        if part.is_empty() {
            continue; // the no-break space is inside -v's value: FL004
        }
        assert!(!findings.is_empty() && findings[0].contains(part), "{extra}: {findings:?}");
        assert!(findings[0].starts_with("fatal /etc/default/kubelet:1: "), "{findings:?}");
    }
    assert_eq!(of("\"--v=2 # noisy at night\"", "SD016").len(), 1);
}

#[test]
fn sd016_knows_the_unit_files_traps() {
    let line = |words: &str| {
        let tree = kubeadm().file(
            DROP_IN,
            format!(
                "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml {words}\n"
            ),
        );
        found(&tree, version("1.33.4"), "SD016")
    };
    assert_eq!(line("$UNSET --v=2"), [""; 0]);
    let empty = line("${UNSET} --v=2");
    assert!(empty[0].contains("${UNSET} is not set or empty"), "{empty:?}");
    assert!(empty[0].starts_with("fatal /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:3: "), "{empty:?}");
    let backslash = line("--v=2 \\ \n  --node-ip=1");
    assert!(backslash[0].contains("a backslash continues a line only"), "{backslash:?}");
}

#[test]
fn a_flag_whose_value_is_in_braces_stands_in_the_unit() {
    let tree = kubeadm()
        .file(
            DROP_IN,
            "[Service]\nEnvironment=IMAGE=pause:3\nExecStart=\nExecStart=/usr/bin/kubelet --pod-infra-container-image=${IMAGE} --max-pods=${PODS}\nEnvironment=PODS=x\n",
        );
    let removed = found(&tree, version("1.35.0"), "FL002");
    assert!(
        removed[0].starts_with("fatal /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:4: "),
        "{removed:?}"
    );
    let value = found(&tree, version("1.35.0"), "FL004");
    assert!(value[0].starts_with("fatal /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:5: "), "{value:?}");
}

#[test]
fn a_healthy_host_has_no_finding() {
    for (rule, _) in super::RULES {
        assert_eq!(found(&kubeadm(), version("1.36.3"), rule), [""; 0], "{rule}");
    }
}
