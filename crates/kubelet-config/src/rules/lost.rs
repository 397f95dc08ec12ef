//! What the rules of this directory share: which flags of a text do not reach the kubelet, which of them are expected.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Launcher, Severity, Snapshot, flags_in, shortened};
use crate::kubelet::expected_flag::ExpectedFlag;
use crate::kubelet::flag_text::FlagText;
use crate::kubelet::systemd::{Assignment, Exec, Unit};

/// The most findings of a rule that are worked out: far more than a person reads, and a bound for a hostile tree.
pub(super) const MAX_FINDINGS: usize = 500;

/// Text as a message shows it, without blanks around it.
pub(super) fn quoted(text: &str) -> String {
    shortened(text.trim())
}

/// What reaches the kubelet, to find the parts of a text that do not.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    /// The expected flags that do not reach it; none where its arguments are not known.
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
            missing.retain(|expected| !expected.reaches(snapshot));
        }
        Self {
            missing,
            names: uses.iter().map(|used| used.name.as_str()).collect(),
            values: uses.iter().map(|used| (used.name.as_str(), used.value.as_str())).collect(),
        }
    }

    /// Whether a text holds an expected flag that does not reach the kubelet.
    pub(super) fn lacks_one_of(&self, text: &str) -> bool {
        self.missing.iter().any(|expected| expected.is_in(text))
    }

    /// `error` if a text holds an expected flag that does not reach the kubelet, else `other`.
    pub(super) fn error_if_expected(&self, text: &str, other: Severity) -> Severity {
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

    pub(super) fn has_name(&self, flag: &FlagText<'_>) -> bool {
        self.names.contains(flag.name.as_str())
    }

    /// The flags of a text that do not reach the kubelet, as written.
    pub(super) fn lost(&self, text: &str) -> Vec<String> {
        const MAX_FLAGS: usize = 40;
        flags_in(text).iter().filter(|flag| !self.has(flag)).map(whole).take(MAX_FLAGS).collect()
    }
}

pub(super) fn whole(flag: &FlagText<'_>) -> String {
    match flag.next {
        Some(next) => format!("{} {next}", flag.text),
        None => flag.text.to_owned(),
    }
}

pub(super) fn holds_flags(text: &str) -> bool {
    !flags_in(text).is_empty()
}

/// Whether an assignment, if it were the one that counts, would give the kubelet the flag: in its value, or because a
/// word `--flag=${NAME}` makes the flag of it.
pub(super) fn would_bring(exec: Option<&Exec>, assignment: &Assignment, expected: &ExpectedFlag) -> bool {
    let braces = format!("${{{}}}", assignment.name);
    let mut words = exec.into_iter().flat_map(|exec| &exec.words).filter(|word| word.text.contains(&braces));
    expected.is_in(&assignment.value)
        || words.any(|word| expected.is_in(&word.text.replacen(&braces, &assignment.value, 1)))
}

/// The variables that have a part in the kubelet's arguments.
pub(super) fn used_names(snapshot: &Snapshot) -> BTreeSet<&str> {
    let variables = snapshot.unit.variables.iter();
    let referenced =
        variables.filter(|(_, variable)| !variable.referenced_at.is_empty()).map(|(name, _)| name.as_str());
    let words = snapshot.command.args.iter();
    referenced.chain(words.flat_map(|word| &word.origins).map(|origin| origin.variable.as_str())).collect()
}

/// The variables that a replaced `ExecStart=` used, and that the one that counts does not use.
pub(super) fn dropped_names(unit: &Unit) -> BTreeSet<String> {
    let names = |exec: &Exec| exec.references().into_iter().map(|(name, _, _)| name);
    let mut dropped: BTreeSet<String> = unit.replaced_execs.iter().flat_map(names).collect();
    for name in unit.exec.iter().flat_map(names) {
        dropped.remove(&name);
    }
    dropped
}

/// Whether a command has variables that systemd does not expand, for the colon in front of it or what is before their `$`.
pub(super) fn is_not_expanded(exec: &Exec) -> bool {
    let texts = || exec.words.iter().map(|word| word.text.as_str());
    let is_variable = |text: &str| text.starts_with('$') && text.len() > 1 && !is_escaped(text);
    if exec.expands { texts().any(is_escaped) && !texts().any(is_variable) } else { texts().any(is_variable) }
}

/// `\$NAME` and `$$NAME`, as a script or a template leaves them in a unit: systemd expands neither.
pub(super) fn is_escaped(word: &str) -> bool {
    word.strip_prefix("$$").is_some_and(is_name)
        || word.strip_prefix("\\$").is_some_and(|name| is_name(name) && !name.starts_with('{'))
}

/// Why a value is not what it looks like, where a shell, or one equals sign less, would have made another of it.
pub(super) fn as_written(snapshot: &Snapshot, value: &str) -> Option<&'static str> {
    if value.starts_with('=') {
        Some("the second equals sign is a part of it")
    } else if value.starts_with("~/") {
        Some("only a shell expands '~'")
    } else {
        let has_variable = value.split('$').skip(1).any(is_name);
        let is_systemds = matches!(snapshot.command.launcher, Launcher::Direct | Launcher::Script);
        has_variable.then_some(if is_systemds {
            "systemd expands ${X} and the word $X of `ExecStart=` alone"
        } else {
            "no program expands the variable in it"
        })
    }
}

/// Whether what follows a dollar sign is a variable's name.
fn is_name(after: &str) -> bool {
    after.trim_start_matches('{').starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

pub(super) fn shown_value(value: &str) -> String {
    if value.trim().is_empty() { "empty".to_owned() } else { format!("'{}'", quoted(value)) }
}

pub(super) fn duration(secs: u64) -> String {
    match secs {
        ..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} d", secs / 86_400),
    }
}

/// The paths of a line that was meant to name several, or has a comment after its path: systemd takes all of it as one.
pub(super) fn two_paths(path: &Path) -> Option<Vec<&str>> {
    let words: Vec<&str> = path.to_str()?.split_whitespace().collect();
    let paths: Vec<&str> = words.iter().copied().take_while(|word| !word.starts_with('#')).collect();
    let are_paths = paths.iter().skip(1).all(|path| path.trim_start_matches('-').starts_with('/'));
    (words.len() > 1 && !paths.is_empty() && are_paths).then_some(paths)
}
