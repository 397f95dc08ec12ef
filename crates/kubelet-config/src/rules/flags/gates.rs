//! FL006: feature gates that this kubelet, or that of the next release, refuses. The kubelet takes the names of the flag
//! and of the file together; of a name that both have, the flag's value.

use super::{MAX_FINDINGS, uses};
use crate::kubelet::config::document::Value;
use crate::kubelet::flags::{ValueKind, pairs, parse_bool};
use crate::kubelet::gates::{self, GATES, Gate};
use crate::kubelet::text::nearest;
use crate::kubelet::version::Minor;
use crate::rules::{Finding, FlagUse, Location, Report, Severity, Snapshot, Step, at, cloud, config, shortened};

/// A feature gate that is set.
struct Set<'a> {
    name: &'a str,
    value: bool,
    at: Location,
    /// The flag that sets it, and where in the flag's value.
    flag: Option<(&'a FlagUse, usize, usize)>,
}

/// Why a release refuses a gate.
#[derive(Clone, Copy)]
enum Refusal {
    Unknown,
    TooNew(Minor),
    Removed(Minor),
    Locked(Minor),
}

pub(in crate::rules) fn feature_gate(snapshot: &Snapshot, report: &mut Report) {
    // OpenShift's kubelet only logs a warning (okd-project/okd#1793).
    if cloud::is_openshift(snapshot) {
        return;
    }
    let sets = of_flags(snapshot).chain(of_files(snapshot));
    for finding in sets.filter_map(|set| judge(snapshot, &set)).take(MAX_FINDINGS) {
        report.add(finding);
    }
}

fn of_flags(snapshot: &Snapshot) -> impl Iterator<Item = Set<'_>> {
    let flags = uses(snapshot).filter(|used| used.name == "feature-gates");
    // A value that is none of the form is FL004's.
    let flags = flags.filter(|used| ValueKind::Gates.takes(&used.value));
    flags.flat_map(|used| pairs(ValueKind::Gates, &used.value).into_iter().map(move |pair| (used, pair))).filter_map(
        |(used, pair)| {
            let at = at::value_part(snapshot, used, pair.offset, pair.text.len());
            let flag = Some((used, pair.offset, pair.text.len()));
            Some(Set { name: pair.key, value: parse_bool(pair.value)?, at, flag })
        },
    )
}

fn of_files(snapshot: &Snapshot) -> impl Iterator<Item = Set<'_>> {
    let entries = snapshot.config.get("featureGates").map_or(&[][..], |node| node.entries());
    entries.iter().filter(|entry| !config::are_written_by_distribution(snapshot, &entry.at)).filter_map(|entry| {
        let value = match entry.node.value {
            Value::Bool(value) => value,
            Value::Null => false, // to Go, in the main file
            _ => return None,
        };
        Some(Set { name: &entry.key, value, at: entry.at.clone(), flag: None })
    })
}

fn judge(snapshot: &Snapshot, set: &Set<'_>) -> Option<Finding> {
    let gate = gates::find(set.name);
    let effective = snapshot.settings.get("featureGates").and_then(|setting| setting.value.get(set.name)?.as_bool());
    let refused_by = |minor: Minor| match gate.map(|gate| (gate.since, gate.removed, gate.locked)) {
        None => Some(Refusal::Unknown),
        Some((Some(since), ..)) if minor < since => Some(Refusal::TooNew(since)),
        Some((_, Some(removed), _)) if removed <= minor => Some(Refusal::Removed(removed)),
        Some((.., Some((since, value)))) if since <= minor && effective == Some(!value) && set.value != value => {
            Some(Refusal::Locked(since))
        }
        _ => None,
    };
    let Some(version) = &snapshot.version else {
        let refusal = refused_by(*gates::RELEASES.end())?;
        let finding = finding(snapshot, set, gate, Severity::Warning, refusal, "a kubelet that refuses the gate exits");
        return Some(finding.and("The version of this one is not known"));
    };
    let is_listed = gates::RELEASES.contains(&version.minor) && version.is_of_kubernetes();
    if let Some(refusal) = refused_by(version.minor) {
        return Some(if matches!(refusal, Refusal::Unknown) && !is_listed {
            finding(snapshot, set, gate, Severity::Warning, refusal, "a kubelet that does not know it exits")
        } else {
            let who = format!("this kubelet ({version}) exits");
            finding(snapshot, set, gate, Severity::Fatal, refusal, &who)
        });
    }
    let next = Minor(version.minor.0.saturating_add(1));
    let who = format!("this kubelet ({version}) still takes it, but after an upgrade to {next} it exits");
    let mut finding = finding(snapshot, set, gate, Severity::Warning, refused_by(next)?, &who);
    finding.remedy.steps.insert(0, Step::say("before the upgrade"));
    Some(finding)
}

fn finding(
    snapshot: &Snapshot,
    set: &Set<'_>,
    gate: Option<&Gate>,
    severity: Severity,
    refusal: Refusal,
    who: &str,
) -> Finding {
    let Set { value, at, .. } = set;
    let name = shortened(set.name);
    let unknown = format!("{who} with 'unrecognized feature gate: {name}'");
    let meant = match refusal {
        Refusal::Unknown => {
            let minor = snapshot.version.as_ref().map_or(*gates::RELEASES.end(), |version| version.minor);
            nearest(set.name, GATES.iter().filter(|gate| gate.known_in(minor)).map(|gate| gate.name))
        }
        _ => None,
    };
    let message = match refusal {
        Refusal::Unknown => {
            let meant = meant.map_or_else(String::new, |meant| format!(". Did you mean {meant}?"));
            let (first, last) = (gates::RELEASES.start(), gates::RELEASES.end());
            format!("no kubelet from {first} to {last} has a feature gate {name}: {unknown}{meant}")
        }
        Refusal::TooNew(since) => format!("the feature gate {name} exists since {since}: {unknown}"),
        Refusal::Removed(removed) => {
            let always = match gate.and_then(|gate| gate.locked) {
                Some((since, true)) => format!(". The feature is always on since {since}"),
                Some((since, false)) => format!(". The feature is always off since {since}"),
                None => String::new(),
            };
            format!("the feature gate {name} was removed in {removed}: {unknown}{always}")
        }
        Refusal::Locked(since) => format!(
            "the feature gate {name} is locked to {locked} since {since}: {who} with 'cannot set feature gate {name} to \
             {value}, feature is locked to {locked}'",
            locked = !value
        ),
    };
    // A kubelet that takes the gate, or may take it, is left alone.
    let finding = Finding::new("FL006", severity, at.clone(), message).by_hand_if(severity < Severity::Fatal);
    match (refusal, meant) {
        (_, Some(meant)) => finding.with(renaming(snapshot, set, meant)),
        (Refusal::TooNew(since), _) => {
            finding.remedy(deletion(snapshot, set)).say(format!("or upgrade the kubelet to {since}"))
        }
        _ => finding.remedy(deletion(snapshot, set)),
    }
}

fn deletion(snapshot: &Snapshot, set: &Set<'_>) -> Vec<Step> {
    match set.flag {
        Some((used, start, length)) => vec![at::delete_part(snapshot, used, start, length)],
        None => config::edits::deletion(snapshot, &set.at, &shortened(set.name)),
    }
}

fn renaming(snapshot: &Snapshot, set: &Set<'_>, name: &str) -> Step {
    let Some((used, start, _)) = set.flag else {
        return config::edits::renaming(snapshot, &set.at, &shortened(set.name), name);
    };
    let blanks = used.value.get(start..).and_then(|part| part.find(set.name));
    let exact = blanks.and_then(|blanks| at::exact_part(snapshot, used, start + blanks, set.name.len()));
    Step::rename(exact, &set.at, &shortened(set.name), name)
}
