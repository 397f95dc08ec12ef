//! RS: what is reserved for the host, and when pods are evicted.

mod map_replaced;
mod state_file;

use super::{Check, Finding, Report, Severity, config::are_written_by_distribution, layers, settings};
use crate::{
    edit::Change,
    kubelet::{
        config::{
            document::Node,
            fields::{self, FieldDefault},
        },
        effective::From,
        location::Location,
        quantity::{self, Quantity},
        snapshot::Snapshot,
    },
};

/// The rules of this family.
pub(super) const RULES: &[(&str, Check)] = &[
    ("RS001", reserved_absent),
    ("RS002", eviction_zeroed),
    ("RS003", eviction_nonsense),
    ("RS005", enforce_cgroup_missing),
    ("RS006", state_file::other_policy),
    ("RS007", map_replaced::map_replaced),
];

const TO_COME: &str = "the kubelet's configuration, which is still to be written";
const MEMORY: &str = "memory.available";

/// Below this a machine feels it.
const SMALL_BYTES: u64 = 8 << 30;

/// Whether the settings are known well enough to judge what is not in them.
fn is_judgeable(snapshot: &Snapshot, report: &mut Report, rule: &'static str) -> bool {
    if !settings::are_known(snapshot) {
        report.not_checked(rule, settings::COMMAND);
    } else if settings::are_to_come(snapshot) {
        report.not_checked(rule, TO_COME);
    } else {
        return true;
    }
    false
}

fn reserved_absent(snapshot: &Snapshot, report: &mut Report) {
    if !is_judgeable(snapshot, report, "RS001") {
        return;
    }
    let reserves = |path: &str| {
        let map = snapshot.settings.map(path);
        let amount = map.get("memory").and_then(|text| quantity::parse(text));
        amount.is_some_and(|amount| amount.value() > 0)
    };
    if reserves("kubeReserved") || reserves("systemReserved") {
        return;
    }
    let memory = snapshot.machine.kernel.memory_bytes.as_ref().map(|found| found.value);
    let severity = match memory {
        Some(bytes) if bytes < SMALL_BYTES => Severity::Warning,
        _ => Severity::Info,
    };
    let amount = memory.map_or_else(
        || "all memory".to_owned(),
        |bytes| {
            #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
            let gib = bytes as f64 / f64::from(1 << 30);
            format!("all {gib:.1} GiB of memory")
        },
    );
    let new_argument = snapshot.command.new_argument.as_ref().map(|new| Location::file(&*new.at.file));
    let place =
        settings::config_file(snapshot).cloned().or(new_argument).unwrap_or_else(|| settings::command(snapshot));
    let message = format!(
        "Neither kubeReserved nor systemReserved reserves memory (both are empty by default). Pods may use {amount} except \
         the eviction threshold; then the kubelet and the runtime run out of memory."
    );
    let finding = Finding::new("RS001", severity, place, message);
    report.add(reserve(finding, snapshot));
}

/// With the fix that reserves memory for the system. No edit: with less memory for pods a kubelet may refuse at its
/// restart those that run, and where system-reserved is enforced, the system's own programs get no more than this.
fn reserve(finding: Finding, snapshot: &Snapshot) -> Finding {
    const PATH: &str = "systemReserved";
    let (unit, place) = (&snapshot.unit.name, settings::place(snapshot, PATH));
    let has_file = settings::config_file(snapshot).is_some();
    match snapshot.settings.get(PATH).map(|setting| &setting.from) {
        Some(From::Flag(_)) => {
            finding.fix(format!("{place}: add memory=500Mi to --system-reserved, then systemctl restart {unit}"))
        }
        Some(From::File(_)) => {
            finding.fix(format!("{place}: add memory: 500Mi to systemReserved, then systemctl restart {unit}"))
        }
        _ if settings::are_managed(snapshot) && !has_file => {
            with_argument(finding, snapshot, "system-reserved=memory=500Mi")
        }
        _ => {
            let (field, flag) = ("memory: 500Mi to systemReserved", "--system-reserved=memory=500Mi");
            finding.fix(settings::edit(snapshot, PATH, field, flag))
        }
    }
}

/// With the fix that gives the kubelet of k3s or RKE2 this argument. No edit: it may evict pods of a working node.
fn with_argument(finding: Finding, snapshot: &Snapshot, argument: &str) -> Finding {
    Finding { edits: Vec::new(), ..layers::with_argument(finding, snapshot, argument) }
}

/// With the fix that adds pairs to a flag's value.
fn append_to_flag(finding: Finding, snapshot: &Snapshot, flag: &str, more: &str) -> Finding {
    let Some(used) = snapshot.flags.last(flag) else {
        return finding;
    };
    finding.fix(format!("{}: add {more} to --{flag}, then systemctl restart {}", used.at, snapshot.unit.name))
}

fn eviction_zeroed(snapshot: &Snapshot, report: &mut Report) {
    const PATH: &str = "evictionHard";
    if !is_judgeable(snapshot, report, "RS002") {
        return;
    }
    let written = snapshot.config.entry(PATH);
    if settings::is_default(snapshot, PATH) && written.is_none() {
        return;
    }
    let hard = snapshot.settings.map(PATH);
    let missing: Vec<&str> = [MEMORY, "nodefs.available"].into_iter().filter(|key| !hard.contains_key(key)).collect();
    if missing.is_empty() {
        return;
    }
    let place = match written {
        Some(entry) if settings::is_default(snapshot, PATH) => entry.at.clone(),
        _ => settings::place(snapshot, PATH),
    };
    let names = if hard.is_empty() {
        "is empty".to_owned()
    } else {
        format!("has only {}", hard.keys().copied().collect::<Vec<_>>().join(", "))
    };
    let consequence = if missing.contains(&MEMORY) {
        "Under memory pressure the kubelet evicts no pod, and the kernel's OOM killer chooses what to kill."
    } else {
        "The disk fills up before the kubelet evicts a pod."
    };
    let have = if missing.len() == 1 { "has" } else { "have" };
    let by = match snapshot.command.launcher.rancher_name() {
        Some(program) if are_written_by_distribution(snapshot, &place) => format!(", which {program} sets itself,"),
        _ => String::new(),
    };
    let message = format!(
        "evictionHard{by} {names}. So {} {have} no threshold: a threshold that is set removes the defaults of the others. \
         {consequence}",
        missing.join(" and ")
    );
    report.add(zeroed_fix(Finding::new("RS002", Severity::Warning, place, message), snapshot, &missing));
}

fn zeroed_fix(finding: Finding, snapshot: &Snapshot, missing: &[&str]) -> Finding {
    let (unit, place) = (&snapshot.unit.name, finding.at.clone());
    let defaults: Vec<(&str, &str)> =
        missing.iter().map(|key| (*key, if *key == MEMORY { "100Mi" } else { "10%" })).collect();
    let is_distributions = settings::is_default(snapshot, "evictionHard");
    if is_distributions || are_written_by_distribution(snapshot, &place) {
        let entries = snapshot.config.get("evictionHard").map(Node::entries).unwrap_or_default();
        let written = entries.iter().filter_map(|entry| Some(format!("{}<{}", entry.key, entry.node.text()?)));
        let added = defaults.iter().filter(|(key, _)| entries.iter().all(|entry| entry.key != *key));
        let all: Vec<String> = written.chain(added.map(|(key, value)| format!("{key}<{value}"))).collect();
        return with_argument(finding, snapshot, &format!("eviction-hard={}", all.join(",")));
    }
    if matches!(snapshot.settings.get("evictionHard").map(|setting| &setting.from), Some(From::Flag(_))) {
        let more: Vec<String> = defaults.iter().map(|(key, value)| format!("{key}<{value}")).collect();
        return append_to_flag(finding, snapshot, "eviction-hard", &more.join(","));
    }
    let lines: Vec<String> =
        defaults.iter().map(|(key, value)| format!("{key}: {}", serde_json::Value::from(*value))).collect();
    let or = match &snapshot.version {
        Some(version) if version.minor.0 < 33 => "",
        _ => " (or mergeDefaultEvictionSettings: true beside it)",
    };
    finding
        .fix(format!("{place}: add the defaults {} below it{or}, then systemctl restart {unit}", lines.join(" and ")))
}

/// A threshold: a part of the whole, in percent, or an amount.
enum Threshold {
    Percent(f64),
    Amount(Quantity),
}

fn threshold(text: &str) -> Option<Threshold> {
    match text.strip_suffix('%') {
        Some(number) => number.parse().ok().map(Threshold::Percent),
        None => quantity::parse(text).map(Threshold::Amount),
    }
}

/// A threshold of memory as an amount, where the machine's memory is known or not needed.
fn amount(threshold: &Threshold, memory: Option<u64>) -> Option<Quantity> {
    match threshold {
        Threshold::Amount(amount) => Some(*amount),
        Threshold::Percent(percent) => {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of the memory, to the byte or so; negative and huge numbers are bounded by the cast"
            )]
            let bytes = (memory? as f64 * percent / 100.0) as u64;
            Some(Quantity::whole(bytes))
        }
    }
}

fn eviction_nonsense(snapshot: &Snapshot, report: &mut Report) {
    if !is_judgeable(snapshot, report, "RS003") {
        return;
    }
    let memory = snapshot.machine.kernel.memory_bytes.as_ref().map(|found| found.value);
    if memory.is_none() {
        report.not_checked("RS003", "the machine's memory");
    }
    for path in ["evictionHard", "evictionSoft"] {
        for (key, text) in snapshot.settings.map(path) {
            let Some(at) = key_place(snapshot, path, key) else {
                continue;
            };
            let Some(limit) = threshold(text) else {
                continue;
            };
            let judged =
                if key == MEMORY { memory_nonsense(text, &limit, memory) } else { disk_nonsense(key, text, &limit) };
            if let Some((severity, message)) = judged {
                let finding = Finding::new("RS003", severity, at, format!("{path}: {message}"));
                report.add(threshold_fix(finding, snapshot, path, key));
            }
        }
    }
    soft_below_hard(snapshot, report, memory);
}

/// With the fix that gives a threshold its default; a soft one has none.
fn threshold_fix(finding: Finding, snapshot: &Snapshot, path: &str, key: &str) -> Finding {
    let (unit, at) = (&snapshot.unit.name, finding.at.clone());
    if path == "evictionSoft" {
        return finding.fix(format!(
            "{at}: write a threshold for {key} somewhat above that of evictionHard, or delete it, then systemctl restart {unit}"
        ));
    }
    let defaults = match fields::find(path).map(|field| field.default) {
        Some(FieldDefault::IfAbsent(json)) => serde_json::from_str(json).unwrap_or_default(),
        _ => serde_json::Value::Null,
    };
    let Some(value) = defaults[key].as_str() else {
        return finding.fix(format!("{at}: write a lower threshold for {key}, then systemctl restart {unit}"));
    };
    let by_flag = matches!(snapshot.settings.get(path).map(|setting| &setting.from), Some(From::Flag(_)));
    let sign = if by_flag { "<" } else { ": " };
    let node = snapshot.config.get(path).and_then(|map| map.get(key));
    // Only of a threshold with which no pod stays is it sure that it is a mistake.
    let node = node.filter(|node| node.at.width > 0 && !by_flag && finding.severity == Severity::Error);
    let edit = node.map(|node| (node.at.clone(), Change::Text(defaults[key].to_string())));
    finding.fix(format!("{at}: write {key}{sign}{value}, then systemctl restart {unit}")).edits(edit)
}

/// Where somebody set a threshold.
fn key_place(snapshot: &Snapshot, path: &str, key: &str) -> Option<Location> {
    match snapshot.settings.get(path)?.keys.get(key)? {
        From::Flag(at) | From::File(at) => Some(at.clone()),
        _ => None,
    }
}

fn memory_nonsense(text: &str, limit: &Threshold, memory: Option<u64>) -> Option<(Severity, String)> {
    // To the kubelet 0% and 100% mean that there is no threshold.
    if let Threshold::Percent(percent) = limit
        && (*percent <= 0.0 || (*percent - 100.0).abs() < f64::EPSILON)
    {
        return None;
    }
    let with = |bytes: u64| format!("memory.available<{text} (the machine has {} MiB)", bytes >> 20);
    let unused = "at least 30 % of the memory stay unused, because the kubelet evicts pods before";
    if let (Some(amount), Some(bytes)) = (amount(limit, memory), memory) {
        if amount >= Quantity::whole(bytes) {
            let message =
                format!("{}: less than that is always available, so the kubelet evicts every pod", with(bytes));
            return Some((Severity::Error, message));
        }
        if amount >= Quantity::whole(bytes / 10 * 3) {
            return Some((Severity::Warning, format!("{}: {unused}", with(bytes))));
        }
    } else if matches!(limit, Threshold::Percent(percent) if *percent >= 30.0) {
        return Some((Severity::Warning, format!("memory.available<{text}: {unused}")));
    }
    let amount = amount(limit, memory)?;
    (amount < Quantity::whole(50 << 20) && amount.value() > 0).then(|| {
        let message = format!("memory.available<{text}: the kernel's OOM killer acts before the kubelet evicts a pod");
        (Severity::Warning, message)
    })
}

fn disk_nonsense(key: &str, text: &str, limit: &Threshold) -> Option<(Severity, String)> {
    let Threshold::Percent(percent) = limit else {
        return None;
    };
    (*percent > 50.0 && *percent < 100.0).then(|| {
        let message = format!("{key}<{text}: the kubelet evicts pods while half of the file system is free");
        (Severity::Warning, message)
    })
}

fn soft_below_hard(snapshot: &Snapshot, report: &mut Report, memory: Option<u64>) {
    let hard = snapshot.settings.map("evictionHard");
    for (key, soft) in snapshot.settings.map("evictionSoft") {
        let (Some(at), Some(hard)) = (key_place(snapshot, "evictionSoft", key), hard.get(key)) else {
            continue;
        };
        let (Some(low), Some(high)) = (threshold(soft), threshold(hard)) else {
            continue;
        };
        let is_below = match (&low, &high) {
            (Threshold::Percent(low), Threshold::Percent(high)) => low < high,
            (Threshold::Amount(low), Threshold::Amount(high)) => low < high,
            _ if key == MEMORY => match (amount(&low, memory), amount(&high, memory)) {
                (Some(low), Some(high)) => low < high,
                _ => false,
            },
            _ => false,
        };
        if is_below {
            let message = format!(
                "evictionSoft: {key}<{soft} is below the hard threshold {hard}, which is reached first: the soft one never acts"
            );
            report.add(
                Finding::new("RS003", Severity::Warning, at.clone(), message)
                    .fix(format!("{at}: write a soft threshold above {hard}, or delete it")),
            );
        }
    }
}

fn enforce_cgroup_missing(snapshot: &Snapshot, report: &mut Report) {
    const PATH: &str = "enforceNodeAllocatable";
    if !settings::are_known(snapshot) {
        return report.not_checked("RS005", settings::COMMAND);
    }
    let levels = snapshot.settings.list(PATH);
    for (level, field) in [("system-reserved", "systemReservedCgroup"), ("kube-reserved", "kubeReservedCgroup")] {
        let Some(written) = levels.iter().find(|one| one.strip_suffix("-compressible").unwrap_or(one) == level) else {
            continue;
        };
        let (message, step) = match snapshot.settings.text(field) {
            None => {
                (format!("enforceNodeAllocatable has {written}, but {field} is not set (it has no default)."), None)
            }
            Some(name) => match snapshot.machine.kernel.cgroups.get(name) {
                Some(true) => continue,
                Some(false) => (
                    format!("enforceNodeAllocatable has {written}, but the cgroup {name} does not exist."),
                    Some((settings::place(snapshot, field), format!("{field} is {name}"))),
                ),
                None => {
                    report.not_checked("RS005", "the host's cgroups");
                    continue;
                }
            },
        };
        let place = settings::place(snapshot, PATH);
        let unit = &snapshot.unit.name;
        let or =
            if step.is_some() { format!("create the cgroup before {unit} starts") } else { format!("set {field}") };
        let fix =
            format!("{place}: remove {written} from enforceNodeAllocatable, or {or}; then systemctl restart {unit}");
        let message = format!("{message} The kubelet exits at its start.");
        let mut finding = Finding::new("RS005", Severity::Fatal, place, message).fix(fix);
        // A line of its own: the list has other items.
        let list = snapshot.config.entry(PATH);
        let item = list.and_then(|list| list.node.items().iter().find(|item| item.text().as_deref() == Some(*written)));
        if let (Some(list), Some(item)) = (list, item)
            && item.at.line != list.at.line
            && list.node.items().len() > 1
        {
            finding = finding.edit(&item.at, Change::Lines(Vec::new()));
        }
        report.add(match step {
            Some((at, text)) => finding.step(at, text),
            None => finding,
        });
    }
}

#[cfg(test)]
mod tests;
