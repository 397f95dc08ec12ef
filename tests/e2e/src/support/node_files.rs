//! The files that make a root a Kubernetes node: the kubelet as kubeadm's packages install it, containerd, the agent.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::boot::File;
use super::helm::PAUSE;
use super::kinds::{Kind, USUAL_UNITS};
use super::repository;

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

/// As kubeadm's documents have it, with Debian's plugins.
const GUEST_CONTAINERD: &str = r#"version = 2
[grpc]
address = "SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "PAUSE"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
"#;

/// For kinds whose unit has a name other than that of Debian's package.
const CONTAINERD_UNIT: &str = "\
[Unit]
Description=containerd
[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
OOMScoreAdjust=-999
";

const JOURNALD: &str = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n";

/// A short healthy time and no spread of requests, to save time.
const SETTINGS: &str = "[conditions]\nhealthy_for_secs = 1\n[kubernetes]\nspread_secs = 0\n";

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
pub fn kubelet(kind: &Kind, name: &str, ports: Ports, ca: &str, kubeconfig: String) -> Vec<File> {
    let network = json!({"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]});
    let flags = format!("--hostname-override={name} --node-ip={}", kind.address());
    let hostname = kind.hostname.unwrap_or(name);
    let mut files = vec![
        file("/etc/hostname", format!("{hostname}\n"), 0o644),
        file("/etc/hosts", format!("127.0.0.1 localhost {hostname}\n"), 0o644),
        // Refuses at once; a name server out of reach would cost each lookup ten seconds.
        file("/etc/resolv.conf", "nameserver 127.0.0.1\n", 0o644),
        file("/etc/machine-id", format!("{}\n", machine_id(name)), 0o444),
        file("/etc/systemd/journald.conf.d/50-e2e.conf", JOURNALD, 0o644),
        file("/etc/cni/net.d/10-lo.conflist", network.to_string(), 0o644),
        file("/usr/lib/systemd/system/kubelet.service", KUBELET_UNIT, 0o644),
        file("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN, 0o644),
        file("/etc/systemd/system/kubelet.service.d/50-e2e.conf", RESTART_DROP_IN, 0o644),
        file("/etc/kubernetes/pki/ca.crt", ca, 0o644),
        file("/etc/kubernetes/kubelet.conf", kubeconfig, 0o600),
        file("/var/lib/kubelet/config.yaml", kubelet_config(kind, ports).to_string(), 0o644),
        file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={flags}\n"), 0o644),
    ];
    if kind.suite.is_none() {
        let target = format!("[Unit]\nDescription=A node\nAllowIsolate=yes\nWants={UNITS}\n");
        files.push(file(&format!("/etc/systemd/system/{TARGET}"), target, 0o644));
        files.push(file("/etc/containerd/config.toml", CONTAINERD, 0o644));
    } else {
        files.push(file("/etc/sysctl.d/50-kubernetes.conf", "net.ipv4.ip_forward = 1\n", 0o644));
        let target = "[Unit]\nWants=kubelet.service containerd.service\n";
        files.push(file("/etc/systemd/system/multi-user.target.d/50-e2e.conf", target, 0o644));
        let containerd = GUEST_CONTAINERD.replace("SOCKET", kind.socket).replace("PAUSE", PAUSE);
        files.push(file("/etc/containerd/config.toml", containerd, 0o644));
        if kind.units != USUAL_UNITS {
            files.push(file("/usr/lib/systemd/system/containerd.service", CONTAINERD_UNIT, 0o644));
        }
    }
    files
}

/// kubeadm's settings, and those that a kubelet needs in namespaces without containers.
pub fn kubelet_config(kind: &Kind, ports: Ports) -> Value {
    let mut config = json!({
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
        "containerRuntimeEndpoint": format!("unix://{}", kind.socket),
        "cgroupDriver": "systemd",
    });
    if kind.suite.is_none() {
        let namespaces = json!({
            "failCgroupV1": false,
            "failSwapOn": false,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": ["none"],
            "localStorageCapacityIsolation": false,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "10Mi"},
        });
        if let (Value::Object(config), Value::Object(namespaces)) = (&mut config, namespaces) {
            config.extend(namespaces);
        }
    }
    config
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
