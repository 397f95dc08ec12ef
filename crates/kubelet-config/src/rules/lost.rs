//! What the rules of this folder say of lost text: which flags are in it, which of them are wanted, which rule tells
//! why, and how one restarts.

use std::collections::BTreeSet;

use super::{Finding, Severity};
use crate::kubelet::{
    search::{ExpectedFlag, FlagLoss, FlagText, flags_in},
    snapshot::Snapshot,
    systemd::{EventKind, NotADropIn, Source},
    text::shortened,
};

/// Text as a message shows it, without blanks around it.
pub(super) fn quoted(text: &str) -> String {
    shortened(text.trim())
}

/// `. Lost: --a --b`, or nothing.
pub(super) fn lost_sentence(words: &[String]) -> String {
    if words.is_empty() { String::new() } else { format!(". Lost: {}", quoted(&words.join(" "))) }
}

/// What reaches the kubelet, for the question what of a text does not.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    /// The wanted flags that do not reach it; none where its words are not known.
    pub(super) missing: Vec<ExpectedFlag>,
    names: BTreeSet<&'a str>,
    values: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Arrived<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let uses = &snapshot.flags.uses;
        let mut missing = Vec::new();
        if !snapshot.command.args.is_empty() {
            missing = ExpectedFlag::all(&snapshot.intent);
            missing.retain(|wanted| !wanted.reaches(snapshot));
        }
        Self {
            missing,
            names: uses.iter().map(|used| used.name.as_str()).collect(),
            values: uses.iter().map(|used| (used.name.as_str(), used.value.as_str())).collect(),
        }
    }

    /// Whether a text holds a wanted flag that does not reach the kubelet.
    pub(super) fn lacks_one_of(&self, text: &str) -> bool {
        self.missing.iter().any(|wanted| wanted.is_in(text))
    }

    /// `error` if a text holds a wanted flag that does not reach the kubelet, else `other`.
    pub(super) fn error_if_wanted(&self, text: &str, other: Severity) -> Severity {
        if self.lacks_one_of(text) { Severity::Error } else { other }
    }

    /// Whether the kubelet gets this flag with this value, from wherever.
    pub(super) fn has(&self, flag: &FlagText<'_>) -> bool {
        let has = |value: &str| self.values.contains(&(flag.name.as_str(), value));
        match flag.value {
            Some(value) => has(value),
            None => flag.next.is_some_and(has) || has("true"),
        }
    }

    /// Whether the kubelet gets this flag, with whatever value.
    pub(super) fn has_name(&self, flag: &FlagText<'_>) -> bool {
        self.names.contains(flag.name.as_str())
    }

    /// The flags of a text that do not arrive, as written.
    pub(super) fn lost_words(&self, text: &str) -> Vec<String> {
        flags_in(text).iter().filter(|flag| !self.has(flag)).map(whole).collect()
    }

    /// `. Lost: --a --b`, of the flags of a text that do not arrive; or nothing.
    pub(super) fn lost(&self, text: &str) -> String {
        lost_sentence(&self.lost_words(text))
    }
}

/// A flag with its value.
pub(super) fn whole(flag: &FlagText<'_>) -> String {
    match flag.next {
        Some(next) => format!("{} {next}", flag.text),
        None => flag.text.to_owned(),
    }
}

/// Whether a text holds flags.
pub(super) fn holds_flags(text: &str) -> bool {
    !flags_in(text).is_empty()
}

/// The unit's name as one types it.
pub(super) fn unit_name(snapshot: &Snapshot) -> &str {
    let name = &snapshot.unit.name;
    name.strip_suffix(".service").unwrap_or(name)
}

/// The command after an edit of an environment file.
pub(super) fn restart(snapshot: &Snapshot) -> String {
    format!("`systemctl restart {}` (an environment file needs no daemon-reload)", unit_name(snapshot))
}

/// The command after an edit of a unit or a drop-in.
pub(super) fn reload(snapshot: &Snapshot) -> String {
    format!("`systemctl daemon-reload && systemctl restart {}`", unit_name(snapshot))
}

/// An assignment as one would write it into an environment file.
pub(super) fn env_file_line(name: &str, value: &str) -> String {
    if value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '$' | '`')) {
        let mut escaped = String::with_capacity(value.len() + 2);
        for c in value.chars() {
            if matches!(c, '"' | '\\' | '$' | '`') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        format!("{name}=\"{escaped}\"")
    } else {
        format!("{name}={value}")
    }
}

/// An assignment as one would write it into a unit.
pub(super) fn environment_line(name: &str, value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '%' => escaped.push_str("%%"),
            c => escaped.push(c),
        }
    }
    format!("Environment=\"{name}={escaped}\"")
}

/// The rule that tells of a loss; the place of the lost text finds its finding.
pub(super) fn rule_of(loss: &FlagLoss<'_>) -> Option<&'static str> {
    Some(match loss {
        FlagLoss::LaterFlag { .. } => "FL005",
        FlagLoss::InsideWord { word } if word.origins.iter().any(|origin| origin.braces) => "SD006",
        FlagLoss::InsideWord { .. } => "SD016",
        FlagLoss::Overridden { effective, .. } => match effective.source {
            Source::File { .. } => "SD001",
            _ => "SD024",
        },
        FlagLoss::Cleared { key, .. } if *key == "Environment" => "SD024",
        FlagLoss::ReplacedExec { .. } | FlagLoss::Unreferenced { dropped: true, .. } => "SD007",
        FlagLoss::ReplacedList { .. } => "SD027",
        FlagLoss::Unreferenced { .. } => "SD002",
        FlagLoss::Cleared { .. } | FlagLoss::UnreadFile { .. } => "SD003",
        FlagLoss::Ignored { event, .. } | FlagLoss::DropIn { event, .. } => rule_of_event(&event.kind)?,
        FlagLoss::Memory => "SD020",
        FlagLoss::Process { .. } => "SD021",
        FlagLoss::Nowhere => return None,
    })
}

fn rule_of_event(kind: &EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::UnknownSection
        | EventKind::UnknownKey { .. }
        | EventKind::InUnknownSection { .. }
        | EventKind::OutsideSection
        | EventKind::RestOfFileLost { .. }
        | EventKind::FileUnreadable { .. }
        | EventKind::MalformedLine => "SD011",
        EventKind::InvalidAssignment { .. } | EventKind::BadQuoting => "SD005",
        EventKind::BadSpecifier { .. } => "SD018",
        EventKind::BackslashBlank | EventKind::ContinuationEnded => "SD015",
        EventKind::BadEnvironmentFile { .. } => "SD013",
        EventKind::DropInNotRead { .. } => "SD009",
        EventKind::DropInShadowed { .. } | EventKind::DropInMasked { .. } => "SD010",
        EventKind::EnvLineIgnored { bom: true, .. } => "SD025",
        EventKind::EnvLineIgnored { .. } | EventKind::EnvLineWithoutAssignment => "SD004",
        EventKind::EnvQuoteNotClosed { .. } | EventKind::EnvTextAfterQuote => "SD014",
        _ => return None,
    })
}

/// In words where a flag got lost, to follow "it does not reach the kubelet: ".
pub(super) fn reason(loss: &FlagLoss<'_>) -> String {
    match loss {
        FlagLoss::LaterFlag { by: (at, value), .. } => {
            format!("it is given here, but a later use of the flag counts ('{}', {at})", quoted(value))
        }
        FlagLoss::InsideWord { word } => {
            format!("it is a part of the one argument '{}', which is not read as a flag of its own", quoted(&word.text))
        }
        FlagLoss::Overridden { overridden, effective, .. } => format!(
            "{} is set here, but overridden by {}, where it is {}",
            overridden.name,
            effective.at,
            shown_value(&effective.value)
        ),
        FlagLoss::Cleared { key, by, .. } => format!("the empty `{key}=` at {by} clears this line"),
        FlagLoss::ReplacedExec { by: Some(exec), .. } => {
            format!("the `ExecStart=` at {} replaces this one", exec.at)
        }
        FlagLoss::ReplacedExec { by: None, .. } => "this `ExecStart=` is cleared".to_owned(),
        FlagLoss::ReplacedList { list, .. } => {
            format!("the list `{}` at {} replaces the one that this entry is in", list.key, list.by)
        }
        FlagLoss::Unreferenced { assignment, dropped: true, .. } => {
            format!("it is in {}, which the `ExecStart=` that counts does not use any more", assignment.name)
        }
        FlagLoss::Unreferenced { assignment, .. } => {
            format!("it is in {}, which no `ExecStart=` uses", assignment.name)
        }
        FlagLoss::Ignored { event, .. } | FlagLoss::DropIn { event, .. } => reason_of_event(&event.kind),
        FlagLoss::UnreadFile { file, .. } => format!("nothing reads {}", file.at.file),
        FlagLoss::Memory => "it is only in what systemd still has in memory, and no file says so any more".to_owned(),
        FlagLoss::Process { pid } => format!(
            "only the running kubelet (pid {pid}) has it; no file says so any more, and the next start loses it"
        ),
        FlagLoss::Nowhere => "no file that was searched sets it".to_owned(),
    }
}

fn reason_of_event(kind: &EventKind) -> String {
    match kind {
        EventKind::DropInNotRead { reason } => {
            format!("this file is no drop-in: {}", not_a_drop_in(*reason))
        }
        EventKind::DropInShadowed { by } | EventKind::FragmentHidden { by } => {
            format!("{} is read in the place of this file", by.display())
        }
        EventKind::DropInMasked { by, what } => {
            format!("this file is masked by {} ({what})", by.display())
        }
        EventKind::EnvLineIgnored { reason, .. } => {
            format!("systemd ignores this line of the environment file ({reason})")
        }
        EventKind::InvalidAssignment { .. } => {
            "the value is not quoted, so that systemd ignores this word of the line".to_owned()
        }
        _ => "systemd ignores this line".to_owned(),
    }
}

/// Why a file is no drop-in.
pub(super) fn not_a_drop_in(reason: NotADropIn) -> &'static str {
    match reason {
        NotADropIn::Suffix => "its name does not end in .conf",
        NotADropIn::Hidden => "its name starts with a dot",
        NotADropIn::Prefix => {
            "a prefix folder needs a dash in the unit's name (this one is for units that begin with its name)"
        }
        NotADropIn::Folder => "its folder is no drop-in folder of this unit",
    }
}

/// A value as a message shows it.
pub(super) fn shown_value(value: &str) -> String {
    if value.trim().is_empty() { "empty".to_owned() } else { format!("'{}'", quoted(value)) }
}

/// Adds the explanation of a loss to a finding: the rule that tells of it, by the place of the lost text.
pub(super) fn explained(finding: Finding, loss: &FlagLoss<'_>) -> Finding {
    // Of a file's text, or of many lines, the event's own place is what the rule's finding names.
    let evidence = match loss {
        FlagLoss::Ignored { event, .. } | FlagLoss::DropIn { event, .. } => Some(&event.at),
        loss => loss.place(),
    };
    match (rule_of(loss), evidence) {
        (Some(rule), Some(evidence)) => finding.caused_by(rule, evidence.clone()),
        _ => finding,
    }
}
