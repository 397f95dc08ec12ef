//! What can be seen of a kubelet: the check's input, as plain data.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{dependencies::Dependency, starved::Strain};
use crate::{checks::kernel::event::OomKill, helper::journal::LastWords};

/// One process, so named that a reused pid is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid in our namespace.
    pub pid: i32,
    /// When it started (uptime).
    pub started: Duration,
}

/// How the kubelet is run, and so what its unit can tell of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Carrier {
    /// systemd runs it: its unit tells how it ended.
    #[default]
    Unit,
    /// A child of another program, named here, which starts it anew by itself: its unit tells nothing of it.
    Child(String),
    /// A part of another program, named here: only that program and the kubelet's healthz can be watched.
    InProcess(String),
}

/// What is read of a process that is under suspicion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The freezer that holds it, if one does: its cgroup.
    pub frozen_by: Option<String>,
    /// Its threads that wait in the kernel, uninterruptible (state D).
    pub waiting: Vec<Waiting>,
    /// Who listens at its healthz's port.
    pub listening: Listening,
}

/// What the kernel has at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Listening {
    /// It did not say, or was not asked.
    #[default]
    Unknown,
    /// Nobody listens there.
    Nobody,
    /// Somebody does, and so many connections wait to be taken.
    Waiting(u32),
}

/// A thread that waits in the kernel, so named that two waits are not taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub tid: i32,
    /// How often it has had the CPU: the same number is the same wait.
    pub turns: u64,
}

/// What looking for the kubelet's process found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No process could be it, and why we think so.
    None(String),
    /// This one.
    One(Process),
    /// Several could be it: their pids.
    Many(Vec<i32>),
}

/// How a probe of healthz ended. Each is a different fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// 200.
    Ok,
    /// Nobody listens.
    Refused,
    /// Somebody listens and says nothing.
    Timeout,
    /// Nobody takes the connection or refuses it: a firewall drops it, or the queue of who listens is full.
    Unreachable,
    /// Another HTTP status.
    Status(u16),
    /// The probe could not be made: that says nothing of the kubelet.
    Impossible(String),
}

/// Where healthz is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Configured, or told by the kubelet's own command line and configuration.
    Known(Arc<str>),
    /// The default, because nobody could say.
    Assumed(Arc<str>),
    /// `healthzPort: 0`.
    Disabled,
}

/// What systemd says of the unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// `loaded`, `not-found`, `masked` …
    pub load_state: String,
    /// `active`, `inactive`, `failed`, `activating` …
    pub active_state: String,
    /// `running`, `dead`, `auto-restart` …
    pub sub_state: String,
    /// The main process, 0 if there is none.
    pub main_pid: u32,
    /// The main process that lived last.
    pub exec_main_pid: u32,
    /// How it ended: `CLD_EXITED` 1, `CLD_KILLED` 2, `CLD_DUMPED` 3.
    pub exec_main_code: i32,
    /// Its exit code, or the signal.
    pub exec_main_status: i32,
    /// `success`, `exit-code`, `signal`, `oom-kill`, `watchdog` …
    pub result: String,
    /// The unit's cgroup, empty while it has none.
    pub control_group: String,
    /// Whether it was ever started in this boot.
    pub ever_started: bool,
    /// systemd's id of this run of the unit, in hexadecimal; another one with each start.
    pub invocation: String,
    /// How often systemd has started it anew by itself; a restart by hand sets it back.
    pub restarts: u32,
    /// `WatchdogSec=` in microseconds, 0 or the greatest number for none.
    pub watchdog_usec: u64,
    /// `StartLimitBurst=`.
    pub start_limit_burst: u32,
    /// `StartLimitIntervalSec=` in microseconds.
    pub start_limit_interval_usec: u64,
    /// The units with which systemd stops it, without those that every unit depends on.
    pub dependencies: Vec<Dependency>,
}

/// A job of systemd's for the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Not asked yet, or no answer yet.
    Unasked,
    /// Stop.
    Stop,
    /// Restart, in any of its forms.
    Restart,
    /// Start.
    Start,
    /// Anything else: it ends no process.
    Other,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// Somebody looked for the process.
    Found(Found),
    /// The pidfd of this process is readable.
    Gone(i32),
    /// A probe of this process's healthz ended.
    Probed(i32, Probe),
    /// The process's state in `/proc/PID/stat`: `R`, `S`, `D`, `T`, `Z` …
    ProcessState(i32, char),
    /// Whether this process is being ended: SIGKILL waits for it, or it has begun to exit.
    Dying(i32, bool),
    /// Its Lease was read, as it does not answer: when it was renewed, and for how long that is good.
    Lease {
        /// `spec.renewTime`.
        renewed: Timestamp,
        /// `spec.leaseDurationSeconds`.
        duration: Duration,
    },
    /// How hard it is for this process to run; looked at while its healthz does not answer.
    Strain(i32, Strain),
    /// Where this process's healthz is.
    Endpoint(i32, Endpoint),
    /// How this process is run.
    Carrier(i32, Carrier),
    /// A closer look at this process, which is under suspicion.
    Sampled(i32, Sample),
    /// The kernel killed some process for memory.
    OomKill(Box<OomKill>),
    /// What the kubelet said last in that run of its unit.
    Words(Run, LastWords),
    /// Whether the host has no credentials for the kubelet and no Node: it has not joined a cluster yet.
    AwaitsJoin(bool),
    /// It is the unit of this name that is watched from now on.
    Watching(String),
    /// systemd's properties of the unit.
    Unit(Unit),
    /// A job for the unit came, or its type became known.
    Job(u32, JobKind),
    /// A job for the unit was asked for once more while it was open.
    JobAgain(u32),
    /// A job for the unit ended.
    JobDone(u32),
    /// systemd's word on another unit, on which this one may depend.
    Other(String, Box<Self>),
    /// Jobs are about to be told anew: one whose end went by unheard must not excuse a later death.
    JobsUntold,
    /// Somebody else than systemd speaks to us over the bus: what systemd says may come late, or get lost.
    ForeignSignals,
    /// The bus went away, and what it told us with it.
    BusLost,
}

/// Where the words of a kubelet that has ended are to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// In the journal, under the unit's invocation.
    Invocation(String),
    /// In RKE2's own log; told by the pid.
    Rke2(i32),
}

impl Unit {
    /// Whether systemd waits for its processes to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.active_state == "deactivating"
    }

    /// Whether systemd has sent its last signal.
    pub(super) fn is_being_killed(&self) -> bool {
        self.sub_state == "stop-sigkill" || self.sub_state == "final-sigkill"
    }

    /// Whether it is busy with what comes before its main process.
    pub(super) fn is_activating(&self) -> bool {
        self.active_state == "activating" && !self.sub_state.starts_with("auto-restart")
    }

    /// Whether it is between two processes by plan, or has one that is not yet the kubelet.
    pub(super) fn is_on_its_way(&self) -> bool {
        let active = ["active", "activating", "reloading"].contains(&self.active_state.as_str());
        active && !self.sub_state.starts_with("auto-restart")
    }

    /// Whether it ended in a way that systemd calls a failure.
    pub(super) fn is_down_after_failure(&self) -> bool {
        self.active_state == "failed" || self.sub_state.starts_with("auto-restart")
    }
}
