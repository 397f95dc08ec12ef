//! What is observed of a kubelet, and what is reported then: how it ends, here; how it does not answer, in `probes`; how it does not reach
//! the API server, in `cut_off`; and what people have reported in public, in `field`. What is made of jobs and ends is tested with the service.

mod child;
mod cut_off;
mod field;
mod probes;

use std::time::Duration;

use jiff::Timestamp;

use super::state::{Kubelet, Observation};
use crate::condition::{ConditionType, Reason, Status, Uptime, View};
use crate::facts::{ApiFacts, LeaseFacts, NodeFacts, ObservedCondition, Reach, Renewal};
use crate::host::healthz::Probe;
use crate::host::oom::{OomKill, OomScope};
use crate::host::pressure::Pressure;
use crate::host::process::Sample;
use crate::host::systemd::{BusEvent, Dependency, JobKind, LastProcess, UnitState};
use crate::monitor::service::follow::ServiceEvent;
use crate::monitor::service::tests::{changed, exited, job, job_removed, opened, read, reports, running, unit};

const GRACE: Duration = Duration::from_mins(2);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What was seen, on a clock of its own.
struct Story {
    kubelet: Kubelet,
    api: ApiFacts,
    now: Uptime,
}

impl Story {
    fn new(state: UnitState) -> Self {
        let mut story = Self { kubelet: Kubelet::new(GRACE), api: ApiFacts::default(), now: Uptime::from_secs(1000) };
        story.happens(read("kubelet.service", state, None));
        story
    }

    /// A kubelet with pid 812 that started long ago and answers.
    fn healthy() -> Self {
        let mut story = Self::new(running(812));
        story.open(812, Uptime::ZERO);
        story.probe(812, Probe::Healthy);
        story.reports(Status::True, Reason::KubeletIsHealthy);
        story
    }

    fn happens(&mut self, event: ServiceEvent) {
        self.see(Observation::Service(event));
    }

    fn all(&mut self, events: impl IntoIterator<Item = ServiceEvent>) {
        for event in events {
            self.happens(event);
        }
    }

    fn open(&mut self, pid: i32, started: Uptime) {
        self.happens(opened(pid, "kubelet.service", started));
    }

    fn probe(&mut self, pid: i32, probe: Probe) {
        self.see(Observation::Probed(pid, probe, None));
    }

    fn see(&mut self, observation: Observation) {
        self.now += ms(1);
        self.kubelet.observe(observation, self.now);
        self.kubelet.service.settle(self.now);
    }

    /// Time passes.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.reach(Some(Uptime::ZERO));
        self.kubelet.service.settle(self.now);
    }

    /// The API server has answered since then, or does not.
    fn reach(&mut self, since: Option<Uptime>) {
        self.now += ms(1);
        self.api.reach = since.map_or(Reach::Untried, |since| Reach::Reached { since });
        self.kubelet.api_seen(&self.api, self.now);
    }

    /// The Node shows this status of `Ready`.
    fn ready(&mut self, status: &str) {
        let ready = ObservedCondition {
            kind: "Ready".into(),
            status: status.into(),
            reason: String::new(),
            message: String::new(),
            last_heartbeat: None,
            last_transition: None,
        };
        self.api.node = Some(NodeFacts { conditions: vec![ready], ..NodeFacts::default() });
        self.reach(Some(Uptime::ZERO));
    }

    /// Three probes of the process fail, each with a sample of it.
    fn fail(&mut self, pid: i32, probe: &Probe, sample: &Sample) {
        self.fail_under(pid, probe, sample, Pressure::default());
    }

    /// Three probes in a row fail while the host has this pressure.
    fn fail_under(&mut self, pid: i32, probe: &Probe, sample: &Sample, pressure: Pressure) {
        for _ in 0..3 {
            self.now += ms(800);
            self.see(Observation::Probed(pid, probe.clone(), Some(Sample { pressure, ..sample.clone() })));
        }
    }

    fn lease(&mut self, renewed: i64) {
        let renewed = Renewal(Timestamp::from_second(renewed).unwrap());
        let (duration, read_at) = (Duration::from_secs(40), self.now);
        self.now += ms(1);
        self.api.lease = Some(LeaseFacts { renewed, duration, read_at });
        self.kubelet.api_seen(&self.api, self.now);
    }

    #[track_caller]
    fn reports(&self, status: Status, reason: Reason) -> String {
        reports(self.kubelet.view(self.now), ConditionType::KubeletHealthy, status, reason)
    }

    #[track_caller]
    fn keeps_what_is_shown(&self) {
        let view = self.kubelet.view(self.now);
        assert!(matches!(view, Some(View::Unchanged(_))), "{view:?}");
    }
}

#[test]
fn a_killed_kubelet_has_crashed_until_another_one_answers() {
    let mut story = Story::healthy();
    story.happens(ServiceEvent::Exited(812));
    assert_eq!(story.kubelet.view(story.now), None, "systemd may be about to report why");
    story.happens(changed(unit("activating", 0, LastProcess { pid: 812, code: 2, status: 9 }, "signal")));
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 812 was killed by SIGKILL (9)");
    assert_eq!(story.kubelet.wants_last_error(), None, "what it logged explains no SIGKILL");
    story.happens(changed(running(900)));
    story.open(900, story.now);
    story.probe(900, Probe::Refused);
    assert_eq!(story.reports(Status::False, Reason::KubeletCrashed), message);
    story.probe(900, Probe::Healthy);
    assert_eq!(story.reports(Status::True, Reason::KubeletIsHealthy), "kubelet pid 900 answers on /healthz");
}

#[test]
fn a_stop_job_excuses_a_kubelet_that_still_answers() {
    let mut story = Story::healthy();
    story.all(job(JobKind::Stop));
    story.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
}

#[test]
fn a_planned_restart_keeps_what_is_shown_until_the_next_kubelet_answers_or_its_time_is_up() {
    let restarted = || {
        let mut story = Story::healthy();
        story.all(job(JobKind::Restart));
        story.happens(ServiceEvent::Exited(812));
        story.keeps_what_is_shown();
        story.all([changed(running(900)), job_removed("done")]);
        story.open(900, story.now);
        story.probe(900, Probe::Refused);
        story.keeps_what_is_shown();
        story
    };
    let mut answers = restarted();
    answers.probe(900, Probe::Healthy);
    answers.reports(Status::True, Reason::KubeletIsHealthy);
    let mut hangs = restarted();
    hangs.wait(GRACE);
    hangs.fail(900, &Probe::TimedOut, &Sample { state: 'T', ..Sample::default() });
    hangs.reports(Status::False, Reason::KubeletHung);
}

#[test]
fn a_crash_loop_and_the_last_error_are_named() {
    let mut story = Story::healthy();
    let end = |pid| changed(unit("activating", 0, exited(pid, 1), "exit-code"));
    story.all([ServiceEvent::Exited(812), end(812)]);
    story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(story.kubelet.wants_last_error(), Some("run of 812"));
    story.see(Observation::LastWords {
        invocation: "run of 812".into(),
        words: Some("its last error: unknown flag".into()),
    });
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 812 exited with code 1; its last error: unknown flag");
    story.all([end(900), end(901)]);
    let message = story.reports(Status::False, Reason::KubeletCrashLooping);
    assert_eq!(message, "the kubelet has ended 3 times within 5 minutes; kubelet pid 901 exited with code 1");
    story.happens(changed(unit("failed", 0, exited(901, 1), "start-limit-hit")));
    let message = story.reports(Status::False, Reason::KubeletCrashLooping);
    assert!(message.starts_with("systemd no longer restarts kubelet.service (start limit hit)"), "{message}");
    // Before there was a process, as in its ExecStartPre=.
    let failed = |result| Story::new(unit("failed", 0, LastProcess::default(), result));
    failed("exit-code").reports(Status::False, Reason::KubeletCrashed);
    failed("start-limit-hit").reports(Status::False, Reason::KubeletCrashLooping);
}

#[test]
fn an_oom_kill_is_reported_with_whose_memory_was_used_up() {
    let memory = OomScope::Limit(Some("/node/system.slice/kubelet.service".into()));
    let cgroup = Some("/node/system.slice/kubelet.service".to_owned());
    let mut story = Story::healthy();
    story.happens(ServiceEvent::OomKill(OomKill { pid: 4711, name: "kubelet".into(), cgroup, memory }));
    story.reports(Status::True, Reason::KubeletIsHealthy);
    story.happens(ServiceEvent::Exited(812));
    story.wait(ms(1000));
    let message = story.reports(Status::False, Reason::KubeletOOMKilled);
    assert_eq!(message, "the kubelet was OOM-killed (pid 812, limit of kubelet.service)");

    // By systemd alone, as with systemd-oomd, whose account comes before the end.
    let mut story = Story::healthy();
    let killed = LastProcess { pid: 812, code: 2, status: 9 };
    story.happens(ServiceEvent::Bus(BusEvent::Changed(unit("failed", 0, killed, "oom-kill"))));
    story.happens(ServiceEvent::Exited(812));
    let message = story.reports(Status::False, Reason::KubeletOOMKilled);
    assert_eq!(message, "the kubelet was OOM-killed (pid 812, Result=oom-kill of kubelet.service)");
}

#[test]
fn an_end_without_an_explanation_is_unexplained_and_a_kubelet_that_was_never_started_is_not_found() {
    let mut lost = Story::healthy();
    lost.happens(ServiceEvent::Bus(BusEvent::Lost));
    lost.happens(ServiceEvent::Exited(812));
    let view = lost.kubelet.view(lost.now);
    assert!(matches!(view, Some(View::Unexplained(_))), "{view:?}");
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    Story::new(never).reports(Status::Unknown, Reason::KubeletNotFound);
}

#[test]
fn restarts_in_quick_succession_flip_nothing_although_a_process_between_them_is_never_seen() {
    let mut story = Story::healthy();
    story.all(job(JobKind::Restart));
    story.happens(ServiceEvent::Exited(812));
    story.all([changed(unit("inactive", 0, exited(812, 0), "success")), changed(running(900)), job_removed("done")]);
    // The next job comes before the process could be opened.
    story.all(job(JobKind::Restart));
    let killed = LastProcess { pid: 900, code: 2, status: 15 };
    story.happens(changed(unit("inactive", 0, killed, "success")));
    story.happens(changed(running(901)));
    story.open(901, story.now);
    story.probe(901, Probe::Refused);
    story.keeps_what_is_shown();
    story.probe(901, Probe::Healthy);
    story.reports(Status::True, Reason::KubeletIsHealthy);
}
