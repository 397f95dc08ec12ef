//! Variables that do not say what somebody thinks they say: overridden by a file, or set twice.

use std::collections::BTreeSet;

use super::lost::{Arrived, MAX_FINDINGS, holds_flags, shown_value, used_names, whole, would_bring};
use super::remedy::{env_file_line, is_one_line, is_variable, with_flags};
use super::{Finding, Location, Report, Severity, Snapshot, Step, flags_in};
use crate::kubelet::flag_text::place_of;
use crate::kubelet::systemd::{Assignment, Event, EventKind, Exec, Source, Variable};

/// How many overridden assignments are named: the last ones.
const MAX_OVERRIDDEN: usize = 20;
/// How many lost flags a message or a fix may hold.
const MAX_LOST_WORDS: usize = 40;

pub(super) fn overridden_by_file(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let used = used_names(snapshot);
    let variables = snapshot.unit.variables.iter().filter(|(name, _)| used.contains(name.as_str()));
    for (_, variable) in variables.take(MAX_FINDINGS) {
        let Source::File { declared } = &variable.effective.source else { continue };
        let all = variable.overridden.iter().filter(|one| one.at.line > 0 && one.at != variable.effective.at);
        let all: Vec<&Assignment> = all.collect();
        let last = &all[all.len().saturating_sub(MAX_OVERRIDDEN)..];
        let lost: Vec<(&Assignment, Vec<String>)> = last
            .iter()
            .map(|overridden| (*overridden, lost_to(&arrived, overridden, variable)))
            .filter(|(overridden, words)| !words.is_empty() || is_expected(snapshot, &arrived, overridden))
            .collect();
        if lost.is_empty() {
            let idle = last.iter().filter(|overridden| holds_flags(&overridden.value));
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

/// Whether an expected flag that does not reach the kubelet would, if this assignment counted.
fn is_expected(snapshot: &Snapshot, arrived: &Arrived<'_>, assignment: &Assignment) -> bool {
    let exec = snapshot.unit.exec.as_ref();
    arrived.missing.iter().any(|expected| would_bring(exec, assignment, expected))
}

fn without_effect(overridden: &Assignment, variable: &Variable) -> Finding {
    let effective = &variable.effective;
    let why = if overridden.value == effective.value { "sets the same value" } else { "counts in its place" };
    let message =
        format!("this line has no effect: {} {why}. The kubelet gets every flag of this line anyway", effective.at);
    // No edit: it does no harm, and it may be another program's.
    Finding::new("SD001", Severity::Info, overridden.at.clone(), message)
        .say(format!("delete the line {}", overridden.at))
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
    let words: Vec<String> = distinct(lost.iter().flat_map(|(_, words)| words.iter().cloned()).take(MAX_LOST_WORDS));
    let severity = if lost.iter().any(|(overridden, _)| is_expected(snapshot, arrived, overridden)) {
        Severity::Error
    } else if lost.iter().all(|(overridden, _)| is_default_beside(overridden, declared, variable)) {
        Severity::Info
    } else {
        Severity::Warning
    };
    let places = distinct(lost.iter().map(|(overridden, _)| overridden.at.to_string())).join(", ");
    let is_line = |(overridden, _): &(&Assignment, _)| overridden.source == Source::Environment;
    let rule = if lost.iter().any(is_line) {
        "An environment file overrides `Environment=`, whatever the order of the drop-ins"
    } else {
        "Of two environment files or lines the later one counts"
    };
    let variables = if lost.iter().any(|(overridden, _)| overridden.value.contains('$')) {
        ". A `$` in the value is plain text: systemd expands variables in `ExecStart=` alone"
    } else {
        ""
    };
    let message = format!(
        "{} is {} here, which overrides {places}. {rule}{variables}",
        effective.name,
        shown_value(&effective.value),
    );
    let finding = Finding::new("SD001", severity, effective.at.clone(), message).lost(words.clone());
    let mut finding = match (lost, with_flags(snapshot, effective, &words)) {
        // The value itself is lost, which a word `--flag=${NAME}` makes a flag.
        ([.., (overridden, _)], _) if words.is_empty() && is_one_line(effective) => {
            finding.with(Step::lines(&effective.at, env_file_line(&effective.name, &overridden.value)))
        }
        (_, Some(remedy)) => finding.remedy(remedy.only_if(severity == Severity::Error || is_to_add(effective))),
        (_, None) => finding,
    };
    for (overridden, words) in lost {
        finding = finding.step(first_flag(overridden), is_lost(words));
        if let Source::File { declared } = &overridden.source {
            finding = finding.step(declared.clone(), format!("loads {}", overridden.at.file));
        }
    }
    finding
        .step(declared.clone(), format!("loads {}", effective.at.file))
        .step(effective.at.clone(), "this counts")
        .steps(variable.referenced_at.first().map(|used| (used.clone(), "used here")))
}

/// Whether an assignment was not to take flags away: it has none, as a package's default, or `$NAME` is to bring them.
fn is_to_add(effective: &Assignment) -> bool {
    let mut words = effective.value.split_whitespace().peekable();
    words.peek().is_none() || words.any(|word| is_variable(word, &effective.name))
}

/// The text of a step: the flags first, by which a consequence finds the place of its flag.
fn is_lost(flags: &[String]) -> String {
    if flags.is_empty() { "this value is lost".to_owned() } else { format!("{} is lost", flags.join(" ")) }
}

fn first_flag(assignment: &Assignment) -> Location {
    flags_in(&assignment.value).first().map_or_else(|| assignment.at.clone(), |flag| place_of(assignment, flag))
}

/// A default that is in the same file as the `EnvironmentFile=` line meant to override it, flag by flag.
fn is_default_beside(overridden: &Assignment, declared: &Location, variable: &Variable) -> bool {
    let given = flags_in(&variable.effective.value);
    matches!(overridden.source, Source::Environment)
        && overridden.at.file == declared.file
        && flags_in(&overridden.value).iter().all(|flag| given.iter().any(|other| other.name == flag.name))
}

fn distinct(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(item.clone())).collect()
}

pub(super) fn environment_order(snapshot: &Snapshot, report: &mut Report) {
    let arrived = Arrived::of(snapshot);
    let used = used_names(snapshot);
    let variables = snapshot.unit.variables.iter().filter(|(name, _)| used.contains(name.as_str()));
    for (_, variable) in variables.take(MAX_FINDINGS) {
        if !matches!(variable.effective.source, Source::Environment) {
            continue;
        }
        for overridden in variable.overridden.iter().rev().take(MAX_OVERRIDDEN) {
            let lost = lost_to(&arrived, overridden, variable);
            if matches!(overridden.source, Source::Environment) && !lost.is_empty() {
                report.add(set_again(snapshot, &arrived, overridden, variable, &lost));
            }
        }
    }
    for event in &snapshot.unit.events {
        if let EventKind::Unset { name, by } = &event.kind {
            report.findings.extend(unset(snapshot, &arrived, event, name, by));
        }
        let EventKind::Reset { key, by } = &event.kind else { continue };
        let lost = arrived.lost(&event.text);
        if key != "Environment" || lost.is_empty() {
            continue;
        }
        let message = format!("the empty `Environment=` at {by} is loaded later and clears this line");
        let fix = "if the kubelet needs these flags, write the line again below the empty `Environment=`";
        let finding = Finding::new("SD024", Severity::Warning, event.at.clone(), message).lost(lost).say_at(by, fix);
        report.add(finding.step(by.clone(), "clears every `Environment=` before it"));
    }
}

/// A variable with flags that `UnsetEnvironment=` takes out.
fn unset(snapshot: &Snapshot, arrived: &Arrived<'_>, event: &Event, name: &str, by: &Location) -> Option<Finding> {
    let lost = arrived.lost(&event.text);
    let is_used = snapshot.unit.exec.iter().flat_map(Exec::references).any(|(used, ..)| used == name);
    (is_used && !lost.is_empty()).then_some(())?;
    let message =
        format!("`UnsetEnvironment=` takes {name} out of the environment, and `ExecStart=` gets nothing for ${name}");
    let is_join = lost.iter().any(|flag| flag.starts_with("--kubeconfig"));
    let least = if is_join { Severity::Error } else { Severity::Warning };
    let severity = arrived.error_if_expected(&event.text, least);
    let finding = Finding::new("SD024", severity, by.clone(), message).lost(lost);
    let fix = format!("if the kubelet needs these flags, delete {name}");
    Some(finding.say_at(by, fix).step(event.at.clone(), format!("sets {name}")))
}

fn set_again(
    snapshot: &Snapshot,
    arrived: &Arrived<'_>,
    overridden: &Assignment,
    variable: &Variable,
    lost: &[String],
) -> Finding {
    let effective = &variable.effective;
    let is_drop_in = |at: &Location| snapshot.unit.dropins.iter().any(|path| path.to_str() == Some(&*at.file));
    let (first, second) = (file_name(&overridden.at), file_name(&effective.at));
    let order = if overridden.at.file == effective.at.file || !is_drop_in(&effective.at) {
        ", because it comes later".to_owned()
    } else if !is_drop_in(&overridden.at) {
        ", because systemd loads drop-ins after the unit file".to_owned()
    } else {
        format!(
            ". systemd loads drop-ins in the order of their file names, whatever their directory: {second} is after {first}"
        )
    };
    let message = format!("{} is set here, but {} overrides it{order}", overridden.name, effective.at);
    let finding = Finding::new("SD024", Severity::Warning, overridden.at.clone(), message).lost(lost.to_vec());
    let is_sure = is_expected(snapshot, arrived, overridden) || is_to_add(effective);
    let finding = match with_flags(snapshot, effective, lost) {
        Some(remedy) => finding.remedy(remedy.only_if(is_sure)),
        None => finding,
    };
    finding
        .step(first_flag(overridden), is_lost(lost))
        .step(effective.at.clone(), "this counts")
        .steps(variable.referenced_at.first().map(|used| (used.clone(), "used here")))
}

fn file_name(at: &Location) -> &str {
    at.file.rsplit('/').next().unwrap_or(&at.file)
}

#[cfg(test)]
mod tests;
