//! What the kubelet's state means: one finding, or that there is nothing new to say.

use nix::sys::signal::Signal;

use super::{Alive, Cause, Ended, Endpoint, Kubelet, Life, Probe, Unit};
use crate::{
    clock::Now,
    health::{Finding, PROBES, Reason, START_GRACE, Status, timing::Samples},
};

/// What an assessment comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    /// This is so.
    Found(Finding),
    /// What was said before still stands: a planned restart, a probe on its way.
    NothingNew,
}

use Assessment::NothingNew;

/// A starved kubelet is one until so many probes in a row were answered.
const SELDOM: Samples = Samples {
    bad: 1,
    of: 5,
    what: "probes",
};

fn found(reason: Reason, message: impl Into<String>) -> Assessment {
    Assessment::Found(Finding {
        reason,
        message: message.into(),
    })
}

impl Kubelet {
    /// Judges the present state. `before` is the reason that stands on the Node: after a restart of ours it may be the
    /// only one that remembers who stopped the kubelet.
    pub fn assess(&self, before: Option<Reason>, now: Now) -> Assessment {
        match &self.life {
            Life::Unseen => NothingNew,
            // Without systemd's word, what is not there cannot be told from what is not there any more.
            Life::Absent(_) if self.bus_is_awaited => NothingNew,
            Life::Ambiguous(pids) => found(
                Reason::KubeletNotFound,
                format!(
                    "{} processes in the cgroup of {} could be the kubelet, pids {}: none is watched until one is left",
                    pids.len(),
                    self.unit_name,
                    list(pids)
                ),
            ),
            // One that is being stopped or restarted need not answer any more.
            Life::Alive(alive) if self.is_being_ended() && alive.misses() > 0 => NothingNew,
            Life::Alive(alive) => assess_alive(alive, before, now),
            Life::Ended(ended) => self.assess_ended(ended),
            Life::Absent(why) => self.assess_absent(why, before, now),
        }
    }

    fn assess_ended(&self, ended: &Ended) -> Assessment {
        let (unit, pid) = (&self.unit_name, ended.pid);
        match &ended.cause {
            Cause::Asked(_) | Cause::Restarting => NothingNew,
            Cause::Unknown => found(
                Reason::KubeletGone,
                format!("{unit}: kubelet pid {pid} is gone; systemd has not said how it ended"),
            ),
            Cause::Stopped => found(
                Reason::KubeletStoppedByOperator,
                format!("{unit}: kubelet pid {pid} was stopped by a stop job of systemd's"),
            ),
            Cause::Exited { code, result } => exited(unit, Some(pid), *code, result),
            Cause::Killed { signal, result } => killed(unit, Some(pid), *signal, result),
        }
    }

    /// No process, and none ended under our eyes: systemd may know more.
    fn assess_absent(&self, why: &str, before: Option<Reason>, now: Now) -> Assessment {
        let name = &self.unit_name;
        let Some(unit) = &self.unit else {
            return found(Reason::KubeletNotFound, why);
        };
        let in_grace = self
            .absent_since
            .is_some_and(|at| now.uptime < at + START_GRACE);
        if in_grace && was_well(before) && unit.is_on_its_way() {
            return NothingNew;
        }
        match (
            unit.load_state.as_str(),
            unit.active_state.as_str(),
            unit.sub_state.as_str(),
        ) {
            ("not-found", ..) => found(Reason::KubeletNotFound, format!("{name} is not installed")),
            (_, "activating", "auto-restart") | (_, "failed", _) => last_end(name, unit)
                .unwrap_or_else(|| found(Reason::KubeletNotFound, format!("{name}: {why}"))),
            (_, "activating", sub) => found(
                Reason::KubeletStarting,
                format!("{name} is activating ({sub}); there is no kubelet process yet"),
            ),
            (_, "inactive", _) if !unit.ever_started => found(
                Reason::KubeletNotFound,
                format!("{name} has not been started since boot"),
            ),
            (_, "inactive" | "deactivating", _) => ended_unseen(name, before),
            _ => found(Reason::KubeletNotFound, format!("{name}: {why}")),
        }
    }
}

fn assess_alive(alive: &Alive, before: Option<Reason>, now: Now) -> Assessment {
    let pid = alive.process.pid;
    let url = match &alive.endpoint {
        None => return NothingNew,
        Some(Endpoint::Disabled) => {
            return found(
                Reason::KubeletIsHealthy,
                format!(
                    "kubelet pid {pid} lives; its healthz is off (healthzPort: 0), so only the process is watched"
                ),
            );
        }
        Some(Endpoint::Known(url) | Endpoint::Assumed(url)) => url,
    };
    let Some(probe) = &alive.last_probe else {
        return NothingNew;
    };
    if *probe == Probe::Ok {
        // One that starves answers now and then.
        if before == Some(Reason::KubeletStarved) && alive.probes.is_full(SELDOM) {
            return NothingNew;
        }
        return found(
            Reason::KubeletIsHealthy,
            format!("kubelet pid {pid} answers at {url}"),
        );
    }
    let young = !alive.answered && now.uptime < alive.process.started + START_GRACE;
    let guessed = matches!(alive.endpoint, Some(Endpoint::Assumed(_))) && !alive.answered;
    // One that was healthy when an earlier life of ours last looked, and is young now, was restarted meanwhile: its grace
    // is ours. (Whatever ends under our eyes has a reason of its own by then.)
    let no_news = alive.planned || was_well(before);
    match (young, no_news) {
        (true, true) => return NothingNew,
        (true, false) => {
            return found(
                Reason::KubeletStarting,
                format!("kubelet pid {pid} has started; {url} does not answer yet"),
            );
        }
        (false, _) if !alive.probes.is_full(PROBES) => return NothingNew,
        (false, _) => {}
    }
    if *probe == Probe::Timeout
        && !guessed
        && let Some(why) = starved(alive)
    {
        // What was told before stays told: to be starved is no health.
        return if was_well(before) {
            found(
                Reason::KubeletStarved,
                format!(
                    "kubelet pid {pid}: {} probes of {url} in a row timed out, but {why}: that it is starved is no fault of its own",
                    PROBES.bad
                ),
            )
        } else {
            NothingNew
        };
    }
    assess_misses(alive, probe, url, guessed)
}

/// Whether the Node says that all is well, perhaps with a hint.
fn was_well(before: Option<Reason>) -> bool {
    before.is_some_and(|reason| reason.status() == Status::True)
}

/// Why it could not answer though it would; one that was stopped does not want to.
fn starved(alive: &Alive) -> Option<String> {
    let is_stopped = matches!(alive.state, Some('T' | 't'));
    alive.starved.why().filter(|_| !is_stopped)
}

fn assess_misses(alive: &Alive, probe: &Probe, url: &str, guessed: bool) -> Assessment {
    let pid = alive.process.pid;
    let state = alive.state.map(describe_state).unwrap_or_default();
    if guessed {
        return found(
            Reason::KubeletProbeFailed,
            format!(
                "kubelet pid {pid}{state} does not answer at {url}, but that address is only the default: its own could not be read"
            ),
        );
    }
    match probe {
        Probe::Ok => NothingNew,
        Probe::Timeout => found(
            Reason::KubeletHung,
            format!(
                "kubelet pid {pid}{state}: {} probes of {url} in a row timed out",
                PROBES.bad
            ),
        ),
        Probe::Refused => found(
            Reason::KubeletHealthzDown,
            format!("kubelet pid {pid}{state}: nobody listens at {url}"),
        ),
        Probe::Status(code) => found(
            Reason::KubeletHealthzDown,
            format!("kubelet pid {pid}{state}: {url} answers HTTP {code}"),
        ),
        Probe::Impossible(why) => found(
            Reason::KubeletProbeFailed,
            format!("kubelet pid {pid}{state} lives, but {url} could not be asked: {why}"),
        ),
    }
}

/// The unit is down, and we were not there when it went: a stop and a clean exit leave the same traces.
fn ended_unseen(name: &str, before: Option<Reason>) -> Assessment {
    match before {
        Some(Reason::KubeletStoppedByOperator) => found(
            Reason::KubeletStoppedByOperator,
            format!("{name} was stopped by a stop job of systemd's"),
        ),
        _ => found(
            Reason::KubeletNotFound,
            format!(
                "{name} is not running; it ended before nodevigil watched it, so whether it was stopped or exited is not known"
            ),
        ),
    }
}

fn last_end(name: &str, unit: &Unit) -> Option<Assessment> {
    match Cause::of(unit)? {
        Cause::Exited { code, result } => Some(exited(name, None, code, &result)),
        Cause::Killed { signal, result } => Some(killed(name, None, signal, &result)),
        _ => None,
    }
}

fn exited(unit: &str, pid: Option<i32>, code: i32, result: &str) -> Assessment {
    let who = who(unit, pid);
    if code == 0 {
        found(
            Reason::KubeletExitedClean,
            format!("{who} exited with code 0 and nobody had stopped it"),
        )
    } else {
        found(
            Reason::KubeletCrashed,
            format!("{who} exited with code {code} (systemd: Result={result})"),
        )
    }
}

fn killed(unit: &str, pid: Option<i32>, signal: i32, result: &str) -> Assessment {
    let name = Signal::try_from(signal).map_or("unknown signal", Signal::as_str);
    found(
        Reason::KubeletCrashed,
        format!(
            "{} was killed by {name} ({signal}) (systemd: Result={result})",
            who(unit, pid)
        ),
    )
}

fn who(unit: &str, pid: Option<i32>) -> String {
    pid.map_or_else(
        || format!("{unit}: the last kubelet"),
        |pid| format!("{unit}: kubelet pid {pid}"),
    )
}

fn describe_state(state: char) -> String {
    let meaning = match state {
        'T' | 't' => "stopped",
        'D' => "waiting in the kernel, uninterruptible",
        'Z' | 'X' => "dead, not reaped",
        _ => return String::new(),
    };
    format!(" (state {state}: {meaning})")
}

fn list(pids: &[i32]) -> String {
    pids.iter()
        .map(i32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
