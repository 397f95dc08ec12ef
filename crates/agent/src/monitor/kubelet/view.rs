//! What is reported of the kubelet, from what is known of it.

use super::{
    alive::Alive,
    ended::{Cause, Ended},
    state::{Bus, DEPENDENCY_WAIT, Kubelet, Life},
};
use crate::{
    condition::{Finding, Reason, Uptime, View},
    host::systemd::JobKind,
};

impl Kubelet {
    /// What to report now; none while there is nothing new.
    pub fn view(&self, now: Uptime) -> Option<View> {
        if self.jobs.has(&[JobKind::Stop]) && self.stopped_with.is_none() && matches!(self.life, Life::Alive(_)) {
            return Some(View::Excused(self.stopped_finding()));
        }
        if let (Some(pid), Some(error)) = (self.process_to_open(), &self.unwatchable) {
            let message = format!("kubelet pid {pid} cannot be watched: {error}");
            return Some(View::CannotTell(Finding::new(Reason::KubeletNotFound, message)));
        }
        match &self.life {
            Life::Unseen if self.bus == Bus::Lost => Some(View::Unexplained(Finding::new(
                Reason::KubeletNotFound,
                "there is no D-Bus connection to systemd, so the kubelet's process is not known",
            ))),
            Life::Unseen => None,
            Life::Absent => Some(self.absent()),
            Life::Alive(alive) => self.alive(alive, now),
            Life::Ended(ended) => self.ended(ended, now),
        }
    }

    fn stopped_finding(&self) -> Finding {
        let message = format!("{} was stopped by a stop job: systemctl stop, a shutdown or a package", self.unit_name);
        Finding::new(Reason::KubeletStoppedByOperator, message)
    }

    /// systemd starts such a unit neither when the other one is back, nor by its `Restart=`.
    fn stopped_with_dependency(&self, ended: &Ended, now: Uptime) -> View {
        let (name, dependency) = (&self.unit_name, ended.dependency.as_ref());
        let unit = dependency.map_or("a unit", |dependency| &dependency.unit);
        let message = format!("systemd stopped {name} because {unit} failed, and has not started it again");
        let settled_since = dependency.and_then(|dependency| dependency.settled_since);
        if settled_since.is_some_and(|since| now >= since + DEPENDENCY_WAIT) {
            let message = format!("{message}: systemctl start {name}");
            return seen(Finding::new(Reason::KubeletStoppedWithDependency, message));
        }
        View::CannotTell(Finding::new(Reason::KubeletNotFound, message))
    }

    fn starting(&self) -> Finding {
        let (unit, state) = (&self.unit_name, &self.unit.sub_state);
        let message = format!("{unit} is starting ({state}); the kubelet does not answer yet");
        Finding::new(Reason::KubeletStarting, message)
    }

    fn absent(&self) -> View {
        let (name, unit) = (&self.unit_name, &self.unit);
        let not_found = |message: String| Finding::new(Reason::KubeletNotFound, message);
        match unit.active_state.as_str() {
            _ if unit.load_state == "not-found" => View::CannotTell(not_found(format!("{name} is not installed"))),
            _ if self.unit_has_failed() => View::Seen { healthy: String::new(), findings: vec![self.unit_failed()] },
            "activating" => View::CannotTell(self.starting()),
            "inactive" if !unit.was_started => {
                View::CannotTell(not_found(format!("{name} has not been started since boot")))
            }
            state => View::Unexplained(not_found(format!(
                "{name} is {state}; it ended while nodevigil did not watch, so why is not known"
            ))),
        }
    }

    fn unit_has_failed(&self) -> bool {
        self.unit.active_state == "failed" && self.unit.result != "success"
    }

    /// The unit has failed before there was a process, such as in its `ExecStartPre=`.
    fn unit_failed(&self) -> Finding {
        let message = format!("{} failed (Result={}), and no kubelet runs", self.unit_name, self.unit.result);
        let is_limit = self.unit.result == "start-limit-hit";
        Finding::new(if is_limit { Reason::KubeletCrashLooping } else { Reason::KubeletCrashed }, message)
    }

    fn ended(&self, ended: &Ended, now: Uptime) -> Option<View> {
        match ended.cause {
            Cause::Unconfirmed => None,
            Cause::Stopped => Some(View::Excused(self.stopped_finding())),
            Cause::StoppedWithDependency => Some(self.stopped_with_dependency(ended, now)),
            Cause::Itself => Some(seen(self.end_finding(ended, now))),
            Cause::Restarted if now < ended.at + self.start_grace && self.is_restarting() => {
                Some(View::Unchanged(self.starting()))
            }
            Cause::Restarted if self.unit_has_failed() => Some(seen(self.unit_failed())),
            Cause::Unknown if self.unit_has_failed() && !ended.was_being_stopped => Some(seen(self.unit_failed())),
            _ if self.unit.active_state == "activating" => Some(View::CannotTell(self.starting())),
            Cause::Restarted | Cause::Unknown => {
                let message = format!("kubelet pid {} has ended, and why is not known", ended.run.pid);
                Some(View::Unexplained(Finding::new(Reason::KubeletNotFound, message)))
            }
        }
    }

    /// Whether a restart is under way. A kubelet that ends with an error on SIGTERM leaves its unit failed for a moment, until the rest
    /// of the restart job starts the next one.
    fn is_restarting(&self) -> bool {
        self.jobs.has(&[JobKind::Restart, JobKind::Start, JobKind::Unread]) || self.unit.main_pid != 0
    }

    fn end_finding(&self, ended: &Ended, now: Uptime) -> Finding {
        let is_limit = self.unit.result == "start-limit-hit";
        ended.finding(&self.unit_name, self.ends.loop_at(now), is_limit)
    }

    fn alive(&self, alive: &Alive, now: Uptime) -> Option<View> {
        if alive.answers() {
            return Some(View::Seen { healthy: alive.healthy(), findings: Vec::new() });
        }
        if alive.is_young(self.start_grace, now) {
            return Some(match &alive.after {
                Some(ended) => seen(self.end_finding(ended, now)),
                None if alive.keeps_what_is_shown => View::Unchanged(self.starting()),
                None => View::CannotTell(self.starting()),
            });
        }
        if self.jobs.cause() == Some(Cause::Restarted) {
            return Some(View::Unchanged(self.starting()));
        }
        alive.unanswered_view(self.api_reached, now)
    }
}

fn seen(finding: Finding) -> View {
    View::Seen { healthy: String::new(), findings: vec![finding] }
}
