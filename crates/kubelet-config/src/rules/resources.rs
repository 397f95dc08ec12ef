//! RS: what is reserved for the host, and when pods are evicted.

use super::{Check, Finding, Report, Severity, config::are_written_by_distribution, settings};
use crate::kubelet::{
    effective::From,
    location::Location,
    quantity::{self, Quantity},
    snapshot::Snapshot,
};

/// The rules of this family.
pub(super) const RULES: &[(&str, Check)] = &[
    ("RS001", reserved_absent),
    ("RS002", eviction_zeroed),
    ("RS003", eviction_nonsense),
    ("RS005", enforce_cgroup_missing),
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
    let memory = snapshot.machine.memory_bytes.as_ref().map(|found| found.value);
    let severity = match memory {
        Some(bytes) if bytes < SMALL_BYTES => Severity::Warning,
        _ => Severity::Info,
    };
    let with = memory.map_or_else(String::new, |bytes| {
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let gib = bytes as f64 / f64::from(1 << 30);
        format!(" of {gib:.1} GiB")
    });
    let place = settings::config_file(snapshot).map_or_else(|| settings::command(snapshot), Clone::clone);
    let message = format!(
        "neither kubeReserved nor systemReserved sets memory aside: pods may use all{with} but the eviction threshold, \
         and memory pressure then hits the kubelet and the runtime"
    );
    let fix =
        settings::edit(snapshot, "systemReserved", "systemReserved: {memory: 500Mi}", "--system-reserved=memory=500Mi");
    report.add(Finding::new("RS001", severity, place, message).fix(fix));
}

fn eviction_zeroed(snapshot: &Snapshot, report: &mut Report) {
    const PATH: &str = "evictionHard";
    if !is_judgeable(snapshot, report, "RS002") || settings::is_default(snapshot, PATH) {
        return;
    }
    let hard = snapshot.settings.map(PATH);
    let missing: Vec<&str> = [MEMORY, "nodefs.available"].into_iter().filter(|key| !hard.contains_key(key)).collect();
    if missing.is_empty() {
        return;
    }
    let place = settings::place(snapshot, PATH);
    let names = if hard.is_empty() {
        "is empty".to_owned()
    } else {
        format!("names only {}", hard.keys().copied().collect::<Vec<_>>().join(", "))
    };
    let consequence = if missing.contains(&MEMORY) {
        "under memory pressure the kernel's OOM killer acts, the kubelet does not evict"
    } else {
        "the disk fills up before the kubelet evicts"
    };
    let have = if missing.len() == 1 { "has" } else { "have" };
    let message =
        format!("evictionHard {names}: {} {have} no threshold any more; {consequence}", missing.join(" and "));
    report.add(
        Finding::new("RS002", Severity::Warning, place.clone(), message).fix(zeroed_fix(snapshot, &place, &missing)),
    );
}

fn zeroed_fix(snapshot: &Snapshot, place: &Location, missing: &[&str]) -> String {
    let unit = &snapshot.unit.name;
    if are_written_by_distribution(snapshot, place) {
        return format!(
            "{place} is written anew at each start; in config.yaml write kubelet-arg: \
             [\"eviction-hard=memory.available<100Mi,nodefs.available<5%,imagefs.available<5%\"], then systemctl restart \
             {unit}"
        );
    }
    let value = |key: &str| if key == MEMORY { "100Mi" } else { "10%" };
    if matches!(snapshot.settings.get("evictionHard").map(|setting| &setting.from), Some(From::Flag(_))) {
        let more: Vec<String> = missing.iter().map(|key| format!("{key}<{}", value(key))).collect();
        return format!("{place}: add {} to --eviction-hard, then systemctl restart {unit}", more.join(","));
    }
    let lines: Vec<String> =
        missing.iter().map(|key| format!("{key}: {}", serde_json::Value::from(value(key)))).collect();
    let or = match &snapshot.version {
        Some(version) if version.minor.0 < 33 => "",
        _ => " (or mergeDefaultEvictionSettings: true beside it)",
    };
    format!("{place}: add {} below it{or}, then systemctl restart {unit}", lines.join(" and "))
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
    let memory = snapshot.machine.memory_bytes.as_ref().map(|found| found.value);
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
                let fix = if key == MEMORY {
                    format!("{at}: write a memory.available between 100Mi and 5%")
                } else {
                    format!("{at}: write a lower threshold, for example 10%")
                };
                report.add(Finding::new("RS003", severity, at, format!("{path}: {message}")).fix(fix));
            }
        }
    }
    soft_below_hard(snapshot, report, memory);
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
    let with = |bytes: u64| format!("memory.available<{text} on {} MiB of memory", bytes >> 20);
    if let (Some(amount), Some(bytes)) = (amount(limit, memory), memory) {
        if amount >= Quantity::whole(bytes) {
            let message = format!("{}: the node is always under memory pressure and evicts every pod", with(bytes));
            return Some((Severity::Error, message));
        }
        if amount >= Quantity::whole(bytes / 10 * 3) {
            let message = format!("{} leaves a third of it unused", with(bytes));
            return Some((Severity::Warning, message));
        }
    } else if matches!(limit, Threshold::Percent(percent) if *percent >= 30.0) {
        let message = format!("memory.available<{text} leaves a third of the memory unused");
        return Some((Severity::Warning, message));
    }
    let amount = amount(limit, memory)?;
    (amount < Quantity::whole(50 << 20) && amount.value() > 0).then(|| {
        let message = format!("memory.available<{text} leaves no time to evict: the kernel's OOM killer is faster");
        (Severity::Warning, message)
    })
}

fn disk_nonsense(key: &str, text: &str, limit: &Threshold) -> Option<(Severity, String)> {
    let Threshold::Percent(percent) = limit else {
        return None;
    };
    (*percent > 50.0 && *percent < 100.0).then(|| {
        let message = format!("{key}<{text} evicts pods from a disk that is less than half full");
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
            let message = format!("evictionSoft: {key}<{soft} is below the hard threshold {hard}: it never acts");
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
        let place = settings::place(snapshot, PATH);
        let unit = &snapshot.unit.name;
        match snapshot.settings.text(field) {
            None => report.add(
                Finding::new(
                    "RS005",
                    Severity::Fatal,
                    place.clone(),
                    format!("enforceNodeAllocatable has {written}, and {field} is not set: the kubelet exits"),
                )
                .fix(format!("{place}: take {written} out of enforceNodeAllocatable, or set {field}, then systemctl restart {unit}")),
            ),
            Some(name) => match snapshot.machine.cgroups.get(name) {
                Some(true) => {}
                None => report.not_checked("RS005", "the host's cgroups"),
                Some(false) => report.add(
                    Finding::new(
                        "RS005",
                        Severity::Fatal,
                        place.clone(),
                        format!("enforceNodeAllocatable has {written}, and its cgroup {name} does not exist: the kubelet exits"),
                    )
                    .fix(format!("{place}: take {written} out of enforceNodeAllocatable, or create {name} before {unit} starts"))
                    .step(settings::place(snapshot, field), format!("names the cgroup {name}")),
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests;
