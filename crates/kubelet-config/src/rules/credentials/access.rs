//! Whom the kubelet lets use its own API.

use super::{Finding, Launcher, Report, Severity, Snapshot, is_snap_without_flags, settings};
use crate::rules::remedy;

const ANONYMOUS: &str = "authentication.anonymous.enabled";
const MODE: &str = "authorization.mode";
const READ_ONLY_PORT: &str = "readOnlyPort";

/// Whether the distribution sets this in words that need not be known, or its file of flags is empty, as AU011 tells.
fn is_others(snapshot: &Snapshot, path: &str) -> bool {
    settings::is_default(snapshot, path) && (settings::are_managed(snapshot) || is_snap_without_flags(snapshot))
}

fn is_always_allow(snapshot: &Snapshot) -> bool {
    snapshot.settings.text(MODE) == Some("AlwaysAllow")
}

/// Whether the kubelet has the API server check tokens.
fn has_tokens(snapshot: &Snapshot) -> bool {
    snapshot.settings.bool("authentication.webhook.enabled") == Some(true)
}

pub(in crate::rules) fn anonymous(snapshot: &Snapshot, report: &mut Report) {
    if is_others(snapshot, ANONYMOUS) || snapshot.settings.bool(ANONYMOUS) != Some(true) {
        return;
    }
    let (severity, consequence) = if is_always_allow(snapshot) {
        (Severity::Error, "Because authorization.mode is AlwaysAllow, any client may run commands in every container")
    } else {
        (Severity::Warning, "Such a request may do what the user system:anonymous is authorized to do")
    };
    let message = format!(
        "{}: the kubelet's API serves requests without credentials. {consequence}",
        settings::shown(snapshot, ANONYMOUS)
    );
    let finding = Finding::new("AU007", severity, settings::place(snapshot, ANONYMOUS), message);
    let mut finding = finding.remedy(remedy::set(snapshot, ANONYMOUS, "false"));
    let has_authority = snapshot.settings.text("authentication.x509.clientCAFile").is_some_and(|ca| !ca.is_empty());
    if !has_authority && !has_tokens(snapshot) {
        finding = finding
            .by_hand_if(true)
            .say("First set authentication.x509.clientCAFile: without it the API server cannot authenticate either");
    }
    report.add(finding);
}

pub(in crate::rules) fn always_allow(snapshot: &Snapshot, report: &mut Report) {
    if is_others(snapshot, MODE) || !is_always_allow(snapshot) {
        return;
    }
    let message = format!(
        "{}: every client that the kubelet authenticates may run commands in every container",
        settings::shown(snapshot, MODE)
    );
    // MicroK8s is shipped like that, and a kubelet that is to be standalone has no choice.
    let is_shipped = snapshot.command.launcher == Launcher::MicroK8s && settings::is_default(snapshot, MODE);
    let severity = if is_shipped || settings::is_standalone(snapshot) { Severity::Warning } else { Severity::Error };
    let finding = Finding::new("AU008", severity, settings::place(snapshot, MODE), message);
    if snapshot.settings.text("--kubeconfig").is_none() {
        // With Webhook a kubelet that cannot ask an API server exits.
        return report.add(finding.say("first add --kubeconfig: with Webhook and no API server the kubelet exits"));
    }
    let mut finding = finding.remedy(remedy::set(snapshot, MODE, "Webhook"));
    // Webhook asks the API server, and refuses everybody who cannot be authenticated.
    if !has_tokens(snapshot) {
        let name = settings::name(snapshot, "authentication.webhook.enabled", MODE);
        finding = finding.by_hand_if(true).say(format!("Before the restart also set {name} to true"));
    }
    report.add(finding);
}

pub(in crate::rules) fn read_only_port(snapshot: &Snapshot, report: &mut Report) {
    if is_others(snapshot, READ_ONLY_PORT) || snapshot.settings.int(READ_ONLY_PORT).unwrap_or(0) == 0 {
        return;
    }
    let message = format!(
        "{}: on this port the kubelet serves pod specifications and metrics without authentication",
        settings::shown(snapshot, READ_ONLY_PORT)
    );
    let finding = Finding::new("AU009", Severity::Warning, settings::place(snapshot, READ_ONLY_PORT), message);
    report.add(finding.remedy(remedy::set(snapshot, READ_ONLY_PORT, "0")));
}
