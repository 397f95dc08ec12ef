//! Asks the running host: systemd, the kubelet's binary and process, the container runtime's socket. Each request has a deadline, and a
//! request that fails becomes a note.

use std::io;
use std::path::{Path, PathBuf};

use super::configz;
use crate::host::addresses::addresses;
use crate::host::systemd::loaded;
use crate::host::{cri, program};
use kubelet_config::kubelet::host_tree::{HostTree, reason};
use kubelet_config::kubelet::layers::{self, Launcher};
use kubelet_config::kubelet::machine::Socket;
use kubelet_config::kubelet::resolve::Inputs;
use kubelet_config::kubelet::snapshot::{Lifecycle, Snapshot};
use kubelet_config::kubelet::systemd;
use kubelet_config::kubelet::tree::Tree as _;

/// Only these programs are known to print the version of Kubernetes for `--version` and to do nothing else.
const PROGRAMS: [&str; 3] = ["kubelet", "k3s", "rke2"];

/// Adds the host's answers to `inputs`, and failures to `notes`.
pub async fn ask(tree: &HostTree, inputs: &mut Inputs, notes: &mut Vec<String>) {
    let candidate = || layers::candidate_units(tree).into_iter().next();
    let name = inputs.unit.clone().or_else(candidate).unwrap_or_else(|| "kubelet.service".to_owned());
    if inputs.overrides.addresses.is_none() {
        match addresses() {
            Ok(addresses) => inputs.overrides.addresses = Some(addresses),
            Err(error) => notes.push(format!("the host's addresses are not known: {error}")),
        }
    }
    if let Ok(boot_id) = tree.read_text(Path::new("/proc/sys/kernel/random/boot_id")) {
        inputs.manager.boot_id = boot_id.trim().replace('-', "");
    }
    let mut control_group = String::new();
    match loaded(&name).await {
        Ok((loaded, cgroup)) => {
            control_group = cgroup;
            let manager = &mut inputs.manager;
            manager.environment = loaded.manager_environment.clone();
            manager.version = loaded.systemd_version.unwrap_or(manager.version);
            let unit_path: Vec<PathBuf> = loaded.unit_path.iter().map(PathBuf::from).collect();
            manager.unit_path = (!unit_path.is_empty()).then_some(unit_path);
            inputs.loaded = Some(loaded);
        }
        Err(error) => notes.push(format!("what systemd has loaded is not known: {error}")),
    }
    ask_kubelet(tree, &name, &control_group, inputs, notes).await;
}

async fn ask_kubelet(tree: &HostTree, unit: &str, control_group: &str, inputs: &mut Inputs, notes: &mut Vec<String>) {
    let unit = systemd::resolve_unit(tree, unit, &inputs.manager);
    let launcher = layers::resolve_command(tree, &unit, inputs.hostname.as_deref()).launcher;
    if inputs.version.is_none()
        && let Some(exec) = &unit.exec
    {
        let words = exec.words.iter().map(|word| word.text.as_str());
        let is_known =
            |word: &&str| PROGRAMS.iter().any(|name| word.starts_with('/') && Path::new(word).ends_with(name));
        if let Some(program) = std::iter::once(exec.program.as_str()).chain(words).find(is_known) {
            match program::version(tree, Path::new(program)).await {
                Ok(version) => inputs.version = Some(version),
                Err(error) => notes.push(format!("the kubelet's version is not known: {error}")),
            }
        }
    }
    // Without a cgroup it is not running, or systemd was not asked, which is noted already.
    if inputs.lifecycle == Lifecycle::BeforeFirstStart || launcher.is_in_process() || control_group.is_empty() {
        return;
    }
    match program::running_kubelet(control_group).await {
        Ok(None) if launcher != Launcher::Script => {
            notes.push(format!(
                "no kubelet is running: there is no process named kubelet in the cgroup {control_group}"
            ));
        }
        Ok(process) => inputs.process = process,
        Err(error) => notes.push(format!("the running kubelet's arguments are not known: {error}")),
    }
}

/// Asks the running kubelet for its configuration.
pub async fn ask_configuration(kubeconfig: Option<&Path>, snapshot: &mut Snapshot, notes: &mut Vec<String>) {
    if snapshot.observed.process.is_none() {
        return;
    }
    match configz::read(kubeconfig, &snapshot.settings).await {
        Ok(found) => snapshot.observed.config = found,
        Err(error) => notes.push(format!("the configuration of the running kubelet is not known: {error:#}")),
    }
}

/// Checks whether a process listens on the container runtime's socket.
pub async fn try_socket(snapshot: &mut Snapshot) {
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart || snapshot.machine.cri.socket != Some(Socket::Present) {
        return;
    }
    let Some(path) = &snapshot.machine.cri.socket_path else { return };
    snapshot.machine.cri.socket = Some(match cri::try_connect(Path::new(path)).await {
        Ok(()) => Socket::Connected,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return, // this user lacks the permission
        Err(error) => Socket::Refused { reason: reason(&error) },
    });
}
