//! RS006: a state file of the CPU or the memory manager that was written under another policy, or with other CPUs.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::kubelet::gates;
use crate::kubelet::version::Minor;
use crate::rules::config::cpus;
use crate::rules::{Finding, Location, Report, Severity, Snapshot, settings};

pub(in crate::rules) fn other_policy(snapshot: &Snapshot, report: &mut Report) {
    report.findings.extend(snapshot.machine.beside.broken_states.iter().filter_map(|at| broken(snapshot, at)));
    for field in ["cpuManagerPolicy", "memoryManagerPolicy"] {
        let state = snapshot.machine.beside.states.get(field).zip(snapshot.settings.text(field));
        let Some((state, policy)) = state else { continue };
        let (file, Some(old)) = (&state.at.file, state.value["policyName"].as_str()) else { continue };
        let Some((severity, unless)) = if_it_stays(snapshot, file) else { continue };
        if policy == old {
            let message = other_cpus(snapshot, &state.value).map(|why| format!("{file} {why}{unless}"));
            report.findings.extend(message.map(|why| finding(snapshot, severity, state.at.clone(), file, why)));
            continue;
        }
        let message = format!(
            "{}, but {file} was written with policy {old}. The kubelet exits at its start with 'configured policy \
             \"{policy}\" differs from state checkpoint policy \"{old}\"'{unless}",
            settings::shown(snapshot, field)
        );
        let found = finding(snapshot, severity, settings::place(snapshot, field), file, message);
        report.add(found.step(state.at.clone(), format!("policyName is {old}")));
    }
}

/// The static CPU manager wants the machine's CPUs in its state, and those free that are reserved (`validateState`).
fn other_cpus(snapshot: &Snapshot, state: &Value) -> Option<String> {
    let settings = &snapshot.settings;
    let is_strict = settings.map("cpuManagerPolicyOptions").contains_key("strict-cpu-reservation");
    // Pods have entries of their own in newer forms of the file.
    let is_plain = ["podEntries", "data"].iter().all(|key| state.get(key).is_none());
    (state["policyName"] == "static" && !is_strict && is_plain).then_some(())?;
    let free = cpus(state["defaultCpuSet"].as_str()?).filter(|free| !free.is_empty())?;
    let pods = state["entries"].as_object();
    // The oldest form has containers in place of pods.
    pods.is_none_or(|pods| pods.values().all(Value::is_object)).then_some(())?;
    let containers = pods.into_iter().flat_map(Map::values).filter_map(Value::as_object);
    let taken = containers.flat_map(Map::values).filter_map(|set| cpus(set.as_str()?)).flatten();
    let all: BTreeSet<u32> = taken.chain(free.iter().copied()).collect();
    let online = snapshot.machine.kernel.cpus.as_deref().filter(|online| cpus(online).is_some_and(|cpus| cpus != all));
    let reserved =
        settings.text("reservedSystemCPUs").filter(|text| cpus(text).is_some_and(|set| !set.is_subset(&free)));
    let why = match (online, reserved) {
        (Some(online), _) => format!("has other CPUs than the machine, {online}"),
        (None, reserved) => format!("has containers on reserved CPUs, {}", reserved?),
    };
    Some(format!("{why}: the kubelet exits, because its state is invalid"))
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

/// Whether commands, joined by blanks, may remove a state file without its name: a pattern, a script, a directory.
fn may_remove_it(commands: &str) -> bool {
    const PACKAGED: [&str; 4] = ["/bin", "/sbin", "/usr/bin", "/usr/sbin"];
    let mut words = commands.split_whitespace().map(|word| word.trim_start_matches(['-', '+', '!', '@', ':']));
    commands.contains("_state")
        || words.any(|word| {
            let (directory, name) = word.rsplit_once('/').unwrap_or(("", word));
            word.starts_with('/') && !PACKAGED.contains(&directory) || name.ends_with("sh")
        })
}
