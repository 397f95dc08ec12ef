//! The registry of metrics: name, type, unit, labels and help, and where its samples come from.

mod own;
mod told;

use std::borrow::Cow;

use super::{
    Outcome, Peer, Samples, Snapshot,
    counted::{FAILURES, probe_names},
    snapshot::{QUIETS, SEVERITIES, STATUSES, status_word},
};
use crate::{
    cluster::{gate::RequestKind, tally::OUTCOMES},
    health::{self, ConditionType, Severity, news::NEWS},
    helper::protocol::VERBS,
    host::systemd::Cause,
    rules,
};

/// One metric, as OpenMetrics sees it: a family of samples.
#[derive(Debug)]
pub struct Family {
    /// Its name, without the suffix of a sample's (`_total`, `_info`, `_bucket`).
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit, in which its name ends.
    pub unit: Option<&'static str>,
    /// Its labels, in the order in which they are written.
    pub labels: &'static [Label],
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Writes its samples.
    pub(super) samples: fn(&Snapshot<'_>, &mut Samples<'_>),
}

impl Family {
    /// The names of its samples.
    pub fn sample_names(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Histogram => &["_bucket", "_count", "_sum"],
            one => &[one.suffix()],
        };
        suffixes
            .iter()
            .map(|suffix| format!("{}{suffix}", self.name))
            .collect()
    }
}

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It counts from the agent's start.
    Counter,
    /// It counts how long things took.
    Histogram,
    /// It says something by its labels.
    Info,
}

impl Kind {
    /// OpenMetrics' word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// What a sample's name ends in, where there is one name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Gauge | Self::Histogram => "",
            Self::Counter => "_total",
            Self::Info => "_info",
        }
    }
}

/// A label, with the values that it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Label::values` says what each is")]
pub enum Label {
    Condition,
    Status,
    Reason,
    Severity,
    Quiet,
    News,
    Probe,
    Failure,
    Verb,
    Answer,
    Request,
    Outcome,
    Peer,
    Cause,
    Node,
    Version,
}

impl Label {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Status => "status",
            Self::Reason => "reason",
            Self::Severity => "severity",
            Self::Quiet => "kind",
            Self::News => "news",
            Self::Probe => "probe",
            Self::Failure => "failure",
            Self::Verb => "verb",
            Self::Answer | Self::Outcome => "outcome",
            Self::Request => "request",
            Self::Peer => "peer",
            Self::Cause => "cause",
            Self::Node => "node",
            Self::Version => "version",
        }
    }

    /// Every value that it can have, out of the registry where they are; `None`: one value, which does not change while
    /// the agent lives.
    pub fn values(self) -> Option<Vec<Cow<'static, str>>> {
        let listed = |words: Vec<&'static str>| Some(words.into_iter().map(Cow::from).collect());
        match self {
            Self::Condition => listed(ConditionType::ALL.iter().map(|c| c.as_str()).collect()),
            Self::Status => listed(STATUSES.into_iter().map(status_word).collect()),
            Self::Reason => {
                let rules = rules::reasons().iter().map(String::as_str);
                listed(
                    health::reasons()
                        .map(|spec| spec.name)
                        .chain(rules)
                        .collect(),
                )
            }
            Self::Severity => listed(SEVERITIES.into_iter().map(Severity::as_str).collect()),
            Self::Quiet => listed(QUIETS.into_iter().map(|(_, word)| word).collect()),
            Self::News => listed(NEWS.iter().map(|spec| spec.name).collect()),
            Self::Probe => listed(probe_names().collect()),
            Self::Failure => listed(FAILURES.to_vec()),
            Self::Verb => listed(VERBS.iter().map(|verb| verb.name).collect()),
            Self::Answer => listed(Outcome::ALL.into_iter().map(Outcome::as_str).collect()),
            Self::Request => listed(
                RequestKind::ALL
                    .into_iter()
                    .map(RequestKind::as_str)
                    .collect(),
            ),
            Self::Outcome => listed(OUTCOMES.to_vec()),
            Self::Peer => listed(Peer::ALL.into_iter().map(Peer::as_str).collect()),
            Self::Cause => listed(Cause::ALL.into_iter().map(Cause::as_str).collect()),
            Self::Node | Self::Version => None,
        }
    }
}

/// Every metric, in the order in which they are written: what is told of the node, then how the agent itself is doing.
pub fn families() -> impl Iterator<Item = &'static Family> {
    told::TABLE.iter().chain(own::TABLE)
}
