//! Short turns: on a healthy node nearly every event changes nothing, and to judge everything anew for it is most of what an
//! idle agent costs. Whatever is not known to be of that kind has a whole turn.

use std::time::Duration;

use super::{
    event::{Effect, Event},
    judging,
    state::{BEAT_SLACK, State},
};
use crate::{
    checks::{
        self,
        kubelet::{Probe, SPEC as KUBELET},
    },
    clock::Now,
    cluster::publisher::Publisher,
    health::Reason,
};

/// At least so often everything is judged anew, whatever happens.
const MAX_REST: Duration = Duration::from_secs(30);

impl State {
    /// Whether this changes nothing by itself but what some check makes of it.
    pub(super) fn is_quiet(&self, event: &Event) -> bool {
        let is_watched = |pid: i32| self.kubelet.process().is_some_and(|p| p.pid == pid);
        match event {
            Event::Tick => true,
            // Its state is told with what is told of a kubelet that does not answer.
            Event::ProcessState(pid, _) => is_watched(*pid) && !self.kubelet.is_suspect(),
            Event::Probed { pid, probe, .. } => {
                let shown = self.health.get(KUBELET.condition).verdict();
                let is_well = shown.is_some_and(|v| v.reason == Reason::KubeletIsHealthy);
                *probe == Probe::Ok && is_watched(*pid) && is_well && self.kubelet.answers()
            }
            Event::Answered(_, reading) => reading.is_the_askers(),
            _ => false,
        }
    }

    /// What comes after an event, or after several of one moment: a short turn if all of them were quiet and nothing has come
    /// of them, else a whole one.
    pub(super) fn go_on(&mut self, is_quiet: bool, now: Now, effects: &mut Vec<Effect>) {
        if is_quiet && now.uptime + BEAT_SLACK < self.rests_until {
            self.take_turns(now, effects);
            if self.words_are_at_rest() && !self.tell_news(now) {
                self.follow_process(now, effects);
                self.feed_watchdog(now, effects);
                return;
            }
        }
        self.settle(now, effects);
        self.rests_until = self.rest(now);
    }

    /// Until when nothing is due but what a short turn does: the beat, the probe, the checks' turns, systemd's watchdog
    /// (uptime).
    fn rest(&self, now: Now) -> Duration {
        let may_rest = self.kubelet.process().is_some()
            && !self.kubelet.is_suspect()
            && self.standing.suppressors().is_empty();
        if !may_rest {
            return Duration::ZERO;
        }
        let textfile = self.settings.metrics.textfile_dir.is_some();
        // Unlike a deadline for the timer, one that has passed without effect counts: it is tried again at each turn.
        let all = [
            Some(now.uptime + MAX_REST),
            Some(self.status_at),
            textfile.then_some(self.textfile_at),
            self.facts_at,
            self.next_of_others(now),
            self.next_besides(now),
        ];
        all.into_iter().flatten().min().unwrap_or(Duration::ZERO)
    }

    /// When what has a deadline of its own is due (uptime), besides what a short turn does.
    pub(super) fn next_of_others(&self, now: Now) -> Option<Duration> {
        let write_at = self.publisher.as_ref().and_then(Publisher::next_deadline);
        let all = [
            self.kubelet.next_deadline(now),
            self.next_closer_look(),
            self.health.next_deadline(now),
            self.checking.next_deadline(),
            self.standing.next_deadline(now),
            self.link.next_deadline(write_at),
        ];
        all.into_iter().flatten().min()
    }

    /// Whether to judge would change nothing: every check that may have another word says what it said, and that is well.
    fn words_are_at_rest(&self) -> bool {
        let health = &self.health;
        let config = self.checking.config.findings();
        let told = judging::told(health);
        let driven = |driven: &super::reading::Driven| {
            if !driven.stirred {
                return true;
            }
            let (check, spec) = (&*driven.check, driven.check.spec());
            let hint = check.hint();
            if hint.is_some_and(|(spec, hint)| !health.is_at_rest(spec.condition, spec.id, hint)) {
                false
            } else if check.applies() {
                health.is_at_rest(spec.condition, spec.id, judging::word(check, told))
            } else {
                health.is_withdrawn(spec.condition, spec.id)
            }
        };
        health.is_at_rest(KUBELET.condition, KUBELET.id, &[])
            && health.is_at_rest(
                checks::config::SPEC.condition,
                checks::config::SPEC.id,
                config,
            )
            && self.driven.iter().all(driven)
    }
}

#[cfg(test)]
mod tests;
