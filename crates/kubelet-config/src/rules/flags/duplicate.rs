//! FL005: flags that are given more than once.

use std::collections::{BTreeMap, BTreeSet};

use super::uses;
use crate::kubelet::flags::{FlagSpec, Repeat, ValueKind, pairs, table};
use crate::rules::resources::map_replaced::MAPS;
use crate::rules::{Finding, FlagUse, From, Report, Severity, Snapshot, Step, at, shortened};

pub(in crate::rules) fn duplicate(snapshot: &Snapshot, report: &mut Report) {
    let mut seen: BTreeMap<&str, Vec<&FlagUse>> = BTreeMap::new();
    for used in uses(snapshot).filter(|used| used.spec.is_some()) {
        seen.entry(&used.name).or_default().push(used);
    }
    over_files(snapshot, report);
    for (name, uses) in seen {
        let (Some(spec), Some((last, earlier))) = (table::find(name), uses.split_last()) else { continue };
        let Some((severity, what)) = what_is_lost(spec, last, earlier).filter(|_| !earlier.is_empty()) else {
            continue;
        };
        let times = if uses.len() == 2 { "twice".to_owned() } else { format!("{} times", uses.len()) };
        let others = earlier.iter().take(SHOWN + 1).map(|used| at::flag(snapshot, used).to_string());
        let others = some(&others.collect::<Vec<_>>());
        let (flag, at) = (&last.written, at::flag(snapshot, last));
        let message = format!("{flag} is given {times}, here and at {others}: {what}");
        let mut finding = Finding::new("FL005", severity, at.clone(), message);
        // Of several in one file of which the last counts, the others can go; a line's last first, for the columns.
        let is_here = |used: &&FlagUse| {
            let other = at::flag(snapshot, used);
            // A variable that ExecStart= has twice is written once.
            other.file == at.file && other != at
        };
        let is_one_value = spec.repeat == Repeat::LastWins && spec.value != ValueKind::Taints;
        if is_one_value && earlier.len() <= SHOWN && earlier.iter().all(is_here) {
            let mut steps: Vec<Step> = earlier.iter().rev().map(|used| at::delete(snapshot, used)).collect();
            steps.dedup();
            finding = finding.remedy(steps);
        } else {
            finding = finding.say_at(&at, format!("keep one {flag}: delete the others,"));
        }
        for used in earlier.iter().take(SHOWN) {
            if spec.repeat == Repeat::LastWins && used.value != last.value {
                finding.lost_flags.push(format!("{}={}", used.written, used.value));
            }
            finding = finding.step(at::flag(snapshot, used), format!("{} is given here", shown(used)));
        }
        report.add(finding.step(at, format!("{} is given last", shown(last))));
    }
}

/// Other fields than those of RS007 that a flag overrides with another value.
fn over_files(snapshot: &Snapshot, report: &mut Report) {
    let mut seen = BTreeSet::new();
    let fields = uses(snapshot).filter_map(|used| Some((used, used.spec?.field?)));
    for (used, field) in fields.filter(|(_, field)| !MAPS.contains(field) && *field != "featureGates") {
        let (Some(entry), Some(setting)) = (snapshot.config.entry(field), snapshot.settings.get(field)) else {
            continue;
        };
        let is_overridden = matches!(setting.from, From::Flag(_)) && setting.value != entry.node.to_json();
        let is_same = entry.node.text().is_some_and(|text| Some(text) == setting.value.as_str().map(str::to_owned));
        let in_drop_in = snapshot.config.files.iter().any(|file| file.drop_in && file.at.file == entry.at.file);
        if !is_overridden || is_same || !seen.insert(field) {
            continue;
        }
        let at = at::flag(snapshot, used);
        let message = format!("{field} of this file has no effect: {} at {at} overrides it", shown(used));
        // Whoever wrote a drop-in wanted to override something.
        let severity = if in_drop_in { Severity::Warning } else { Severity::Info };
        let finding = Finding::new("FL005", severity, entry.at.clone(), message);
        report.add(
            finding
                .say_at(&entry.at, format!("delete the flag at {at}, or {field}"))
                .step(at, "the flag is given here"),
        );
    }
}

/// How many of many are named.
const SHOWN: usize = 8;

fn some(items: &[String]) -> String {
    let more = if items.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", items.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "))
}

fn shown(used: &FlagUse) -> String {
    format!("{}={}", used.written, shortened(&used.value))
}

/// What a second use does to the earlier ones; `None` if nothing that one would want to know.
fn what_is_lost(spec: &FlagSpec, last: &FlagUse, earlier: &[&FlagUse]) -> Option<(Severity, String)> {
    let value = if last.value.is_empty() { "empty".to_owned() } else { shortened(&last.value) };
    match spec.repeat {
        Repeat::LastWins if spec.value == ValueKind::Taints => {
            let kept: BTreeSet<&str> = last.value.split(',').collect();
            let earlier = earlier.iter().flat_map(|used| used.value.split(','));
            let gone = earlier.filter(|taint| !taint.is_empty() && !kept.contains(taint));
            let gone = some(&gone.map(str::to_owned).collect::<Vec<_>>());
            let message = format!("the last one ({value}) replaces all taints of the others. Lost: {gone}");
            (!gone.is_empty()).then_some((Severity::Warning, message))
        }
        Repeat::LastWins if earlier.iter().all(|used| used.value == last.value) => None,
        Repeat::LastWins => Some((Severity::Info, format!("the kubelet takes the last value ({value})"))),
        Repeat::Append => None,
        Repeat::Merge => {
            let mut replaced = Vec::new();
            let mut merged = BTreeMap::new();
            for used in earlier.iter().chain(std::iter::once(&last)) {
                for pair in pairs(spec.value, &used.value) {
                    let before = merged.insert(pair.key, pair);
                    if let Some(before) = before.filter(|before| before.value != pair.value) {
                        replaced.push(format!("{} replaces {}", pair.text.trim(), before.text.trim()));
                    }
                }
            }
            let message = format!("the kubelet joins the pairs, but {}", shortened(&some(&replaced)));
            (!replaced.is_empty()).then_some((Severity::Warning, message))
        }
    }
}
