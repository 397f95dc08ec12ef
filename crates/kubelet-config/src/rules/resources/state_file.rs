//! RS006: a state file of the CPU or the memory manager that was written under another policy.

use std::path::Path;

use crate::{
    kubelet::snapshot::Snapshot,
    rules::{Finding, Report, Severity, settings},
};

pub(super) fn other_policy(snapshot: &Snapshot, report: &mut Report) {
    if !super::is_judgeable(snapshot, report, "RS006") {
        return;
    }
    let unit = &snapshot.unit.name;
    let before_start = snapshot.unit.settings.get(&("Service".to_owned(), "ExecStartPre".to_owned()));
    for (field, default) in [("cpuManagerPolicy", "none"), ("memoryManagerPolicy", "None")] {
        let Some(state) = snapshot.machine.state_policies.get(field) else {
            continue;
        };
        let file = &state.at.file;
        let name = Path::new(&**file).file_name().unwrap_or_default().to_string_lossy();
        // OpenShift's unit removes the file before each start.
        let is_removed = before_start.is_some_and(|commands| commands.value.contains(&*name));
        let policy = snapshot.settings.text(field).unwrap_or(default);
        if is_removed || policy == state.value {
            continue;
        }
        let by_default = if settings::is_default(snapshot, field) { " (the default)" } else { "" };
        let message = format!(
            "{field} is {policy}{by_default}, but {file} was written with policy {old}. The kubelet exits at its start \
             ('configured policy \"{policy}\" differs from state checkpoint policy \"{old}\"').",
            old = state.value
        );
        let fix = format!("Drain the node, then systemctl stop {unit}; rm {file}; systemctl start {unit}");
        report.add(
            Finding::new("RS006", Severity::Fatal, settings::place(snapshot, field), message)
                .fix(fix)
                .step(state.at.clone(), format!("policyName is {}", state.value)),
        );
    }
}
