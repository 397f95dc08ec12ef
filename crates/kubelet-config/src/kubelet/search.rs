//! Where the text of a flag got lost on its way to the kubelet: a search among what is overridden, ignored or not read.
//!
//! The order is that of likelihood, and of how near to the kubelet the text came: a later word of the argument list, a
//! later assignment, a list or a command that was replaced, a variable that nothing uses, a line that systemd ignores,
//! a file that nobody reads, systemd's memory, the running process.

mod text;
mod wanted;

use std::collections::BTreeSet;

use super::{
    flags::FlagUse,
    layers::{ReplacedList, UnknownOption},
    location::Location,
    snapshot::{Snapshot, UnreadFile},
    systemd::{Arg, Assignment, Event, EventKind, Exec, ExecWord, Unit},
};

pub use text::{FlagText, flags_in, place_of};
pub use wanted::ExpectedFlag;

/// Where a wanted flag got lost.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagLoss<'a> {
    /// It is in the argument list, and a later use of the same flag counts.
    LaterFlag {
        /// The use that is lost.
        at: &'a Location,
        /// The place of the use that counts, and its value.
        by: (&'a Location, &'a str),
    },
    /// It is a part of an argument that is something else.
    InsideWord {
        /// The argument.
        word: &'a Arg,
    },
    /// It is in an assignment that another one of the same variable beats.
    Overridden {
        /// The flag in the losing value.
        at: Location,
        /// The assignment that holds it.
        overridden: &'a Assignment,
        /// The assignment that counts.
        effective: &'a Assignment,
    },
    /// It is in a line that an empty assignment of the same key cleared.
    Cleared {
        /// The line.
        at: Location,
        /// The key.
        key: &'a str,
        /// The empty assignment.
        by: &'a Location,
    },
    /// It is written out in an `ExecStart=` that a later one replaces.
    ReplacedExec {
        /// The word.
        at: &'a Location,
        /// The command that counts.
        by: Option<&'a Exec>,
    },
    /// It is in a list of the second layer that a later one replaces.
    ReplacedList {
        /// The entry.
        at: &'a Location,
        /// The list.
        list: &'a ReplacedList,
    },
    /// It is below a key that the second layer does not know.
    UnknownOption {
        /// The item.
        at: &'a Location,
        /// The key.
        option: &'a UnknownOption,
    },
    /// It is in a variable that the command does not use.
    Unreferenced {
        /// The flag in the value.
        at: Location,
        /// The assignment.
        assignment: &'a Assignment,
        /// Whether a command that was replaced used it.
        dropped: bool,
    },
    /// It is in text that systemd ignores.
    Ignored {
        /// Where.
        at: Location,
        /// What became of the text.
        event: &'a Event,
    },
    /// It is in a drop-in that is not read.
    DropIn {
        /// Where.
        at: Location,
        /// Why it is not read.
        event: &'a Event,
    },
    /// It is in a file that nothing reads.
    UnreadFile {
        /// Where.
        at: Location,
        /// The file.
        file: &'a UnreadFile,
    },
    /// It is in systemd's memory of the unit alone: the next daemon-reload loses it.
    Memory,
    /// It is in the running process alone: the next start loses it.
    Process {
        /// The process.
        pid: u32,
    },
    /// Nobody has written it anywhere that was searched.
    Nowhere,
}

impl FlagLoss<'_> {
    /// Where the lost text stands.
    pub fn place(&self) -> Option<&Location> {
        match self {
            Self::LaterFlag { at, .. }
            | Self::ReplacedExec { at, .. }
            | Self::ReplacedList { at, .. }
            | Self::UnknownOption { at, .. } => Some(at),
            Self::InsideWord { word } => Some(word.at()),
            Self::Overridden { at, .. }
            | Self::Cleared { at, .. }
            | Self::Unreferenced { at, .. }
            | Self::Ignored { at, .. }
            | Self::DropIn { at, .. }
            | Self::UnreadFile { at, .. } => Some(at),
            Self::Memory | Self::Process { .. } | Self::Nowhere => None,
        }
    }
}

/// Where a wanted flag got lost; to be asked only if it does not [reach](ExpectedFlag::reaches) the kubelet.
pub fn find<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> FlagLoss<'a> {
    None.or_else(|| in_arguments(snapshot, wanted))
        .or_else(|| overridden(snapshot, wanted))
        .or_else(|| replaced(snapshot, wanted))
        .or_else(|| unreferenced(snapshot, wanted))
        .or_else(|| ignored(&snapshot.unit, wanted))
        .or_else(|| unread(snapshot, wanted))
        .or_else(|| remembered(snapshot, wanted))
        .unwrap_or(FlagLoss::Nowhere)
}

fn in_arguments<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    let uses: Vec<&FlagUse> = snapshot.flags.all(wanted.flag).collect();
    if let (Some(lost), Some(last)) = (uses.iter().find(|used| wanted.is_value(&used.value)), uses.last()) {
        return Some(FlagLoss::LaterFlag { at: &lost.at, by: (&last.at, &last.value) });
    }
    let mut words = snapshot.command.args.iter().skip(1);
    words.find(|word| !is_plain(word) && wanted.is_in(&word.text)).map(|word| FlagLoss::InsideWord { word })
}

/// Whether a word is one flag and nothing else.
fn is_plain(word: &Arg) -> bool {
    flags_in(&word.text).first().is_some_and(|flag| flag.offset == 0 && flag.text.len() == word.text.len())
}

fn overridden<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    let used = used_names(snapshot);
    let variables = &snapshot.unit.variables;
    for (name, variable) in variables.iter().filter(|(name, _)| used.contains(name.as_str())) {
        let words = words_with(snapshot.unit.exec.as_ref(), name);
        let lost = variable
            .overridden
            .iter()
            .rev()
            .find_map(|overridden| Some((overridden, in_assignment(overridden, &words, wanted)?)));
        if let Some((overridden, at)) = lost {
            return Some(FlagLoss::Overridden { at, overridden, effective: &variable.effective });
        }
    }
    snapshot.unit.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Reset { key, by } if key != "ExecStart" => {
            Some(FlagLoss::Cleared { at: text::event_place(event, wanted)?, key, by })
        }
        _ => None,
    })
}

/// The words of a command that have `${NAME}` in them; a handful is enough.
fn words_with<'a>(exec: Option<&'a Exec>, name: &str) -> Vec<&'a ExecWord> {
    const ENOUGH: usize = 8;
    let braces = format!("${{{name}}}");
    exec.into_iter().flat_map(|exec| &exec.words).filter(|word| word.text.contains(&braces)).take(ENOUGH).collect()
}

/// Where an assignment holds the flag: in its value, or because a word `--flag=${NAME}` would make the flag of it.
fn in_assignment(assignment: &Assignment, words: &[&ExecWord], wanted: &ExpectedFlag) -> Option<Location> {
    if let Some(flag) = flags_in(&assignment.value).into_iter().find(|flag| wanted.matches(flag)) {
        return Some(place_of(assignment, &flag));
    }
    let braces = format!("${{{}}}", assignment.name);
    words
        .iter()
        .any(|word| wanted.is_in(&word.text.replacen(&braces, &assignment.value, 1)))
        .then(|| assignment.at.clone())
}

/// Whether a wanted flag would be there if this assignment counted.
pub fn would_bring(exec: Option<&Exec>, assignment: &Assignment, wanted: &ExpectedFlag) -> bool {
    in_assignment(assignment, &words_with(exec, &assignment.name), wanted).is_some()
}

fn replaced<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    let list = snapshot.command.replaced.iter().rev().find_map(|list| {
        list.lost.iter().find(|(entry, _)| wanted.is_entry(entry)).map(|(_, at)| FlagLoss::ReplacedList { at, list })
    });
    let unknown = snapshot.command.unknown_options.iter().find_map(|option| {
        let mut items = option.items.iter();
        items.find(|(item, _)| wanted.is_entry(item)).map(|(_, at)| FlagLoss::UnknownOption { at, option })
    });
    list.or(unknown).or_else(|| {
        let execs = snapshot.unit.replaced_execs.iter().rev();
        execs
            .flat_map(|exec| &exec.words)
            .find(|word| wanted.is_in(&word.text))
            .map(|word| FlagLoss::ReplacedExec { at: &word.at, by: snapshot.unit.exec.as_ref() })
    })
}

fn unreferenced<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    let used = used_names(snapshot);
    let dropped = dropped_names(&snapshot.unit);
    let variables = &snapshot.unit.variables;
    let unused = variables.iter().filter(|(name, _)| !used.contains(name.as_str()));
    unused
        .flat_map(|(_, variable)| std::iter::once(&variable.effective).chain(variable.overridden.iter().rev()))
        .find_map(|assignment| {
            Some(FlagLoss::Unreferenced {
                at: in_assignment(assignment, &[], wanted)?,
                assignment,
                dropped: dropped.contains(&assignment.name),
            })
        })
}

/// The variables that have a part in the kubelet's arguments.
pub fn used_names(snapshot: &Snapshot) -> BTreeSet<&str> {
    let variables = snapshot.unit.variables.iter();
    let referenced =
        variables.filter(|(_, variable)| !variable.referenced_at.is_empty()).map(|(name, _)| name.as_str());
    let words = snapshot.command.args.iter();
    referenced.chain(words.flat_map(|word| &word.origins).map(|origin| origin.variable.as_str())).collect()
}

/// The variables that a command used which was replaced, and that the one that counts does not use.
pub fn dropped_names(unit: &Unit) -> BTreeSet<String> {
    let names = |exec: &Exec| exec.references().into_iter().map(|(name, _, _)| name);
    let mut dropped: BTreeSet<String> = unit.replaced_execs.iter().flat_map(names).collect();
    for name in unit.exec.iter().flat_map(names) {
        dropped.remove(&name);
    }
    dropped
}

/// Whether an event tells of a file that is not read.
fn is_drop_in(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::DropInNotRead { .. }
            | EventKind::DropInShadowed { .. }
            | EventKind::DropInMasked { .. }
            | EventKind::FragmentHidden { .. }
    )
}

/// Whether an event's text is lost, and not merely odd.
fn is_ignored(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::UnknownSection
            | EventKind::InUnknownSection { .. }
            | EventKind::UnknownKey { .. }
            | EventKind::OutsideSection
            | EventKind::MalformedLine
            | EventKind::RestOfFileLost { .. }
            | EventKind::InvalidAssignment { .. }
            | EventKind::BadSpecifier { .. }
            | EventKind::BadQuoting
            | EventKind::BadCommand { .. }
            | EventKind::BadEnvironmentFile { .. }
            | EventKind::EnvLineIgnored { .. }
            | EventKind::EnvLineWithoutAssignment
            | EventKind::EnvCommentContinued
            | EventKind::EnvQuoteNotClosed { .. }
            | EventKind::Unset { .. }
    )
}

fn ignored<'a>(unit: &'a Unit, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    unit.events
        .iter()
        .filter(|event| is_ignored(&event.kind))
        .find_map(|event| Some(FlagLoss::Ignored { at: text::event_place(event, wanted)?, event }))
}

fn unread<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    let file = snapshot.unread_files.iter().find_map(|file| {
        let at = file.assignments.iter().find_map(|assignment| in_assignment(assignment, &[], wanted))?;
        Some(FlagLoss::UnreadFile { at, file })
    });
    file.or_else(|| {
        snapshot
            .unit
            .events
            .iter()
            .filter(|event| is_drop_in(&event.kind))
            .find_map(|event| Some(FlagLoss::DropIn { at: text::event_place(event, wanted)?, event }))
    })
}

fn remembered<'a>(snapshot: &'a Snapshot, wanted: &ExpectedFlag) -> Option<FlagLoss<'a>> {
    if let Some(loaded) = &snapshot.loaded {
        let mut texts = loaded.environment.iter().chain(loaded.exec_start.iter().flatten());
        if texts.any(|text| wanted.is_in(text)) {
            return Some(FlagLoss::Memory);
        }
    }
    let process = snapshot.process.as_ref()?;
    wanted.is_in(&process.argv.join(" ")).then_some(FlagLoss::Process { pid: process.pid })
}

#[cfg(test)]
mod tests;
