//! A kubelet that the main process of its unit has started, as RKE2 and k0s do. Does no I/O and reads no clock.
//!
//! Only its parent learns how it ended. So one end after which the parent starts another kubelet changes nothing, as after a clean end that
//! systemd follows with a restart.

use std::time::Duration;

use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::oom::OomKill;
use crate::host::process::ProcessId;
use crate::monitor::service::ended::{Ended, Ends, OomEvidence, Run};

/// RKE2 and k0s start another one after five seconds. When a signal ends them, they end the kubelet first.
const FOLLOW_WAIT: Duration = Duration::from_secs(30);

/// As the kernel knows the kubelet, by which it is found too.
const NAME: &str = "kubelet";

#[derive(Debug, Default)]
pub(super) struct Child {
    /// The one that runs.
    pub(super) running: Option<ProcessId>,
    /// The kernel's record that it has OOM-killed the one that runs, which comes before the end.
    oom_kill: Option<OomKill>,
    /// The end of the last one, while no later one has answered.
    last_end: Option<Ended>,
    ends: Ends,
}

impl Child {
    pub(super) fn exited(&mut self, pid: i32, now: Uptime) {
        if self.running.take_if(|id| id.pid == pid).is_none() {
            return;
        }
        let run = Run { pid, name: NAME.into(), ..Run::default() };
        let oom = self.oom_kill.take().map(OomEvidence::Record);
        self.ends.record("", now);
        self.last_end = Some(Ended { run, oom, at: now, ..Ended::default() });
    }

    pub(super) fn oom_killed(&mut self, kill: &OomKill) {
        // In a container the record has the pid of another PID namespace, where another program may have this one.
        if kill.name != NAME {
            return;
        }
        if let Some(ended) = self.last_end.as_mut().filter(|ended| ended.run.pid == kill.pid) {
            ended.oom = Some(OomEvidence::Record(kill.clone()));
        }
        if self.running.is_some_and(|id| id.pid == kill.pid) {
            self.oom_kill = Some(kill.clone());
        }
    }

    pub(super) fn answered(&mut self) {
        self.last_end = None;
    }

    /// Whether one has ended and no later one has answered.
    pub(super) fn has_ended(&self) -> bool {
        self.last_end.is_some()
    }

    /// Whether the next one is to be found soon.
    pub(super) fn is_awaited(&self, now: Uptime) -> bool {
        self.running.is_none() && self.deadline(now).is_some()
    }

    /// When it has not been followed for too long.
    pub(super) fn deadline(&self, now: Uptime) -> Option<Uptime> {
        self.last_end.as_ref().map(|ended| ended.at + FOLLOW_WAIT).filter(|at| *at > now)
    }

    /// What to report of its end, which the parent, the main process of `unit`, has outlived; none if there was no end, and once the next one
    /// has had the time of a start.
    pub(super) fn view(&self, parent: i32, unit: &str, start_grace: Duration, now: Uptime) -> Option<View> {
        let ended = self.last_end.as_ref()?;
        if let Some(killed) = ended.oom_killed(unit) {
            return Some(View::found(Reason::KubeletOOMKilled, format!("the kubelet {killed}")));
        }
        let message = format!("kubelet pid {}, which pid {parent} of {unit} had started, has ended", ended.run.pid);
        if let Some(view) = looping(&self.ends, &message, now) {
            return Some(view);
        }
        let wait = if self.running.is_some() { start_grace } else { FOLLOW_WAIT };
        if now < ended.at + wait {
            return Some(View::Unchanged(Finding::new(Reason::KubeletStarting, message)));
        }
        let is_gone = self.running.is_none();
        is_gone.then(|| View::found(Reason::KubeletCrashed, format!("{message}, and none that answers has followed")))
    }
}

/// What to report of a kubelet that has ended again and again.
pub(super) fn looping(ends: &Ends, message: &str, now: Uptime) -> Option<View> {
    let (count, within) = ends.loop_at(now)?;
    let minutes = within.as_secs() / 60;
    let message = format!("the kubelet has ended {count} times within {minutes} minutes; {message}");
    Some(View::found(Reason::KubeletCrashLooping, message))
}
