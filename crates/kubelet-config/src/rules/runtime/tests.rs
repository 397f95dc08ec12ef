use super::*;
use crate::kubelet::effective::From;
use crate::kubelet::layers::Launcher;
use crate::kubelet::resolve::Inputs;
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{findings_with, kubeadm, says, with_settings};

const CONFIG: &str = "/etc/containerd/config.toml";
const SYSTEMD: &str =
    "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n";

fn from(file: &str, line: u32) -> From {
    From::File(Location::file(file).at_line(line))
}

fn inputs(kubelet: &str, runtime: Option<&str>) -> Inputs {
    let mut inputs = Inputs { version: kubelet.parse().ok(), ..Inputs::default() };
    inputs.overrides.runtime_version = runtime.map(str::to_owned);
    inputs
}

fn driver(tree: &MemoryTree, inputs: Inputs, ours: &str, from: From) -> Vec<String> {
    says(&with_settings(tree, inputs, &[("cgroupDriver", ours.into(), from)]), "RT003")
}

#[test]
fn drivers_that_differ_are_an_error_at_the_kubelets_line() {
    let tree = kubeadm().file(CONFIG, SYSTEMD);
    let ours = || from("/etc/kubernetes/kubelet-config.yaml", 15);
    let found = driver(&tree, inputs("1.31.9", Some("1.7.27")), "cgroupfs", ours());
    assert!(found[0].starts_with("error /etc/kubernetes/kubelet-config.yaml:15: "), "{found:?}");
    assert!(found[0].contains("(/etc/containerd/config.toml:3). containerd 1.7.27"), "{found:?}");
    assert!(driver(&tree, inputs("1.31.9", Some("1.7.27")), "systemd", ours()).is_empty());
}

#[test]
fn a_kubelet_that_asks_the_runtime_does_not_mind() {
    let ours = || from("/c.yaml", 1);
    let found = |tree: &MemoryTree, kubelet, runtime| driver(tree, inputs(kubelet, runtime), "cgroupfs", ours());
    let tree = kubeadm().file(CONFIG, SYSTEMD);
    assert!(found(&tree, "1.31.0", Some("2.0.0")).is_empty());
    assert!(found(&tree, "1.36.0", Some("2.2.0")).is_empty());
    let old = found(&tree, "1.30.14", Some("2.0.0"));
    assert!(old[0].contains("Kubelet 1.30.14 does not ask the runtime"), "{old:?}");
    // Nobody knows which containerd reads this file; schema 3 is containerd 2's.
    assert_eq!(found(&tree, "1.33.0", None), ["not checked: the runtime's version"]);
    let v3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n";
    assert!(found(&kubeadm().file(CONFIG, v3), "1.33.0", None).is_empty());
    assert_eq!(found(&tree, "", Some("2.0.0")), ["not checked: the kubelet's version"]);
    assert!(found(&tree, "", Some("1.7.2"))[0].starts_with("error "));
}

#[test]
fn the_gate_counts_while_it_can_be_set() {
    let tree = kubeadm().file(CONFIG, SYSTEMD);
    let found = |kubelet: &str, gate: bool| {
        let gates = serde_json::json!({"KubeletCgroupDriverFromCRI": gate});
        let pairs =
            [("cgroupDriver", "cgroupfs".into(), from("/c.yaml", 1)), ("featureGates", gates, from("/c.yaml", 2))];
        says(&with_settings(&tree, inputs(kubelet, Some("2.0.1")), &pairs), "RT003").len()
    };
    assert_eq!(found("1.29.0", true), 0);
    assert_eq!(found("1.32.0", false), 1);
    assert_eq!(found("1.35.0", false), 0);
}

#[test]
fn defaults_on_either_side_are_called_defaults() {
    let tree = kubeadm().file(CONFIG, SYSTEMD);
    let legacy = From::Default { legacy: true };
    let mut snapshot = with_settings(&tree, inputs("1.30.1", None), &[("cgroupDriver", "cgroupfs".into(), legacy)]);
    snapshot.config.files.clear();
    let found = says(&snapshot, "RT003");
    let command =
        "error /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7: cgroupDriver is cgroupfs by default";
    assert!(found[0].starts_with(command), "{found:?}");

    let bare = kubeadm().file(CONFIG, "version = 2\n");
    let found = driver(&bare, inputs("1.30.1", None), "systemd", from("/c.yaml", 1));
    assert!(found[0].contains("containerd uses cgroupfs, its default (/etc/containerd/config.toml"), "{found:?}");
    let crio = kubeadm().file("/etc/crio/crio.conf.d/1.conf", "[crio.runtime]\ncgroup_manager = 'cgroupfs'\n");
    let pairs = [
        ("cgroupDriver", "systemd".into(), from("/c.yaml", 1)),
        ("containerRuntimeEndpoint", "unix:///var/run/crio/crio.sock".into(), from("/c.yaml", 2)),
    ];
    let found = says(&with_settings(&crio, inputs("1.30.1", Some("1.27.3")), &pairs), "RT003");
    assert!(found[0].contains("CRI-O uses cgroupfs (/etc/crio/crio.conf.d/1.conf:2). CRI-O 1.27.3"), "{found:?}");
}

#[test]
fn what_nobody_configured_is_not_guessed() {
    let ours = || from("/c.yaml", 1);
    let found = driver(&kubeadm(), inputs("1.30.1", None), "cgroupfs", ours());
    assert_eq!(found, ["not checked: a configuration of the runtime that names its cgroup driver"]);
    let pairs = [("containerRuntimeEndpoint", "unix:///run/cri-dockerd.sock".into(), ours())];
    let snapshot = with_settings(&kubeadm(), inputs("1.30.1", None), &pairs);
    assert_eq!(says(&snapshot, "RT003"), ["not checked: the configuration of the runtime at the endpoint"]);
    // k3s sets both sides.
    let tree = kubeadm().file(CONFIG, SYSTEMD);
    let pairs = [("cgroupDriver", "cgroupfs".into(), From::Distribution)];
    let mut snapshot = with_settings(&tree, inputs("1.30.1", None), &pairs);
    snapshot.command.launcher = Launcher::K3s;
    assert!(says(&snapshot, "RT003").is_empty());
}

#[test]
fn a_disabled_plugin_is_fatal_where_it_is_disabled() {
    let tree = kubeadm().file(CONFIG, "#x\ndisabled_plugins = [\"cri\"]\n");
    let found = says(&with_settings(&tree, Inputs::default(), &[]), "RT002");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("fatal /etc/containerd/config.toml:2: containerd's CRI plugin is disabled"));
    // Docker's containerd, on a node whose kubelet uses CRI-O.
    let crio = [("containerRuntimeEndpoint", "unix:///run/crio/crio.sock".into(), from("/c.yaml", 2))];
    assert!(says(&with_settings(&tree, Inputs::default(), &crio), "RT002").is_empty());
    assert!(says(&with_settings(&kubeadm(), Inputs::default(), &[]), "RT002").is_empty());
}

fn with_endpoint(tree: &MemoryTree, inputs: Inputs) -> Snapshot {
    let endpoint = "unix:///run/containerd/containerd.sock";
    with_settings(tree, inputs, &[("containerRuntimeEndpoint", endpoint.into(), from("/c.yaml", 2))])
}

fn socket(tree: &MemoryTree, inputs: Inputs) -> Vec<String> {
    says(&with_endpoint(tree, inputs), "RT001")
}

#[test]
fn a_socket_is_judged_on_a_running_host_alone() {
    let live = || Inputs { live: true, ..Inputs::default() };
    let found = socket(&kubeadm(), Inputs::default());
    assert_eq!(found, ["not checked: the runtime's socket on the running host"]);
    let crio = kubeadm().other("/run/crio/crio.sock");
    let found = socket(&crio, live());
    assert!(found[0].starts_with("fatal /c.yaml:2: ") && found[0].contains("/run/crio/crio.sock"), "{found:?}");
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..live() };
    assert!(socket(&kubeadm(), before)[0].starts_with("warning /c.yaml:2: "));
    let there = kubeadm().other("/run/containerd/containerd.sock");
    assert!(socket(&there, live()).is_empty());
}

#[test]
fn what_the_cri_plugin_refuses_is_fatal() {
    let found = |text: &str| {
        says(&crate::kubelet::resolve::resolve(&kubeadm().file(CONFIG, text), inputs("1.33.0", None)), "RT002").join("")
    };
    let images =
        "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/etc/containerd/certs.d'\n";
    let mirrors = "[plugins.'io.containerd.cri.v1.images'.registry.mirrors]\n";
    assert!(
        found(&format!("{images}{mirrors}'docker.io' = {{endpoint = ['https://m']}}\n"))
            .starts_with(&format!("fatal {CONFIG}:3: "))
    );
    assert_eq!(found(&format!("{images}{mirrors}")), "");
    let old = |more: &str| {
        found(&format!(
            "{SYSTEMD}[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"\n{more}"
        ))
    };
    assert!(old("").contains("no table in `runtimes`"), "{}", old(""));
    assert_eq!(old("runtimes.nvidia = {runtime_type = \"io.containerd.runc.v2\"}\n"), "");
}

#[test]
fn a_driver_that_nobody_reads_is_told_where_both_agree() {
    let text =
        "version = 3\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n";
    let tree = kubeadm().file(CONFIG, text);
    let found = driver(&tree, inputs("1.33.0", None), "systemd", from("/c.yaml", 1));
    assert!(found[0].starts_with(&format!("warning {CONFIG}:3: ")), "{found:?}");
    let one = findings_with(&tree, inputs("1.33.0", None)).into_iter().find(|one| one.rule == "RT003").unwrap();
    assert!(one.fix.unwrap().contains("`systemctl restart containerd kubelet`"), "the kubelet asks at its start");
}

#[test]
fn what_the_caller_saw_at_the_socket_counts() {
    let mut snapshot = with_endpoint(&kubeadm(), Inputs::default());
    let mut saw = |socket| {
        snapshot.machine.cri.socket = Some(socket);
        says(&snapshot, "RT001")
    };
    let found = saw(Socket::Refused { reason: "connection refused".to_owned() });
    assert!(found[0].contains("the socket answers with connection refused"), "{found:?}");
    assert!(saw(Socket::Connected).is_empty());
}

#[test]
fn cgroup_v1_is_judged_by_version_and_setting() {
    let v1 = kubeadm().directory("/sys/fs/cgroup/memory");
    let found = |kubelet: &str, fails: Option<bool>| {
        let setting = fails.map(|fails| ("failCgroupV1", fails.into(), from("/c.yaml", 3)));
        let pairs: Vec<_> = setting.into_iter().collect();
        let found = says(&with_settings(&v1, inputs(kubelet, None), &pairs), "RT005");
        found.first().map_or_else(String::new, |text| text.split(':').next().unwrap_or_default().to_owned())
    };
    assert_eq!(found("1.30.0", None), "");
    assert_eq!(found("1.33.0", None), "warning /sys/fs/cgroup");
    assert_eq!(found("1.33.0", Some(true)), "fatal /sys/fs/cgroup");
    assert_eq!(found("1.35.0", None), "fatal /sys/fs/cgroup");
    assert_eq!(found("1.35.0", Some(false)), "warning /sys/fs/cgroup");
    assert_eq!(found("", None), "warning /sys/fs/cgroup");
    let v2 = kubeadm().file("/sys/fs/cgroup/cgroup.controllers", "");
    assert!(says(&with_settings(&v2, inputs("1.35.0", None), &[]), "RT005").is_empty());
    let image = says(&with_settings(&kubeadm(), inputs("1.35.0", None), &[]), "RT005");
    assert_eq!(image, ["not checked: /sys/fs/cgroup of the host"]);
}

#[test]
fn the_kubelets_file_gets_the_runtimes_driver() {
    const FILE: &str = "/var/lib/kubelet/config.yaml";
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (before, after) in [("cgroupDriver: cgroupfs\n", "cgroupDriver: systemd\n"), ("", "cgroupDriver: systemd\n")] {
        let tree = kubeadm().file(CONFIG, SYSTEMD).file(FILE, format!("{head}{before}"));
        let judge = |tree: &dyn crate::kubelet::tree::Tree| {
            crate::rules::lint(&crate::kubelet::resolve::resolve(tree, inputs("1.30.1", Some("1.7.2"))))
        };
        let plan = crate::fix::plan(&tree, &judge, &|finding| finding.rule == "RT003");
        assert_eq!(plan.files[0].after, format!("{head}{after}"), "{:?}", plan.left);
    }
}

#[test]
fn a_runtime_that_cannot_load_its_file_does_not_start() {
    let broken = with_endpoint(&kubeadm().file(CONFIG, "version = 2\n[plugins\n"), Inputs::default());
    let found = says(&broken, "RT002");
    assert!(found[0].starts_with("fatal /etc/containerd/config.toml:2: containerd does not start"), "{found:?}");
    let short =
        kubeadm().file(CONFIG, "version = 2\n[plugins.cri.containerd.runtimes.runc.options]\nSystemdCgroup = true\n");
    let found = says(&with_endpoint(&short, inputs("1.30.4", Some("1.6.20"))), "RT002");
    assert!(found[0].starts_with("fatal /etc/containerd/config.toml:2: containerd does not start"), "{found:?}");
    for (text, why) in [("version = 5\n", "does not know this `version`"), ("\u{FEFF}version = 3\n", "byte order mark")]
    {
        let found = says(&with_endpoint(&kubeadm().file(CONFIG, text), inputs("1.33.4", Some("2.1.4"))), "RT002");
        assert!(found[0].starts_with("fatal /etc/containerd/config.toml:1: ") && found[0].contains(why), "{found:?}");
    }
    let crio = kubeadm().file("/etc/crio/crio.conf.d/9.conf", "[crio.runtime\n");
    let endpoint = [("containerRuntimeEndpoint", "unix:///run/crio/crio.sock".into(), from("/c.yaml", 2))];
    let found = says(&with_settings(&crio, Inputs::default(), &endpoint), "RT002");
    assert!(found[0].starts_with("fatal /etc/crio/crio.conf.d/9.conf:1: CRI-O does not start"), "{found:?}");
}

#[test]
fn kubelets_since_1_26_need_containerd_1_6() {
    let found = |kubelet: &str, runtime| says(&with_endpoint(&kubeadm(), inputs(kubelet, runtime)), "RT002").join("|");
    let old = found("1.26.0", Some("1.5.9"));
    assert!(old.starts_with("fatal /c.yaml:2: containerd 1.5.9 answers"), "{old}");
    for (kubelet, runtime) in
        [("1.26.0", Some("1.6.0")), ("1.25.9", Some("1.5.9")), ("1.26.0", None), ("", Some("1.5.9"))]
    {
        assert_eq!(found(kubelet, runtime), "", "{kubelet} {runtime:?}");
    }
}

#[test]
fn a_file_that_is_written_at_each_start_is_judged_with_its_template() {
    const BROKEN: &str = "[a]\n[a]\n";
    let fix = |tree: MemoryTree, socket: &str| {
        let endpoint = [("containerRuntimeEndpoint", format!("unix://{socket}/containerd.sock").into(), from("/c", 2))];
        let findings = crate::rules::lint(&with_settings(&tree, Inputs::default(), &endpoint)).findings;
        findings.into_iter().find(|one| one.rule == "RT002").and_then(|one| one.fix)
    };
    let agent = "/var/lib/rancher/k3s/agent/etc/containerd";
    let k3s = kubeadm().file(format!("{agent}/config.toml"), BROKEN);
    assert_eq!(fix(k3s.clone(), "/run/k3s/containerd"), None);
    let templated = fix(k3s.file(format!("{agent}/config.toml.tmpl"), "x"), "/run/k3s/containerd").unwrap();
    assert!(templated.contains(&format!("in {agent}/config.toml.tmpl, from which")), "{templated}");
    assert!(templated.ends_with("then `systemctl restart kubelet`"), "{templated}");
    let args = "/var/snap/microk8s/current/args";
    let snap = kubeadm().file(format!("{args}/containerd.toml"), BROKEN);
    let snap = snap.file(format!("{args}/containerd-template.toml"), BROKEN);
    let snap = fix(snap, "/var/snap/microk8s/common/run").unwrap();
    assert!(snap.contains(&format!("in {args}/containerd-template.toml, from which")), "{snap}");
    assert!(snap.ends_with("then `systemctl restart snap.microk8s.daemon-containerd`"), "{snap}");
    let k0s = |text: String| fix(kubeadm().file("/etc/k0s/containerd.toml", text), "/run/k0s");
    assert_eq!(k0s(format!("# k0s_managed=true\n{BROKEN}")), None);
    let own = k0s(BROKEN.to_owned()).unwrap();
    assert!(own.contains("at /etc/k0s/containerd.toml:2, then `systemctl restart kubelet`"), "{own}");
}
