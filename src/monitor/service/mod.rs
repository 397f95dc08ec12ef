//! A service that systemd runs, and its main process: why and how it ended. Does no I/O and reads no clock: the caller passes the time.
//!
//! The monitors of the kubelet and of the container runtime share it. Probes and their answers are theirs.

pub mod ended;
pub mod follow;
mod jobs;
pub mod judgement;
pub mod samples;
#[cfg(test)]
pub mod tests;
mod upgrade;

use std::collections::VecDeque;
use std::time::Duration;

use self::ended::{
    ACCOUNT_WAIT, Account, After, Cause, Ended, EndingJob, Ends, FOLLOW_WAIT, Follows, OomEvidence, Run, Systemd,
};
use self::follow::ServiceEvent;
use self::jobs::Jobs;
use crate::condition::Uptime;
use crate::host::oom::OomKill;
use crate::host::process::{Cgroup, ProcessId};
use crate::host::systemd::{BusEvent, Dependency, JobKind, UnitState};

/// A unit that stays inactive for this long instead of being restarted was stopped.
const INACTIVE_WAIT: Duration = Duration::from_secs(1);
/// A unit whose process has ended and that does not end for so long is held by another process.
pub const HELD_AFTER: Duration = Duration::from_secs(5);
/// What `JobRemoved` reports of a job that could not start the unit.
const FAILED_STARTS: [&str; 4] = ["failed", "dependency", "timeout", "assert"];
/// An OOM kill is about an end that is no farther away than this.
const OOM_NEAR: Duration = Duration::from_secs(10);
/// After the service with which it was stopped is back or has failed, an administrator or another unit may still start it for so long.
const DEPENDENCY_WAIT: Duration = Duration::from_mins(2);
/// OOM kills that are remembered: the kernel may kill several processes at once.
const MAX_OOM_KILLS: usize = 8;

/// The D-Bus connection to systemd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bus {
    #[default]
    Connecting,
    Connected,
    Lost,
}

/// A main process that runs.
#[derive(Debug)]
pub struct Running {
    pub id: ProcessId,
    started: Uptime,
    /// Whether it was running when we came, or was restarted as planned: until it answers, what is shown stays.
    keeps_what_is_shown: bool,
    run: Run,
}

/// Attempts of systemd to start it that have failed before there was a process.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    /// When systemd first waited to restart it, and its count of restarts then.
    since: Uptime,
    restarts: u32,
}

#[derive(Debug, Default)]
struct FailedStarts {
    /// Since when the unit has been `failed`.
    failed_since: Option<Uptime>,
    /// The attempts since it last had a process, or since somebody has stopped it.
    attempts: Option<Attempts>,
    /// When systemd gave the last start up for want of another unit, and the one that has failed, if that is known.
    given_up: Option<(Uptime, Option<String>)>,
}

#[derive(Debug, Default)]
pub struct Service {
    /// A start may take this long.
    pub start_grace: Duration,
    /// The unit's name, or a description of it until systemd was read.
    pub name: String,
    pub unit: UnitState,
    pub bus: Bus,
    /// Whether the unit's state has been read.
    is_seen: bool,
    starts: FailedStarts,
    /// The main process, while it is watched.
    pub running: Option<Running>,
    /// The end of the last process that we know of, while no later one has answered.
    pub last_end: Option<Ended>,
    pub ends: Ends,
    /// Why the main process cannot be watched.
    unwatchable: Option<String>,
    jobs: Jobs,
    /// The last OOM kills of any process.
    oom_kills: VecDeque<(OomKill, Uptime)>,
}

impl Service {
    pub fn new(name: &str, start_grace: Duration) -> Self {
        Self { name: name.into(), start_grace, ..Self::default() }
    }

    /// The main process, while it is watched.
    pub fn process(&self) -> Option<ProcessId> {
        self.running.as_ref().map(|running| running.id)
    }

    /// The main process that systemd has and that is not watched.
    pub fn process_to_open(&self) -> Option<i32> {
        let ended = self.last_end.as_ref().map(|ended| ended.run.pid);
        let known = self.process().map(|id| id.pid).or(ended);
        Some(self.unit.main_pid).filter(|pid| *pid != 0 && Some(*pid) != known)
    }

    /// Whether the process runs and has a stop job that was not caused by a failed dependency.
    pub fn is_being_stopped(&self) -> bool {
        self.jobs.has(&[JobKind::Stop]) && self.jobs.stopped_with.is_none() && self.running.is_some()
    }

    /// The cgroup of a process that has ended while its unit does not end, and systemd therefore does not start it again.
    pub fn held_cgroup(&self, now: Uptime) -> Option<&Cgroup> {
        let ended = self.last_end.as_ref().filter(|ended| now >= ended.at + HELD_AFTER)?;
        let is_held = self.running.is_none() && self.unit.active_state == "deactivating";
        ended.run.cgroup.as_ref().filter(|_| is_held)
    }

    /// The process that was stopped, and how long ago, if it is to be read whether a package manager is at work.
    pub fn wants_upgrade(&self, now: Uptime) -> Option<(i32, Duration)> {
        let ended = self.last_end.as_ref().filter(|_| self.running.is_none())?;
        let is_wanted =
            ended.cause == Cause::Stopped && ended.dependency.is_none() && ended.after.upgrade.is_wanted(now);
        is_wanted.then(|| (ended.run.pid, now - ended.at))
    }

    /// When something changes by the passing of time alone, at the soonest.
    pub fn deadline(&self, now: Uptime) -> Option<Uptime> {
        let left = self.starts.failed_since.map(|since| since + INACTIVE_WAIT);
        let attempts = self.starts.attempts.map(|first| first.since + self.start_grace);
        let given_up = self.starts.given_up.as_ref().map(|(at, _)| *at + DEPENDENCY_WAIT);
        let of_unit = left.into_iter().chain(attempts).chain(given_up).filter(|at| *at > now);
        of_unit.chain(self.deadline_of_process(now)).min()
    }

    fn deadline_of_process(&self, now: Uptime) -> Option<Uptime> {
        let at = match (&self.running, &self.last_end) {
            (Some(running), _) => running.started + self.start_grace,
            (None, None) => return None,
            (None, Some(ended)) => match ended {
                Ended { after: After { inactive_since: Some(since), .. }, .. } => *since + INACTIVE_WAIT,
                Ended { cause: Cause::Unconfirmed, at, .. } => {
                    return [ACCOUNT_WAIT, FOLLOW_WAIT].map(|wait| *at + wait).into_iter().find(|at| *at > now);
                }
                Ended { cause: Cause::Restarted | Cause::RestartedCleanly, at, .. } => *at + self.start_grace,
                Ended { dependency: Some(dependency), .. } => dependency.settled_since? + DEPENDENCY_WAIT,
                Ended { at, .. } => *at + HELD_AFTER,
            },
        };
        (at > now).then_some(at)
    }

    /// The process that runs has answered: the end of the one before it is over.
    pub fn answered(&mut self) {
        if self.running.is_some() {
            self.last_end = None;
        }
    }

    pub fn observe(&mut self, event: ServiceEvent, now: Uptime) {
        match event {
            ServiceEvent::Bus(event) => self.bus_event(event, now),
            ServiceEvent::Opened(id, run, started) => self.opened(id, run, started, now),
            ServiceEvent::Unwatchable(error) => self.unwatchable = Some(error),
            ServiceEvent::Exited(pid) => self.exited(pid, now),
            ServiceEvent::Placed(pid, cgroup) => {
                let ended = self.last_end.as_mut().map(|ended| &mut ended.run);
                let runs = self.running.as_mut().map(|running| &mut running.run).into_iter().chain(ended);
                for run in runs.filter(|run| run.pid == pid) {
                    run.cgroup.clone_from(&cgroup);
                }
            }
            ServiceEvent::Upgrade { pid, is_locked, is_replaced } => {
                if let Some(ended) = self.last_end.as_mut().filter(|ended| ended.run.pid == pid) {
                    ended.after.upgrade.read(is_locked, is_replaced, now);
                }
            }
            ServiceEvent::OomKill(kill) => {
                self.oom_kills.push_back((kill, now));
                if self.oom_kills.len() > MAX_OOM_KILLS {
                    self.oom_kills.pop_front();
                }
            }
        }
        self.settle(now);
    }

    /// Decides what has become known, or what waiting no longer helps.
    pub fn settle(&mut self, now: Uptime) {
        self.attribute_oom_kill(now);
        self.notice_late_stop(now);
        let is_left_failed = self.is_left_failed(now);
        let Some(ended) = &mut self.last_end else { return };
        ended.is_unobserved |= self.jobs.ended_unread(ended.at);
        // A job after systemd's account follows from the end, or is the restart by `Restart=`.
        ended.has_unread_job = self.jobs.is_unread() && (ended.has_unread_job || ended.account.is_none());
        let is_connected = self.bus == Bus::Connected;
        let systemd = Systemd { is_connected, name: &self.name, unit: &self.unit, is_left_failed };
        ended.cause = ended.derive_cause(systemd, now);
        match ended.cause {
            Cause::Itself | Cause::RestartedCleanly => self.ends.record(&ended.run.invocation, ended.at),
            // A later event may have shown that the end was intended.
            _ => self.ends.forget(ended.at),
        }
    }

    fn bus_event(&mut self, event: BusEvent, now: Uptime) {
        match event {
            BusEvent::Reading => self.jobs.reading(),
            BusEvent::Read { unit, state, job, dependencies } => {
                if self.name != unit && !self.unit.load_state.is_empty() {
                    // Another unit is watched from now on, to which nothing applies that is known.
                    *self = Self::new(&unit, self.start_grace);
                }
                self.name = unit;
                self.bus = Bus::Connected;
                self.jobs.read(job, now);
                self.unit_changed(state, now);
                self.dependencies_read(&dependencies, now);
            }
            BusEvent::Changed(state) => self.unit_changed(state, now),
            BusEvent::Job { id, kind, dependencies } => self.job(id, kind, &dependencies),
            BusEvent::JobRemoved { id, result } => {
                self.jobs.removed(id, now);
                if ["done", "canceled"].contains(&result.as_str()) {
                    self.starts.attempts = None;
                }
                // A disabled unit that somebody enables later is to start at the next boot.
                let is_given_up = result == "dependency" && self.unit.is_enabled();
                self.starts.given_up = is_given_up.then_some((now, None));
                if let Some(ended) = &mut self.last_end
                    && FAILED_STARTS.contains(&result.as_str())
                {
                    // The restart has failed: that leaves the unit inactive too.
                    ended.after.follows = Follows::FailedRestart;
                }
            }
            BusEvent::Declined => self.starts.given_up = None,
            BusEvent::Lost => {
                self.bus = Bus::Lost;
                (self.jobs, self.starts.attempts, self.starts.given_up) = (Jobs::default(), None, None);
            }
        }
    }

    fn job(&mut self, id: u32, kind: JobKind, dependencies: &[Dependency]) {
        let is_known = self.jobs.has(&[kind]);
        if !self.jobs.set(id, kind) {
            return;
        }
        self.starts.given_up = None;
        if kind == JobKind::Stop && !is_known {
            // A service that somebody stops has a job, or has ended with success: that stop is meant for this one too.
            let has_failed =
                |one: &&Dependency| one.ends_by_itself || (one.result != "success" && one.active_state != "active");
            let mut bound = dependencies.iter().filter(|one| one.is_bound);
            self.jobs.stopped_with = bound.find(has_failed).map(|dependency| dependency.unit.clone());
        }
        let Some(ended) = self.last_end.as_mut().filter(|_| self.running.is_none()) else { return };
        match (kind, ended.cause) {
            (JobKind::Stop, _) => ended.set_stopped(self.jobs.stopped_with.take()),
            (JobKind::Restart | JobKind::Start, Cause::Unconfirmed) => ended.job = Some(EndingJob::Restart),
            _ => {}
        }
    }

    /// Takes in which service that it requires has failed, and whether the one with which it was stopped is back or has failed for good.
    fn dependencies_read(&mut self, dependencies: &[Dependency], now: Uptime) {
        if let Some((_, other @ None)) = &mut self.starts.given_up {
            let failed = dependencies.iter().find(|one| one.active_state == "failed");
            *other = failed.map(|one| one.unit.clone());
        }
        let Some(Ended { dependency: Some(stopped_with), .. }) = &mut self.last_end else { return };
        let is_settled = dependencies.iter().any(|dependency| {
            dependency.unit == stopped_with.unit && ["active", "failed"].contains(&dependency.active_state.as_str())
        });
        stopped_with.settled_since = if is_settled { stopped_with.settled_since.or(Some(now)) } else { None };
    }

    fn unit_changed(&mut self, state: UnitState, now: Uptime) {
        let has_run = state.main_pid != 0 || state.last.pid != self.unit.last.pid;
        self.unit = state;
        let is_about_to_restart = self.unit.is_about_to_restart();
        if has_run {
            (self.starts.attempts, self.starts.given_up) = (None, None);
        }
        if is_about_to_restart {
            self.starts.attempts.get_or_insert(Attempts { since: now, restarts: self.unit.restarts });
        }
        let is_failed = self.unit.active_state == "failed" && !is_about_to_restart;
        self.starts.failed_since = is_failed.then(|| self.starts.failed_since.unwrap_or(now));
        if let Some(running) = self.process().filter(|id| id.pid == self.unit.last.pid && self.unit.last.code != 0) {
            // systemd reports the end before the pidfd does.
            self.exited(running.pid, now);
        }
        let unit = &self.unit;
        match (&mut self.running, &mut self.last_end) {
            // Later the same state may follow from the end, while systemd ends what is left in the cgroup.
            (Some(running), _) if unit.main_pid == running.id.pid => {
                running.run.was_being_stopped =
                    ["stop", "stop-sigterm", "stop-sigkill"].contains(&unit.sub_state.as_str());
                // systemd signals the ID of the run after the process.
                running.run.invocation.clone_from(&unit.invocation);
            }
            (None, Some(ended)) => {
                if unit.is_about_to_restart() || unit.restarts > ended.run.restarts {
                    ended.after.follows = Follows::Restart;
                }
                let is_new_run = !ended.run.invocation.is_empty() && unit.invocation != ended.run.invocation;
                if ended.cause == Cause::Stopped && is_new_run && unit.main_pid == 0 && unit.active_state != "inactive"
                {
                    // It was started again, and there is no process yet.
                    self.last_end = None;
                }
            }
            _ => {}
        }
        let (last, known) = (unit.last, self.last_end.as_ref().map(|ended| ended.run.pid));
        if last.code != 0 && last.pid != 0 && last.pid != unit.main_pid {
            if known == Some(last.pid) {
                self.take_in_account();
            } else if self.running.is_none() {
                // The pidfd of a process that runs would report its end.
                self.ended_unseen(now);
            }
        }
        self.is_seen |= self.unit.main_pid == 0;
    }

    /// Records systemd's account of an end. The unit's `Result` is later that of the next start.
    fn take_in_account(&mut self) {
        let (Some(ended), how, result) = (&mut self.last_end, self.unit.last, &self.unit.result) else { return };
        let is_same_run = ended.run.invocation == self.unit.invocation;
        if ended.account.is_none() || (result != "success" && is_same_run) {
            ended.account = Some(Account { how, watchdog: self.unit.watchdog, result: result.clone() });
        }
        if result == "oom-kill" {
            ended.oom.get_or_insert(OomEvidence::Result);
        }
    }

    /// A stop job may be over before its kind can be read. A unit that systemd would restart and that stays inactive was stopped; a
    /// restart itself passes through that state only for a moment.
    fn notice_late_stop(&mut self, now: Uptime) {
        let is_idle = self.unit.active_state == "inactive" && !self.jobs.is_any_open();
        let is_open = |ended: &&mut Ended| ended.job != Some(EndingJob::Stop);
        let Some(ended) = self.last_end.as_mut().filter(is_open).filter(|_| self.running.is_none()) else { return };
        let was_clean = ended.account.as_ref().is_some_and(|account| account.result == "success");
        let would_restart = match ended.after.follows {
            Follows::Restart => true,
            Follows::Nothing => was_clean && self.unit.restarts_after_success(),
            Follows::FailedRestart => false,
        };
        if is_idle && would_restart {
            if now >= *ended.after.inactive_since.get_or_insert(now) + INACTIVE_WAIT {
                ended.set_stopped(None);
            }
        } else if !self.jobs.is_reading() {
            ended.after.inactive_since = None;
        }
    }

    /// A process has come and gone without our having opened it.
    fn ended_unseen(&mut self, now: Uptime) {
        let unit = &self.unit;
        let is_first_sight = self.last_end.is_none();
        // Later a restart job may be the one that started this process, and that has failed.
        let is_clean = unit.result == "success";
        let job = self.jobs.ending().filter(|job| is_first_sight || is_clean || *job == EndingJob::Stop);
        if is_first_sight && job.is_none() && !self.jobs.is_unread() && is_clean {
            return;
        }
        let (pid, invocation, restarts) = (unit.last.pid, unit.invocation.clone(), unit.restarts);
        let run = Run { pid, invocation, restarts, ..Run::default() };
        let has_unread_job = self.jobs.is_unread();
        self.last_end = Some(Ended { run, at: now, job, has_unread_job, is_unobserved: true, ..Ended::default() });
        self.take_in_account();
    }

    fn opened(&mut self, id: ProcessId, mut run: Run, started: Uptime, now: Uptime) {
        let former = self.process();
        if former == Some(id) {
            return;
        }
        self.unwatchable = None;
        if let Some(former) = former {
            // This task did not run for a while, and systemd's signals were handled before the pidfd.
            self.exited(former.pid, now);
        }
        run.invocation.clone_from(&self.unit.invocation);
        run.restarts = self.unit.restarts;
        // We have started in the middle of a restart, and the next process comes before the kind of the job could be read: only a
        // start or a restart job starts one.
        let is_of_unread_job = self.jobs.has(&[JobKind::Unread]) || self.jobs.ended_unread(now);
        if let Some(ended) = &mut self.last_end {
            if self.unit.restarts > ended.run.restarts {
                ended.after.follows = Follows::Restart;
            }
            let is_open = matches!(ended.cause, Cause::Unconfirmed | Cause::Unknown) && ended.run.name.is_empty();
            if is_of_unread_job && is_open {
                ended.job = Some(EndingJob::Restart);
            }
        }
        // A process that systemd is stopping was not started by the job that is open.
        if self.unit.active_state != "deactivating" {
            self.jobs.process_started();
        }
        self.settle(now);
        let cause = self.last_end.as_ref().map(|ended| ended.cause);
        let is_planned = match cause {
            Some(Cause::Restarted | Cause::RestartedCleanly) => true,
            // On a slow host, the job of a second restart may be over before its kind is read.
            Some(Cause::Unknown | Cause::Unconfirmed) => self.last_end.as_ref().is_some_and(Ended::is_clean),
            _ => false,
        };
        let keeps_what_is_shown = is_planned || (cause.is_none() && !self.is_seen);
        self.last_end.take_if(|ended| ended.cause != Cause::Itself);
        self.is_seen = true;
        self.running = Some(Running { id, started, keeps_what_is_shown, run });
    }

    fn exited(&mut self, pid: i32, now: Uptime) {
        let Some(running) = self.running.take_if(|running| running.id.pid == pid) else { return };
        let (job, has_unread_job, run) = (self.jobs.ending(), self.jobs.is_unread(), running.run);
        let is_unobserved = self.bus != Bus::Connected;
        let mut ended = Ended { job, has_unread_job, is_unobserved, at: now, run, ..Ended::default() };
        if job == Some(EndingJob::Stop) {
            ended.set_stopped(self.jobs.stopped_with.take());
        }
        self.last_end = Some(ended);
        // systemd's account may have come first.
        if self.unit.last.pid == pid && self.unit.last.code != 0 {
            self.take_in_account();
        }
        if self.unit.is_about_to_restart() {
            self.last_end.iter_mut().for_each(|ended| ended.after.follows = Follows::Restart);
        }
    }

    fn attribute_oom_kill(&mut self, now: Uptime) {
        let Some(ended) = &mut self.last_end else { return };
        let is_near = |at: Uptime| now - at < OOM_NEAR && at - ended.at < OOM_NEAR && ended.at - at < OOM_NEAR;
        let kill = self.oom_kills.iter().find(|(kill, at)| is_near(*at) && ended.is_killed_by(kill));
        if let Some((kill, _)) = kill {
            ended.oom = Some(OomEvidence::Record(kill.clone()));
        }
    }
}
