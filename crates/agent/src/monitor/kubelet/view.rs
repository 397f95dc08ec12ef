//! What is reported of the kubelet, from what is known of it.

use super::state::Kubelet;
use crate::{
    condition::{Finding, Reason, Uptime, View},
    monitor::service::{
        Bus, DEPENDENCY_WAIT, Life, Running,
        ended::{Cause, Ended},
    },
};

impl Kubelet {
    /// What to report now; none while there is nothing new.
    pub fn view(&self, now: Uptime) -> Option<View> {
        if self.service.is_being_stopped() {
            return Some(View::Excused(self.stopped_finding()));
        }
        if let (Some(pid), Some(error)) = (self.process_to_open(), &self.service.unwatchable) {
            let message = format!("kubelet pid {pid} cannot be watched: {error}");
            return Some(View::CannotTell(Finding::new(Reason::KubeletNotFound, message)));
        }
        match &self.service.life {
            Life::Unseen if self.service.bus == Bus::Lost => Some(View::Unexplained(Finding::new(
                Reason::KubeletNotFound,
                "there is no D-Bus connection to systemd, so the kubelet's process is not known",
            ))),
            Life::Unseen => None,
            Life::Absent => Some(self.absent()),
            Life::Running(running) => self.running(running, now),
            Life::Ended(ended) => self.ended(ended, now),
        }
    }

    fn stopped_finding(&self) -> Finding {
        let message =
            format!("{} was stopped by a stop job: systemctl stop, a shutdown or a package", self.service.name);
        Finding::new(Reason::KubeletStoppedByOperator, message)
    }

    /// systemd starts such a unit neither when the other one is back, nor by its `Restart=`.
    fn stopped_with_dependency(&self, ended: &Ended, now: Uptime) -> View {
        let (name, dependency) = (&self.service.name, ended.dependency.as_ref());
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
        let (unit, state) = (&self.service.name, &self.service.unit.sub_state);
        let message = format!("{unit} is starting ({state}); the kubelet does not answer yet");
        Finding::new(Reason::KubeletStarting, message)
    }

    fn absent(&self) -> View {
        let (name, unit) = (&self.service.name, &self.service.unit);
        let not_found = |message: String| Finding::new(Reason::KubeletNotFound, message);
        match unit.active_state.as_str() {
            _ if unit.load_state == "not-found" => View::CannotTell(not_found(format!("{name} is not installed"))),
            _ if unit.load_state == "masked" => View::CannotTell(not_found(format!(
                "{name} is masked, so systemd does not start it: systemctl unmask {name}"
            ))),
            _ if self.service.unit_has_failed() => seen(self.unit_failed()),
            "activating" => View::CannotTell(self.starting()),
            "inactive" if !unit.was_started => {
                View::CannotTell(not_found(format!("{name} has not been started since boot")))
            }
            state => View::Unexplained(not_found(format!(
                "{name} is {state}; it ended while nodevigil did not watch, so why is not known: see journalctl -u {name}"
            ))),
        }
    }

    /// The unit has failed before there was a process, such as in its `ExecStartPre=`.
    fn unit_failed(&self) -> Finding {
        let message =
            format!("{} failed (Result={}), and no kubelet runs", self.service.name, self.service.unit.result);
        let is_limit = self.service.unit.result == "start-limit-hit";
        Finding::new(if is_limit { Reason::KubeletCrashLooping } else { Reason::KubeletCrashed }, message)
    }

    fn ended(&self, ended: &Ended, now: Uptime) -> Option<View> {
        match ended.cause {
            Cause::Unconfirmed => None,
            Cause::Stopped => Some(View::Excused(self.stopped_finding())),
            Cause::StoppedWithDependency => Some(self.stopped_with_dependency(ended, now)),
            Cause::Itself => Some(seen(self.end_finding(ended, now))),
            Cause::Restarted if self.service.is_restarting(ended, now) => Some(View::Unchanged(self.starting())),
            Cause::Restarted if self.service.unit_has_failed() => Some(seen(self.unit_failed())),
            Cause::Unknown if self.service.unit_has_failed() && !ended.was_being_stopped => {
                Some(seen(self.unit_failed()))
            }
            _ if self.service.unit.active_state == "activating" => Some(View::CannotTell(self.starting())),
            Cause::Restarted | Cause::Unknown => {
                let (pid, unit) = (ended.run.pid, &self.service.name);
                let message = format!("kubelet pid {pid} has ended, and why is not known: see journalctl -u {unit}");
                Some(View::Unexplained(Finding::new(Reason::KubeletNotFound, message)))
            }
        }
    }

    /// What to report of an end without a job.
    fn end_finding(&self, ended: &Ended, now: Uptime) -> Finding {
        let unit = &self.service.name;
        if let Some(killed) = ended.oom_killed(unit) {
            return Finding::new(Reason::KubeletOOMKilled, format!("the kubelet {killed}"));
        }
        let mut message = format!("kubelet pid {} {}", ended.run.pid, ended.how());
        if let Some(line) = &ended.last_error {
            message = format!("{message}; its last error: {line}");
        }
        if self.service.unit.result == "start-limit-hit" {
            let message = format!("systemd no longer restarts {unit} (start limit hit); {message}");
            return Finding::new(Reason::KubeletCrashLooping, message);
        }
        match self.service.ends.loop_at(now) {
            Some((count, within)) => {
                let minutes = within.as_secs() / 60;
                let message = format!("the kubelet has ended {count} times within {minutes} minutes; {message}");
                Finding::new(Reason::KubeletCrashLooping, message)
            }
            None => Finding::new(Reason::KubeletCrashed, message),
        }
    }

    fn running(&self, running: &Running, now: Uptime) -> Option<View> {
        let alive = self.alive.as_ref()?;
        if alive.answers() {
            return Some(alive.answered_view(now));
        }
        if alive.is_young(self.service.start_grace, now) {
            return Some(match &running.after {
                Some(ended) => seen(self.end_finding(ended, now)),
                None if running.keeps_what_is_shown => View::Unchanged(self.starting()),
                None => View::CannotTell(self.starting()),
            });
        }
        if self.service.is_being_restarted() {
            return Some(View::Unchanged(self.starting()));
        }
        alive.unanswered_view(self.api_reached, now)
    }
}

fn seen(finding: Finding) -> View {
    View::Seen { healthy: String::new(), findings: vec![finding] }
}
