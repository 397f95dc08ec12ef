//! Arguments files of the snaps, read as their readers read them: `MicroK8s`' kubelite (`ReadArgsFromFile` of its patch
//! to Kubernetes), and bash, to which Canonical's k8s snap gives the file as the text of an array
//! (`declare -a args="($(cat …))"`; tried with bash 5.2).

mod bash;
mod kubelite;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{
    super::{location::Location, machine::Located, systemd::Arg},
    Oddity,
};

pub(super) use {bash::split as bash, kubelite::split as kubelite};

/// The environment in which a file's variables are expanded.
pub(super) type Environment = BTreeMap<String, String>;

/// The most text that expansion may make of a file: a variable of a few kilobytes, named a thousand times over, must
/// not fill the memory.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// The most oddities that are kept: more would not be read.
const MAX_ODDITIES: usize = 100;

/// What a reader makes of an arguments file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// The words.
    pub(super) args: Vec<Arg>,
    /// Where it makes something else of them than was meant.
    pub(super) oddities: Vec<Located<Oddity>>,
    /// Where the words cannot be known, and why.
    pub(super) unknown: Option<(Location, String)>,
    /// How much text there is in `args`.
    bytes: usize,
}

impl Split {
    /// Adds a word; `None` when there is more than we are ready to take.
    fn push(&mut self, arg: Arg) -> Option<()> {
        self.bytes = self.bytes.saturating_add(arg.text.len() + 1);
        if self.bytes > MAX_EXPANDED_BYTES {
            return self.give_up(arg.declared, format!("expands to more than {MAX_EXPANDED_BYTES} bytes"));
        }
        if arg.text.is_empty() {
            self.odd(Oddity::EmptyArgument, arg.declared.clone());
        }
        self.args.push(arg);
        Some(())
    }

    /// Adds an oddity; one of a kind is enough for a line.
    fn odd(&mut self, what: Oddity, at: Location) {
        let known = self.oddities.iter().rev().take_while(|odd| odd.at.line == at.line).any(|odd| odd.value == what);
        if !known && self.oddities.len() < MAX_ODDITIES {
            self.oddities.push(Located { value: what, at });
        }
    }

    /// Says that the words cannot be known.
    fn give_up(&mut self, at: Location, reason: String) -> Option<()> {
        self.args.clear();
        self.unknown = Some((at, reason));
        None
    }
}
