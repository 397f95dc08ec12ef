//! Rules on the kubelet's configuration: one file a family, one registry, one entry, [`run`].

pub mod allow;

mod at;
mod cloud;
mod cloud_provider;
mod config;
mod credentials;
mod drift;
mod dropins;
mod encoding;
mod env_files;
mod environment;
mod flags;
mod kernel;
mod layers;
mod lost;
mod network;
mod order;
mod references;
mod resources;
mod runtime;
mod secret;
mod settings;
mod syntax;
mod unit;

use crate::kubelet::{location::Location, snapshot::Snapshot};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth a line to whoever asks.
    Info,
    /// Works now, breaks later or under load.
    Warning,
    /// It runs, but the node will not become useful, or will be deleted.
    Error,
    /// The kubelet will exit, or systemd cannot start it.
    Fatal,
}

/// A step of the chain of who overrides whom, shown below a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub at: Location,
    /// What happens there.
    pub text: String,
}

/// Something that a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// How bad it is here.
    pub severity: Severity,
    /// Where one would mend it.
    pub at: Location,
    /// What is wrong, in a sentence or two.
    pub message: String,
    /// What to do: a command or an edit.
    pub fix: Option<String>,
    /// Who overrides whom.
    pub chain: Vec<Step>,
    /// The finding that explains this one: rule and place.
    pub caused_by: Option<(&'static str, Location)>,
}

/// A rule that could not judge, and what it lacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotChecked {
    /// The rule.
    pub rule: &'static str,
    /// What it lacked.
    pub lacks: &'static str,
}

/// What a rule reports to.
#[derive(Debug, Default)]
pub struct Report {
    /// What was found; after [`run`] the worst first, then by place.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub not_checked: Vec<NotChecked>,
}

impl Report {
    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Says that a rule could not judge.
    pub fn not_checked(&mut self, rule: &'static str, lacks: &'static str) {
        self.not_checked.push(NotChecked { rule, lacks });
    }
}

impl Finding {
    /// A finding without fix, chain and cause.
    pub fn new(rule: &'static str, severity: Severity, at: Location, message: impl Into<String>) -> Self {
        Self { rule, severity, at, message: message.into(), fix: None, chain: Vec::new(), caused_by: None }
    }

    /// With what to do.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// With a step of the chain.
    #[must_use]
    pub fn step(mut self, at: Location, text: impl Into<String>) -> Self {
        self.chain.push(Step { at, text: text.into() });
        self
    }

    /// With the finding that explains it.
    #[must_use]
    pub fn caused_by(mut self, rule: &'static str, at: Location) -> Self {
        self.caused_by = Some((rule, at));
        self
    }
}

/// What the registry knows of a rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// `SD001`; a part of the interface, never changed.
    pub id: &'static str,
    /// `env-overridden-by-file`; in `CamelCase` the condition's reason.
    pub name: &'static str,
    /// Its severity, in words, where it depends.
    pub severity: &'static str,
    /// What it means, in a paragraph.
    pub doc: &'static str,
    /// Where it was seen: issue numbers, a man page.
    pub source: &'static str,
    /// What to do about it, in a sentence.
    pub fix: &'static str,
    /// Judges.
    pub run: fn(&Snapshot, &mut Report),
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// The taint that a kubelet with an external cloud provider gives its Node, until the cloud controller has seen it.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The age of a Node, in seconds, from which that taint is an error: shorter than the shortest of the autoscalers'
/// deadlines, 5 minutes. Who asks again then has another answer.
pub const UNINITIALIZED_TOO_LATE_SECS: u64 = 240;

/// Every rule, family by family, by number.
pub const FAMILIES: &[&[Rule]] = &[
    environment::RULES,
    references::RULES,
    env_files::RULES,
    syntax::RULES,
    encoding::RULES,
    unit::RULES,
    dropins::RULES,
    drift::RULES,
    layers::RULES,
    flags::RULES,
    config::RULES,
    cloud_provider::RULES,
    cloud::RULES,
    runtime::RULES,
    resources::RULES,
    kernel::RULES,
    network::RULES,
    credentials::RULES,
];

/// Every rule.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Judges a snapshot by every rule.
pub fn run(snapshot: &Snapshot) -> Report {
    let mut report = Report::default();
    for rule in all() {
        (rule.run)(snapshot, &mut report);
    }
    order::settle(&mut report);
    secret::hide(snapshot, &mut report);
    report
}

#[cfg(test)]
mod hosts_tests;

#[cfg(test)]
mod shapes_tests;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) mod testing;
