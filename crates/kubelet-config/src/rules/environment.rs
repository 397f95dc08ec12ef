//! Variables that do not say what somebody thinks they say: overridden by a file, or set twice.

use std::collections::BTreeSet;

use super::{
    Check, Finding, Report, Severity,
    lost::{Arrived, env_file_line, environment_line, holds_flags, lost_sentence, reload, restart, shown_value, whole},
};
use crate::{
    edit::Change,
    kubelet::{
        location::Location,
        search::{flags_in, place_of, used_names, would_bring},
        snapshot::Snapshot,
        systemd::{Assignment, EventKind, Source, Variable},
    },
};

pub(super) const RULES: &[(&str, Check)] = &[("SD001", overridden_by_file), ("SD024", environment_order)];

/// How many assignments that lose are told of: the last ones, which were nearest to counting.
const MAX_OVERRIDDEN: usize = 20;
/// How many lost words a message or a fix may hold.
const MAX_LOST_WORDS: usize = 40;
/// How long a value may be that a fix writes out.
const MAX_FIX_BYTES: usize = 4000;

fn overridden_by_file(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let used = used_names(snapshot);
    for (name, variable) in &snapshot.unit.variables {
        let Source::File { declared } = &variable.effective.source else {
            continue;
        };
        if !used.contains(name.as_str()) {
            continue;
        }
        let mut overridden: Vec<&Assignment> = variable
            .overridden
            .iter()
            .rev()
            .filter(|overridden| overridden.at.line > 0 && overridden.at != variable.effective.at)
            .take(MAX_OVERRIDDEN)
            .collect();
        overridden.reverse();
        let lost: Vec<(&Assignment, Vec<String>)> = overridden
            .iter()
            .map(|overridden| (*overridden, lost_to(&arrived, overridden, variable)))
            .filter(|(overridden, words)| !words.is_empty() || is_wanted(snapshot, &arrived, overridden))
            .collect();
        if lost.is_empty() {
            let idle = overridden.iter().filter(|overridden| holds_flags(&overridden.value));
            idle.for_each(|overridden| report.add(without_effect(overridden, variable)));
        } else {
            report.add(file_wins(snapshot, &arrived, variable, declared, &lost));
        }
    }
}

/// The flags of an assignment that the one that counts lacks, and that nothing else brings.
fn lost_to(arrived: &Arrived<'_>, overridden: &Assignment, variable: &Variable) -> Vec<String> {
    let kept: BTreeSet<String> = flags_in(&variable.effective.value).iter().map(whole).collect();
    flags_in(&overridden.value)
        .iter()
        .filter(|flag| !arrived.has(flag))
        .map(whole)
        .filter(|flag| !kept.contains(flag))
        .take(MAX_LOST_WORDS)
        .collect()
}

/// Whether a wanted flag that does not arrive would, if this assignment counted.
fn is_wanted(snapshot: &Snapshot, arrived: &Arrived<'_>, assignment: &Assignment) -> bool {
    let exec = snapshot.unit.exec.as_ref();
    arrived.missing.iter().any(|wanted| would_bring(exec, assignment, wanted))
}

fn without_effect(overridden: &Assignment, variable: &Variable) -> Finding {
    let effective = &variable.effective;
    let equal = if overridden.value == effective.value {
        "which is equal"
    } else {
        "and everything in it reaches the kubelet all the same"
    };
    Finding::new(
        "SD001",
        Severity::Info,
        overridden.at.clone(),
        format!(
            "this value of {} is overridden by {}, {equal}; the line has no effect and can be removed",
            overridden.name, effective.at
        ),
    )
    .fix(format!("delete the line {}", overridden.at))
    .step(effective.at.clone(), "this counts")
}

fn file_wins(
    snapshot: &Snapshot,
    arrived: &Arrived<'_>,
    variable: &Variable,
    declared: &Location,
    lost: &[(&Assignment, Vec<String>)],
) -> Finding {
    let effective = &variable.effective;
    let name = &effective.name;
    let words: Vec<String> = distinct(lost.iter().flat_map(|(_, words)| words.iter().cloned()).take(MAX_LOST_WORDS));
    let severity = if lost.iter().any(|(overridden, _)| is_wanted(snapshot, arrived, overridden)) {
        Severity::Error
    } else if lost.iter().all(|(overridden, _)| is_default_beside(overridden, declared, variable)) {
        Severity::Info
    } else {
        Severity::Warning
    };
    let places = distinct(lost.iter().map(|(overridden, _)| overridden.at.to_string())).join(", ");
    let is_line = |(overridden, _): &(&Assignment, _)| overridden.source == Source::Environment;
    let rule = if lost.iter().any(is_line) {
        format!("a file always beats `Environment=` ({places}), whatever the order of the drop-ins")
    } else {
        format!("what is read later counts, and this is read after {places}")
    };
    let mut finding = Finding::new(
        "SD001",
        severity,
        effective.at.clone(),
        format!(
            "{name} is {} here; {declared} loads this file, and {rule}{}",
            shown_value(&effective.value),
            lost_sentence(&words)
        ),
    )
    .fix(format!(
        "write `{}` at {}, then {}",
        line_with(env_file_line, effective, &words),
        effective.at,
        restart(snapshot)
    ))
    .edit(&effective.at, Change::Lines(vec![line_with(env_file_line, effective, &words)]));
    for (overridden, _) in lost {
        finding = finding.step(first_flag(overridden), "this is lost");
        if let Source::File { declared } = &overridden.source {
            finding = finding.step(declared.clone(), format!("loads {}", overridden.at.file));
        }
    }
    finding = finding
        .step(declared.clone(), format!("loads {}", effective.at.file))
        .step(effective.at.clone(), "this counts");
    match variable.referenced_at.first() {
        Some(used) => finding.step(used.clone(), "used here"),
        None => finding,
    }
}

/// The place of the first flag in a value.
fn first_flag(assignment: &Assignment) -> Location {
    flags_in(&assignment.value).first().map_or_else(|| assignment.at.clone(), |flag| place_of(assignment, flag))
}

/// A default that stands in the same file as the `EnvironmentFile=` line meant to override it, flag by flag.
fn is_default_beside(overridden: &Assignment, declared: &Location, variable: &Variable) -> bool {
    let given = flags_in(&variable.effective.value);
    matches!(overridden.source, Source::Environment)
        && overridden.at.file == declared.file
        && flags_in(&overridden.value).iter().all(|flag| given.iter().any(|other| other.name == flag.name))
}

/// The line to write: a value with the lost words behind it, each flag once; in words if that would be too long.
fn line_with(write: fn(&str, &str) -> String, effective: &Assignment, lost: &[String]) -> String {
    if effective.value.len() > MAX_FIX_BYTES {
        return format!("{} with {} added", effective.name, lost.join(" "));
    }
    write(&effective.name, &joined(&effective.value, lost))
}

/// A value with the lost words behind it, each flag once.
fn joined(value: &str, lost: &[String]) -> String {
    let kept = value.split_whitespace().filter(|word| {
        let name = word.split('=').next();
        !word.starts_with("--") || lost.iter().all(|lost| lost.split('=').next() != name)
    });
    kept.map(str::to_owned).chain(lost.iter().cloned()).collect::<Vec<_>>().join(" ")
}

fn distinct(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn environment_order(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let used = used_names(snapshot);
    for (name, variable) in &snapshot.unit.variables {
        let effective = &variable.effective;
        if !matches!(effective.source, Source::Environment) || !used.contains(name.as_str()) {
            continue;
        }
        for overridden in variable.overridden.iter().rev().take(MAX_OVERRIDDEN) {
            let lost = lost_to(&arrived, overridden, variable);
            if matches!(overridden.source, Source::Environment) && !lost.is_empty() {
                report.add(set_again(snapshot, overridden, variable, &lost));
            }
        }
    }
    for event in &snapshot.unit.events {
        let EventKind::Reset { key, by } = &event.kind else {
            continue;
        };
        let lost = arrived.lost_words(&event.text);
        if key == "Environment" && !lost.is_empty() {
            report.add(
                Finding::new(
                    "SD024",
                    Severity::Warning,
                    event.at.clone(),
                    format!(
                        "the empty `Environment=` at {by}, which is loaded later, clears this line{}",
                        lost_sentence(&lost)
                    ),
                )
                .fix(format!(
                    "delete the empty `Environment=` at {by}, or repeat this line behind it, then {}",
                    reload(snapshot)
                ))
                .step(by.clone(), "clears every `Environment=` before it"),
            );
        }
    }
}

fn set_again(snapshot: &Snapshot, overridden: &Assignment, variable: &Variable, lost: &[String]) -> Finding {
    let effective = &variable.effective;
    let order = match (file_name(&overridden.at), file_name(&effective.at)) {
        (first, second) if overridden.at.file != effective.at.file && first != second => {
            format!("which is loaded later ({second} sorts after {first}; the directories do not matter)")
        }
        _ => "which counts because it comes later".to_owned(),
    };
    let finding = Finding::new(
        "SD024",
        Severity::Warning,
        overridden.at.clone(),
        format!("{} is set here and again at {}, {order}{}", overridden.name, effective.at, lost_sentence(lost)),
    )
    .fix(format!(
        "keep one line, with all flags: `{}` at {}, then {}",
        line_with(environment_line, effective, lost),
        effective.at,
        reload(snapshot)
    ))
    .step(first_flag(overridden), "this is lost")
    .step(effective.at.clone(), "this counts");
    match variable.referenced_at.first() {
        Some(used) => finding.step(used.clone(), "used here"),
        None => finding,
    }
}

fn file_name(at: &Location) -> &str {
    at.file.rsplit('/').next().unwrap_or(&at.file)
}

#[cfg(test)]
mod tests;
