//! Whom the kubelet lets use its own API.

use super::{Finding, Launcher, Report, Severity, Snapshot, settings};

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

/// AU007.
pub(super) fn anonymous(snapshot: &Snapshot, report: &mut Report) {
    if !is_judged("AU007", ANONYMOUS, snapshot, report) || snapshot.settings.bool(ANONYMOUS) != Some(true) {
        return;
    }
    let cause = if settings::is_default(snapshot, ANONYMOUS) {
        settings::by_default(snapshot, ANONYMOUS, "--anonymous-auth")
    } else {
        "authentication.anonymous.enabled is true".to_owned()
    };
    let (severity, consequence) = if is_always_allow(snapshot) {
        (Severity::Error, "and AlwaysAllow lets them run commands in every container")
    } else {
        (Severity::Warning, "and get what the authorization grants to system:anonymous")
    };
    let message = format!("{cause}: requests without credentials reach the kubelet's API, {consequence}");
    let fix = settings::edit(snapshot, ANONYMOUS, "authentication.anonymous.enabled: false", "--anonymous-auth=false");
    let at = settings::place(snapshot, ANONYMOUS);
    report.add(Finding::new("AU007", severity, at, message).fix(fix));
}

/// AU008.
pub(super) fn always_allow(snapshot: &Snapshot, report: &mut Report) {
    if !is_judged("AU008", MODE, snapshot, report) || !is_always_allow(snapshot) {
        return;
    }
    let cause = if settings::is_default(snapshot, MODE) {
        let cause = settings::by_default(snapshot, MODE, "--authorization-mode");
        format!("{cause}: the mode is AlwaysAllow")
    } else {
        "authorization.mode is AlwaysAllow".to_owned()
    };
    let message = format!("{cause}: every client that the kubelet lets in may run commands in every container");
    let fix = settings::edit(
        snapshot,
        MODE,
        "authorization.mode: Webhook (and authentication.webhook.enabled: true)",
        "--authorization-mode=Webhook --authentication-token-webhook",
    );
    let at = settings::place(snapshot, MODE);
    report.add(Finding::new("AU008", Severity::Error, at, message).fix(fix));
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
    let cause = if settings::is_default(snapshot, READ_ONLY_PORT) {
        let cause = settings::by_default(snapshot, READ_ONLY_PORT, "--read-only-port");
        format!("{cause}: port {port} is open")
    } else {
        format!("readOnlyPort is {port}")
    };
    let message = format!("{cause} and serves pod specifications and metrics without authentication");
    let fix = settings::edit(snapshot, READ_ONLY_PORT, "readOnlyPort: 0", "--read-only-port=0");
    let at = settings::place(snapshot, READ_ONLY_PORT);
    report.add(Finding::new("AU009", Severity::Warning, at, message).fix(fix));
}
