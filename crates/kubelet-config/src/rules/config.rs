//! CF: the configuration file and its drop-ins.

pub(super) mod dir;
pub(super) mod edits;
mod limits;
mod pairs;
mod values;

pub(super) use self::values::cpus;
use super::lost::as_written;
use super::settings;
use super::{Finding, Launcher, Lifecycle, Location, Report, Severity, Snapshot, Step, at};
use crate::kubelet::config::{ConfigFile, ConfigFileState, KIND, UnknownField, fields};
use crate::kubelet::machine::FileState;

pub(super) fn unreadable(snapshot: &Snapshot, report: &mut Report) {
    for file in &snapshot.config.files {
        if file.state == ConfigFileState::Missing && !file.drop_in {
            // Of a path with a shell's variable FL004 tells.
            if as_written(snapshot, file.at.file.trim_start_matches('/')).is_none() {
                report.add(missing(snapshot, file));
            }
        } else if !(file.drop_in && file.lacks_kind()) {
            report.findings.extend(bad(snapshot, file, "CF001"));
        }
    }
}

pub(super) fn bad_kind(snapshot: &Snapshot, report: &mut Report) {
    let files = snapshot.config.files.iter().filter(|file| file.drop_in && file.lacks_kind());
    report.findings.extend(files.filter_map(|file| bad(snapshot, file, "CF005")));
}

pub(super) fn invalid(snapshot: &Snapshot, report: &mut Report) {
    report.findings.extend(limits::out_of_ranges(snapshot));
    report.findings.extend(values::wrong_values(snapshot));
    pairs::contradictions(snapshot, report);
}

fn bad(snapshot: &Snapshot, file: &ConfigFile, rule: &'static str) -> Option<Finding> {
    let ConfigFileState::Bad { at, reason, right } = &file.state else { return None };
    let message = format!("the kubelet cannot load {} and exits: {reason}", file.at);
    let finding = Finding::new(rule, Severity::Fatal, at.clone(), message).step(file.declared.clone(), "names it");
    Some(match right {
        Some(right) => finding.with(Step::write(Some(at.clone()), at, "", right)),
        None if file.lacks_kind() => finding.remedy(add_kind(snapshot, file)),
        None => finding.say_at(at, "correct what is"),
    })
}

/// The kubeconfig of a node that `kubeadm join` has set up.
const KUBEADMS: &str = "/etc/kubernetes/kubelet.conf";

fn missing(snapshot: &Snapshot, file: &ConfigFile) -> Finding {
    let (file, at) = (&file.at, file.declared.clone());
    // What one gives k3s or a snap nothing writes later; of kubeadm's two files both are there after the join.
    let is_own = snapshot.command.launcher != Launcher::Direct;
    let has_joined = matches!(&snapshot.machine.kubeconfig, FileState::Present(found) if &*found.at.file == KUBEADMS);
    if snapshot.lifecycle == Lifecycle::BeforeFirstStart && !has_joined && !is_own {
        let message = format!(
            "{file} does not exist yet: the kubelet exits until kubeadm join (or the installer) has written it"
        );
        return Finding::new("CF001", Severity::Info, at, message)
            .say("nothing, if kubeadm join or the installer is still to run");
    }
    let join = if &*file.file == "/var/lib/kubelet/config.yaml" { "run kubeadm join, which writes" } else { "write" };
    let fix = format!("{join} {file}, or correct the path at {at}");
    let message = format!("--config names {file}, which does not exist: the kubelet exits");
    Finding::new("CF001", Severity::Fatal, at, message).say(fix)
}

/// Adds `kind` and `apiVersion`, as far as they are missing.
fn add_kind(snapshot: &Snapshot, file: &ConfigFile) -> Vec<Step> {
    match file.document.as_ref().and_then(|document| Some(&document.entries().first()?.at)) {
        Some(first) => file.missing_kind().map(|(key, value)| edits::addition(snapshot, first, key, value)).collect(),
        None => vec![Step::say_at(&file.at, KIND.map(|(key, value)| format!("write `{key}: {value}`")).join(" and "))],
    }
}

pub(super) fn unknown_field(snapshot: &Snapshot, report: &mut Report) {
    for field in &snapshot.config.unknown {
        report.add(match (&field.below, field.meant) {
            _ if field.duplicate => twice(field),
            _ if field.since.is_some() => too_new(snapshot, field),
            (Some(above), _) => not_indented(snapshot, field, above),
            (None, Some(flag)) if flag.starts_with("--") => only_a_flag(snapshot, field, flag),
            _ => unknown(snapshot, field),
        });
    }
    for file in &snapshot.config.files {
        let Some(at) = &file.second_document else { continue };
        let message = "a second YAML document begins here. The kubelet reads the first one alone, and logs nothing";
        let fix = "delete what follows, or the line `---`";
        report.add(Finding::new("CF002", Severity::Warning, at.clone(), message).say_at(at, fix));
    }
}

fn not_indented(snapshot: &Snapshot, field: &UnknownField, above: &Location) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let message = format!(
        "{path} is not indented, so that it is no part of the field above it at {above}. {}",
        ignores(snapshot, at)
    );
    let fix = format!("so that it belongs to {above}, indent the line");
    Finding::new("CF002", Severity::Warning, at.clone(), message).say_at(at, fix)
}

fn only_a_flag(snapshot: &Snapshot, field: &UnknownField, flag: &str) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let message = format!("the kubelet has no field {path}: there is only the flag {flag}. {}", ignores(snapshot, at));
    let command = settings::command(snapshot);
    let fix = format!("give the kubelet {flag}=VALUE in its command ({command}), and delete {path}");
    Finding::new("CF002", Severity::Warning, at.clone(), message).say_at(at, fix)
}

fn twice(field: &UnknownField) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let message = format!("{path} is written twice in one map: the kubelet takes the last one and logs a warning");
    let fix = format!("delete the other line, or {path}");
    Finding::new("CF002", Severity::Warning, at.clone(), message).say_at(at, fix)
}

fn unknown(snapshot: &Snapshot, field: &UnknownField) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let ignores = ignores(snapshot, at);
    let Some(meant) = field.meant else {
        let message = format!("the kubelet has no field {path}. {ignores}");
        let fix = format!("correct the name by the reference of KubeletConfiguration, or delete {path}");
        return Finding::new("CF002", Severity::Warning, at.clone(), message).say_at(at, fix);
    };
    let is_default = settings::is_default(snapshot, meant);
    let result = snapshot.settings.get(meant).map(|_| match settings::shown(snapshot, meant) {
        shown if is_default => format!(", so {shown}"),
        shown => format!(". {meant} is set elsewhere and{}", shown.trim_start_matches(meant)),
    });
    let (why, result) = (why(path, meant), result.unwrap_or_default());
    let message = format!("the kubelet has no field {path}{why}. {ignores}{result}");
    if !is_default {
        let finding = Finding::new("CF002", Severity::Warning, at.clone(), message);
        return finding.remedy(edits::deletion(snapshot, at, path));
    }
    let top = meant.split('.').next().unwrap_or(meant);
    let is_essential = fields::find(top).is_some_and(|field| field.is_essential);
    let severity = if is_essential { Severity::Error } else { Severity::Warning };
    let expires = if meant == "rotateCertificates" { ". The client certificate will expire" } else { "" };
    let (parent, name) = meant.rsplit_once('.').unwrap_or(("", meant));
    let (own_parent, own_name) = path.rsplit_once('.').unwrap_or(("", path));
    let is_sibling = own_parent == parent;
    let step = if is_sibling {
        edits::renaming(snapshot, at, own_name, name)
    } else {
        Step::say_at(at, format!("set {meant} in place of {path}"))
    };
    Finding::new("CF002", severity, at.clone(), format!("{message}{expires}. Did you mean {meant}?")).with(step)
}

/// What the kubelet does with an unknown field of that file.
fn ignores(snapshot: &Snapshot, at: &Location) -> &'static str {
    let files = &snapshot.config.files;
    if files.iter().any(|file| file.drop_in && file.at.file == at.file) {
        "It ignores the field and logs nothing"
    } else {
        "It logs a warning and ignores the field"
    }
}

fn why(path: &str, meant: &str) -> &'static str {
    let name = path.rsplit('.').next().unwrap_or(path);
    if path.eq_ignore_ascii_case(meant) {
        " (names are case-sensitive)"
    } else if name.contains('-') {
        " (it is a flag's name)"
    } else {
        ""
    }
}

fn too_new(snapshot: &Snapshot, field: &UnknownField) -> Finding {
    let (path, at) = (&field.path, &field.at);
    let since = field.since.map_or_else(String::new, |since| since.to_string());
    let version = snapshot.version.as_ref().map_or_else(String::new, |version| format!(" ({version})"));
    let message = format!("{path} exists since {since}: this kubelet{version} ignores it");
    let finding = Finding::new("CF002", Severity::Warning, at.clone(), message);
    finding.remedy(edits::deletion(snapshot, at, path)).say(format!("or upgrade the kubelet to {since}"))
}

/// Whether the files are k3s's or RKE2's own, which they write at each start.
pub(super) fn are_written_by_distribution(snapshot: &Snapshot, at: &Location) -> bool {
    matches!(snapshot.command.launcher, Launcher::K3s | Launcher::Rke2) && at.file.starts_with("/var/lib/rancher/")
}

#[cfg(test)]
mod tests;
