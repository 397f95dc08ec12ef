//! How often the kubelet has ended of late without anybody's asking, and what is learnt of an end after it: the kernel's
//! word that it was killed for memory, and the kubelet's own last words.

use std::{collections::VecDeque, time::Duration};

use super::{
    life::{Cause, Ended},
    signs::{Run, Unit},
};
use crate::{
    checks::kernel::{
        event::{OomKill, Scope},
        place::may_be_within,
    },
    health::Reason,
    helper::journal::LastWords,
};

/// Ends that are remembered: as many as the configuration may ask for, and as the message tells apart.
const MAX_ENDS: usize = 100;
/// An end and the kernel's line about it lie less than that apart: the line may wait behind a flood, and freeing the
/// memory of a large process takes its time.
const SAME_END: Duration = Duration::from_secs(10);
/// The last words are asked for a moment after the end: journald reads a program's output when it comes to it …
const WORDS_AFTER: Duration = Duration::from_millis(250);
/// … and again so much later, as long as there was no error among them: a busy host's journald takes its time …
const WORDS_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// … and not more often than that, however often the kubelet ends.
const WORDS_EVERY: Duration = Duration::from_secs(10);
/// The kubelet's name in the kernel's log.
const COMM: &str = "kubelet";
/// SIGKILL, by which the kernel kills for memory and after which there are no last words.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// What is remembered of ends.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// When (uptime), the newest last.
    at: VecDeque<Duration>,
    /// The run of the unit whose end was counted last.
    counted: Option<String>,
    /// The run after whose end systemd was seen to wait before the next start.
    awaited: Option<String>,
    /// Whether that next start was given up.
    given_up: bool,
    /// The last word of the kernel's that may be about the kubelet.
    oom: Option<OomKill>,
    /// Whether no end is known yet that it may be about …
    oom_is_open: bool,
    /// … and the process that lives yet and that it is about.
    dying: Option<i32>,
    /// The process that may be meant by that word, and whether it is still to be looked at whether it dies.
    suspect: Option<(i32, bool)>,
    words: Option<Words>,
    wanted: Option<Wanted>,
    /// Before which no words are asked for again (uptime).
    quiet_until: Duration,
}

#[derive(Debug)]
struct Words {
    run: Run,
    /// When they came (uptime).
    at: Duration,
    text: String,
}

#[derive(Debug)]
struct Wanted {
    run: Run,
    at: Duration,
    /// How often they were asked for already.
    asked: usize,
}

impl Ends {
    /// systemd's word of the unit, and the one before it, if there was one.
    pub(super) fn heard(
        &mut self,
        unit: &Unit,
        before: Option<&Unit>,
        is_being_stopped: bool,
        uptime: Duration,
    ) {
        let Some(before) = before else {
            // It may have ended long ago.
            self.counted = unit.is_down_after_failure().then(|| run_of(unit));
            return;
        };
        let run = run_of(unit);
        // A unit has failed for a moment before each wait; one that has after it is not started any more.
        let is_given_up = unit.active_state == "failed" && self.awaited.as_ref() == Some(&run);
        self.given_up = is_given_up && !is_being_stopped;
        if unit.sub_state.starts_with("auto-restart") {
            self.awaited = Some(run.clone());
        }
        if unit.is_down_after_failure() {
            self.count(run, uptime);
            return;
        }
        // systemd sends its newest state alone: a pause of no length before the restart is never seen.
        let last = run_of(before);
        if run != last && unit.restarts > before.restarts {
            self.count(last, uptime);
        }
    }

    /// Whether systemd has given up starting the unit. It says so in its result only if the run before was no failure of
    /// its own; else the unit keeps that failure's result.
    pub(super) fn have_hit_start_limit(&self, unit: &Unit, before: Option<Reason>) -> bool {
        // In an earlier life of ours we have seen how it came.
        let was_told = before == Some(Reason::KubeletStartLimitHit);
        unit.active_state == "failed"
            && (unit.result == "start-limit-hit" || self.given_up || was_told)
    }

    /// A process has ended of which the unit tells nothing.
    pub(super) fn child_ended(&mut self, uptime: Duration) {
        self.push(uptime);
    }

    fn count(&mut self, run: String, uptime: Duration) {
        if self.counted.as_ref() != Some(&run) {
            self.counted = Some(run);
            self.push(uptime);
        }
    }

    fn push(&mut self, uptime: Duration) {
        if self.at.len() == MAX_ENDS {
            self.at.pop_front();
        }
        self.at.push_back(uptime);
    }

    /// How many ends lie within that time.
    pub(super) fn within(&self, time: Duration, uptime: Duration) -> usize {
        let is_recent = |at: &&Duration| **at + time > uptime;
        self.at.iter().rev().take_while(is_recent).count()
    }

    /// Takes in that the kernel killed a process; `true` if it may have been this unit's kubelet.
    pub(super) fn killed(&mut self, kill: OomKill, pid: Option<i32>, group: Option<&str>) -> bool {
        let in_group = |cgroup| group.is_some_and(|group| may_be_within(cgroup, group));
        let is_there = kill.cgroup.as_deref().is_some_and(in_group);
        let is_ours =
            (pid == Some(kill.pid) && !kill.is_of_pods()) || (kill.comm == COMM && is_there);
        if is_ours {
            self.oom = Some(kill);
            self.oom_is_open = true;
        }
        is_ours
    }

    /// That last word is about the process with this pid, which is not gone yet.
    pub(super) fn is_dying(&mut self, pid: i32) {
        self.dying = Some(pid);
    }

    /// That last word may be about the process with this pid: whether it is being ended will tell.
    pub(super) fn may_be_dying(&mut self, pid: i32) {
        self.suspect = Some((pid, true));
    }

    /// The process that is to be looked at for that; told once.
    pub(super) fn take_suspect(&mut self) -> Option<i32> {
        let (pid, is_open) = self.suspect.as_mut()?;
        std::mem::take(is_open).then_some(*pid)
    }

    /// It was looked at. The kernel sends the signal before it says so: whoever lives on is not whom it meant.
    pub(super) fn looked_at(&mut self, pid: i32, is_dying: bool) {
        if self
            .suspect
            .take_if(|(suspect, _)| *suspect == pid)
            .is_none()
        {
            return;
        }
        if is_dying {
            self.is_dying(pid);
        } else {
            self.oom = None;
            self.oom_is_open = false;
        }
    }

    /// What the kernel has said of the process with that pid, if that is that it killed it.
    pub(super) fn kill_of(&self, pid: i32) -> Option<&OomKill> {
        self.oom.as_ref().filter(|_| self.dying == Some(pid))
    }

    /// A process has ended, or is known to be another than the one that was killed: whether the kernel had said already that
    /// it killed it. No other end is put down to that word from then on, unless systemd says that it was by SIGKILL too.
    pub(super) fn take_killed(&mut self, uptime: Duration) -> bool {
        let is_recent = |kill: &OomKill| kill.at.abs_diff(uptime) <= SAME_END;
        self.dying = None;
        std::mem::take(&mut self.oom_is_open) && self.oom.as_ref().is_some_and(is_recent)
    }

    /// Whether what is heard now may be about this end.
    pub(super) fn is_of(ended: &Ended, uptime: Duration) -> bool {
        ended.at.abs_diff(uptime) <= SAME_END
    }

    /// What the kernel said of this end, if it was by SIGKILL, or its cause is not known.
    pub(super) fn oom_of(&self, ended: &Ended) -> Option<&OomKill> {
        self.oom_at(ended.at, &ended.cause)
    }

    /// The same of the end that was counted last.
    pub(super) fn oom_of_last(&self, cause: &Cause) -> Option<&OomKill> {
        self.oom_at(*self.at.back()?, cause)
    }

    fn oom_at(&self, at: Duration, cause: &Cause) -> Option<&OomKill> {
        let may_be = match cause {
            Cause::Killed { signal, .. } => *signal == SIGKILL,
            Cause::Exited { code, .. } => *code == 128 + SIGKILL, // a shell tells it so
            Cause::Unknown | Cause::Asked(_) => true,
            Cause::Stopped | Cause::Restarting => false,
        };
        let is_same = |kill: &&OomKill| kill.at.abs_diff(at) <= SAME_END;
        self.oom.as_ref().filter(is_same).filter(|_| may_be)
    }

    /// The cause of an end has become known: are last words to be expected?
    pub(super) fn want_words(&mut self, run: Run, cause: &Cause, uptime: Duration) {
        let speaks = match cause {
            Cause::Exited { code, .. } => *code != 0,
            Cause::Killed { signal, result } => {
                ![SIGKILL, SIGTERM].contains(signal) && result != "watchdog"
            }
            Cause::Unknown => matches!(run, Run::Rke2(_)),
            Cause::Asked(_) | Cause::Stopped | Cause::Restarting => false,
        };
        let is_known = self.words.as_ref().is_some_and(|words| words.run == run);
        let is_wanted = self.wanted.as_ref().is_some_and(|wanted| wanted.run == run);
        if speaks && !is_known && !is_wanted {
            self.wanted = Some(Wanted {
                run,
                at: (uptime + WORDS_AFTER).max(self.quiet_until),
                asked: 0,
            });
        }
    }

    /// When the words are to be asked for (uptime).
    pub(super) fn words_due_at(&self) -> Option<Duration> {
        self.wanted.as_ref().map(|wanted| wanted.at)
    }

    /// Whose words are to be asked for now; told once.
    pub(super) fn take_wanted(&mut self, uptime: Duration) -> Option<Run> {
        let wanted = self.wanted.take_if(|wanted| uptime >= wanted.at)?;
        self.quiet_until = uptime + WORDS_EVERY;
        if let Some(wait) = WORDS_AGAIN_AFTER.get(wanted.asked) {
            self.wanted = Some(Wanted {
                run: wanted.run.clone(),
                at: uptime + *wait,
                asked: wanted.asked + 1,
            });
        }
        Some(wanted.run)
    }

    /// Takes the words in; `true` if they are news.
    pub(super) fn words_came(&mut self, run: Run, told: &LastWords, uptime: Duration) -> bool {
        if told.is_error {
            self.wanted.take_if(|wanted| wanted.run == run);
        }
        let Some(text) = sentence(told) else {
            return false;
        };
        let is_news = self.words.as_ref().is_none_or(|words| words.text != text);
        self.words = Some(Words {
            run,
            at: uptime,
            text,
        });
        is_news
    }

    /// What was said in that run, as an addition to a sentence.
    pub(super) fn words_of(&self, is_it: impl Fn(&Run) -> bool) -> &str {
        let words = self.words.as_ref().filter(|words| is_it(&words.run));
        words.map_or("", |words| &words.text)
    }

    /// What was said last in any run that is not too old.
    pub(super) fn words_within(&self, time: Duration, uptime: Duration) -> &str {
        let words = self.words.as_ref().filter(|words| words.at + time > uptime);
        words.map_or("", |words| &words.text)
    }
}

/// By what one run of the unit is told from the next.
fn run_of(unit: &Unit) -> String {
    if unit.invocation.is_empty() {
        unit.exec_main_pid.to_string()
    } else {
        unit.invocation.clone()
    }
}

fn sentence(told: &LastWords) -> Option<String> {
    let line = told.line.as_deref();
    match (told.is_error, line) {
        (true, Some(line)) => Some(format!("; its last error: {line}")),
        (_, _) if told.compressed => {
            Some("; its last line is a long one: see journalctl".to_owned())
        }
        (_, Some(line)) => Some(format!("; its last line: {line}")),
        (_, None) => None,
    }
}

/// What the kernel's word adds to a sentence.
pub(super) fn describe_oom(kill: &OomKill) -> String {
    let of = kill.of_limit();
    let what = match (kill.scope, &kill.limit_cgroup) {
        (Scope::Host, _) => "the host has run out of memory".to_owned(),
        (Scope::Cgroup, Some(limit)) if Some(limit) == kill.cgroup.as_ref() => {
            format!("its own memory limit{of} was reached, that of the cgroup {limit}")
        }
        (Scope::Cgroup, Some(limit)) => {
            format!("the memory limit{of} of the cgroup {limit} was reached")
        }
        (Scope::Cgroup, None) => format!("the memory limit{of} of its cgroup was reached"),
    };
    let cgroup = kill.cgroup.as_ref().filter(|_| kill.scope == Scope::Host);
    let cgroup = cgroup.map_or_else(String::new, |cgroup| format!(", in the cgroup {cgroup}"));
    let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let held = kill
        .rss_bytes
        .map_or_else(String::new, |bytes| format!("; it held {} MiB", mib(bytes)));
    format!("{what}{cgroup}{held}")
}
