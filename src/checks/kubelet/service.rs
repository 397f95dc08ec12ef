//! The life of a service that is no kubelet and has the same: a process, a unit, jobs of somebody's. So another check can
//! follow one without a machine of its own.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Cause, Kubelet, Life, Process, Unit};

/// What a service's life has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::checks) enum Standing<'a> {
    /// No process has been seen.
    Unseen,
    /// It lives.
    Alive {
        process: &'a Process,
        /// It came by a restart that somebody had asked for, and has not answered yet.
        planned: bool,
    },
    /// It ended under our eyes.
    Ended { pid: i32, at: Duration, how: How },
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::checks) enum How {
    /// It is not known yet, or another one is to come.
    Waiting,
    /// By a stop job.
    Stopped,
    /// As systemd says it: the end of a sentence, and its `Result`.
    Told { sentence: String, result: String },
    /// systemd has not said how.
    Untold,
}

impl Kubelet {
    /// Where its life stands.
    pub(in crate::checks) fn standing(&self) -> Standing<'_> {
        match &self.life {
            Life::Unseen | Life::Absent(_) | Life::Ambiguous(_) => Standing::Unseen,
            Life::Alive(alive) => Standing::Alive {
                process: &alive.process,
                planned: alive.planned,
            },
            Life::Ended(ended) => Standing::Ended {
                pid: ended.pid,
                at: ended.at,
                how: match &ended.cause {
                    Cause::Asked(_) | Cause::Restarting => How::Waiting,
                    Cause::Stopped => How::Stopped,
                    cause => told(cause).unwrap_or(How::Untold),
                },
            },
        }
    }

    /// What systemd says of the unit, once it has said it.
    pub(in crate::checks) fn service_unit(&self) -> Option<&Unit> {
        self.unit.as_ref()
    }

    /// Whether systemd is still to be heard for the first time.
    pub(in crate::checks) fn awaits_systemd(&self) -> bool {
        self.bus_is_awaited
    }

    /// Whether a stop or a restart is under way.
    pub(in crate::checks) fn is_being_stopped(&self) -> bool {
        self.is_being_ended()
    }
}

/// How the unit's last process ended.
pub(in crate::checks) fn last_end(unit: &Unit) -> Option<How> {
    told(&Cause::of(unit)?)
}

fn told(cause: &Cause) -> Option<How> {
    let (sentence, result) = match cause {
        Cause::Exited { code, result } => (format!("exited with code {code}"), result),
        Cause::Killed { signal, result } => {
            let name = Signal::try_from(*signal).map_or("an unknown signal", Signal::as_str);
            (format!("was killed by {name} ({signal})"), result)
        }
        _ => return None,
    };
    Some(How::Told {
        sentence: format!("{sentence} (systemd: Result={result})"),
        result: result.clone(),
    })
}
