//! From the unit's argument list to the kubelet's: wrappers before it, and distributions with a configuration of
//! their own (k3s, RKE2, `MicroK8s`, snaps). One adapter each: "give me the kubelet's words with their places".

use super::{place::Place, systemd::Word};

/// Which way the kubelet gets its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// The unit runs the kubelet, perhaps through a wrapper that hands its words on.
    Direct,
    /// k3s: the kubelet runs inside its process.
    K3s,
    /// RKE2: the kubelet is its child.
    Rke2,
    /// `MicroK8s`: kubelite, with an arguments file.
    MicroK8s,
    /// Canonical's k8s snap, with an arguments file.
    K8sSnap,
    /// A shell or a script: its arguments cannot be derived from the unit.
    Script,
}

impl Launcher {
    /// Whether the kubelet has no process of its own.
    pub fn is_in_process(self) -> bool {
        matches!(self, Self::K3s | Self::MicroK8s)
    }
}

/// A list of a second layer that a later file or the command line replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedList {
    /// The key: `kubelet-arg`.
    pub key: String,
    /// Where the lost list begins.
    pub at: Place,
    /// What was in it, each with its place.
    pub lost: Vec<(String, Place)>,
    /// What replaces it.
    pub by: Place,
}

/// An oddity of an arguments file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgsOddity {
    /// Where.
    pub at: Place,
    /// `two blanks`, `quote deleted`.
    pub what: &'static str,
    /// The line.
    pub text: String,
}

/// The kubelet's own words.
#[derive(Debug, Clone)]
pub struct Launch {
    /// How it is started.
    pub launcher: Launcher,
    /// The kubelet's words, its name first; empty if they cannot be known.
    pub words: Vec<Word>,
    /// How many of `words`, by index, the distribution adds by itself: no finding blames the user's files for them.
    pub built_in: Vec<bool>,
    /// Whether the order of the words is known.
    pub order_significant: bool,
    /// The second layer's files that were read, in order.
    pub files: Vec<Place>,
    /// Lists that were replaced.
    pub replaced: Vec<ReplacedList>,
    /// Oddities of an arguments file.
    pub oddities: Vec<ArgsOddity>,
    /// Whether the distribution's server is known not to add `--cloud-provider=external` (`None`: not known).
    pub server_disables_cloud_controller: Option<bool>,
    /// The text of the second layer's files that could not be read, with the reason.
    pub unreadable: Vec<(Place, String)>,
}

/// Derives the kubelet's words from the unit's. `hostname` is what a distribution that names the node itself would use.
pub fn launch(
    _tree: &dyn super::tree::Tree,
    unit: &super::systemd::Unit,
    _hostname: Option<&str>,
) -> Launch {
    Launch {
        launcher: Launcher::Direct,
        words: unit.argv.clone(),
        built_in: vec![false; unit.argv.len()],
        order_significant: true,
        files: Vec::new(),
        replaced: Vec::new(),
        oddities: Vec::new(),
        server_disables_cloud_controller: None,
        unreadable: Vec::new(),
    }
}

/// The units of this tree that could run a kubelet, the likeliest first.
pub fn candidates(_tree: &dyn super::tree::Tree) -> Vec<String> {
    vec!["kubelet.service".to_owned()]
}
