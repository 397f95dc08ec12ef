//! Whom the kubelet lets use its own API.

use super::{Finding, Launcher, Report, Severity, Snapshot, settings};
use crate::{edit::Change, kubelet::effective::From, rules::edit_value::edit_value};

const ANONYMOUS: &str = "authentication.anonymous.enabled";
const MODE: &str = "authorization.mode";
const READ_ONLY_PORT: &str = "readOnlyPort";

/// Whether a setting can be judged: it is known, the file that will say it is there, and it is not the distribution's
/// own business.
fn is_judged(id: &'static str, path: &str, snapshot: &Snapshot, report: &mut Report) -> bool {
    if !settings::are_known(snapshot) || snapshot.settings.get(path).is_none() {
        report.not_checked(id, settings::COMMAND);
        return false;
    }
    let is_default = settings::is_default(snapshot, path);
    if is_default && settings::are_to_come(snapshot) {
        report.not_checked(id, "the kubelet's configuration, which is still to be written");
        return false;
    }
    // Their kubelets get these flags from the program itself, in words that need not all be known.
    !(is_default && matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2))
}

fn is_always_allow(snapshot: &Snapshot) -> bool {
    snapshot.settings.text(MODE) == Some("AlwaysAllow")
}

/// With an edit of the value where a file or a flag sets it.
pub(super) fn edited(finding: Finding, snapshot: &Snapshot, path: &str, flag: &str, value: &str) -> Finding {
    match snapshot.settings.get(path).map(|setting| &setting.from) {
        Some(From::File(_)) => match snapshot.config.get(path) {
            Some(node) => finding.edit(&node.at, Change::Text(value.to_owned())),
            None => finding,
        },
        Some(From::Flag(_)) => match snapshot.flags.last(flag) {
            Some(used) => edit_value(finding, snapshot, used, 0..used.value.len(), value),
            None => finding,
        },
        _ => finding,
    }
}

/// What the value is, and where its default comes from if it is not set.
pub(super) fn cause(snapshot: &Snapshot, path: &str, flag: &str, value: &str) -> String {
    if !settings::is_default(snapshot, path) {
        return format!("{path} is {value}");
    }
    format!("{path} is {value} by default ({})", settings::by_default(snapshot, path, flag))
}

/// AU007.
pub(super) fn anonymous(snapshot: &Snapshot, report: &mut Report) {
    if !is_judged("AU007", ANONYMOUS, snapshot, report) || snapshot.settings.bool(ANONYMOUS) != Some(true) {
        return;
    }
    let (severity, consequence) = if is_always_allow(snapshot) {
        (
            Severity::Error,
            "With authorization.mode AlwaysAllow, any client may run commands in every container without credentials.",
        )
    } else {
        (Severity::Warning, "They may do whatever system:anonymous is authorized to do.")
    };
    let message = format!(
        "{}: the kubelet's API serves requests without credentials. {consequence}",
        cause(snapshot, ANONYMOUS, "--anonymous-auth", "true")
    );
    let fix = settings::edit(snapshot, ANONYMOUS, "authentication.anonymous.enabled: false", "--anonymous-auth=false");
    let finding = Finding::new("AU007", severity, settings::place(snapshot, ANONYMOUS), message).fix(fix);
    report.add(edited(finding, snapshot, ANONYMOUS, "anonymous-auth", "false"));
}

/// AU008.
pub(super) fn always_allow(snapshot: &Snapshot, report: &mut Report) {
    if !is_judged("AU008", MODE, snapshot, report) || !is_always_allow(snapshot) {
        return;
    }
    let message = format!(
        "{}: every client that the kubelet authenticates may run commands in every container.",
        cause(snapshot, MODE, "--authorization-mode", "AlwaysAllow")
    );
    // Webhook asks the API server, and refuses everybody who cannot be authenticated.
    let has_tokens = snapshot.settings.bool("authentication.webhook.enabled") == Some(true);
    let (field, flag) = if has_tokens {
        ("authorization.mode: Webhook", "--authorization-mode=Webhook")
    } else {
        (
            "authorization.mode: Webhook (and authentication.webhook.enabled: true)",
            "--authorization-mode=Webhook --authentication-token-webhook",
        )
    };
    let fix = settings::edit(snapshot, MODE, field, flag);
    let finding = Finding::new("AU008", Severity::Error, settings::place(snapshot, MODE), message).fix(fix);
    let is_ready = has_tokens && snapshot.settings.text("--kubeconfig").is_some();
    report.add(if is_ready { edited(finding, snapshot, MODE, "authorization-mode", "Webhook") } else { finding });
}

/// AU009.
pub(super) fn read_only_port(snapshot: &Snapshot, report: &mut Report) {
    if !is_judged("AU009", READ_ONLY_PORT, snapshot, report) {
        return;
    }
    let port = snapshot.settings.int(READ_ONLY_PORT).unwrap_or(0);
    if port == 0 {
        return;
    }
    let message = format!(
        "{}: on this port the kubelet serves pod specifications and metrics without authentication.",
        cause(snapshot, READ_ONLY_PORT, "--read-only-port", &port.to_string())
    );
    let fix = settings::edit(snapshot, READ_ONLY_PORT, "readOnlyPort: 0", "--read-only-port=0");
    let finding = Finding::new("AU009", Severity::Warning, settings::place(snapshot, READ_ONLY_PORT), message).fix(fix);
    report.add(edited(finding, snapshot, READ_ONLY_PORT, "read-only-port", "0"));
}
