//! What is observed of a container runtime, and what is reported then.

mod field;
mod listener;

use std::time::Duration;

use super::kubelets_message;
use super::state::{Listener, Runtime};
use crate::condition::{ConditionType, Reason, Status, Uptime, View};
use crate::facts::{ApiFacts, NodeFacts, ObservedCondition, Reach};
use crate::host::cri::Probe;
use crate::host::endpoint::Endpoint;
use crate::host::pressure::Pressure;
use crate::host::process::{ProcessId, Sample, ThreadWait};
use crate::host::systemd::{BusEvent, Dependency, JobKind, LastProcess, UnitState};
use crate::monitor::service::follow::ServiceEvent;
use crate::monitor::service::tests::{changed, exited, job, job_removed, opened, read, reports, running, unit};

const GRACE: Duration = Duration::from_mins(2);
const SIGKILL: LastProcess = LastProcess { pid: 812, code: 2, status: 9 };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn id(pid: i32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

/// What was seen, on a clock of its own.
struct Story {
    runtime: Runtime,
    now: Uptime,
}

impl Story {
    /// Nothing has been seen but where the kubelet's runtime should listen.
    fn new() -> Self {
        let mut runtime = Runtime::new(GRACE);
        let socket = "/run/containerd/containerd.sock".into();
        assert!(runtime.set_endpoint(Some(Endpoint { socket, is_guess: false })));
        assert!(runtime.choose_units(None));
        assert_eq!(runtime.units, ["containerd.service"]);
        Self { runtime, now: Uptime::from_secs(1000) }
    }

    /// containerd with pid 812 is the main process of containerd.service, has listened for long and answers.
    fn healthy() -> Self {
        let mut story = Self::new();
        story.listens(812, Some("containerd.service"));
        story.watch(812, Uptime::ZERO);
        story.answers();
        story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
        story
    }

    /// A child of k3s listens and answers.
    fn k3s() -> Self {
        let mut story = Self::new();
        story.listens(950, Some("k3s.service"));
        assert_eq!(story.runtime.units, ["k3s.service"]);
        story.read("k3s.service", running(812));
        story.open(812, Uptime::ZERO);
        story.answers();
        story
    }

    /// A restart job ends process 812, and the unit of process 900 is then in this state.
    fn restart(&mut self, active_state: &str) {
        self.job(JobKind::Restart);
        self.end(812, unit("inactive", 0, exited(812, 0), "success"));
        self.keeps_what_is_shown();
        self.changed(UnitState { active_state: active_state.into(), ..running(900) });
        self.open(900, self.now);
        self.job_is_done();
    }

    /// A process that answers at the socket.
    fn listens(&mut self, pid: i32, unit: Option<&str>) {
        self.runtime.set_listener(Some(Listener { id: id(pid), unit: unit.map(str::to_owned) }), self.now);
        self.runtime.choose_units(None);
    }

    /// systemd's main process of containerd.service.
    fn watch(&mut self, pid: i32, started: Uptime) {
        self.read("containerd.service", running(pid));
        self.open(pid, started);
    }

    fn open(&mut self, pid: i32, started: Uptime) {
        assert_eq!(self.runtime.service.process_to_open(), Some(pid));
        self.happens(opened(pid, "containerd.service", started));
    }

    fn read(&mut self, unit: &str, state: UnitState) {
        self.happens(read(unit, state, None));
    }

    fn changed(&mut self, state: UnitState) {
        self.happens(changed(state));
    }

    fn job(&mut self, kind: JobKind) {
        for event in job(kind) {
            self.happens(event);
        }
    }

    fn job_is_done(&mut self) {
        self.happens(job_removed("done"));
    }

    fn happens(&mut self, event: ServiceEvent) {
        self.now += Duration::from_millis(1);
        self.runtime.service_event(event, self.now);
    }

    /// The main process ends, and systemd reports how.
    fn end(&mut self, pid: i32, state: UnitState) {
        self.happens(ServiceEvent::Exited(pid));
        self.changed(state);
    }

    fn answers(&mut self) {
        self.probe(Probe::Ready { name: "containerd 1.7.24".into() });
    }

    fn probe(&mut self, probe: Probe) {
        self.probe_with(probe, None);
    }

    fn probe_with(&mut self, probe: Probe, sample: Option<Sample>) {
        let began = self.now;
        self.now += secs(1);
        self.runtime.probed(began, probe, sample, self.now);
        self.runtime.service.settle(self.now);
    }

    /// Three probes fail, each with a sample of the process.
    fn fail(&mut self, probe: &Probe, sample: &Sample, pressure: Pressure) {
        for _ in 0..3 {
            self.now += secs(5);
            self.probe_with(probe.clone(), Some(Sample { pressure, ..sample.clone() }));
        }
    }

    fn fails(&mut self, probe: &Probe) {
        self.fail(probe, &Sample { state: 'S', ..Sample::default() }, Pressure::default());
    }

    fn is_probed_soon(&self) -> bool {
        self.runtime.probe_after(self.now, self.now) == self.now + secs(1)
    }

    #[track_caller]
    fn reports(&self, status: Status, reason: Reason) -> String {
        reports(self.runtime.view(self.now), ConditionType::ContainerRuntimeHealthy, status, reason)
    }

    #[track_caller]
    fn keeps_what_is_shown(&self) {
        let view = self.runtime.view(self.now);
        assert!(matches!(view, None | Some(View::Unchanged(_))), "{view:?}");
    }

    #[track_caller]
    fn is_unexplained(&self) {
        let view = self.runtime.view(self.now);
        assert!(matches!(view, Some(View::Unexplained(_))), "{view:?}");
    }
}

#[test]
fn a_runtime_that_ends_three_times_within_five_minutes_is_in_a_crash_loop() {
    let mut story = Story::healthy();
    let end = |pid| unit("activating", 0, LastProcess { pid, code: 2, status: 9 }, "signal");
    story.end(812, end(812));
    story.reports(Status::False, Reason::ContainerRuntimeDown);
    story.changed(end(900));
    story.reports(Status::False, Reason::ContainerRuntimeDown);
    story.changed(end(901));
    let message = story.reports(Status::False, Reason::ContainerRuntimeCrashLooping);
    assert_eq!(message, "the main process of containerd.service (pid 901) was killed by SIGKILL (9)");
}

#[test]
fn a_killed_runtime_is_down_until_another_one_answers() {
    let mut story = Story::healthy();
    story.happens(ServiceEvent::Exited(812));
    story.keeps_what_is_shown();
    story.changed(unit("activating", 0, SIGKILL, "signal"));
    let message = story.reports(Status::False, Reason::ContainerRuntimeDown);
    assert_eq!(message, "the main process of containerd.service (pid 812) was killed by SIGKILL (9)");
    assert!(story.is_probed_soon());
    story.changed(running(900));
    story.open(900, story.now);
    story.probe(Probe::NoListener);
    assert_eq!(story.reports(Status::False, Reason::ContainerRuntimeDown), message);
    story.listens(900, Some("containerd.service"));
    story.answers();
    let healthy = story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    assert_eq!(healthy, "containerd 1.7.24 answers at /run/containerd/containerd.sock (pid 900)");
    assert!(!story.is_probed_soon());
}

#[test]
fn an_answer_from_before_the_end_does_not_count_and_one_before_systemds_report_does() {
    let mut story = Story::healthy();
    let before = story.now;
    story.end(812, unit("activating", 0, SIGKILL, "signal"));
    let probe = Probe::Ready { name: String::new() };
    story.runtime.probed(before, probe, None, story.now);
    story.reports(Status::False, Reason::ContainerRuntimeDown);
    story.listens(900, Some("containerd.service"));
    story.answers();
    story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    story.changed(running(900));
    story.open(900, story.now);
    story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
}

#[test]
fn a_stop_job_is_no_fault_and_a_restart_job_changes_nothing() {
    let ended = exited(812, 0);
    let mut stopped = Story::healthy();
    stopped.job(JobKind::Stop);
    stopped.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    stopped.end(812, unit("inactive", 0, ended, "success"));
    stopped.job_is_done();
    stopped.fails(&Probe::NoListener);
    let message = stopped.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
    assert!(message.contains("was stopped: by systemctl stop"), "{message}");

    let mut restarted = Story::healthy();
    restarted.restart("active");
    restarted.fails(&Probe::NoListener);
    restarted.keeps_what_is_shown();
    restarted.now += GRACE;
    let message = restarted.reports(Status::False, Reason::ContainerRuntimeDown);
    assert!(message.starts_with("containerd.service runs, but nothing listens on /run/containerd/"), "{message}");

    let mut hanging = Story::healthy();
    hanging.job(JobKind::Stop);
    hanging.fails(&Probe::TimedOut);
    hanging.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
}

#[test]
fn a_restart_into_a_failure_is_down() {
    let mut story = Story::healthy();
    story.restart("active");
    story.keeps_what_is_shown();
    story.end(900, unit("activating", 0, exited(900, 1), "exit-code"));
    let message = story.reports(Status::False, Reason::ContainerRuntimeDown);
    assert_eq!(message, "the main process of containerd.service (pid 900) exited with code 1");

    // It ends again and again since before we came, sooner than three probes can be made.
    let mut looping = Story::new();
    for pid in 812..815 {
        looping.watch(pid, looping.now);
        looping.probe(Probe::NoListener);
        looping.end(pid, unit("activating", 0, exited(pid, 1), "exit-code"));
    }
    looping.reports(Status::False, Reason::ContainerRuntimeCrashLooping);
}

#[test]
fn a_runtime_that_does_not_answer_is_hung_only_if_its_process_confirms_it() {
    let state = |state: char| Sample { state, ..Sample::default() };
    let stuck = |switches| Sample {
        uninterruptible: vec![ThreadWait { tid: 9, switches, ..ThreadWait::default() }],
        ..state('S')
    };
    let frozen = Sample { frozen_by: Some("/system.slice/containerd.service".into()), ..state('S') };
    for (sample, evidence) in [
        (state('T'), "it is stopped by a signal (state T)"),
        (frozen, "its cgroup /system.slice/containerd.service is frozen"),
        (stuck(5), "its thread 9 waits in the kernel (state D)"),
    ] {
        let mut story = Story::healthy();
        story.fail(&Probe::TimedOut, &sample, Pressure::default());
        let message = story.reports(Status::False, Reason::ContainerRuntimeHung);
        assert!(message.ends_with(evidence) && message.contains("(pid 812)"), "{message}");
        story.answers();
        story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    }
    let mut twice = Story::healthy();
    for _ in 0..2 {
        twice.probe_with(Probe::TimedOut, Some(state('T')));
    }
    twice.keeps_what_is_shown();
    // It was stopped by a signal once, and the process was not sampled since, or another one listens.
    let mut once = Story::healthy();
    once.fail(&Probe::TimedOut, &state('T'), Pressure::default());
    once.probe(Probe::TimedOut);
    once.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    once.fail(&Probe::TimedOut, &state('T'), Pressure::default());
    once.listens(813, Some("containerd.service"));
    once.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    let mut busy = Story::healthy();
    for switches in 0..6 {
        busy.now += secs(5);
        busy.probe_with(Probe::TimedOut, Some(stuck(switches)));
    }
    busy.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    let mut starved = Story::healthy();
    let memory = Pressure { memory_full_percent: Some(90.0), ..Pressure::default() };
    starved.fail(&Probe::TimedOut, &stuck(5), memory);
    let message = starved.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    assert!(message.contains("too busy"), "{message}");
    // The memory pressure of one limited Pod lasts for hours.
    for _ in 0..11 {
        starved.now += secs(30);
        starved.probe_with(Probe::TimedOut, Some(Sample { pressure: memory, ..stuck(5) }));
    }
    starved.reports(Status::False, Reason::ContainerRuntimeHung);
}

#[test]
fn a_runtime_that_is_not_ready_is_so_only_if_the_kubelet_agrees() {
    let mut story = Story::healthy();
    story.fails(&Probe::NotReady("answers with Unimplemented: unknown service".into()));
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    story.runtime.kubelet_agrees = Some(("container runtime is down".into(), story.now));
    let message = story.reports(Status::False, Reason::ContainerRuntimeNotReady);
    assert!(message.contains("Unimplemented") && message.ends_with("container runtime is down"), "{message}");
    story.runtime.kubelet_agrees = None;
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);

    let mut alone = Story::healthy();
    alone.runtime.kubelet_agrees = Some(("PLEG is not healthy".into(), alone.now));
    alone.reports(Status::True, Reason::ContainerRuntimeIsHealthy);
    alone.now += secs(60);
    let message = alone.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    assert!(message.ends_with("but the kubelet reports on the Node: PLEG is not healthy"), "{message}");
}

/// containerd/containerd#12138 and #10583: `Status` is answered, and no list.
#[test]
fn a_runtime_that_lists_no_pods_is_not_ready_if_the_kubelet_agrees() {
    let unlisted = || Probe::Unlisted { name: "containerd 2.1.3".into(), why: "does not answer ListPodSandbox".into() };
    let pleg = || Some(("PLEG is not healthy".to_owned(), Uptime::from_secs(1000)));
    let mut story = Story::healthy();
    for _ in 0..2 {
        story.probe(unlisted());
        story.keeps_what_is_shown();
        assert!(!story.is_probed_soon());
    }
    story.probe(unlisted());
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    story.runtime.kubelet_agrees = pleg();
    let message = story.reports(Status::False, Reason::ContainerRuntimeNotReady);
    let wanted = "containerd 2.1.3 at /run/containerd/containerd.sock (pid 812) answers Status, but does not answer ListPodSandbox, \
                  three times in a row; the kubelet reports on the Node: PLEG is not healthy";
    assert_eq!(message, wanted);
    story.runtime.kubelet_agrees = None;
    story.answers();
    story.reports(Status::True, Reason::ContainerRuntimeIsHealthy);

    // Each time another process, or a list in between.
    let mut twice = Story::healthy();
    twice.runtime.kubelet_agrees = pleg();
    (0..2).for_each(|_| twice.probe(unlisted()));
    twice.answers();
    (0..2).for_each(|_| twice.probe(unlisted()));
    twice.keeps_what_is_shown();
    twice.restart("active");
    twice.probe(unlisted());
    twice.keeps_what_is_shown();

    let mut starved = Story::healthy();
    starved.runtime.kubelet_agrees = pleg();
    let memory = Pressure { memory_full_percent: Some(90.0), ..Pressure::default() };
    starved.fail(&unlisted(), &Sample { state: 'S', ..Sample::default() }, memory);
    starved.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
}

#[test]
fn busy_disks_excuse_a_runtime_that_lists_no_pods_for_five_minutes() {
    let unlisted = Probe::Unlisted { name: "containerd 2.1.3".into(), why: "does not answer ListPodSandbox".into() };
    let pressure = |percent| Pressure { io_some_percent: Some(percent), ..Pressure::default() };
    let mut story = Story::healthy();
    story.runtime.kubelet_agrees = Some(("PLEG is not healthy".into(), Uptime::from_secs(1000)));
    story.fail(&unlisted, &Sample::default(), pressure(80.0));
    let message = story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    assert!(message.ends_with("but the host's disks are busy (/proc/pressure/io)"), "{message}");
    story.now += secs(300);
    story.fail(&unlisted, &Sample::default(), pressure(80.0));
    story.reports(Status::False, Reason::ContainerRuntimeNotReady);

    let mut idle = Story::healthy();
    idle.runtime.kubelet_agrees = Some(("PLEG is not healthy".into(), Uptime::from_secs(1000)));
    idle.fail(&unlisted, &Sample::default(), pressure(20.0));
    idle.reports(Status::False, Reason::ContainerRuntimeNotReady);
}

#[test]
fn files_are_those_of_the_runtime_that_answers_or_that_the_kubelet_names() {
    let mut story = Story::new();
    let containerd = Some(vec!["/var/lib/containerd".into()]);
    assert_eq!(story.runtime.directories(), containerd, "before it answers");
    story.runtime.endpoint.as_mut().unwrap().is_guess = true;
    assert_eq!(story.runtime.directories(), None);
    story.answers();
    assert_eq!(story.runtime.directories(), containerd);
}

#[test]
fn an_unobserved_end_counts_by_systemds_result() {
    let at_start = |state: UnitState| {
        let mut story = Story::new();
        story.read("containerd.service", state);
        story.probe(Probe::NoListener);
        story
    };
    let inactive = |was_started| UnitState { was_started, ..unit("inactive", 0, LastProcess::default(), "success") };
    at_start(inactive(false)).reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
    at_start(inactive(true)).is_unexplained();
    let none = UnitState { load_state: "not-found".into(), ..UnitState::default() };
    at_start(none).reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
    let failed = || unit("failed", 0, LastProcess::default(), "exit-code");
    let message = at_start(failed()).reports(Status::False, Reason::ContainerRuntimeDown);
    assert!(message.contains("Result=exit-code"), "{message}");
    // Which socket is the kubelet's is a guess, and nothing has ever answered there.
    let mut guess = at_start(failed());
    guess.runtime.endpoint.as_mut().unwrap().is_guess = true;
    guess.is_unexplained();

    // What runs may serve another socket than the kubelet's.
    let mut elsewhere = Story::new();
    elsewhere.watch(812, Uptime::ZERO);
    elsewhere.fails(&Probe::NoListener);
    elsewhere.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    elsewhere.runtime.kubelet_agrees = Some(("container runtime is down".into(), elsewhere.now));
    elsewhere.reports(Status::False, Reason::ContainerRuntimeDown);

    let mut nowhere = Story::new();
    nowhere.runtime.set_endpoint(None);
    assert_eq!(nowhere.runtime.view(nowhere.now), None, "nothing has been observed yet");
    nowhere.fails(&Probe::Impossible("no kubelet".into()));
    nowhere.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);

    let mut lost = Story::healthy();
    lost.happens(ServiceEvent::Bus(BusEvent::Lost));
    lost.happens(ServiceEvent::Exited(812));
    lost.is_unexplained();
}

#[test]
fn a_runtime_that_starts_is_given_its_time() {
    let mut story = Story::new();
    story.watch(812, story.now);
    story.fails(&Probe::NotReady("answers with Unknown: server is not initialized yet".into()));
    story.keeps_what_is_shown();
    assert!(story.is_probed_soon());
    story.now += GRACE;
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    assert!(!story.is_probed_soon());
}

#[test]
fn the_kubelet_agrees_if_its_node_is_not_ready_for_the_runtime_and_the_api_server_answers() {
    let message = |status: &str, message: &str, reach: Reach| {
        let ready = ObservedCondition {
            kind: "Ready".into(),
            status: status.into(),
            reason: "KubeletNotReady".into(),
            message: message.into(),
            last_heartbeat: None,
            last_transition: None,
        };
        let node = Some(NodeFacts { conditions: vec![ready], ..NodeFacts::default() });
        kubelets_message(&ApiFacts { reach, node, ..ApiFacts::default() })
    };
    let reached = || Reach::Reached { since: Uptime::from_secs(1) };
    let down = "[container runtime is down, PLEG is not healthy]";
    assert_eq!(message("False", down, reached()).as_deref(), Some(down));
    let pleg = "PLEG is not healthy: pleg was last seen active 3m4.612899233s ago; threshold is 3m0s";
    assert_eq!(message("False", pleg, reached()).as_deref(), Some("PLEG is not healthy"));
    assert_eq!(message("Unknown", down, reached()), None);
    // kubernetes/kubernetes#127563
    let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                   message:Network plugin returns error: cni plugin not initialized";
    assert_eq!(message("False", network, reached()), None);
    assert_eq!(message("False", down, Reach::Unreached { since: Uptime::from_secs(1), error: String::new() }), None);
}
