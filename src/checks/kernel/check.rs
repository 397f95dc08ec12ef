//! The check: what the kernel's log and tables say → the condition `NodeKernelHealthy`, and news of what is no state.
//!
//! A line of the log wakes it; while a trouble lasts, or the kernel logs no hung task, its tables are looked at twice a minute,
//! in a calm each ten minutes. What the log said before the agent came counts once a look that was asked for after it was read
//! has confirmed it.

use std::{collections::VecDeque, time::Duration};

use super::{
    assess::{Limits, assess},
    event::{Concern, KernelEvent, KernelLine, Meaning, OomKill, Scope},
    hung::Platform,
    state::{KernelAsk, KernelState},
    troubles::Troubles,
    workload::workload,
};
use crate::{
    checks::{Check, Question, Reading, Spec},
    clock::Now,
    config::Settings,
    health::{
        ConditionType, Finding, Reason,
        news::{News, Told},
    },
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "kernel",
    condition: ConditionType::NodeKernelHealthy,
    doc: "The kernel's log and its own counters: hung tasks, CPUs that stand still, faults of the kernel, memory that failed; kills for memory are told as Events.",
};

/// How often the kernel's tables are looked at while a trouble lasts.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often in a calm: for what the log never says, that the detection of hung tasks was turned off.
const LOOK_EVERY_IN_CALM: Duration = Duration::from_mins(10);
/// News that wait to be told.
const MAX_NEWS: usize = 16;
/// Kills whose pod's name is asked for.
const MAX_NAMELESS: usize = 16;
/// What is known of the log.
#[derive(Debug, Default, PartialEq, Eq)]
enum Log {
    #[default]
    Unknown,
    Readable,
    Unreadable(String),
}

/// The check.
#[derive(Debug)]
pub struct Kernel {
    limits: Limits,
    log: Log,
    troubles: Troubles,
    state: Option<KernelState>,
    /// What the open question asks about.
    asked: KernelAsk,
    /// Whether it was asked after the log had said what it had to say of the past.
    asked_after_past: bool,
    /// Whether such a question was answered: nothing is judged before.
    is_confirmed: bool,
    look_at: Option<Duration>,
    /// Whose tasks are essential. The kubelet is also the one whose kill is the kubelet's own check's: the last one counts
    /// after its end too, because its kill may be told later than that.
    platform: Platform,
    /// Kills whose pod's name is asked for, the first of them now.
    nameless: VecDeque<OomKill>,
    news: VecDeque<Told>,
    findings: Vec<Finding>,
}

impl Kernel {
    /// A check that knows nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            limits: Limits::new(settings),
            log: Log::Unknown,
            troubles: Troubles::default(),
            state: None,
            asked: KernelAsk::default(),
            asked_after_past: false,
            is_confirmed: false,
            look_at: Some(Duration::ZERO),
            platform: Platform::new(settings),
            nameless: VecDeque::new(),
            news: VecDeque::new(),
            findings: Vec::new(),
        }
    }

    fn hear(&mut self, event: &KernelEvent, now: Now) {
        match event {
            KernelEvent::Readable => self.log_is(Log::Readable, now),
            KernelEvent::Unreadable(why) => self.log_is(Log::Unreadable(why.clone()), now),
            KernelEvent::Line(line) if line.pattern.concern == Concern::Kernel => self.line(line, now),
            KernelEvent::Line(_) => {}
            KernelEvent::OomKill(kill) => self.killed(kill),
            KernelEvent::Lost { records } => self.tell(
                Told::new(News::KernelLogOverrun, format!("{records} records of the kernel's log were overwritten before they were read; what they said is not known")),
            ),
        }
    }

    fn log_is(&mut self, log: Log, now: Now) {
        self.log = log;
        self.is_confirmed = false;
        self.look_at = Some(now.uptime);
    }

    fn line(&mut self, line: &KernelLine, now: Now) {
        if !self.is_news() {
            return self.troubles.take_past(line);
        }
        // The kernel's stamp leaves out the time that the host slept: of what is said now, ours is the better one.
        self.troubles.take(line, now.uptime);
        let news = match line.pattern.meaning {
            Meaning::HardwareCorrected => News::HardwareErrorCorrected,
            Meaning::ForkRefused => News::ForkRefused,
            Meaning::ConntrackFull => News::ConntrackTableFull,
            // A state of its own.
            _ => {
                self.look_at = Some(now.uptime);
                return;
            }
        };
        let about = line.subject.clone().unwrap_or_default();
        self.tell(Told::new(news, &*line.text).about(about));
    }

    fn killed(&mut self, kill: &OomKill) {
        if !self.is_news() || self.platform.kubelet == Some(kill.pid) {
            return;
        }
        if kill.pod.is_some() && self.nameless.len() < MAX_NAMELESS {
            self.nameless.push_back(kill.clone());
        } else {
            self.tell(told_of(kill, None));
        }
    }

    /// What this boot has said before we came is told first, and is no news.
    fn is_news(&self) -> bool {
        self.log == Log::Readable
    }

    fn tell(&mut self, told: Told) {
        if self.news.len() < MAX_NEWS {
            self.news.push_back(told);
        }
    }

    fn looked(&mut self, state: &KernelState, now: Now) {
        let asked = std::mem::take(&mut self.asked);
        if self.asked_after_past {
            self.troubles.confirm_past(state);
            self.is_confirmed = true;
        }
        let (waiting, tasks) = (&state.waiting, &mut self.troubles.tasks);
        tasks.learn(waiting, &asked, &self.platform, now.uptime);
        self.state = Some(state.clone());
    }

    fn judge(&mut self, now: Now) {
        self.troubles.pass(self.limits.lasts(), now.uptime);
        let Some(state) = &self.state else { return };
        if self.is_confirmed {
            self.findings = assess(&self.troubles, state, self.limits, now.uptime);
            if let Log::Unreadable(why) = &self.log {
                self.findings.insert(
                    0,
                    Finding {
                        reason: Reason::KernelLogUnreadable,
                        message: why.clone(),
                    },
                );
            }
            if self.findings.is_empty() {
                self.findings.push(Finding {
                    reason: Reason::KernelIsHealthy,
                    message: "the kernel reports no trouble".to_owned(),
                });
            }
        }
        let every = if self.troubles.is_any() || state.detection_off().is_some() {
            LOOK_EVERY
        } else {
            LOOK_EVERY_IN_CALM
        };
        let next = now.uptime + every;
        self.look_at = Some(self.look_at.map_or(next, |at| at.min(next)));
    }
}

impl Check for Kernel {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        if let Reading::Kernel(event) = reading {
            self.hear(event, now);
        } else if let Reading::KernelState(state) = reading {
            self.looked(state, now);
        } else if let Reading::Pod(name) = reading {
            if let Some(kill) = self.nameless.pop_front() {
                self.tell(told_of(&kill, name.as_deref()));
            }
            return;
        } else {
            match reading {
                Reading::Kubelet(Some(process)) => self.platform.kubelet = Some(process.pid),
                Reading::Runtime(Ok(answer)) => {
                    let pid = answer.listener.as_ref().map(|listener| listener.pid);
                    self.platform.runtime = pid.or(self.platform.runtime);
                }
                _ => {}
            }
            return;
        }
        self.judge(now);
    }

    fn due_at(&self) -> Option<Duration> {
        if self.nameless.is_empty() {
            self.look_at
        } else {
            Some(Duration::ZERO)
        }
    }

    fn turn(&mut self, _: Now) -> Option<Question> {
        if let Some(pod) = self.nameless.front().and_then(|kill| kill.pod.as_ref()) {
            return Some(Question::Pod(pod.uid.clone()));
        }
        self.look_at = None;
        self.asked_after_past = self.log != Log::Unknown;
        let off = self.state.as_ref().and_then(KernelState::detection_off);
        self.asked = KernelAsk {
            tids: self.troubles.tasks.tids(),
            processes: off.map_or_else(Vec::new, |_| self.platform.processes()),
        };
        Some(Question::KernelState(self.asked.clone()))
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn told(&mut self) -> Option<Told> {
        self.news.pop_front()
    }
}

/// The news of a kill, with the pod's `namespace/name` if that is known.
fn told_of(kill: &OomKill, name: Option<&str>) -> Told {
    let mut about = kill.cgroup.clone().unwrap_or_else(|| kill.comm.clone());
    let mut whose = String::new();
    if let Some(pod) = &kill.pod {
        name.map_or(pod.uid.as_str(), workload)
            .clone_into(&mut about);
        let name = name.map_or_else(|| format!("with uid {}", pod.uid), str::to_owned);
        whose = format!(" of the pod {name}");
    }
    if kill.scope == Scope::Host {
        about += " (the host's memory)"; // the node's trouble, not the workload's
    }
    let of = kill.of_limit();
    let why = match (kill.scope, &kill.limit_cgroup) {
        (Scope::Host, _) => "the host is out of memory".to_owned(),
        (Scope::Cgroup, Some(limit)) => format!("{limit} reached its memory limit{of}"),
        (Scope::Cgroup, None) => format!("its cgroup reached its memory limit{of}"),
    };
    let held = kill.rss_bytes.map(|bytes| bytes / (1024 * 1024));
    let held = held.map_or_else(String::new, |mib| format!("; it held {mib} MiB"));
    let place = kill.cgroup.as_ref().filter(|_| kill.pod.is_none());
    let place = place.map_or_else(String::new, |cgroup| format!("; its cgroup is {cgroup}"));
    let (comm, pid) = (&kill.comm, kill.pid);
    let note = format!("the kernel killed `{comm}` (pid {pid}){whose} because {why}{held}{place}");
    Told::new(News::ProcessOOMKilled, note).about(about)
}

#[cfg(test)]
mod tests;
