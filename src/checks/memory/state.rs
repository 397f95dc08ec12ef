//! How memory stands, from which state it came to which, and for how long something has been so.

use std::{fmt, time::Duration};

use super::why::Why;

/// So many alarms of a kind within that time hold the last one for as long.
const FLAPS: usize = 3;
const FLAP_TIME: Duration = Duration::from_mins(10);

/// How memory stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// Nothing moves.
    Calm {
        /// What was available when it settled low, in percent: only less is news.
        settled: Option<f64>,
        /// What was left to all pods then, in percent of their limit.
        pods: Option<f64>,
    },
    /// It moves, and is looked at closely.
    Rising {
        /// When something last moved (uptime).
        moved_at: Duration,
        /// What was available then, in percent.
        anchor: f64,
        /// Whether nothing but waiting tasks was seen.
        only_waits: bool,
    },
    /// It is about to be exhausted.
    Imminent,
    /// It is exhausted, and the host does nothing but move pages.
    Thrashing,
    /// The kernel killed a process because the host had no memory left.
    Oom {
        /// The last kill (uptime).
        killed_at: Duration,
    },
}

/// A state's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of State, which documents each")]
pub enum Stage {
    Calm,
    Rising,
    Imminent,
    Thrashing,
    Oom,
}

impl Stage {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Rising => "rising",
            Self::Imminent => "imminent",
            Self::Thrashing => "thrashing",
            Self::Oom => "oom",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// Its name.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Calm { .. } => Stage::Calm,
            Self::Rising { .. } => Stage::Rising,
            Self::Imminent => Stage::Imminent,
            Self::Thrashing => Stage::Thrashing,
            Self::Oom { .. } => Stage::Oom,
        }
    }
}

/// From one state to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transition {
    /// When (uptime).
    pub at: Duration,
    /// From which …
    pub from: Stage,
    /// … to which.
    pub to: Stage,
    /// Why.
    pub why: Why,
}

/// Since when it has been so without a break (uptime).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Since(Option<Duration>);

impl Since {
    pub(super) fn mark(&mut self, is_so: bool, at: Duration) {
        self.0 = if is_so { self.0.or(Some(at)) } else { None };
    }

    pub(super) fn lasts(self, for_so_long: Duration, at: Duration) -> bool {
        self.0
            .is_some_and(|since| at.saturating_sub(since) >= for_so_long)
    }
}

/// When an alarm was last raised, and how long it is held for that.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Raised {
    at: [Option<Duration>; FLAPS],
    /// Until then it is not over (uptime).
    pub(super) held_until: Duration,
}

impl Raised {
    pub(super) fn again(&mut self, at: Duration) {
        self.at.rotate_left(1);
        self.at[FLAPS - 1] = Some(at);
        if self.at[0].is_some_and(|first| at.saturating_sub(first) <= FLAP_TIME) {
            self.held_until = at + FLAP_TIME;
        }
    }
}

/// The hint's numbers as they are told.
#[derive(Debug, Clone, Copy)]
pub(super) struct HintTold {
    pub(super) since: Duration,
    pub(super) at: Duration,
    pub(super) stage: Stage,
}

/// The host thrashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thrashing {
    /// Since when (uptime).
    pub(super) since: Duration,
    /// Whether its second witness was there since then.
    pub(super) is_sure: bool,
}
