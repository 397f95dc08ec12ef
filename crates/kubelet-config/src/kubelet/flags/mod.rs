//! The kubelet's flags: what each version knows (`table`), and a command line read as the kubelet does (`parse`).

mod number;
pub mod parse;
pub mod table;
mod value;

pub(super) use number::parse_int;
pub(crate) use number::{duration_nanos, parse_bool};
pub use value::pairs;

use super::location::Location;
use super::version::Minor;

/// The form that pflag wants of a value; [`ValueKind::takes`] has its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub enum ValueKind {
    /// `--x`, `--x=true`, `--x=false`; takes no word of its own.
    Bool,
    /// `--version`, `--version=raw`, `--version=v1.36.3-mine`; takes no word of its own.
    Version,
    /// Any text.
    String,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int,
    /// A decimal number from 0 to 2³¹ - 1: `-v`.
    Uint,
    /// Go's `time.Duration`: `10s`, `1h30m`.
    Duration,
    /// An IP address, or nothing.
    Ip,
    /// A resource quantity: `512`, `64Ki`.
    Quantity,
    /// `a,b,c`, read as CSV.
    Strings,
    /// `key=value,…`.
    Map,
    /// `key=value`, one pair a flag: the value may hold commas.
    OnePair,
    /// `key=value,key,…`: labels, whose value may be missing.
    Labels,
    /// `name:value,…`: HTTP headers.
    Headers,
    /// `key<value,…`: eviction thresholds.
    Thresholds,
    /// `key=true,…`: feature gates.
    Gates,
    /// `key=value:Effect,…`.
    Taints,
    /// `0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi`.
    ReservedMemory,
    /// `--vmodule`'s `pattern=N,…`.
    VModule,
}

impl ValueKind {
    /// Whether the flag may stand alone: pflag then never takes the next word as its value.
    pub(crate) fn stands_alone(self) -> bool {
        matches!(self, Self::Bool | Self::Version)
    }

    /// What a value of that kind is, and one for an example.
    pub(crate) fn form(self) -> (&'static str, &'static str) {
        match self {
            Self::Bool => ("true or false", "true"),
            Self::Version => ("true, false or raw", "true"),
            Self::String => ("text", "text"),
            Self::Int32 => ("a whole number of 32 bits", "110"),
            Self::Int => ("a whole number", "110"),
            Self::Uint => ("a whole number from 0 to 2147483647", "2"),
            Self::Duration => ("a duration with its unit", "10s"),
            Self::Ip => ("an IP address", "10.0.0.7"),
            Self::Quantity => ("a quantity", "64Ki"),
            Self::Strings => ("a list with commas", "first,second"),
            Self::Map => ("pairs of the form key=value", "cpu=200m,memory=500Mi"),
            Self::OnePair => ("a pair of the form key=value", "full-pcpus-only=true"),
            Self::Labels => ("pairs of the form key=value", "example.com/pool=blue"),
            Self::Headers => ("pairs of the form name:value", "X-Token:value"),
            Self::Thresholds => ("pairs of the form signal<quantity", "memory.available<100Mi"),
            Self::Gates => ("pairs of the form name=true or name=false", "NodeSwap=true"),
            Self::Taints => ("taints of the form key=value:Effect", "example.com/dedicated=gpu:NoSchedule"),
            Self::ReservedMemory => ("amounts of the form NUMA-node:type=quantity", "0:memory=1Gi"),
            Self::VModule => ("pairs of the form pattern=number", "kubelet=4"),
        }
    }
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
    /// The form of its value.
    pub value: ValueKind,
    /// What a second use means.
    pub repeat: Repeat,
    /// The field of `KubeletConfiguration` that it sets, with dots; `None` where there is only the flag.
    pub(crate) field: Option<&'static str>,
    /// Whether the kubelet calls it deprecated.
    pub deprecated: bool,
    /// The first release that knows it, where that is later than 1.24.
    pub(crate) since: Option<Minor>,
    /// The first release that exits with `unknown flag`; 1.24 also for those that went before.
    pub(crate) removed: Option<Minor>,
    /// What takes its place, for the fix of a removed flag; begins with `nothing` where nothing does.
    pub(crate) instead: Option<&'static str>,
}

impl FlagSpec {
    /// Whether a release knows the flag.
    pub fn known_in(&self, minor: Minor) -> bool {
        self.since.is_none_or(|since| since <= minor) && self.removed.is_none_or(|removed| minor < removed)
    }
}

/// One use of a flag in an argument list.
#[derive(Debug, Clone)]
pub struct FlagUse {
    /// The name as the kubelet normalizes it (`-` for `_`), without dashes. What pflag does not take for a flag's
    /// name (`-cloud-provider`, `---x`) keeps its dashes, so that no look-up by name finds it.
    pub name: String,
    /// The flag as it was written, with its dashes, without its value.
    pub written: String,
    /// What is known of it; `None` for a flag that no release in the table has.
    pub spec: Option<&'static FlagSpec>,
    /// Its value; for a bool given alone `true`, for an unknown flag given alone empty.
    pub value: String,
    /// Whether the value was a word of its own.
    pub(crate) value_in_next_word: bool,
    /// The index of its word in the list that was read.
    pub word: usize,
    /// Where one would edit it.
    pub at: Location,
}

/// A word that is neither a flag nor a flag's value.
#[derive(Debug, Clone)]
pub struct PositionalArg {
    /// The word.
    pub text: String,
    /// Its index.
    pub word: usize,
    /// Where it comes from.
    pub at: Location,
}

/// A kubelet's command line.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// The flags, in order.
    pub uses: Vec<FlagUse>,
    /// The words that are no flags: the kubelet exits with `unknown command`.
    pub strays: Vec<PositionalArg>,
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
