//! FL005: flags that are given more than once.

use std::collections::{BTreeMap, BTreeSet};

use super::uses;
use crate::{
    kubelet::{
        flags::{FlagSpec, FlagUse, Repeat, ValueKind, pairs, table},
        snapshot::Snapshot,
    },
    rules::{Finding, Report, Severity, at, at::shortened},
};

pub(super) fn duplicate(snapshot: &Snapshot, report: &mut Report) {
    let mut seen: BTreeMap<&str, Vec<&FlagUse>> = BTreeMap::new();
    for used in uses(snapshot).filter(|used| used.spec.is_some()) {
        seen.entry(&used.name).or_default().push(used);
    }
    for (name, uses) in seen {
        let (Some(spec), Some((last, earlier))) = (table::find(name), uses.split_last()) else {
            continue;
        };
        if earlier.is_empty() {
            continue;
        }
        let Some((severity, rule)) = what_is_lost(spec, last, earlier) else {
            continue;
        };
        let place = at::flag(snapshot, last);
        let times = match uses.len() {
            2 => "twice".to_owned(),
            n => format!("{n} times"),
        };
        let others: Vec<String> =
            earlier.iter().take(SHOWN + 1).map(|used| at::flag(snapshot, used).to_string()).collect();
        let message = format!("{} is given {times}: {rule} (also at {})", last.written, some(&others));
        let mut finding = Finding::new("FL005", severity, place.clone(), message).fix(format!(
            "keep one {}: delete it at {}",
            last.written,
            some(&others)
        ));
        for used in earlier.iter().take(SHOWN) {
            if spec.repeat == Repeat::LastWins && used.value != last.value {
                finding.lost_flags.push(format!("{}={}", used.written, used.value));
            }
            finding = finding.step(at::flag(snapshot, used), format!("{} is given here, and again later", shown(used)));
        }
        report.add(finding.step(place, format!("{} is what counts", shown(last))));
    }
}

/// How many of many are named.
const SHOWN: usize = 8;

fn some(items: &[String]) -> String {
    let mut text = items.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if items.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn shown(used: &FlagUse) -> String {
    format!("{}={}", used.written, shortened(&used.value))
}

/// What a second use does to the earlier ones; `None` if nothing that one would want to know.
fn what_is_lost(spec: &FlagSpec, last: &FlagUse, earlier: &[&FlagUse]) -> Option<(Severity, String)> {
    let value = shortened(&last.value);
    match spec.repeat {
        Repeat::LastWins if spec.value == ValueKind::Taints => {
            let kept: BTreeSet<&str> = last.value.split(',').collect();
            let gone: Vec<String> = earlier
                .iter()
                .flat_map(|used| used.value.split(','))
                .filter(|taint| !taint.is_empty() && !kept.contains(taint))
                .map(str::to_owned)
                .collect();
            (!gone.is_empty()).then(|| {
                let gone = some(&gone);
                (Severity::Warning, format!("the last one ({value}) replaces all taints; lost: {gone}"))
            })
        }
        Repeat::LastWins if earlier.iter().all(|used| used.value == last.value) => {
            Some((Severity::Info, "every time with the same value".to_owned()))
        }
        Repeat::LastWins => Some((Severity::Info, format!("the last one ({value}) wins"))),
        Repeat::Append => None,
        Repeat::Merge => {
            let mut replaced = Vec::new();
            let mut merged = BTreeMap::new();
            for used in earlier.iter().chain(std::iter::once(&last)) {
                for pair in pairs(spec.value, &used.value) {
                    let before = merged.insert(pair.key, pair);
                    if let Some(before) = before.filter(|before| before.value != pair.value) {
                        replaced.push(format!("{} is replaced by {}", before.text.trim(), pair.text.trim()));
                    }
                }
            }
            let replaced = (!replaced.is_empty()).then(|| some(&replaced))?;
            Some((Severity::Warning, format!("the pairs accumulate, but {}", shortened(&replaced))))
        }
    }
}
