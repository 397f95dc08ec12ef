//! Who asks for quiet: what keeps a problem from being told, for how long, and how the message names it.
//!
//! Two kinds. To *stand down* is somebody's will: what would become `False` becomes `Unknown`, with the will as its
//! reason. What is `False` already stays so, unless the will is an explicit pause: a person who asks for it is at work on the node,
//! and must not have a controller's clock run on meanwhile. A *hold* is a moment in which a problem is likely to pass by itself: what is sampled or read from a file does
//! not flip the status until it ends, and it always ends. A fact does: a kubelet that has died is told.

use std::{fmt, time::Duration};

use jiff::Timestamp;

use super::Reason;
use crate::clock::Now;

/// What keeps problems from being told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suppressor {
    /// `nodevigil pause`, or the annotation on the Node.
    Paused {
        /// Who asked for it, as a person would say it: `nodevigil pause`, `annotation nodevigil.io/pause`.
        by: String,
        /// Until when; `None`: until it is taken back.
        until: Option<Timestamp>,
    },
    /// Somebody works on the Node.
    Maintenance {
        /// By which sign: `MaintenanceInProgress=True`, a taint's or an annotation's key.
        sign: String,
    },
    /// The Node is being deleted, or a controller has marked it for that.
    BeingDeleted {
        /// By which sign: `deletionTimestamp`, a taint's key.
        sign: String,
    },
    /// The host is going down.
    ShuttingDown,
    /// A package manager is at work.
    PackageUpgrade {
        /// Which: `dpkg`, `rpm`.
        manager: String,
    },
    /// The host has just started, or its Node is just born.
    BootGrace,
}

/// What a suppressor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// Nothing becomes `False`; see the module.
    StandDown,
    /// Nothing but a fact flips the status; bounded in time.
    Hold,
}

/// A package upgrade holds no longer than this.
pub const PACKAGE_UPGRADE_HOLDS: Duration = Duration::from_mins(5);
/// The grace after a boot, or after the Node's birth, holds no longer than this.
pub const BOOT_GRACE_HOLDS: Duration = Duration::from_mins(2);

impl Suppressor {
    /// Which of the two kinds it is.
    pub fn quiet(&self) -> Quiet {
        match self {
            Self::Paused { .. }
            | Self::Maintenance { .. }
            | Self::BeingDeleted { .. }
            | Self::ShuttingDown => Quiet::StandDown,
            Self::PackageUpgrade { .. } | Self::BootGrace => Quiet::Hold,
        }
    }

    /// Whether what is `False` already becomes `Unknown` too, and our taints go. Nobody's but an explicit pause: who else has us
    /// stand down has not said that he mends it.
    pub fn lifts(&self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    /// The reason that a condition shows for it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Paused { .. } => Reason::NodePaused,
            Self::Maintenance { .. } => Reason::NodeInMaintenance,
            Self::BeingDeleted { .. } => Reason::NodeBeingDeleted,
            Self::ShuttingDown => Reason::NodeShuttingDown,
            Self::PackageUpgrade { .. } => Reason::NodeBeingUpgraded,
            Self::BootGrace => Reason::NodeJustStarted,
        }
    }

    /// How long it holds at most, however long it is reported; `None` for a stand-down, which ends by somebody's will.
    pub fn bound(&self) -> Option<Duration> {
        match self {
            Self::PackageUpgrade { .. } => Some(PACKAGE_UPGRADE_HOLDS),
            Self::BootGrace => Some(BOOT_GRACE_HOLDS),
            _ => None,
        }
    }

    /// Which of several is named: the one that does most, then the one that ends most.
    fn rank(&self) -> u8 {
        match self {
            Self::Paused { .. } => 0,
            Self::BeingDeleted { .. } => 1,
            Self::ShuttingDown => 2,
            Self::Maintenance { .. } => 3,
            Self::PackageUpgrade { .. } => 4,
            Self::BootGrace => 5,
        }
    }
}

/// The words in a message: `paused by nodevigil pause until 2026-11-21T16:00:00Z`.
impl fmt::Display for Suppressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { by, until: None } => write!(f, "paused by {by}"),
            Self::Paused {
                by,
                until: Some(until),
            } => write!(f, "paused by {by} until {until:.0}"),
            Self::Maintenance { sign } => write!(f, "the Node has {sign}"),
            Self::BeingDeleted { sign } => write!(f, "the Node is being deleted ({sign})"),
            Self::ShuttingDown => write!(f, "the host is shutting down"),
            Self::PackageUpgrade { manager } => write!(f, "{manager} is changing packages"),
            Self::BootGrace => write!(f, "the host or its Node has just started"),
        }
    }
}

/// How long something has held.
#[derive(Debug, Clone, Copy, Default)]
struct Holding {
    since: Option<Duration>,
    seen: Duration,
}

/// The memory of the holds, so that each ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Holds {
    package_upgrade: Holding,
    boot_grace: Holding,
}

/// What asks for quiet now, as far as it counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asking<'a> {
    /// The stand-down that is named.
    pub(super) stand_down: Option<&'a Suppressor>,
    /// The hold that is named, and when it has held long enough (uptime).
    pub(super) hold: Option<(&'a Suppressor, Duration)>,
}

impl Asking<'_> {
    /// Whether nobody asks.
    pub(super) fn is_none(&self) -> bool {
        self.stand_down.is_none() && self.hold.is_none()
    }
}

impl Holds {
    /// Sorts out what counts: the foremost of each kind, no hold beyond its bound.
    pub(super) fn ask<'a>(&mut self, suppression: &'a [Suppressor], now: Now) -> Asking<'a> {
        let mut asking = Asking::default();
        let mut by_rank: Vec<&Suppressor> = suppression.iter().collect();
        by_rank.sort_by_key(|suppressor| suppressor.rank());
        for suppressor in by_rank {
            match suppressor.bound() {
                None => asking.stand_down = asking.stand_down.or(Some(suppressor)),
                Some(bound) => {
                    let until = self.holding(suppressor).holds_until(bound, now.uptime);
                    if until > now.uptime {
                        asking.hold = asking.hold.or(Some((suppressor, until)));
                    }
                }
            }
        }
        asking
    }

    fn holding(&mut self, suppressor: &Suppressor) -> &mut Holding {
        match suppressor {
            Suppressor::PackageUpgrade { .. } => &mut self.package_upgrade,
            _ => &mut self.boot_grace,
        }
    }
}

impl Holding {
    /// It is asked for now. A pause shorter than the bound does not start it anew: a package manager that comes and goes
    /// would hold for ever.
    fn holds_until(&mut self, bound: Duration, uptime: Duration) -> Duration {
        let again = uptime.saturating_sub(self.seen) > bound;
        self.seen = uptime;
        let since = self.since.filter(|_| !again).unwrap_or(uptime);
        self.since = Some(since);
        since + bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_hold_ends_though_it_is_asked_for_again_and_again() {
        let dpkg = [Suppressor::PackageUpgrade {
            manager: "dpkg".to_owned(),
        }];
        let mut holds = Holds::default();
        for secs in (1000..1300).step_by(7) {
            let (_, until) = holds.ask(&dpkg, at(secs)).hold.unwrap();
            assert_eq!(until, Duration::from_secs(1300));
        }
        for secs in (1300..5000).step_by(200) {
            assert!(holds.ask(&dpkg, at(secs)).hold.is_none());
        }
        // After a long silence it is another upgrade.
        assert!(holds.ask(&dpkg, at(6000)).hold.is_some());
    }

    #[test]
    fn the_one_that_does_most_is_named_whatever_the_order() {
        let deleted = Suppressor::BeingDeleted {
            sign: "deletionTimestamp".to_owned(),
        };
        let paused = Suppressor::Paused {
            by: "nodevigil pause".to_owned(),
            until: Some("2026-11-21T16:00:00.25Z".parse().unwrap()),
        };
        let mut all = [
            Suppressor::Maintenance {
                sign: "MaintenanceInProgress=True".to_owned(),
            },
            paused.clone(),
            deleted.clone(),
        ];
        let mut holds = Holds::default();
        for _ in 0..3 {
            assert_eq!(holds.ask(&all, at(1)).stand_down, Some(&paused));
            all.rotate_left(1);
        }
        let unasked = [
            Suppressor::Maintenance {
                sign: "MaintenanceInProgress=True".to_owned(),
            },
            deleted.clone(),
        ];
        assert_eq!(holds.ask(&unasked, at(1)).stand_down, Some(&deleted));
        assert!(paused.lifts() && !unasked.iter().any(Suppressor::lifts));
        assert_eq!(
            paused.to_string(),
            "paused by nodevigil pause until 2026-11-21T16:00:00Z"
        );
    }
}
