//! How a kubelet ended, as far as systemd's jobs and its word of the unit tell.

use std::time::Duration;

use super::{
    FOREIGN_SIGNALS_WAIT, JOB_TYPE_WAIT, JobKind, Kubelet, Life, MAX_JOBS, Sign, Unit,
    ends::Ends,
    life::{Cause, Ended},
    signs::{Carrier, Run},
};
use crate::{checks::kernel::event::OomKill, clock::Now};

impl Kubelet {
    /// What systemd says of the unit, of its jobs and of the units that it depends on.
    pub(super) fn apply_of_systemd(&mut self, sign: Sign, now: Now) {
        match sign {
            Sign::Watching(unit) => (self.unit_name, self.unit) = (unit, None),
            Sign::Unit(unit) => self.learn_unit(unit, now),
            Sign::Job(id, kind) => {
                let announced = self.jobs.get(&id).map_or(now.uptime, |(_, at)| *at);
                self.jobs.insert(id, (kind, announced));
                while self.jobs.len() > MAX_JOBS {
                    self.jobs.pop_first(); // the oldest
                }
                if kind == JobKind::Stop {
                    self.stop_asked(id, announced);
                }
                self.learn_job(kind, announced, now);
            }
            Sign::JobDone(id) => {
                if let Some((JobKind::Unasked, announced)) = self.jobs.remove(&id) {
                    self.stop_asked(id, announced);
                    self.job_vanished(announced);
                }
            }
            Sign::JobAgain(id) => self.dependencies.asked_again(id),
            Sign::Other(unit, sign) => {
                let has_ended = matches!(self.life, Life::Ended(_));
                self.dependencies.said(&unit, &sign, has_ended, now);
            }
            Sign::JobsUntold => self.jobs.clear(),
            Sign::ForeignSignals => self.foreign_signals_at = Some(now.uptime),
            Sign::BusLost => {
                self.unit = None;
                self.jobs.clear();
                self.dependencies.bus_lost();
                self.bus_is_awaited = false;
                (self.stopping_since, self.killing_since) = (None, None);
                self.activating_since = None;
            }
            _ => {} // of the process: taken in before
        }
    }

    /// A stop job of that number. systemd makes none for a unit that is down already unless somebody asks for it.
    fn stop_asked(&mut self, id: u32, announced: Duration) {
        let is_down = |unit: &Unit| ["inactive", "failed"].contains(&unit.active_state.as_str());
        let has_ended =
            matches!(self.life, Life::Ended(_)) || self.unit.as_ref().is_some_and(is_down);
        self.dependencies.stop_asked(id, announced, has_ended);
    }

    pub(super) fn gone(&mut self, pid: i32, now: Now) {
        let Life::Alive(alive) = &self.life else {
            return;
        };
        if alive.process.pid != pid {
            return;
        }
        let is_rke2 =
            matches!(&alive.carrier, Carrier::Child(parent) if parent.starts_with("rke2"));
        let is_child = matches!(alive.carrier, Carrier::Child(_));
        let carrier = alive.carrier.clone();
        let cause = if self.has_job(JobKind::Stop) {
            Cause::Stopped
        } else if self.has_job(JobKind::Restart) || (alive.answered && self.has_job(JobKind::Start))
        {
            // systemd turns a restart job into a start job once the stopping is done.
            Cause::Restarting
        } else if self.ends.take_killed(now.uptime) {
            // The kernel has said how it ended: nobody else is waited for.
            Cause::Unknown
        } else if self.has_job(JobKind::Unasked) || self.bus_is_awaited {
            Cause::Asked(now.uptime + JOB_TYPE_WAIT)
        } else if self.is_among_foreign_signals(now) {
            Cause::Asked(now.uptime + FOREIGN_SIGNALS_WAIT)
        } else if is_child {
            // systemd does not know it.
            self.ends.child_ended(now.uptime);
            Cause::Unknown
        } else {
            Cause::Asked(now.uptime + self.terms.cause_wait)
        };
        let main_pid = self
            .unit
            .as_ref()
            .and_then(|unit| i32::try_from(unit.main_pid).ok())
            .filter(|main_pid| *main_pid != 0)
            .unwrap_or(pid);
        self.life = Life::Ended(Ended {
            pid,
            main_pid,
            at: now.uptime,
            unheard: self.bus_is_awaited,
            cause,
            invocation: self.invocation(),
            carrier,
        });
        if is_rke2 {
            let cause = Cause::Unknown;
            self.ends.want_words(Run::Rke2(pid), &cause, now.uptime);
        }
    }

    fn invocation(&self) -> String {
        let unit = self.unit.as_ref();
        unit.map_or_else(String::new, |unit| unit.invocation.clone())
    }

    /// systemd's word of the unit: what it says of an end, of the time that a stop takes, of what is yet to start.
    pub(super) fn learn_unit(&mut self, unit: Unit, now: Now) {
        self.bus_is_awaited = false;
        let is_being_stopped = self.has_job(JobKind::Stop);
        let before = self.unit.as_ref();
        self.ends.heard(&unit, before, is_being_stopped, now.uptime);
        if unit.is_down_after_failure()
            && let Some(cause) = Cause::of(&unit)
        {
            let run = Run::Invocation(unit.invocation.clone());
            self.ends.want_words(run, &cause, now.uptime);
        }
        self.learn_cause(&unit);
        self.dependencies.are(&unit.dependencies);
        let since = |so: bool, since: Option<_>| so.then(|| since.unwrap_or(now.uptime));
        self.stopping_since = since(unit.is_stopping(), self.stopping_since);
        self.killing_since = since(unit.is_being_killed(), self.killing_since);
        self.activating_since = since(unit.is_activating(), self.activating_since);
        self.unit = Some(unit);
    }

    /// A job that is announced while systemd is still being asked was queued before the process ended: a restart of
    /// systemd's own comes behind the news of the end. Its type says whether somebody wanted that end. `announced`: when we first
    /// heard of it.
    pub(super) fn learn_job(&mut self, kind: JobKind, announced: Duration, now: Now) {
        let has_foreign_signals = self.is_among_foreign_signals(now);
        let Life::Ended(ended) = &mut self.life else {
            return;
        };
        // Among foreign signals systemd's word may come later than it was waited for: a stop before its word on the end is that end's.
        let is_late = has_foreign_signals
            && ended.cause == Cause::Unknown
            && matches!(kind, JobKind::Unasked | JobKind::Stop);
        if !is_late && !matches!(ended.cause, Cause::Asked(_)) {
            return;
        }
        match kind {
            JobKind::Unasked if is_late => ended.cause = Cause::Asked(now.uptime + JOB_TYPE_WAIT),
            JobKind::Unasked => ended.cause = Cause::Asked(ended.at + JOB_TYPE_WAIT),
            JobKind::Stop => ended.cause = Cause::Stopped,
            JobKind::Restart => ended.cause = Cause::Restarting,
            // By the time that systemd answered, the stopping was done: it was a restart job, if it was announced while the process
            // lived. One that was announced later was so too, if systemd has not started it by itself: after a clean exit it
            // does so 100 ms later at the soonest, and after another one it has told of that first.
            JobKind::Start
                if announced <= ended.at
                    || self
                        .unit
                        .as_ref()
                        .is_some_and(|unit| is_willed(unit, ended)) =>
            {
                ended.cause = Cause::Restarting;
            }
            JobKind::Start | JobKind::Other => self.recall_cause(),
        }
    }

    /// A job was done before its type could be read; where it left the unit tells a stop from the rest. One that was announced
    /// while the process lived and left the unit with another was a restart.
    pub(super) fn job_vanished(&mut self, announced: Duration) {
        let down = matches!(
            self.unit.as_ref().map(|unit| unit.active_state.as_str()),
            Some("inactive" | "deactivating")
        );
        match &mut self.life {
            Life::Ended(ended) if down && matches!(ended.cause, Cause::Asked(_)) => {
                ended.cause = Cause::Stopped;
            }
            Life::Ended(ended)
                if matches!(ended.cause, Cause::Asked(_))
                    && announced <= ended.at
                    && self
                        .unit
                        .as_ref()
                        .is_some_and(|unit| has_begun(unit, ended)) =>
            {
                ended.cause = Cause::Restarting;
            }
            _ => self.recall_cause(),
        }
    }

    fn recall_cause(&mut self) {
        if let Some(unit) = self.unit.clone() {
            self.learn_cause(&unit);
        }
    }

    fn learn_cause(&mut self, unit: &Unit) {
        // How it ended is of no interest while it is open whether somebody had it end.
        if self.has_job(JobKind::Unasked) {
            return;
        }
        let Life::Ended(ended) = &mut self.life else {
            return;
        };
        let ours = [ended.pid, ended.main_pid]
            .iter()
            .any(|pid| i64::from(*pid) == i64::from(unit.exec_main_pid));
        // An answer that still shows the dead process as the main one was given before systemd had noticed.
        let noticed = unit.main_pid != unit.exec_main_pid;
        if ours {
            if noticed {
                ended.invocation.clone_from(&unit.invocation);
            }
            if noticed
                && matches!(ended.cause, Cause::Asked(_) | Cause::Unknown)
                && let Some(cause) = Cause::of(unit)
            {
                ended.cause = cause;
            }
        } else if noticed && unit.is_down_after_failure() {
            // Another one has come and gone since, too fast to be seen: it is the unit that tells its end.
            self.life = Life::Absent(format!("{} has no process", self.unit_name));
        }
    }

    /// The kernel killed a process for memory, and its word may come before the end that it tells of, or after it. Whose pid is
    /// another may be ours all the same, in a PID namespace of our own, or a kubelet in a container of this host: their cgroups
    /// end alike. Ours is the one that dies.
    pub(super) fn learn_oom(&mut self, kill: OomKill, now: Now) {
        let killed = kill.pid;
        let pid = match &self.life {
            Life::Alive(alive) => Some(alive.process.pid),
            Life::Ended(ended) => Some(ended.pid),
            _ => None,
        };
        let last = self.last_end.as_ref().map(|(ended, _)| ended.pid);
        let whom = last.filter(|last| *last == killed).or(pid);
        // In a PID namespace of our own the kernel counts otherwise: then its line is about the one that ended just before,
        // unless a line about that one was heard.
        let may_be_of_last = self.last_end.as_ref().is_some_and(|(ended, _)| {
            Ends::is_of(ended, now.uptime) && self.ends.oom_of(ended).is_none()
        });
        let group = self.control_group().map(str::to_owned);
        let is_ours = self.ends.killed(kill, whom, group.as_deref());
        if last == Some(killed) {
            self.ends.take_killed(now.uptime);
        } else if is_ours {
            self.learn_that_it_dies(pid == Some(killed), may_be_of_last, now);
        }
        self.learn_of_last_end(is_ours);
    }

    fn learn_that_it_dies(&mut self, is_certain: bool, may_be_of_last: bool, now: Now) {
        match &mut self.life {
            Life::Ended(ended) => {
                let is_open = self.ends.take_killed(now.uptime);
                if is_open && matches!(ended.cause, Cause::Asked(_)) {
                    ended.cause = Cause::Unknown;
                }
            }
            Life::Alive(alive) if is_certain => self.ends.is_dying(alive.process.pid),
            Life::Alive(alive) if !may_be_of_last => self.ends.may_be_dying(alive.process.pid),
            _ => {}
        }
    }

    /// Something was learnt of the end before this life: it is told as long as this life has not shown any health.
    pub(super) fn learn_of_last_end(&mut self, is_news: bool) {
        let is_young = matches!(&self.life, Life::Alive(alive) if !alive.answered);
        if let Some((_, news)) = &mut self.last_end {
            *news = is_news && is_young;
        }
    }
}

fn is_of_main(unit: &Unit, ended: &Ended) -> bool {
    i64::from(unit.main_pid) == i64::from(ended.main_pid)
}

/// Whether nothing says that systemd starts the unit by itself: it has told of no end yet, or of no failure and no restart.
fn is_willed(unit: &Unit, ended: &Ended) -> bool {
    unit.result == "success" && (is_of_main(unit, ended) || unit.restarts == 0)
}

/// Whether the unit has another main process, by somebody's will.
fn has_begun(unit: &Unit, ended: &Ended) -> bool {
    unit.main_pid != 0 && !is_of_main(unit, ended) && is_willed(unit, ended)
}
