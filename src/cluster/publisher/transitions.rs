//! `lastTransitionTime`: when each of our types flipped, as the cluster could see it.
//!
//! Controllers wait from that time on and delete the machine when their wait is over. So a flip is never published as older than
//! the first moment from which the cluster could have seen it: each attempt to write it carries the attempt's own time. Once the
//! Node shows the flip its time stays. Since when a problem has really been there, the message says.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::Apply;
use crate::{
    clock::Now,
    cluster::api::NodeView,
    desired::{Condition, PublishedType},
    health::{Status, late},
};

/// A flip that is published so much later than it was seen has its message say so.
const LATE: Duration = Duration::from_secs(10);

/// What the Node shows of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    status: Status,
    /// The flip as the wish has it: another flip to the same status is told apart by that.
    flip: Timestamp,
    /// Its `lastTransitionTime` on the Node.
    time: Timestamp,
    /// Since when it has really been so, where that is earlier by [`LATE`].
    began: Option<Timestamp>,
}

/// A flip that is to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wished {
    flip: Timestamp,
    /// When it was wished first (uptime).
    at: Duration,
}

/// Writes of a flip that had no answer: one of them may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unanswered {
    flip: Timestamp,
    /// The times that the first and the last of them carried.
    first: Timestamp,
    last: Timestamp,
}

/// The memory of all types.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    shown: BTreeMap<PublishedType, Shown>,
    wished: BTreeMap<PublishedType, Wished>,
    unanswered: BTreeMap<PublishedType, Unanswered>,
}

impl Transitions {
    /// Another Node has our name, or it is not known what there is.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
        self.unanswered.clear();
    }

    /// What the Node shows when it is seen for the first time: the verdicts that are taken back from it have its times.
    pub(super) fn adopt(&mut self, view: &NodeView) {
        self.shown.clear();
        for (r#type, stored) in &view.conditions {
            let shown = Shown {
                status: stored.status,
                flip: stored.since,
                time: stored.since,
                began: late::began(&stored.message),
            };
            self.shown.insert(*r#type, shown);
        }
    }

    /// These are to be published from now on.
    pub(super) fn wish(&mut self, conditions: &[Condition], uptime: Duration) {
        for condition in conditions {
            let flip = condition.last_transition_time;
            let wished = Wished { flip, at: uptime };
            let entry = self.wished.entry(condition.r#type).or_insert(wished);
            if entry.flip != flip {
                *entry = wished;
            }
        }
    }

    /// The conditions as they go out now; `now` has the cluster's time.
    pub(super) fn stamp(&self, conditions: &[Condition], now: Now) -> Vec<Condition> {
        let stamp = |condition: &Condition| {
            let (time, began) = match self.kept(condition) {
                Some(shown) => (shown.time, shown.began),
                None => (now.wall, self.began(condition, now)),
            };
            let is_bad = condition.status == condition.r#type.spec().bad;
            let message = match began.filter(|_| is_bad) {
                Some(began) => late::note(&condition.message, began),
                None => condition.message.clone(),
            };
            Condition {
                message,
                last_transition_time: time,
                ..condition.clone()
            }
        };
        conditions.iter().map(stamp).collect()
    }

    /// What the Node shows, if that is this very flip.
    fn kept(&self, condition: &Condition) -> Option<&Shown> {
        let shown = self.shown.get(&condition.r#type)?;
        let is_it =
            (shown.status, shown.flip) == (condition.status, condition.last_transition_time);
        is_it.then_some(shown)
    }

    fn began(&self, condition: &Condition, now: Now) -> Option<Timestamp> {
        let wished = self.wished.get(&condition.r#type)?;
        let age = now.uptime.saturating_sub(wished.at);
        let age = SignedDuration::try_from(age).ok().filter(|_| age >= LATE)?;
        now.wall.checked_sub(age).ok()
    }

    /// The Node shows what was applied.
    pub(super) fn published(&mut self, apply: &Apply) {
        for (wished, sent) in apply.wished.iter().zip(&apply.conditions) {
            self.keep(wished, sent, sent.last_transition_time);
        }
        self.unanswered.clear();
    }

    /// The apply had no answer. `true` if it carried a flip that the Node was not known to show.
    pub(super) fn doubt(&mut self, apply: &Apply) -> bool {
        for (wished, sent) in apply.wished.iter().zip(&apply.conditions) {
            if self.kept(wished).is_some() {
                continue;
            }
            let (flip, last) = (wished.last_transition_time, sent.last_transition_time);
            let before = self.unanswered.get(&wished.r#type);
            let first = before.filter(|before| before.flip == flip);
            let first = first.map_or(last, |before| before.first);
            let doubt = Unanswered { flip, first, last };
            self.unanswered.insert(wished.r#type, doubt);
        }
        !self.unanswered.is_empty()
    }

    /// The Node was seen after applies without an answer, of which this was the last: what it shows of them was carried out.
    pub(super) fn read_back(&mut self, apply: &Apply, view: &NodeView) {
        for (wished, sent) in apply.wished.iter().zip(&apply.conditions) {
            let stored = view
                .conditions
                .iter()
                .find(|(kind, _)| *kind == sent.r#type);
            let (Some((_, stored)), Some(doubt)) = (stored, self.unanswered.get(&sent.r#type))
            else {
                continue;
            };
            let is_ours = doubt.flip == wished.last_transition_time
                && stored.status == sent.status
                && (doubt.first.as_second()..=doubt.last.as_second())
                    .contains(&stored.since.as_second());
            if is_ours {
                self.keep(wished, sent, stored.since);
            }
        }
    }

    /// The applies that had no answer and are not shown were not carried out.
    pub(super) fn settle(&mut self) {
        self.unanswered.clear();
    }

    fn keep(&mut self, wished: &Condition, sent: &Condition, time: Timestamp) {
        let shown = Shown {
            status: sent.status,
            flip: wished.last_transition_time,
            time,
            began: late::began(&sent.message),
        };
        self.shown.insert(sent.r#type, shown);
        self.unanswered.remove(&sent.r#type);
    }
}

/// Whether the Node has this condition as it was sent. Times on the Node have whole seconds.
pub(super) fn shows(view: &NodeView, sent: &Condition) -> bool {
    view.conditions.iter().any(|(r#type, stored)| {
        *r#type == sent.r#type
            && stored.status == sent.status
            && stored.reason == sent.reason
            && stored.message == sent.message
            && stored.since.as_second() == sent.last_transition_time.as_second()
    })
}
