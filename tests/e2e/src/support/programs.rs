//! Finds the programs that the nodes run, and lays them over the nodes' root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{kinds, namespaces, repository};

/// The path of one of the Kubernetes programs, in the directory that `KUBEBUILDER_ASSETS` names.
pub fn kubernetes(program: &str) -> Result<PathBuf> {
    from("KUBEBUILDER_ASSETS", program).context("run `make cluster`")
}

/// Names the directory of an API server of another release.
const OTHER_CONTROL_PLANE: &str = "NODEVIGIL_CONTROL_PLANE";

/// A program of the control plane.
pub fn control_plane(program: &str) -> Result<PathBuf> {
    let is_other = std::env::var_os(OTHER_CONTROL_PLANE).is_some() && program != "etcd";
    if is_other { from(OTHER_CONTROL_PLANE, program) } else { kubernetes(program) }
}

/// Names the directory of a kubelet of another release than the control plane's, `RELEASE-KEY`.
const OTHER_KUBELET: &str = "NODEVIGIL_KUBELET";

/// The kubelet of the nodes.
pub fn kubelet() -> Result<PathBuf> {
    if kinds::current().architecture != kinds::HOST {
        return from("NODEVIGIL_ARM64", "kubelet").context("run `make arm64-needs`");
    }
    if std::env::var_os(OTHER_KUBELET).is_some() { from(OTHER_KUBELET, "kubelet") } else { kubernetes("kubelet") }
}

/// What is of another release than the stories' own, for the table of platforms: `kubelet 1.34`, or `Kubernetes 1.34` with its API server.
pub fn other_release() -> Option<String> {
    let directory = PathBuf::from(std::env::var_os(OTHER_KUBELET)?);
    let name = directory.file_name()?.to_string_lossy();
    let release = name.split_once('-').map_or(&*name, |(release, _)| release);
    let what = if std::env::var_os(OTHER_CONTROL_PLANE).is_some() { "Kubernetes" } else { "kubelet" };
    Some(format!("{what} {release}"))
}

/// kube-scheduler, in the directory that `NODEVIGIL_SCHEDULER` names.
pub fn scheduler() -> Result<PathBuf> {
    from("NODEVIGIL_SCHEDULER", "kube-scheduler")
}

/// The stand-in for k3s, in the directory that `NODEVIGIL_K3S` names.
pub fn k3s() -> Result<PathBuf> {
    from("NODEVIGIL_K3S", "k3s")
}

/// containerd and its shim, in the directory that `NODEVIGIL_CONTAINERD` names, as layers.
pub fn newest_containerd() -> Result<Vec<PathBuf>> {
    let program = |name| layer(name, &from("NODEVIGIL_CONTAINERD", name).context("run `make containerd`")?);
    ["containerd", "containerd-shim-runc-v2"].into_iter().map(program).collect()
}

/// Helm, in the directory that `NODEVIGIL_HELM` names.
pub fn helm() -> Result<PathBuf> {
    from("NODEVIGIL_HELM", "helm")
}

fn from(variable: &str, program: &str) -> Result<PathBuf> {
    let directory = std::env::var_os(variable);
    let directory = directory.with_context(|| format!("{variable} is not set: start this by `make stories`"))?;
    let path = Path::new(&directory).join(program);
    ensure!(path.is_file(), "{} is missing", path.display());
    Ok(path)
}

/// The agent's executable, which `NODEVIGIL_BIN` names; for nodes of another architecture that of `make arm`.
pub fn agent() -> Result<PathBuf> {
    if kinds::current().architecture != kinds::HOST {
        let path = repository().join("dist/arm64/nodevigil");
        ensure!(path.is_file(), "{} is missing: run `make arm`", path.display());
        return Ok(path);
    }
    let path =
        std::env::var_os("NODEVIGIL_BIN").context("NODEVIGIL_BIN is not set: start the stories by `make stories`")?;
    let path = PathBuf::from(path);
    ensure!(path.is_file(), "NODEVIGIL_BIN={} is not a file", path.display());
    Ok(path)
}

/// A lower layer for the nodes' root that has the file as /usr/bin/NAME; copied once a run.
pub fn layer(name: &str, file: &Path) -> Result<PathBuf> {
    let layer = namespaces::work().join("layers").join(name);
    let directory = layer.join("usr/bin");
    if !directory.exists() {
        fs::create_dir_all(&directory)?;
        fs::copy(file, directory.join(name)).with_context(|| format!("copying {}", file.display()))?;
    }
    Ok(layer)
}
