//! Units that systemd cannot start, and files of root's that others can change.

use std::collections::BTreeSet;

use super::lost::Arrived;
use super::syntax::is_bad_command;
use super::{Finding, Launcher, Lifecycle, Location, Report, Severity, Snapshot, shortened};
use crate::kubelet::gates;
use crate::kubelet::machine::{self, TrustedFile};
use crate::kubelet::systemd::{EventKind, LoadState};
use crate::step::unit_name;

pub(super) fn bad_setting(snapshot: &Snapshot, report: &mut Report) {
    let unit = &snapshot.unit;
    let (at, reason, state) = match &unit.load {
        LoadState::BadSetting { at, reason } => (at, reason, "bad-setting"),
        LoadState::Error { at, reason } => (at, reason, "error"),
        LoadState::Loaded | LoadState::NotFound | LoadState::Masked { .. } => {
            old_command_stays(snapshot, report);
            return;
        }
    };
    let message =
        format!("systemd cannot start {} (state '{state}'): {}", unit.name, reason.trim_end_matches(". Refusing."));
    let fix = "correct what is wrong (a new `ExecStart=` needs an empty `ExecStart=` above it)";
    let other = unit.exec.iter().filter(|exec| exec.at != *at);
    let finding = Finding::new("SD008", Severity::Fatal, at.clone(), message).say_at(at, fix);
    report.add(finding.steps(other.map(|exec| (exec.at.clone(), "another `ExecStart=`"))));
}

/// A bad `ExecStart=` in a drop-in ends the reading of the drop-in.
fn old_command_stays(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let events = &snapshot.unit.events;
    for (index, event) in events.iter().enumerate() {
        let EventKind::RestOfFileLost { reason } = &event.kind else { continue };
        if !is_bad_command(events, index) {
            continue;
        }
        let message = format!(
            "systemd stops reading the drop-in at this line, because {reason}. It starts the older `ExecStart=` and \
             ignores the rest of the file"
        );
        let exec = snapshot.unit.exec.as_ref();
        let finding = Finding::new("SD008", Severity::Error, event.at.clone(), message)
            .lost(arrived.lost(&event.text))
            .say_at(&event.at, "correct the line (a literal percent sign is `%%`)")
            .steps(exec.map(|exec| (exec.at.clone(), "this command is started instead")));
        report.add(finding);
    }
}

pub(super) fn missing_or_masked(snapshot: &Snapshot, report: &mut Report) {
    let unit = &snapshot.unit;
    match &unit.load {
        LoadState::NotFound => {
            let at = Location::file(format!("/etc/systemd/system/{}", unit.name));
            let message = format!("systemd finds no unit {} in its search path", unit.name);
            let fix = "install the package that contains the unit, or name another unit with --unit";
            report.add(Finding::new("SD019", Severity::Fatal, at, message).say(fix));
        }
        LoadState::Masked { by } => {
            // systemctl looks for masks in these alone.
            let is_removable = ["/etc/", "/run/"].iter().any(|directory| by.file.starts_with(directory));
            let fix = if is_removable {
                format!("run `systemctl unmask {0} && systemctl enable --now {0}`", unit_name(snapshot))
            } else {
                format!("delete {}, or reinstall the package", by.file)
            };
            let message = format!("{} is masked by {}: systemd does not start it", unit.name, by.file);
            report.add(Finding::new("SD019", Severity::Fatal, by.clone(), message).say(fix));
        }
        _ => {}
    }
    for absent in &snapshot.machine.beside.absent {
        let ((key, path), at) = (&absent.value, &absent.at);
        // What sets the node up may still install it.
        let is_before = snapshot.lifecycle == Lifecycle::BeforeFirstStart;
        let severity = if is_before { Severity::Info } else { Severity::Fatal };
        let without = if is_before { "without it " } else { "" };
        let message = format!("{key}= names {path}, which does not exist: {without}systemd cannot start {}", unit.name);
        let finding = Finding::new("SD019", severity, at.clone(), message);
        let or = if path.starts_with('/') { "correct the path" } else { "delete its name" };
        report.add(finding.say_at(at, format!("install {path}, or {or}")));
    }
    let disabled = snapshot.observed.loaded.as_ref().is_some_and(|loaded| loaded.unit_file_state == "disabled");
    if disabled && snapshot.lifecycle == Lifecycle::Running {
        let at = unit.fragment.as_deref().map_or_else(|| Location::file(&unit.name), Location::file);
        let message = format!("{} is disabled: the kubelet does not start at the next boot", unit.name);
        let fix = format!("run `systemctl enable {}`", unit_name(snapshot));
        report.add(Finding::new("SD019", Severity::Warning, at, message).say(fix));
    }
}

/// systemd kills a service that does not notify it in the time of `WatchdogSec=`, of whatever `Type=`: systemd.service(5).
pub(super) fn watchdog(snapshot: &Snapshot, report: &mut Report) {
    let set = snapshot.unit.settings.get(&("Service".to_owned(), "WatchdogSec".to_owned()));
    let Some(set) = set.filter(|_| snapshot.command.launcher == Launcher::Direct) else { return };
    let notifies = gates::is_on("SystemdWatchdog", &snapshot.settings, snapshot.version.as_ref());
    let (why, right) = match (machine::time_span(&set.value).map(|span| span.as_micros()), notifies) {
        (Some(1..), Some(false)) => (
            "this kubelet does not notify systemd, which kills it after that time: kubelets do since 1.32, unless the feature \
             gate SystemdWatchdog is off",
            "0",
        ),
        (Some(1..=1_000_000), Some(true)) => ("with 1 second or less the kubelet exits", "30s"),
        _ => return,
    };
    let message = format!("WatchdogSec= is {}, and {why}", shortened(&set.value));
    let finding = Finding::new("SD030", Severity::Fatal, set.at.clone(), message);
    report.add(finding.say_at(&set.at, format!("write `WatchdogSec={right}`")));
}

pub(super) fn permissions(snapshot: &Snapshot, report: &mut Report) {
    let files = &snapshot.machine.trusted_files;
    let owners: BTreeSet<u32> = files.iter().map(|file| file.uid).collect();
    // A tree that some user unpacked belongs to that user as a whole: nothing to be learned from it.
    let unpacked = owners.len() == 1 && !owners.contains(&0);
    if unpacked {
        report.not_checked("SD026", "the owners: all files belong to one user, as in a tree that was unpacked");
    }
    for file in files {
        let who = |everyones: u32| if file.mode & everyones != 0 { "everyone" } else { "its group" };
        let (severity, what) = if file.mode & 0o022 != 0 {
            (Severity::Error, format!("{} can change what root runs", who(0o002)))
        } else if file.uid != 0 && !unpacked {
            (Severity::Warning, format!("user {} can change what root runs", file.uid))
        } else if file.secret && file.mode & 0o044 != 0 {
            (Severity::Warning, format!("{} can read the node's credentials", who(0o004)))
        } else {
            continue;
        };
        let TrustedFile { at, mode, uid, gid, .. } = file;
        let (path, mode) = (&at.file, mode & 0o7777);
        let expected = if file.secret { "0600" } else { "0644" };
        let message = format!(
            "{path} has mode {mode:04o} and belongs to {uid}:{gid}, so that {what}. Mode {expected} and root:root are expected"
        );
        let fix = format!("run `chown root:root {path} && chmod {expected} {path}`");
        report.add(Finding::new("SD026", severity, at.clone(), message).say(fix));
    }
}

#[cfg(test)]
mod tests;
