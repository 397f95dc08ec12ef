//! NW: what pods need of the node's network.

use std::net::IpAddr;
use std::path::Path;

use super::{Finding, Lifecycle, Location, Report, Severity, Snapshot, remedy, settings};
use crate::kubelet::machine::FileState;

/// The address of systemd-resolved, and the file in which it writes the name servers that it asks.
const STUB: &str = "127.0.0.53";
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// For how many seconds after its start a missing CNI configuration is the usual wait for images: 10 to 90.
const CNI_GRACE_SECS: u64 = 180;

pub(super) fn cni_missing(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "NW001";
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        return;
    }
    let machine = &snapshot.machine;
    let Some(directory) = &machine.network.cni_dir else {
        return report.not_checked(ID, "the directory in which the runtime looks for CNI configurations");
    };
    if machine.network.cni_configs.as_ref().is_some_and(|configs| !configs.is_empty()) {
        return;
    }
    // An image has none by nature: the DaemonSet writes it on the node.
    let age = snapshot.observed.process.as_ref().and_then(|process| process.age_secs);
    if !snapshot.observed.live && snapshot.observed.process.is_none() {
        return report.not_checked(ID, "the running host: an image has no CNI configuration yet");
    }
    report.add(no_cni(snapshot, directory, age));
}

fn no_cni(snapshot: &Snapshot, directory: &Path, age: Option<u64>) -> Finding {
    let machine = &snapshot.machine;
    let since = age.map_or_else(String::new, |age| format!(". The kubelet started {age} s ago"));
    let severity = match age {
        Some(..CNI_GRACE_SECS) => Severity::Warning,
        _ => Severity::Error,
    };
    let state =
        if machine.network.cni_configs.is_some() { "has no *.conf, *.conflist or *.json" } else { "does not exist" };
    let message = format!(
        "there is no CNI configuration: {} {state}. The Node stays NotReady ('cni plugin not initialized'){since}",
        directory.display()
    );
    let named = machine.cri.runtime.as_ref().and_then(|runtime| runtime.cni_conf_dir.as_ref());
    Finding::new("NW001", severity, Location::file(directory), message)
        .steps(named.map(|named| (named.at.clone(), "the runtime's configuration names this directory")))
}

pub(super) fn resolv_loop(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "NW003";
    const FIELD: &str = "resolvConf";
    // k3s and RKE2 look at the file and give the kubelet another one if it names a loopback address.
    if settings::are_managed(snapshot) && settings::is_default(snapshot, FIELD) {
        return;
    }
    let is_default = settings::is_default(snapshot, FIELD);
    match &snapshot.machine.network.resolv_conf {
        FileState::NotAsked => {}
        FileState::Missing { at } if snapshot.observed.live => {
            let path = &at.file;
            let message = format!("resolvConf is {path}, which does not exist. The kubelet cannot start any pod");
            let place = settings::place(snapshot, FIELD);
            let fix =
                format!("name a file that exists: /etc/resolv.conf, the default, or {RESOLVED} of systemd-resolved");
            report.add(Finding::new(ID, Severity::Warning, place, message).say(fix));
        }
        FileState::Missing { .. } => {
            report.not_checked(ID, "the file of resolvConf, which the running host writes");
        }
        FileState::Bad { .. } => report.not_checked(ID, "a file of resolvConf that can be read"),
        FileState::Present(servers) => {
            let Some(server) = servers.iter().find(|server| is_loopback(&server.value)) else { return };
            let message = format!(
                "pods get the name server {} ({}), a loopback address: in a pod it is the pod itself. CoreDNS asks itself and \
                 stops with 'Loop detected'",
                server.value, server.at
            );
            let place = if is_default { server.at.clone() } else { settings::place(snapshot, FIELD) };
            let finding = Finding::new(ID, Severity::Warning, place, message);
            let finding = if server.value == STUB {
                finding.remedy(remedy::set(snapshot, FIELD, RESOLVED))
            } else {
                finding.say("set resolvConf to a file with the name servers that this host's own name server asks")
            };
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
