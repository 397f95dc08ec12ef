//! What people and their tools ask for, each with its end: `nodevigil pause`, the annotation `nodevigil.io/pause`, the signs
//! of maintenance. None lasts longer than `[suppression] max_pause_secs`: people forget them. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::sights::{Sights, Subject, after, before, between};
use crate::{
    clock::Now,
    cluster::{
        api::{AskedPause, PAUSE_ANNOTATION, PauseAnnotation, StandingSign},
        events::Notice,
    },
    health::{news::Pace, suppress::Suppressor},
    pause::Pause,
};

/// So long before its end a pause is warned of.
pub(super) const WARN_BEFORE: Duration = Duration::from_hours(1);

/// By what it is known again, so that each is warned of once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The pause file that asks until then.
    File(Timestamp),
    /// What is kept in the annotation.
    OnNode(Subject),
}

impl Which {
    /// The same as the ledger keeps it.
    pub(super) fn key(self) -> String {
        match self {
            Self::File(until) => format!("file until {until}"),
            Self::OnNode(Subject { name, fingerprint }) => {
                format!("{name} {}", fingerprint.unwrap_or_default())
            }
        }
    }
}

/// Something that is asked for, and is not over by its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) which: Which,
    pub(super) suppressor: Suppressor,
    /// Since when.
    pub(super) since: Timestamp,
    /// How long it lasts in all.
    pub(super) length: Duration,
    /// What is left of that; nothing: it is over the bound, and ignored.
    pub(super) left: Duration,
    /// Whether it is the bound that ends it.
    pub(super) is_bounded: bool,
}

impl Asked {
    /// A pause that was asked for on this host; nothing if it has ended, or makes no sense by this clock.
    pub(super) fn by_file(pause: &Pause, longest: Duration, now: Now) -> Option<Self> {
        let end = pause.end(longest);
        let is_bounded = end < pause.until;
        let is_over = is_bounded && end <= now.wall && now.wall < pause.until;
        (is_over || pause.holds(now.wall, longest)).then(|| Self {
            which: Which::File(pause.until),
            suppressor: Suppressor::Paused {
                by: pause.describe(),
                until: Some(end),
            },
            since: pause.since,
            length: between(pause.since, end),
            left: between(now.wall, end),
            is_bounded,
        })
    }

    /// A pause that was asked for on the Node; nothing if its time has come.
    pub(super) fn by_annotation(
        pause: &PauseAnnotation,
        sights: &Sights,
        longest: Duration,
        now: Now,
    ) -> Option<Self> {
        let subject = pause_subject(pause);
        let since = sights.since(subject).unwrap_or(now.wall);
        let bound = after(since, longest);
        let (why, until) = match &pause.asks {
            AskedPause::Until(until) => ("", Some(*until)),
            AskedPause::UntilRemoved(why) | AskedPause::Unclear(why) => (why.as_str(), None),
        };
        if until.is_some_and(|until| until <= now.wall) {
            return None;
        }
        let own_end = until.filter(|until| *until <= bound);
        let end = own_end.unwrap_or(bound);
        let left = match own_end {
            Some(end) => between(now.wall, end),
            None => longest.saturating_sub(sights.age(subject, now)),
        };
        let by = match why {
            "" => format!("annotation {PAUSE_ANNOTATION}"),
            why => format!("annotation {PAUSE_ANNOTATION} ({why})"),
        };
        Some(Self {
            which: Which::OnNode(subject),
            suppressor: Suppressor::Paused {
                by,
                until: Some(end),
            },
            since,
            length: between(since, end),
            left,
            is_bounded: own_end.is_none(),
        })
    }

    /// Somebody works on the Node. Its own time is another clock's: one in the future makes it no younger than its first
    /// sight.
    pub(super) fn by_sign(
        sign: &StandingSign,
        sights: &Sights,
        longest: Duration,
        now: Now,
    ) -> Self {
        let subject = sign_subject(sign);
        let seen = sights.age(subject, now);
        let age = sign
            .since
            .map_or(seen, |at| between(at, now.wall).max(seen));
        let own = sign.since.filter(|at| between(*at, now.wall) >= seen);
        let since = own.or_else(|| sights.since(subject));
        Self {
            which: Which::OnNode(subject),
            suppressor: Suppressor::Maintenance { sign: sign.name() },
            since: since.unwrap_or_else(|| before(now.wall, age)),
            length: longest,
            left: longest.saturating_sub(age),
            is_bounded: true,
        }
    }

    /// Whether it is ignored, by the bound.
    pub(super) fn is_over(&self) -> bool {
        self.is_bounded && self.left.is_zero()
    }

    /// Whether it is a pause that is to be warned of some time, an hour before it ends.
    pub(super) fn is_warned_of(&self) -> bool {
        matches!(self.suppressor, Suppressor::Paused { .. }) && self.length > WARN_BEFORE
    }

    /// Who asks, in words.
    fn who(&self) -> String {
        match &self.suppressor {
            Suppressor::Paused { by, .. } => by.clone(),
            other => other.to_string(),
        }
    }

    /// Whether it is what that one asks for.
    pub(super) fn is_by(&self, who: &str) -> bool {
        matches!(&self.suppressor, Suppressor::Paused { by, .. } if by == who)
    }

    /// Why it is ignored.
    pub(super) fn ignored(&self) -> String {
        let who = self.who();
        format!(
            "ignored: {who} since {:.0}, longer than max_pause_secs",
            self.since
        )
    }

    /// It ends soon.
    pub(super) fn warning(&self) -> Notice {
        let bound = if self.is_bounded {
            " by [suppression] max_pause_secs"
        } else {
            ""
        };
        Notice {
            warning: true,
            reason: "PauseEnding".to_owned(),
            action: "StandDown",
            note: format!(
                "{}: it ends then{bound}, and what is bad is reported at once; pause anew if the work goes on",
                self.suppressor
            ),
            about: String::new(),
            pace: Pace::Ordinary,
        }
    }

    /// The bound has ended it.
    pub(super) fn ended(&self) -> Notice {
        Notice {
            warning: true,
            reason: "PauseTooLong".to_owned(),
            action: "StandDown",
            note: format!(
                "{}; change its value, or pause anew, if the work goes on",
                self.ignored()
            ),
            about: String::new(),
            pace: Pace::Ordinary,
        }
    }
}

/// By what the annotation's first sight is kept.
pub(super) fn pause_subject(pause: &PauseAnnotation) -> Subject {
    Subject {
        name: "pause",
        fingerprint: Some(pause.fingerprint),
    }
}

/// By what a sign's first sight is kept.
pub(super) fn sign_subject(sign: &StandingSign) -> Subject {
    Subject {
        name: sign.row.id,
        fingerprint: None,
    }
}
