//! What is known of the container runtime, and what to report of it. Does no I/O and reads no clock: the caller passes the time.

use std::path::PathBuf;
use std::time::Duration;

use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::clock::next_multiple;
use crate::host::cri::Probe;
use crate::host::endpoint::Endpoint;
use crate::host::process::{ProcessId, Sample};
use crate::monitor::service::Service;
use crate::monitor::service::ended::Ended;
use crate::monitor::service::follow::ServiceEvent;
use crate::monitor::service::judgement::Judgement;
use crate::monitor::service::samples::{FAILURES_IN_A_ROW, Samples};

/// Time from the start of one probe to that of the next.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// The same for a runtime that does not answer, within a minute after its first failed probe, its start or its end: more probes may find
/// the cause, or it is about to answer.
const PROBE_EVERY_SILENT: Duration = Duration::from_secs(1);
const SILENT_FOR: Duration = Duration::from_mins(1);
/// The kubelet reports on the Node that the runtime is down until some seconds after it answers again.
const KUBELET_CATCHES_UP: Duration = Duration::from_mins(1);

/// A thread that has been in one uninterruptible wait for this long is stuck.
const STUCK_FOR: Duration = Duration::from_secs(10);
/// The same while the host, or one limited cgroup, waits for memory or processors: no read of a page takes so long.
const STUCK_ON_BUSY_HOST_FOR: Duration = Duration::from_mins(5);

/// The process that listens on the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) id: ProcessId,
    /// The system service that it belongs to.
    pub(super) unit: Option<String>,
}

/// The failed probes since the last good one.
#[derive(Debug, Default)]
struct FailedProbes {
    count: u32,
    /// The failed probes since the last one that found a listener.
    without_listener: u32,
    /// The probes in a row that were answered, but not with a list of the pods.
    unlisted: u32,
    /// What was seen of the process meanwhile.
    samples: Samples,
}

#[derive(Debug, Default)]
pub(super) struct Runtime {
    pub(super) service: Service,
    /// The units of which the best is watched.
    pub(super) units: Vec<String>,
    pub(super) endpoint: Option<Endpoint>,
    /// The listener of the last connection since the watched process ended.
    listener: Option<Listener>,
    /// The last probe since the watched process ended, if one did.
    last_probe: Option<Probe>,
    failed: FailedProbes,
    /// Whether it has answered since the watched process started.
    has_answered: bool,
    /// When the unit's main process ended last.
    ended_at: Uptime,
    /// When it started or ended last, or a probe failed after a good one.
    changed_at: Uptime,
    /// Whether the unit's main process was the one that listened when it last answered. The containerd of k3s is a child of it.
    main_process_listens: bool,
    /// The message of the Node's condition `Ready`, if the kubelet reports in it that the runtime is not ready, and since when.
    pub(super) kubelet_agrees: Option<(String, Uptime)>,
}

impl Runtime {
    pub(super) fn new(start_grace: Duration) -> Self {
        Self { service: Service::new("the container runtime's unit", start_grace), ..Self::default() }
    }

    /// Sets the socket that is probed; `true` if it is another one, of which nothing is known.
    pub(super) fn set_endpoint(&mut self, endpoint: Option<Endpoint>) -> bool {
        let socket = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(|endpoint| endpoint.socket.clone());
        let is_other = socket(&self.endpoint) != socket(&endpoint);
        if is_other {
            *self = Self::new(self.service.start_grace);
        }
        self.endpoint = endpoint;
        is_other
    }

    /// Records the listener of a probe that began then; none if it is not known.
    pub(super) fn set_listener(&mut self, listener: Option<Listener>, began: Uptime) {
        if listener.is_some() && listener != self.listener && began >= self.ended_at {
            (self.listener, self.failed.samples) = (listener, Samples::default());
        }
    }

    /// Chooses the units to watch; `false` if they are watched already. What is known of others is void. `given`: by the settings.
    pub(super) fn choose_units(&mut self, given: Option<&String>) -> bool {
        let of_listener = self.listener.as_ref().and_then(|listener| listener.unit.as_ref());
        let units = match given.or(of_listener) {
            // By systemd's name for the unit, not by an alias.
            Some(unit) if *unit == self.service.name => return false,
            Some(unit) => vec![unit.clone()],
            None if self.units.is_empty() => self.endpoint.as_ref().map(Endpoint::units).unwrap_or_default(),
            None => return false,
        };
        if self.units == units {
            return false;
        }
        self.service = Service::new("the container runtime's unit", self.service.start_grace);
        (self.units, self.main_process_listens) = (units, false);
        true
    }

    /// Whether it answered the last probe and has not ended since.
    fn answers(&self) -> bool {
        matches!(self.last_probe, Some(Probe::Ready { .. } | Probe::Unlisted { .. }))
    }

    /// The process that is probed: the listener, or the service's main process if systemd listens for a socket unit.
    pub(super) fn process(&self) -> Option<ProcessId> {
        let listener = self.listener.as_ref().map(|listener| listener.id).filter(|id| id.pid != 1);
        listener.or(self.service.process())
    }

    /// Whether a process has listened since the watched process ended, or the unit's main process itself listens in each run.
    fn is_served(&self) -> bool {
        self.listener.is_some() || self.main_process_listens
    }

    /// When the next probe is due after one that began then.
    pub(super) fn probe_after(&self, began: Uptime, now: Uptime) -> Uptime {
        let is_soon = !self.answers() && now < self.changed_at + SILENT_FOR;
        if is_soon { began + PROBE_EVERY_SILENT } else { next_multiple(began, PROBE_EVERY) }
    }

    /// Where the runtime keeps its files; none while it is a guess which runtime is the kubelet's, and nothing answers there.
    pub(super) fn directories(&self) -> Option<Vec<PathBuf>> {
        self.endpoint.as_ref().filter(|endpoint| !endpoint.is_guess || self.answers()).map(Endpoint::directories)
    }

    pub(super) fn service_event(&mut self, event: ServiceEvent, now: Uptime) {
        let before = self.service.process();
        self.service.observe(event, now);
        if self.service.process() != before {
            self.changed_at = now;
            if before.is_some() {
                // Failed probes count on: it may end again and again before it answers.
                self.ended_at = now;
                (self.last_probe, self.has_answered, self.listener) = (None, false, None);
                (self.failed.samples, self.failed.unlisted) = (Samples::default(), 0);
            }
        }
        self.see_answer();
    }

    /// Records a probe that began then, and if it was not answered, a sample of the process.
    pub(super) fn probed(&mut self, began: Uptime, probe: Probe, sample: Option<Sample>, now: Uptime) {
        // An answer from before the end does not apply to the next process.
        if began < self.ended_at {
            return;
        }
        match sample {
            Some(sample) => self.failed.samples.take_in(sample, now),
            // What was sampled at an earlier probe explains nothing.
            None => self.failed.samples = Samples::default(),
        }
        if let Probe::Ready { .. } | Probe::Unlisted { .. } = probe {
            self.has_answered = true;
            let unlisted = if let Probe::Unlisted { .. } = probe { self.failed.unlisted + 1 } else { 0 };
            let samples = std::mem::take(&mut self.failed.samples);
            self.failed = FailedProbes { unlisted, samples, ..FailedProbes::default() };
        } else {
            if self.failed.count == 0 {
                self.changed_at = now;
            }
            self.failed.count += 1;
            self.failed.without_listener =
                if probe == Probe::NoListener { self.failed.without_listener + 1 } else { 0 };
        }
        self.last_probe = Some(probe);
        self.see_answer();
    }

    /// If it answers, the end before it is over.
    fn see_answer(&mut self) {
        if self.answers() {
            self.service.answered();
            if let (Some(listener), Some(running)) = (&self.listener, &self.service.running) {
                self.main_process_listens = [1, running.id.pid].contains(&listener.id.pid);
            }
        }
    }

    /// What to report now; none while there is nothing new.
    pub(super) fn view(&self, now: Uptime) -> Option<View> {
        match &self.last_probe {
            Some(Probe::Ready { name }) => return Some(self.answering(name, now)),
            Some(Probe::Unlisted { name, why }) => return self.unlisted(name, why, now),
            _ => {}
        }
        // Whether a process of the unit runs, or has ended while we watched.
        let is_known = self.service.running.is_some() || self.service.last_end.is_some();
        let unserved = format!("nothing listens on {}", self.socket());
        let is_guess = !self.is_served() && self.endpoint.as_ref().is_none_or(|endpoint| endpoint.is_guess);
        // If no process of the unit is known, the message has that too.
        let finding = |why: String| not_found(if is_known { why } else { format!("{unserved}, and {why}") });
        Some(match self.service.judge(self.has_answered, now) {
            Judgement::Stopped(why) => View::Excused(not_found(why)),
            Judgement::Restarting(why) => View::Unchanged(not_found(why)),
            Judgement::Runs => return self.unanswered(now),
            Judgement::Undecided if is_known => return None,
            _ if !is_known && self.last_probe != Some(Probe::NoListener) => return self.unanswered(now),
            _ if self.units.is_empty() => View::Unknown(not_found(unserved)),
            Judgement::Undecided => return None,
            _ if self.service.last_end.is_some() && !self.is_runtimes_end() => return self.outlived(now),
            Judgement::Ended(ended) if self.service.ends.loop_at(now).is_some() => {
                View::found(Reason::ContainerRuntimeCrashLooping, self.has_ended(ended))
            }
            Judgement::Ended(ended) => View::found(Reason::ContainerRuntimeDown, self.has_ended(ended)),
            // Which socket is the kubelet's is a guess, and nothing has answered there.
            Judgement::UnitFailed(why) | Judgement::StoppedWithDependency(why) if !is_known && is_guess => {
                View::Unexplained(finding(why))
            }
            Judgement::UnitFailed(why) | Judgement::LeftStopped(why) | Judgement::StoppedWithDependency(why) => {
                View::found(Reason::ContainerRuntimeDown, why)
            }
            Judgement::Starting(why) | Judgement::NotFound(why) => View::Unknown(finding(why)),
            Judgement::Unexplained(why) => View::Unexplained(finding(why)),
        })
    }

    /// It answers. The kubelet asks for more, and knows better once it has had time to see that.
    fn answering(&self, name: &str, now: Uptime) -> View {
        let answers = format!("{name} answers at {}{}", self.socket(), self.pid());
        let has_caught_up = |since: Uptime| now >= since.max(self.changed_at) + KUBELET_CATCHES_UP;
        match self.kubelet_agrees.as_ref().filter(|(_, since)| has_caught_up(*since)) {
            None => View::healthy(answers),
            Some((kubelet, _)) => unconfirmed(format!("{answers}, but the kubelet reports on the Node: {kubelet}")),
        }
    }

    /// It answers, and does not list its pods; none before the third time in a row.
    fn unlisted(&self, name: &str, why: &str, now: Uptime) -> Option<View> {
        if self.failed.unlisted < FAILURES_IN_A_ROW {
            return None;
        }
        let name = format!("{name} at {}{}", self.socket(), self.pid());
        let samples = &self.failed.samples;
        // A list reads the runtime's database.
        Some(match (samples.busy(now).or_else(|| samples.waits_for_disk(now)), &self.kubelet_agrees) {
            (Some(busy), _) => unconfirmed(format!("{name} {why}, but {busy}")),
            (None, None) => {
                unconfirmed(format!("{name} answers Status, but {why}; the kubelet does not report this on the Node"))
            }
            (None, Some((kubelet, _))) => {
                let again = format!("{why}, three times in a row; the kubelet reports on the Node: {kubelet}");
                // Its process works, and starts again without a reboot.
                View::found(Reason::ContainerRuntimeNotReady, format!("{name} answers Status, but {again}"))
            }
        })
    }

    fn socket(&self) -> String {
        self.endpoint.as_ref().map(|endpoint| endpoint.socket.display().to_string()).unwrap_or_default()
    }

    fn pid(&self) -> String {
        self.process().map(|id| format!(" (pid {})", id.pid)).unwrap_or_default()
    }

    /// How the main process ended.
    fn has_ended(&self, ended: &Ended) -> String {
        let name = &self.service.name;
        match ended.oom_killed(name) {
            Some(killed) => format!("the main process of {name} {killed}"),
            None => format!("the main process of {name} (pid {}) {}", ended.run.pid, ended.how()),
        }
    }

    /// Whether the end of the unit's main process is the runtime's end: it is the listener, or no process listens now.
    fn is_runtimes_end(&self) -> bool {
        self.main_process_listens || self.failed.without_listener >= FAILURES_IN_A_ROW
    }

    /// The main process has ended, which the runtime may outlive.
    fn outlived(&self, now: Uptime) -> Option<View> {
        let is_served = !matches!(self.last_probe, None | Some(Probe::NoListener));
        if is_served && self.service.running.is_none() {
            return self.unanswered(now);
        }
        let has_ended = self.service.last_end.as_ref().map(|ended| self.has_ended(ended)).unwrap_or_default();
        Some(View::Unchanged(not_found(has_ended)))
    }

    /// What to report of a runtime that runs and is not ready; none before the third failed probe.
    fn unanswered(&self, now: Uptime) -> Option<View> {
        if self.failed.count < FAILURES_IN_A_ROW {
            return None;
        }
        let (unit, socket, samples) = (&self.service.name, self.socket(), &self.failed.samples);
        let name = format!("the container runtime at {socket}{}", self.pid());
        let unconfirmed = |why: String| Some(unconfirmed(why));
        match self.last_probe.as_ref()? {
            Probe::Ready { .. } | Probe::Unlisted { .. } => None,
            Probe::NoListener if self.service.unit.active_state == "activating" => {
                Some(View::Unknown(not_found(self.service.starting())))
            }
            // Another unit may serve this socket later, and k3s starts its containerd only after it has reached a server. So one more
            // witness is needed.
            Probe::NoListener
                if self.failed.without_listener >= FAILURES_IN_A_ROW
                    && (self.is_served() || self.kubelet_agrees.is_some()) =>
            {
                let message = format!("{unit} runs, but nothing listens on {socket}: see journalctl -u {unit}");
                Some(View::found(Reason::ContainerRuntimeDown, message))
            }
            Probe::NoListener => unconfirmed(format!("{unit} runs, and nothing listens on {socket}")),
            Probe::Impossible(why) if self.endpoint.is_none() => Some(View::Unknown(not_found(why))),
            Probe::Impossible(why) => unconfirmed(format!("{name} cannot be probed: {why}")),
            Probe::NotReady(why) => match &self.kubelet_agrees {
                Some((kubelet, _)) => {
                    let message = format!("{name} {why}; the kubelet reports on the Node: {kubelet}");
                    Some(View::found(Reason::ContainerRuntimeNotReady, message))
                }
                None => unconfirmed(format!("{name} {why}; the kubelet does not report this on the Node")),
            },
            Probe::TimedOut => {
                let hung = |why: String| {
                    Some(View::found(Reason::ContainerRuntimeHung, format!("{name} does not answer, and {why}")))
                };
                let busy = samples.busy(now);
                let stuck_for = if busy.is_some() { STUCK_ON_BUSY_HOST_FOR } else { STUCK_FOR };
                if let Some(why) = samples.suspended_by() {
                    let is_traced = samples.last().is_some_and(Sample::is_traced);
                    if is_traced { unconfirmed(format!("{name} does not answer; {why}")) } else { hung(why) }
                } else if let Some(wait) = samples.stuck_for(stuck_for, now) {
                    hung(format!("its thread {} waits in the kernel {}", wait.tid, wait.state()))
                } else if let Some(busy) = busy.or_else(|| samples.waits_for_disk(now)) {
                    unconfirmed(format!("{name} does not answer, but {busy}"))
                } else if let Some((kubelet, _)) = self.kubelet_agrees.as_ref().filter(|_| samples.rule_out_load(now)) {
                    hung(format!("the kubelet reports on the Node: {kubelet}"))
                } else {
                    unconfirmed(format!("{name} does not answer, and its process is neither stopped nor in state D"))
                }
            }
        }
    }
}

fn unconfirmed(message: String) -> View {
    View::Unknown(Finding::new(Reason::ContainerRuntimeUnconfirmed, message))
}

fn not_found(message: impl Into<String>) -> Finding {
    Finding::new(Reason::ContainerRuntimeNotFound, message)
}
