//! From the unit's argument list to the kubelet's: wrappers before it, and distributions with a configuration of
//! their own (k3s, RKE2, `MicroK8s`, snaps). One adapter each: "give me the kubelet's words with their places".
//! Uses `systemd`, `config` and `tree`, never `machine`.

mod args_file;
mod candidates;
mod direct;
mod k0s;
mod rancher;
mod snaps;

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::effective::{Effective, From as Origin, Settings};
use super::location::{Located, Location};
use super::systemd::{Arg, Unit};
use super::tree::Tree;
use super::version::{Minor, Version};

pub use candidates::{NAMES as UNIT_NAMES, candidate_units};

/// Which way the kubelet gets its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Launcher {
    /// The unit runs the kubelet, perhaps through a wrapper that hands its words on.
    #[default]
    Direct,
    /// k3s: the kubelet runs inside its process.
    K3s,
    /// RKE2: the kubelet is its child.
    Rke2,
    /// k0s: the kubelet is its child.
    K0s,
    /// `MicroK8s`: kubelite, with an arguments file.
    MicroK8s,
    /// Canonical's k8s snap, with an arguments file.
    K8sSnap,
    /// A shell or a script: its arguments cannot be derived from the unit.
    Script,
}

impl Launcher {
    /// The name of k3s or RKE2; in small letters that of its program and its directories.
    pub(crate) fn rancher_name(self) -> Option<&'static str> {
        match self {
            Self::K3s => Some("k3s"),
            Self::Rke2 => Some("RKE2"),
            _ => None,
        }
    }

    /// Whether the order of the arguments is known. k3s and RKE2 sort their flags by name, but which others the host's
    /// state adds (`--runtime-cgroups`) is not known.
    pub fn is_order_significant(self) -> bool {
        self.rancher_name().is_none() && self != Self::K0s
    }

    /// Whether the kubelet has no process of its own.
    pub fn is_in_process(self) -> bool {
        matches!(self, Self::K3s | Self::MicroK8s)
    }
}

/// A list of a second layer that a later file or the command line replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplacedList {
    /// The key: `kubelet-arg`.
    pub(crate) key: String,
    /// Where the lost list begins: its key.
    pub(crate) at: Location,
    /// What was in it and is nowhere else, each with its place.
    pub(crate) lost: Vec<(String, Location)>,
    /// What replaces it: the key in the later file, or the word of the command line.
    pub(crate) by: Location,
    /// Whether the command line replaces it, where no `+` helps.
    pub(crate) by_command_line: bool,
}

/// A key of a configuration file of k3s or RKE2 that is none of its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownOption {
    pub(crate) key: String,
    pub(crate) at: Location,
    /// Whether a comment may stand on its line.
    pub(crate) has_comment: bool,
    pub(crate) items: Vec<(String, Location)>,
    pub(crate) meant: Option<&'static str>,
    pub(crate) is_given: bool,
    /// Whether the program exits because of it. Else it logs `Unknown flag` and goes on without it.
    pub(crate) is_fatal: bool,
}

/// Where one adds an item to `kubelet-arg`: this text, with the item between its parts, is put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewArgument {
    /// In front of the first item that counts; a file as a whole, if there is none yet.
    pub(crate) at: Location,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// What the reader of an arguments file reads differently from what its writer meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// An empty argument: between two blanks, between quotes, of a variable that is not set.
    EmptyArgument,
    /// Quotes around a blank: they are deleted, and the blank splits.
    QuoteDeleted,
    /// A character that means something to the shell that reads the file, outside quotes.
    ShellSyntax(char),
    /// A quote that is never closed.
    QuoteNotClosed,
}

/// What a distribution does not read as its writer meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Slip {
    /// A file whose name it does not look for, where the file of the right name does not exist.
    FileName,
    /// A map among the items of a list, and the item that was meant: `kubelet-arg`, `v=2`.
    Map { list: &'static str, meant: String },
}

/// The kubelet's own arguments, and what is known of how they came about.
#[derive(Debug, Clone, Default)]
pub struct KubeletCommand {
    /// How it is started.
    pub launcher: Launcher,
    /// The kubelet's arguments, its name first; empty if they cannot be known.
    pub args: Vec<Arg>,
    /// The second layer's files that were read, in order.
    pub files: Vec<Location>,
    pub(crate) replaced: Vec<ReplacedList>,
    /// Keys of the second layer's files that are none of its options.
    pub(crate) unknown_options: Vec<UnknownOption>,
    /// Where the second layer's files take another flag for the kubelet.
    pub(crate) new_argument: Option<NewArgument>,
    pub(crate) oddities: Vec<Located<Oddity>>,
    /// Whether the distribution's server is known not to add `--cloud-provider=external` (`None`: not known).
    pub server_disables_cloud_controller: Option<bool>,
    /// The second layer's files that could not be read, with the reason, and whether the distribution exits because of it.
    pub(crate) unreadable: Vec<(Location, String, bool)>,
    /// What the distribution does not read as it was meant, in the second layer.
    pub(crate) slips: Vec<(Location, Slip)>,
    /// Why the arguments cannot be known, where they cannot (`/bin/sh is a shell`), at the word or line that hides them.
    pub unknown: Option<Located<String>>,
    /// Settings that the distribution writes into the kubelet's configuration at its start, by the path of their
    /// field; empty where that file is there to be read.
    pub settings: Vec<(&'static str, Value)>,
}

impl KubeletCommand {
    /// A kubelet of which nothing is known yet but how it is started.
    fn new(launcher: Launcher) -> Self {
        Self { launcher, ..Self::default() }
    }

    /// With the reason why its arguments cannot be known.
    fn with_unknown(self, at: Location, reason: String) -> Self {
        Self { unknown: Some(Located { value: reason, at }), ..self }
    }

    /// Puts the distribution's own settings in the place of the kubelet's defaults. Before 1.32 k3s and RKE2 give them
    /// as flags, so that a file that the operator names with `--config` does not override them.
    pub(crate) fn apply_settings(&self, settings: &mut Settings, version: Option<&Version>) {
        let are_flags = version.is_some_and(|version| version.minor < Minor(32));
        for (path, value) in &self.settings {
            let is_overridden = settings.get(path).is_none_or(|setting| match setting.from {
                Origin::Default { .. } => true,
                Origin::File(_) => are_flags,
                _ => false,
            });
            if is_overridden {
                settings.0.insert((*path).to_owned(), Effective::new(value.clone(), Origin::Distribution));
            }
        }
    }
}

/// Derives the kubelet's arguments from the unit's. `hostname` is what a distribution that names the node itself would use;
/// without it the tree's `/etc/hostname` says.
pub fn resolve_command(tree: &dyn Tree, unit: &Unit, hostname: Option<&str>) -> KubeletCommand {
    let direct::Start { launcher, words } = match direct::find(tree, unit) {
        Ok(start) => start,
        Err(Located { value, at }) => return KubeletCommand::new(Launcher::Script).with_unknown(at, value),
    };
    match launcher {
        Launcher::Direct | Launcher::Script => KubeletCommand { args: words.to_vec(), ..KubeletCommand::new(launcher) },
        Launcher::K3s | Launcher::Rke2 => rancher::resolve_command(tree, unit, launcher, words, hostname),
        Launcher::K0s => k0s::resolve_command(words.get(1..).unwrap_or_default()),
        Launcher::MicroK8s => snaps::microk8s(tree, unit, words),
        Launcher::K8sSnap => snaps::k8s(tree, unit),
    }
}
