//! What the kubelet's state means: one finding, or that there is nothing new to say.

use super::{Alive, Carrier, Endpoint, JobKind, Kubelet, Life, Probe, Unit, witness::said};
use crate::{
    clock::Now,
    health::{Finding, PROBES, Reason, Status, UNKILLABLE_AFTER, timing::Samples},
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

pub(super) fn found(reason: Reason, message: impl Into<String>) -> Assessment {
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
            Life::Alive(alive) => self
                .assess_last_end(before, now)
                .or_else(|| self.assess_killed(alive, before, now))
                .or_else(|| self.assess_ending(alive, now))
                .unwrap_or_else(|| self.assess_alive(alive, before, now)),
            Life::Ended(ended) => self.assess_ended(ended, before, now),
            Life::Absent(why) => self.assess_absent(why, before, now),
        }
    }

    /// Something has just been learnt of the end before this life.
    fn assess_last_end(&self, before: Option<Reason>, now: Now) -> Option<Assessment> {
        let (ended, is_news) = self.last_end.as_ref()?;
        let assessment = is_news.then(|| self.assess_ended(ended, before, now))?;
        (assessment != NothingNew).then_some(assessment)
    }

    /// It lives, and is to end, or cannot do anything.
    fn assess_ending(&self, alive: &Alive, now: Now) -> Option<Assessment> {
        let who = who(alive);
        let lasts = |since: Option<_>, grace| since.is_some_and(|at| now.uptime >= at + grace);
        // systemd's word alone may be anybody's.
        if alive.is_dying && lasts(self.killing_since, UNKILLABLE_AFTER) {
            let text = format!(
                "{who} has outlived the SIGKILL that systemd sent it, which is pending for it"
            );
            return Some(found(Reason::KubeletUnkillable, text));
        }
        if let Some(cgroup) = &alive.suspicion.frozen_by
            && alive.misses() > 0
        {
            let text = format!("{who} is frozen: so is its cgroup {cgroup}");
            return Some(found(Reason::KubeletFrozen, text));
        }
        let asked = self.is_being_ended();
        // One that nobody asked to end and that does not answer is hung, and systemd's own watchdog is at work.
        if lasts(self.stopping_since, self.terms.stop_grace)
            && (asked || !alive.probes.is_full(PROBES))
        {
            let text = format!(
                "{who} has not ended though {}, for over {} s",
                self.asker(),
                self.terms.stop_grace.as_secs()
            );
            return Some(found(Reason::KubeletStopStuck, text));
        }
        // One that is being stopped or restarted need not answer any more.
        (asked && alive.misses() > 0).then_some(NothingNew)
    }

    /// Who wants it to end.
    fn asker(&self) -> &'static str {
        if self.has_job(JobKind::Stop) {
            "a stop job of systemd's asks for it (systemctl stop, a shutdown, a package)"
        } else if self.has_job(JobKind::Restart) {
            "a restart job of systemd's asks for it"
        } else {
            "systemd itself stops its unit: there is no job of anybody's"
        }
    }

    fn assess_alive(&self, alive: &Alive, before: Option<Reason>, now: Now) -> Assessment {
        let who = who(alive);
        let url = match &alive.endpoint {
            None => return NothingNew,
            Some(Endpoint::Disabled) => {
                return found(
                    Reason::KubeletIsHealthy,
                    format!(
                        "{who} lives; its healthz is off (healthzPort: 0), so only the process is watched"
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
            return found(Reason::KubeletIsHealthy, format!("{who} answers at {url}"));
        }
        let grace_ends = alive.process.started + self.terms.start_grace;
        let young = !alive.answered && now.uptime < grace_ends;
        // One that was healthy when an earlier life of ours last looked, and is young now, was restarted meanwhile: its
        // grace is ours. (Whatever ends under our eyes has a reason of its own by then.)
        let no_news = alive.planned || was_well(before);
        match (young, no_news) {
            (true, true) => return NothingNew,
            (true, false) => {
                return found(
                    Reason::KubeletStarting,
                    format!("{who} has started; {url} does not answer yet"),
                );
            }
            (false, _) if !alive.probes.is_full(PROBES) => return NothingNew,
            (false, _) => {}
        }
        if let Some(starved) = assess_starved(alive, probe, (url, before), now) {
            return starved;
        }
        // Of one that was old when we found it nobody knows whether it ever answered.
        let is_slow = !alive.answered && alive.found < grace_ends;
        self.assess_misses(alive, probe, (url, is_slow), now)
    }

    fn assess_misses(
        &self,
        alive: &Alive,
        probe: &Probe,
        (url, is_slow): (&str, bool),
        now: Now,
    ) -> Assessment {
        let who = who(alive);
        let state = alive.state.map(describe_state).unwrap_or_default();
        if is_guessed(alive) {
            return found(
                Reason::KubeletProbeFailed,
                format!(
                    "{who}{state} does not answer at {url}, but that address is only the default: its own could not be read"
                ),
            );
        }
        let is_silent = matches!(probe, Probe::Timeout | Probe::Unreachable | Probe::Refused);
        if let Some(tid) = alive.suspicion.stuck().filter(|_| is_silent) {
            return found(
                Reason::KubeletUnkillable,
                format!(
                    "{who} does not answer at {url}, and its thread {tid} has been waiting in the kernel, uninterruptible (state D), for over {} s",
                    UNKILLABLE_AFTER.as_secs()
                ),
            );
        }
        if is_silent && is_slow {
            let what = format!(
                "{who}{state} has not answered at {url} within the {} s that a start may take",
                self.terms.start_grace.as_secs()
            );
            return alive.assess_silence(Reason::KubeletStartSlow, probe, &what, now);
        }
        let what = said(&format!("{who}{state}"), probe, url);
        let reason = match probe {
            Probe::Ok => return NothingNew,
            Probe::Impossible(_) => return found(Reason::KubeletProbeFailed, what),
            Probe::Timeout => Reason::KubeletHung,
            _ => Reason::KubeletHealthzDown,
        };
        alive.assess_silence(reason, probe, &what, now)
    }

    /// No process, and none ended under our eyes: systemd may know more.
    fn assess_absent(&self, why: &str, before: Option<Reason>, now: Now) -> Assessment {
        let name = &self.unit_name;
        let Some(unit) = &self.unit else {
            return found(Reason::KubeletNotFound, why);
        };
        let in_grace = self
            .absent_since
            .is_some_and(|at| now.uptime < at + self.terms.start_grace);
        if in_grace && was_well(before) && unit.is_on_its_way() {
            return NothingNew;
        }
        match (
            unit.load_state.as_str(),
            unit.active_state.as_str(),
            unit.sub_state.as_str(),
        ) {
            ("not-found", ..) => found(Reason::KubeletNotFound, format!("{name} is not installed")),
            _ if unit.is_down_after_failure() => self
                .assess_unseen_end(unit, before, now)
                .unwrap_or_else(|| found(Reason::KubeletNotFound, format!("{name}: {why}"))),
            (_, "activating", sub) => self.assess_activating(sub, now),
            (_, "inactive", _) if !unit.ever_started => found(
                Reason::KubeletNotFound,
                format!("{name} has not been started since boot"),
            ),
            (_, "inactive" | "deactivating", _) => self.assess_ended_unseen(before, now),
            _ => found(Reason::KubeletNotFound, format!("{name}: {why}")),
        }
    }

    fn assess_activating(&self, sub_state: &str, now: Now) -> Assessment {
        let name = &self.unit_name;
        self.assess_slow_activation(now).unwrap_or_else(|| {
            found(
                Reason::KubeletStarting,
                format!("{name} is activating ({sub_state}); there is no kubelet process yet"),
            )
        })
    }

    /// The unit is busy with what comes before the kubelet, and has been for too long.
    pub(super) fn assess_slow_activation(&self, now: Now) -> Option<Assessment> {
        let (unit, grace) = (self.unit.as_ref()?, self.terms.start_grace);
        let is_slow = now.uptime >= self.activating_since? + grace;
        is_slow.then(|| {
            found(
                Reason::KubeletStartSlow,
                format!(
                    "{} has been activating ({}) for over {} s; there is no kubelet process yet",
                    self.unit_name,
                    unit.sub_state,
                    grace.as_secs()
                ),
            )
        })
    }

    /// The unit is down after a failure that we did not see.
    fn assess_unseen_end(
        &self,
        unit: &Unit,
        before: Option<Reason>,
        now: Now,
    ) -> Option<Assessment> {
        if self.ends.have_hit_start_limit(unit, before) {
            return Some(self.start_limit_hit(unit, now));
        }
        self.last_end_of(unit, before, now)
    }
}

/// Whether its address is only the default, and it has never answered there.
fn is_guessed(alive: &Alive) -> bool {
    matches!(alive.endpoint, Some(Endpoint::Assumed(_))) && !alive.answered
}

/// It could not answer though it would; what was told before stays told: to be starved is no health.
fn assess_starved(
    alive: &Alive,
    probe: &Probe,
    (url, before): (&str, Option<Reason>),
    now: Now,
) -> Option<Assessment> {
    // A host that runs nobody takes no connection either, as if a firewall dropped it; to refuse one is somebody's doing.
    if !matches!(probe, Probe::Timeout | Probe::Unreachable) || is_guessed(alive) {
        return None;
    }
    let why = starved(alive, now)?;
    if !was_well(before) {
        return Some(NothingNew);
    }
    Some(found(
        Reason::KubeletStarved,
        format!(
            "{}: {} probes of {url} in a row timed out, but {why}: that it is starved is no fault of its own",
            who(alive),
            PROBES.bad
        ),
    ))
}

/// Whether the Node says that all is well, perhaps with a hint.
fn was_well(before: Option<Reason>) -> bool {
    before.is_some_and(|reason| reason.status() == Status::True)
}

/// Why it could not answer though it would; one that was stopped does not want to.
fn starved(alive: &Alive, now: Now) -> Option<String> {
    let is_stopped = matches!(alive.state, Some('T' | 't'));
    alive.starved.why(now).filter(|_| !is_stopped)
}

/// It, by its pid and by how it is run.
fn who(alive: &Alive) -> String {
    called(&alive.carrier, Some(alive.process.pid))
}

/// The kubelet of that pid, or the last one.
pub(super) fn called(carrier: &Carrier, pid: Option<i32>) -> String {
    match (carrier, pid) {
        (Carrier::Unit, Some(pid)) => format!("kubelet pid {pid}"),
        (Carrier::Child(parent), Some(pid)) => {
            format!("kubelet pid {pid}, a child of {parent},")
        }
        (Carrier::InProcess(program), Some(pid)) => {
            format!("{program} pid {pid}, with the kubelet inside,")
        }
        (_, None) => "the last kubelet".to_owned(),
    }
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
