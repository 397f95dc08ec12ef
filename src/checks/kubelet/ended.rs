//! What an end means: by itself, as one of many, with what is learnt of it later.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{
    Alive, Assessment, Carrier, Cause, Ended, Kubelet, Run, Unit,
    assess::{called, found},
    ends::describe_oom,
};
use crate::{
    checks::kernel::event::OomKill,
    clock::Now,
    health::{Reason, Status},
};

/// In a crash loop that goes on for long the message says so at these counts, and is the same between.
const COUNTS: [usize; 3] = [10, 30, 100];
/// systemd's word for no time limit.
const NEVER_USEC: u64 = u64::MAX;

impl Kubelet {
    pub(super) fn assess_ended(
        &self,
        ended: &Ended,
        before: Option<Reason>,
        now: Now,
    ) -> Assessment {
        if let Some(unit) = &self.unit
            && self.ends.have_hit_start_limit(unit, before)
            && !matches!(ended.cause, Cause::Asked(_))
        {
            return self.start_limit_hit(unit, now);
        }
        if let Some(slow) = self.assess_slow_activation(now) {
            return slow;
        }
        let who = called(&ended.carrier, Some(ended.pid));
        let oom = self.ends.oom_of(ended);
        match &ended.cause {
            Cause::Asked(_) | Cause::Restarting => Assessment::NothingNew,
            // One of many, and systemd is about to say how: what was said of them stands.
            Cause::Unknown
                if self.is_looping(now)
                    && self.unit.is_some()
                    && before == Some(Reason::KubeletCrashLooping)
                    && ended.carrier == Carrier::Unit =>
            {
                Assessment::NothingNew
            }
            Cause::Stopped => self.assess_stopped(&who, now),
            cause => {
                let is_it = |run: &Run| match run {
                    Run::Invocation(id) => *id == ended.invocation,
                    Run::Rke2(pid) => *pid == ended.pid,
                };
                let words = self.ends.words_of(is_it);
                let how = how(cause, self.unit.as_ref(), oom, &ended.carrier);
                self.tell_end(&who, how, words, (before, now))
            }
        }
    }

    /// The kernel has said that it kills this very process: that is the end of it, however long its memory takes to be freed.
    pub(super) fn assess_killed(
        &self,
        alive: &Alive,
        before: Option<Reason>,
        now: Now,
    ) -> Option<Assessment> {
        if self.is_being_ended() {
            return None;
        }
        let pid = alive.process.pid;
        let kill = self.ends.kill_of(pid)?;
        let who = called(&alive.carrier, Some(pid));
        let how = how(&Cause::Unknown, None, Some(kill), &alive.carrier);
        Some(self.tell_end(&who, how, "", (before, now)))
    }

    /// The unit's last run ended in a failure, and nobody saw it live.
    pub(super) fn last_end_of(
        &self,
        unit: &Unit,
        before: Option<Reason>,
        now: Now,
    ) -> Option<Assessment> {
        let cause = Cause::of(unit)?;
        let oom = self.ends.oom_of_last(&cause);
        let how = how(&cause, Some(unit), oom, &Carrier::Unit);
        let is_it = |run: &Run| *run == Run::Invocation(unit.invocation.clone());
        let who = called(&Carrier::Unit, None);
        let words = self.ends.words_of(is_it);
        Some(self.tell_end(&who, how, words, (before, now)))
    }

    fn tell_end(
        &self,
        who: &str,
        (reason, how): (Reason, String),
        words: &str,
        (before, now): (Option<Reason>, Now),
    ) -> Assessment {
        let unit = &self.unit_name;
        let within = self.terms.crash_loop_within;
        match self.awaits_join {
            Some(true) if !self.has_answered => {
                return found(
                    Reason::KubeletAwaitsJoin,
                    format!(
                        "{unit}: the host has not joined a cluster: there is neither a kubeconfig for the kubelet nor one to bootstrap with; the last kubelet {how}"
                    ),
                );
            }
            None if self.join_is_open(now)
                && before.is_none_or(|reason| reason.status() == Status::Unknown) =>
            {
                return Assessment::NothingNew;
            }
            _ => {}
        }
        let count = self.ends.within(within, now.uptime);
        if count < self.terms.crash_loop_ends {
            return found(reason, format!("{unit}: {who} {how}{words}"));
        }
        let told = COUNTS.into_iter().filter(|told| *told <= count).max();
        let told = told.unwrap_or_default().max(self.terms.crash_loop_ends);
        let words = self.ends.words_within(within, now.uptime);
        found(
            Reason::KubeletCrashLooping,
            format!(
                "{unit}: the kubelet has ended {told} times or more within {}; the last one {how}{words}",
                time(within)
            ),
        )
    }

    /// systemd starts it no more.
    pub(super) fn start_limit_hit(&self, unit: &Unit, now: Now) -> Assessment {
        let name = &self.unit_name;
        let limit = match (unit.start_limit_burst, unit.start_limit_interval_usec) {
            (0, _) | (_, 0 | NEVER_USEC) => String::new(),
            (burst, usec) => format!(
                ", more than {burst} within {}",
                time(Duration::from_micros(usec))
            ),
        };
        let last = Cause::of(unit).map_or_else(String::new, |cause| {
            let oom = self.ends.oom_of_last(&cause);
            let (_, how) = how(&cause, None, oom, &Carrier::Unit);
            format!("; the last kubelet {how}")
        });
        let words = self
            .ends
            .words_within(self.terms.crash_loop_within, now.uptime);
        found(
            Reason::KubeletStartLimitHit,
            format!(
                "{name}: systemd starts it no more after too many starts (Result=start-limit-hit{limit}): systemctl reset-failed {name}, then systemctl start {name}{last}{words}"
            ),
        )
    }
}

/// How it ended, as the rest of a sentence. `unit`: systemd's word, if it is still about that end.
fn how(
    cause: &Cause,
    unit: Option<&Unit>,
    oom: Option<&OomKill>,
    carrier: &Carrier,
) -> (Reason, String) {
    if let Some(kill) = oom {
        let text = format!(
            "was killed by the kernel for memory: {}",
            describe_oom(kill)
        );
        return (Reason::KubeletOOMKilled, text);
    }
    let result = match cause {
        Cause::Exited { result, .. } | Cause::Killed { result, .. } => result.as_str(),
        _ => "",
    };
    let by_systemd = |result: &str| match unit {
        Some(_) => format!(" (systemd: Result={result})"),
        None => String::new(),
    };
    match (result, cause) {
        ("oom-kill", _) => (
            Reason::KubeletOOMKilled,
            "was ended because the kernel killed a process of its unit for memory (systemd: Result=oom-kill)".to_owned(),
        ),
        ("watchdog", _) => {
            let usec = unit.map_or(0, |unit| unit.watchdog_usec);
            let limit = match usec {
                0 | NEVER_USEC => String::new(),
                usec => format!("={}", time(Duration::from_micros(usec))),
            };
            (
                Reason::KubeletWatchdogKilled,
                format!("was killed by systemd: it gave no sign of life within WatchdogSec{limit} (systemd: Result=watchdog)"),
            )
        }
        (_, Cause::Exited { code: 0, .. }) => (
            Reason::KubeletExitedClean,
            "exited with code 0 and nobody had stopped it".to_owned(),
        ),
        (_, Cause::Exited { code, .. }) => (
            Reason::KubeletCrashed,
            format!("exited with code {code}{}", by_systemd(result)),
        ),
        (_, Cause::Killed { signal, .. }) => {
            let name = Signal::try_from(*signal).map_or("unknown signal", Signal::as_str);
            (
                Reason::KubeletCrashed,
                format!("was killed by {name} ({signal}){}", by_systemd(result)),
            )
        }
        (_, _) => (
            Reason::KubeletGone,
            match carrier {
                Carrier::Child(parent) => format!(
                    "is gone; how it ended is not known: its unit tells of {parent} alone, which starts it anew by itself"
                ),
                _ => "is gone; systemd has not said how it ended".to_owned(),
            },
        ),
    }
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        secs if secs >= 120 && secs % 60 == 0 => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    }
}
