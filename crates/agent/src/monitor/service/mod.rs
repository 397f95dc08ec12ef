//! A service that systemd runs, and its main process: who ended it and how. Pure: the time is handed in.
//!
//! The monitors of the kubelet and of the container runtime share it. What they know of answers and of probes is theirs.

pub mod ended;
mod jobs;
pub mod samples;

use std::{collections::VecDeque, time::Duration};

use self::{
    ended::{Cause, Ended, Ends, OomEvidence, Run},
    jobs::Jobs,
};
use crate::{
    condition::Uptime,
    host::{
        oom::OomKill,
        process::{Cgroup, ProcessId},
        systemd::{BusEvent, Dependency, JobKind, UnitState},
    },
};

/// How long systemd's account of an end is waited for: it usually comes within this time, and without it the end is reported all the
/// same. To wait longer would delay every report.
const ACCOUNT_WAIT: Duration = Duration::from_millis(3);
/// The same while other senders than systemd send us signals: systemd's may wait in the queue behind theirs.
const ACCOUNT_WAIT_AMONG_FOREIGN: Duration = Duration::from_secs(1);
/// For how long after a foreign signal that holds.
const FOREIGN_LASTS: Duration = Duration::from_secs(10);
/// How long the kind of a job is waited for: a wrong `False` is worse than a late one.
const JOB_KIND_WAIT: Duration = Duration::from_secs(1);
/// An OOM kill is about an end that is no farther away than this.
const OOM_NEAR: Duration = Duration::from_secs(10);
/// After the service with which it was stopped is back or has failed, somebody may still start it for so long.
pub const DEPENDENCY_WAIT: Duration = Duration::from_mins(2);
/// `Result` of a unit that systemd has stopped for a failure of its own.
const STOPPED_BY_SYSTEMD: [&str; 3] = ["oom-kill", "watchdog", "timeout"];
/// A unit that stays inactive for this long in place of being restarted was stopped.
const INACTIVE_WAIT: Duration = Duration::from_secs(1);
/// OOM kills that are remembered: the kernel may kill several processes at once.
const MAX_OOM_KILLS: usize = 8;

/// The D-Bus connection to systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    Connecting,
    Connected,
    Lost,
}

/// What is known of the main process.
#[derive(Debug)]
pub enum Life {
    /// Nobody has looked yet.
    Unseen,
    /// No process runs, and none has ended while we watched.
    Absent,
    Running(Running),
    Ended(Ended),
}

/// A main process that runs.
#[derive(Debug)]
pub struct Running {
    pub id: ProcessId,
    pub started: Uptime,
    /// The end of the one before it, until this one has answered.
    pub after: Option<Ended>,
    /// Whether it was running when we came, or was restarted as planned: until it answers, what is shown stays.
    pub keeps_what_is_shown: bool,
    run: Run,
    /// Whether systemd is stopping it.
    is_being_stopped: bool,
}

impl Running {
    pub fn new(id: ProcessId, name: String, cgroup: Option<Cgroup>, started: Uptime) -> Self {
        let run = Run { pid: id.pid, name, cgroup, ..Run::default() };
        Self { id, started, after: None, keeps_what_is_shown: false, run, is_being_stopped: false }
    }
}

/// The service as far as it is known.
#[derive(Debug)]
pub struct Service {
    /// A start may take this long.
    pub start_grace: Duration,
    pub name: String,
    pub unit: UnitState,
    pub bus: Bus,
    pub life: Life,
    pub ends: Ends,
    /// Why the main process cannot be watched.
    pub unwatchable: Option<String>,
    jobs: Jobs,
    /// The failed service that the unit depends on, at the time of the last stop job.
    stopped_with: Option<String>,
    foreign_at: Option<Uptime>,
    /// The last OOM kills, whoever was killed.
    oom_kills: VecDeque<(OomKill, Uptime)>,
}

impl Service {
    /// `name` is the unit's, or a description of it until systemd was read.
    pub fn new(name: &str, start_grace: Duration) -> Self {
        Self {
            start_grace,
            name: name.into(),
            unit: UnitState::default(),
            bus: Bus::Connecting,
            life: Life::Unseen,
            ends: Ends::default(),
            unwatchable: None,
            jobs: Jobs::default(),
            stopped_with: None,
            foreign_at: None,
            oom_kills: VecDeque::new(),
        }
    }

    /// The main process, while it is watched.
    pub fn running(&self) -> Option<&Running> {
        if let Life::Running(running) = &self.life { Some(running) } else { None }
    }

    /// The main process that systemd has and that is not watched.
    pub fn process_to_open(&self) -> Option<i32> {
        let pid = self.unit.main_pid;
        let is_known = match &self.life {
            Life::Running(running) => running.id.pid == pid,
            Life::Ended(ended) => ended.run.pid == pid,
            Life::Unseen | Life::Absent => false,
        };
        (pid != 0 && !is_known).then_some(pid)
    }

    /// Whether the process runs and has a stop job that somebody asked for.
    pub fn is_being_stopped(&self) -> bool {
        self.jobs.has(&[JobKind::Stop]) && self.stopped_with.is_none() && self.running().is_some()
    }

    /// Whether the process runs and is about to be restarted by a job.
    pub fn is_being_restarted(&self) -> bool {
        self.running().is_some() && self.jobs.cause() == Some(Cause::Restarted)
    }

    /// Whether the next process is on its way after a restart job. One that ends with an error on SIGTERM leaves its unit failed for a
    /// moment, until the rest of the job starts the next one.
    pub fn is_restarting(&self, ended: &Ended, now: Uptime) -> bool {
        let has_job = self.jobs.has(&[JobKind::Restart, JobKind::Start, JobKind::Unread]);
        now < ended.at + self.start_grace && (has_job || self.unit.main_pid != 0)
    }

    /// Whether the unit has failed; with nobody to see its process end, or before it had one, as in its `ExecStartPre=`.
    pub fn unit_has_failed(&self) -> bool {
        self.unit.active_state == "failed" && self.unit.result != "success"
    }

    /// When something changes by the passing of time alone, at the soonest.
    pub fn deadline(&self, now: Uptime) -> Option<Uptime> {
        let at = match &self.life {
            Life::Ended(ended) if ended.cause == Cause::Unconfirmed => return Some(self.account_deadline(ended)),
            Life::Ended(ended) if ended.cause == Cause::Restarted => ended.at + self.start_grace,
            Life::Ended(Ended { inactive_since: Some(since), .. }) => *since + INACTIVE_WAIT,
            Life::Ended(Ended { dependency: Some(dependency), .. }) => dependency.settled_since? + DEPENDENCY_WAIT,
            Life::Running(running) => running.started + self.start_grace,
            Life::Unseen | Life::Absent | Life::Ended(_) => return None,
        };
        (at > now).then_some(at)
    }

    /// The end that a view may have to speak of: of the last process, while no later one has answered.
    pub fn last_end(&self) -> Option<&Ended> {
        match &self.life {
            Life::Ended(ended) => Some(ended),
            Life::Running(running) => running.after.as_ref(),
            Life::Unseen | Life::Absent => None,
        }
    }

    pub fn last_end_mut(&mut self) -> Option<&mut Ended> {
        match &mut self.life {
            Life::Ended(ended) => Some(ended),
            Life::Running(running) => running.after.as_mut(),
            Life::Unseen | Life::Absent => None,
        }
    }

    /// The process that runs has answered: the end of the one before it is over.
    pub fn answered(&mut self) {
        if let Life::Running(running) = &mut self.life {
            running.after = None;
        }
    }

    /// The kernel has OOM-killed a process, which may be another one.
    pub fn oom_kill(&mut self, kill: OomKill, now: Uptime) {
        self.oom_kills.push_back((kill, now));
        if self.oom_kills.len() > MAX_OOM_KILLS {
            self.oom_kills.pop_front();
        }
        self.attribute_oom(now);
    }

    /// Decides what has become known, or what waiting no longer helps. To be called after each of the other methods.
    pub fn settle(&mut self, now: Uptime) {
        self.confirm_end(now);
        self.notice_late_stop(now);
    }

    /// Takes in what systemd says.
    pub fn bus_event(&mut self, event: BusEvent, now: Uptime) {
        match event {
            BusEvent::Reading => self.jobs.reading(),
            BusEvent::Read { unit, state, job, dependencies } => {
                self.name = unit;
                self.bus = Bus::Connected;
                self.jobs.read(job);
                self.unit_changed(state, now);
                self.dependencies_read(&dependencies, now);
            }
            BusEvent::Changed(state) => self.unit_changed(state, now),
            BusEvent::Job { id, kind, dependencies } => self.job(id, kind, &dependencies),
            BusEvent::JobRemoved { id, result } => {
                self.jobs.removed(id, now);
                if let Life::Ended(ended) = &mut self.life
                    && result != "done"
                {
                    // The restart has failed: that leaves the unit inactive too.
                    ended.has_waited_for_restart = false;
                }
            }
            BusEvent::ForeignSignal => self.foreign_at = Some(now),
            BusEvent::Lost => {
                self.bus = Bus::Lost;
                self.jobs.clear();
            }
        }
    }

    fn job(&mut self, id: u32, kind: JobKind, dependencies: &[Dependency]) {
        if !self.jobs.set(id, kind) {
            return;
        }
        if kind == JobKind::Stop {
            // A service that was stopped by a job has ended with success, and whoever stopped it wanted this one stopped too.
            let has_failed =
                |dependency: &&Dependency| dependency.result != "success" && dependency.active_state != "active";
            self.stopped_with = dependencies.iter().find(has_failed).map(|dependency| dependency.unit.clone());
        }
        let Life::Ended(ended) = &mut self.life else { return };
        match (kind, ended.cause) {
            (JobKind::Stop, cause) => {
                ended.set_stopped(self.stopped_with.take());
                if cause == Cause::Itself {
                    self.ends.forget_last();
                }
            }
            (JobKind::Restart | JobKind::Start, Cause::Unconfirmed) => ended.cause = Cause::Restarted,
            _ => {}
        }
    }

    /// Takes in whether the service with which it was stopped is back, or has failed for good.
    fn dependencies_read(&mut self, dependencies: &[Dependency], now: Uptime) {
        let Life::Ended(Ended { dependency: Some(stopped_with), .. }) = &mut self.life else { return };
        let is_settled = dependencies.iter().any(|dependency| {
            dependency.unit == stopped_with.unit && ["active", "failed"].contains(&dependency.active_state.as_str())
        });
        stopped_with.settled_since = if is_settled { stopped_with.settled_since.or(Some(now)) } else { None };
    }

    fn unit_changed(&mut self, state: UnitState, now: Uptime) {
        self.unit = state;
        let unit = &self.unit;
        if let Life::Running(running) = &mut self.life
            && unit.main_pid == running.id.pid
        {
            // Later the same state may follow from the end, while systemd ends what is left in the cgroup.
            running.is_being_stopped = ["stop", "stop-sigterm", "stop-sigkill"].contains(&unit.sub_state.as_str());
        }
        if let Life::Ended(ended) = &mut self.life {
            ended.has_waited_for_restart |= unit.sub_state.starts_with("auto-restart");
            let is_stopped = matches!(ended.cause, Cause::Stopped | Cause::StoppedWithDependency);
            let is_new_run = !ended.run.invocation.is_empty() && unit.invocation != ended.run.invocation;
            if is_stopped && is_new_run && unit.main_pid == 0 && unit.active_state != "inactive" {
                // It was started again, and there is no process yet.
                self.life = Life::Absent;
            }
        }
        let last = unit.last;
        if unit.main_pid == last.pid || last.pid == 0 || last.code == 0 {
            if matches!(self.life, Life::Unseen) && unit.main_pid == 0 {
                self.life = Life::Absent;
            }
            return;
        }
        if self.last_end().is_some_and(|ended| ended.run.pid == last.pid) {
            self.learn_how_it_ended();
        } else if self.running().is_none() {
            // The pidfd of a process that runs would tell of its end.
            self.unseen_end(now);
        }
    }

    /// systemd says how the process ended whose end we have seen.
    fn learn_how_it_ended(&mut self) {
        let (last, result) = (self.unit.last, self.unit.result.clone());
        let Some(ended) = self.last_end_mut() else { return };
        ended.how = Some(last);
        if result == "oom-kill" {
            ended.oom.get_or_insert(OomEvidence::Result);
        }
        // Seen while systemd could not be asked.
        let is_by_systemd = ended.was_being_stopped && !STOPPED_BY_SYSTEMD.contains(&result.as_str());
        if ended.cause == Cause::Unknown && !is_by_systemd && result != "success" {
            ended.cause = Cause::Itself;
            let (invocation, at) = (ended.run.invocation.clone(), ended.at);
            self.ends.record(&invocation, at);
        }
    }

    /// A stop job while systemd waits to restart the unit is over before its kind can be read. It leaves the unit inactive; the restart
    /// itself passes through that state only for a moment.
    fn notice_late_stop(&mut self, now: Uptime) {
        let is_inactive = self.unit.active_state == "inactive" && !self.jobs.is_any_open();
        let Life::Ended(ended) = &mut self.life else { return };
        if !is_inactive || !ended.has_waited_for_restart || ended.cause != Cause::Itself {
            ended.inactive_since = None;
        } else if now >= *ended.inactive_since.get_or_insert(now) + INACTIVE_WAIT {
            ended.set_stopped(None);
            self.ends.forget_last();
        }
    }

    /// A process has come and gone without our having opened it.
    fn unseen_end(&mut self, now: Uptime) {
        let unit = &self.unit;
        let has_failed = unit.result != "success";
        let is_first_sight = matches!(self.life, Life::Unseen | Life::Absent);
        let mut ended = Ended::new(
            Run { pid: unit.last.pid, invocation: unit.invocation.clone(), restarts: unit.restarts, ..Run::default() },
            now,
        );
        ended.how = Some(unit.last);
        ended.oom = (unit.result == "oom-kill").then_some(OomEvidence::Result);
        ended.cause = match self.jobs.cause() {
            Some(Cause::Stopped) => Cause::Stopped,
            _ if self.jobs.is_unread() => Cause::Unconfirmed,
            // Later the job is the one that started this process.
            Some(cause) if is_first_sight => cause,
            _ if has_failed => Cause::Itself,
            _ if is_first_sight => {
                self.life = Life::Absent;
                return;
            }
            _ => Cause::Unknown,
        };
        if ended.cause == Cause::Itself {
            self.ends.record(&ended.run.invocation, now);
        }
        self.life = Life::Ended(ended);
    }

    /// The unit's main process was opened; `false` if it is the one that is watched.
    pub fn opened(&mut self, mut running: Running, now: Uptime) -> bool {
        if self.running().is_some_and(|known| known.id == running.id) {
            return false;
        }
        self.unwatchable = None;
        if let Some(pid) = self.running().map(|former| former.id.pid) {
            // This task did not run for a while, and systemd's signals were handled before the pidfd.
            self.exited(pid, now);
        }
        if let Life::Ended(ended) = &mut self.life
            && matches!(ended.cause, Cause::Unconfirmed | Cause::Unknown | Cause::Restarted)
            && self.unit.restarts > ended.run.restarts
        {
            // Restart= has started the next one, so nobody had asked for the end.
            ended.cause = Cause::Itself;
            self.ends.record(&ended.run.invocation, ended.at);
        }
        running.run.invocation.clone_from(&self.unit.invocation);
        running.run.restarts = self.unit.restarts;
        // A process that systemd is stopping was not started by the job that is open.
        if self.unit.active_state != "deactivating" {
            self.jobs.process_started();
        }
        match std::mem::replace(&mut self.life, Life::Unseen) {
            Life::Unseen => running.keeps_what_is_shown = true,
            Life::Ended(ended) if ended.cause == Cause::Restarted => running.keeps_what_is_shown = true,
            Life::Ended(ended) if ended.cause == Cause::Itself => running.after = Some(ended),
            Life::Running(_) | Life::Ended(_) | Life::Absent => {}
        }
        self.life = Life::Running(running);
        true
    }

    /// The process of this pid has ended.
    pub fn exited(&mut self, pid: i32, now: Uptime) {
        let Some(running) = self.running().filter(|running| running.id.pid == pid) else { return };
        let mut ended = Ended::new(running.run.clone(), now);
        ended.was_being_stopped = running.is_being_stopped;
        if self.unit.last.pid == pid && self.unit.last.code != 0 {
            ended.how = Some(self.unit.last);
        }
        ended.cause = self.jobs.cause().unwrap_or(Cause::Unconfirmed);
        if ended.cause == Cause::Stopped {
            ended.set_stopped(self.stopped_with.take());
        }
        self.life = Life::Ended(ended);
        self.attribute_oom(now);
    }

    fn attribute_oom(&mut self, now: Uptime) {
        let kills = self.oom_kills.clone();
        let Some(ended) = self.last_end_mut() else { return };
        let is_near = |at: Uptime| now.saturating_sub(at) < OOM_NEAR && at.abs_diff(ended.at) < OOM_NEAR;
        let kill = kills.into_iter().find(|(kill, at)| is_near(*at) && ended.is_killed_by(kill));
        let Some((kill, _)) = kill else { return };
        ended.oom = Some(OomEvidence::Record(kill));
        if ended.cause == Cause::Unknown {
            ended.cause = Cause::Itself;
            let (invocation, at) = (ended.run.invocation.clone(), ended.at);
            self.ends.record(&invocation, at);
        }
    }

    /// When an end is taken for the process's own, if systemd does not say how it came before that.
    fn account_deadline(&self, ended: &Ended) -> Uptime {
        let is_among_foreign = self.foreign_at.is_some_and(|at| ended.at < at + FOREIGN_LASTS);
        let wait = if self.jobs.is_unread() {
            JOB_KIND_WAIT
        } else if is_among_foreign {
            ACCOUNT_WAIT_AMONG_FOREIGN
        } else {
            ACCOUNT_WAIT
        };
        ended.at + wait
    }

    /// Decides what an end was, once it is known or the time for that is up.
    fn confirm_end(&mut self, now: Uptime) {
        let Life::Ended(ended) = &self.life else { return };
        if ended.cause != Cause::Unconfirmed {
            return;
        }
        let (is_due, is_accounted_for) = (now >= self.account_deadline(ended), ended.how.is_some());
        let is_unread = self.jobs.is_unread();
        if self.bus == Bus::Connected && !is_due && (is_unread || !is_accounted_for) {
            return;
        }
        let has_failed = is_accounted_for && self.unit.result != "success";
        // systemd signals a job before the end that it causes. Without one, and if systemd was not stopping the unit, it ended by itself.
        let was_stopped = ended.was_being_stopped && !STOPPED_BY_SYSTEMD.contains(&self.unit.result.as_str());
        let is_explained = was_stopped || is_unread || (self.jobs.ended_unread(ended.at) && !has_failed);
        let is_recorded = matches!(ended.oom, Some(OomEvidence::Record(_)));
        let is_itself = is_recorded || (self.bus == Bus::Connected && !is_explained);
        let Life::Ended(ended) = &mut self.life else { return };
        ended.cause = if is_itself { Cause::Itself } else { Cause::Unknown };
        if is_itself {
            self.ends.record(&ended.run.invocation, ended.at);
        }
    }
}
