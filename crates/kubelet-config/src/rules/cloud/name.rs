//! CL007 and CL008: the name that the kubelet registers with.

use super::{external, provider_id::given_provider_id};
use crate::{
    kubelet::{
        label,
        location::Location,
        machine::FileState,
        snapshot::{Lifecycle, Snapshot},
    },
    rules::{Finding, Report, Severity, at},
};

/// The name that the kubelet registers with: what it is made of, and where that stands.
pub(super) fn node_name(snapshot: &Snapshot) -> Option<(String, Location)> {
    let overridden = snapshot.flags.last("hostname-override");
    if let Some(used) = overridden.filter(|used| !used.value.is_empty()) {
        let place = at::value_part(snapshot, used, 0, used.value.len());
        return Some((used.value.clone(), place));
    }
    let host = snapshot.machine.hostname.as_ref()?;
    Some((host.value.clone(), host.at.clone()))
}

pub(super) fn name_mismatch(snapshot: &Snapshot, report: &mut Report) {
    let Some((written, place)) = node_name(snapshot) else {
        report.not_checked("CL007", "the host's name");
        return;
    };
    let name = written.trim().to_lowercase();
    let used = snapshot.flags.last("hostname-override");
    let built_in = used.is_some_and(|used| at::is_built_in(snapshot, used.word));
    // CL008 has a name that is no name.
    if !built_in && !is_placeholder(&name) {
        certificate_is_anothers(snapshot, report, &name, &place);
        cloud_has_another(snapshot, report, &name, &place);
    }
}

fn certificate_is_anothers(snapshot: &Snapshot, report: &mut Report, name: &str, place: &Location) {
    let FileState::Present(kubeconfig) = &snapshot.machine.kubeconfig else {
        return;
    };
    let Some(certificate) = &kubeconfig.certificate else {
        return;
    };
    let common_name = certificate.common_name.as_deref().unwrap_or_default();
    let Some(known) = common_name.strip_prefix("system:node:") else {
        return;
    };
    if known == name {
        return;
    }
    let file = &certificate.at;
    report.add(
        Finding::new(
            "CL007",
            Severity::Error,
            place.clone(),
            format!(
                "the node would register as {name}; its client certificate is for {known}: the API server refuses what \
                 it says of another Node"
            ),
        )
        .step(file.clone(), format!("the certificate's name is system:node:{known}"))
        .fix(format!("set the name {known} at {place}, or remove {file} so that the kubelet bootstraps anew")),
    );
}

fn cloud_has_another(snapshot: &Snapshot, report: &mut Report, name: &str, place: &Location) {
    // A controller that has the providerID does not ask for the name.
    if external(snapshot).is_none() || given_provider_id(snapshot).is_some() {
        return;
    }
    let Some(cloud) = &snapshot.cloud else {
        report.not_checked("CL007", "the name that the cloud knows this machine by");
        return;
    };
    let Some(known) = cloud.name.as_deref() else {
        return;
    };
    let is_instance = cloud.instance_id.as_deref() == Some(name);
    if known.eq_ignore_ascii_case(name) || is_instance {
        return;
    }
    report.add(
        Finding::new(
            "CL007",
            Severity::Error,
            place.clone(),
            format!(
                "the node would register as {name}; the cloud knows the machine as {known}: the cloud controller will \
                 not find it and may delete the Node"
            ),
        )
        .fix(format!("--hostname-override={known}, or set the host's name before the kubelet starts")),
    );
}

/// Names that a host has before it got its own.
fn is_placeholder(name: &str) -> bool {
    matches!(name, "" | "localhost" | "localhost.localdomain" | "localhost4" | "localhost6" | "(none)")
}

pub(super) fn name_bad(snapshot: &Snapshot, report: &mut Report) {
    let Some((written, place)) = node_name(snapshot) else {
        report.not_checked("CL008", "the host's name");
        return;
    };
    let trimmed = written.trim();
    let name = trimmed.to_lowercase();
    let shown: String = trimmed.chars().take(80).collect();
    let not_yet = snapshot.lifecycle == Lifecycle::BeforeFirstStart && place.file.as_ref() == "/etc/hostname";
    let (severity, message) = if name.is_empty() {
        (Severity::Fatal, "the host's name is empty: the kubelet exits with 'empty hostname is invalid'".to_owned())
    } else if is_placeholder(&name) {
        (
            Severity::Error,
            format!("the host's name is '{shown}': every host that was not given a name has it, and one Node only can"),
        )
    } else if let Err(reason) = label::check_domain(&name) {
        (Severity::Error, format!("the node's name '{shown}' {reason}: the API server refuses the Node"))
    } else if name.len() > 63 {
        (
            Severity::Error,
            format!(
                "the node's name '{shown}…' has {} characters: the label kubernetes.io/hostname takes 63, and the API \
                 server refuses the Node",
                name.len()
            ),
        )
    } else if name != trimmed {
        (
            Severity::Warning,
            format!(
                "the host's name is '{shown}', the Node's will be '{name}': who looks for it by name may not find it"
            ),
        )
    } else {
        return;
    };
    let severity = if not_yet { severity.min(Severity::Warning) } else { severity };
    report.add(Finding::new("CL008", severity, place.clone(), message).fix(format!(
        "hostnamectl set-hostname NAME before the kubelet starts, or --hostname-override=NAME (now: {place})"
    )));
}
