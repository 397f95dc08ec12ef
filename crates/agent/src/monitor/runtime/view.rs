//! What is reported of the container runtime, from what is known of it.

use std::time::Duration;

use super::state::Runtime;
use crate::{
    condition::{Finding, Reason, Uptime, View},
    host::cri::Probe,
    monitor::service::{
        Bus, Life, Running,
        ended::{Cause, Ended},
        samples::FAILURES,
    },
};

/// A thread that has been in one uninterruptible wait for so long is stuck.
const STUCK_FOR: Duration = Duration::from_secs(10);

impl Runtime {
    /// What to report now; none while there is nothing new.
    pub(super) fn view(&self, now: Uptime) -> Option<View> {
        if let Some(Probe::Ready { name }) = &self.last_probe {
            let healthy = format!("{name} answers at {}{}", self.socket(), self.pid());
            return Some(View::healthy(healthy));
        }
        if self.service.is_being_stopped() {
            return Some(View::Excused(self.stopped()));
        }
        match &self.service.life {
            Life::Ended(ended) => self.ended(ended, now),
            Life::Running(running) => self.running(running, now),
            Life::Unseen | Life::Absent if self.last_probe == Some(Probe::NoListener) => self.absent(),
            Life::Unseen | Life::Absent => self.unanswered(now),
        }
    }

    fn socket(&self) -> String {
        self.endpoint.as_ref().map(|endpoint| endpoint.socket.display().to_string()).unwrap_or_default()
    }

    fn pid(&self) -> String {
        self.process().map(|id| format!(" (pid {})", id.pid)).unwrap_or_default()
    }

    fn stopped(&self) -> Finding {
        let name = &self.service.name;
        not_found(format!("{name} was stopped by a stop job: systemctl stop, a shutdown or a package"))
    }

    fn starting(&self) -> Finding {
        let (name, state) = (&self.service.name, &self.service.unit.sub_state);
        not_found(format!("{name} is starting ({state}); it does not answer at {} yet", self.socket()))
    }

    fn unit_failed(&self) -> View {
        let (name, result) = (&self.service.name, &self.service.unit.result);
        View::found(
            Reason::ContainerRuntimeDown,
            format!("{name} failed (Result={result}), and no container runtime runs"),
        )
    }

    /// How the main process ended.
    fn has_ended(&self, ended: &Ended) -> String {
        let name = &self.service.name;
        match ended.oom_killed(name) {
            Some(killed) => format!("the main process of {name} {killed}"),
            None => format!("the main process of {name} (pid {}) {}", ended.run.pid, ended.how()),
        }
    }

    /// Whether the end of the unit's main process is the runtime's end: it is the one that listens, or now nobody does.
    fn is_runtimes_end(&self) -> bool {
        self.main_process_listens || self.silence.without_listener >= FAILURES
    }

    fn ended(&self, ended: &Ended, now: Uptime) -> Option<View> {
        let was_stopped_unseen = ended.cause == Cause::Unknown && ended.was_being_stopped;
        match ended.cause {
            Cause::Unconfirmed => None,
            Cause::Stopped => Some(View::Excused(self.stopped())),
            Cause::Restarted if self.service.is_restarting(ended, now) => Some(View::Unchanged(self.starting())),
            _ if !self.is_runtimes_end() => match self.last_probe {
                None | Some(Probe::NoListener) => Some(View::Unchanged(not_found(self.has_ended(ended)))),
                // It has outlived the process that started it.
                Some(_) => self.unanswered(now),
            },
            Cause::Itself => Some(View::found(Reason::ContainerRuntimeDown, self.has_ended(ended))),
            Cause::StoppedWithDependency => {
                let message =
                    format!("systemd stopped {} because a unit that it is bound to failed", self.service.name);
                Some(View::CannotTell(not_found(message)))
            }
            _ if self.service.unit_has_failed() && !was_stopped_unseen => Some(self.unit_failed()),
            _ if self.service.unit.active_state == "activating" => Some(View::CannotTell(self.starting())),
            Cause::Restarted | Cause::Unknown => {
                let message = format!("{}, and why is not known", self.has_ended(ended));
                Some(View::Unexplained(not_found(message)))
            }
        }
    }

    fn running(&self, running: &Running, now: Uptime) -> Option<View> {
        if !self.has_answered && now < running.started + self.service.start_grace {
            return Some(match &running.after {
                Some(ended) if self.is_runtimes_end() => {
                    View::found(Reason::ContainerRuntimeDown, self.has_ended(ended))
                }
                Some(_) => View::Unchanged(self.starting()),
                None if running.keeps_what_is_shown => View::Unchanged(self.starting()),
                None => View::CannotTell(self.starting()),
            });
        }
        if self.service.is_being_restarted() {
            return Some(View::Unchanged(self.starting()));
        }
        self.unanswered(now)
    }

    /// Nobody listens, and no process ended while we watched.
    fn absent(&self) -> Option<View> {
        let (name, unit) = (&self.service.name, &self.service.unit);
        let nobody = format!("nothing listens at {}", self.socket());
        let cannot_tell = |why: &str| Some(View::CannotTell(not_found(format!("{nobody}, and {name} {why}"))));
        match self.service.bus {
            _ if self.units.is_empty() => Some(View::CannotTell(not_found(nobody))),
            Bus::Connecting => None,
            Bus::Lost => {
                let message = format!("{nobody}, and there is no D-Bus connection to systemd, which knows why");
                Some(View::Unexplained(not_found(message)))
            }
            Bus::Connected => match unit.active_state.as_str() {
                _ if unit.load_state == "not-found" => cannot_tell("is not installed"),
                _ if self.service.unit_has_failed() && self.endpoint_is_known() => Some(self.unit_failed()),
                "activating" => Some(View::CannotTell(self.starting())),
                "inactive" if !unit.was_started => cannot_tell("has not been started since boot"),
                state => {
                    let message = format!("{nobody}, and {name} is {state}; why is not known");
                    Some(View::Unexplained(not_found(message)))
                }
            },
        }
    }

    /// What to report of a runtime that runs and is not ready; none before the third failed probe.
    fn unanswered(&self, now: Uptime) -> Option<View> {
        if self.silence.failures < FAILURES {
            return None;
        }
        let (name, socket, samples) = (&self.service.name, self.socket(), &self.silence.samples);
        let who = format!("the container runtime at {socket}{}", self.pid());
        let unconfirmed = |why: String| Some(View::CannotTell(Finding::new(Reason::ContainerRuntimeUnconfirmed, why)));
        match self.last_probe.as_ref()? {
            Probe::Ready { .. } => None,
            Probe::NoListener if self.service.unit.active_state == "activating" => {
                Some(View::CannotTell(self.starting()))
            }
            // Without a witness it may be a socket that another unit serves at another time. And k3s starts its containerd only after it
            // has reached a server.
            Probe::NoListener
                if self.silence.without_listener >= FAILURES && (self.is_served() || self.kubelet_agrees.is_some()) =>
            {
                let message = format!("{name} runs, but nothing listens at {socket}");
                Some(View::found(Reason::ContainerRuntimeDown, message))
            }
            Probe::NoListener => unconfirmed(format!("{name} runs, and nothing listens at {socket}")),
            Probe::Impossible(why) if self.endpoint.is_none() => Some(View::CannotTell(not_found(why))),
            Probe::Impossible(why) => unconfirmed(format!("{who} cannot be asked: {why}")),
            Probe::NotReady(why) => match &self.kubelet_agrees {
                Some(kubelet) => {
                    let message = format!("{who} {why}; the kubelet says on the Node: {kubelet}");
                    Some(View::found(Reason::ContainerRuntimeNotReady, message))
                }
                None => unconfirmed(format!("{who} {why}; the kubelet does not say so on the Node")),
            },
            Probe::TimedOut => {
                let hung = |why: String| {
                    Some(View::found(Reason::ContainerRuntimeHung, format!("{who} does not answer, and {why}")))
                };
                if let Some(why) = samples.suspended_by() {
                    hung(why)
                } else if samples.is_starved(now) {
                    unconfirmed(format!("{who} does not answer, but the host is too busy to run it"))
                } else if let Some(tid) = samples.stuck_for(STUCK_FOR, now) {
                    hung(format!("its thread {tid} waits in the kernel (state D)"))
                } else {
                    unconfirmed(format!("{who} does not answer, and its process is neither stopped nor in state D"))
                }
            }
        }
    }
}

fn not_found(message: impl Into<String>) -> Finding {
    Finding::new(Reason::ContainerRuntimeNotFound, message)
}
