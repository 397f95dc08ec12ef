//! A kubelet that answers, but whose connections to the API server are stuck.

use super::lease::LeaseReadings;
use crate::condition::Uptime;
use crate::host::api::LeaseFacts;
use crate::host::sockets::Connection;

/// How many lists in a row must show that no data gets through.
const READINGS_IN_A_ROW: u32 = 3;
/// Data that was sent again so often, which takes seconds, is not merely delayed by a lost packet.
const RETRANSMITS: u8 = 3;

/// The lists in a row that showed a stuck connection and none that works.
#[derive(Debug, Default)]
pub(super) struct Stall {
    readings: u32,
    lease: LeaseReadings,
}

impl Stall {
    /// Records all connections of the kubelet to the API server; none if they could not be listed.
    pub(super) fn observe(&mut self, connections: Option<&[Connection]>) {
        let is_stuck = |connection: &Connection| {
            let waits = connection.unacknowledged_bytes > 0 && connection.retransmits >= RETRANSMITS;
            if connection.is_opening { connection.retransmits > 0 } else { waits }
        };
        match connections {
            Some(all) if all.iter().all(|one| one.is_opening || is_stuck(one)) => {
                // Between two attempts to connect there is none, or a new one: this decides nothing.
                self.readings += u32::from(all.iter().any(is_stuck));
            }
            // Another one works, or it is not known.
            _ => *self = Self::default(),
        }
    }

    pub(super) fn lease_read(&mut self, lease: &LeaseFacts, now: Uptime) {
        if self.is_suspected() {
            self.lease.read(lease);
        }
        if self.lease.is_renewed(now) {
            *self = Self::default();
        }
    }

    /// Whether the Lease is needed to decide.
    pub(super) fn is_suspected(&self) -> bool {
        self.readings > 0
    }

    /// Whether the kubelet does not get through to the API server, by its connections and by its Lease.
    pub(super) fn is_certain(&self, now: Uptime) -> bool {
        self.readings >= READINGS_IN_A_ROW && self.lease.is_old(now)
    }
}
