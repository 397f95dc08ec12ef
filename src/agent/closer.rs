//! A closer look at a kubelet that does not answer, and at one that has ended: its threads, its last words.

use std::{sync::Arc, time::Duration};

use tracing::debug;

use super::{
    Agent,
    event::{Closer, Effect, Event},
    state::{SLACK, State},
};
use crate::{
    checks::{
        Reading,
        kernel::event::KernelEvent,
        kubelet::{Run, Sign},
    },
    clock::Now,
    host::suspect,
};

/// How often one that does not answer is looked at …
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// … and how often once that has long been told.
const SAMPLE_EVERY_LATER: Duration = Duration::from_secs(10);
/// So many looks are made in quick succession.
const QUICK_SAMPLES: u32 = 30;

/// The looks at the process under suspicion.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Whether a look is under way.
    open: bool,
    /// When to look next (uptime).
    at: Duration,
    /// How many were made in this suspicion.
    made: u32,
}

impl State {
    /// What the kernel says of a process that it killed may be about the kubelet.
    pub(super) fn learn_of_kill(&mut self, reading: &Reading, now: Now) {
        if let Reading::Kernel(KernelEvent::OomKill(kill)) = reading {
            self.kubelet.apply(Sign::OomKill(kill.clone()), now);
        }
    }

    /// The Lease tells whether a kubelet works that does not answer.
    pub(super) fn learn_of_lease(&mut self, reading: &Reading, now: Now) {
        if let Reading::Lease(Ok(renewal)) = reading {
            let (renewed, duration) = (renewal.renewed, renewal.duration);
            self.kubelet.apply(Sign::Lease { renewed, duration }, now);
        }
    }

    pub(super) fn apply_closer(&mut self, seen: Closer, now: Now) {
        let sign = match seen {
            Closer::Carried(pid, carrier) => Sign::Carrier(pid, carrier),
            Closer::Sampled(pid, sample) => {
                self.closer.open = false;
                Sign::Sampled(pid, sample)
            }
            Closer::Words(run, Ok(words)) => Sign::Words(run, words),
            // No trouble: the end has long been told.
            Closer::Words(_, Err(e)) => {
                debug!(error = %e, "the kubelet's last words could not be read");
                return;
            }
        };
        self.kubelet.apply(sign, now);
    }

    /// When to look (uptime), if there is need.
    pub(super) fn next_closer_look(&self) -> Option<Duration> {
        (self.kubelet.is_suspect() && !self.closer.open).then_some(self.closer.at)
    }

    pub(super) fn look_closer(&mut self, now: Now, effects: &mut Vec<Effect>) {
        effects.extend(self.kubelet.take_wanted_words(now).map(Effect::AskWords));
        effects.extend(self.kubelet.take_suspect().map(Effect::LookWhetherItDies));
        if !self.kubelet.is_suspect() {
            self.closer.made = 0;
            return;
        }
        let Some(pid) = self.kubelet.process().map(|process| process.pid) else {
            return;
        };
        if self.closer.open || now.uptime + SLACK < self.closer.at {
            return;
        }
        let every = if self.closer.made < QUICK_SAMPLES {
            SAMPLE_EVERY
        } else {
            SAMPLE_EVERY_LATER
        };
        self.closer.made = self.closer.made.saturating_add(1);
        (self.closer.open, self.closer.at) = (true, now.uptime + every);
        effects.push(Effect::Sample(pid, self.url().cloned()));
    }
}

impl Agent {
    pub(super) fn sample(&mut self, pid: i32, healthz: Option<Arc<str>>) {
        let outside = self.outside.clone();
        self.spawn(async move {
            let look = move || suspect::sample(&outside.root, pid, healthz.as_deref());
            let sample = tokio::task::spawn_blocking(look).await;
            Event::Closer(Closer::Sampled(pid, sample.unwrap_or_default()))
        });
    }

    pub(super) fn ask_words(&mut self, run: Run) {
        let helper = self.outside.helper.clone();
        self.spawn(async move {
            let words = helper.last_words(&run).await;
            Event::Closer(Closer::Words(run, words))
        });
    }
}
