//! CL007 and CL008: the name that the kubelet registers with.

use super::{external, given_provider_id};
use crate::kubelet::label;
use crate::kubelet::machine::{FileState, Kubeconfig};
use crate::kubelet::snapshot::CloudFacts;
use crate::rules::{Finding, FlagUse, Lifecycle, Location, Report, Severity, Snapshot, at, shortened};

/// The flag that gives the Node a name other than the host's.
fn hostname_override(snapshot: &Snapshot) -> Option<&FlagUse> {
    snapshot.flags.last("hostname-override").filter(|used| !used.value.is_empty())
}

/// The name that the kubelet registers with: what it is made of, and where that is.
pub(super) fn node_name(snapshot: &Snapshot) -> Option<(String, Location)> {
    if let Some(used) = hostname_override(snapshot) {
        let place = at::value_part(snapshot, used, 0, used.value.len());
        return Some((used.value.clone(), place));
    }
    let host = snapshot.machine.hostname.as_ref()?;
    Some((host.value.clone(), host.at.clone()))
}

/// The Node's name, for a command.
pub(super) fn node_argument(snapshot: &Snapshot) -> String {
    node_name(snapshot).map_or_else(|| "NODE".to_owned(), |(name, _)| name.trim().to_lowercase())
}

pub(in crate::rules) fn name_mismatch(snapshot: &Snapshot, report: &mut Report) {
    let Some((written, place)) = node_name(snapshot) else {
        report.not_checked("CL007", "the host's name");
        return;
    };
    let name = written.trim().to_lowercase();
    let built_in = hostname_override(snapshot).is_some_and(|used| at::is_built_in(snapshot, used.word));
    // CL008 has a name that is no name.
    if !built_in && !is_placeholder(&name) {
        certificate_is_anothers(snapshot, report, &name, &place);
        cloud_has_another(snapshot, report, &name, &place);
    }
}

fn certificate_is_anothers(snapshot: &Snapshot, report: &mut Report, name: &str, place: &Location) {
    let FileState::Present(Kubeconfig { certificate: Some(certificate), .. }) = &snapshot.machine.kubeconfig else {
        return;
    };
    let common_name = certificate.common_name.as_deref().unwrap_or_default();
    let Some(known) = common_name.strip_prefix("system:node:").filter(|known| *known != name) else { return };
    let file = &certificate.at;
    let message = format!(
        "the Node's name will be {name}, but the kubelet's client certificate is for {known}. The API server lets the \
         kubelet change only Node {known}, and refuses its requests for {name}"
    );
    let fix = format!(
        "if {known} is right, set it at {place}. If {name} is right, the kubelet needs a new certificate: remove {file} if \
         there is a bootstrap kubeconfig with a valid token. Otherwise, on a worker, run `kubeadm reset` and `kubeadm join`"
    );
    let finding = Finding::new("CL007", Severity::Error, place.clone(), message).say(fix);
    report.add(finding.step(file.clone(), format!("the certificate is for system:node:{known}")));
}

fn cloud_has_another(snapshot: &Snapshot, report: &mut Report, name: &str, place: &Location) {
    // A controller that has the providerID does not ask for the name.
    if external(snapshot).is_none() || given_provider_id(snapshot).is_some() {
        return;
    }
    let cloud = match &snapshot.cloud {
        Ok(cloud) => cloud,
        Err(lacks) => return report.not_checked("CL007", lacks),
    };
    let Some(known) = cloud.name.as_deref() else { return };
    if is_known_as(cloud, known, name) || is_known_as(cloud, cloud.instance_id.as_deref().unwrap_or_default(), name) {
        return;
    }
    // cloud-init asked for the name when it set the instance up: the server may have been renamed since.
    let severity = if cloud.at.is_some() { Severity::Warning } else { Severity::Error };
    let message = format!(
        "the Node's name will be {name}, but this machine's name in the cloud is {known}. The cloud controller finds no \
         server with the name {name} and may delete the Node"
    );
    let file = cloud.at.clone().map(|file| (file, format!("cloud-init has the name {known} from the cloud")));
    let finding = Finding::new("CL007", severity, place.clone(), message).steps(file);
    report.add(named(finding, snapshot, Some(known)).say(format!(
        "If the kubelet has registered as {name} already, also delete that Node and get the kubelet a new client \
         certificate"
    )));
}

/// With what to do to give the Node a name: `right`, where it is known.
fn named(finding: Finding, snapshot: &Snapshot, right: Option<&str>) -> Finding {
    match (hostname_override(snapshot), right) {
        // Afterwards the Node of the old name would have to be deleted, and a new certificate is needed.
        (Some(used), Some(right)) => finding
            .with(at::set_value(snapshot, used, right))
            .by_hand_if(snapshot.lifecycle != Lifecycle::BeforeFirstStart),
        _ => finding.say(format!(
            "before the kubelet starts for the first time, set the host's name with `hostnamectl set-hostname {0}`, or give \
             the kubelet --hostname-override={0}",
            right.unwrap_or("NAME")
        )),
    }
}

/// Whether a cloud that knows a machine as `known` finds the Node `name`. On AWS the domain may be one of the
/// operator's, which the metadata service and the API do not show alike.
fn is_known_as(cloud: &CloudFacts, known: &str, name: &str) -> bool {
    let is_aws = cloud.provider.as_deref() == Some("aws");
    let own = |text: &str| text.split('.').next().filter(|_| is_aws).unwrap_or(text).to_lowercase();
    own(known) == own(name)
}

/// Names that a host has before it got its own.
fn is_placeholder(name: &str) -> bool {
    matches!(name, "" | "localhost" | "localhost.localdomain" | "localhost4" | "localhost6" | "(none)")
}

pub(in crate::rules) fn name_bad(snapshot: &Snapshot, report: &mut Report) {
    let Some((written, place)) = node_name(snapshot) else {
        report.not_checked("CL008", "the host's name");
        return;
    };
    let trimmed = written.trim();
    let name = trimmed.to_lowercase();
    let shown = shortened(trimmed);
    let subject = if hostname_override(snapshot).is_some() { "--hostname-override" } else { "the host's name" };
    let (severity, message) = if name.is_empty() {
        (Severity::Fatal, format!("{subject} is empty, and the kubelet exits with 'empty hostname is invalid'"))
    } else if is_placeholder(&name) {
        let message = format!("hostname '{shown}' is a default; nodes that share it would claim the same Node object");
        (Severity::Error, message)
    } else if let Err(reason) = label::check_domain(&name) {
        (Severity::Error, format!("{subject} is '{shown}': the API server refuses the Node. A Node's name {reason}"))
    } else if name.len() > 63 {
        let message = format!(
            "{subject} is '{shown}' and has {} characters. The kubelet writes it into the label kubernetes.io/hostname, \
             which takes 63, and the API server refuses the Node",
            name.len()
        );
        (Severity::Error, message)
    } else if name != trimmed {
        let message = format!(
            "{subject} is '{shown}', but the kubelet names the Node '{name}', in lower case. A cloud controller that \
             searches for '{shown}' does not find the Node"
        );
        (if external(snapshot).is_some() { Severity::Warning } else { Severity::Info }, message)
    } else {
        return;
    };
    let not_yet = snapshot.lifecycle == Lifecycle::BeforeFirstStart && place.file.as_ref() == "/etc/hostname";
    let severity = if not_yet { severity.min(Severity::Warning) } else { severity };
    let of_cloud = snapshot.cloud.as_ref().ok().and_then(|cloud| cloud.name.as_deref());
    let right = if label::check_domain(&name).is_ok() && !is_placeholder(&name) { Some(&*name) } else { of_cloud };
    let right = right.filter(|right| right.len() <= 63);
    report.add(named(Finding::new("CL008", severity, place, message), snapshot, right));
}
