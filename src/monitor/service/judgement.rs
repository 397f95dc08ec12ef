//! The state of a service that does not answer, judged by its process, its unit and its jobs alone. The monitors of the kubelet and of
//! the container runtime map it to their reasons.

use super::ended::{Cause, Ended, EndingJob, StoppedWith};
use super::{Attempts, Bus, DEPENDENCY_WAIT, INACTIVE_WAIT, Running, Service};
use crate::condition::Uptime;
use crate::host::systemd::JobKind;

#[derive(Debug)]
pub enum Judgement<'a> {
    /// It is about to be known, or nothing has been observed yet.
    Undecided,
    /// Its process runs, and has had the time of a start.
    Runs,
    /// A stop job has stopped it.
    Stopped(String),
    /// It is starting after a planned restart, or was when the agent started: what is shown stays.
    Restarting(String),
    Starting(String),
    /// It ended without a job.
    Ended(&'a Ended),
    /// The unit has failed, and no end of a process was seen, as in its `ExecStartPre=`.
    UnitFailed(String),
    /// An upgrade of packages has stopped it and not started it again, although systemd starts it at boot.
    LeftStopped(String),
    /// systemd stopped it because another unit failed, which has been back or failed for good for two minutes. Or it gave a start up for that
    /// two minutes ago. systemd starts such a unit neither then nor by its `Restart=`.
    StoppedWithDependency(String),
    /// No process is watched, and no fault is known.
    NotFound(String),
    /// No process is watched, and why is not known.
    Unexplained(String),
}

impl Service {
    /// Judges a service that does not answer; `has_answered`: whether the process that runs has before.
    pub fn judge(&self, has_answered: bool, now: Uptime) -> Judgement<'_> {
        let name = &self.name;
        if self.is_being_stopped() {
            return self.stopped();
        }
        if let (Some(pid), Some(error)) = (self.process_to_open(), &self.unwatchable) {
            return Judgement::NotFound(format!("pid {pid} of {name} cannot be watched: {error}"));
        }
        match (&self.running, &self.last_end) {
            (Some(running), _) => self.judge_running(running, has_answered, now),
            (None, Some(ended)) => self.judge_end(ended, now),
            (None, None) if self.bus == Bus::Lost => Judgement::Unexplained(format!(
                "there is no D-Bus connection to systemd, so whether {name} runs is not known"
            )),
            (None, None) if !self.is_seen => Judgement::Undecided,
            (None, None) => self.absent(now),
        }
    }

    fn judge_running(&self, running: &Running, has_answered: bool, now: Uptime) -> Judgement<'_> {
        if has_answered || now >= running.started + self.start_grace {
            let is_being_restarted = self.jobs.ending() == Some(EndingJob::Restart);
            return if is_being_restarted { Judgement::Restarting(self.starting()) } else { Judgement::Runs };
        }
        match &self.last_end {
            Some(ended) => Judgement::Ended(ended),
            None if running.keeps_what_is_shown => Judgement::Restarting(self.starting()),
            None => Judgement::Starting(self.starting()),
        }
    }

    fn judge_end<'a>(&self, ended: &'a Ended, now: Uptime) -> Judgement<'a> {
        match ended.cause {
            Cause::Unconfirmed => Judgement::Undecided,
            Cause::Stopped => match &ended.dependency {
                Some(dependency) => self.stopped_with(dependency, now),
                None if self.unit.is_enabled() && ended.after.upgrade.has_left_it_stopped(now) => {
                    let name = &self.name;
                    Judgement::LeftStopped(format!(
                        "{name} was stopped by a package upgrade and not started again for 10 minutes: systemctl start {name}"
                    ))
                }
                None => self.stopped(),
            },
            Cause::Itself => Judgement::Ended(ended),
            Cause::RestartedCleanly if self.ends.loop_at(now).is_some() => Judgement::Ended(ended),
            Cause::Restarted | Cause::RestartedCleanly if self.is_restarting(ended, now) => {
                Judgement::Restarting(self.starting())
            }
            Cause::Restarted | Cause::RestartedCleanly | Cause::Unknown => {
                // One that was stopped may have failed by that alone.
                let may_have_been_stopped = ended.run.was_being_stopped || ended.may_have_been_a_stop(&self.name);
                let was_stopped = ended.cause == Cause::Unknown && may_have_been_stopped;
                if let Some(failed) = self.failed(now).filter(|_| !was_stopped) {
                    return failed;
                }
                if self.unit.active_state == "activating" {
                    return Judgement::Starting(self.starting());
                }
                if let Some(given_up) = self.given_up(now) {
                    return given_up;
                }
                let (pid, name) = (ended.run.pid, &self.name);
                let why = format!("pid {pid} of {name} has ended for an unknown reason: see journalctl -u {name}");
                Judgement::Unexplained(why)
            }
        }
    }

    /// Whether the next process is on its way after a planned restart. One that ends with an error on SIGTERM leaves its unit failed for a
    /// moment, until the rest of the job starts the next one.
    fn is_restarting(&self, ended: &Ended, now: Uptime) -> bool {
        let has_job = self.jobs.has(&[JobKind::Restart, JobKind::Start, JobKind::Unread]);
        now < ended.at + self.start_grace && (has_job || self.unit.main_pid != 0 || self.unit.is_about_to_restart())
    }

    fn absent(&self, now: Uptime) -> Judgement<'static> {
        let (name, unit) = (&self.name, &self.unit);
        match (unit.load_state.as_str(), unit.active_state.as_str(), self.failed(now).or_else(|| self.given_up(now))) {
            ("not-found", ..) => Judgement::NotFound(format!("{name} is not installed")),
            ("masked", ..) => {
                Judgement::NotFound(format!("{name} is masked, so systemd does not start it: systemctl unmask {name}"))
            }
            (.., Some(failed)) => failed,
            (_, "activating", None) => Judgement::Starting(self.starting()),
            (_, "inactive", None) if !unit.was_started => {
                Judgement::NotFound(format!("{name} has not been started since boot"))
            }
            (_, state, None) => Judgement::Unexplained(format!(
                "{name} is {state}; it ended while nodevigil was not running: see journalctl -u {name}"
            )),
        }
    }

    /// That it has failed before it had a process, as in its `ExecStartPre=`: for good, or again and again for as long as a start may take.
    fn failed(&self, now: Uptime) -> Option<Judgement<'static>> {
        let unit = &self.unit;
        let is_too_long = |first: Attempts| now >= first.since + self.start_grace && unit.restarts > first.restarts;
        let has_failed = if unit.is_about_to_restart() {
            self.starts.attempts.is_some_and(is_too_long)
        } else {
            self.is_left_failed(now) || unit.result == "start-limit-hit"
        };
        (has_failed && unit.result != "success").then(|| self.unit_failed())
    }

    /// That systemd has given a start up for want of another unit two minutes ago. It does not try again when that unit is back, whatever
    /// `Restart=` says.
    fn given_up(&self, now: Uptime) -> Option<Judgement<'static>> {
        let (name, unit) = (&self.name, &self.unit);
        let is_left = unit.active_state == "inactive" && unit.is_enabled();
        let (at, other) = self.starts.given_up.as_ref().filter(|_| is_left && !self.jobs.is_any_open())?;
        let other = other.as_deref().unwrap_or("a unit that it requires");
        (now >= *at + DEPENDENCY_WAIT).then(|| {
            Judgement::StoppedWithDependency(format!(
                "systemd has not started {name} because {other} failed, and does not try again: systemctl start {name}"
            ))
        })
    }

    /// Whether systemd leaves the unit failed. Before version 254 it passes through that state before each restart.
    pub fn is_left_failed(&self, now: Uptime) -> bool {
        let is_long = || self.starts.failed_since.is_some_and(|since| now >= since + INACTIVE_WAIT);
        self.unit.active_state == "failed" && (!self.unit.restarts_after_failure() || is_long())
    }

    fn unit_failed(&self) -> Judgement<'static> {
        Judgement::UnitFailed(format!("{} has failed (Result={}) and does not run", self.name, self.unit.result))
    }

    fn stopped(&self) -> Judgement<'static> {
        let name = &self.name;
        Judgement::Stopped(format!("{name} was stopped: by systemctl stop, a shutdown or a package manager"))
    }

    fn stopped_with(&self, StoppedWith { unit, settled_since }: &StoppedWith, now: Uptime) -> Judgement<'static> {
        let name = &self.name;
        let message = format!("systemd stopped {name} because {unit} failed, and has not started it again");
        if settled_since.is_some_and(|since| now >= since + DEPENDENCY_WAIT) {
            Judgement::StoppedWithDependency(format!("{message}: systemctl start {name}"))
        } else {
            Judgement::NotFound(message)
        }
    }

    /// A sentence for a unit that is starting.
    pub fn starting(&self) -> String {
        format!("{} is starting ({}) and does not answer yet", self.name, self.unit.sub_state)
    }
}
