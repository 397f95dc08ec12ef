//! A kubelet that answers, but from which the control plane has not heard.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::lease::{OLD, READING_LASTS};
use crate::condition::Uptime;
use crate::host::api::LeaseFacts;

/// A kubelet may need so long to connect again, such as after the host was suspended: client-go gives a connection up that has been silent
/// for 45 s.
const CONNECTS_WITHIN: Duration = Duration::from_mins(1);

/// What has been seen while the Node's `Ready` is `Unknown`.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    since: Option<Uptime>,
    /// When the Lease was last seen to be old.
    old_at: Option<Uptime>,
}

impl CutOff {
    /// Takes in whether the control plane shows `Ready=Unknown`, and the Lease as last read. `time` is the earlier of the host's and the
    /// API server's, so that one wrong clock makes no Lease old; none if the latter is not known.
    pub(super) fn observe(
        &mut self,
        is_unknown: bool,
        lease: Option<&LeaseFacts>,
        time: Option<Timestamp>,
        now: Uptime,
    ) {
        if !is_unknown {
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert(now);
        let Some((lease, time)) = lease.zip(time).filter(|(lease, _)| lease.read_at >= since) else { return };
        let age = time.duration_since(lease.renewed).saturating_sub(signed(now.saturating_sub(lease.read_at)));
        self.old_at = (age >= signed(OLD.max(lease.duration))).then_some(lease.read_at);
    }

    /// Whether the Lease is needed to decide.
    pub(super) fn is_suspected(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the control plane has not heard from it, by the Node and by the Lease.
    pub(super) fn is_certain(&self, now: Uptime) -> bool {
        // The Lease is read every few seconds, so the time is noticed.
        let lasts = self.since.is_some_and(|since| now >= since + CONNECTS_WITHIN);
        lasts && self.old_at.is_some_and(|at| now < at + READING_LASTS)
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
