//! What is known of the kubelet, and what to report of it. Does no I/O and reads no clock: the caller passes the time.

use std::time::Duration;

use super::child::{Child, looping};
use super::running::{API_NEEDED, RunningKubelet};
use crate::condition::{Finding, Reason, Uptime, View};
use crate::facts::{ApiFacts, Reach};
use crate::host::healthz::Probe;
use crate::host::process::{Holder, ProcessId, Sample};
use crate::monitor::service::Service;
use crate::monitor::service::ended::Ended;
use crate::monitor::service::follow::ServiceEvent;
use crate::monitor::service::judgement::Judgement;

/// An observation of the kubelet.
#[derive(Debug)]
pub enum Observation {
    /// An event of systemd, the kernel or the pidfd.
    Service(ServiceEvent),
    /// A probe of the process with this pid; if it failed, with a sample of the process.
    Probed(i32, Probe, Option<Sample>),
    /// The process of this pid serves no /healthz.
    NotProbed(i32),
    /// The process of this pid, the unit's main process, has started this kubelet.
    ChildStarted(i32, ProcessId),
    /// The kubelet of this pid has ended, which the main process had started.
    ChildExited(i32),
    /// Why this run of the unit ended, as its last lines say it.
    LastWords { invocation: String, words: Option<String> },
    /// The process of the unit that has kept it from ending since that of this pid ended; none if it has ended too.
    HeldBy(i32, Option<Holder>),
}

#[derive(Debug)]
pub struct Kubelet {
    pub(super) service: Service,
    /// The unit's main process, which [`Self::child`] and [`Self::running`] are about.
    main: Option<ProcessId>,
    pub(super) child: Child,
    pub(super) running: RunningKubelet,
    /// Since when the API server has answered; none while it does not.
    api_reached: Option<Uptime>,
}

impl Kubelet {
    pub fn new(start_grace: Duration) -> Self {
        let service = Service::new("the kubelet's unit", start_grace);
        Self { service, main: None, child: Child::default(), running: RunningKubelet::default(), api_reached: None }
    }

    /// The kubelet's process: a child of the unit's main process, or that one itself.
    pub fn process(&self) -> Option<ProcessId> {
        self.service.process().map(|main| self.child.running.unwrap_or(main))
    }

    /// The run of the unit that has ended and whose last error is not known yet.
    pub fn wants_last_error(&self) -> Option<&str> {
        let ended = self.service.last_end.as_ref()?;
        let is_wanted = ended.has_failed() && ended.last_words.is_none() && !ended.run.invocation.is_empty();
        is_wanted.then_some(ended.run.invocation.as_str())
    }

    pub fn observe(&mut self, observation: Observation, now: Uptime) {
        match observation {
            Observation::Service(event) => {
                if let ServiceEvent::OomKill(kill) = &event {
                    self.child.oom_killed(kill);
                }
                self.service.observe(event, now);
            }
            Observation::Probed(pid, probe, sample) => self.of(pid, |running| running.probed(probe, sample, now)),
            Observation::NotProbed(pid) => self.of(pid, |running| running.is_unprobed = true),
            Observation::ChildStarted(parent, id) if self.main.is_some_and(|main| main.pid == parent) => {
                self.child.running = Some(id);
                // What was observed of the address before holds only if the kubelet has answered there.
                if !self.running.answers() {
                    self.running = RunningKubelet::default();
                }
            }
            Observation::ChildStarted(..) => {}
            Observation::ChildExited(pid) => {
                self.child.exited(pid, now);
                self.of(pid, |running| *running = RunningKubelet::default());
            }
            Observation::HeldBy(pid, holder) => {
                if let Some(ended) = self.service.last_end.as_mut().filter(|ended| ended.run.pid == pid) {
                    ended.after.held_by = holder;
                }
            }
            Observation::LastWords { invocation, words } => {
                if let Some(ended) = self.service.last_end.as_mut().filter(|ended| ended.run.invocation == invocation) {
                    ended.last_words = words;
                }
            }
        }
        let main = self.service.process();
        if self.main != main {
            (self.main, self.child) = (main, Child::default());
            self.running = RunningKubelet::default();
        }
        self.running.id = self.process().unwrap_or_default();
        if self.running.answers() {
            self.service.answered();
            self.child.answered();
        }
    }

    /// Takes in whether the API server answers, the Node, and the kubelet's Lease.
    pub fn api_seen(&mut self, api: &ApiFacts, now: Uptime) {
        self.api_reached = if let Reach::Reached { since } = api.reach { Some(since) } else { None };
        if let Some(lease) = &api.lease {
            self.running.lease_read(lease);
        }
        let is_reached = self.api_reached.is_some_and(|since| now >= since + API_NEEDED);
        let ready = api.node.as_ref().and_then(|node| node.condition("Ready"));
        let is_unknown = ready.is_some_and(|ready| ready.status == "Unknown");
        // While its runtime is down, the kubelet itself reports why, and leaves the loop out.
        let of_process = api.sync_loop.as_ref().filter(|(id, _)| *id == self.running.id);
        let is_stalled = of_process.is_some_and(|(_, answers)| answers.is_stalled(now));
        self.running.is_loop_stalled = is_stalled && ready.is_some_and(|ready| ready.status == "True");
        let is_unheard = is_reached && is_unknown && self.running.answers();
        self.running.cut_off.observe(is_unheard, api.lease.as_ref(), now);
    }

    fn of(&mut self, pid: i32, change: impl FnOnce(&mut RunningKubelet)) {
        if self.running.id.pid == pid {
            change(&mut self.running);
        }
    }

    /// What to report now; none while there is nothing new.
    pub fn view(&self, now: Uptime) -> Option<View> {
        if self.running.answers() && !self.service.is_being_stopped() {
            return Some(self.running.answered_view(now));
        }
        let judgement = self.service.judge(self.running.is_settled() || self.child.has_ended(), now);
        if let (Judgement::Runs | Judgement::Starting(_), Some(view)) = (&judgement, self.without_child(now)) {
            return Some(view);
        }
        Some(match judgement {
            Judgement::Undecided => return None,
            Judgement::Runs => return self.running.unanswered_view(self.api_reached, now),
            Judgement::Stopped(why) => View::Excused(Finding::new(Reason::KubeletStoppedByOperator, why)),
            Judgement::Restarting(why) => View::Unchanged(Finding::new(Reason::KubeletStarting, why)),
            Judgement::Starting(why) => View::Unknown(Finding::new(Reason::KubeletStarting, why)),
            Judgement::Ended(ended) => self.ended(ended, now),
            Judgement::UnitFailed(why) if self.is_start_limit_hit() => View::found(Reason::KubeletCrashLooping, why),
            Judgement::UnitFailed(why) => View::found(Reason::KubeletCrashed, why),
            Judgement::LeftStopped(why) => View::found(Reason::KubeletLeftStopped, why),
            Judgement::StoppedWithDependency(why) => View::found(Reason::KubeletStoppedWithDependency, why),
            Judgement::NotFound(why) => View::Unknown(Finding::new(Reason::KubeletNotFound, why)),
            Judgement::Unexplained(why) => View::Unexplained(Finding::new(Reason::KubeletNotFound, why)),
        })
    }

    /// What to report of the end of a kubelet that the unit's main process had started.
    fn without_child(&self, now: Uptime) -> Option<View> {
        self.child.view(self.main?.pid, &self.service.name, self.service.start_grace, now)
    }

    fn is_start_limit_hit(&self) -> bool {
        self.service.unit.result == "start-limit-hit"
    }

    /// What to report of an end without a job.
    fn ended(&self, ended: &Ended, now: Uptime) -> View {
        let unit = &self.service.name;
        if let Some(killed) = ended.oom_killed(unit) {
            return View::found(Reason::KubeletOOMKilled, format!("the kubelet {killed}"));
        }
        let mut message = format!("kubelet pid {} {}", ended.run.pid, ended.how());
        if let Some(words) = &ended.last_words {
            message = format!("{message}; {words}");
        }
        if self.is_start_limit_hit() {
            let message = format!("systemd no longer restarts {unit} (start limit hit); {message}");
            return View::found(Reason::KubeletCrashLooping, message);
        }
        let is_looping = looping(&self.service.ends, &message, now);
        is_looping.unwrap_or_else(|| View::found(Reason::KubeletCrashed, message))
    }
}
