//! The files that make a root a Kubernetes node: the kubelet as kubeadm's packages install it, containerd, the agent.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::boot::File;
use super::{namespaces, repository};

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

/// systemd restarts the kubelet sooner than after kubeadm's ten seconds, to save time.
const RESTART_DROP_IN: &str = "[Service]\nRestartSec=100ms\n";

/// No images are run here, and the native snapshotter needs nothing of the kernel.
const CONTAINERD: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n";

const JOURNALD: &str = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n";

/// A short healthy time, to save time.
const SETTINGS: &str = "[conditions]\nhealthy_for_secs = 1\n";

/// The unit that every node boots into.
pub const TARGET: &str = "node.target";

const UNITS: &str = "systemd-journald.service dbus.service containerd.service kubelet.service";

/// Where a node's kubelet listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The kubelet's API.
    pub kubelet: u16,
    /// Its `/healthz`, on loopback.
    pub healthz: u16,
}

/// A file of the node.
pub fn file(path: &str, content: impl Into<String>, mode: u32) -> File {
    File { path: path.to_owned(), content: content.into(), mode }
}

/// A node that has joined: name, units, container runtime, kubelet. `ca` is the cluster's certificate authority.
pub fn kubelet(name: &str, ports: Ports, ca: &str, kubeconfig: String) -> Vec<File> {
    let target = format!("[Unit]\nDescription=A node\nAllowIsolate=yes\nWants={UNITS}\n");
    let network = json!({"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]});
    let flags = format!("--hostname-override={name} --node-ip={}", namespaces::ADDRESS);
    vec![
        file("/etc/hostname", format!("{name}\n"), 0o644),
        file("/etc/hosts", format!("127.0.0.1 localhost {name}\n"), 0o644),
        // Refuses at once; a name server out of reach would cost each lookup ten seconds.
        file("/etc/resolv.conf", "nameserver 127.0.0.1\n", 0o644),
        file("/etc/machine-id", format!("{}\n", machine_id(name)), 0o444),
        file(&format!("/etc/systemd/system/{TARGET}"), target, 0o644),
        file("/etc/systemd/journald.conf.d/50-e2e.conf", JOURNALD, 0o644),
        file("/etc/containerd/config.toml", CONTAINERD, 0o644),
        file("/etc/cni/net.d/10-lo.conflist", network.to_string(), 0o644),
        file("/usr/lib/systemd/system/kubelet.service", KUBELET_UNIT, 0o644),
        file("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN, 0o644),
        file("/etc/systemd/system/kubelet.service.d/50-e2e.conf", RESTART_DROP_IN, 0o644),
        file("/etc/kubernetes/pki/ca.crt", ca, 0o644),
        file("/etc/kubernetes/kubelet.conf", kubeconfig, 0o600),
        file("/var/lib/kubelet/config.yaml", kubelet_config(ports).to_string(), 0o644),
        file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={flags}\n"), 0o644),
    ]
}

/// kubeadm's settings, and those that a kubelet needs in namespaces without containers.
fn kubelet_config(ports: Ports) -> Value {
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
        "enforceNodeAllocatable": ["none"],
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "10Mi"},
    })
}

/// The agent as its package installs it, with settings that save time and a kubeconfig of its own.
pub fn agent(kubeconfig: String) -> Result<Vec<File>> {
    let directory = repository().join("systemd");
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    Ok(vec![
        file("/usr/lib/systemd/system/nodevigil.service", read("nodevigil.service")?, 0o644),
        file("/usr/lib/systemd/system/nodevigil-preflight.service", read("nodevigil-preflight.service")?, 0o644),
        file("/usr/lib/tmpfiles.d/nodevigil.conf", read("nodevigil.tmpfiles")?, 0o644),
        file("/etc/nodevigil/config.d/50-e2e.toml", SETTINGS, 0o644),
        file("/etc/nodevigil/kubeconfig", kubeconfig, 0o600),
    ])
}

/// Any 32 hexadecimal digits, but not those of another node.
fn machine_id(name: &str) -> String {
    let id = name.bytes().fold(1_u128, |id, byte| id.wrapping_mul(257).wrapping_add(u128::from(byte)));
    format!("{id:032x}")
}
