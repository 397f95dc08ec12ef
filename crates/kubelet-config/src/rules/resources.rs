//! RS: what is reserved for the host, and when pods are evicted.

pub(super) mod map_replaced;
pub(super) mod state_file;

use super::config::are_written_by_distribution;
use super::{Finding, From, Location, Remedy, Report, Severity, Snapshot, Step, layers, remedy, settings};
use crate::kubelet::config::document::Node;
use crate::kubelet::quantity::{self, Quantity};

const HARD: &str = "evictionHard";
const MEMORY: &str = "memory.available";

/// The thresholds without which a node fills up, with their defaults.
const NEEDED: [(&str, &str); 2] = [(MEMORY, "100Mi"), ("nodefs.available", "10%")];

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

/// Below this a machine feels it.
const SMALL_GIB: f64 = 8.0;

/// The machine's memory in bytes.
#[expect(clippy::cast_precision_loss, reason = "a byte more or less does not matter")]
fn memory_bytes(snapshot: &Snapshot) -> Option<f64> {
    snapshot.machine.kernel.memory_bytes.as_ref().map(|found| found.value as f64)
}

pub(super) fn reserved_absent(snapshot: &Snapshot, report: &mut Report) {
    let reserves = |path: &str| {
        let amount = snapshot.settings.map(path).get("memory").and_then(|text| quantity::parse(text));
        amount.is_some_and(|amount| amount.value() > 0)
    };
    if reserves("kubeReserved") || reserves("systemReserved") {
        return;
    }
    let Some(bytes) = memory_bytes(snapshot) else { return report.not_checked("RS001", "the machine's memory") };
    let gib = bytes / GIB;
    if gib >= SMALL_GIB {
        return;
    }
    let new_argument = snapshot.command.new_argument.as_ref().map(|new| Location::file(&*new.at.file));
    let place =
        settings::config_file(snapshot).cloned().or(new_argument).unwrap_or_else(|| settings::command(snapshot));
    let message = format!(
        "neither kubeReserved nor systemReserved reserves memory (both are empty by default). Pods may use all {gib:.1} GiB of memory except \
         the eviction threshold, and then the kubelet and the runtime run out of memory"
    );
    let finding = Finding::new("RS001", Severity::Warning, place, message);
    let has_place = !settings::is_default(snapshot, "systemReserved")
        || settings::config_file(snapshot).is_some() && !settings::are_managed(snapshot);
    let remedy = if has_place {
        add_pairs(snapshot, "systemReserved", &[("memory", "500Mi")]).into()
    } else {
        remedy::set(snapshot, "systemReserved", "memory=500Mi")
    };
    // No edit: with less memory for pods a kubelet may refuse at its restart those that run, and where system-reserved
    // is enforced, the system's own programs get no more than this.
    report.add(finding.remedy(remedy).by_hand_if(true));
}

/// Gives the kubelet of k3s or RKE2 this argument. No edit: it may evict pods of a working node.
fn with_argument(snapshot: &Snapshot, argument: &str) -> Remedy {
    Remedy { steps: vec![layers::with_argument(snapshot, argument)], by_hand: true }
}

/// Adds pairs to a map, in its flag's value or in the configuration file.
fn add_pairs(snapshot: &Snapshot, path: &str, pairs: &[(&str, &str)]) -> Step {
    let by_flag = matches!(settings::from(snapshot, path), Some(From::Flag(_)));
    let (sign, comma) = if by_flag { (sign(path), ",") } else { (": ", " and ") };
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}{sign}{value}")).collect();
    let (at, name) = (settings::place(snapshot, path), settings::name(snapshot, path, path));
    Step::say_at(&at, format!("add {} to {name}", pairs.join(comma)))
}

/// What is between key and value in the flag of a map.
fn sign(path: &str) -> &'static str {
    if matches!(path, HARD | "evictionSoft") { "<" } else { "=" }
}

pub(super) fn eviction_zeroed(snapshot: &Snapshot, report: &mut Report) {
    let is_default = settings::is_default(snapshot, HARD);
    let written = snapshot.config.entry(HARD);
    let place = match written {
        None if is_default => return,
        Some(entry) if is_default => entry.at.clone(),
        _ => settings::place(snapshot, HARD),
    };
    // A signal that the kubelet does not know is the mistake: CF007 says which one was meant.
    let is_misspelt =
        |one: &Finding| one.rule == "CF007" && one.remedy.edits().filter_map(Step::at).any(|at| at.file == place.file);
    if report.findings.iter().any(|one| is_misspelt(one) && one.message.starts_with(HARD)) {
        return;
    }
    let hard = snapshot.settings.map(HARD);
    let missing: Vec<(&str, &str)> = NEEDED.into_iter().filter(|(key, _)| !hard.contains_key(key)).collect();
    if missing.is_empty() {
        return;
    }
    let names = if hard.is_empty() {
        "is empty".to_owned()
    } else {
        format!("has only {}", hard.keys().copied().collect::<Vec<_>>().join(", "))
    };
    let consequence = if hard.contains_key(MEMORY) {
        "The disk fills up before the kubelet evicts a pod"
    } else {
        "Under memory pressure the kubelet evicts no pod, and the kernel's OOM killer chooses what to kill"
    };
    let have = if missing.len() == 1 { "has" } else { "have" };
    let missing_names: Vec<&str> = missing.iter().map(|(key, _)| *key).collect();
    let is_distributions = are_written_by_distribution(snapshot, &place);
    let by = match snapshot.command.launcher.rancher_name() {
        Some(program) if is_distributions => format!(", which {program} sets itself,"),
        _ => String::new(),
    };
    let message = format!(
        "evictionHard{by} {names}. So {} {have} no threshold: a threshold that is set removes the defaults of the others. \
         {consequence}",
        missing_names.join(" and ")
    );
    let finding = Finding::new("RS002", Severity::Warning, place, message);
    report.add(if is_default || is_distributions {
        finding.remedy(with_thresholds(snapshot, &missing))
    } else {
        finding.with(add_pairs(snapshot, HARD, &missing))
    });
}

/// Gives the kubelet of k3s or RKE2 the thresholds that are written, and those that are missing.
fn with_thresholds(snapshot: &Snapshot, missing: &[(&str, &str)]) -> Remedy {
    let entries = snapshot.config.get(HARD).map(Node::entries).unwrap_or_default();
    let written = entries.iter().filter_map(|entry| Some(format!("{}<{}", entry.key, entry.node.text()?)));
    let added = missing.iter().filter(|(key, _)| entries.iter().all(|entry| entry.key != *key));
    let all: Vec<String> = written.chain(added.map(|(key, value)| format!("{key}<{value}"))).collect();
    with_argument(snapshot, &format!("eviction-hard={}", all.join(",")))
}

/// A threshold in bytes; of a percentage only where the whole is known.
#[expect(clippy::cast_precision_loss, reason = "a byte more or less does not matter")]
fn bytes(threshold: &str, whole: Option<f64>) -> Option<f64> {
    match percentage(threshold) {
        Some(percent) => Some(whole? / 100.0 * percent),
        None => Some(quantity::parse(threshold)?.value() as f64),
    }
}

fn percentage(threshold: &str) -> Option<f64> {
    threshold.strip_suffix('%')?.parse().ok()
}

pub(super) fn eviction_nonsense(snapshot: &Snapshot, report: &mut Report) {
    let memory = memory_bytes(snapshot);
    if memory.is_none() {
        report.not_checked("RS003", "the machine's memory");
    }
    for path in [HARD, "evictionSoft"] {
        for (key, text) in snapshot.settings.map(path) {
            let Some(at) = key_place(snapshot, path, key) else { continue };
            if let Some((severity, nonsense)) = nonsense(key, text, memory) {
                let message = format!("{path} has {key}<{text}: {nonsense}");
                let finding = Finding::new("RS003", severity, at, message);
                report.add(threshold_fix(finding, snapshot, path, key));
            }
        }
    }
    soft_below_hard(snapshot, report, memory);
    without_unit(snapshot, report);
}

/// Amounts that lack their unit, or have that of CPUs: `500m` is half a byte.
fn without_unit(snapshot: &Snapshot, report: &mut Report) {
    for path in ["kubeReserved", "systemReserved", HARD] {
        for (key, text) in snapshot.settings.map(path) {
            let amount = quantity::parse(text).map_or(0.0, Quantity::amount);
            let is_tiny = matches!(key, "memory" | "ephemeral-storage" | MEMORY) && amount > 0.0 && amount < MIB;
            let Some(at) = key_place(snapshot, path, key).filter(|_| is_tiny) else { continue };
            let message =
                format!("{path} has {key} with the value {text}, less than 1 MiB: a number alone counts bytes");
            let finding = Finding::new("RS003", Severity::Warning, at.clone(), message);
            report.add(finding.say_at(&at, "write the unit that is meant, as in 500Mi or 1Gi,"));
        }
    }
}

/// With the fix that gives a threshold its default; a soft one has none.
fn threshold_fix(finding: Finding, snapshot: &Snapshot, path: &str, key: &str) -> Finding {
    let at = finding.at.clone();
    let by_flag = matches!(settings::from(snapshot, path), Some(From::Flag(_)));
    let right = match NEEDED.into_iter().find(|(needed, _)| *needed == key) {
        _ if path != HARD => format!("write a threshold somewhat above that of {HARD} for {key}, or delete it,"),
        Some((_, value)) => format!("write {key}{}{value}", if by_flag { "<" } else { ": " }),
        None => format!("write a lower threshold for {key}, or delete it,"),
    };
    finding.say_at(&at, right)
}

/// Where somebody set a threshold.
fn key_place(snapshot: &Snapshot, path: &str, key: &str) -> Option<Location> {
    match snapshot.settings.get(path)?.keys.get(key)? {
        From::Flag(at) | From::File(at) => Some(at.clone()),
        _ => None,
    }
}

/// Why a threshold makes no sense on a machine with so much memory.
fn nonsense(key: &str, text: &str, memory: Option<f64>) -> Option<(Severity, String)> {
    // To the kubelet these mean that there is no threshold; with more than 100% it exits (CF007).
    if matches!(text, "0%" | "100%") || percentage(text).is_some_and(|percent| percent > 100.0) {
        return None;
    }
    if key != MEMORY {
        let is_high = percentage(text).is_some_and(|percent| percent > 50.0 && percent < 100.0);
        let message = "the kubelet evicts pods while half of the file system is free";
        return is_high.then(|| (Severity::Warning, message.to_owned()));
    }
    let (limit, whole) = (bytes(text, memory)?, memory.unwrap_or(f64::INFINITY));
    let mib = whole / MIB;
    if limit >= whole {
        let message = format!("the machine has only {mib:.0} MiB in all, so the kubelet evicts every pod");
        Some((Severity::Error, message))
    } else if limit >= whole * 0.3 {
        let message = format!(
            "at least 30 % of the machine's {mib:.0} MiB stay unused, because the kubelet evicts pods before they are used"
        );
        Some((Severity::Warning, message))
    } else {
        None
    }
}

fn soft_below_hard(snapshot: &Snapshot, report: &mut Report, memory: Option<f64>) {
    let hard = snapshot.settings.map(HARD);
    for (key, soft) in snapshot.settings.map("evictionSoft") {
        let (Some(at), Some(hard)) = (key_place(snapshot, "evictionSoft", key), hard.get(key)) else { continue };
        // Two percentages can be compared whatever they are of.
        let is_same_form = soft.ends_with('%') == hard.ends_with('%');
        let whole = if is_same_form { Some(1.0) } else { memory.filter(|_| key == MEMORY) };
        let (low, high) = (bytes(soft, whole), bytes(hard, whole));
        if low.zip(high).is_some_and(|(low, high)| low < high) {
            let message = format!(
                "evictionSoft has {key}<{soft}, which has no effect: the hard threshold, {hard}, is reached first"
            );
            let fix = format!("write a soft threshold above {hard}, or delete it,");
            report.add(Finding::new("RS003", Severity::Warning, at.clone(), message).say_at(&at, fix));
        }
    }
}

pub(super) fn enforce_cgroup_missing(snapshot: &Snapshot, report: &mut Report) {
    const PATH: &str = "enforceNodeAllocatable";
    let levels = snapshot.settings.list(PATH);
    for (level, field) in [("system-reserved", "systemReservedCgroup"), ("kube-reserved", "kubeReservedCgroup")] {
        let Some(written) = levels.iter().find(|one| one.strip_suffix("-compressible").unwrap_or(one) == level) else {
            continue;
        };
        let (place, unit) = (settings::place(snapshot, PATH), &snapshot.unit.name);
        let cgroup = snapshot.settings.text(field);
        let (why, or) = match cgroup.map(|name| (name, snapshot.machine.kernel.cgroups.get(name))) {
            None => (format!("{field} is not set (it has no default)"), format!("set {field}")),
            Some(("/", _)) => {
                (format!("{field} is /, which the kubelet refuses"), format!("write another cgroup for {field}"))
            }
            Some((_, Some(true))) => continue,
            Some((name, Some(false))) => {
                (format!("the cgroup {name} does not exist"), format!("create the cgroup before {unit} starts"))
            }
            Some((_, None)) => {
                report.not_checked("RS005", "the host's cgroups");
                continue;
            }
        };
        let message = format!("enforceNodeAllocatable has {written}, but {why}. The kubelet exits at its start");
        let step = cgroup.map(|name| (settings::place(snapshot, field), format!("{field} is {name}")));
        let finding = Finding::new("RS005", Severity::Fatal, place.clone(), message).steps(step);
        // A line of its own: the list has other items.
        let list = snapshot.config.entry(PATH).filter(|list| list.node.items().len() > 1);
        let item = list.and_then(|list| {
            let mut items = list.node.items().iter().filter(|item| item.at.line != list.at.line);
            items.find(|item| item.text().as_deref() == Some(*written))
        });
        let line = item.map(|item| item.at.at_line(item.at.line));
        report.add(finding.with(Step::delete(line, &place, written)).say(format!("or {or}")));
    }
}

#[cfg(test)]
mod tests;
