//! `--show`: what the kubelet gets, each part with where it comes from and what it overrides.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::json::{from_words, launcher_word, shown_value, source_word, texts};
use crate::kubelet::{
    layers::Launcher,
    shown::harmless,
    snapshot::Snapshot,
    systemd::{Assignment, EnvFileState, EventKind, LoadState, Source, Word},
};

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Show {
    /// The kubelet's arguments, word by word
    Argv,
    /// The environment of its command, with what each value overrides
    Env,
    /// The settings that count: flags over files over defaults
    Effective,
    /// The files that make up the unit, in the order in which systemd reads them
    Dropins,
}

impl Show {
    pub(super) fn table(self, snapshot: &Snapshot) -> String {
        let mut out = String::new();
        match self {
            Self::Argv => argv(&mut out, snapshot),
            Self::Env => env(&mut out, snapshot),
            Self::Effective => effective(&mut out, snapshot),
            Self::Dropins => dropins(&mut out, snapshot),
        }
        out
    }
}

/// A line of the table; nothing in it steers a terminal.
fn row(out: &mut String, indent: usize, text: &str) {
    let _ = writeln!(out, "{:indent$}{}", "", harmless(text));
}

fn argv(out: &mut String, snapshot: &Snapshot) {
    let launch = &snapshot.launch;
    let unit = &snapshot.unit;
    if let Some(exec) = &unit.exec {
        row(out, 0, &format!("ExecStart= at {}", exec.at));
    }
    words(out, &unit.argv, |_| false);
    if launch.launcher == Launcher::Direct && launch.words.len() == unit.argv.len() {
        return;
    }
    row(out, 0, "");
    if launch.words.is_empty() {
        row(
            out,
            0,
            "the kubelet's own arguments cannot be known from files",
        );
        return;
    }
    let order = if launch.order_significant {
        ""
    } else {
        "; their order is not known"
    };
    let how = launcher_word(launch.launcher);
    row(out, 0, &format!("the kubelet gets ({how}{order}):"));
    words(out, &launch.words, |index| {
        launch.built_in.get(index).copied().unwrap_or(false)
    });
}

fn words(out: &mut String, words: &[Word], is_built_in: impl Fn(usize) -> bool) {
    let width = words.len().saturating_sub(1).to_string().len();
    for (index, (word, text)) in words.iter().zip(texts(words)).enumerate() {
        let text = if text.is_empty() {
            "\"\" (an empty argument)".to_owned()
        } else {
            text
        };
        row(out, 0, &format!("{index:>width$}  {text}"));
        if is_built_in(index) {
            row(out, width + 4, "set by the distribution itself");
            continue;
        }
        if word.origins.is_empty() {
            row(out, width + 4, &word.declared.to_string());
        }
        for origin in &word.origins {
            let at = &origin.at;
            let text = match (origin.variable.as_str(), origin.braces) {
                ("", _) => at.to_string(),
                (name, true) => format!("${{{name}}} at {at}"),
                (name, false) => format!("${name} at {at}"),
            };
            row(out, width + 4, &text);
        }
    }
}

fn env(out: &mut String, snapshot: &Snapshot) {
    // What systemd sets at the start alone has no value yet.
    let variables = &snapshot.unit.variables;
    let known = variables.iter().filter(|(_, variable)| {
        !variable.winner.value.is_empty() || variable.winner.source != Source::Manager
    });
    for (name, variable) in known {
        row(out, 0, &format!("{name}={}", shown_value(&variable.winner)));
        row(out, 4, &format!("from {}", origin(&variable.winner)));
        for loser in variable.losers.iter().rev() {
            row(
                out,
                4,
                &format!("over {}: {name}={}", origin(loser), shown_value(loser)),
            );
        }
        match variable.referenced_at.as_slice() {
            [] => {}
            [at, ..] => row(out, 4, &format!("used at {at}")),
        }
    }
    if snapshot.unit.variables.is_empty() {
        row(out, 0, "no variables");
    }
}

fn origin(assignment: &Assignment) -> String {
    match &assignment.source {
        Source::Manager | Source::Passed => {
            format!("systemd itself ({})", source_word(&assignment.source))
        }
        Source::Environment => format!("{} (Environment=)", assignment.at),
        Source::File { declared } => {
            format!("{} (EnvironmentFile= at {declared})", assignment.at)
        }
    }
}

fn effective(out: &mut String, snapshot: &Snapshot) {
    for (path, setting) in &snapshot.settings.0 {
        row(out, 0, &format!("{path}: {}", setting.value));
        row(out, 4, &from_words(&setting.from));
        for (key, from) in &setting.keys {
            if *from != setting.from {
                row(out, 4, &format!("{key}: {}", from_words(from)));
            }
        }
    }
}

fn dropins(out: &mut String, snapshot: &Snapshot) {
    let unit = &snapshot.unit;
    let state = match &unit.load {
        LoadState::Loaded => "loaded".to_owned(),
        LoadState::NotFound => "not found".to_owned(),
        LoadState::Masked { by } => format!("masked by {by}"),
        LoadState::BadSetting { at, reason } | LoadState::Error { at, reason } => {
            format!("cannot be loaded: {at}: {reason}")
        }
    };
    row(out, 0, &format!("{} ({state})", unit.names.join(", ")));
    if let Some(fragment) = &unit.fragment {
        row(out, 2, &format!("unit      {}", fragment.display()));
    }
    for dropin in &unit.dropins {
        row(out, 2, &format!("drop-in   {}", dropin.display()));
    }
    for file in &unit.env_files {
        let state = match &file.state {
            EnvFileState::Read => String::new(),
            EnvFileState::Missing if file.optional => " (missing, which is allowed)".to_owned(),
            EnvFileState::Missing => " (missing: the unit cannot start)".to_owned(),
            EnvFileState::Skipped { reason } => format!(" (skipped: {reason})"),
        };
        row(
            out,
            2,
            &format!(
                "env file  {}{state}, by {}",
                file.path.display(),
                file.declared
            ),
        );
    }
    for file in &snapshot.launch.files {
        row(out, 2, &format!("layer     {file}"));
    }
    for file in &snapshot.config.files {
        row(
            out,
            2,
            &format!("config    {}, by {}", file.at, file.declared),
        );
    }
    for event in &unit.events {
        let what = match &event.kind {
            EventKind::DropInShadowed { by } => format!("replaced by {}", by.display()),
            EventKind::DropInMasked { by, what } => {
                format!("hidden by {} ({what})", by.display())
            }
            EventKind::DropInNotRead { .. } => "not read: no drop-in of this unit".to_owned(),
            EventKind::FragmentHidden { by } => format!("hidden by {}", by.display()),
            EventKind::FileUnreadable { reason } => format!("cannot be read: {reason}"),
            _ => continue,
        };
        row(out, 2, &format!("not used  {}: {what}", event.at));
    }
}
