//! What `ExecStart=` makes of the variables: those that it does not use, uses as one word, or a newer one forgets.

use std::collections::BTreeSet;

use super::lost::{Arrived, MAX_FINDINGS, dropped_names, holds_flags, is_not_expanded, quoted, used_names, whole};
use super::remedy::{EnvironmentLines, add_flags, add_word, environment_word, has_specifiers, is_one_line};
use super::{Finding, Launcher, Location, Remedy, Report, Severity, Snapshot, Step, at, flags_in, settings};
use crate::kubelet::systemd::{Arg, Assignment, Exec, Source, Variable};
use crate::kubelet::text::nearest;

pub(super) fn not_referenced(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else { return };
    if is_not_expanded(exec) {
        return; // SD016 tells why no variable is used.
    }
    if snapshot.command.launcher == Launcher::Script {
        report.not_checked("SD002", "what the script in ExecStart= does with its environment");
        return;
    }
    let references = exec.references();
    let used = used_names(snapshot);
    let elsewhere = used_by_other_commands(snapshot);
    let dropped = dropped_names(&snapshot.unit);
    let arrived = Arrived::of(snapshot);
    let lines = EnvironmentLines::of(snapshot);
    let is_idle = |(name, variable): &(&String, &Variable)| {
        let from_a_file = matches!(variable.effective.source, Source::Environment | Source::File { .. });
        let is_used = used.contains(name.as_str()) || elsewhere.contains(name.as_str());
        from_a_file && !is_used && !dropped.contains(*name)
    };
    report.findings.extend(kubeadms_variable(snapshot, exec));
    let most = (MAX_COMPARISONS / references.len().max(1)).min(MAX_FINDINGS);
    for (name, variable) in snapshot.unit.variables.iter().filter(is_idle).take(most) {
        // A longer name (`…_OLD`) is chosen on purpose.
        let others = references.iter().map(|(used, ..)| used.as_str());
        let near = nearest(name, others.filter(|used| name.len() <= used.len() || !name.contains(*used)));
        let near = near.and_then(|near| references.iter().find(|(used, ..)| used == near));
        let near = near.map(|(used, at, _)| (used.as_str(), at));
        let meant = near.and_then(|(used, _)| snapshot.unit.variables.get(used));
        let near_is_set = meant.is_some_and(|meant| !meant.effective.value.is_empty());
        let severity = match (holds_flags(&variable.effective.value), near) {
            (true, Some(_)) => Severity::Error,
            (true, None) => Severity::Warning,
            (false, Some(_)) if !near_is_set && !variable.effective.value.is_empty() => Severity::Info,
            (false, _) => continue,
        };
        let deletion = lines.deletion(&variable.effective);
        report.add(used_by_nothing(snapshot, &arrived, variable, severity, near, deletion));
    }
}

/// kubeadm's variable that is set nowhere, because its file sets another one.
fn kubeadms_variable(snapshot: &Snapshot, exec: &Exec) -> Option<Finding> {
    const NAME: &str = "KUBELET_KUBEADM_ARGS";
    let (_, used_at, _) = exec.references().into_iter().find(|(name, ..)| name == NAME)?;
    let file = snapshot.unit.env_files.iter().find(|file| file.path.ends_with("kubeadm-flags.env"))?;
    let other = file.assignments.iter().find(|one| holds_flags(&one.value))?;
    // Of a slip in the name SD002 tells by itself.
    let is_set = nearest(&other.name, std::iter::once(NAME)).is_some()
        || snapshot.unit.variables.contains_key(NAME)
        || file.assignments.iter().any(|one| one.name == NAME);
    (!is_set).then_some(())?;
    let message = format!(
        "{NAME}, which `ExecStart=` uses, is set nowhere: this file, to which kubeadm writes it, sets {} instead",
        other.name
    );
    let finding =
        Finding::new("SD002", Severity::Warning, other.at.clone(), message).step(used_at, format!("uses ${NAME}"));
    Some(finding.remedy(renamed(snapshot, other, NAME)))
}

/// How many pairs of names are compared: far more than any unit has, and a bound for a hostile one.
const MAX_COMPARISONS: usize = 20_000;

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
    arrived: &Arrived<'_>,
    variable: &Variable,
    severity: Severity,
    near: Option<(&str, &Location)>,
    deletion: Step,
) -> Finding {
    let effective = &variable.effective;
    let name = &effective.name;
    let lost = arrived.lost(&effective.value);
    let new = |message: String| {
        Finding::new("SD002", severity, effective.at.clone(), message)
            .lost(lost.clone())
            .steps(near.map(|(used, used_at)| (used_at.clone(), format!("uses ${used}"))))
    };
    if let Some((who, place)) = own_arguments(snapshot) {
        return new(format!("{who} does not read the variable {name}"))
            .say(format!("write the flags into {place} and delete this line"));
    }
    let hint = near.map(|(used, used_at)| format!(". {used_at} uses ${used}")).unwrap_or_default();
    let finding = new(format!("{name} is set here, but `ExecStart=` does not use it{hint}"));
    if lost.is_empty() && holds_flags(&effective.value) {
        let fix = "delete this line, unless another program needs it: the kubelet gets these flags from elsewhere";
        return finding.say(fix);
    }
    // A variable of another name may be an old one, or another program's.
    let Some((used, _)) = near else {
        return finding.say(format!(
            "if the kubelet needs these flags, put them into a variable of `ExecStart=`, or add ${name} to `ExecStart=`"
        ));
    };
    // A flag that the kubelet gets from elsewhere may have its right value there.
    let is_sure = flags_in(&effective.value).iter().all(|flag| !arrived.has_name(flag));
    if is_free(snapshot, used, effective) {
        return finding.remedy(renamed(snapshot, effective, used).only_if(is_sure));
    }
    // kubeadm overwrites its own file.
    let is_kubeadms = effective.at.file.ends_with("/kubeadm-flags.env");
    match add_flags(snapshot, Some(used), &lost).filter(|_| !lost.is_empty() && !is_kubeadms) {
        Some(remedy) => finding.remedy(remedy.only_if(is_sure).and_delete(deletion)),
        None => finding.say(format!("put the flags into a variable of `ExecStart=`, or add ${name} to `ExecStart=`")),
    }
}

/// A distribution that has a place of its own for the kubelet's flags, and that place.
pub(super) fn own_arguments(snapshot: &Snapshot) -> Option<(&'static str, String)> {
    let launcher = snapshot.command.launcher;
    if let Some(name) = launcher.rancher_name() {
        let file = format!("/etc/rancher/{}/config.yaml", name.to_lowercase());
        return Some((name, format!("the list `kubelet-arg` of {file}")));
    }
    if launcher == Launcher::K0s {
        return Some(("k0s", "--kubelet-extra-args of its command".to_owned()));
    }
    let is_snap = matches!(launcher, Launcher::MicroK8s | Launcher::K8sSnap);
    is_snap.then(|| ("the snap", "the snap's file args/kubelet".to_owned()))
}

/// Whether an assignment counts if it gets this name: an empty one of a file overrides `Environment=`.
fn is_free(snapshot: &Snapshot, name: &str, assignment: &Assignment) -> bool {
    let is_file = |source: &Source| matches!(source, Source::File { .. });
    snapshot.unit.variables.get(name).is_none_or(|Variable { effective, .. }| {
        effective.value.trim().is_empty() && (is_file(&assignment.source) || !is_file(&effective.source))
    })
}

/// The assignment under the name of the variable that is used.
fn renamed(snapshot: &Snapshot, effective: &Assignment, used: &str) -> Remedy {
    let in_file = matches!(effective.source, Source::File { .. });
    let change = if in_file { used.to_owned() } else { environment_word(used, &effective.value) };
    let is_sure = holds_flags(&effective.value)
        && !effective.value.contains('$')
        && (in_file || is_one_line(effective) && effective.at.width > 0 && !has_specifiers(snapshot, &effective.at));
    let (name, at) = (&effective.name, &effective.at);
    Step::replace(is_sure.then(|| at.clone()), at, format!("rename {name} to {used}"), change).into()
}

/// The most uses of variables in braces that are judged, of which each looks at all of the variable's value.
const MAX_BRACES: usize = 100;

pub(super) fn braces_one_word(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else { return };
    if snapshot.command.launcher == Launcher::Script {
        return; // Who knows whether the script splits it.
    }
    if snapshot.command.launcher == Launcher::Direct {
        shell_commands(snapshot, report);
    }
    let in_braces: Vec<_> = exec.references().into_iter().filter(|(_, _, braces)| *braces).collect();
    for word in exec.words.iter().filter(|_| exec.expands) {
        report.findings.extend(shell_default(&word.text, &word.at));
    }
    for (name, at, _) in in_braces.iter().take(MAX_BRACES) {
        let Some(declared) = exec.words.iter().find(|word| word.at == *at) else { continue };
        let alone = declared.text == format!("${{{name}}}");
        if alone && is_flags_value(snapshot, at) {
            continue;
        }
        let value = snapshot.unit.variables.get(name).map_or("", |variable| variable.effective.value.as_str());
        let is_list = if alone {
            value.is_empty() || value.contains(char::is_whitespace)
        } else {
            value.contains(char::is_whitespace) && flags_in(value).iter().any(|flag| flag.offset > 0)
        };
        if is_list {
            let word = snapshot.unit.argv.iter().find(|word| word.declared == *at);
            report.add(one_word(snapshot, name, at, word, value, alone));
        }
    }
}

/// `$(command)` and the same in backticks, as a shell would run it: systemd splits it like any words.
fn shell_commands(snapshot: &Snapshot, report: &mut Report) {
    /// More words than anyone writes into one.
    const MAX_WORDS: usize = 30;
    let mut words = snapshot.command.args.as_slice();
    while let Some((first, rest)) = words.split_first() {
        words = rest;
        let opens = first.text.split_once("$(").map(|(_, after)| (after, ')'));
        let Some((after, close)) = opens.or_else(|| Some((first.text.split_once('`')?.1, '`'))) else { continue };
        let end = rest.iter().take(MAX_WORDS).position(|word| word.text.contains(close));
        let inner = &rest[..end.filter(|_| !after.contains(close)).map_or(0, |end| end + 1)];
        words = &rest[inner.len()..];
        let at = at::through(first.at(), inner.last().unwrap_or(first).at());
        let texts: Vec<&str> = std::iter::once(first).chain(inner).map(|word| word.text.as_str()).collect();
        let message = format!(
            "'{}' has a command as in a shell: systemd runs none, and the kubelet gets it as it is",
            quoted(&texts.join(" "))
        );
        let severity = if inner.is_empty() { Severity::Error } else { Severity::Fatal };
        let fix = "write what the command prints, or let an `ExecStartPre=` write that into an environment file,";
        report.add(Finding::new("SD006", severity, at.clone(), message).say_at(&at, fix));
    }
}

/// `${NAME:-default}`, as a shell would expand it.
fn shell_default(word: &str, at: &Location) -> Option<Finding> {
    let (start, _) = word.match_indices("${").next()?;
    let (inner, _) = word.get(start + 2..)?.split_once('}')?;
    let (name, rest) = inner.split_at(inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?);
    let default = rest.strip_prefix(':').unwrap_or(rest);
    (!name.is_empty() && default.starts_with(['-', '=', '+', '?'])).then_some(())?;
    let written = format!("${{{inner}}}");
    let gets = if rest.starts_with(':') { "it as it is" } else { "nothing for it" };
    let message = format!(
        "'{}' has a default as in a shell: systemd knows ${{{name}}}, but no default, and the kubelet gets {gets}",
        quoted(&written)
    );
    let right = word.replace(&written, &format!("${{{name}}}"));
    let is_empty = default.len() == 1;
    let unset = if is_empty { " (it is empty if the variable is not set)" } else { "" };
    let is_plain = usize::try_from(at.width).is_ok_and(|width| width == word.chars().count()) && is_empty;
    let what = format!("write `{}`{unset}", quoted(&right));
    let step = Step::replace(is_plain.then(|| at.clone()), at, what, right);
    Some(Finding::new("SD006", Severity::Error, at.clone(), message).with(step))
}

/// Whether the word is the value of the flag before it, be it empty: pflag takes whatever follows.
fn is_flags_value(snapshot: &Snapshot, at: &Location) -> bool {
    let mut uses = snapshot.flags.uses.iter().filter(|used| used.value_in_next_word && used.spec.is_some());
    uses.any(|used| snapshot.command.args.get(used.word + 2).is_some_and(|word| word.declared == *at))
}

fn one_word(snapshot: &Snapshot, name: &str, at: &Location, word: Option<&Arg>, value: &str, alone: bool) -> Finding {
    let text = word.map_or(value, |word| word.text.as_str());
    let (message, lost) = if value.is_empty() {
        let state = if snapshot.unit.variables.contains_key(name) { "empty" } else { "not set" };
        let message = format!(
            "{name} is {state}, so that ${{{name}}} is an empty argument: the kubelet takes it for a command and exits"
        );
        (message, Vec::new())
    } else {
        let message = format!("the kubelet gets all of ${{{name}}} as one argument, '{}'", quoted(text));
        (message, flags_in(text).iter().skip(usize::from(!alone)).map(whole).collect())
    };
    let exits = value.is_empty() && snapshot.command.launcher == Launcher::Direct;
    let severity = if exits { Severity::Fatal } else { Severity::Error };
    let finding = Finding::new("SD006", severity, at.clone(), message).lost(lost);
    let finding = if alone {
        let right = format!("${name}");
        let what = format!("write `{right}`, which systemd splits at spaces,");
        finding.with(Step::replace(Some(at.clone()), at, what, right))
    } else {
        finding.say_at(
            at,
            format!(
                "put the flags after the first space of {name} into another variable, and use that as a word of its own \
                 without braces (`$VARIABLE`)"
            ),
        )
    };
    let variable = snapshot.unit.variables.get(name);
    finding.steps(variable.map(|variable| (variable.effective.at.clone(), format!("sets {name}"))))
}

pub(super) fn exec_drops_variable(snapshot: &Snapshot, report: &mut Report) {
    let Some(exec) = &snapshot.unit.exec else { return };
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
            let message = format!("this `ExecStart=` replaces the one at {} and lacks a flag of it", replaced.at);
            let is_plain = !word.text.contains(|c: char| c.is_whitespace() || "\"'\\%$;".contains(c));
            let finding = Finding::new("SD007", Severity::Error, exec.at.clone(), message)
                .lost(vec![word.text.clone()])
                .step(word.at.clone(), format!("{} is here", quoted(&word.text)));
            report.add(finding.with(add_word(exec, &word.text, is_plain)));
        }
    }
}

fn drops(snapshot: &Snapshot, arrived: &Arrived<'_>, exec: &Exec, variable: &Variable, report: &mut Report) {
    let name = &variable.effective.name;
    let value = &variable.effective.value;
    let flags = flags_in(value);
    let lost: Vec<_> = flags.iter().filter(|flag| !arrived.has(flag)).collect();
    let is_chosen = || settings::is_standalone(snapshot) || lost.iter().all(|flag| arrived.has_name(flag));
    let severity = if arrived.lacks_one_of(value) || !is_chosen() {
        Severity::Error
    } else if !lost.is_empty() {
        Severity::Info // Given again with other values: most likely on purpose.
    } else {
        return;
    };
    let gives_anew = lost.iter().any(|flag| arrived.has_name(flag));
    let words: Vec<String> = lost.into_iter().map(whole).collect();
    let message = format!("this `ExecStart=` does not use ${name}, which the earlier one that it replaces uses");
    let finding = Finding::new("SD007", severity, exec.at.clone(), message)
        .lost(words)
        .step(variable.effective.at.clone(), format!("sets {name}"));
    // Values that the new command gives again are most likely meant.
    let is_sure = severity == Severity::Error && exec.expands && !gives_anew;
    let replaced = snapshot.unit.replaced_execs.iter().flat_map(Exec::references).filter(|(used, _, _)| used == name);
    let finding = finding
        .with(add_word(exec, &format!("${name}"), is_sure))
        .steps(replaced.map(|(_, at, _)| (at, format!("the command that is replaced uses ${name}"))))
        .step(exec.at.clone(), "the command that counts");
    report.add(finding);
}

#[cfg(test)]
mod tests;
