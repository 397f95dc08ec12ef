//! Snapshots for the rules' tests: a small tree in memory, resolved by the real resolver.

use std::collections::BTreeMap;

use crate::fix::plan;
use crate::kubelet::effective::{Effective, From};
use crate::kubelet::machine::{Known, survey};
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::{Intent, Snapshot};
use crate::kubelet::tree::{MemoryTree, Tree};
use crate::rules::{Finding, lint};

/// kubeadm's unit and drop-in, as its Debian package has them.
pub(crate) const UNIT: &str = "/usr/lib/systemd/system/kubelet.service";
/// kubeadm's drop-in.
pub(crate) const DROP_IN: &str = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";

/// A host as kubeadm leaves it on Debian, healthy: no rule finds anything.
pub(crate) fn kubeadm() -> MemoryTree {
    MemoryTree::new()
        .file(
            UNIT,
            "[Unit]\nDescription=kubelet\n\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n",
        )
        .file(
            DROP_IN,
            "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
        )
        .file("/usr/bin/kubelet", "")
        .mode("/usr/bin/kubelet", 0o755)
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n")
        .file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.7\"\n")
        .file(
            "/var/lib/kubelet/config.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nrotateCertificates: true\nclusterDNS:\n- 10.96.0.10\nsystemReserved:\n  memory: 500Mi\n",
        )
        .file(
            "/etc/kubernetes/kubelet.conf",
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- {name: c, context: {cluster: k, user: u}}\nclusters:\n- {name: k, cluster: {server: 'https://10.0.0.1:6443'}}\nusers:\n- name: u\n  user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n",
        )
        .mode("/etc/kubernetes/kubelet.conf", 0o600)
        .file("/var/lib/kubelet/pki/kubelet-client-current.pem", "")
        .mode("/var/lib/kubelet/pki/kubelet-client-current.pem", 0o600)
        .file("/etc/hostname", "node-1\n")
        .file("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
}

/// A healthy host with a change of `config/answers.txt`, which replaces the line of its field.
pub(crate) fn answered(line: &str) -> MemoryTree {
    const LINES: [&str; 5] = [
        "apiVersion: kubelet.config.k8s.io/v1beta1\n",
        "kind: KubeletConfiguration\n",
        "cgroupDriver: systemd\n",
        "clusterDNS: [10.96.0.10]\n",
        "systemReserved: {memory: 500Mi}\n",
    ];
    let tree = match line.split_once(' ') {
        Some(("file", change)) => {
            let field = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
            let rest: String = LINES.into_iter().filter(|line| field(line) != field(change)).collect();
            let change = change.replace("\\n", "\n");
            kubeadm().file("/var/lib/kubelet/config.yaml", format!("{rest}{change}\n"))
        }
        Some(("flag", change)) => kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS='{change}'\n")),
        _ => panic!("{line}"),
    };
    tree.file("/proc/meminfo", "MemTotal: 4000000 kB\n").file("/sys/devices/system/cpu/online", "0-1\n")
}

/// Everything that is found, with `inputs`.
pub(crate) fn findings_with(tree: &MemoryTree, inputs: Inputs) -> Vec<Finding> {
    lint(&resolve(tree, inputs)).findings
}

/// What one rule finds, as `severity at: message`.
pub(crate) fn found(tree: &MemoryTree, inputs: Inputs, rule: &str) -> Vec<String> {
    findings_with(tree, inputs)
        .into_iter()
        .filter(|finding| finding.rule == rule)
        .map(|finding| {
            format!("{} {}: {}", format!("{:?}", finding.severity).to_lowercase(), finding.at, finding.message)
        })
        .collect()
}

/// A snapshot of `tree` in which settings stand as these pairs say, each at its place.
pub(crate) fn with_settings(tree: &MemoryTree, inputs: Inputs, pairs: &[(&str, serde_json::Value, From)]) -> Snapshot {
    let known = Known { runtime_version: inputs.overrides.runtime_version.clone(), ..Known::default() };
    let mut snapshot = resolve(tree, inputs);
    for (path, value, from) in pairs {
        let setting = Effective { value: value.clone(), from: from.clone(), keys: BTreeMap::new() };
        snapshot.settings.0.insert((*path).to_owned(), setting);
    }
    // What the survey looks at depends on the settings.
    let (unit, flags) = (&snapshot.unit, &snapshot.flags);
    let machine = survey(tree, unit, flags, &snapshot.settings, &known);
    snapshot.machine.cri.socket_path = machine.cri.socket_path;
    snapshot.machine.cri.runtime = machine.cri.runtime;
    snapshot.machine.network = machine.network;
    snapshot
}

/// What one rule says of a snapshot: `severity at: message`, then `not checked: …` for each thing that it lacked.
pub(crate) fn says(snapshot: &Snapshot, rule: &str) -> Vec<String> {
    let report = lint(snapshot);
    let findings = report.findings.into_iter().filter(|finding| finding.rule == rule).map(|finding| {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        format!("{severity} {}: {}", finding.at, finding.message)
    });
    let lacking = report
        .not_checked
        .into_iter()
        .filter(|lacking| lacking.rule == rule)
        .map(|lacking| format!("not checked: {}", lacking.lacks));
    findings.chain(lacking).collect()
}

/// As if the operator had declared `cloud_provider = "external"`.
pub(crate) fn external() -> Inputs {
    Inputs { intent: Intent { cloud_provider: Some("external".to_owned()), ..Intent::default() }, ..Inputs::default() }
}

/// The places that a rule finds something at, as `severity file:line:column+width`.
pub(crate) fn carets(tree: &MemoryTree, inputs: Inputs, rule: &str) -> Vec<String> {
    findings_with(tree, inputs)
        .into_iter()
        .filter(|finding| finding.rule == rule)
        .map(|finding| {
            let severity = format!("{:?}", finding.severity).to_lowercase();
            let at = finding.at;
            format!("{severity} {at}:{}+{}", at.column, at.width)
        })
        .collect()
}

/// The files as the edits of one rule leave them.
pub(crate) fn fixed(tree: &MemoryTree, inputs: &Inputs, rule: &str) -> Vec<String> {
    let files = fixed_files(tree, inputs, rule);
    files.into_iter().filter_map(|file| Some(file.split_once('\n')?.1.to_owned())).collect()
}

/// What one rule finds, as `severity file:line`, with the flags that are lost.
pub(crate) fn lost(tree: &MemoryTree, inputs: Inputs, rule: &str) -> Vec<String> {
    let findings = findings_with(tree, inputs).into_iter().filter(|finding| finding.rule == rule);
    let shown = findings.map(|finding| {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        format!("{severity} {} {}", finding.at, finding.lost_flags.join(" ")).trim_end().to_owned()
    });
    shown.collect()
}

/// The files as the edits of one rule leave them, where they help: `path`, a line break, the text.
pub(crate) fn fixed_files(tree: &MemoryTree, inputs: &Inputs, rule: &str) -> Vec<String> {
    let judge = |tree: &dyn Tree| lint(&resolve(tree, inputs.clone()));
    let plan = plan(tree, &judge, &|finding| finding.rule == rule);
    plan.files.iter().map(|file| format!("{}\n{}", file.path.display(), file.after)).collect()
}
