//! The layers between the unit and the kubelet: programs that hide its words, lists of k3s and RKE2 that replace one
//! another, arguments files that are split otherwise than they were meant.

use super::{Check, Finding, Report, Severity};
use crate::kubelet::{
    layers::{ArgsOddity, Launcher, Oddity, ReplacedList},
    snapshot::Snapshot,
};

pub(super) const RULES: &[(&str, Check)] =
    &[("SD023", wrapper_unresolvable), ("SD027", list_replaced), ("SD028", args_file_split)];

fn wrapper_unresolvable(snapshot: &Snapshot, report: &mut Report) {
    if let Some(unknown) = &snapshot.command.unknown {
        let message = format!(
            "the kubelet's arguments cannot be derived from the unit {}: {} {}",
            snapshot.unit.name, unknown.program, unknown.reason
        );
        let fix = if snapshot.command.launcher == Launcher::Script {
            format!(
                "let ExecStart= run the kubelet itself, or compare its running command line: tr '\\0' '\\n' \
                 </proc/$(systemctl show -P MainPID {})/cmdline",
                snapshot.unit.name
            )
        } else {
            "let the file hold what can be read without running anything".to_owned()
        };
        report.add(Finding::new("SD023", Severity::Info, unknown.at.clone(), message).fix(fix));
    }
    for (at, reason) in &snapshot.command.unreadable {
        let told = snapshot.command.unknown.as_ref();
        if told.is_some_and(|unknown| unknown.at == *at) {
            continue;
        }
        let message = format!(
            "{at} is a part of the kubelet's configuration and cannot be read: {reason}; what it says of the \
             kubelet is not judged"
        );
        report.add(
            Finding::new("SD023", Severity::Info, at.clone(), message)
                .fix(format!("mend {}, or take it away", at.file)),
        );
    }
}

fn list_replaced(snapshot: &Snapshot, report: &mut Report) {
    for list in &snapshot.command.replaced {
        report.add(replaced(list, snapshot.command.launcher));
    }
}

fn replaced(list: &ReplacedList, launcher: Launcher) -> Finding {
    let severity = if list.key == "kubelet-arg" { Severity::Error } else { Severity::Warning };
    let mut lost: Vec<&str> = list.lost.iter().take(MAX_STEPS).map(|(item, _)| item.as_str()).collect();
    let more = format!("{} more", list.lost.len().saturating_sub(MAX_STEPS));
    if list.lost.len() > MAX_STEPS {
        lost.push(&more);
    }
    let program = if launcher == Launcher::Rke2 { "RKE2" } else { "k3s" };
    let (what, why) = if list.by_command_line {
        ("on the command line", "the command line replaces lists")
    } else {
        ("here", "later files win; lists are not joined")
    };
    let message = format!(
        "{key} {what} replaces the list of {at} ({program}: {why}). Lost: {lost}",
        key = list.key,
        at = list.at,
        lost = lost.join(", "),
    );
    let fix = if list.by_command_line {
        format!(
            "write the command line's {key} into {file} and take it off the command line",
            key = list.key,
            file = list.at.file
        )
    } else {
        format!(
            "write {key}+: in {by} to append, or keep all {key} entries in one file; then restart the service",
            key = list.key,
            by = list.by
        )
    };
    let mut finding = Finding::new("SD027", severity, list.by.clone(), message).fix(fix);
    for (item, at) in list.lost.iter().take(MAX_STEPS) {
        let is_flag = list.key == "kubelet-arg";
        let item = if is_flag { format!("--{}", item.trim_start_matches('-')) } else { item.clone() };
        finding = finding.step(at.clone(), format!("{item} does not reach the kubelet"));
        if is_flag {
            finding.lost_flags.push(item);
        }
    }
    finding
}

/// The most lost items that are named.
const MAX_STEPS: usize = 10;

fn args_file_split(snapshot: &Snapshot, report: &mut Report) {
    for odd in &snapshot.command.oddities {
        report.add(split(odd));
    }
}

fn split(odd: &ArgsOddity) -> Finding {
    let at = &odd.at;
    let (message, fix) = match odd.what {
        Oddity::TwoBlanks => (
            format!(
                "two blanks between flags at {at}: the kubelet gets an empty argument and exits with `unknown command`"
            ),
            "write one flag a line, without blanks around it",
        ),
        Oddity::QuoteDeleted => (
            format!(
                "the quotes at {at} are deleted and their blank splits: the kubelet gets what follows as an argument \
                 of its own and exits with `unknown command`"
            ),
            "write the value without a blank: kubelite knows no quotes",
        ),
        Oddity::EmptyVariable => (
            format!(
                "the variable at {at} is not set: the kubelet gets an empty argument and exits with `unknown command`"
            ),
            "write the value out, or take the word away",
        ),
        Oddity::EmptyQuotes => (
            format!(
                "the quotes at {at} hold nothing: the kubelet gets an empty argument and exits with `unknown command`"
            ),
            "take the quotes away",
        ),
        Oddity::ShellSyntax('{') => (
            format!(
                "the braces at {at} are not quoted: bash makes several words of them, and the kubelet does not get \
                 the flag as it is written"
            ),
            "put the flag's value into single quotes",
        ),
        Oddity::ShellSyntax(character) => (
            format!(
                "`{character}` at {at} is not quoted: bash reads this file and stops with `syntax error near \
                 unexpected token`; the kubelet is not started"
            ),
            "put the flag's value into single quotes",
        ),
        Oddity::QuoteNotClosed => (
            format!(
                "the quote at {at} is not closed: bash reads this file and stops with `unexpected EOF`; the kubelet \
                 is not started"
            ),
            "close the quote on the same line",
        ),
    };
    Finding::new("SD028", Severity::Fatal, at.clone(), message).fix(format!("{fix}: {at}: {}", odd.text))
}

#[cfg(test)]
mod tests;
