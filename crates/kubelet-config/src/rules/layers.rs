//! The layers between the unit and the kubelet: programs that hide its words, lists of k3s and RKE2 that replace one
//! another, arguments files that are split otherwise than they were meant.

pub(super) mod unknown_option;

use std::path::Path;

use serde_json::Value;

use super::{Finding, Launcher, Located, Location, Report, Severity, Snapshot, Step, shortened};
use crate::kubelet::layers::{Oddity, ReplacedList, Slip};
use crate::kubelet::text::chars;
use crate::step::unit_name;

/// Gives the kubelet of k3s or RKE2 this argument (`max-pods=50`).
pub(super) fn with_argument(snapshot: &Snapshot, argument: &str) -> Step {
    let unit = &snapshot.unit.name;
    let Some(program) = snapshot.command.launcher.rancher_name() else {
        return Step::say_at(&Location::file(unit), format!("add --{argument} to --kubelet-extra-args"));
    };
    let item = Value::from(argument);
    let what = format!("add {item} to the list kubelet-arg");
    let Some(new) = &snapshot.command.new_argument else {
        let file = Location::file(format!("/etc/rancher/{}/config.yaml", program.to_lowercase()));
        return Step::say_at(&file, format!("{what}, or to the command line if that has --kubelet-arg already,"));
    };
    let text = format!("{}{item}{}", new.before, new.after);
    if new.at.line == 0 {
        return Step::Append { to: new.at.clone(), lines: text };
    }
    Step::replace(Some(new.at.clone()), &new.at, what, text)
}

/// A key gets another name: with its quotes, if it has some.
fn rename(at: &Location, old: &str, new: &str) -> Step {
    let text = match at.width.checked_sub(chars(old)) {
        Some(0) => Some(new.to_owned()),
        Some(2) => Some(Value::from(new).to_string()),
        _ => None,
    };
    let exact = text.is_some().then(|| at.clone());
    Step::replace(exact, at, format!("write {new} instead of {}", shortened(old)), text.unwrap_or_default())
}

pub(super) fn wrapper_unresolvable(snapshot: &Snapshot, report: &mut Report) {
    let unit = &snapshot.unit.name;
    let unknown = snapshot.command.unknown.as_ref();
    if let Some(unknown) = unknown {
        let message = format!(
            "the kubelet's arguments cannot be read from the unit {unit}: {}. Its flags and settings were not checked",
            unknown.value
        );
        let fix = if snapshot.command.launcher == Launcher::Script {
            format!(
                "let ExecStart= run the kubelet itself, or read the arguments of the running kubelet with `tr '\\0' '\\n' \
                 </proc/$(systemctl show -P MainPID {unit})/cmdline`"
            )
        } else {
            "write into the file only what can be read without running a shell".to_owned()
        };
        report.add(Finding::new("SD023", Severity::Info, unknown.at.clone(), message).say(fix));
    }
    for (at, reason, is_fatal) in &snapshot.command.unreadable {
        if *is_fatal {
            let program = snapshot.command.launcher.rancher_name().unwrap_or_default();
            let message = format!("{program} cannot read its configuration and exits: {reason}");
            report.add(Finding::new("SD023", Severity::Fatal, at.clone(), message).say_at(at, "correct what is"));
        } else if unknown.is_none_or(|unknown| unknown.at != *at) {
            let message = format!("cannot read {at}: {reason}. Its settings were not checked");
            let fix = format!("fix or remove {}", at.file);
            report.add(Finding::new("SD023", Severity::Info, at.clone(), message).say(fix));
        }
    }
    report.findings.extend(snapshot.command.slips.iter().map(|(at, slip)| match slip {
        Slip::FileName => misnamed(snapshot, at),
        Slip::Map { list, meant } => map_in_list(snapshot.command.launcher, at, list, meant),
    }));
}

fn misnamed(snapshot: &Snapshot, at: &Location) -> Finding {
    let program = snapshot.command.launcher.rancher_name().unwrap_or_default();
    let right = Path::new(&*at.file).with_file_name("config.yaml");
    let message = format!("{program} does not read {at}, but {}, which does not exist", right.display());
    let fix = format!("run `mv {at} {}`, then `systemctl restart {}`", right.display(), unit_name(snapshot));
    Finding::new("SD023", Severity::Warning, at.clone(), message).say(fix)
}

/// The distribution's parser prints a map as Go does. k3s exits with its kubelet, and RKE2 starts its own again.
fn map_in_list(launcher: Launcher, at: &Location, list: &str, meant: &str) -> Finding {
    let program = launcher.rancher_name().unwrap_or_default();
    let message = format!(
        "an item of {list} is a map and not a text: {program} hands it on in Go's notation, which the kubelet refuses: it exits"
    );
    Finding::new("SD023", Severity::Fatal, at.clone(), message).say_at(at, format!("write `- {}`", shortened(meant)))
}

pub(super) fn list_replaced(snapshot: &Snapshot, report: &mut Report) {
    for list in &snapshot.command.replaced {
        report.add(replaced(list, snapshot.command.launcher));
    }
}

fn replaced(list: &ReplacedList, launcher: Launcher) -> Finding {
    let severity = if list.key.starts_with("kubelet-") { Severity::Error } else { Severity::Warning };
    let program = launcher.rancher_name().unwrap_or_default();
    let (key, at) = (&list.key, &list.at);
    let (message, step) = if list.by_command_line {
        (
            format!("--{key} is given more than once, and k0s takes the last one: that of {at} does not count"),
            Step::say_at(&list.by, format!("write all flags into one `\"--{key}=--first=1 --second=2\"`")),
        )
    } else {
        (
            format!("{key} replaces the list {key} of {at}: {program} uses the list of the last file only"),
            rename(&list.by, key, &format!("{key}+")),
        )
    };
    let finding = Finding::new("SD027", severity, list.by.clone(), message).with(step);
    let dashes = if list.key.starts_with("kubelet-") { "--" } else { "" };
    let lost = list.lost.iter().map(|(item, at)| (format!("{dashes}{}", item.trim_start_matches('-')), at));
    with_lost(finding, &lost.collect::<Vec<_>>())
}

/// With what does not reach the kubelet: flags, each with its place, or items of other lists.
fn with_lost(mut finding: Finding, lost: &[(String, &Location)]) -> Finding {
    const MAX_STEPS: usize = 10;
    let named = &lost[..lost.len().min(MAX_STEPS)];
    let mut shown: Vec<String> = named.iter().map(|(item, _)| shortened(item)).collect();
    finding = finding.steps(
        named.iter().zip(&shown).map(|((_, at), item)| ((*at).clone(), format!("{item} does not reach the kubelet"))),
    );
    let flags = named.iter().map(|(item, _)| item).filter(|item| item.starts_with("--"));
    finding.lost_flags.extend(flags.cloned());
    if lost.len() > named.len() {
        shown.push(format!("{} more", lost.len() - named.len()));
    }
    if !shown.is_empty() {
        finding = finding.and(&format!("Lost: {}", shown.join(", ")));
    }
    finding
}

pub(super) fn args_file_split(snapshot: &Snapshot, report: &mut Report) {
    for odd in &snapshot.command.oddities {
        report.add(split(odd));
    }
}

fn split(odd: &Located<Oddity>) -> Finding {
    const QUOTED: &str = "put the flag's value into single quotes";
    let at = &odd.at;
    let (message, fix) = match odd.value {
        Oddity::EmptyArgument => (
            "there is an empty argument here: between two spaces, between quotes, or of a variable that is not set. The \
             kubelet exits with `unknown command`"
                .to_owned(),
            "write one flag a line, without spaces around it, and the value in place of the variable",
        ),
        Oddity::QuoteDeleted => (
            "MicroK8s deletes quotes and splits at every space. The kubelet gets the text after the space as an argument \
             of its own and exits with `unknown command`"
                .to_owned(),
            "write the value without a space",
        ),
        Oddity::ShellSyntax('{') => (
            "the braces are not quoted. bash reads this file and makes several words of them, so that the kubelet gets \
             other flags"
                .to_owned(),
            QUOTED,
        ),
        Oddity::ShellSyntax(character) => (
            format!(
                "`{character}` is not quoted. bash reads this file and stops with `syntax error near unexpected token`: the \
                 kubelet is not started"
            ),
            QUOTED,
        ),
        Oddity::QuoteNotClosed => (
            "the quote is not closed. bash reads this file and stops with `unexpected EOF`: the kubelet is not started"
                .to_owned(),
            "close the quote on the same line",
        ),
    };
    Finding::new("SD028", Severity::Fatal, at.clone(), message).say_at(at, fix)
}

#[cfg(test)]
mod tests;
