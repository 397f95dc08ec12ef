//! Lets a node be born as in a cloud: cloud-init finds its user data and runs a real `kubeadm join`.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::boot::File;
use super::control_plane::ControlPlane;
use super::node_files::{Ports, file, kubelet_config};
use super::{enter, tools, wait_until};

/// The kubelet's configuration comes from the cluster, so all joined nodes have the same ports. Not 10248 for healthz:
/// all nodes of a run share a network namespace, and who has to guess the address must not find another node's kubelet.
pub(crate) const PORTS: Ports = Ports {
    kubelet: 10_250,
    healthz: 10_348,
};

/// cloud-init's stages, under the names of its versions up to 24.2 and since.
pub(crate) const UNITS: [&str; 6] = [
    "cloud-init-local.service",
    "cloud-init.service",
    "cloud-init-main.service",
    "cloud-init-network.service",
    "cloud-config.service",
    "cloud-final.service",
];

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";
const SOCKET: &str = "unix:///run/containerd/containerd.sock";
const USER_DATA: &str = "\
#cloud-config
runcmd:
- [systemctl, start, containerd]
- [sh, -c, 'kubeadm join --config /etc/kubernetes/join.yaml >/var/log/kubeadm.log 2>&1']
";
/// The machine may lack the locale that cloud-init would set.
const CLOUD_CONFIG: &str = "\
datasource_list: [NoCloud]
locale: false
network: {config: disabled}
system_info:
  default_user: {name: root}
";

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The right to be the joined node of this run.
#[derive(Debug)]
pub(crate) struct Joining(());

impl Joining {
    /// Waits until no other joined node lives.
    pub(crate) fn wait_for_turn() -> Result<Self> {
        wait_until("another joined node to end", Duration::from_mins(5), || {
            // Not `then_some`: its argument would be made, and dropped, which gives somebody else's turn away.
            Ok((!TAKEN.swap(true, Ordering::AcqRel)).then(|| Self(())))
        })
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// The files of a node that is to join; prepares the cluster for it.
pub(crate) fn files(
    plane: &Arc<ControlPlane>,
    name: &str,
    arguments: &[String],
) -> Result<Vec<File>> {
    plane.prepare_joining(|| prepare(plane))?;
    let mut flags = vec![json!({"name": "node-ip", "value": enter::ADDRESS})];
    for argument in arguments {
        let (flag, value) = argument
            .trim_start_matches('-')
            .split_once('=')
            .context("a kubelet flag has a value")?;
        flags.push(json!({"name": flag, "value": value}));
    }
    let join = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "apiServerEndpoint": endpoint(plane),
            "token": TOKEN,
            "unsafeSkipCAVerification": true,
        }},
        "nodeRegistration": {
            "name": name,
            "criSocket": SOCKET,
            "ignorePreflightErrors": ["all"],
            "kubeletExtraArgs": flags,
        },
    });
    let seed = "/var/lib/cloud/seed/nocloud";
    let meta_data = format!("instance-id: i-{name}\nlocal-hostname: {name}\n");
    Ok(vec![
        file("/etc/kubernetes/join.yaml", join.to_string(), 0o600),
        file("/etc/cloud/cloud.cfg.d/99-lab.cfg", CLOUD_CONFIG, 0o644),
        file(&format!("{seed}/user-data"), USER_DATA, 0o600),
        file(&format!("{seed}/meta-data"), meta_data, 0o600),
    ])
}

/// Where a joining node finds the API server.
pub(crate) fn endpoint(plane: &ControlPlane) -> String {
    format!("{}:{}", enter::ADDRESS, plane.port())
}

/// Leaves in the cluster what `kubeadm init` does: the configurations, a bootstrap token, cluster-info.
fn prepare(plane: &ControlPlane) -> Result<()> {
    let (_, version) = plane.get("/version")?;
    let documents: [Value; 3] = [
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "bootstrapTokens": [{"token": TOKEN}],
            "localAPIEndpoint": {"advertiseAddress": enter::ADDRESS, "bindPort": plane.port()},
            "nodeRegistration": {"criSocket": SOCKET},
        }),
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version["gitVersion"],
            "controlPlaneEndpoint": endpoint(plane),
        }),
        kubelet_config(PORTS),
    ];
    let config = plane.folder().join("kubeadm.yaml");
    fs::write(
        &config,
        documents
            .map(|document| document.to_string())
            .join("\n---\n"),
    )?;
    let admin = plane.folder().join("admin.conf");
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"], enter::ADDRESS)?;
    fs::write(&admin, kubeconfig.to_string())?;
    for phase in [&["upload-config", "all"][..], &["bootstrap-token"]] {
        let done = Command::new(tools::path("kubeadm")?)
            .args(["init", "phase"])
            .args(phase)
            .arg("--config")
            .arg(&config)
            .arg("--kubeconfig")
            .arg(&admin)
            .output()
            .context("starting kubeadm")?;
        let refusal = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "kubeadm init phase {}: {}",
            phase.join(" "),
            refusal.trim()
        );
    }
    Ok(())
}
