//! A kubelet that lives, and how one ended.

use std::time::Duration;

use super::{
    signs::{Carrier, Endpoint, Probe, Process, Unit},
    starved::Starved,
    suspicion::Suspicion,
    witness::LeaseLooks,
};
use crate::health::timing::Window;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// systemd is being asked, until then (uptime).
    Asked(Duration),
    /// It did not say in time; it may yet.
    Unknown,
    /// By itself.
    Exited { code: i32, result: String },
    /// By a signal.
    Killed { signal: i32, result: String },
    /// By a stop job.
    Stopped,
    /// By a restart job.
    Restarting,
}

/// A kubelet that lived while we watched and is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) pid: i32,
    /// The unit's main process at that time: another one if a wrapper started the kubelet.
    pub(super) main_pid: i32,
    pub(super) at: Duration,
    /// Whether it ended before systemd was heard, whose restart job may have become a start job meanwhile.
    pub(super) unheard: bool,
    pub(super) cause: Cause,
    /// The run of its unit.
    pub(super) invocation: String,
    pub(super) carrier: Carrier,
}

/// A kubelet that lives.
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts of one process that do not depend on each other"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alive {
    pub(super) process: Process,
    /// When it was found (uptime).
    pub(super) found: Duration,
    pub(super) carrier: Carrier,
    pub(super) suspicion: Suspicion,
    /// It came by a restart that somebody had asked for: until its grace ends that is no news.
    pub(super) planned: bool,
    /// Its healthz has answered 200 once.
    pub(super) answered: bool,
    /// Which of the last probes failed, and what the last one was.
    pub(super) probes: Window,
    pub(super) last_probe: Option<Probe>,
    /// Its state in `/proc`, for the message.
    pub(super) state: Option<char>,
    pub(super) endpoint: Option<Endpoint>,
    /// How hard it is for it to run, since it does not answer; and whether that is to be looked at.
    pub(super) starved: Starved,
    pub(super) strain_is_wanted: bool,
    /// SIGKILL waits for it, or it has begun to exit.
    pub(super) is_dying: bool,
    /// What was seen of its Lease since it does not answer.
    pub(super) lease: Option<LeaseLooks>,
}

impl Cause {
    pub(super) fn of(unit: &Unit) -> Option<Self> {
        let result = unit.result.clone();
        match unit.exec_main_code {
            1 => Some(Self::Exited {
                code: unit.exec_main_status,
                result,
            }),
            2 | 3 => Some(Self::Killed {
                signal: unit.exec_main_status,
                result,
            }),
            _ => None,
        }
    }
}

impl Alive {
    pub(super) fn new(process: Process, planned: bool, found: Duration) -> Self {
        Self {
            process,
            found,
            carrier: Carrier::Unit,
            suspicion: Suspicion::default(),
            planned,
            answered: false,
            probes: Window::default(),
            last_probe: None,
            state: None,
            endpoint: None,
            starved: Starved::default(),
            strain_is_wanted: false,
            is_dying: false,
            lease: None,
        }
    }

    /// Failed probes in a row, as far as they are counted.
    pub(super) fn misses(&self) -> u32 {
        self.probes.in_a_row()
    }

    pub(super) fn probed(&mut self, probe: Probe) {
        if probe == Probe::Ok {
            self.answered = true;
            self.planned = false;
            self.suspicion = Suspicion::default();
            self.lease = None;
        }
        self.strain_is_wanted = probe != Probe::Ok;
        self.probes.push(probe != Probe::Ok);
        self.last_probe = Some(probe);
    }
}
