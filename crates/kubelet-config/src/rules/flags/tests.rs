//! Each rule fires, and stays silent where it must.

use std::path::Path;

use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::Lifecycle;
use crate::kubelet::tree::{MemoryTree, Tree as _};
use crate::rules::Severity;
use crate::rules::tests::support::{DROP_IN, findings_with, fixed, found, kubeadm};

const EXTRA: &str = "/etc/default/kubelet";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

fn read(tree: &MemoryTree) -> Vec<u8> {
    tree.read(Path::new(CONFIG)).unwrap()
}

/// The healthy host with words of its own in `/etc/default/kubelet`.
fn host(extra: &str) -> MemoryTree {
    kubeadm().file(EXTRA, format!("KUBELET_EXTRA_ARGS={extra}\n"))
}

fn version(version: &str) -> Inputs {
    Inputs { version: Some(version.parse().unwrap()), ..Inputs::default() }
}

/// The words after the edits of a rule.
fn fixed_line(extra: &str, kubelet: &str, rule: &str) -> String {
    let files = fixed(&host(extra), &version(kubelet), rule);
    assert!(files.len() < 2, "{files:?}");
    files.first().map_or_else(|| extra.to_owned(), |text| text.replace("KUBELET_EXTRA_ARGS=", "").trim_end().to_owned())
}

/// What a rule finds of those words, with kubelet 1.33.4.
fn of(extra: &str, rule: &str) -> Vec<String> {
    found(&host(extra), version("1.33.4"), rule)
}

#[test]
fn fl001_names_the_flag_that_was_meant() {
    let misspelt = of("--cloud-provder=external", "FL001");
    assert!(misspelt[0].starts_with("fatal /etc/default/kubelet:1: "), "{misspelt:?}");
    assert!(misspelt[0].contains("--cloud-provider?"), "{misspelt:?}");
    let too_new = found(&host("--config-dir=/x"), version("1.27.1"), "FL001");
    assert!(too_new[0].starts_with("fatal ") && too_new[0].contains("1.28"), "{too_new:?}");
    for (extra, right) in [
        ("--v=2 --cloud-provder=external", "--v=2 --cloud-provider=external"),
        ("-cloud-provider=external", "--cloud-provider=external"),
        ("--v=2 --no-such-thing=1", "--v=2"),
        ("--no-such-thing --v=2", "--v=2"),
    ] {
        assert_eq!(fixed_line(extra, "1.33.4", "FL001"), right, "{extra}");
    }
    let field = &findings_with(&host("--image-maximum-gc-age=48h"), version("1.33.4"))[0];
    assert_eq!((field.rule, field.severity), ("FL001", Severity::Fatal));
    assert!(field.fix.as_ref().unwrap().contains("imageMaximumGCAge"), "{field:?}");
    for (field, flag) in [("maxPods=50", "max-pods=50"), ("failSwapOn=false", "fail-swap-on=false")] {
        assert_eq!(fixed_line(&format!("--{field}"), "1.33.4", "FL001"), format!("--{flag}"), "a flag sets it, too");
    }
}

#[test]
fn fl001_knows_what_one_dash_does() {
    for extra in ["-cloud-provider=external", "---v=2", "--=x"] {
        let found = of(extra, "FL001");
        assert!(found.len() == 1 && found[0].starts_with("fatal /etc/default/kubelet:1: "), "{extra}: {found:?}");
    }
}

#[test]
fn fl001_is_no_more_than_a_warning_where_the_table_may_lack_a_flag() {
    for inputs in [version("1.33.5-gke.100"), version("1.38.0"), Inputs::default()] {
        let found = found(&host("--vendor-flag=1"), inputs, "FL001");
        assert!(found[0].starts_with("warning "), "{found:?}");
    }
    for release in ["1.33.5+k3s1", "1.33.5+rke2r1", "1.33.5+k0s.0", "1.33.5-eks-113cf36"] {
        let found = found(&host("--vendor-flag=1"), version(release), "FL001");
        assert!(found[0].starts_with("fatal "), "{found:?}");
    }
}

#[test]
fn fl001_is_silent_on_underscores_letters_and_values() {
    for extra in ["--cloud_provider=external", "-v 2", "-v=2", "--v 2", "--node-labels --x=y"] {
        assert_eq!(of(extra, "FL001"), [""; 0], "{extra}");
    }
}

#[test]
fn fl002_deletes_the_flag_with_its_value() {
    let extra =
        "--v=2 --pod-infra-container-image registry.k8s.io/pause:3.10 --container_runtime=remote --node-ip=1.2.3.4";
    let findings = found(&host(extra), version("1.35.0"), "FL002");
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|finding| finding.starts_with("fatal /etc/default/kubelet:1: ")), "{findings:?}");
    assert_eq!(fixed_line(extra, "1.35.0", "FL002"), "--v=2 --node-ip=1.2.3.4");
    assert_eq!(found(&host(extra), version("1.26.15"), "FL002"), [""; 0]);
}

#[test]
fn fl002_needs_a_version() {
    use crate::kubelet::resolve::resolve;
    use crate::rules::lint;
    let report = lint(&resolve(&host("--pod-infra-container-image=x"), Inputs::default()));
    assert!(report.not_checked.iter().any(|lack| lack.rule == "FL002"));
    assert!(report.findings.iter().any(|finding| finding.rule == "FL003"));
    let gone = |extra: &str| found(&host(extra), Inputs::default(), "FL002").join("");
    assert!(gone("--cloud-config=/x").starts_with("error"), "no kubelet that is supported has it");
    assert!(gone("--network-plugin=cni").starts_with("fatal"), "no kubelet of the table has it");
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
fn fl004_names_the_value_that_the_kubelet_refuses() {
    for (extra, severity) in [
        ("--max-pods=many", "fatal"),
        ("--node-status-update-frequency=10", "fatal"),
        ("--eviction-hard=memory.available=100Mi", "fatal"),
        ("--node-ip --v=2", "error"),
        ("--v=2 --node-ip", "fatal"),
    ] {
        let findings = of(extra, "FL004");
        let start = format!("{severity} /etc/default/kubelet:1: ");
        assert!(findings.len() == 1 && findings[0].starts_with(&start), "{extra}: {findings:?}");
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
fn fl005_keeps_the_last_one() {
    let twice = of("\"--v=2 \\\n--v=4\"", "FL005");
    assert!(twice[0].starts_with("info /etc/default/kubelet:2: "), "{twice:?}");
    assert_eq!(fixed_line("--v=2 --port=1 --v=3 --v=4", "1.33.4", "FL005"), "--port=1 --v=4");
    for extra in [
        "--node-labels=disk=ssd,rack=r7 --node-labels=rack=r8",
        "--register-with-taints=a=b:NoSchedule --register_with_taints=c=d:NoExecute",
    ] {
        let found = of(extra, "FL005");
        assert!(found[0].starts_with("warning /etc/default/kubelet:1: "), "{found:?}");
        assert_eq!(fixed_line(extra, "1.33.4", "FL005"), extra);
    }
}

#[test]
fn fl005_is_silent_where_nothing_is_lost() {
    for extra in [
        "--node-labels=a=b --node-labels=c=d",
        "--node-labels=a=b --node-labels=a=b",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --tls-cipher-suites=TLS_AES_128_GCM_SHA256",
        "--v=2 --vmodule=x=1",
    ] {
        assert_eq!(of(extra, "FL005"), [""; 0], "{extra}");
    }
}

/// The healthy host with these feature gates in its configuration file.
fn with_gates(gates: &str) -> MemoryTree {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n";
    kubeadm().file(CONFIG, format!("{head}{gates}cgroupDriver: systemd\n"))
}

#[test]
fn fl006_judges_a_gate_by_the_kubelets_release() {
    let gate = "--feature-gates=KubeletCredentialProviders=true";
    for (kubelet, extra, severity) in [
        ("1.28.4", gate, "fatal"),
        ("1.27.16", gate, "warning"),
        ("1.26.15", gate, ""),
        ("1.28.4+k3s1", gate, "fatal"),
        ("1.33.4", "--feature-gates=GracefullNodeShutdown=true", "fatal"),
        ("1.33.4-gke.1", "--feature-gates=GracefullNodeShutdown=true", "warning"),
        ("1.99.0", "--feature-gates=NoSuchThing=true", "warning"),
        ("1.25.0", "--feature-gates=ImageVolume=true", "fatal"),
        ("1.33.4", "--feature-gates=NodeSwap=false", "warning"),
        ("1.34.1", "--feature-gates=NodeSwap=false", "fatal"),
        ("1.34.1", "--feature-gates=NodeSwap=true,AllAlpha=false", ""),
        // The last value counts, and a name that is not known is refused all the same.
        ("1.34.1", "--feature-gates=NodeSwap=false --feature-gates=NodeSwap=true", ""),
        ("1.34.1", "--feature-gates=NoSuchThing=maybe", ""),
    ] {
        let found = found(&host(extra), version(kubelet), "FL006");
        let start = format!("{severity} /etc/default/kubelet:1: ");
        assert_eq!(found.len(), usize::from(!severity.is_empty()), "{kubelet} {extra}: {found:?}");
        assert!(found.iter().all(|found| found.starts_with(&start)), "{kubelet} {extra}: {found:?}");
    }
    let unknown = found(&host(gate), Inputs::default(), "FL006");
    assert!(unknown.len() == 1 && unknown[0].starts_with("warning "), "{unknown:?}");
    let openshift = host(gate).file("/etc/os-release", "ID=rhcos\n");
    assert_eq!(found(&openshift, version("1.28.4"), "FL006"), [""; 0]);
    let in_file = with_gates("featureGates:\n  NodeSwap: false\n");
    assert!(found(&in_file, version("1.34.1"), "FL006")[0].starts_with("fatal /var/lib/kubelet/config.yaml:5: "));
    // The flag's value counts.
    let both = in_file.file(EXTRA, "KUBELET_EXTRA_ARGS=--feature-gates=NodeSwap=true\n");
    assert_eq!(found(&both, version("1.34.1"), "FL006"), [""; 0]);
}

#[test]
fn fl006_takes_the_gate_away_or_corrects_its_name() {
    for (extra, right) in [
        ("--v=2 --feature-gates=DevicePlugins=true --node-ip=1.2.3.4", "--v=2 --node-ip=1.2.3.4"),
        ("--feature-gates=DevicePlugins=true,AllAlpha=false", "--feature-gates=AllAlpha=false"),
        ("--feature-gates AllAlpha=false,DevicePlugins=true", "--feature-gates AllAlpha=false"),
        (
            "--feature-gates=AllBeta=true,DevicePlugins=true,AllAlpha=false",
            "--feature-gates=AllBeta=true,AllAlpha=false",
        ),
        ("--feature-gates=GracefullNodeShutdown=true", "--feature-gates=GracefulNodeShutdown=true"),
    ] {
        assert_eq!(fixed_line(extra, "1.34.1", "FL006"), right, "{extra}");
    }
    // Before the upgrade the kubelet takes the gate; a later kubelet may know another one.
    for (extra, kubelet, rule) in [
        ("--feature-gates=UserNamespacesPodSecurityStandards=true", "1.34.1", "FL006"),
        ("--feature-gates=BrandNewGate=true", "1.38.0", "FL006"),
        ("--feature-gates=GracefullNodeShutdown=true", "1.33.4-gke.1", "FL006"),
        ("--brand-new-flag=7", "1.38.0", "FL001"),
        ("--max-podz=7", "1.33.4-gke.1", "FL001"),
    ] {
        assert_eq!(fixed_line(extra, kubelet, rule), extra);
    }
    for (gates, right) in [
        ("featureGates:\n  DevicePlugins: true\n", ""),
        ("featureGates:\n  AllAlpha: false\n  DevicePlugins: true\n", "featureGates:\n  AllAlpha: false\n"),
        ("featureGates:\n  GracefullNodeShutdown: true\n", "featureGates:\n  GracefulNodeShutdown: true\n"),
    ] {
        let after = fixed(&with_gates(gates), &version("1.34.1"), "FL006");
        assert_eq!(after, [String::from_utf8_lossy(&read(&with_gates(right))).into_owned()], "{gates}");
    }
    let json = "{\n  \"kind\": \"KubeletConfiguration\",\n  \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n  \"featureGates\": {\n    \"AllAlpha\": false,\n    \"DevicePlugins\": true\n  }\n}\n";
    let after = fixed(&kubeadm().file(CONFIG, json), &version("1.34.1"), "FL006");
    assert_eq!(after, [json.replace("false,\n    \"DevicePlugins\": true", "false")]);
}

#[test]
fn sd016_tells_the_cause() {
    for (extra, part) in [
        ("\"--v=2 # noisy at night\"", "after a value as a comment"),
        ("–v=2", "a typographic dash (U+2013)"),
        ("--v=2 –cloud-provider=external", "a typographic dash"),
        ("--v=2\u{a0}--node-ip=1", ""),
        ("--fail-swap-on false", "--fail-swap-on takes its value only after '='"),
        ("--node-ip = 10.0.0.1", "--node-ip took '=' as its value"),
        ("--node-ip= 10.0.0.1", "--node-ip= has an empty value"),
        ("--node-labels=a=b, c=d", "A blank follows the comma"),
        ("--v=2 > /var/log/kubelet", "a shell"),
        ("--v=2 2>&1", "a shell"),
        ("--v=2 -- --node-ip=1", "'--' ends the flags"),
        ("--v=2 start", "It does not start with a dash"),
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
fn a_gate_without_a_value_is_off() {
    let found =
        |gate: &str| found(&with_gates(&format!("featureGates: {{{gate}: null}}\n")), version("1.36.3"), "FL006");
    assert!(found("NoSuchGate")[0].starts_with("fatal"));
    assert!(found("NodeSwap")[0].starts_with("fatal"), "it is locked to true");
    assert!(found("AllAlpha").is_empty());
    let off = "featureGates: {KubeletCrashLoopBackOffMax: null}\ncrashLoopBackOff: {maxContainerRestartPeriod: 60s}\n";
    let needs = crate::rules::tests::support::found(&with_gates(off), version("1.36.3"), "CF007");
    assert!(needs.iter().any(|one| one.starts_with("fatal")), "{needs:?}");
}

#[test]
fn one_mistake_of_several_words_is_one_finding() {
    for (before, mistake) in [
        ("", "--max-pods = 200"),
        ("--v=2 ", "--max-pods= 200"),
        ("", "--node-ip = 10.0.0.1"),
        ("", "--node-ip={{ node_ip }}"),
        ("--v=2 ", "--node-labels={{ labels | join }}"),
        ("", "{{ kubelet_extra_args }}"),
        ("--v=2 ", ">> /var/log/kubelet.log 2>&1"),
        ("--v=2 ", "2>/dev/null"),
        ("--v=2 ", "2>&1 | tee /log"),
        ("", "--fail-swap-on = false"),
        ("--v=2 ", "--fail-swap-on =false"),
        ("--v=2 ", "--fail-swap-on= false"),
        ("--v=2 ", "| tee -a /var/log/kubelet.log"),
        ("--v=2 ", "&& echo started"),
        ("--v=2 ", "# --max-pods=x is too few"),
    ] {
        let tree = kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"{before}{mistake}\"\n"));
        let severe = findings_with(&tree, version("1.36.3")).into_iter().filter(|one| one.severity >= Severity::Error);
        let found: Vec<_> = severe.map(|one| (one.rule, one.at.column, one.at.width)).collect();
        let columns = (21 + before.len(), mistake.len());
        let (column, width) = (u32::try_from(columns.0).unwrap(), u32::try_from(columns.1).unwrap());
        assert_eq!(found, [("SD016", column, width)], "{mistake}");
    }
    for blanks in [" = false", " =false", "= false", " false"] {
        let tree = kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"--fail-swap-on{blanks}\"\n"));
        let fix = findings_with(&tree, version("1.36.3"))[0].fix.clone().unwrap_or_default();
        assert!(fix.contains("write --fail-swap-on=false as one word"), "{blanks}: {fix}");
    }
    assert_eq!(of("\"--resolv-conf= # none\"", "SD016").len(), 1);
    let two = kubeadm().file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--v=2 > /log --max-pods=x\"\n");
    let findings = findings_with(&two, version("1.36.3")).into_iter().filter(|one| one.severity == Severity::Fatal);
    let rules: Vec<_> = findings.map(|one| one.rule).collect();
    assert_eq!(rules, ["SD016", "FL004"], "a flag after the file is another mistake");
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
    assert!(line("$$HOME")[0].contains("`$$` is a literal dollar sign"));
    let empty = line("${UNSET} --v=2");
    assert!(empty[0].contains("The word is empty"), "{empty:?}");
    assert!(empty[0].starts_with("fatal /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:3: "), "{empty:?}");
    let backslash = line("--v=2 \\ \n  --node-ip=1");
    assert!(backslash[0].contains("A backslash continues a line only"), "{backslash:?}");
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
    for rule in ["FL001", "FL002", "FL003", "FL004", "FL005", "FL006", "SD016"] {
        assert_eq!(found(&kubeadm(), version("1.36.3"), rule), [""; 0], "{rule}");
    }
}

#[test]
fn a_flag_that_overrides_the_file_is_told_with_both_places() {
    let file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 50\n";
    let main = "/var/lib/kubelet/config.yaml";
    let of = |tree: &MemoryTree| found(tree, Inputs::default(), "FL005").join("|");
    let overrides_the_file = of(&host("--max-pods=100").file(main, file));
    assert!(overrides_the_file.starts_with(&format!("info {main}:3: ")), "{overrides_the_file}");
    assert!(overrides_the_file.contains("/etc/default/kubelet:1"), "{overrides_the_file}");
    assert_eq!(of(&host("--max-pods=50").file(main, file)), "");
    let drop_in = of(&host("--max-pods=100 --config-dir=/d").file("/d/10-own.conf", file));
    assert!(drop_in.starts_with("warning /d/10-own.conf:3: "), "{drop_in}");
    let sized = file.replace("maxPods: 50", "systemReserved: {memory: 1Gi}");
    let map = host("--system-reserved=memory=100Mi --config-dir=/d").file("/d/10-own.conf", sized);
    assert!(found(&map, Inputs::default(), "RS007")[0].starts_with("warning /d/10-own.conf:3: "));
}

#[test]
fn fl001_knows_the_same_words_in_another_order() {
    assert!(of("--fail-on-swap=false", "FL001")[0].contains("Did you mean --fail-swap-on?"));
    assert_eq!(fixed_line("--fail-on-swap=false", "1.33.4", "FL001"), "--fail-swap-on=false");
}

#[test]
fn fl004_tells_of_a_second_equals_sign() {
    assert!(
        of("--volume-plugin-dir==/data", "FL004")[0]
            .starts_with("error /etc/default/kubelet:1: --volume-plugin-dir has two equals")
    );
    assert_eq!(fixed_line("--volume-plugin-dir==/data", "1.33.4", "FL004"), "--volume-plugin-dir=/data");
    assert!(of("--node-labels=a=b", "FL004").is_empty());
}

#[test]
fn a_path_that_only_a_shell_would_expand_is_taken_as_it_is() {
    let says = |flags: &str, version_of: &str| {
        let unit = format!("[Service]\nExecStart=/usr/bin/kubelet {flags}\n");
        let token = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {token: t}}]\n";
        let tree =
            kubeadm().file("/etc/systemd/system/kubelet.service", unit).without(DROP_IN).file("/token.conf", token);
        let inputs = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..version(version_of) };
        let findings = findings_with(&tree, inputs).into_iter();
        let own = findings.filter(|one| matches!(one.rule, "FL004" | "CF001" | "AU001" | "CF007" | "CF009"));
        own.map(|one| format!("{:?} {} {}", one.severity, one.rule, one.at)).collect::<Vec<_>>().join("|")
    };
    let place = |severity: &str| format!("{severity} FL004 /etc/systemd/system/kubelet.service:2");
    for (severity, flags) in [
        ("Fatal", "--config=$HOME/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf"),
        ("Fatal", "--config=~/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf"),
        ("Fatal", "--config==/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf"),
        ("Fatal", "--kubeconfig==/etc/kubernetes/kubelet.conf"),
        ("Error", "--kubeconfig==/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/etc/kubernetes/kubelet.conf"),
        ("Error", "--kubeconfig=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=$DIR/bootstrap.conf"),
        ("Fatal", "--kubeconfig=/token.conf --bootstrap-kubeconfig=$DIR/bootstrap.conf"),
        ("Error", "--bootstrap-kubeconfig=$DIR/bootstrap.conf"),
        ("Fatal", "--kubeconfig=/etc/kubernetes/kubelet.conf --root-dir==/data"),
        ("Fatal", "--kubeconfig=/etc/kubernetes/kubelet.conf --root-dir=$DIR"),
        ("Error", "--kubeconfig=/etc/kubernetes/kubelet.conf --root-dir=/srv/$X/kubelet"),
        ("Error", "--kubeconfig=/etc/kubernetes/kubelet.conf --provider-id=aws:///$AZ/$ID"),
    ] {
        assert_eq!(says(flags, "1.36.3"), place(severity), "{flags}");
    }
    let both = format!("{0}|{0}", place("Fatal"));
    for (config, bin) in [("$D/c", "$D/bin"), ("/etc/$X.yaml", "/$X")] {
        let flags = format!("--image-credential-provider-config={config} --image-credential-provider-bin-dir={bin}");
        assert_eq!(says(&format!("--kubeconfig=/etc/kubernetes/kubelet.conf {flags}"), "1.36.3"), both, "{flags}");
    }
    let cause = of("--max-pods=${PODS}", "FL004").join("");
    assert!(cause.contains("systemd expands ${X}"), "{cause}");
}

#[test]
fn what_is_before_each_dollar_sign_is_one_mistake() {
    let healthy = kubeadm().read(Path::new(DROP_IN)).unwrap();
    let healthy = String::from_utf8(healthy).unwrap();
    let path = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf";
    for before in ["\\$", "$$"] {
        let tree = kubeadm().without(DROP_IN).file(path, healthy.replace(" $KUBELET", &format!(" {before}KUBELET")));
        let findings = findings_with(&tree, version("1.33.4"));
        let said: Vec<_> = findings.iter().map(|one| format!("{} {}", one.rule, one.at)).collect();
        assert_eq!(said, [format!("SD016 {path}:7")], "{before}");
        assert_eq!(fixed(&tree, &version("1.33.4"), "SD016"), std::slice::from_ref(&healthy), "{before}");
    }
}

#[test]
fn an_escaped_variable_that_is_a_flags_value_or_the_wrappers_is_no_stray() {
    let said = |line: &str| {
        let tree = kubeadm().file(DROP_IN, format!("[Service]\nExecStart=\nExecStart={line}\n"));
        found(&tree, version("1.36.3"), "SD016")
    };
    let flags = "--config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf";
    for command in [
        format!("/usr/bin/kubelet {flags} --hostname-override $$HOSTNAME"),
        format!("/usr/bin/kubelet {flags} --node-ip $$IP"),
        format!(":/usr/bin/kubelet {flags} --hostname-override $HOSTNAME"),
        format!("/usr/bin/systemd-inhibit --who $$X /usr/bin/kubelet {flags}"),
    ] {
        assert_eq!(said(&command), [""; 0], "{command}");
    }
    let other = said(&format!("/usr/bin/kubelet {flags} --hostname-override $$HOSTNAME start"));
    assert!(other.len() == 1 && other[0].contains("'start' is not a flag"), "{other:?}");
    let stray = said(&format!("/usr/bin/kubelet {flags} $$ARGS"));
    assert!(stray.len() == 1 && stray[0].contains("the kubelet gets $ARGS as it is written"), "{stray:?}");
}
