//! RS006: a state file of the CPU or the memory manager that was written under another policy.

use std::path::Path;

use crate::kubelet::gates;
use crate::kubelet::version::Minor;
use crate::rules::{Finding, Location, Report, Severity, Snapshot, settings};

pub(in crate::rules) fn other_policy(snapshot: &Snapshot, report: &mut Report) {
    report.findings.extend(snapshot.machine.beside.broken_states.iter().filter_map(|at| broken(snapshot, at)));
    for field in ["cpuManagerPolicy", "memoryManagerPolicy"] {
        let Some((state, policy)) =
            snapshot.machine.beside.state_policies.get(field).zip(snapshot.settings.text(field))
        else {
            continue;
        };
        let file = &state.at.file;
        let Some((severity, unless)) = if_it_stays(snapshot, file).filter(|_| policy != state.value) else { continue };
        let message = format!(
            "{}, but {file} was written with policy {old}. The kubelet exits at its start with 'configured policy \
             \"{policy}\" differs from state checkpoint policy \"{old}\"'{unless}",
            settings::shown(snapshot, field),
            old = state.value
        );
        let found = finding(snapshot, severity, settings::place(snapshot, field), file, message);
        report.add(found.step(state.at.clone(), format!("policyName is {}", state.value)));
    }
}

fn finding(snapshot: &Snapshot, severity: Severity, at: Location, file: &str, message: String) -> Finding {
    let unit = &snapshot.unit.name;
    let fix = format!("drain the node, then `systemctl stop {unit}; rm {file}; systemctl start {unit}`");
    Finding::new("RS006", severity, at, message).say(fix)
}

/// How bad a state file is, and the exception; nothing if a command before each start removes it, as `OpenShift`'s does.
fn if_it_stays(snapshot: &Snapshot, file: &str) -> Option<(Severity, &'static str)> {
    let commands = snapshot.unit.settings.get(&("Service".to_owned(), "ExecStartPre".to_owned()));
    let commands = commands.map_or("", |commands| commands.value.as_str());
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    (!commands.contains(&*name)).then_some(())?;
    let may_go = may_remove_it(commands);
    Some(if may_go { (Severity::Warning, ", unless ExecStartPre= removes the file") } else { (Severity::Fatal, "") })
}

/// A file that a crash has cut off.
fn broken(snapshot: &Snapshot, at: &Location) -> Option<Finding> {
    let (severity, unless) = if_it_stays(snapshot, &at.file)?;
    let severity = match is_read(snapshot, &at.file) {
        Some(true) => severity,
        Some(false) => return None,
        None => Severity::Warning,
    };
    let message =
        format!("{} is not whole JSON: the kubelet exits, because it cannot restore its state{unless}", at.file);
    Some(finding(snapshot, severity, at.clone(), &at.file, message))
}

/// Whether the kubelet reads the state file; `None` where its release or a feature gate is not known.
fn is_read(snapshot: &Snapshot, file: &str) -> Option<bool> {
    let gate = match Path::new(file).file_name()?.to_str()? {
        "dra_manager_state" => "DynamicResourceAllocation",
        "allocated_pods_state" | "actuated_pods_state" => "InPlacePodVerticalScaling",
        _ => return Some(true),
    };
    let version = snapshot.version.as_ref();
    if version.is_some_and(|version| version.minor < Minor(33)) {
        return Some(false);
    }
    gates::is_on(gate, &snapshot.settings, version)
}

/// Whether commands may remove a state file without its name: by a pattern, in a script, or in a directory that they name.
/// They are joined by blanks.
fn may_remove_it(commands: &str) -> bool {
    const PACKAGED: [&str; 4] = ["/bin", "/sbin", "/usr/bin", "/usr/sbin"];
    let mut words = commands.split_whitespace().map(|word| word.trim_start_matches(['-', '+', '!', '@', ':']));
    commands.contains("_state")
        || words.any(|word| {
            let (directory, name) = word.rsplit_once('/').unwrap_or(("", word));
            word.starts_with('/') && !PACKAGED.contains(&directory) || name.ends_with("sh")
        })
}
