//! The container runtime's process and unit: what its check learns of them has the loop watch them.

use std::time::Duration;

use tracing::{info, warn};

use super::{
    Agent,
    event::{Effect, Event},
    state::State,
};
use crate::{
    checks::{
        Reading, Unasked,
        kubelet::{Process, Sign},
    },
    clock::Now,
    config::Settings,
    host::process::Watched,
};

/// How often, at a beat: a runtime that is stopped or stuck is asked in vain each quarter of a minute, and this says why.
const STATE_EVERY: Duration = Duration::from_millis(4_500);

/// The units beside the kubelet's that systemd is asked about from the start.
pub(super) fn units(settings: &Settings) -> Vec<String> {
    match &settings.runtime {
        runtime if !runtime.enabled => Vec::new(),
        runtime => match &runtime.unit {
            Some(unit) => vec![unit.clone()],
            None => crate::checks::runtime::UNITS
                .iter()
                .map(|unit| (*unit).to_owned())
                .collect(),
        },
    }
}

impl State {
    /// Where the runtime is the kubelet's sibling (k3s) its unit is the kubelet's.
    pub(super) fn offer_kubelets_unit(&mut self, sign: &Sign, now: Now) {
        let told = Reading::Unit(self.settings.kubelet.unit.clone(), sign.clone());
        self.offer(&told, now);
    }

    /// Has the process that answered, and its unit, watched.
    pub(super) fn follow_runtime(&mut self, reading: &Reading, effects: &mut Vec<Effect>) {
        let listener = match reading {
            Reading::Runtime(Ok(answer)) => {
                self.helper.answers();
                answer.listener.as_ref()
            }
            Reading::Runtime(Err(Unasked { is_away: true, why })) => {
                self.helper.is_away(why);
                None
            }
            Reading::Runtime(Err(_)) => {
                self.helper.answers();
                None
            }
            _ => None,
        };
        let Some(listener) = listener else { return };
        let process = Process {
            pid: listener.pid,
            started: listener.started,
        };
        if self.runtime.as_ref() == Some(&process) {
            return;
        }
        let unit = listener.unit.as_deref().unwrap_or("no unit");
        info!(pid = process.pid, unit, "watching the container runtime");
        if let Some(unit) = &listener.unit {
            effects.push(Effect::FollowUnit(unit.clone()));
        }
        effects.push(Effect::WatchRuntime(process.clone()));
        self.runtime = Some(process);
    }
}

impl Agent {
    /// Has systemd asked about one more unit; that there is a bound is the session's business.
    pub(super) fn follow_unit(&mut self, unit: String) {
        let is_kubelets = unit == self.settings.kubelet.unit;
        self.beside.send_if_modified(|units| {
            let is_new = !is_kubelets && !units.contains(&unit);
            if is_new {
                units.push(unit);
            }
            is_new
        });
    }

    pub(super) fn watch_runtime(&mut self, process: Process) {
        let pid = process.pid;
        (self.runtime_state, self.runtime_state_at) = (None, Duration::ZERO);
        match Watched::open(&self.outside.root, process) {
            Ok(Some(watched)) => self.runtime = Some(watched),
            Ok(None) => self
                .known
                .push_back(Event::Observed(Reading::RuntimeGone(pid))),
            // It is asked over CRI all the same, which shows its end too, only later.
            Err(e) => {
                warn!(pid, error = %e, "the container runtime's pidfd cannot be had; its end will be seen when it is asked next");
            }
        }
    }

    /// Reads the process's state now and then, and tells it if it is another one than before.
    pub(super) fn read_runtime_state(&mut self, now: Duration) {
        let is_early = self.runtime_state_at > now;
        let Some(watched) = self.runtime.as_ref().filter(|_| !is_early) else {
            return;
        };
        self.runtime_state_at = now + STATE_EVERY;
        // It runs and sleeps by turns: what it does when it is well is no news.
        let state = watched
            .seen()
            .map(|seen| seen.state)
            .filter(|state| !matches!(state, 'R' | 'S' | 'I'));
        if state != self.runtime_state {
            self.runtime_state = state;
            let reading = Reading::RuntimeState(watched.process.pid, state.unwrap_or('S'));
            self.known.push_back(Event::Observed(reading));
        }
    }
}

/// Waits until the runtime's process has ended; for ever if none is watched.
pub(super) async fn gone(watched: Option<&Watched>) -> i32 {
    match watched {
        Some(watched) => {
            watched.gone().await;
            watched.process.pid
        }
        None => std::future::pending().await,
    }
}
