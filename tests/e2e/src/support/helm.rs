//! The Helm chart of `make chart` and the image of `make image`, on a node that runs real pods.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::control_plane::ControlPlane;
use super::namespaces::{self, ADDRESS};
use super::node::{Node, NodeBuilder};
use super::{output, programs, repository};

/// `restrict_oom_score_adj`, because runc fails where `CAP_SYS_RESOURCE` is missing, as in a container.
const CONTAINERD: &str = r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "example.invalid/pause:1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#;

/// Imports images of busybox alone: the pause container's, and one whose program ends at once, as a tag of nodevigil's.
const IMAGES: &str = r#"
cd "$(mktemp -d)" && mkdir root && cp "$(command -v busybox)" root/busybox && tar -C root -cf layer.tar .
for image in 'example.invalid/pause:1 "sleep", "infinity"' 'ghcr.io/nodevigil/nodevigil:broken "false"'; do
  printf '{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/busybox", %s]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "${image#* }" "$(sha256sum layer.tar | cut -d' ' -f1)" >config.json
  printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "${image%% *}" >manifest.json
  tar -cf image.tar config.json manifest.json layer.tar && ctr -n k8s.io images import image.tar
done
ctr -n k8s.io images import /run/nodevigil-image.tar
"#;

/// The release `nodevigil` in the control plane.
#[derive(Debug)]
pub struct Helm {
    plane: Arc<ControlPlane>,
}

/// Has the node run pods that have the host's network: there are no CNI plugins.
pub fn runs_pods(node: NodeBuilder) -> NodeBuilder {
    node.file("/etc/containerd/config.toml", CONTAINERD)
}

/// Imports the images that the chart's pods need.
pub fn import_images(node: &Node) -> Result<()> {
    let root = PathBuf::from(format!("/proc/{}/root", node.machine()?.pid1()));
    let image = repository().join("dist/nodevigil-image.tar");
    fs::copy(&image, root.join("run/nodevigil-image.tar"))
        .with_context(|| format!("{}: run `make image`", image.display()))?;
    node.sh(IMAGES).map(drop)
}

impl Helm {
    /// Of this control plane; installed or not.
    pub fn new(plane: &Arc<ControlPlane>) -> Self {
        Self { plane: Arc::clone(plane) }
    }

    /// Runs helm as the administrator; returns its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = namespaces::work().join("helm.conf");
        fs::write(&kubeconfig, self.plane.kubeconfig("admin", "system:masters")?)?;
        let mut helm = Command::new(programs::helm()?);
        output(
            helm.env("HOME", namespaces::work())
                .env("KUBECONFIG", kubeconfig)
                .args(["-n", "kube-system"])
                .args(arguments),
        )
    }

    /// Runs the command for the release with the chart of `dist` and further arguments; returns its output.
    pub fn with_chart(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let chart = repository().join("dist/chart/nodevigil").display().to_string();
        let (host, port) = (format!("apiServer.host={ADDRESS}"), format!("apiServer.port={}", self.plane.port()));
        let values = ["--set", "image.pullPolicy=Never", "--set", &host, "--set", &port];
        self.run(&[&[command, "nodevigil", &chart][..], &values, arguments].concat())
    }
}
