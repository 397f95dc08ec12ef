//! Who the kubelet and the container runtime are, of those whom the kernel kills for memory: the very process, or one of the
//! program's name in the cgroup of the unit that runs it. A name alone is nobody's: a pod may run a `containerd` of its own.

use std::time::Duration;

use crate::{
    checks::{
        kernel::{
            event::{OomKill, Scope},
            place::{is_own_unit, may_be_own_unit},
        },
        runtime,
    },
    clock::Now,
    config::Settings,
    health::Reason,
    helper::protocol::Listener,
};

/// How long a kill of the kubelet or the runtime is told for, at least.
const KILL_LASTS: Duration = Duration::from_mins(1);
/// An end and the kernel's line about it lie no further apart: freeing the memory of a large process takes its time.
const SAME_END: Duration = Duration::from_secs(10);
/// The runtimes' names, as the kernel has them.
const RUNTIMES: [&str; 3] = ["containerd", "crio", "dockerd"];

/// The kubelet or the runtime, killed.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// When that was heard (uptime).
    at: Duration,
}

/// What is known of the two, and of their kills.
#[derive(Debug)]
pub(super) struct Kills {
    /// The last ones, also after their end: their kill may be told later than that.
    pub(super) kubelet: Option<i32>,
    runtime: Option<i32>,
    /// The runtime's unit, if its process has said so, and those that it may be.
    unit: Option<String>,
    units: Vec<String>,
    /// When the runtime's process ended last (uptime).
    gone: Option<Duration>,
    /// One that may be of the runtime's process, which has not ended yet.
    open: Option<Box<OomKill>>,
    told: [Option<Killed>; 2],
}

impl Kills {
    pub(super) fn new(settings: &Settings) -> Self {
        let known = runtime::ALL_UNITS.iter().map(|unit| (*unit).to_owned());
        Self {
            kubelet: None,
            runtime: None,
            unit: None,
            units: known.chain(settings.runtime.unit.clone()).collect(),
            gone: None,
            open: None,
            told: [None, None],
        }
    }

    /// Who listens at the runtime's socket.
    pub(super) fn runtime_is(&mut self, listener: &Listener) {
        self.runtime = Some(listener.pid);
        self.unit.clone_from(&listener.unit);
    }

    /// The runtime's process has ended.
    pub(super) fn runtime_gone(&mut self, pid: i32, now: Now) {
        if self.runtime != Some(pid) {
            return;
        }
        self.gone = Some(now.uptime);
        let is_its = |kill: &OomKill| kill.at + SAME_END >= now.uptime;
        if let Some(kill) = self.open.take().filter(|kill| is_its(kill)) {
            self.tell_runtime(&kill, now);
        }
    }

    /// The kernel has killed a process.
    pub(super) fn heard(&mut self, kill: &OomKill, now: Now) {
        if kill.is_of_pods() {
            return;
        }
        if self.kubelet == Some(kill.pid) {
            self.tell(0, Reason::MemoryKilledKubelet, "kubelet", kill, now);
        } else if self.is_runtime(kill) {
            self.tell_runtime(kill, now);
        } else if self.may_be_runtime(kill) {
            // In a PID namespace of our own the kernel counts otherwise: ours is the one that ends.
            if self.gone.is_some_and(|gone| gone + SAME_END >= now.uptime) {
                self.tell_runtime(kill, now);
            } else {
                self.open = Some(Box::new(kill.clone()));
            }
        }
    }

    /// Whether it is the runtime's own process, or one in its unit's cgroup that has its name.
    fn is_runtime(&self, kill: &OomKill) -> bool {
        let Some(cgroup) = kill.place() else {
            return self.runtime == Some(kill.pid);
        };
        // A pid that the kernel counts otherwise may be the same by chance.
        let is_in = |unit: &String| cgroup.split('/').any(|folder| folder == unit);
        let is_it = self.runtime == Some(kill.pid) && self.unit.as_ref().is_none_or(is_in);
        is_it || (has_name(kill) && is_own_unit(cgroup, |unit| self.is_units(unit)))
    }

    fn may_be_runtime(&self, kill: &OomKill) -> bool {
        let is_there = |cgroup| may_be_own_unit(cgroup, |unit| self.is_units(unit));
        has_name(kill) && kill.place().is_some_and(is_there)
    }

    fn is_units(&self, unit: &str) -> bool {
        self.unit.as_deref() == Some(unit) || self.units.iter().any(|known| known == unit)
    }

    fn tell_runtime(&mut self, kill: &OomKill, now: Now) {
        let reason = Reason::MemoryKilledContainerRuntime;
        self.tell(1, reason, "container runtime", kill, now);
    }

    fn tell(&mut self, place: usize, reason: Reason, who: &str, kill: &OomKill, now: Now) {
        let of = kill.of_limit();
        let why = match (kill.scope, &kill.limit_cgroup) {
            (Scope::Host, _) => "the host had no memory left".to_owned(),
            (Scope::Cgroup, Some(limit)) => format!("{limit} reached its memory limit{of}"),
            (Scope::Cgroup, None) => format!("its control group reached its memory limit{of}"),
        };
        let (comm, pid) = (&kill.comm, kill.pid);
        self.told[place] = Some(Killed {
            reason,
            message: format!("the kernel killed the {who} (`{comm}`, pid {pid}), because {why}"),
            at: now.uptime,
        });
    }

    /// Forgets what has been told for long enough.
    pub(super) fn forget_old(&mut self, is_alarmed: bool, now: Now) {
        let is_old = |killed: &Killed| now.uptime.saturating_sub(killed.at) >= KILL_LASTS;
        for killed in &mut self.told {
            let _ = killed.take_if(|killed| !is_alarmed && is_old(killed));
        }
    }

    /// What is told, the kubelet's first.
    pub(super) fn told(&self) -> impl Iterator<Item = &Killed> + Clone {
        self.told.iter().flatten()
    }
}

fn has_name(kill: &OomKill) -> bool {
    RUNTIMES.contains(&kill.comm.as_str())
}
