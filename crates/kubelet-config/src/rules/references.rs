//! What `ExecStart=` makes of the variables: those that it does not use, those that it uses as one word, those that a
//! newer `ExecStart=` forgets.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Check, Finding, Report, Severity,
    lost::{Arrived, env_file_line, environment_line, holds_flags, lost_sentence, quoted, reload, restart, whole},
};
use crate::kubelet::{
    layers::Launcher,
    location::Location,
    search::{dropped_names, flags_in, used_names},
    snapshot::Snapshot,
    systemd::{Arg, Assignment, Exec, ExecWord, Source, Variable},
};

pub(super) const RULES: &[(&str, Check)] =
    &[("SD002", not_referenced), ("SD006", braces_one_word), ("SD007", exec_drops_variable)];

fn not_referenced(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else {
        return;
    };
    if snapshot.command.launcher == Launcher::Script {
        report.not_checked("SD002", "what the script in ExecStart= does with its environment");
        return;
    }
    let references = exec.references();
    let used = used_names(snapshot);
    let elsewhere = used_by_other_commands(snapshot);
    let dropped = dropped_names(&snapshot.unit);
    let arrived = Arrived::of(snapshot);
    let mut comparisons = MAX_COMPARISONS;
    for (name, variable) in &snapshot.unit.variables {
        let from_a_file = matches!(variable.effective.source, Source::Environment | Source::File { .. });
        let is_used = used.contains(name.as_str()) || elsewhere.contains(name.as_str());
        if !from_a_file || is_used || dropped.contains(name) || comparisons < references.len() {
            continue;
        }
        comparisons -= references.len();
        let near = references
            .iter()
            .filter(|(used, _, _)| is_near(name, used))
            .min_by_key(|(used, _, _)| strsim::levenshtein(name, used));
        let near = near.map(|(used, at, _)| (used.as_str(), at));
        let near_is_set = near.is_some_and(|(used, _)| {
            snapshot.unit.variables.get(used).is_some_and(|used| !used.effective.value.is_empty())
        });
        let severity = match (holds_flags(&variable.effective.value), near) {
            (true, Some(_)) => Severity::Error,
            (true, None) => Severity::Warning,
            (false, Some(_)) if !near_is_set && !variable.effective.value.is_empty() => Severity::Info,
            (false, _) => continue,
        };
        let lost = arrived.lost(&variable.effective.value);
        report.add(used_by_nothing(snapshot, variable, severity, near, &lost));
    }
}

/// How many pairs of names are compared: far more than any unit has, and a bound for a hostile one.
const MAX_COMPARISONS: usize = 20_000;

/// Whether two names are so near that one is a slip for the other.
fn is_near(name: &str, used: &str) -> bool {
    const MAX_NAME_BYTES: usize = 64;
    if name.len().max(used.len()) > MAX_NAME_BYTES {
        return false;
    }
    let slips = if name.len().min(used.len()) >= 8 { 2 } else { 1 };
    name.eq_ignore_ascii_case(used) || strsim::levenshtein(name, used) <= slips
}

/// The variables that `ExecStartPre=` and its like use, as far as these were kept.
fn used_by_other_commands(snapshot: &Snapshot) -> BTreeSet<&str> {
    let settings = snapshot.unit.settings.iter();
    settings
        .filter(|((section, key), _)| section == "Service" && key.starts_with("Exec"))
        .flat_map(|(_, setting)| setting.value.split('$').skip(1))
        .map(|after| {
            let after = after.strip_prefix('{').unwrap_or(after);
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &after[..end.unwrap_or(after.len())]
        })
        .collect()
}

fn used_by_nothing(
    snapshot: &Snapshot,
    variable: &Variable,
    severity: Severity,
    near: Option<(&str, &Location)>,
    lost: &str,
) -> Finding {
    let effective = &variable.effective;
    let name = &effective.name;
    let at = effective.at.clone();
    let distribution = match snapshot.command.launcher {
        Launcher::K3s => Some(("k3s", "the list `kubelet-arg` of /etc/rancher/k3s/config.yaml")),
        Launcher::Rke2 => Some(("RKE2", "the list `kubelet-arg` of /etc/rancher/rke2/config.yaml")),
        Launcher::MicroK8s | Launcher::K8sSnap => Some(("the snap", "its file args/kubelet")),
        Launcher::Direct | Launcher::Script => None,
    };
    let (message, fix) = if let Some((who, place)) = distribution {
        (
            format!("{name} is not a variable that {who} reads{lost}"),
            format!("write the flags into {place} and delete this line"),
        )
    } else if let Some((used, used_at)) = near {
        (
            format!("{name} is set here, but no `ExecStart=` refers to it; {used_at} uses ${used}{lost}"),
            rename(snapshot, effective, used),
        )
    } else {
        (
            format!("{name} is set here, but no `ExecStart=` refers to it{lost}"),
            format!("put the flags into a variable that `ExecStart=` uses, or add ${name} to it"),
        )
    };
    let finding = Finding::new("SD002", severity, at, message).fix(fix);
    match near {
        Some((used, used_at)) => finding.step(used_at.clone(), format!("uses ${used}")),
        None => finding,
    }
}

fn rename(snapshot: &Snapshot, effective: &Assignment, used: &str) -> String {
    let in_file = matches!(effective.source, Source::File { .. });
    let after = if in_file { restart(snapshot) } else { reload(snapshot) };
    let already = snapshot.unit.variables.get(used).filter(|variable| !variable.effective.value.trim().is_empty());
    let Some(already) = already else {
        return format!("rename {} to {used} at {}, then {after}", effective.name, effective.at);
    };
    let value = format!("{} {}", already.effective.value, effective.value);
    if in_file {
        format!(
            "rename it; it then overrides {}, so put all flags into this one line: `{}`, then {after}",
            already.effective.at,
            env_file_line(used, &one_line(&value))
        )
    } else {
        format!(
            "move its words to {}: `{}`, then {after}",
            already.effective.at,
            environment_line(used, &one_line(&value))
        )
    }
}

/// A value on one line, as it goes into a fix.
fn one_line(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The most uses of variables in braces that are judged, of which each looks at all of the variable's value.
const MAX_BRACES: usize = 100;

fn braces_one_word(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else {
        return;
    };
    if snapshot.command.launcher == Launcher::Script {
        return; // Who knows whether the script splits it.
    }
    let declared: BTreeMap<&Location, &ExecWord> = exec.words.iter().rev().map(|word| (&word.at, word)).collect();
    let expanded = snapshot.unit.argv.iter().rev();
    let expanded: BTreeMap<&Location, &Arg> = expanded.map(|word| (&word.declared, word)).collect();
    let references = exec.references();
    let mut seen = BTreeSet::new();
    for (name, at, _) in references.iter().filter(|(_, _, braces)| *braces) {
        let Some(declared) = declared.get(at).filter(|_| seen.insert((name, at))) else {
            continue;
        };
        if seen.len() > MAX_BRACES {
            break;
        }
        let alone = declared.text == format!("${{{name}}}");
        let value = snapshot.unit.variables.get(name).map_or("", |variable| variable.effective.value.as_str());
        let is_list = if alone {
            value.is_empty() || value.contains(char::is_whitespace)
        } else {
            value.contains(char::is_whitespace) && flags_in(value).iter().any(|flag| flag.offset > 0)
        };
        if is_list {
            let word = expanded.get(at).copied();
            report.add(one_word(snapshot, name, at, word, value));
        }
    }
}

fn one_word(snapshot: &Snapshot, name: &str, at: &Location, word: Option<&Arg>, value: &str) -> Finding {
    let message = if value.is_empty() {
        let state = if snapshot.unit.variables.contains_key(name) { "empty" } else { "not set" };
        format!(
            "{name} is {state}, and ${{{name}}} then is an empty argument: the kubelet takes it for a command and exits"
        )
    } else {
        let text = word.map_or(value, |word| word.text.as_str());
        format!("${{{name}}} is passed as one argument '{}'", quoted(text))
    };
    let finding = Finding::new("SD006", Severity::Error, at.clone(), message).fix(format!(
        "write ${name}, a word of its own without braces, which is split at blanks, then {}",
        reload(snapshot)
    ));
    match snapshot.unit.variables.get(name) {
        Some(variable) => finding.step(variable.effective.at.clone(), format!("sets {name}")),
        None => finding,
    }
}

fn exec_drops_variable(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else {
        return;
    };
    if snapshot.command.launcher == Launcher::Script {
        return; // The script may read the variable itself.
    }
    let arrived = Arrived::of(snapshot);
    let used = used_names(snapshot);
    for name in dropped_names(&snapshot.unit) {
        let variable = snapshot.unit.variables.get(&name);
        if let Some(variable) = variable.filter(|_| !used.contains(name.as_str())) {
            drops(snapshot, &arrived, exec, variable, report);
        }
    }
    for replaced in &snapshot.unit.replaced_execs {
        let word = replaced.words.iter().find(|word| arrived.lacks_one_of(&word.text));
        if let Some(word) = word {
            report.add(
                Finding::new(
                    "SD007",
                    Severity::Error,
                    exec.at.clone(),
                    format!(
                        "this `ExecStart=` replaces the one at {} and lacks a flag of it. Lost: {}.",
                        replaced.at,
                        quoted(&word.text)
                    ),
                )
                .fix(format!("add {} to this line, then {}", quoted(&word.text), reload(snapshot)))
                .step(word.at.clone(), "the flag stands here"),
            );
        }
    }
}

fn drops(snapshot: &Snapshot, arrived: &Arrived<'_>, exec: &Exec, variable: &Variable, report: &mut Report) {
    let name = &variable.effective.name;
    let value = &variable.effective.value;
    let flags = flags_in(value);
    let lost: Vec<_> = flags.iter().filter(|flag| !arrived.has(flag)).collect();
    let severity = if arrived.lacks_one_of(value) || lost.iter().any(|flag| !arrived.has_name(flag)) {
        Severity::Error
    } else if !lost.is_empty() {
        Severity::Info // Given anew with other values: most likely on purpose.
    } else {
        return;
    };
    let words: Vec<String> = lost.into_iter().map(whole).collect();
    let mut finding = Finding::new(
        "SD007",
        severity,
        exec.at.clone(),
        format!("this `ExecStart=` replaces an earlier one and does not use ${name} any more{}", lost_sentence(&words)),
    )
    .fix(format!("add ${name} to this line, then {}", reload(snapshot)))
    .step(variable.effective.at.clone(), format!("sets {name}"));
    for replaced in &snapshot.unit.replaced_execs {
        for (used, at, _) in replaced.references() {
            if used == *name {
                finding = finding.step(at, format!("the command that is replaced uses ${name}"));
            }
        }
    }
    report.add(finding.step(exec.at.clone(), "the command that counts"));
}

#[cfg(test)]
mod tests;
