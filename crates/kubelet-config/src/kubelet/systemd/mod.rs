//! A service unit as systemd would load and start it, each word with its place; systemd.unit(5), systemd.syntax(7),
//! systemd.exec(5) and systemd.service(5), checked against a real systemd (`make oracle`). Uses `tree`, `location` and
//! `text` alone.

mod builtin;
mod dropins;
pub mod env_file;
mod environment;
mod events;
mod exec;
mod expand;
mod glob;
mod keys;
mod load;
mod names;
mod paths;
mod source;
mod specifiers;
mod syntax;
pub(crate) mod system_conf;
mod verify;
mod words;

pub(crate) use paths::SEARCH_PATH;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) use builtin::{is_directory_list, os_release};
use events::Events;
pub(crate) use events::{Event, EventKind, NotADropIn};
pub(super) use glob::glob;
pub use load::resolve_unit;
pub(super) use source::SourceFile;

use super::location::{Located, Location};
use super::text::chars;

/// What systemd would say of the unit's state of loading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoadState {
    /// It can be started.
    Loaded,
    /// There is no fragment in the search path.
    #[default]
    NotFound,
    /// A link to `/dev/null` or an empty file is in its place.
    Masked {
        /// The mask.
        by: Location,
    },
    /// It has no usable command line, or two.
    BadSetting {
        /// The line that spoils it.
        at: Location,
        /// Why, as systemd would log it.
        reason: String,
    },
    /// Its fragment could not be read or parsed.
    Error {
        /// Where.
        at: Location,
        /// Why.
        reason: String,
    },
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// systemd's environment: `DefaultEnvironment=`, `systemctl set-environment`, what every service has (`PATH`, …).
    Manager,
    /// The same, let through by `PassEnvironment=`.
    Passed,
    /// An `Environment=` line.
    Environment,
    /// A file that an `EnvironmentFile=` line names.
    File {
        /// The `EnvironmentFile=` line.
        declared: Location,
    },
}

/// One assignment of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// Its value, unquoted.
    pub value: String,
    /// Where the assignment is (its first line).
    pub at: Location,
    /// What kind of assignment it is.
    pub source: Source,
    /// The places of the value's characters: (offset in `value` in bytes, place of the character there), ascending.
    /// A word of the value starts at the place of the last mark at or before its offset, moved by the difference.
    pub marks: Vec<(usize, Location)>,
}

impl Assignment {
    /// An assignment that is in no file, or not at places of its own.
    fn new(name: &str, value: &str, at: &Location, source: Source) -> Self {
        Self { name: name.to_owned(), value: value.to_owned(), at: at.clone(), source, marks: Vec::new() }
    }

    /// The place of the text from `start` to `end` of the value, in bytes; the assignment's own where the value has no
    /// places. Text of several lines has the width of its first.
    pub(crate) fn place_of(&self, start: usize, end: usize) -> Location {
        let after = self.marks.partition_point(|(offset, _)| *offset <= start);
        let Some(first) = after.checked_sub(1).and_then(|index| self.marks.get(index)) else { return self.at.clone() };
        let (offset, at) = first;
        let chars = |from: usize, to: usize| chars(self.value.get(from..to).unwrap_or_default());
        let column = at.column + chars(*offset, start);
        // Up to the next line the columns of the marks between tell how wide the text is in the file.
        let later = self.marks.get(after..).unwrap_or_default();
        let on_line = later.iter().take_while(|(_, place)| place.line == at.line);
        let line_end = later.get(on_line.clone().count()).map_or(end, |(offset, _)| end.min(*offset));
        let (last, place) = on_line.filter(|(offset, _)| *offset < end).last().unwrap_or(first);
        let end_column = place.column + chars(*last, line_end.max(*last));
        at.at(at.line, column, end_column.saturating_sub(column))
    }
}

/// A variable of the service's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The assignment that counts.
    pub effective: Assignment,
    /// Those that do not, in the order in which they were read.
    pub overridden: Vec<Assignment>,
    /// The words of `ExecStart=` that refer to it.
    pub referenced_at: Vec<Location>,
}

/// What became of an environment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvFileState {
    /// It was read.
    Read,
    /// It is not there.
    Missing,
    /// It is there, and systemd skips all of it.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// An environment file; a glob gives one for each match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFile {
    /// The file.
    pub path: PathBuf,
    /// The `EnvironmentFile=` line.
    pub declared: Location,
    /// Whether a dash allows it to be missing.
    pub optional: bool,
    /// What became of it.
    pub state: EnvFileState,
    /// Everything it assigns, whether it counts or not.
    pub assignments: Vec<Assignment>,
}

/// A variable's part in a word of argv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The variable; empty for words that a second layer takes from a list of its own.
    pub variable: String,
    /// Where the word is within the variable's value.
    pub at: Location,
    /// Whether it came by `${X}`, which never splits.
    pub(crate) braces: bool,
}

/// A word of the argument list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg {
    /// The word, as the program gets it; bytes that are not UTF-8 show as `U+FFFD`.
    pub text: String,
    /// The word of `ExecStart=` (or of a second layer's file) that it comes from.
    pub declared: Location,
    /// The variables that it comes from; empty if it is written out.
    pub origins: Vec<Origin>,
    /// Whether a distribution adds it by itself: no finding blames the user's files for it.
    pub built_in: bool,
}

impl Arg {
    /// A word that is written out.
    pub(crate) fn new(text: impl Into<String>, declared: Location) -> Self {
        Self { text: text.into(), declared, origins: Vec::new(), built_in: false }
    }

    /// Where one would edit it: in the variable's value, if it comes from one.
    pub fn at(&self) -> &Location {
        self.origins.first().map_or(&self.declared, |origin| &origin.at)
    }
}

/// A word of `ExecStart=` before variables are expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecWord {
    /// Unquoted, escapes and specifiers done, variables not.
    pub text: String,
    /// Its place.
    pub at: Location,
}

/// One `ExecStart=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The line.
    pub at: Location,
    /// The prefixes, as written (`-`, `@`, `:`, `+`, `!`, `!!`).
    pub prefixes: String,
    /// The program, without prefixes.
    pub program: String,
    /// The words; the first is the program.
    pub words: Vec<ExecWord>,
    /// Whether variables are expanded (no `:`).
    pub(crate) expands: bool,
}

/// Settings by section and key: the last one of its key, or all of a list (`After=`, …) with blanks between them.
pub type Settings = BTreeMap<(String, String), Located<String>>;

/// A service unit, resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// The name that was asked for.
    pub name: String,
    /// Its id and its aliases, the id first.
    pub names: Vec<String>,
    /// What systemd would say.
    pub load: LoadState,
    /// `FragmentPath`.
    pub fragment: Option<PathBuf>,
    /// `DropInPaths`, in the order in which they are read.
    pub dropins: Vec<PathBuf>,
    /// `EnvironmentFile=`, in order.
    pub env_files: Vec<EnvFile>,
    /// The environment that counts for `ExecStart=`.
    pub variables: BTreeMap<String, Variable>,
    /// The command that is run.
    pub exec: Option<Exec>,
    /// Commands that a reset took away.
    pub(crate) replaced_execs: Vec<Exec>,
    /// The argument list of `exec`, the program first.
    pub argv: Vec<Arg>,
    /// The settings that the resolver does not interpret (`Restart=`, `Type=`, `Slice=`, …), specifiers expanded.
    pub settings: Settings,
    /// Everything that was ignored or lost.
    pub(crate) events: Vec<Event>,
}

/// State of a running systemd and its host that affects a unit. The default of each field suits a root that is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// The search path, best first; `None` for systemd's own.
    pub unit_path: Option<Vec<PathBuf>>,
    /// The manager's environment (`DefaultEnvironment=`, `set-environment`).
    pub environment: BTreeMap<String, String>,
    /// systemd's major version; 252 where it is not known. Since 254 a comment in an environment file is not continued.
    pub version: u32,
    /// `%H` and `%l`, as they were when the unit was loaded.
    pub hostname: String,
    /// `%m`.
    pub machine_id: String,
    /// `%b`.
    pub boot_id: String,
}

impl Default for Manager {
    fn default() -> Self {
        Self {
            unit_path: None,
            environment: BTreeMap::new(),
            version: 252,
            hostname: "localhost".to_owned(),
            machine_id: "0".repeat(32),
            boot_id: "0".repeat(32),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
