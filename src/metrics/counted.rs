//! What is counted while the agent lives: plain fields and fixed arrays. Whoever sees the thing happen calls one method.

use std::time::Duration;

use jiff::Timestamp;

use super::Histogram;
use crate::{
    checks::{self, Reading, kernel::event::KernelEvent, kubelet::Probe},
    health::{
        ConditionType, Reason,
        news::{NEWS, News},
    },
    helper::protocol::{VERBS, Verb},
};

/// The probe that is no question of a check: the kubelet's healthz.
pub(super) const HEALTHZ: &str = "healthz";

/// Healthz, then the questions of each check.
const PROBES: usize = 1 + checks::ALL.len();

/// How a probe of healthz can fail, by index.
pub(super) const FAILURES: [&str; 4] = ["refused", "timeout", "status", "impossible"];

/// What the loop has seen, counted.
#[derive(Debug, Clone)]
pub struct Counted {
    probes: [Histogram; PROBES],
    failures: [u64; FAILURES.len()],
    /// Only those that have been seen: there are some hundred reasons, and a node sees a few of them.
    reasons: Vec<ReasonCount>,
    news: [u64; NEWS.len()],
    lateness: Histogram,
    turns: Histogram,
    kmsg_lost: u64,
    /// Whether the kernel's log can be read, once that was tried.
    kmsg: Option<bool>,
    /// When the kubelet's client certificate expires, if it has one that could be read.
    certificate_ends: Option<Timestamp>,
    /// Whether the kernel logs hung tasks, once that was looked at and if it can.
    hung_task_detection: Option<bool>,
}

/// How often a condition has come to a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasonCount {
    /// The condition.
    pub kind: ConditionType,
    /// The reason.
    pub reason: Reason,
    /// How often, since the agent started.
    pub count: u64,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            probes: [Histogram::default(); PROBES],
            failures: [0; FAILURES.len()],
            reasons: Vec::new(),
            news: [0; NEWS.len()],
            lateness: Histogram::default(),
            turns: Histogram::default(),
            kmsg_lost: 0,
            kmsg: None,
            certificate_ends: None,
            hung_task_detection: None,
        }
    }
}

impl Counted {
    /// A probe of the kubelet's healthz ended.
    pub fn probed(&mut self, probe: &Probe, took: Duration) {
        self.probes[0].observe(took);
        let failure = match probe {
            Probe::Ok => return,
            Probe::Refused => 0,
            Probe::Timeout | Probe::Unreachable => 1,
            Probe::Status(_) => 2,
            Probe::Impossible(_) => 3,
        };
        self.failures[failure] += 1;
    }

    /// The question of the check with that id was answered.
    pub fn answered(&mut self, check: &str, took: Duration) {
        if let Some(at) = checks::ALL.iter().position(|spec| spec.id == check) {
            self.probes[1 + at].observe(took);
        }
    }

    /// A condition has come to that reason.
    pub fn came_to(&mut self, kind: ConditionType, reason: Reason) {
        let known = self.reasons.iter_mut();
        match known
            .filter(|row| row.kind == kind)
            .find(|row| row.reason == reason)
        {
            Some(row) => row.count += 1,
            None => self.reasons.push(ReasonCount {
                kind,
                reason,
                count: 1,
            }),
        }
    }

    /// News, told or not.
    pub fn heard(&mut self, news: News) {
        self.news[news as usize] += 1;
    }

    /// Something was read, asked for or not.
    pub fn read(&mut self, reading: &Reading) {
        if let Reading::Certificate(Ok(read)) = reading {
            let ends = read.as_ref().map(|read| read.not_after_secs);
            self.certificate_ends = ends.and_then(|secs| Timestamp::from_second(secs).ok());
        }
        if let Reading::KernelState(state) = reading {
            let is_there = state.hung_task_warnings.is_some();
            self.hung_task_detection = is_there.then(|| state.detection_off().is_none());
        }
        let Reading::Kernel(event) = reading else {
            return;
        };
        self.kmsg = Some(!matches!(event, KernelEvent::Unreadable(_)));
        if let KernelEvent::Lost { records } = event {
            self.kmsg_lost = self.kmsg_lost.saturating_add(*records);
        }
    }

    /// When the kubelet's client certificate expires.
    pub fn certificate_ends(&self) -> Option<Timestamp> {
        self.certificate_ends
    }

    /// The loop came so late to what was due.
    pub fn late(&mut self, by: Duration) {
        self.lateness.observe(by);
    }

    /// A turn of the loop took so long.
    pub fn turned(&mut self, took: Duration) {
        self.turns.observe(took);
    }

    /// The probes, by name.
    pub fn probes(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        probe_names().zip(&self.probes)
    }

    /// How often a probe of healthz failed, by how it did.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAILURES.into_iter().zip(self.failures)
    }

    /// The reasons that were come to.
    pub fn reasons(&self) -> &[ReasonCount] {
        &self.reasons
    }

    /// The news, by name.
    pub fn news(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NEWS.iter().map(|spec| spec.name).zip(self.news)
    }

    /// How late the loop came to what was due.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// How long its turns took.
    pub fn turns(&self) -> &Histogram {
        &self.turns
    }

    /// Records of the kernel's log that ran over before they were read.
    pub fn kmsg_lost(&self) -> u64 {
        self.kmsg_lost
    }

    /// Whether the kernel's log can be read; `None`: it has said nothing yet.
    pub fn kmsg(&self) -> Option<bool> {
        self.kmsg
    }

    /// Whether the kernel logs hung tasks; `None`: it cannot, or was not looked at yet.
    pub fn hung_task_detection(&self) -> Option<bool> {
        self.hung_task_detection
    }
}

/// What is probed.
pub(super) fn probe_names() -> impl Iterator<Item = &'static str> {
    let checks = checks::ALL.iter().map(|spec| spec.id);
    std::iter::once(HEALTHZ).chain(checks)
}

/// How a question to the helper ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered.
    Ok,
    /// It said no.
    Refused,
    /// Nothing came in time.
    Timeout,
    /// Nobody listens.
    Absent,
    /// What came is no answer.
    Protocol,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::Refused,
        Self::Timeout,
        Self::Absent,
        Self::Protocol,
    ];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Absent => "absent",
            Self::Protocol => "protocol",
        }
    }
}

/// The questions to the helper, counted by verb.
#[derive(Debug, Clone, Copy, Default)]
pub struct HelperTally {
    verbs: [OfVerb; VERBS.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct OfVerb {
    took: Histogram,
    outcomes: [u64; Outcome::ALL.len()],
}

impl HelperTally {
    /// A question ended.
    pub fn asked(&mut self, verb: &Verb, outcome: Outcome, took: Duration) {
        let at = VERBS.iter().position(|row| row.name == verb.name);
        if let Some(row) = at.map(|at| &mut self.verbs[at]) {
            row.took.observe(took);
            row.outcomes[outcome as usize] += 1;
        }
    }

    /// How long each verb took.
    pub fn took(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        VERBS
            .iter()
            .zip(&self.verbs)
            .map(|(verb, row)| (verb.name, &row.took))
    }

    /// How often each verb ended how: what has happened.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, Outcome, u64)> {
        VERBS.iter().zip(&self.verbs).flat_map(|(verb, row)| {
            let counts = Outcome::ALL.into_iter().zip(row.outcomes);
            counts.map(|(outcome, count)| (verb.name, outcome, count))
        })
    }
}
