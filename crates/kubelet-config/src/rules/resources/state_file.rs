//! RS006: a state file of the CPU or the memory manager that was written under another policy.

use std::path::Path;

use crate::rules::{Finding, Report, Severity, Snapshot, settings};

pub(in crate::rules) fn other_policy(snapshot: &Snapshot, report: &mut Report) {
    let unit = &snapshot.unit.name;
    let commands = snapshot.unit.settings.get(&("Service".to_owned(), "ExecStartPre".to_owned()));
    let commands = commands.map(|commands| commands.value.as_str());
    for field in ["cpuManagerPolicy", "memoryManagerPolicy"] {
        let Some((state, policy)) =
            snapshot.machine.beside.state_policies.get(field).zip(snapshot.settings.text(field))
        else {
            continue;
        };
        let file = &state.at.file;
        let name = Path::new(&**file).file_name().unwrap_or_default().to_string_lossy();
        // OpenShift's unit removes the file before each start.
        let is_removed = commands.is_some_and(|commands| commands.contains(&*name));
        if is_removed || policy == state.value {
            continue;
        }
        let severity = if commands.is_some_and(may_remove_it) { Severity::Warning } else { Severity::Fatal };
        let unless = if severity == Severity::Warning { ", unless ExecStartPre= removes the file" } else { "" };
        let message = format!(
            "{}, but {file} was written with policy {old}. The kubelet exits at its start with 'configured policy \
             \"{policy}\" differs from state checkpoint policy \"{old}\"'{unless}",
            settings::shown(snapshot, field),
            old = state.value
        );
        let fix = format!("drain the node, then `systemctl stop {unit}; rm {file}; systemctl start {unit}`");
        report.add(
            Finding::new("RS006", severity, settings::place(snapshot, field), message)
                .say(fix)
                .step(state.at.clone(), format!("policyName is {}", state.value)),
        );
    }
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
