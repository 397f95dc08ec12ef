//! What is observed of a kubelet, and what is reported then: how it ends, here; how it does not answer, in `silence`; and how it does not
//! reach the API server, in `stall`.

mod silence;
mod stall;

use std::time::Duration;

use jiff::Timestamp;

use super::{observation::Observation, state::Kubelet};
use crate::{
    condition::{Reason, Status, Uptime, View},
    host::{
        api::LeaseFacts,
        healthz::Probe,
        oom::{Memory, OomKill},
        pressure::Pressure,
        process::{Cgroup, ProcessId, Sample},
        systemd::{BusEvent, Dependency, JobKind, LastProcess, UnitState},
    },
};

const GRACE: Duration = Duration::from_mins(2);
const SIGKILL: LastProcess = LastProcess { pid: 812, code: 2, status: 9 };

fn ms(ms: u64) -> Uptime {
    Duration::from_millis(ms)
}

fn unit(active_state: &str, main_pid: i32, last: LastProcess, result: &str) -> UnitState {
    UnitState {
        load_state: "loaded".into(),
        active_state: active_state.into(),
        result: result.into(),
        main_pid,
        last,
        was_started: true,
        invocation: format!("run of {}", if main_pid == 0 { last.pid } else { main_pid }),
        ..UnitState::default()
    }
}

fn running(pid: i32) -> UnitState {
    unit("active", pid, LastProcess { pid, code: 0, status: 0 }, "success")
}

/// What was seen, on a clock of its own.
struct Story {
    kubelet: Kubelet,
    now: Uptime,
}

impl Story {
    /// A kubelet with pid 812 that started long ago and answers.
    fn healthy() -> Self {
        let mut story = Self { kubelet: Kubelet::new(GRACE), now: ms(1_000_000) };
        story.read(running(812), None);
        story.open(812, Duration::ZERO);
        story.see(Observation::Probed(812, Probe::Healthy));
        story.reports(Status::True, Reason::KubeletIsHealthy);
        story
    }

    fn read(&mut self, state: UnitState, job: Option<u32>) {
        self.see(Observation::Bus(BusEvent::Read {
            unit: "kubelet.service".into(),
            state,
            job,
            dependencies: Vec::new(),
        }));
    }

    fn changed(&mut self, state: UnitState) {
        self.see(Observation::Bus(BusEvent::Changed(state)));
    }

    fn job(&mut self, kind: JobKind) {
        self.job_event(JobKind::Unread);
        self.job_event(kind);
    }

    fn job_event(&mut self, kind: JobKind) {
        self.see(Observation::Bus(BusEvent::Job { id: 7, kind, dependencies: Vec::new() }));
    }

    fn open(&mut self, pid: i32, started: Uptime) {
        assert_eq!(self.kubelet.process_to_open(), Some(pid));
        let id = ProcessId { pid, start_ticks: 1 };
        let cgroup = Some(Cgroup { path: "/system.slice/kubelet.service".into(), is_relative: true });
        self.see(Observation::Opened { id, name: "kubelet".into(), cgroup, started });
    }

    fn see(&mut self, observation: Observation) {
        self.now += ms(1);
        self.kubelet.observe(observation, self.now);
    }

    /// Time passes.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.see(Observation::ApiReached(Some(Duration::ZERO)));
    }

    /// Three probes of 812 fail, each with a look at it.
    fn fail(&mut self, probe: &Probe, sample: &Sample) {
        for _ in 0..3 {
            self.now += ms(800);
            self.see(Observation::Probed(812, probe.clone()));
            self.see(Observation::Sampled(812, sample.clone(), Pressure::default()));
        }
    }

    fn lease(&mut self, renewed: i64) {
        let renewed = Timestamp::from_second(renewed).unwrap();
        let (duration, read_at) = (Duration::from_secs(40), self.now);
        self.see(Observation::Lease(LeaseFacts { renewed, duration, read_at }));
    }

    #[track_caller]
    fn reports(&self, status: Status, reason: Reason) -> String {
        let view = self.kubelet.view(self.now).expect("a view");
        let (found, message) = match view {
            View::Seen { healthy, findings } => match findings.into_iter().next() {
                Some(finding) => (finding.reason, finding.message),
                None => (Reason::KubeletIsHealthy, healthy),
            },
            View::CannotTell(finding) | View::Excused(finding) => (finding.reason, finding.message),
            other => panic!("{other:?}"),
        };
        assert_eq!((found, found.spec().status), (reason, status), "{message}");
        message
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
    story.see(Observation::Exited(812));
    assert_eq!(story.kubelet.view(story.now), None, "systemd may be about to say why");
    assert_eq!(story.kubelet.deadline(story.now), Some(story.now + ms(3)));
    story.changed(unit("activating", 0, SIGKILL, "signal"));
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 812 was killed by SIGKILL (9)");
    assert_eq!(story.kubelet.wants_last_error(), None, "what it logged explains no SIGKILL");
    story.job(JobKind::Restart); // systemd's own, by Restart=
    story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
    story.changed(running(900));
    story.open(900, story.now);
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 812 was killed by SIGKILL (9)");
    story.see(Observation::Probed(900, Probe::Healthy));
    assert_eq!(story.reports(Status::True, Reason::KubeletIsHealthy), "kubelet pid 900 answers on /healthz");
}

#[test]
fn an_end_counts_after_three_milliseconds_even_if_systemd_has_not_said_how_it_came() {
    let mut story = Story::healthy();
    story.see(Observation::Exited(812));
    story.wait(ms(3));
    assert_eq!(story.reports(Status::False, Reason::KubeletCrashed), "kubelet pid 812 has ended");
}

#[test]
fn a_stop_job_excuses_the_end_however_late_it_is_seen() {
    let mut before = Story::healthy();
    before.job(JobKind::Stop);
    before.see(Observation::Exited(812));
    before.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
    before.changed(unit("inactive", 0, LastProcess { pid: 812, code: 1, status: 0 }, "success"));
    before.reports(Status::Unknown, Reason::KubeletStoppedByOperator);

    let mut unread = Story::healthy();
    unread.job_event(JobKind::Unread);
    unread.see(Observation::Exited(812));
    unread.wait(ms(500));
    assert_eq!(unread.kubelet.view(unread.now), None, "the kind of the job is awaited");
    unread.job_event(JobKind::Stop);
    unread.reports(Status::Unknown, Reason::KubeletStoppedByOperator);

    let mut dead = Story::healthy();
    dead.see(Observation::Exited(812));
    dead.wait(ms(3));
    dead.reports(Status::False, Reason::KubeletCrashed);
    dead.job(JobKind::Stop);
    dead.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
    dead.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
}

#[test]
fn a_stop_job_that_is_over_before_its_kind_is_read_makes_no_crash() {
    let ended = |status| LastProcess { pid: 812, code: 1, status };
    let end_with = |state: UnitState| {
        let mut story = Story::healthy();
        story.job_event(JobKind::Unread);
        story.see(Observation::Exited(812));
        story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
        story.changed(state);
        story
    };
    let view = |story: &Story| story.kubelet.view(story.now);
    let clean = end_with(unit("inactive", 0, ended(0), "success"));
    assert!(matches!(view(&clean), Some(View::Unexplained(_))), "{:?}", view(&clean));
    end_with(unit("failed", 0, SIGKILL, "signal")).reports(Status::False, Reason::KubeletCrashed);

    // systemd was stopping it, so it did not end by itself, whatever its exit code.
    let mut stopping = Story::healthy();
    stopping.changed(UnitState { sub_state: "stop-sigterm".into(), ..running(812) });
    stopping.see(Observation::Exited(812));
    stopping.changed(unit("failed", 0, ended(1), "exit-code"));
    stopping.wait(ms(3));
    assert!(matches!(view(&stopping), Some(View::Unexplained(_))), "{:?}", view(&stopping));
}

#[test]
fn a_stop_while_systemd_waits_to_restart_it_is_a_stop() {
    let mut story = Story::healthy();
    story.see(Observation::Exited(812));
    let waiting = UnitState { sub_state: "auto-restart".into(), ..unit("activating", 0, SIGKILL, "signal") };
    story.changed(waiting);
    story.reports(Status::False, Reason::KubeletCrashed);
    // The job is over before its kind can be read.
    story.job_event(JobKind::Unread);
    story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
    story.changed(unit("inactive", 0, SIGKILL, "signal"));
    story.reports(Status::False, Reason::KubeletCrashed);
    story.wait(Duration::from_secs(1));
    story.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
    // A later start that fails before there is a process is nobody's will.
    let state = unit("failed", 0, SIGKILL, "exit-code");
    story.changed(UnitState { invocation: "another run".into(), ..state });
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn a_start_job_does_not_explain_the_end_of_the_process_that_it_started() {
    let mut story = Story::healthy();
    story.job(JobKind::Restart);
    story.see(Observation::Exited(812));
    // Type=notify: the job stays until the process is ready.
    story.changed(unit("activating", 900, LastProcess { pid: 900, code: 0, status: 0 }, "success"));
    story.open(900, story.now);
    story.see(Observation::Exited(900));
    story.changed(unit("activating", 0, LastProcess { pid: 900, code: 1, status: 1 }, "exit-code"));
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn an_end_is_reported_even_if_the_next_kubelet_is_seen_before_it() {
    let mut story = Story::healthy();
    story.job(JobKind::Restart);
    story.changed(UnitState { restarts: 1, ..running(900) });
    story.open(900, story.now);
    assert_eq!(story.reports(Status::False, Reason::KubeletCrashed), "kubelet pid 812 has ended");
}

#[test]
fn a_start_that_is_never_ready_is_judged_after_its_grace() {
    let mut story = Story::healthy();
    story.job(JobKind::Restart);
    story.see(Observation::Exited(812));
    story.changed(unit("activating", 812, LastProcess { pid: 812, code: 0, status: 0 }, "success"));
    story.changed(unit("activating", 900, LastProcess { pid: 900, code: 0, status: 0 }, "success"));
    story.open(900, story.now);
    story.keeps_what_is_shown();
    story.wait(GRACE);
    let sample = || Sample { state: 'T', ..Sample::default() };
    for _ in 0..3 {
        story.see(Observation::Probed(900, Probe::TimedOut));
        story.see(Observation::Sampled(900, sample(), Pressure::default()));
    }
    story.reports(Status::False, Reason::KubeletHung);
}

#[test]
fn a_restart_that_fails_before_there_is_a_process_is_no_stop() {
    let mut story = Story::healthy();
    story.see(Observation::Exited(812));
    let waiting = UnitState { sub_state: "auto-restart".into(), ..unit("activating", 0, SIGKILL, "signal") };
    story.changed(waiting);
    story.job(JobKind::Restart);
    story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "dependency".into() }));
    story.changed(unit("inactive", 0, SIGKILL, "signal"));
    story.wait(Duration::from_secs(2));
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn the_end_of_a_process_whose_children_systemd_then_stops_is_its_own() {
    let mut story = Story::healthy();
    story.changed(UnitState { sub_state: "stop-sigterm".into(), ..unit("deactivating", 0, SIGKILL, "signal") });
    story.see(Observation::Exited(812));
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn an_oom_kill_counts_while_systemd_cannot_be_asked() {
    let mut story = Story::healthy();
    story.see(Observation::Bus(BusEvent::Lost));
    let cgroup = Some("/node/system.slice/kubelet.service".to_owned());
    story.see(Observation::OomKill(OomKill { pid: 1, name: "kubelet".into(), cgroup, memory: Memory::Host }));
    story.see(Observation::Exited(812));
    story.reports(Status::False, Reason::KubeletOOMKilled);
}

#[test]
fn an_end_while_systemd_could_not_be_asked_counts_when_it_can() {
    let mut story = Story::healthy();
    story.see(Observation::Bus(BusEvent::Lost));
    story.see(Observation::Exited(812));
    story.read(unit("failed", 0, SIGKILL, "signal"), None);
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn a_process_that_cannot_be_watched_is_named() {
    let mut story = Story { kubelet: Kubelet::new(GRACE), now: ms(1_000_000) };
    story.read(running(812), None);
    story.see(Observation::Unwatchable("Too many open files".into()));
    let message = story.reports(Status::Unknown, Reason::KubeletNotFound);
    assert_eq!(message, "kubelet pid 812 cannot be watched: Too many open files");
    story.open(812, Duration::ZERO);
    story.see(Observation::Probed(812, Probe::Healthy));
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn while_others_send_signals_systemds_are_awaited_for_longer() {
    let mut story = Story::healthy();
    story.see(Observation::Bus(BusEvent::ForeignSignal));
    story.see(Observation::Exited(812));
    story.wait(ms(900));
    assert_eq!(story.kubelet.view(story.now), None);
    story.wait(ms(100));
    story.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn a_planned_restart_keeps_what_is_shown_until_the_next_one_answers() {
    for kind in [JobKind::Restart, JobKind::Start] {
        let mut story = Story::healthy();
        story.job_event(JobKind::Unread);
        story.see(Observation::Exited(812));
        // Read late, a restart job is a start job already.
        story.job_event(kind);
        story.keeps_what_is_shown();
        // Some versions of the kubelet end with an error on SIGTERM.
        story.changed(unit("failed", 0, LastProcess { pid: 812, code: 1, status: 1 }, "exit-code"));
        story.keeps_what_is_shown();
        story.changed(running(900));
        story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
        story.keeps_what_is_shown();
        story.open(900, story.now);
        story.keeps_what_is_shown();
        story.see(Observation::Probed(900, Probe::Refused));
        story.keeps_what_is_shown();
        story.see(Observation::Probed(900, Probe::Healthy));
        story.reports(Status::True, Reason::KubeletIsHealthy);
    }
}

#[test]
fn a_restart_into_a_failure_is_a_crash_though_its_process_was_never_opened() {
    let mut story = Story::healthy();
    story.job(JobKind::Restart);
    story.see(Observation::Exited(812));
    story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
    story.changed(unit("activating", 0, LastProcess { pid: 900, code: 1, status: 1 }, "exit-code"));
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 900 exited with code 1");
    assert_eq!(story.kubelet.wants_last_error(), Some("run of 900"));
    story.see(Observation::LastError { invocation: "run of 900".into(), line: Some("unknown flag".into()) });
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert_eq!(message, "kubelet pid 900 exited with code 1; its last error: unknown flag");
    for pid in [901, 902] {
        story.changed(unit("activating", 0, LastProcess { pid, code: 1, status: 1 }, "exit-code"));
    }
    let message = story.reports(Status::False, Reason::KubeletCrashLooping);
    assert_eq!(message, "the kubelet has ended 3 times within 5 minutes; kubelet pid 902 exited with code 1");
    story.changed(unit("failed", 0, LastProcess { pid: 902, code: 1, status: 1 }, "start-limit-hit"));
    let message = story.reports(Status::False, Reason::KubeletCrashLooping);
    assert!(message.starts_with("systemd no longer restarts kubelet.service (start limit hit)"), "{message}");
}

#[test]
fn an_end_that_was_not_watched_counts_by_its_result() {
    let at_start = |state: UnitState| {
        let mut story = Story { kubelet: Kubelet::new(GRACE), now: ms(1_000_000) };
        story.read(state, None);
        story
    };
    at_start(unit("failed", 0, SIGKILL, "signal")).reports(Status::False, Reason::KubeletCrashed);
    let ended = LastProcess { pid: 812, code: 1, status: 0 };
    let clean = at_start(unit("inactive", 0, ended, "success")).kubelet.view(ms(1_000_001));
    assert!(matches!(clean, Some(View::Unexplained(_))), "{clean:?}");
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    at_start(never).reports(Status::Unknown, Reason::KubeletNotFound);
    let none = UnitState { load_state: "not-found".into(), ..UnitState::default() };
    at_start(none).reports(Status::Unknown, Reason::KubeletNotFound);

    let mut restarting = Story { kubelet: Kubelet::new(GRACE), now: ms(1_000_000) };
    restarting.read(unit("failed", 0, SIGKILL, "signal"), Some(7));
    assert_eq!(restarting.kubelet.view(restarting.now), None, "the kind of the job is awaited");
    restarting.job_event(JobKind::Start);
    restarting.keeps_what_is_shown();

    let mut lost = Story::healthy();
    lost.see(Observation::Bus(BusEvent::Lost));
    lost.see(Observation::Exited(812));
    let view = lost.kubelet.view(lost.now);
    assert!(matches!(view, Some(View::Unexplained(_))), "{view:?}");
}

#[test]
fn an_oom_kill_is_attributed_before_and_after_the_end() {
    let kill = || OomKill {
        pid: 4711,
        name: "kubelet".into(),
        cgroup: Some("/node/system.slice/kubelet.service".into()),
        memory: Memory::Limit(Some("/node/system.slice/kubelet.service".into())),
    };
    let mut before = Story::healthy();
    before.see(Observation::OomKill(kill()));
    before.reports(Status::True, Reason::KubeletIsHealthy);
    before.see(Observation::Exited(812));
    before.wait(ms(3));
    let message = before.reports(Status::False, Reason::KubeletOOMKilled);
    assert_eq!(message, "the kubelet was OOM-killed (pid 812, limit of kubelet.service)");

    let mut after = Story::healthy();
    after.see(Observation::Exited(812));
    after.wait(ms(3));
    after.reports(Status::False, Reason::KubeletCrashed);
    after.see(Observation::OomKill(kill()));
    after.reports(Status::False, Reason::KubeletOOMKilled);

    let mut late = Story::healthy();
    late.see(Observation::OomKill(kill()));
    late.wait(Duration::from_secs(11));
    late.see(Observation::Exited(812));
    late.wait(ms(3));
    late.reports(Status::False, Reason::KubeletCrashed);
}

#[test]
fn a_kubelet_that_was_stopped_with_a_failed_service_is_a_problem_when_that_is_back_for_two_minutes() {
    let containerd = |active_state: &str, result: &str| {
        vec![Dependency { unit: "containerd.service".into(), active_state: active_state.into(), result: result.into() }]
    };
    let stopped = |dependencies: Vec<Dependency>| {
        let mut story = Story::healthy();
        story.job_event(JobKind::Unread);
        story.see(Observation::Bus(BusEvent::Job { id: 7, kind: JobKind::Stop, dependencies }));
        story.see(Observation::Exited(812));
        story.see(Observation::Bus(BusEvent::JobRemoved { id: 7, result: "done".into() }));
        story
    };
    let mut story = stopped(containerd("activating", "signal"));
    story.reports(Status::Unknown, Reason::KubeletNotFound);
    let inactive = unit("inactive", 0, LastProcess { pid: 812, code: 1, status: 0 }, "success");
    for secs in [0, 60, 59] {
        story.now += Duration::from_secs(secs);
        story.reports(Status::Unknown, Reason::KubeletNotFound);
        let (unit, dependencies) = ("kubelet.service".to_owned(), containerd("active", "success"));
        story.see(Observation::Bus(BusEvent::Read { unit, state: inactive.clone(), job: None, dependencies }));
    }
    story.now += Duration::from_secs(1);
    let message = story.reports(Status::False, Reason::KubeletStoppedWithDependency);
    let wanted = "systemd stopped kubelet.service because containerd.service failed, and has not started it again";
    assert_eq!(message, format!("{wanted}: systemctl start kubelet.service"));
    story.job(JobKind::Stop);
    story.reports(Status::Unknown, Reason::KubeletStoppedByOperator);

    let by_operator = stopped(containerd("deactivating", "success"));
    by_operator.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
}
