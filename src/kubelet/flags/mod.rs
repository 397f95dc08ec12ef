//! The kubelet's flags: what each version knows (`table`), and a command line read as the kubelet reads it (`parse`).

pub mod parse;
pub mod table;

use super::{place::Place, version::Minor};

/// The form that pflag wants of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `--x`, `--x=true`, `--x=false`; takes no word of its own.
    Bool,
    /// Any text.
    String,
    /// A 32-bit or 64-bit whole number.
    Int,
    /// A whole number from 0.
    Uint,
    /// A number.
    Float,
    /// Go's `time.Duration`: `10s`, `1h30m`.
    Duration,
    /// An IP address.
    Ip,
    /// `a,b,c`.
    Strings,
    /// `key=value,…`.
    Map,
    /// `key<value,…`: eviction thresholds.
    Thresholds,
    /// `key=true,…`: feature gates.
    Gates,
    /// `key=value:Effect,…`.
    Taints,
    /// `0-3,7`.
    ReservedMemory,
    /// `--vmodule`'s `pattern=N,…`.
    VModule,
}

/// What a flag given twice means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The last one wins.
    LastWins,
    /// Lists: the first replaces the default, later ones append.
    Append,
    /// Maps: the first clears the default, later ones accumulate, per key the last one wins.
    Merge,
}

/// A flag of the kubelet.
#[derive(Debug, Clone, Copy)]
pub struct FlagSpec {
    /// Its name without dashes, with `-` for `_`.
    pub name: &'static str,
    /// Its one-letter form (`-v`, `-h`).
    pub shorthand: Option<char>,
    /// The form of its value.
    pub value: ValueKind,
    /// What a second use means.
    pub repeat: Repeat,
    /// The field of `KubeletConfiguration` that it sets, with dots; `None` where there is only the flag.
    pub field: Option<&'static str>,
    /// Whether the kubelet calls it deprecated.
    pub deprecated: bool,
    /// The first release that knows it, where that is later than 1.24.
    pub since: Option<Minor>,
    /// The first release that exits with `unknown flag`.
    pub removed: Option<Minor>,
    /// What takes its place, for the fix of a removed flag.
    pub instead: Option<&'static str>,
}

/// One use of a flag in an argument list.
#[derive(Debug, Clone)]
pub struct FlagUse {
    /// The name as the kubelet normalizes it (`-` for `_`).
    pub name: String,
    /// The flag as it was written, with its dashes, without its value.
    pub written: String,
    /// What is known of it; `None` for a flag that no release in the table has.
    pub spec: Option<&'static FlagSpec>,
    /// Its value; for a bool given alone `true`.
    pub value: String,
    /// Whether the value was a word of its own.
    pub value_in_next_word: bool,
    /// The index of its word in the list that was read.
    pub word: usize,
    /// Where one would edit it.
    pub at: Place,
}

/// A word that is neither a flag nor a flag's value.
#[derive(Debug, Clone)]
pub struct Stray {
    /// The word.
    pub text: String,
    /// Its index.
    pub word: usize,
    /// Where it comes from.
    pub at: Place,
}

/// A kubelet's command line.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// The flags, in order.
    pub uses: Vec<FlagUse>,
    /// The words that are no flags: the kubelet exits with `unknown command`.
    pub strays: Vec<Stray>,
    /// A flag at the end that lacks its value.
    pub lacks_value: Option<FlagUse>,
}

impl CommandLine {
    /// The uses of a flag, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a FlagUse> {
        self.uses.iter().filter(move |used| used.name == name)
    }

    /// The use that counts of a flag whose last one wins.
    pub fn last(&self, name: &str) -> Option<&FlagUse> {
        self.uses.iter().rev().find(|used| used.name == name)
    }

    /// The value that counts of a flag whose last one wins; `None` where it is absent.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.last(name).map(|used| used.value.as_str())
    }
}
