//! When the kubelet's state means something else though no sign comes.

use std::time::Duration;

use super::{
    JOB_TYPE_WAIT, JOIN_WAIT, Kubelet, Life,
    life::{Cause, Ended},
};
use crate::{clock::Now, health::UNKILLABLE_AFTER};

/// A wait that ends later than this after its end has been slept through: nobody was there to read what it waited for.
const LATE: Duration = Duration::from_millis(5);

impl Kubelet {
    /// When to assess again though no sign comes (uptime), and no earlier than `now`.
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let ahead = |at: Option<Duration>| at.filter(|at| *at > now.uptime);
        let life = match &self.life {
            Life::Ended(Ended { at, cause, .. }) => match cause {
                Cause::Asked(until) => Some(*until),
                Cause::Restarting => Some(*at + self.terms.start_grace),
                _ => None,
            },
            Life::Alive(alive) if !alive.answered => {
                Some(alive.process.started + self.terms.start_grace)
            }
            Life::Absent(_) => self.absent_since.map(|at| at + self.terms.start_grace),
            _ => None,
        };
        let after = |since: Option<Duration>, grace| ahead(since.map(|at| at + grace));
        [
            ahead(life),
            ahead(self.back_is_due_at()),
            after(self.stopping_since, self.terms.stop_grace),
            after(self.killing_since, UNKILLABLE_AFTER),
            after(self.activating_since, self.terms.start_grace),
            after(self.born.filter(|_| self.awaits_join.is_none()), JOIN_WAIT),
            ahead(self.ends.words_due_at()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Lets the deadlines pass that have come.
    pub fn tick(&mut self, now: Now) {
        let Life::Ended(ended) = &mut self.life else {
            return;
        };
        let over = match ended.cause {
            // We woke up late ourselves: what systemd has said meanwhile lies unread, and is read before the wait is over.
            Cause::Asked(until)
                if now.uptime > until + LATE && now.uptime < ended.at + JOB_TYPE_WAIT =>
            {
                ended.cause = Cause::Asked(now.uptime + self.terms.cause_wait);
                false
            }
            Cause::Asked(until) => now.uptime >= until,
            Cause::Restarting => now.uptime >= ended.at + self.terms.start_grace,
            _ => false,
        };
        if over {
            ended.cause = Cause::Unknown;
        }
    }

    /// Whether it is still to be heard whether the host has joined a cluster.
    pub(super) fn join_is_open(&self, now: Now) -> bool {
        let is_young = |at| now.uptime < at + JOIN_WAIT;
        !self.has_answered && self.awaits_join.is_none() && self.born.is_some_and(is_young)
    }
}
