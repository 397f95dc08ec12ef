//! The files that make a root a Kubernetes node: the kubelet as kubeadm's packages install it, containerd, the agent.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::boot::File;
use super::{enter, repository};

/// The unit that kubeadm's package ships.
const KUBELET_UNIT: &str = "\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// The drop-in that kubeadm's package ships.
const KUBEADM_DROP_IN: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// No images are run here, and the native snapshotter asks nothing of the kernel.
const CONTAINERD: &str = "\
version = 2
[plugins.\"io.containerd.grpc.v1.cri\".containerd]
snapshotter = \"native\"
";

const JOURNALD: &str =
    "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n";

/// PID 1 in a container of the test machines cannot raise limits, so the agent's `LimitMEMLOCK=` is in vain there.
const AGENT_DROP_IN: &str =
    "[Service]\nAmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n";

/// Where a node's kubelet listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// The kubelet's API.
    pub(crate) kubelet: u16,
    /// Its `/healthz`, on loopback.
    pub(crate) healthz: u16,
}

/// A file of the node.
pub(crate) fn file(path: &str, content: impl Into<String>, mode: u32) -> File {
    File {
        path: path.to_owned(),
        content: content.into(),
        mode,
        group: None,
    }
}

/// What every node has: name, units, container runtime, the unit it boots into.
pub(crate) fn common(name: &str, wants: &[String]) -> Vec<File> {
    let target = format!(
        "[Unit]\nDescription=A node\nAllowIsolate=yes\nWants={}\n",
        wants.join(" ")
    );
    let network = json!({"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]});
    vec![
        file("/etc/hostname", format!("{name}\n"), 0o644),
        file("/etc/hosts", format!("127.0.0.1 localhost {name}\n"), 0o644),
        // Refuses at once; a name server out of reach would cost each lookup ten seconds.
        file("/etc/resolv.conf", "nameserver 127.0.0.1\n", 0o644),
        file("/etc/machine-id", format!("{}\n", machine_id(name)), 0o444),
        file("/etc/systemd/system/node.target", target, 0o644),
        file("/etc/systemd/journald.conf.d/50-lab.conf", JOURNALD, 0o644),
        file("/etc/containerd/config.toml", CONTAINERD, 0o644),
        file("/etc/cni/net.d/10-lo.conflist", network.to_string(), 0o644),
        file(
            "/usr/lib/systemd/system/kubelet.service",
            KUBELET_UNIT,
            0o644,
        ),
        file(
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
            KUBEADM_DROP_IN,
            0o644,
        ),
    ]
}

/// What `kubeadm join` would have left on the node.
pub(crate) fn joined(ports: Ports, ca: &str, kubeconfig: &Value) -> Vec<File> {
    vec![
        file("/etc/kubernetes/pki/ca.crt", ca, 0o644),
        file(
            "/etc/kubernetes/kubelet.conf",
            kubeconfig.to_string(),
            0o600,
        ),
        file(
            "/var/lib/kubelet/config.yaml",
            kubelet_config(ports).to_string(),
            0o644,
        ),
    ]
}

/// `/etc/default/kubelet`: the operator's own flags.
pub(crate) fn kubelet_defaults(name: &str, arguments: &[String]) -> File {
    let own = format!("--hostname-override={name} --node-ip={}", enter::ADDRESS);
    let line = format!("KUBELET_EXTRA_ARGS={own} {}", arguments.join(" "));
    file(
        "/etc/default/kubelet",
        format!("{}\n", line.trim_end()),
        0o644,
    )
}

/// A drop-in that lets systemd restart the kubelet sooner, or later, than after kubeadm's ten seconds.
pub(crate) fn restart_sec(delay: Duration) -> File {
    let text = format!("[Service]\nRestartSec={}ms\n", delay.as_millis());
    file(
        "/etc/systemd/system/kubelet.service.d/50-lab-restart.conf",
        text,
        0o644,
    )
}

/// kubeadm's settings, and those that a kubelet needs in namespaces without containers.
pub(crate) fn kubelet_config(ports: Ports) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": ports.kubelet,
        "healthzPort": ports.healthz,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": true,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": ["none"], // an empty list would be lost when kubeadm encodes it anew
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "10Mi"},
    })
}

/// The agent: the units of this repository, its kubeconfig, the rights it needs on test machines.
pub(crate) fn agent(kubeconfig: &Value) -> Result<Vec<File>> {
    let folder = repository().join("systemd");
    ensure!(
        folder.join("nodevigil.service").is_file(),
        "systemd/nodevigil.service is missing"
    );
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let extension = Path::new(&name)
            .extension()
            .and_then(|extension| extension.to_str());
        let to = match extension {
            Some("service" | "socket" | "slice" | "target" | "path" | "timer") => {
                format!("systemd/system/{name}")
            }
            Some("sysusers") => "sysusers.d/nodevigil.conf".to_owned(),
            Some("tmpfiles") => "tmpfiles.d/nodevigil.conf".to_owned(),
            _ => continue,
        };
        let text =
            fs::read_to_string(entry.path()).with_context(|| format!("reading systemd/{name}"))?;
        files.push(file(&format!("/usr/lib/{to}"), text, 0o644));
    }
    files.push(file(
        "/etc/systemd/system/nodevigil.service.d/50-lab.conf",
        AGENT_DROP_IN,
        0o644,
    ));
    let mut kubeconfig = file("/etc/nodevigil/kubeconfig", kubeconfig.to_string(), 0o640);
    kubeconfig.group = Some("nodevigil".to_owned());
    files.push(kubeconfig);
    Ok(files)
}

/// Any 32 hexadecimal digits, but not those of another node.
fn machine_id(name: &str) -> String {
    let id = name.bytes().fold(1_u128, |id, byte| {
        id.wrapping_mul(257).wrapping_add(u128::from(byte))
    });
    format!("{id:032x}")
}
