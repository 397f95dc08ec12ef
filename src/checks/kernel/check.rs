//! The check: what the kernel's log and tables say → the condition `NodeKernelHealthy`, and news of what is no state.
//!
//! In a calm it wants nothing read. A line of the log wakes it; while a trouble lasts, the kernel's tables are looked at twice a minute.

use std::{collections::VecDeque, time::Duration};

use super::{
    event::{Concern, KernelEvent, KernelLine, Meaning, OomKill, Scope},
    troubles::{HungTask, KernelState, Lasts, Troubles},
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
/// News that wait to be told.
const MAX_NEWS: usize = 16;
/// Kills whose pod's name is asked for.
const MAX_NAMELESS: usize = 16;
/// Hung tasks that a message names.
const NAMED_TASKS: usize = 4;
/// Without these no pod is started or stopped: the kubelet, the runtimes, the programs that carry the kubelet inside, PID 1.
const ESSENTIAL: &[&str] = &[
    "kubelet",
    "containerd",
    "dockerd",
    "crio",
    "systemd",
    "k3s",
    "rke2",
    "k0s",
    "kubelite",
];

/// The thresholds.
#[derive(Debug, Clone, Copy)]
struct Limits {
    stalls: usize,
    stall_window: Duration,
    oopses: usize,
    oops_window: Duration,
    uncorrected: usize,
    uncorrected_window: Duration,
    hung_tasks: usize,
    hung_for: Duration,
    quiet: Duration,
}

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
    /// The tasks that the open question asks about.
    asked: Vec<i32>,
    look_at: Option<Duration>,
    /// The kubelet, whose kill is the kubelet's own check's.
    kubelet: Option<i32>,
    /// Kills whose pod's name is asked for, the first of them now.
    nameless: VecDeque<OomKill>,
    news: VecDeque<Told>,
    findings: Vec<Finding>,
}

impl Kernel {
    /// A check that knows nothing yet.
    pub fn new(settings: &Settings) -> Self {
        let number = |name| settings.number("kernel", name) as usize;
        let seconds = |name| settings.seconds("kernel", name);
        Self {
            limits: Limits {
                stalls: number("stalls"),
                stall_window: seconds("stall_window_secs"),
                oopses: number("oopses"),
                oops_window: seconds("oops_window_secs"),
                uncorrected: number("uncorrected_errors"),
                uncorrected_window: seconds("uncorrected_window_secs"),
                hung_tasks: number("hung_tasks"),
                hung_for: seconds("hung_for_secs"),
                quiet: seconds("quiet_secs"),
            },
            log: Log::Unknown,
            troubles: Troubles::default(),
            state: None,
            asked: Vec::new(),
            look_at: Some(Duration::ZERO),
            kubelet: None,
            nameless: VecDeque::new(),
            news: VecDeque::new(),
            findings: Vec::new(),
        }
    }

    fn hear(&mut self, event: &KernelEvent, now: Now) {
        match event {
            KernelEvent::Readable => self.log = Log::Readable,
            KernelEvent::Unreadable(why) => self.log = Log::Unreadable(why.clone()),
            KernelEvent::Line(line) if line.pattern.concern == Concern::Kernel => self.line(line, now),
            KernelEvent::Line(_) => {}
            KernelEvent::OomKill(kill) => self.killed(kill),
            KernelEvent::Lost { records } => self.tell(
                Told::new(News::KernelLogOverrun, format!("{records} records of the kernel's log were overwritten before they were read; what they said is not known")),
            ),
        }
    }

    fn line(&mut self, line: &KernelLine, now: Now) {
        // The kernel's stamp leaves out the time that the host slept: of what is said now, ours is the better one.
        let at = if self.is_news() { now.uptime } else { line.at };
        self.troubles.take(line, at);
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
        if self.is_news() {
            let about = line.subject.clone().unwrap_or_default();
            self.tell(Told::new(news, &*line.text).about(about));
        }
    }

    fn killed(&mut self, kill: &OomKill) {
        if !self.is_news() || self.kubelet == Some(kill.pid) {
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

    fn judge(&mut self, now: Now) {
        let lasts = Lasts {
            stalls: self.limits.stall_window,
            oopses: self.limits.oops_window,
            hardware: self.limits.uncorrected_window,
            quiet: self.limits.quiet,
        };
        self.troubles.pass(lasts, now.uptime);
        if let Some(state) = &self.state
            && self.log != Log::Unknown
        {
            self.findings = assess(&self.troubles, state, &self.log, self.limits, now.uptime);
        }
        let lasts = self.troubles.is_any();
        self.look_at = match self.look_at {
            Some(at) => Some(at),
            None => lasts.then(|| now.uptime + LOOK_EVERY),
        };
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
            let asked = std::mem::take(&mut self.asked);
            self.troubles.learn(state, &asked);
            self.state = Some(state.clone());
        } else if let Reading::Pod(name) = reading {
            if let Some(kill) = self.nameless.pop_front() {
                self.tell(told_of(&kill, name.as_deref()));
            }
            return;
        } else {
            // The last one counts after its end too: its kill may be told later than that.
            if let Reading::Kubelet(Some(process)) = reading {
                self.kubelet = Some(process.pid);
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
        self.asked = self.troubles.tids();
        Some(Question::KernelState(self.asked.clone()))
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn told(&mut self) -> Option<Told> {
        self.news.pop_front()
    }
}

/// What it all means.
fn assess(
    troubles: &Troubles,
    state: &KernelState,
    log: &Log,
    limits: Limits,
    now: Duration,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |reason, message: String| findings.push(Finding { reason, message });
    if let Log::Unreadable(why) = log {
        find(Reason::KernelLogUnreadable, why.clone());
    }
    hung(&troubles.tasks, limits, now, &mut find);
    let stalls = troubles.stalls.within(limits.stall_window, now);
    if stalls >= limits.stalls || troubles.hard_lockups.within(limits.quiet, now) > 0 {
        find(
            Reason::KernelLockedUp,
            "the kernel's watchdogs report again and again that a CPU stands still".to_owned(),
        );
    } else if troubles.stalls.within(limits.quiet, now) > 0 {
        find(
            Reason::KernelStalled,
            "the kernel's watchdogs report that a CPU stood still for many seconds".to_owned(),
        );
    }
    if troubles.oopses.within(limits.oops_window, now) >= limits.oopses {
        find(
            Reason::KernelOopsRepeated,
            "the kernel meets faults of its own again and again; see `journalctl -k`".to_owned(),
        );
    } else if state.has_oopsed() || troubles.oopses.within(limits.quiet, now) > 0 {
        find(Reason::KernelOops, "the kernel has met a fault of its own since it was booted (`journalctl -k`); locks may be held for ever, and a reboot alone ends that".to_owned());
    }
    let lost = troubles.uncorrected.within(limits.uncorrected_window, now);
    if lost >= limits.uncorrected || troubles.fatal.within(limits.uncorrected_window, now) > 0 {
        find(
            Reason::KernelHardwareFailing,
            "the hardware reports errors that it could not correct, again and again or fatal ones"
                .to_owned(),
        );
    } else if lost > 0 || state.has_lost_memory() {
        find(Reason::KernelMemoryLost, "memory has failed since the host was booted, and the kernel has given up what was in it".to_owned());
    }
    if let Some((device, _)) = &troubles.netdevice {
        find(
            Reason::KernelNetdeviceStuck,
            format!(
                "the network device {device} of a container that is gone cannot be taken away; what makes or ends network namespaces may wait for it"
            ),
        );
    }
    if findings.is_empty() {
        findings.push(Finding {
            reason: Reason::KernelIsHealthy,
            message: "the kernel reports no trouble".to_owned(),
        });
    }
    findings
}

fn hung(tasks: &[HungTask], limits: Limits, now: Duration, find: &mut impl FnMut(Reason, String)) {
    if tasks.is_empty() {
        return;
    }
    let essential = tasks
        .iter()
        .filter(|task| is_essential(&task.comm))
        .find(|task| now.saturating_sub(task.since) >= limits.hung_for);
    if let Some(task) = essential {
        find(
            Reason::KernelDeadlocked,
            format!(
                "{} (pid {}) has waited in the kernel for minutes, cannot be killed, and no pod is started or stopped without it",
                task.comm, task.tid
            ),
        );
    } else if tasks.len() >= limits.hung_tasks {
        find(
            Reason::KernelDeadlocked,
            format!(
                "many tasks have waited in the kernel for minutes and cannot be killed: {}, …",
                named(tasks)
            ),
        );
    } else {
        find(
            Reason::KernelTaskHung,
            format!(
                "waiting in the kernel for minutes, cannot be killed: {}",
                named(tasks)
            ),
        );
    }
}

fn is_essential(comm: &str) -> bool {
    let is_shim = comm.starts_with("containerd-shim");
    !is_shim && ESSENTIAL.iter().any(|name| comm.starts_with(name))
}

fn named(tasks: &[HungTask]) -> String {
    let named = tasks
        .iter()
        .take(NAMED_TASKS)
        .map(|task| format!("{} (pid {})", task.comm, task.tid));
    named.collect::<Vec<_>>().join(", ")
}

/// The news of a kill, with the pod's `namespace/name` if that is known.
fn told_of(kill: &OomKill, name: Option<&str>) -> Told {
    let mut about = kill.cgroup.clone().unwrap_or_else(|| kill.comm.clone());
    let mut whose = String::new();
    if let Some(pod) = &kill.pod {
        let name = name.map_or_else(|| format!("with uid {}", pod.uid), str::to_owned);
        whose = format!(" of the pod {name}");
        about.clone_from(&pod.uid);
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
