//! SD016: words of the argument list that are no flags, and why they are none.

use super::MAX_FINDINGS;
use crate::{
    edit::Change,
    kubelet::{
        flag_text::flags_in,
        flags::{FlagUse, PositionalArg},
        layers::Launcher,
        location::Location,
        snapshot::Snapshot,
        systemd::{Arg, Assignment, EventKind},
    },
    rules::{
        Finding, Report, Severity, at,
        at::shortened,
        encoding::{in_ascii, odd_character, plain},
        lost::{Arrived, whole},
    },
};

pub(in crate::rules) fn stray(snapshot: &Snapshot, report: &mut Report) {
    if snapshot.command.launcher == Launcher::Script {
        return;
    }
    let arrived = Arrived::of(snapshot);
    let mut comment: Option<&PositionalArg> = None;
    let strays = snapshot.flags.strays.iter().filter(|stray| {
        // The words of a comment are one mistake.
        let file_line = |stray: &PositionalArg| (stray.at.file.clone(), stray.at.line);
        if comment.is_some_and(|comment| file_line(comment) == file_line(stray)) {
            return false;
        }
        comment = stray.text.starts_with('#').then_some(*stray);
        !at::is_built_in(snapshot, stray.word)
    });
    for stray in strays.take(MAX_FINDINGS) {
        let (cause, fix) = cause(snapshot, &arrived, stray);
        let lost_flags =
            flags_in(&plain(&stray.text).unwrap_or_else(|| stray.text.clone())).iter().map(whole).collect();
        let word = shortened(&stray.text);
        let message = format!(
            "'{word}' is no flag: the kubelet takes it for a command and exits with 'unknown command{}{word}'; {cause}",
            if word.is_empty() { "" } else { " " },
        );
        let finding = Finding::new("SD016", Severity::Fatal, stray.at.clone(), message);
        let mut finding = edited(snapshot, &arrived, stray, Finding { lost_flags, ..finding }.fix(fix));
        if let Some(oddity) = oddity(snapshot, stray) {
            finding = finding.caused_by("SD028", oddity);
        }
        report.add(finding);
    }
}

/// With an edit where the word itself tells what is meant.
fn edited(snapshot: &Snapshot, arrived: &Arrived<'_>, stray: &PositionalArg, finding: Finding) -> Finding {
    if odd_character(&stray.text).is_some() {
        return in_ascii(snapshot, finding, &stray.at, &stray.text);
    }
    match literal_variable(snapshot, stray) {
        Some(assignment) if usize::try_from(stray.at.width).is_ok_and(|width| width == stray.text.chars().count()) => {
            if let Some(meant) = meant(snapshot, arrived, stray) {
                return finding.step(meant.at.clone(), format!("sets {} to flags", meant.name));
            }
            // The blank behind it goes with it.
            let has_blank = assignment.value.contains(&format!("{} ", stray.text));
            let at = stray.at.at(stray.at.line, stray.at.column, stray.at.width + u32::from(has_blank));
            finding.edit(&at, Change::Text(String::new()))
        }
        _ => finding,
    }
}

/// The assignment that a word `$X` comes from.
fn literal_variable<'a>(snapshot: &'a Snapshot, stray: &PositionalArg) -> Option<&'a Assignment> {
    let origin = snapshot.command.args.get(1 + stray.word)?.origins.first()?;
    let is_variable = stray.text.starts_with('$') && !is_shell(&stray.text);
    let variable = snapshot.unit.variables.get(&origin.variable).filter(|_| is_variable && !origin.braces)?;
    Some(&variable.effective)
}

/// The assignment whose flags a word `$X` in a value was to bring, where the kubelet does not get them.
fn meant<'a>(snapshot: &'a Snapshot, arrived: &Arrived<'_>, stray: &PositionalArg) -> Option<&'a Assignment> {
    let name = stray.text.trim_start_matches('$').trim_matches(['{', '}']);
    let variable = snapshot.unit.variables.get(name)?;
    let mut all = std::iter::once(&variable.effective).chain(variable.overridden.iter().rev());
    all.find(|one| !arrived.lost(&one.value).is_empty())
}

/// The oddity of an arguments file on whose line the word is.
fn oddity(snapshot: &Snapshot, stray: &PositionalArg) -> Option<Location> {
    let oddities = snapshot.command.oddities.iter();
    let mut same_line = oddities.filter(|oddity| oddity.at.file == stray.at.file && oddity.at.line == stray.at.line);
    same_line.next().map(|oddity| oddity.at.clone())
}

/// The most probable cause, and what to do.
fn cause(snapshot: &Snapshot, arrived: &Arrived<'_>, stray: &PositionalArg) -> (String, String) {
    let word = snapshot.command.args.get(1 + stray.word);
    if stray.text.is_empty() {
        return empty(snapshot, stray, word);
    }
    let text = stray.text.as_str();
    as_written(stray, text)
        .or_else(|| after_flag(before(snapshot, stray)?, text))
        .or_else(|| {
            let holder = literal_variable(snapshot, stray)?;
            let cause = format!("systemd expands no variable in the value of {}", holder.name);
            let fix = match meant(snapshot, arrived, stray) {
                Some(meant) => {
                    format!("write the flags of {} in place of '{}' at {}", meant.at, shortened(&stray.text), stray.at)
                }
                None => remove(stray),
            };
            Some((cause, fix))
        })
        .or_else(|| shell(stray, text))
        .or_else(|| {
            behind_dashes(snapshot, stray).then(|| {
                let fix = format!("remove '--' before {}", stray.at);
                ("'--' ends the flags".to_owned(), fix)
            })
        })
        .or_else(|| split(snapshot, stray, word?))
        .unwrap_or_else(|| {
            let cause =
                "it does not start with a dash, and the flag before it already has a value or takes none".to_owned();
            (cause, remove(stray))
        })
}

fn remove(stray: &PositionalArg) -> String {
    format!("remove '{}' at {}", shortened(&stray.text), stray.at)
}

/// What the word itself tells.
fn as_written(stray: &PositionalArg, text: &str) -> Option<(String, String)> {
    if let Some((letter, name)) = odd_character(text) {
        let code = u32::from(letter);
        return Some((
            format!("it holds a {name} (U+{code:04X})"),
            format!("at {}: type plain ASCII '-', '\"' and blanks", stray.at),
        ));
    }
    if text == "\\" {
        return Some((
            "a backslash continues a line only as the very last character of it".to_owned(),
            format!("remove the blanks behind the backslash at {}", stray.at),
        ));
    }
    text.starts_with('#').then(|| {
        let fix = "give the comment a line of its own: remove '#' and what follows at";
        ("systemd reads no comment behind a value".to_owned(), format!("{fix} {}", stray.at))
    })
}

/// A shell's operators and variables.
fn shell(stray: &PositionalArg, text: &str) -> Option<(String, String)> {
    if is_shell(text) {
        let fix = "to redirect output use StandardOutput=, to run another command use ExecStartPre=";
        return Some(("it belongs to a shell, and systemd runs none".to_owned(), format!("{}; {fix}", remove(stray))));
    }
    text.starts_with('$').then(|| {
        let cause = "systemd does not expand a variable here, but only $X as a word of its own and ${X}";
        let fix = format!("at {}: write the value out, or ${{X}}", stray.at);
        (cause.to_owned(), fix)
    })
}

fn empty(snapshot: &Snapshot, stray: &PositionalArg, word: Option<&Arg>) -> (String, String) {
    let variable = word.and_then(|word| {
        word.origins.first().map(|origin| origin.variable.clone()).or_else(|| unset_at(snapshot, word))
    });
    match variable.filter(|name| !name.is_empty()) {
        Some(name) => (
            format!("${{{name}}} is not set or empty, and in braces an empty variable still is an argument"),
            format!("write ${name} in place of ${{{name}}}: if it is empty, it is no argument"),
        ),
        None => (
            "the word is empty".to_owned(),
            format!("remove the empty word (\"\", or a second blank in an arguments file) at {}", stray.at),
        ),
    }
}

/// The unset variable that an empty word stands for.
fn unset_at(snapshot: &Snapshot, word: &Arg) -> Option<String> {
    snapshot.unit.events.iter().find_map(|event| match &event.kind {
        EventKind::UnsetVariable { name, braces: true } if event.at == word.declared => Some(name.clone()),
        _ => None,
    })
}

fn is_shell(text: &str) -> bool {
    matches!(text, "|" | "||" | "&" | "&&" | ";" | "<" | "tee")
        || text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('>')
        || text.starts_with("&>")
        || text.starts_with("$(")
        || text.starts_with('`')
}

/// The flag before it.
fn before<'a>(snapshot: &'a Snapshot, stray: &PositionalArg) -> Option<&'a FlagUse> {
    snapshot.flags.uses.iter().rfind(|used| used.word + 1 + usize::from(used.value_in_next_word) == stray.word)
}

/// What the flag before it says of the cause.
fn after_flag(used: &FlagUse, text: &str) -> Option<(String, String)> {
    let flag = &used.written;
    let join = |value: &str| format!("write {flag}={value} without blanks around '='");
    let spec = used.spec?;
    if used.value_in_next_word && used.value == "=" {
        return Some((format!("{flag} took '=' as its value"), join(text)));
    }
    if !spec.value.stands_alone() && used.value.is_empty() && !used.value_in_next_word {
        return Some((format!("{flag}= has an empty value before the blank"), join(text)));
    }
    if used.value_in_next_word && text == "=" {
        return Some((format!("a blank is before '=' of {flag}"), join("VALUE")));
    }
    if spec.value.stands_alone() && used.value == "true" {
        let value = if text == "=" { "false" } else { text };
        return Some((
            format!("{flag} takes its value only after '=', so the kubelet reads it as true"),
            format!("write {flag}={value}"),
        ));
    }
    if used.value.ends_with([',', ':']) {
        return Some((
            format!("a blank follows the comma in the value of {flag}"),
            format!("write {flag}={}{text}", used.value),
        ));
    }
    None
}

/// Whether `--` is before the word and is not a value.
fn behind_dashes(snapshot: &Snapshot, stray: &PositionalArg) -> bool {
    let words = snapshot.command.args.get(1..=stray.word).unwrap_or_default();
    // A use owns its word and, perhaps, the next one; both are in the order of the words.
    let mut uses = snapshot.flags.uses.iter().filter(|used| used.value_in_next_word).peekable();
    words.iter().enumerate().any(|(index, word)| {
        while uses.next_if(|used| used.word + 1 < index).is_some() {}
        let is_value = uses.peek().is_some_and(|used| used.word + 1 == index);
        word.text == "--" && !is_value
    })
}

/// Where word and flag before it come from one variable, which systemd split.
fn split(snapshot: &Snapshot, stray: &PositionalArg, word: &Arg) -> Option<(String, String)> {
    let variable = |word: &Arg| {
        let origin = word.origins.first()?;
        (!origin.braces && !origin.variable.is_empty()).then(|| origin.variable.clone())
    };
    let name = variable(word)?;
    let previous = snapshot.command.args.get(stray.word).and_then(variable)?;
    (previous == name).then(|| {
        (
            format!("${name} is split at blanks, and no flag before it takes this word"),
            format!("quote the value with its flag in ${name} at {}, or remove the blank", stray.at),
        )
    })
}
