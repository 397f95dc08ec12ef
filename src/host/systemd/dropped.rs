//! What came over the bus and was not believed, counted for all connections of this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is not from systemd, nor from the bus itself.
    Sender,
    /// systemd's, but of a path, an interface or a member that nobody had asked for.
    Kind,
    /// systemd's, and its body is of another shape.
    Body,
    /// It was too long to be systemd's.
    Size,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sender, Self::Kind, Self::Body, Self::Size];

    /// Whether somebody else than systemd may have sent it. systemd itself tells of interfaces that nobody reads, of a mount or a
    /// slice that the kubelet depends on.
    pub(super) fn is_foreign(self) -> bool {
        matches!(self, Self::Sender | Self::Size)
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Kind => "kind",
            Self::Body => "body",
            Self::Size => "size",
        }
    }
}

static DROPPED: [AtomicU64; Cause::ALL.len()] = [const { AtomicU64::new(0) }; Cause::ALL.len()];

pub(super) fn drop_one(cause: Cause) {
    DROPPED[cause as usize].fetch_add(1, Ordering::Relaxed);
}

/// How many, by cause, since this process began.
pub fn dropped() -> [(Cause, u64); Cause::ALL.len()] {
    Cause::ALL.map(|cause| (cause, DROPPED[cause as usize].load(Ordering::Relaxed)))
}
