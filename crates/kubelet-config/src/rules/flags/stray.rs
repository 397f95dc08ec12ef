//! SD016: words of the argument list that are no flags, and why they are none.

use super::MAX_FINDINGS;
use crate::kubelet::flags::{PositionalArg, table};
use crate::kubelet::systemd::{Arg, Assignment, ExecWord};
use crate::rules::encoding::{in_ascii, odd_character, plain};
use crate::rules::lost::{self, Arrived, whole};
use crate::rules::{Finding, FlagUse, Launcher, Location, Report, Severity, Snapshot, Step, at, flags_in, shortened};

pub(in crate::rules) fn stray(snapshot: &Snapshot, report: &mut Report) {
    if snapshot.command.launcher == Launcher::Script {
        return;
    }
    if let Some(finding) = not_expanded(snapshot) {
        return report.add(finding);
    }
    let arrived = Arrived::of(snapshot);
    let mut said = None;
    let strays = snapshot.flags.strays.iter().filter(|stray| !at::is_built_in(snapshot, stray.word));
    for stray in strays.take(MAX_FINDINGS) {
        if said.is_some_and(|last| stray.word <= last) {
            continue;
        }
        let (words, last) = stretch(snapshot, stray);
        said = Some(last);
        let place = words.first().zip(words.last()).map(|(first, last)| at::through(first.at(), last.at()));
        let place = place.unwrap_or_else(|| stray.at.clone());
        let (cause, step) = unfilled(words, &place).unwrap_or_else(|| cause(snapshot, &arrived, stray));
        let mut text = plain(&stray.text).unwrap_or_else(|| stray.text.clone());
        if text.split_once('=').is_some_and(|(name, _)| table::find(name).is_some()) {
            text.insert_str(0, "--");
        }
        let lost_flags = flags_in(&text).iter().map(whole).collect();
        let word = shortened(&stray.text);
        let message = if before(snapshot, stray).is_some_and(has_blank) {
            format!("{cause}, and '{word}' is not a flag: the kubelet exits")
        } else {
            let blank = if word.is_empty() { "" } else { " " };
            format!(
                "'{word}' is not a flag: the kubelet takes it for a command and exits with 'unknown command{blank}{word}'. {cause}"
            )
        };
        let finding = Finding::new("SD016", Severity::Fatal, place, message);
        let mut finding = Finding { lost_flags, ..finding }.with(step);
        if literal_variable(snapshot, stray).is_some() {
            let meant = meant(snapshot, &arrived, stray);
            finding = finding.steps(meant.map(|meant| (meant.at.clone(), format!("sets {} to flags", meant.name))));
        }
        if let Some(oddity) = oddity(snapshot, stray) {
            finding = finding.caused_by("SD028", oddity);
        }
        report.add(finding);
    }
}

/// The words of a line that one mistake has made what they are, this one among them, and the index of the last: a template, a flag with
/// blanks around its equals sign, a comment, a part of a shell's command.
fn stretch<'a>(snapshot: &'a Snapshot, stray: &PositionalArg) -> (&'a [Arg], usize) {
    /// More than a template has.
    const MAX_WORDS: usize = 30;
    let words = snapshot.command.args.get(1..).unwrap_or_default();
    let line = stray.at.file_line();
    let text = |index: usize| {
        words.get(index).filter(|word| word.at().file_line() == line).map_or("", |word| word.text.as_str())
    };
    let this = stray.word;
    let opened = (this.saturating_sub(MAX_WORDS)..=this).rev().find(|index| text(*index).contains("{{"));
    let closed = opened.and_then(|first| (first..first + MAX_WORDS).find(|index| text(*index).contains("}}")));
    let equals = before(snapshot, stray).filter(|used| has_blank(used) || takes_equals(used, text(this)));
    let rest = || (this + 1..words.len()).take_while(|index| !text(*index).is_empty());
    let ends_command = |index: usize| text(index).starts_with('#') || OPERATORS.contains(&text(index));
    let (first, last) = match (opened.zip(closed), equals) {
        (Some((first, last)), _) if (first..=last).contains(&this) => (first, last),
        _ if ends_command(this) => (this, rest().last().unwrap_or(this)),
        (_, Some(used)) if !text(used.word).is_empty() => {
            let is_value = text(this) == "=" && !text(this + 1).is_empty() && !text(this + 1).starts_with('-');
            (used.word, this + usize::from(is_value))
        }
        _ if is_redirection(text(this)) => {
            let is_of_it = |index: &usize| is_redirection(text(*index)) || text(index - 1).ends_with(['<', '>']);
            let last = rest().take_while(is_of_it).last().unwrap_or(this);
            (this, if ends_command(last + 1) { rest().last().unwrap_or(last) } else { last })
        }
        _ => (this, this),
    };
    (words.get(first..=last).unwrap_or_default(), last)
}

/// Whether a blank is on a side of the equals sign, and the kubelet takes the sign for a value, or nothing.
fn has_blank(used: &FlagUse) -> bool {
    used.spec.is_some() && if used.value_in_next_word { used.value == "=" } else { used.value.is_empty() }
}

/// Whether the word after a flag that needs no value has its equals sign.
fn takes_equals(used: &FlagUse, word: &str) -> bool {
    word.starts_with('=') && used.value == "true" && used.spec.is_some_and(|spec| spec.value.stands_alone())
}

/// A template that nothing has filled in.
fn unfilled(words: &[Arg], place: &Location) -> Option<(String, Step)> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let text = texts.join(" ");
    let template = shortened(text.get(text.find("{{")?..)?);
    let cause = format!("'{template}' is a template that no program has filled in");
    Some((cause, Step::say_at(place, format!("write the value in place of '{template}'"))))
}

/// What turns the expansion of variables off: the colon in front of the command, or what is before each `$`.
fn not_expanded(snapshot: &Snapshot) -> Option<Finding> {
    let exec = snapshot.unit.exec.as_ref().filter(|exec| lost::is_not_expanded(exec))?;
    // A word that is the value of a flag, or before the kubelet, does no harm here.
    let mut strays = snapshot.flags.strays.iter().map(|stray| stray.text.as_str()).filter(|text| text.contains('$'));
    let are_strays = strays.any(|stray| exec.words.iter().any(|word| word.text.ends_with(stray)));
    are_strays.then_some(())?;
    let escaped: Vec<_> = exec.words.iter().filter(|word| lost::is_escaped(&word.text)).collect();
    if let Some(first) = escaped.first().filter(|_| exec.expands) {
        let is_doubled = first.text.starts_with("$$");
        let why =
            if is_doubled { "`$$` is a literal dollar sign" } else { "systemd expands nothing after a backslash" };
        let got = |word: &&ExecWord| word.text[usize::from(is_doubled)..].to_owned();
        let all = escaped.iter().map(got).collect::<Vec<_>>().join(" ");
        let message = format!("{why}: the kubelet gets {} as it is written, and exits", shortened(&all));
        let exact = |at: &Location| (at.width > 0).then(|| at.clone());
        // From right to left: an edit moves what is after it.
        let steps = escaped.iter().rev().map(|word| Step::write(exact(&word.at), &word.at, "", &word.text[1..]));
        let finding = Finding::new("SD016", Severity::Fatal, first.at.clone(), message);
        return Some(finding.remedy(steps.collect::<Vec<_>>()));
    }
    let at = exec.words.first().map_or(&exec.at, |word| &word.at);
    let words = exec.words.iter().map(|word| word.text.as_str());
    let variables: Vec<&str> = words.filter(|text| text.contains('$')).collect();
    let message = format!(
        "the colon in `ExecStart={}` turns the expansion of variables off: the kubelet gets {} as they are written, and exits",
        exec.prefixes,
        shortened(&variables.join(" "))
    );
    let right = format!("{}{}", exec.prefixes.replace(':', ""), exec.program);
    let is_plain = at.width > 0 && !exec.prefixes.contains('@');
    let step = Step::write(is_plain.then(|| at.clone()), at, "ExecStart=", right);
    Some(Finding::new("SD016", Severity::Fatal, at.clone(), message).with(step))
}

/// The assignment that a word `$X` comes from.
fn literal_variable<'a>(snapshot: &'a Snapshot, stray: &PositionalArg) -> Option<&'a Assignment> {
    let origin = snapshot.command.args.get(1 + stray.word)?.origins.first()?;
    let is_variable = stray.text.starts_with('$') && !is_shell(&stray.text);
    let variable = snapshot.unit.variables.get(&origin.variable).filter(|_| is_variable && !origin.braces)?;
    Some(&variable.effective)
}

/// The assignment that a word `$X` in a value should have expanded to, where the kubelet does not get its flags.
fn meant<'a>(snapshot: &'a Snapshot, arrived: &Arrived<'_>, stray: &PositionalArg) -> Option<&'a Assignment> {
    let name = stray.text.trim_start_matches('$').trim_matches(['{', '}']);
    let variable = snapshot.unit.variables.get(name)?;
    let mut all = std::iter::once(&variable.effective).chain(variable.overridden.iter().rev());
    all.find(|one| !arrived.lost(&one.value).is_empty())
}

/// The oddity of an arguments file on the same line as the word.
fn oddity(snapshot: &Snapshot, stray: &PositionalArg) -> Option<Location> {
    let oddities = snapshot.command.oddities.iter();
    let mut same_line = oddities.filter(|oddity| oddity.at.file == stray.at.file && oddity.at.line == stray.at.line);
    same_line.next().map(|oddity| oddity.at.clone())
}

/// The most probable cause, and what to do.
fn cause(snapshot: &Snapshot, arrived: &Arrived<'_>, stray: &PositionalArg) -> (String, Step) {
    let (text, at) = (stray.text.as_str(), &stray.at);
    let said = |cause: &str, what: &str| (cause.to_owned(), Step::say_at(at, what));
    let remove = format!("remove '{}'", shortened(text));
    if let Some((letter, name)) = odd_character(text) {
        return (format!("It holds a {name} (U+{:04X})", u32::from(letter)), in_ascii(at, text));
    }
    if let Some((cause, what)) = own_cause(text) {
        return said(cause, what);
    }
    let next = snapshot.command.args.get(2 + stray.word).map_or("", |word| word.text.as_str());
    if let Some((cause, what)) = before(snapshot, stray).and_then(|used| after_flag(used, text, next)) {
        return said(&cause, &what);
    }
    if let Some(holder) = literal_variable(snapshot, stray) {
        let step = if let Some(meant) = meant(snapshot, arrived, stray) {
            Step::say_at(at, format!("write the flags of {} in place of '{}'", meant.at, shortened(text)))
        } else {
            let is_whole = usize::try_from(at.width).is_ok_and(|width| width == text.chars().count());
            // The blank after it goes with it.
            let has_blank = holder.value.contains(&format!("{text} "));
            let word = at.at(at.line, at.column, at.width + u32::from(has_blank));
            Step::delete(is_whole.then_some(word), at, &shortened(text))
        };
        return (format!("systemd expands no variable in the value of {}", holder.name), step);
    }
    if text.starts_with('$') {
        let words = snapshot.unit.exec.iter().flat_map(|exec| &exec.words);
        let declared = snapshot.command.args.get(1 + stray.word).map(|word| &word.declared);
        let cause = if words.filter(|word| Some(&word.at) == declared).any(|word| word.text.starts_with("$$")) {
            "systemd expands no variable here: `$$` is a literal dollar sign"
        } else {
            "systemd does not expand this variable: it expands only ${X}, and $X as a word of its own"
        };
        said(cause, "write the value out, or write ${X},")
    } else if snapshot.command.args.iter().take(1 + stray.word).any(|word| word.text == "--") {
        said("'--' ends the flags", "remove '--' before the word")
    } else {
        said(
            "It does not start with a dash, and the flag before it already has a value or takes none",
            &format!("{remove}, or quote it with the flag before it as one word, if it belongs to its value,"),
        )
    }
}

/// What the word itself tells.
fn own_cause(text: &str) -> Option<(&'static str, &'static str)> {
    match text {
        "" => Some((
            "The word is empty: \"\", a second blank in an arguments file, or ${VAR} of an empty variable",
            "remove the empty word, or write $VAR without braces",
        )),
        "\\" => {
            Some(("A backslash continues a line only as its last character", "remove the blanks after the backslash"))
        }
        _ if text.starts_with('#') => Some((
            "systemd does not read the text after a value as a comment",
            "give the comment a line of its own: remove '#' and what follows",
        )),
        _ if is_shell(text) => Some((
            "It is for a shell, and systemd runs none: StandardOutput= redirects output, ExecStartPre= runs another command",
            "remove what is for a shell",
        )),
        _ => None,
    }
}

/// What a shell has between two commands.
const OPERATORS: [&str; 5] = ["|", "||", "&", "&&", ";"];

fn is_redirection(text: &str) -> bool {
    text == "<" || text.starts_with("&>") || text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('>')
}

fn is_shell(text: &str) -> bool {
    OPERATORS.contains(&text) || is_redirection(text) || text.starts_with("$(") || text.starts_with('`')
}

fn before<'a>(snapshot: &'a Snapshot, stray: &PositionalArg) -> Option<&'a FlagUse> {
    snapshot.flags.uses.iter().rfind(|used| used.word + 1 + usize::from(used.value_in_next_word) == stray.word)
}

/// What the flag before a word says of the cause; `next` is the word after that one.
fn after_flag(used: &FlagUse, text: &str, next: &str) -> Option<(String, String)> {
    let flag = &used.written;
    let is_alone = used.spec?.value.stands_alone();
    let (cause, value) = if used.value_in_next_word && used.value == "=" {
        (format!("{flag} took '=' as its value"), text.to_owned())
    } else if used.value.is_empty() && !used.value_in_next_word {
        (format!("{flag}= has an empty value before the blank"), text.to_owned())
    } else if is_alone && used.value == "true" {
        let value = match text.strip_prefix('=') {
            Some("") if next.is_empty() || next.starts_with('-') => "false",
            Some("") => next,
            given => given.unwrap_or(text),
        };
        (format!("{flag} takes its value only after '=', so the kubelet reads it as true"), value.to_owned())
    } else if used.value.ends_with([',', ':']) {
        (format!("A blank follows the comma in the value of {flag}"), format!("{}{text}", used.value))
    } else {
        return None;
    };
    Some((cause, format!("write {flag}={value} as one word")))
}
