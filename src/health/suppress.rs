//! Who asks for quiet: what keeps a problem from being told, for how long, and how the message names it.
//!
//! Two kinds. To *stand down* is somebody's will: what would be `False` is `Unknown` then, with the will as its reason.
//! A *hold* is a moment in which a problem is likely to pass by itself: the status stays as it is until it ends, and it
//! always ends.

use std::fmt;

use jiff::Timestamp;

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
    /// The Node has `MaintenanceInProgress=True` (KEP-5683).
    Maintenance,
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
    /// Nothing flips; bounded in time.
    Hold,
}

impl Suppressor {
    /// Which of the two kinds it is.
    pub fn quiet(&self) -> Quiet {
        match self {
            Self::Paused { .. }
            | Self::Maintenance
            | Self::BeingDeleted { .. }
            | Self::ShuttingDown => Quiet::StandDown,
            Self::PackageUpgrade { .. } | Self::BootGrace => Quiet::Hold,
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
            Self::Maintenance => write!(f, "the Node has MaintenanceInProgress=True"),
            Self::BeingDeleted { sign } => write!(f, "the Node is being deleted ({sign})"),
            Self::ShuttingDown => write!(f, "the host is shutting down"),
            Self::PackageUpgrade { manager } => write!(f, "{manager} is changing packages"),
            Self::BootGrace => write!(f, "the host or its Node has just started"),
        }
    }
}
