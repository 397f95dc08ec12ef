//! NW: what pods need of the node's network.

use std::{net::IpAddr, path::Path};

use super::{Check, Finding, Report, Severity, settings};
use crate::kubelet::{
    location::Location,
    machine::FileState,
    snapshot::{Lifecycle, Snapshot},
};

/// The rules of this family.
pub(super) const RULES: &[(&str, Check)] = &[("NW001", cni_missing), ("NW003", resolv_loop)];

/// How long after the kubelet's start a missing CNI configuration is no more than the usual wait for images, in
/// seconds: 10 to 90 are usual.
const CNI_GRACE_SECS: u64 = 180;

fn cni_missing(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "NW001";
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        return;
    }
    let machine = &snapshot.machine;
    let Some(folder) = &machine.cni_dir else {
        return report.not_checked(ID, "the folder in which the runtime looks for CNI configurations");
    };
    if machine.cni_configs.as_ref().is_some_and(|configs| !configs.is_empty()) {
        return;
    }
    // An image has none by nature: the DaemonSet writes it on the node.
    let age = snapshot.process.as_ref().and_then(|process| process.age_secs);
    if !snapshot.live && snapshot.process.is_none() {
        return report.not_checked(ID, "the running host: an image has no CNI configuration yet");
    }
    report.add(no_cni(snapshot, folder, age));
}

fn no_cni(snapshot: &Snapshot, folder: &Path, age: Option<u64>) -> Finding {
    let machine = &snapshot.machine;
    let since = age.map_or_else(String::new, |age| format!("; the kubelet started {age} s ago"));
    let severity = match age {
        Some(..CNI_GRACE_SECS) => Severity::Warning,
        _ => Severity::Error,
    };
    let state =
        if machine.cni_configs.is_some() { "no *.conf, *.conflist or *.json in it" } else { "the folder is not there" };
    let message =
        format!("no CNI configuration: {state}. The Node stays NotReady ('cni plugin not initialized'){since}");
    let fix = "kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=NODE shows whether the network's \
               DaemonSet runs here; it must tolerate node.kubernetes.io/not-ready and \
               node.cloudprovider.kubernetes.io/uninitialized";
    let finding = Finding::new("NW001", severity, Location::file(folder), message).fix(fix);
    match machine.runtime.as_ref().and_then(|runtime| runtime.cni_conf_dir.as_ref()) {
        Some(named) => finding.step(named.at.clone(), "the runtime's configuration names this folder"),
        None => finding,
    }
}

fn resolv_loop(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "NW003";
    const FIELD: &str = "resolvConf";
    if !settings::are_known(snapshot) {
        return report.not_checked(ID, settings::COMMAND);
    }
    // k3s and RKE2 look at the file and give the kubelet another one if it names a loopback address.
    if settings::are_managed(snapshot) && settings::is_default(snapshot, FIELD) {
        return;
    }
    if settings::are_to_come(snapshot) && settings::is_default(snapshot, FIELD) {
        return report.not_checked(ID, "the kubelet's configuration, which is still to be written");
    }
    let is_default = settings::is_default(snapshot, FIELD);
    let fix = settings::edit(
        snapshot,
        FIELD,
        "resolvConf: /run/systemd/resolve/resolv.conf",
        "--resolv-conf=/run/systemd/resolve/resolv.conf",
    );
    match &snapshot.machine.resolv_conf {
        FileState::NotAsked => {}
        FileState::Missing { at } if snapshot.live => {
            let path = &at.file;
            let message = format!("resolvConf is {path}, which does not exist: no pod can be started");
            let place = settings::place(snapshot, FIELD);
            report.add(Finding::new(ID, Severity::Warning, place, message).fix(fix));
        }
        FileState::Missing { .. } => {
            report.not_checked(ID, "the file of resolvConf, which the running host writes");
        }
        FileState::Bad { .. } => report.not_checked(ID, "a file of resolvConf that can be read"),
        FileState::Present(servers) => {
            let Some(server) = servers.iter().find(|server| is_loopback(&server.value)) else {
                return;
            };
            let message = format!(
                "pods get the name server {} ({}): it is the node's own, in a pod it is the pod itself; CoreDNS stops \
                 with 'Loop detected'",
                server.value, server.at
            );
            let place = if is_default { server.at.clone() } else { settings::place(snapshot, FIELD) };
            let finding = Finding::new(ID, Severity::Warning, place, message).fix(fix);
            report.add(finding.step(server.at.clone(), format!("nameserver {}", server.value)));
        }
    }
}

fn is_loopback(server: &str) -> bool {
    let address = server.split('%').next().unwrap_or_default();
    address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
