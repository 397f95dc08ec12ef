//! A kubelet that answers, but from which the control plane has not heard.

use std::time::Duration;

use super::lease::LeaseReadings;
use crate::condition::Uptime;
use crate::facts::LeaseFacts;

/// A kubelet may need so long to connect again, such as after the host was suspended: client-go gives a connection up that has been silent
/// for 45 s.
const CONNECTS_WITHIN: Duration = Duration::from_mins(1);

/// What has been seen while the Node's `Ready` is `Unknown`.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    since: Option<Uptime>,
    lease: LeaseReadings,
}

impl CutOff {
    /// Takes in whether the control plane shows `Ready=Unknown`, and the Lease as last read.
    pub(super) fn observe(&mut self, is_unknown: bool, lease: Option<&LeaseFacts>, now: Uptime) {
        if !is_unknown {
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert(now);
        if let Some(lease) = lease.filter(|lease| lease.read_at >= since) {
            self.lease.read(lease);
        }
    }

    /// Whether the Lease is needed to decide.
    pub(super) fn is_suspected(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the control plane has not heard from it, by the Node and by the Lease.
    pub(super) fn is_certain(&self, now: Uptime) -> bool {
        // The Lease is read every few seconds, so the time is noticed.
        self.since.is_some_and(|since| now >= since + CONNECTS_WITHIN) && self.lease.is_old(now)
    }
}
