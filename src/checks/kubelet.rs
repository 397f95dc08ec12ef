//! The kubelet's life: gone, crashed, hung, stopped by somebody, or well.
//!
//! Signs come in (its process was found, its pidfd is readable, a probe answered, systemd said something), the state
//! changes here and only here, and [`Kubelet::assess`] says what it means. Pure: who reads the signs is `agent`'s
//! business, through `host`.

mod assess;
mod causes;
mod deadlines;
mod dependencies;
mod ended;
mod ends;
mod life;
pub(in crate::checks) mod service;
mod signs;
mod starved;
mod stopped;
mod suspicion;
mod terms;
mod witness;

use std::{collections::BTreeMap, time::Duration};

use crate::{checks::Spec, clock::Now, config::Settings, health::ConditionType};

use dependencies::Dependencies;
use ends::Ends;
use life::{Alive, Cause, Ended};

pub use assess::Assessment;
pub use dependencies::{Dependency, MAX_DEPENDENCIES, Tie};
pub use signs::{
    Carrier, Endpoint, Found, JobKind, Listening, Probe, Process, Run, Sample, Sign, Unit, Waiting,
};
pub use starved::{Strain, StrainLimits};
pub use terms::Terms;

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
/// How long systemd's word on an end is waited for among forged signals, which it may stand behind.
const FOREIGN_SIGNALS_WAIT: Duration = Duration::from_secs(1);
/// How long after the last of them that is so.
const FOREIGN_SIGNALS_LAST: Duration = Duration::from_secs(10);
/// Open jobs that are remembered: systemd has one of a unit at a time.
const MAX_JOBS: usize = 4;
/// At our start the helper is waited for to say whether the host has joined a cluster at all: before that an end that
/// nobody saw is no fault, and what is once a fault is not taken back.
const JOIN_WAIT: Duration = Duration::from_secs(5);
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
    terms: Terms,
    life: Life,
    /// The end before the life at hand, and whether something has just been learnt of it.
    last_end: Option<(Ended, bool)>,
    ends: Ends,
    unit: Option<Unit>,
    /// What is known of each, and when it was announced (uptime).
    jobs: BTreeMap<u32, (JobKind, Duration)>,
    dependencies: Dependencies,
    /// Whether systemd is still to be heard for the first time: until then its jobs are not known.
    bus_is_awaited: bool,
    /// When others than systemd spoke to us last (uptime).
    foreign_signals_at: Option<Duration>,
    /// Since when there has been no process (uptime), if there is none and none ended under our eyes.
    absent_since: Option<Duration>,
    /// Since when systemd has waited for its end, has sent SIGKILL, has been busy with what comes before it (uptime).
    stopping_since: Option<Duration>,
    killing_since: Option<Duration>,
    activating_since: Option<Duration>,
    /// When the first sign came (uptime).
    born: Option<Duration>,
    /// Whether the host has not joined a cluster yet, as far as its files and the API tell …
    awaits_join: Option<bool>,
    /// … which a kubelet that has answered once disproves.
    has_answered: bool,
    limits: StrainLimits,
}

impl Kubelet {
    /// A kubelet of which nothing is known but its unit's name.
    pub fn new(unit_name: impl Into<String>) -> Self {
        Self {
            unit_name: unit_name.into(),
            terms: Terms::default(),
            life: Life::Unseen,
            last_end: None,
            ends: Ends::default(),
            unit: None,
            jobs: BTreeMap::new(),
            dependencies: Dependencies::default(),
            bus_is_awaited: true,
            foreign_signals_at: None,
            absent_since: None,
            stopping_since: None,
            killing_since: None,
            activating_since: None,
            born: None,
            awaits_join: None,
            has_answered: false,
            limits: StrainLimits::new(&Settings::default()),
        }
    }

    /// The same, with other thresholds.
    #[must_use]
    pub fn with(self, terms: Terms) -> Self {
        Self { terms, ..self }
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

    /// How the watched process is run.
    pub fn carrier(&self) -> Option<&Carrier> {
        match &self.life {
            Life::Alive(alive) => Some(&alive.carrier),
            _ => None,
        }
    }

    /// Whose last words are to be asked for now; told once.
    pub fn take_wanted_words(&mut self, now: Now) -> Option<Run> {
        self.ends.take_wanted(now.uptime)
    }

    /// The process that is to be looked at, whether it is being ended; told once.
    pub fn take_suspect(&mut self) -> Option<Process> {
        let pid = self.ends.take_suspect()?;
        self.process().filter(|process| process.pid == pid).cloned()
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

    /// Takes a sign in.
    pub fn apply(&mut self, sign: Sign, now: Now) {
        self.born.get_or_insert(now.uptime);
        if let Some((_, is_news)) = &mut self.last_end {
            *is_news = false;
        }
        match sign {
            Sign::Found(found) => self.found(found, now),
            Sign::Gone(pid) => self.gone(pid, now),
            Sign::Probed(pid, probe) => {
                self.has_answered |= probe == Probe::Ok;
                if probe == Probe::Ok && self.process().is_some_and(|process| process.pid == pid) {
                    // Whom the kernel killed does not answer: its pid was another's.
                    self.ends.take_killed(now.uptime);
                }
                self.with_alive(pid, |alive| alive.probed(probe));
            }
            Sign::ProcessState(pid, state) => {
                self.with_alive(pid, |alive| {
                    alive.state = Some(state);
                    alive.strain_is_wanted |= alive.misses() > 0;
                });
            }
            Sign::Dying(pid, is_dying) => {
                self.ends.looked_at(pid, is_dying);
                self.with_alive(pid, |alive| alive.is_dying = is_dying);
            }
            Sign::Lease { renewed, duration } => {
                if let Life::Alive(alive) = &mut self.life {
                    alive.lease_read(renewed, duration, now);
                }
            }
            Sign::Strain(pid, strain) => {
                let limits = self.limits;
                self.with_alive(pid, |alive| alive.starved.look(strain, limits, now));
            }
            Sign::Endpoint(pid, endpoint) => {
                self.with_alive(pid, |alive| alive.endpoint = Some(endpoint));
            }
            Sign::Carrier(pid, carrier) => self.with_alive(pid, |alive| alive.carrier = carrier),
            Sign::Sampled(pid, sample) => self.with_alive(pid, |alive| {
                alive.suspicion.sampled(sample, now.uptime);
            }),
            Sign::OomKill(kill) => self.learn_oom(*kill, now),
            Sign::Words(run, told) => {
                let is_news = self.ends.words_came(run, &told, now.uptime);
                self.learn_of_last_end(is_news);
            }
            Sign::AwaitsJoin(so) => self.awaits_join = Some(so),
            of_systemd => self.apply_of_systemd(of_systemd, now),
        }
        self.tick(now);
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
                // The stopping is done: as systemd does, take what is left of a restart job for a start job. One that was
                // announced when this process ran already is about its end.
                for (kind, announced) in self.jobs.values_mut() {
                    if *kind == JobKind::Restart && *announced <= process.started {
                        *kind = JobKind::Start;
                    }
                }
                self.absent_since = None;
                self.dependencies.begin();
                let alive = Life::Alive(Alive::new(process, planned, now.uptime));
                if let Life::Ended(ended) = std::mem::replace(&mut self.life, alive) {
                    self.last_end = Some((ended, false));
                }
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

    /// Whether it has ended so often of late that each further end is no news for the log.
    pub fn is_looping(&self, now: Now) -> bool {
        let count = self.ends.within(self.terms.crash_loop_within, now.uptime);
        count >= self.terms.crash_loop_ends
    }

    /// Whether others than systemd speak to us over the bus: of an end it is to be asked then.
    pub fn is_among_foreign_signals(&self, now: Now) -> bool {
        self.foreign_signals_at
            .is_some_and(|at| now.uptime < at + FOREIGN_SIGNALS_LAST)
    }

    fn has_job(&self, kind: JobKind) -> bool {
        self.jobs.values().any(|(k, _)| *k == kind)
    }

    /// Whether somebody has asked for the process's end, as far as is known.
    fn is_being_ended(&self) -> bool {
        self.jobs
            .values()
            .any(|(kind, _)| !matches!(kind, JobKind::Start | JobKind::Other))
    }

    fn with_alive(&mut self, pid: i32, change: impl FnOnce(&mut Alive)) {
        if let Life::Alive(alive) = &mut self.life
            && alive.process.pid == pid
        {
            change(alive);
        }
    }
}

#[cfg(test)]
mod tests;
