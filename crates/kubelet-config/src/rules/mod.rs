//! Rules on the kubelet's configuration: one file a family, one table, `rules.toml`, one entry, [`lint`].
//!
//! Uses `kubelet`, which does not use it.

pub mod allow;

mod at;
mod beside;
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
mod remedy;
mod resources;
mod runtime;
mod secret;
mod settings;
mod syntax;
mod unit;

// What most rules use.
use crate::kubelet::effective::From;
use crate::kubelet::flag_text::flags_in;
use crate::kubelet::flags::FlagUse;
use crate::kubelet::layers::Launcher;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::snapshot::{Lifecycle, Snapshot};
use crate::kubelet::text::shortened;
use crate::step::{Remedy, Step};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Works now, breaks later or under load.
    Warning,
    /// It runs, but the node will not become useful, or will be deleted.
    Error,
    /// The kubelet will exit, or systemd cannot start it.
    Fatal,
}

/// A link of the chain of who overrides whom, shown below a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
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
    /// Where one would correct it.
    pub at: Location,
    /// What is wrong, in a sentence or two: no capital at its start, no period at its end.
    pub message: String,
    /// What to do, in words: [`lint`] writes the steps out, or the rule's own remedy.
    pub fix: Option<String>,
    pub(crate) remedy: Remedy,
    /// Who overrides whom.
    pub chain: Vec<Link>,
    /// The flags that do not reach the kubelet because of it, as they are written.
    pub lost_flags: Vec<String>,
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
    /// What was found; after [`lint`] the worst first, then by place.
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
        Self {
            rule,
            severity,
            at,
            message: message.into(),
            fix: None,
            remedy: Remedy::default(),
            chain: Vec::new(),
            lost_flags: Vec::new(),
            caused_by: None,
        }
    }

    fn with(mut self, step: Step) -> Self {
        self.remedy.steps.push(step);
        self
    }

    /// With something to do that is no edit of a file.
    fn say(self, what: impl Into<String>) -> Self {
        self.with(Step::say(what))
    }

    /// With a change of a file that only a person can make.
    fn say_at(self, at: &Location, what: impl Into<String>) -> Self {
        self.with(Step::say_at(at, what))
    }

    fn remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        let Remedy { steps, by_hand } = remedy.into();
        self.remedy.steps.extend(steps);
        self.remedy.by_hand |= by_hand;
        self
    }

    /// Without edits, as a person has to decide.
    fn by_hand_if(mut self, decides: bool) -> Self {
        self.remedy.by_hand |= decides;
        self
    }

    fn names(&self, path: &str) -> bool {
        let mut words = self.message.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        words.any(|word| word.trim_end_matches('.') == path)
    }

    fn and(mut self, sentence: &str) -> Self {
        self.message.push_str(if self.message.ends_with('?') { " " } else { ". " });
        self.message.push_str(sentence);
        self
    }

    /// With the flags that do not reach the kubelet because of it, also at the end of the message.
    #[must_use]
    pub(crate) fn lost(mut self, flags: Vec<String>) -> Self {
        if !flags.is_empty() {
            self = self.and(&format!("Lost: {}", lost::quoted(&flags.join(" "))));
        }
        self.lost_flags = flags;
        self
    }

    /// With a step of the chain.
    #[must_use]
    pub fn step(mut self, at: Location, text: impl Into<String>) -> Self {
        self.chain.push(Link { at, text: text.into() });
        self
    }

    #[must_use]
    pub(crate) fn steps<T: Into<String>>(mut self, steps: impl IntoIterator<Item = (Location, T)>) -> Self {
        self.chain.extend(steps.into_iter().map(|(at, text)| Link { at, text: text.into() }));
        self
    }

    /// With the finding that explains it.
    #[must_use]
    pub fn caused_by(mut self, rule: &'static str, at: Location) -> Self {
        self.caused_by = Some((rule, at));
        self
    }
}

/// What a rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What the kubelet gets.
    Setting,
    /// Text that systemd reads otherwise than it looks.
    Text,
    /// A difference between disk and running system.
    Drift,
}

/// A rule, as `rules.toml` describes it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// `SD001`; a part of the interface, never changed.
    pub id: &'static str,
    /// `env-overridden-by-file`.
    pub name: &'static str,
    /// Its severity, in words where it depends.
    pub severity: &'static str,
    /// What is wrong, in a sentence.
    pub summary: &'static str,
    /// What the kubelet gets and why; empty where the summary says it all.
    pub(crate) explanation: &'static str,
    /// What to do about it, in a sentence.
    pub fix: &'static str,
    /// Where it was seen: issue numbers, a man page.
    pub seen: &'static str,
    kind: Kind,
    explained_by: &'static [&'static str],
    lost_flag: &'static str,
    needs: Option<&'static [&'static str]>,
    check: fn(&Snapshot, &mut Report),
}

impl Rule {
    const NONE: Self = Self {
        id: "",
        name: "",
        severity: "",
        summary: "",
        explanation: "",
        fix: "",
        seen: "",
        kind: Kind::Setting,
        explained_by: &[],
        lost_flag: "",
        needs: None,
        check: |_, _| {},
    };

    /// Whether it finds that disk and running system differ: a change of a file brings that about by itself, until a daemon-reload or a
    /// restart of the kubelet.
    pub fn is_drift(&self) -> bool {
        self.kind == Kind::Drift
    }

    /// Summary and explanation.
    pub fn meaning(&self) -> String {
        format!("{} {}", self.summary, self.explanation).trim_end().to_owned()
    }
}

/// The taint that a kubelet with an external cloud provider gives its Node, until the cloud controller has seen it.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The age of a Node, in seconds, from which that taint is an error: shorter than the shortest of the autoscalers'
/// deadlines, 5 minutes. `nodevigil check` run twice may report a warning first and an error later.
pub(crate) const UNINITIALIZED_TOO_LATE_SECS: u64 = 240;

/// Every rule, in the order in which they judge.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    const RULES: &[Rule] = include!(concat!(env!("OUT_DIR"), "/rules.rs"));
    RULES.iter()
}

/// The rule of that id.
pub(crate) fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

/// Judges a snapshot by every rule.
pub fn lint(snapshot: &Snapshot) -> Report {
    let mut report = Report::default();
    for rule in rules() {
        match rule.needs.and_then(|paths| settings::unknown(snapshot, paths)) {
            Some(lacks) => report.not_checked(rule.id, lacks),
            None => (rule.check)(snapshot, &mut report),
        }
    }
    // What the kubelet cannot decode it judges no further.
    let undecoded: Vec<&str> = snapshot.config.undecoded().collect();
    report
        .findings
        .retain(|one| matches!(one.rule, "CF001" | "CF005") || !undecoded.iter().any(|path| one.names(path)));
    let unknown = env_files::not_known_yet(snapshot);
    let is_unknown = |one: &Finding| unknown.iter().any(|at| order::overlaps(at, &one.at));
    report.findings.retain(|one| one.rule == "SD012" || !is_unknown(one));
    order::settle(&mut report, &|file| snapshot.unit.env_files.iter().any(|one| one.path.as_os_str() == file));
    config::edits::withhold(snapshot, &mut report);
    for finding in &mut report.findings {
        finding.fix = finding.remedy.sentence(snapshot).or_else(|| {
            let (first, rest) = rule(finding.rule)?.fix.split_at_checked(1)?;
            Some(first.to_lowercase() + rest.trim_end_matches('.'))
        });
        if let Some((fix, exception)) = finding.fix.as_mut().zip(flags::exception(snapshot, &finding.lost_flags)) {
            fix.push_str(&exception);
        }
    }
    secret::hide(snapshot, &mut report);
    report
}

#[cfg(test)]
pub(crate) mod tests;
