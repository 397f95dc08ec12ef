//! The Helm chart of `make chart` and the image of `make image`, on a node that runs real pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::control_plane::ControlPlane;
use super::namespaces::{self, ADDRESS};
use super::node::{Node, NodeBuilder};
use super::{kinds, output, programs, repository};

/// Of a node in namespaces. `restrict_oom_score_adj`, because runc fails where `CAP_SYS_RESOURCE` is missing, as in a container.
const CONTAINERD: &str = r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "PAUSE"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#;

/// The image that holds a pod's namespaces. No node can pull it.
pub const PAUSE: &str = "example.invalid/pause:1";

/// Imports images of busybox alone: the pause container's, and one whose program ends at once, as a tag of nodevigil's.
const IMAGES: &str = r#"
cd "$(mktemp -d)" && mkdir root && cp /usr/bin/busybox root && tar -C root -cf layer.tar .
for image in 'PAUSE "sleep", "infinity"' 'ghcr.io/nodevigil/nodevigil:broken "false"'; do
  printf '{"architecture": "ARCHITECTURE", "os": "linux", "config": {"Entrypoint": ["/busybox", %s]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "${image#* }" "$(sha256sum layer.tar | cut -d' ' -f1)" >config.json
  printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "${image%% *}" >manifest.json
  tar -cf image.tar config.json manifest.json layer.tar && ctr -n k8s.io images import image.tar
done
ctr -n k8s.io images import /usr/bin/nodevigil-image.tar
"#;

/// The release `nodevigil` in the control plane.
#[derive(Debug)]
pub struct Helm {
    plane: Arc<ControlPlane>,
}

/// Has the node run pods that have the host's network: in namespaces there are no CNI plugins.
pub fn runs_pods(mut node: NodeBuilder, layers: [PathBuf; 2]) -> NodeBuilder {
    if kinds::current().suite.is_none() {
        node = node.file("/etc/containerd/config.toml", &CONTAINERD.replace("PAUSE", PAUSE));
    }
    layers.into_iter().fold(node, NodeBuilder::layer)
}

/// Layers with what [`import_images`] needs.
pub fn layers() -> Result<[PathBuf; 2]> {
    let image = repository().join("dist/nodevigil-image.tar");
    ensure!(image.is_file(), "{} is missing: run `make image`", image.display());
    Ok([programs::layer("nodevigil-image.tar", &image)?, programs::layer("busybox", Path::new("/usr/bin/busybox"))?])
}

/// Imports the images that the chart's pods need.
pub fn import_images(node: &Node) -> Result<()> {
    node.sh(&IMAGES.replace("PAUSE", PAUSE).replace("ARCHITECTURE", kinds::HOST)).map(drop)
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
