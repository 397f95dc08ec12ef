//! What is known of the container runtime means: one finding, or that there is nothing new to say.

use std::time::Duration;

use super::{OOM_NEAR, Runtime, outcome::Kind};
use crate::{
    checks::{
        kernel::event::Scope,
        kubelet::{
            Unit,
            service::{How, Standing, last_end},
        },
    },
    clock::Now,
    health::{CRI_PROBES, Finding, Reason, START_GRACE},
    helper::protocol::RuntimeStatus,
};

/// So long a runtime that does not answer while the host waits for its disks is slow, and not hung.
const SLOW_FOR: Duration = Duration::from_mins(2);

#[expect(
    clippy::unnecessary_wraps,
    reason = "every judgement here is a finding or nothing new"
)]
fn found(reason: Reason, message: impl Into<String>) -> Option<Finding> {
    Some(Finding {
        reason,
        message: message.into(),
    })
}

/// Whether a process in that state cannot work, or may not be able to.
pub(super) fn is_stuck(state: char) -> bool {
    matches!(state, 'T' | 't' | 'D' | 'Z' | 'X')
}

impl Runtime {
    pub(super) fn assess(&self, now: Now) -> Option<Finding> {
        match self.standing() {
            // Somebody answers, and who it is could not be seen.
            Standing::Ended { at, .. } if self.answered && self.asked_at > at => {
                self.assess_unseen(now)
            }
            Standing::Ended { pid, at, how } => self.assess_ended(pid, at, how),
            Standing::Alive { process, planned } => {
                let young = !self.answered && now.uptime < process.started + START_GRACE;
                self.assess_alive(process.pid, young, planned, now)
            }
            Standing::Unseen => self.assess_unseen(now),
        }
    }

    /// When a young process must have answered.
    pub(super) fn grace_ends(&self) -> Option<Duration> {
        match self.standing() {
            Standing::Alive { process, .. } if !self.answered => {
                Some(process.started + START_GRACE)
            }
            Standing::Unseen => self.failing_since.map(|at| at + START_GRACE),
            _ => None,
        }
    }

    fn assess_ended(&self, pid: i32, at: Duration, how: How) -> Option<Finding> {
        let unit = self.unit_name();
        let who = format!("{unit}: container runtime pid {pid}");
        if how == How::Waiting {
            return None;
        }
        if how == How::Stopped {
            let text = format!("{who} was stopped by a stop job of systemd's");
            return found(Reason::ContainerRuntimeStoppedByOperator, text);
        }
        if let Some(finding) = self.killed_for_memory(&who, at) {
            return Some(finding);
        }
        let (reason, how) = match how {
            How::Told { sentence, result } if result == "oom-kill" => {
                (Reason::ContainerRuntimeOOMKilled, sentence)
            }
            How::Told { sentence, .. } => (Reason::ContainerRuntimeDown, sentence),
            _ => {
                let text = "is gone; systemd has not said how it ended".to_owned();
                (Reason::ContainerRuntimeDown, text)
            }
        };
        found(reason, format!("{who} {how}"))
    }

    /// The kernel killed the process that ended at that time.
    fn killed_for_memory(&self, who: &str, at: Duration) -> Option<Finding> {
        let (kill, told) = self.killed_for_memory.as_ref()?;
        if told.abs_diff(at) > OOM_NEAR {
            return None;
        }
        let of = kill.of_limit();
        let scope = match (kill.scope, &kill.limit_cgroup) {
            (Scope::Host, _) => "the host ran out of it".to_owned(),
            (Scope::Cgroup, Some(group)) => format!("the limit{of} of cgroup {group} was reached"),
            (Scope::Cgroup, None) => format!("the limit{of} of its cgroup was reached"),
        };
        let text = format!("{who} was killed by the kernel for memory: {scope}");
        found(Reason::ContainerRuntimeOOMKilled, text)
    }

    fn assess_alive(&self, pid: i32, young: bool, planned: bool, now: Now) -> Option<Finding> {
        let last = self.last.as_ref()?;
        let (unit, socket) = (self.unit_name(), last.socket.display());
        let who = format!("{unit}: container runtime pid {pid}");
        if let Kind::Ready(status) = &last.kind {
            return found(
                Reason::ContainerRuntimeIsHealthy,
                ready(status, Some(pid), &socket.to_string()),
            );
        }
        // One that is being stopped or restarted need not answer any more.
        let is_ending = self.current().is_some_and(|s| s.life.is_being_stopped());
        if is_ending && !matches!(last.kind, Kind::Unasked(_)) {
            return None;
        }
        if young && last.passes() {
            // Of one that lives since before we looked nobody knows whether it was planned.
            if planned || self.findings.is_empty() {
                return None;
            }
            let text = format!("{who} has started; it does not answer at {socket} yet");
            return found(Reason::ContainerRuntimeStarting, text);
        }
        if !self.window.is_full(CRI_PROBES) {
            return None;
        }
        let state = self.state.map(described).unwrap_or_default();
        match &last.kind {
            Kind::Ready(_) => None,
            Kind::Unasked(why) | Kind::Doubted(why) => unasked(why),
            Kind::Silent { io_full_percent } => {
                self.silent(&format!("{who}{state}"), *io_full_percent, now)
            }
            Kind::NotOurs(why) => not_ours(why, &socket.to_string()),
            Kind::NotReady { why, .. } => self.not_ready(&format!("{who} at {socket} {why}")),
            Kind::NoSocket | Kind::Refused => found(
                Reason::ContainerRuntimeDown,
                format!("{who}{state} lives, but nobody listens at {socket}"),
            ),
        }
    }

    fn silent(&self, who: &str, io_full_percent: Option<u32>, now: Now) -> Option<Finding> {
        let socket = self.last.as_ref()?.socket.display();
        let text = format!(
            "{who}: {} questions at {socket} in a row were not answered within {} s each",
            CRI_PROBES.bad,
            self.timeout.as_secs()
        );
        let pressed = io_full_percent.is_some_and(|full| full >= self.io_full_percent);
        let is_new = self
            .failing_since
            .is_some_and(|at| now.uptime < at + SLOW_FOR);
        if pressed && is_new {
            let limit = self.io_full_percent;
            let text =
                format!("{text}; every task of the host waits for its disks (full ≥ {limit} %)");
            return found(Reason::ContainerRuntimeSlow, text);
        }
        // Silence alone may be a slow answer's: the process's own state is the second witness.
        if self.state.is_none() {
            let text =
                format!("{text}; its process is neither stopped (state T) nor stuck (state D)");
            return found(Reason::ContainerRuntimeSilent, text);
        }
        found(Reason::ContainerRuntimeHung, text)
    }

    /// It says so itself, over a channel that is ours alone: the kubelet, which has its own, must have met it too.
    fn not_ready(&self, text: &str) -> Option<Finding> {
        if self.kubelet_blames {
            let text = format!("{text}; so says the kubelet on the Node");
            return found(Reason::ContainerRuntimeNotReady, text);
        }
        let text = format!("{text}; the kubelet has not said so on the Node");
        found(Reason::ContainerRuntimeUnconfirmed, text)
    }

    /// No process is known: what the socket and systemd say.
    fn assess_unseen(&self, now: Now) -> Option<Finding> {
        let last = self.last.as_ref()?;
        let socket = last.socket.display();
        let enough = self.window.is_full(CRI_PROBES);
        let at = format!("the container runtime at {socket}");
        match &last.kind {
            Kind::Ready(status) => found(
                Reason::ContainerRuntimeIsHealthy,
                ready(status, None, &socket.to_string()),
            ),
            _ if !enough && !last.kind.is_nobody() => None,
            Kind::Unasked(why) => unasked(why),
            Kind::Silent { io_full_percent } => self.silent(&at, *io_full_percent, now),
            Kind::NotReady { why, .. } => self.not_ready(&format!("{at} {why}")),
            Kind::NotOurs(why) => not_ours(why, &socket.to_string()),
            Kind::NoSocket | Kind::Refused | Kind::Doubted(_) => self.assess_unit(enough, now),
        }
    }

    /// The unit's process ended before it had listened, or before we looked.
    fn assess_unseen_end(&self, name: &str, unit: &Unit) -> Option<Finding> {
        let who = format!("{name}: the last container runtime");
        let by_kernel = |at| self.killed_for_memory(&who, at);
        if let Some(finding) = self.unit_ended_at.and_then(by_kernel) {
            return Some(finding);
        }
        match last_end(unit)? {
            How::Told { sentence, result } if result == "oom-kill" => found(
                Reason::ContainerRuntimeOOMKilled,
                format!("{who} {sentence}"),
            ),
            How::Told { sentence, .. } => {
                found(Reason::ContainerRuntimeDown, format!("{who} {sentence}"))
            }
            // It is on its way again, and systemd has just begun to say so.
            _ => None,
        }
    }

    /// Nobody listens, and no process ended under our eyes: systemd may know more.
    fn assess_unit(&self, enough: bool, now: Now) -> Option<Finding> {
        let service = self.current();
        if service.is_none_or(|service| service.life.awaits_systemd()) && !self.services.bus_is_lost
        {
            return None;
        }
        let name = self.unit_name();
        let socket = match self.last.as_ref()?.socket.display().to_string() {
            empty if empty.is_empty() => "any of the well-known sockets".to_owned(),
            socket => socket,
        };
        let nobody = format!("nobody listens at {socket}");
        let not_found = |why: String| found(Reason::ContainerRuntimeNotFound, why);
        let Some(unit) = service.and_then(|service| service.life.service_unit()) else {
            return not_found(format!("{nobody}, and its unit is not known")).filter(|_| enough);
        };
        let states = (unit.active_state.as_str(), unit.sub_state.as_str());
        match states {
            _ if unit.load_state != "loaded" => {
                not_found(format!("{nobody}, and {name} is not installed")).filter(|_| enough)
            }
            (_, "auto-restart") | ("failed", _) => self.assess_unseen_end(name, unit),
            ("inactive", _) if !unit.ever_started => {
                not_found(format!("{name} has not been started since boot"))
            }
            ("inactive" | "deactivating", _) => not_found(format!(
                "{name} is not running; it ended before nodevigil watched it, so whether it was stopped or exited is not known"
            )),
            (state, _) => {
                let long = self
                    .failing_since
                    .is_some_and(|at| now.uptime >= at + START_GRACE);
                if long && enough {
                    if let Kind::Doubted(why) = &self.last.as_ref()?.kind {
                        return unasked(why);
                    }
                    let text = format!("{name} is {state}, but {nobody}");
                    return found(Reason::ContainerRuntimeDown, text);
                }
                // What said nothing before says nothing of a start.
                if self.findings.is_empty() {
                    return None;
                }
                let text = format!("{name} is {state}; {nobody} yet");
                found(Reason::ContainerRuntimeStarting, text)
            }
        }
    }
}

fn unasked(why: &str) -> Option<Finding> {
    let text = format!("the container runtime could not be asked: {why}");
    found(Reason::ContainerRuntimeProbeFailed, text)
}

fn not_ours(why: &str, socket: &str) -> Option<Finding> {
    let text = format!(
        "what listens at {socket} does not speak CRI ({why}), and the kubelet has not said that it is its runtime"
    );
    found(Reason::ContainerRuntimeNotFound, text)
}

fn ready(status: &RuntimeStatus, pid: Option<i32>, socket: &str) -> String {
    let RuntimeStatus { name, version, .. } = status;
    let pid = pid.map_or_else(String::new, |pid| format!(" pid {pid}"));
    let network = match &status.network_not_ready {
        None => String::new(),
        // The kubelet makes of it that the node is not Ready.
        Some(why) => format!("; it says NetworkReady=false: {why}"),
    };
    format!("{name} {version}{pid} answers at {socket}{network}")
}

fn described(state: char) -> String {
    let meaning = match state {
        'T' | 't' => "stopped",
        'D' => "waiting in the kernel, uninterruptible",
        _ => "dead, not reaped",
    };
    format!(" (state {state}: {meaning})")
}
