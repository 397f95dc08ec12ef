//! The check: what memory does → `NodeMemoryHealthy`, and the hint `MemoryExhaustionImminent` beside it.

use std::time::Duration;

use super::{
    growth::{Grower, Who},
    kills::Kills,
    limits::Limits,
    machine::Machine,
    sample::Sample,
    state::{HintTold, Stage, Thrashing, Transition},
    why::{Cause, Why},
};
use crate::{
    checks::{
        Check, Question, Reading, Spec,
        kernel::event::{KernelEvent, OomKill},
    },
    clock::Now,
    config::Settings,
    health::{AWAY_GRACE, ConditionType, Finding, Reason, THRASHING_FOR},
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "memory",
    condition: ConditionType::NodeMemoryHealthy,
    doc: "The host's memory, each second and ten times a second once it moves: whether the host thrashes, and whether the kernel kills the kubelet or the container runtime for memory.",
};

/// The same check's word on the hint.
pub const HINT: Spec = Spec {
    id: "memory_outlook",
    condition: ConditionType::MemoryExhaustionImminent,
    doc: "How long the host's memory will last, by how fast what is available falls, with swap in it; and that of all pods together by their limit.",
};

/// How long after a kill the kernel's word of it still counts: at the agent's start the log is read from the boot on.
const KILL_OLD: Duration = Duration::from_mins(1);
/// How often the numbers of a hint are told anew: at first, and after a minute of it.
const REFRESH: Duration = Duration::from_secs(10);
const REFRESH_LATER: Duration = Duration::from_mins(1);
/// How long until memory is tried to be read again.
const TRY_AGAIN: Duration = Duration::from_secs(10);
const MIB: f64 = 1024.0 * 1024.0;

/// The check.
#[derive(Debug)]
pub struct Memory {
    machine: Machine,
    /// Kills are counted where the kernel's log does not tell of them.
    counts_kills: bool,
    oom_kills: Option<u64>,
    /// Since when memory cannot be read, if so (uptime).
    unread_since: Option<Duration>,
    /// When it is to be read again after a failure (uptime).
    try_at: Duration,
    kills: Kills,
    thrashing: Option<Thrashing>,
    /// Whether memory is about to be exhausted, or is.
    runs_out: bool,
    /// Whether the limit of all pods is what is near, and not the host's memory.
    is_of_pods: bool,
    grower: Option<Grower>,
    hint_told: Option<HintTold>,
    findings: Vec<Finding>,
    hint: Vec<Finding>,
}

impl Memory {
    /// A check that knows nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            machine: Machine::new(Limits::new(settings)),
            counts_kills: true,
            oom_kills: None,
            unread_since: None,
            try_at: Duration::ZERO,
            kills: Kills::new(settings),
            thrashing: None,
            runs_out: false,
            is_of_pods: false,
            grower: None,
            hint_told: None,
            findings: Vec::new(),
            hint: Vec::new(),
        }
    }

    fn seen(&mut self, sample: &Sample, now: Now) {
        self.unread_since = None;
        let kills = sample.reclaim.map(|reclaim| reclaim.oom_kills);
        let is_more = kills
            .zip(self.oom_kills)
            .is_some_and(|(now, before)| now > before);
        self.oom_kills = kills.or(self.oom_kills);
        if is_more && self.counts_kills {
            let died = self.machine.counted_kill(sample.at);
            self.passed(died);
        }
        let passed = self.machine.look(sample);
        self.passed(passed);
        self.judge(now);
    }

    fn passed(&mut self, transition: Option<Transition>) {
        let Some(Transition { at, to, why, .. }) = transition else {
            return;
        };
        match to {
            Stage::Thrashing => {
                let begun = Thrashing {
                    since: at,
                    is_sure: false,
                };
                self.thrashing = self.thrashing.or(Some(begun));
            }
            // A kill in the midst of it is not its end.
            Stage::Oom => {}
            Stage::Calm | Stage::Rising | Stage::Imminent => self.thrashing = None,
        }
        self.is_of_pods = why.cause == Cause::PodsAtLimit;
        // Who waits while swap has room waits for a disk, or for zram to pack: nothing says that anything runs out.
        let only_waits = why.cause == Cause::PlatformWaits && why.signals.swap_has_room();
        self.runs_out = match to {
            Stage::Imminent | Stage::Oom => true,
            Stage::Thrashing => self.runs_out || !only_waits,
            Stage::Calm | Stage::Rising => false,
        };
    }

    fn hear(&mut self, event: &KernelEvent, now: Now) {
        match event {
            KernelEvent::OomKill(kill) => self.oom(kill, now),
            KernelEvent::Readable => self.counts_kills = false,
            KernelEvent::Unreadable(_) => self.counts_kills = true,
            KernelEvent::Line(_) | KernelEvent::Lost { .. } => {}
        }
    }

    fn oom(&mut self, kill: &OomKill, now: Now) {
        if kill.at + KILL_OLD < now.uptime {
            return;
        }
        let died = self.machine.killed(now.uptime, kill.scope);
        self.passed(died);
        self.kills.heard(kill, now);
        self.judge(now);
    }

    fn unread(&mut self, why: &str, now: Now) {
        let since = *self.unread_since.get_or_insert(now.uptime);
        self.try_at = now.uptime + TRY_AGAIN;
        if now.uptime.saturating_sub(since) >= AWAY_GRACE {
            self.findings = vec![finding(Reason::MemoryUnreadable, why.to_owned())];
            self.hint = vec![finding(Reason::MemoryOutlookUnknown, why.to_owned())];
            self.hint_told = None;
        }
    }

    fn judge(&mut self, now: Now) {
        if self.machine.signals().total <= 0.0 {
            return;
        }
        let stage = self.machine.state().stage();
        if let Some(thrashing) = &mut self.thrashing {
            thrashing.is_sure |= self.machine.is_sure_of_thrashing();
        }
        if stage == Stage::Calm && self.says_that_all_is_well() {
            return; // as it does at nearly every look
        }
        let is_alarmed = stage >= Stage::Imminent;
        self.runs_out |= stage == Stage::Thrashing && !self.machine.signals().swap_has_room();
        self.kills.forget_old(is_alarmed, now);
        self.judge_state(stage, now);
        self.judge_hint(stage, now);
    }

    fn says_that_all_is_well(&self) -> bool {
        let is_only = |said: &[Finding], reason| matches!(said, [one] if one.reason == reason);
        !self.runs_out
            && self.thrashing.is_none()
            && self.kills.told().next().is_none()
            && is_only(&self.findings, Reason::MemoryIsHealthy)
            && is_only(&self.hint, Reason::MemoryIsEnough)
    }

    fn judge_state(&mut self, stage: Stage, now: Now) {
        let lasts = |thrashing: Thrashing| {
            thrashing.is_sure && now.uptime.saturating_sub(thrashing.since) >= THRASHING_FOR
        };
        let state = match stage {
            _ if self.thrashing.is_some_and(lasts) => Some((
                Reason::MemoryThrashing,
                "the host has next to no memory left and does little but drop pages and read them anew",
            )),
            Stage::Thrashing => Some((
                Reason::MemoryExhausted,
                "the host has next to no memory left and has begun to thrash",
            )),
            Stage::Oom => Some((
                Reason::MemoryExhausted,
                "the kernel killed a process because the host had no memory left",
            )),
            Stage::Calm | Stage::Rising | Stage::Imminent => None,
        };
        let kills = self.kills.told();
        let is_killed = kills.clone().next().is_some();
        let (reason, sentence) = match state {
            Some(state) => state,
            None => (
                Reason::MemoryIsHealthy,
                "the host does not thrash, and neither the kubelet nor the container runtime was killed for memory",
            ),
        };
        // Asked for at each turn of the loop, and made anew ten times a second at worst: only if it is another.
        let mut wanted = usize::from(state.is_some() || !is_killed);
        wanted += kills.clone().count();
        let killed = kills.map(|killed| (killed.reason, killed.message.as_str()));
        let all = killed.chain((state.is_some() || !is_killed).then_some((reason, sentence)));
        let is_same = self.findings.len() == wanted
            && self
                .findings
                .iter()
                .zip(all.clone())
                .all(|(old, new)| (old.reason, old.message.as_str()) == new);
        if !is_same {
            self.findings = all
                .map(|(reason, message)| finding(reason, message.to_owned()))
                .collect();
        }
    }

    fn judge_hint(&mut self, stage: Stage, now: Now) {
        if !self.runs_out {
            self.hint_told = None;
            if self
                .hint
                .first()
                .is_none_or(|hint| hint.reason != Reason::MemoryIsEnough)
            {
                let enough =
                    "nothing says that the host's memory is about to be exhausted".to_owned();
                self.hint = vec![finding(Reason::MemoryIsEnough, enough)];
            }
            return;
        }
        let at = now.uptime;
        let told = self.hint_told.unwrap_or(HintTold {
            since: at,
            at,
            stage,
        });
        let every = if at.saturating_sub(told.since) < REFRESH_LATER {
            REFRESH
        } else {
            REFRESH_LATER
        };
        let is_due = at.saturating_sub(told.at) >= every || stage > told.stage;
        if self.hint_told.is_some() && !is_due {
            return;
        }
        self.hint_told = Some(HintTold { at, stage, ..told });
        let reason = if self.is_of_pods {
            Reason::MemoryPodsRunOut
        } else {
            Reason::MemoryRunsOut
        };
        self.hint = vec![finding(reason, self.outlook(stage))];
    }

    /// The hint's sentence: what is available, how fast it falls, how long it lasts, who grows.
    fn outlook(&self, stage: Stage) -> String {
        let cause = match stage {
            Stage::Oom => Cause::Killed,
            Stage::Thrashing => Cause::Exhausted,
            _ if self.is_of_pods => Cause::PodsAtLimit,
            _ => Cause::Imminent,
        };
        let why = Why {
            cause,
            signals: *self.machine.signals(),
        };
        let mut text = why.to_string();
        if let Some(grower) = &self.grower {
            text.push_str("; fastest grows ");
            text.push_str(&describe(grower));
        }
        text
    }
}

fn finding(reason: Reason, message: String) -> Finding {
    Finding { reason, message }
}

#[expect(clippy::cast_precision_loss, reason = "for people, in MiB")]
fn describe(grower: &Grower) -> String {
    let who = match &grower.who {
        Who::Pod(name) => format!("the pod {name}"),
        Who::Group(path) => format!("the control group {path}"),
        Who::Kernel => "the kernel itself".to_owned(),
    };
    let speed = grower.bytes_per_sec as f64 / MIB;
    format!("{who}, by {speed:.1} MiB/s")
}

impl Check for Memory {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Memory(Ok(sample)) => self.seen(sample, now),
            Reading::Memory(Err(why)) => self.unread(why, now),
            Reading::MemoryStalls => {
                let woken = self.machine.wake(now.uptime);
                self.passed(woken);
            }
            Reading::Grower(grower) => self.grower.clone_from(grower),
            Reading::Kernel(event) => self.hear(event, now),
            Reading::Kubelet(Some(process)) => self.kills.kubelet = Some(process.pid),
            Reading::Runtime(Ok(answer)) => {
                if let Some(listener) = &answer.listener {
                    self.kills.runtime_is(listener);
                }
            }
            Reading::RuntimeGone(pid) => {
                self.kills.runtime_gone(*pid, now);
                self.judge(now);
            }
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        Some(match self.unread_since {
            Some(_) => self.try_at,
            None => self.machine.due_at(),
        })
    }

    fn turn(&mut self, _: Now) -> Option<Question> {
        Some(Question::Memory(self.machine.depth()))
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn hint(&self) -> Option<(Spec, &[Finding])> {
        Some((HINT, &self.hint))
    }
}

#[cfg(test)]
mod tests;
