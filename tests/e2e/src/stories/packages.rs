//! The deb and the rpm of `make packages`, installed and removed by dpkg and rpm.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::scene::{ObservedNode, Scene};
use crate::support::repository;

const DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";

/// A node without what the harness installs of the agent, with its kubeconfig and settings, and with the package at `to`.
fn node_with(scene: &Scene, package: &str, to: &str) -> Result<Arc<ObservedNode>> {
    let node = scene.ready_with(|node| node)?;
    node.sh("rm -f /usr/bin/nodevigil /usr/lib/systemd/system/nodevigil* /usr/lib/tmpfiles.d/nodevigil.conf
         systemctl daemon-reload")?;
    let root = PathBuf::from(format!("/proc/{}/root", node.machine()?.pid1()));
    fs::copy(made(package)?, root.join(to.trim_start_matches('/')))?;
    Ok(node)
}

/// The package in `dist` whose name ends so.
pub fn made(end: &str) -> Result<PathBuf> {
    let dist = repository().join("dist");
    let mut packages = fs::read_dir(&dist).into_iter().flatten().flatten();
    let package = packages.find(|entry| entry.file_name().to_string_lossy().ends_with(end));
    package.map(|entry| entry.path()).with_context(|| format!("{} has no *{end}: run `make packages`", dist.display()))
}

/// Fails if the Node has conditions of nodevigil.
pub fn ensure_nothing_on_node(scene: &Scene, node: &ObservedNode) -> Result<()> {
    let object = scene.plane().node(node.name())?.context("no Node")?;
    let conditions = object["status"]["conditions"].to_string();
    ensure!(!conditions.contains("KubeletHealthy") && !conditions.contains("NodeKernelHealthy"), "{conditions}");
    Ok(())
}

pub fn a_deb_is_installed_upgraded_and_purged(scene: &Scene) -> Result<()> {
    let node = node_with(scene, "_amd64.deb", "/run/nodevigil.deb")?;
    let install = "DEBIAN_FRONTEND=noninteractive dpkg --install --force-confnew /run/nodevigil.deb";
    node.sh(install)?;
    let (_, states) = node.run("systemctl is-enabled nodevigil nodevigil-preflight; systemctl is-active nodevigil")?;
    ensure!(states == "disabled\ndisabled\ninactive\n", "the package starts and enables nothing: {states}");
    let from = Instant::now();
    node.sh("systemctl enable --now nodevigil")?;
    let healthy = node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;

    // The same version again, which is an upgrade to the scripts.
    node.restart_agent(install)?;
    node.kubelet().ensure_no_flip(&healthy)?;

    // A kubelet that requires the preflight runs on.
    node.sh(&format!(
        "mkdir -p {DROP_INS}
         printf '[Unit]\\nRequires=nodevigil-preflight.service\\n' >{DROP_INS}/05-nodevigil.conf
         systemctl daemon-reload"
    ))?;
    let removed = node.sh("dpkg --remove nodevigil")?;
    ensure!(removed.contains("removed conditions KubeletHealthy"), "{removed}");
    ensure_nothing_on_node(scene, &node)?;
    node.sh(&format!("systemctl is-active kubelet && rm {DROP_INS}/05-nodevigil.conf && systemctl daemon-reload"))?;
    node.sh("test ! -e /usr/bin/nodevigil -a ! -e /var/lib/nodevigil -a ! -e /run/nodevigil -a -e /etc/nodevigil/kubeconfig")?;
    let (_, state) =
        node.run("systemctl is-active nodevigil; ls /etc/systemd/system/*.wants 2>/dev/null | grep nodevigil")?;
    ensure!(state == "inactive\n", "{state}");
    node.sh("dpkg --purge nodevigil && test ! -e /etc/nodevigil")?;
    Ok(())
}

pub fn an_rpm_is_installed_upgraded_and_removed(scene: &Scene) -> Result<()> {
    let node = node_with(scene, ".x86_64.rpm", "/run/nodevigil.rpm")?;
    // rpm's database has none of this Debian's packages.
    node.sh("rpm --install --nodeps /run/nodevigil.rpm")?;
    let from = Instant::now();
    node.sh("systemctl enable --now nodevigil")?;
    let healthy = node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    node.restart_agent("rpm --upgrade --nodeps --force /run/nodevigil.rpm")?;
    node.kubelet().ensure_no_flip(&healthy)?;
    let removed = node.sh("rpm --erase nodevigil")?;
    ensure!(removed.contains("removed conditions KubeletHealthy"), "{removed}");
    ensure_nothing_on_node(scene, &node)?;
    node.sh("test ! -e /usr/bin/nodevigil -a ! -e /var/lib/nodevigil -a -e /etc/nodevigil/kubeconfig")?;
    Ok(())
}
