//! The kubelet's life: gone, crashed, hung, stopped by somebody, or well.
//!
//! Signs come in (its process was found, its pidfd is readable, a probe answered, systemd said something), the state
//! changes here and only here, and [`Kubelet::assess`] says what it means. Pure: who reads the signs is `agent`'s
//! business, through `host`.

mod assess;
mod life;
mod signs;
mod starved;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    checks::Spec,
    clock::Now,
    config::Settings,
    health::{ConditionType, START_GRACE},
};

use life::{Alive, Cause, Ended};

pub use assess::Assessment;
pub use signs::{Endpoint, Found, JobKind, Probe, Process, Sign, Unit};
pub use starved::{Strain, StrainLimits};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "kubelet",
    condition: ConditionType::KubeletHealthy,
    doc: "The kubelet's process, its healthz and its unit.",
};

/// How long systemd is waited for to say how the kubelet ended, before `KubeletGone` goes out without a cause.
/// Measured: it answers 2–5 ms after the pidfd is readable; 3 ms keeps the promise of 10 ms to the watch event.
pub const CAUSE_WAIT: Duration = Duration::from_millis(3);
/// How long the type of a job that is known by number alone is waited for: a wrong `False` would be worse than a late one.
const JOB_TYPE_WAIT: Duration = Duration::from_secs(1);
/// Time between two probes of a healthy kubelet. (Each costs 300 µs of CPU.)
pub const PROBE_EVERY: Duration = Duration::from_secs(2);
/// A probe's timeout, and the least time between the starts of two probes after a failure.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(800);
/// After so many failures in a row the probes slow down to [`PROBE_EVERY`] again: the verdict is out, and a dead port
/// need not be asked more often than a live one.
const FAST_PROBES: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Life {
    /// Nobody has looked yet.
    Unseen,
    /// There is no process, and none has ended under our eyes.
    Absent(String),
    /// Several processes could be it.
    Ambiguous(Vec<i32>),
    Alive(Alive),
    Ended(Ended),
}

/// The kubelet as far as it is known.
#[derive(Debug)]
pub struct Kubelet {
    unit_name: String,
    life: Life,
    unit: Option<Unit>,
    jobs: BTreeMap<u32, JobKind>,
    /// Whether systemd is still to be heard for the first time: until then its jobs are not known.
    bus_is_awaited: bool,
    /// Since when there has been no process (uptime), if there is none and none ended under our eyes.
    absent_since: Option<Duration>,
    limits: StrainLimits,
}

impl Kubelet {
    /// A kubelet of which nothing is known but its unit's name.
    pub fn new(unit_name: impl Into<String>) -> Self {
        Self {
            unit_name: unit_name.into(),
            life: Life::Unseen,
            unit: None,
            jobs: BTreeMap::new(),
            bus_is_awaited: true,
            absent_since: None,
            limits: StrainLimits::new(&Settings::default()),
        }
    }

    /// The same, with the operator's limits of strain.
    #[must_use]
    pub fn with_limits(self, limits: StrainLimits) -> Self {
        Self { limits, ..self }
    }

    /// The process that is watched.
    pub fn process(&self) -> Option<&Process> {
        match &self.life {
            Life::Alive(alive) => Some(&alive.process),
            _ => None,
        }
    }

    /// Where the watched process's healthz is.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.life {
            Life::Alive(alive) => alive.endpoint.as_ref(),
            _ => None,
        }
    }

    /// Whether its process lives and its healthz answers, or is off.
    pub fn answers(&self) -> bool {
        match &self.life {
            Life::Alive(alive) => {
                alive.endpoint == Some(Endpoint::Disabled)
                    || (alive.answered && alive.misses() == 0)
            }
            _ => false,
        }
    }

    /// Whether its last probe failed.
    pub fn is_suspect(&self) -> bool {
        matches!(&self.life, Life::Alive(alive) if alive.misses() > 0)
    }

    /// Whether it is to be read how hard it is for it to run; each wish is told once.
    pub fn take_strain_is_wanted(&mut self) -> bool {
        match &mut self.life {
            Life::Alive(alive) => std::mem::take(&mut alive.strain_is_wanted),
            _ => false,
        }
    }

    /// The cgroup in which systemd keeps the unit, if it said so.
    pub fn control_group(&self) -> Option<&str> {
        let group = self.unit.as_ref()?.control_group.as_str();
        (!group.is_empty()).then_some(group)
    }

    /// A word for `status`.
    pub fn state(&self) -> &'static str {
        match &self.life {
            Life::Unseen => "unseen",
            Life::Absent(_) => "absent",
            Life::Ambiguous(_) => "ambiguous",
            Life::Alive(alive) if alive.answered => "running",
            Life::Alive(_) => "starting",
            Life::Ended(_) => "ended",
        }
    }

    /// How long after a probe's start the next one starts.
    pub fn probe_interval(&self) -> Duration {
        match &self.life {
            Life::Alive(alive) if (1..FAST_PROBES).contains(&alive.misses()) => PROBE_TIMEOUT,
            Life::Alive(alive) if !alive.answered && alive.misses() == 0 => PROBE_TIMEOUT,
            _ => PROBE_EVERY,
        }
    }

    /// When to assess again though no sign comes (uptime).
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.life {
            Life::Ended(Ended { at, cause, .. }) => match cause {
                Cause::Asked(until) => Some(*until),
                Cause::Restarting => Some(*at + START_GRACE),
                _ => None,
            },
            Life::Alive(alive) if !alive.answered => Some(alive.process.started + START_GRACE),
            Life::Absent(_) => self.absent_since.map(|at| at + START_GRACE),
            _ => None,
        }
    }

    /// Takes a sign in.
    pub fn apply(&mut self, sign: Sign, now: Now) {
        match sign {
            Sign::Found(found) => self.found(found, now),
            Sign::Gone(pid) => self.gone(pid, now),
            Sign::Probed(pid, probe) => self.with_alive(pid, |alive| alive.probed(probe)),
            Sign::ProcessState(pid, state) => {
                self.with_alive(pid, |alive| {
                    alive.state = Some(state);
                    alive.strain_is_wanted |= alive.misses() > 0;
                });
            }
            Sign::Strain(pid, strain) => {
                let limits = self.limits;
                self.with_alive(pid, |alive| alive.starved.look(strain, limits));
            }
            Sign::Endpoint(pid, endpoint) => {
                self.with_alive(pid, |alive| alive.endpoint = Some(endpoint));
            }
            Sign::Unit(unit) => {
                self.bus_is_awaited = false;
                self.learn_cause(&unit);
                self.unit = Some(unit);
            }
            Sign::Job(id, kind) => {
                self.jobs.insert(id, kind);
                self.learn_job(kind);
            }
            Sign::JobDone(id) => {
                let kind = self.jobs.remove(&id);
                if kind == Some(JobKind::Unasked) {
                    self.job_vanished();
                }
            }
            Sign::JobsUntold => self.jobs.clear(),
            Sign::BusLost => {
                self.unit = None;
                self.jobs.clear();
                self.bus_is_awaited = false;
            }
        }
        self.tick(now);
    }

    /// Lets the deadlines pass that have come.
    pub fn tick(&mut self, now: Now) {
        let Life::Ended(ended) = &mut self.life else {
            return;
        };
        let over = match ended.cause {
            Cause::Asked(until) => now.uptime >= until,
            Cause::Restarting => now.uptime >= ended.at + START_GRACE,
            _ => false,
        };
        if over {
            ended.cause = Cause::Unknown;
        }
    }

    fn found(&mut self, found: Found, now: Now) {
        match found {
            Found::One(process) => {
                if self.process() == Some(&process) {
                    return;
                }
                let planned = matches!(
                    &self.life,
                    Life::Ended(Ended {
                        cause: Cause::Restarting,
                        ..
                    })
                );
                // The stopping is done: as systemd does, take what is left of a restart job for a start job.
                for kind in self
                    .jobs
                    .values_mut()
                    .filter(|kind| **kind == JobKind::Restart)
                {
                    *kind = JobKind::Start;
                }
                self.absent_since = None;
                self.life = Life::Alive(Alive::new(process, planned));
            }
            // A process that lives is lost by its pidfd alone: a listing that missed it proves nothing.
            Found::None(_) | Found::Many(_) if matches!(self.life, Life::Alive(_)) => {}
            Found::None(why) => {
                if !matches!(self.life, Life::Ended(_)) {
                    self.life = Life::Absent(why);
                    self.absent_since.get_or_insert(now.uptime);
                }
            }
            Found::Many(pids) => self.life = Life::Ambiguous(pids),
        }
    }

    fn gone(&mut self, pid: i32, now: Now) {
        let Life::Alive(alive) = &self.life else {
            return;
        };
        if alive.process.pid != pid {
            return;
        }
        let cause = if self.has_job(JobKind::Stop) {
            Cause::Stopped
        } else if self.has_job(JobKind::Restart) || (alive.answered && self.has_job(JobKind::Start))
        {
            // systemd turns a restart job into a start job once the stopping is done.
            Cause::Restarting
        } else if self.has_job(JobKind::Unasked) || self.bus_is_awaited {
            Cause::Asked(now.uptime + JOB_TYPE_WAIT)
        } else {
            Cause::Asked(now.uptime + CAUSE_WAIT)
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
        });
    }

    fn has_job(&self, kind: JobKind) -> bool {
        self.jobs.values().any(|k| *k == kind)
    }

    /// Whether somebody has asked for the process's end, as far as is known.
    fn is_being_ended(&self) -> bool {
        self.jobs
            .values()
            .any(|kind| !matches!(kind, JobKind::Start | JobKind::Other))
    }

    fn with_alive(&mut self, pid: i32, change: impl FnOnce(&mut Alive)) {
        if let Life::Alive(alive) = &mut self.life
            && alive.process.pid == pid
        {
            change(alive);
        }
    }

    /// A job that is announced while systemd is still being asked was queued before the process ended: a restart of
    /// systemd's own comes behind the news of the end. Its type says whether somebody wanted that end.
    fn learn_job(&mut self, kind: JobKind) {
        let Life::Ended(ended) = &mut self.life else {
            return;
        };
        if !matches!(ended.cause, Cause::Asked(_)) {
            return;
        }
        match kind {
            JobKind::Unasked => ended.cause = Cause::Asked(ended.at + JOB_TYPE_WAIT),
            JobKind::Stop => ended.cause = Cause::Stopped,
            JobKind::Restart => ended.cause = Cause::Restarting,
            // A restart of systemd's own after a clean exit comes 100 ms later at the soonest.
            JobKind::Start
                if ended.unheard && self.unit.as_ref().is_some_and(|u| u.result == "success") =>
            {
                ended.cause = Cause::Restarting;
            }
            JobKind::Start | JobKind::Other => self.recall_cause(),
        }
    }

    /// A job was done before its type could be read; where it left the unit tells a stop from the rest.
    fn job_vanished(&mut self) {
        let down = matches!(
            self.unit.as_ref().map(|unit| unit.active_state.as_str()),
            Some("inactive" | "deactivating")
        );
        match &mut self.life {
            Life::Ended(ended) if down && matches!(ended.cause, Cause::Asked(_)) => {
                ended.cause = Cause::Stopped;
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
}

#[cfg(test)]
mod tests;
