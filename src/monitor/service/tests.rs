//! What systemd, the kernel and a pidfd report of a service, and what is made of it.

use std::time::Duration;

use super::Service;
use super::ended::Run;
use super::follow::ServiceEvent;
use super::judgement::Judgement;
use crate::condition::{ConditionType, Reason, Status, Uptime, View};
use crate::host::oom::{OomKill, OomScope};
use crate::host::process::{Cgroup, ProcessId};
use crate::host::systemd::{BusEvent, Dependency, JobKind, LastProcess, UnitState};

const GRACE: Duration = Duration::from_mins(2);
const SIGKILL: LastProcess = LastProcess { pid: 812, code: 2, status: 9 };
const KILLED: &str = "was killed by SIGKILL (9)";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn unit(active_state: &str, main_pid: i32, last: LastProcess, result: &str) -> UnitState {
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

pub fn running(pid: i32) -> UnitState {
    unit("active", pid, LastProcess { pid, code: 0, status: 0 }, "success")
}

pub fn exited(pid: i32, status: i32) -> LastProcess {
    LastProcess { pid, code: 1, status }
}

/// The main process of this unit was opened.
pub fn opened(pid: i32, unit: &str, started: Uptime) -> ServiceEvent {
    let name = unit.trim_end_matches(".service").to_owned();
    let cgroup = Some(Cgroup { path: format!("/system.slice/{unit}"), is_relative: true });
    ServiceEvent::Opened(ProcessId { pid, start_ticks: 1 }, Run { pid, name, cgroup, ..Run::default() }, started)
}

pub fn read(unit: &str, state: UnitState, job: Option<u32>) -> ServiceEvent {
    ServiceEvent::Bus(BusEvent::Read { unit: unit.to_owned(), state, job, dependencies: Vec::new() })
}

pub fn changed(state: UnitState) -> ServiceEvent {
    ServiceEvent::Bus(BusEvent::Changed(state))
}

/// The unit has got a job, whose kind is read after that.
pub fn job(kind: JobKind) -> [ServiceEvent; 2] {
    [JobKind::Unread, kind].map(|kind| ServiceEvent::Bus(BusEvent::Job { id: 7, kind, dependencies: Vec::new() }))
}

pub fn job_removed(result: &str) -> ServiceEvent {
    ServiceEvent::Bus(BusEvent::JobRemoved { id: 7, result: result.into() })
}

/// Asserts what a view of this condition shows; returns the message.
#[track_caller]
pub fn reports(view: Option<View>, kind: ConditionType, status: Status, reason: Reason) -> String {
    let (found, message) = match view.expect("a view") {
        View::Seen { healthy, findings } => match findings.into_iter().next() {
            Some(finding) => (finding.reason, finding.message),
            None => (Reason::healthy(kind), healthy),
        },
        View::Unknown(finding) | View::Excused(finding) => (finding.reason, finding.message),
        other => panic!("{other:?}"),
    };
    assert_eq!((found, found.spec().status), (reason, status), "{message}");
    message
}

/// What has happened, on a clock of its own.
struct Story {
    service: Service,
    has_answered: bool,
    now: Uptime,
}

impl Story {
    fn new(state: UnitState, job: Option<u32>) -> Self {
        let (service, now) = (Service::new("a unit", GRACE), Uptime::from_secs(1000));
        let mut story = Self { service, has_answered: false, now };
        story.see(read("kubelet.service", state, job));
        story
    }

    /// A service with main process 812 that started long ago and has answered.
    fn healthy() -> Self {
        let mut story = Self::new(running(812), None);
        story.open(812, Uptime::ZERO);
        story.answers();
        story.is("runs");
        story
    }

    fn see(&mut self, event: ServiceEvent) {
        self.now += ms(1);
        self.service.observe(event, self.now);
    }

    fn all(&mut self, events: impl IntoIterator<Item = ServiceEvent>) {
        for event in events {
            self.see(event);
        }
    }

    fn open(&mut self, pid: i32, started: Uptime) {
        assert_eq!(self.service.process_to_open(), Some(pid));
        self.has_answered = false;
        self.see(opened(pid, "kubelet.service", started));
    }

    fn answers(&mut self) {
        self.has_answered = true;
        self.service.answered();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.service.settle(self.now);
    }

    /// What it is judged to be: of an end how it came, of what was not found why.
    #[track_caller]
    fn is(&self, wanted: &str) {
        let judged = match self.service.judge(self.has_answered, self.now) {
            Judgement::Undecided => "undecided".to_owned(),
            Judgement::Runs => "runs".to_owned(),
            Judgement::Stopped(_) => "stopped".to_owned(),
            Judgement::Restarting(_) => "restarting".to_owned(),
            Judgement::Starting(_) => "starting".to_owned(),
            Judgement::Ended(ended) => ended.oom_killed(&self.service.name).unwrap_or_else(|| ended.how()),
            Judgement::UnitFailed(_) => "unit failed".to_owned(),
            Judgement::LeftStopped(_) => "left stopped".to_owned(),
            Judgement::StoppedWithDependency(_) => "stopped with a dependency".to_owned(),
            Judgement::Unexplained(_) => "unexplained".to_owned(),
            Judgement::NotFound(why) => why,
        };
        assert_eq!(judged, wanted);
    }
}

#[test]
fn a_killed_process_has_crashed_until_another_one_answers() {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    story.is("undecided");
    assert_eq!(story.service.deadline(story.now), Some(story.now + ms(1000)), "systemd may be about to report why");
    story.see(changed(unit("activating", 0, SIGKILL, "signal")));
    story.is(KILLED);
    story.all(job(JobKind::Restart)); // systemd's own, by Restart=
    story.see(job_removed("done"));
    story.see(changed(running(900)));
    story.open(900, story.now);
    story.is(KILLED);
    story.answers();
    story.is("runs");
}

#[test]
fn an_end_counts_after_a_second_even_if_systemd_has_not_reported_its_cause() {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    story.wait(ms(999));
    story.is("undecided");
    story.wait(ms(1));
    story.is("has ended");
}

/// Of a unit with `Restart=always`.
fn ends_cleanly(sub_state: &str, active_state: &str) -> Story {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    // systemd signals the properties of the service before those of the unit.
    story.see(changed(unit("active", 0, exited(812, 0), "success")));
    story.is("undecided");
    let state = unit(active_state, 0, exited(812, 0), "success");
    story.see(changed(UnitState { sub_state: sub_state.into(), restart: "always".into(), ..state }));
    story
}

#[test]
fn a_clean_end_that_systemd_follows_with_a_restart_is_planned_until_the_start_takes_too_long() {
    let mut story = ends_cleanly("dead", "inactive");
    story.see(changed(UnitState {
        sub_state: "auto-restart".into(),
        ..unit("activating", 0, exited(812, 0), "success")
    }));
    story.is("restarting");
    story.all(job(JobKind::Restart)); // systemd's own
    story.see(changed(UnitState { restarts: 1, ..running(900) }));
    story.open(900, story.now);
    story.is("restarting");
    story.wait(GRACE);
    story.is("runs");

    // SIGHUP is a clean end too, and systemd 254 and later pass through another state.
    let mut signalled = Story::healthy();
    let hangup = LastProcess { pid: 812, code: 2, status: 1 };
    let state = unit("inactive", 0, hangup, "success");
    signalled.see(changed(UnitState { sub_state: "dead-before-auto-restart".into(), ..state }));
    signalled.see(ServiceEvent::Exited(812));
    signalled.is("restarting");
}

#[test]
fn what_is_left_of_the_unit_may_end_before_systemd_follows_a_clean_end() {
    let mut story = ends_cleanly("stop-sigterm", "deactivating");
    story.wait(Duration::from_secs(9));
    story.is("undecided");
    story.see(changed(UnitState {
        sub_state: "auto-restart".into(),
        ..unit("activating", 0, exited(812, 0), "success")
    }));
    story.is("restarting");

    // A child in the cgroup may take as long as TimeoutStopSec=, and then systemd follows.
    let mut slow = ends_cleanly("stop-sigterm", "deactivating");
    slow.wait(Duration::from_secs(10));
    slow.is("unexplained");
    slow.see(changed(UnitState {
        sub_state: "auto-restart".into(),
        restart: "always".into(),
        ..unit("activating", 0, exited(812, 0), "success")
    }));
    slow.is("restarting");
}

#[test]
fn a_clean_end_that_nothing_follows_is_shown_at_once_unless_the_unit_would_have_been_restarted() {
    let mut never = Story::healthy();
    never.see(ServiceEvent::Exited(812));
    never.see(changed(UnitState { restart: "on-failure".into(), ..unit("inactive", 0, exited(812, 0), "success") }));
    never.is("exited with code 0");

    // systemd restarts such a unit always, except after a stop job, whose signal we have missed.
    let mut stopped = ends_cleanly("dead", "inactive");
    stopped.is("undecided");
    stopped.wait(Duration::from_secs(1));
    stopped.is("stopped");
}

#[test]
fn three_clean_ends_within_five_minutes_are_a_loop() {
    let mut story = Story::healthy();
    for (restarts, pid) in [(1, 812), (2, 900), (3, 901)] {
        story.see(ServiceEvent::Exited(pid));
        let state = unit("activating", 0, exited(pid, 0), "success");
        story.see(changed(UnitState { sub_state: "auto-restart".into(), restarts: restarts - 1, ..state }));
        story.is(if restarts == 3 { "exited with code 0" } else { "restarting" });
        let next = i32::try_from(restarts).unwrap() + 899;
        story.see(changed(UnitState { restarts, ..running(next) }));
        story.open(next, story.now);
        story.is("restarting");
        story.answers();
    }
    assert_eq!(story.service.ends.loop_at(story.now), Some((3, Duration::from_mins(5))));
}

#[test]
fn the_result_of_a_later_start_is_not_that_of_the_end() {
    let mut story = ends_cleanly("auto-restart", "activating");
    let failed = unit("activating", 0, exited(812, 0), "exit-code"); // its ExecStartPre=
    let (sub_state, invocation) = ("auto-restart".to_owned(), "another run".to_owned());
    story.see(changed(UnitState { sub_state, invocation, restarts: 1, ..failed }));
    story.is("restarting");
}

#[test]
fn an_account_that_comes_before_the_pidfd_and_the_next_process_is_kept() {
    let mut story = Story::healthy();
    story.see(changed(unit("activating", 0, SIGKILL, "signal")));
    story.see(changed(UnitState { restarts: 1, restart: "always".into(), ..running(900) }));
    story.open(900, story.now);
    story.is(KILLED);
}

#[test]
fn of_another_unit_nothing_is_known_that_holds_for_the_one_before() {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    story.see(changed(unit("failed", 0, SIGKILL, "signal")));
    story.is(KILLED);
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    story.see(read("k3s.service", never, None));
    story.is("k3s.service has not been started since boot");
}

#[test]
fn each_run_has_its_own_id_although_systemd_signals_the_process_before_it() {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    let former = unit("active", 900, SIGKILL, "success");
    story.see(changed(UnitState { invocation: "run of 812".into(), ..former }));
    story.open(900, story.now);
    story.see(changed(running(900)));
    story.see(ServiceEvent::Exited(900));
    assert_eq!(story.service.last_end.as_ref().unwrap().run.invocation, "run of 900");
}

#[test]
fn a_stop_job_excuses_the_end_however_late_it_is_read() {
    let mut before = Story::healthy();
    before.all(job(JobKind::Stop));
    before.is("stopped");
    before.see(ServiceEvent::Exited(812));
    before.see(job_removed("done"));
    before.see(changed(unit("inactive", 0, exited(812, 0), "success")));
    before.is("stopped");

    let [queued, read] = job(JobKind::Stop);
    let mut unread = Story::healthy();
    unread.see(queued);
    unread.see(ServiceEvent::Exited(812));
    unread.wait(ms(500));
    unread.is("undecided");
    unread.see(read);
    unread.is("stopped");

    let mut dead = Story::healthy();
    dead.see(ServiceEvent::Exited(812));
    dead.wait(ms(1000));
    dead.is("has ended");
    dead.all(job(JobKind::Stop));
    dead.see(job_removed("done"));
    dead.is("stopped");
}

#[test]
fn a_stop_job_that_is_over_before_its_kind_is_read_is_no_crash() {
    let end_with = |state: UnitState| {
        let [queued, _] = job(JobKind::Stop);
        let mut story = Story::healthy();
        story.all([queued, ServiceEvent::Exited(812), job_removed("done"), changed(state)]);
        story
    };
    end_with(unit("inactive", 0, exited(812, 0), "success")).is("unexplained");
    end_with(unit("failed", 0, SIGKILL, "signal")).is(KILLED);

    // systemd was stopping it, so this is no crash, whatever its exit code.
    let mut stopping = Story::healthy();
    stopping.see(changed(UnitState { sub_state: "stop-sigterm".into(), ..running(812) }));
    stopping.see(ServiceEvent::Exited(812));
    stopping.see(changed(unit("failed", 0, exited(812, 1), "exit-code")));
    stopping.wait(ms(1000));
    stopping.is("unexplained");

    // Its children alone are stopped, after its end.
    let mut children = Story::healthy();
    children.see(changed(UnitState { sub_state: "stop-sigterm".into(), ..unit("deactivating", 0, SIGKILL, "signal") }));
    children.see(ServiceEvent::Exited(812));
    children.is(KILLED);
}

/// A service that was killed, and that systemd waits to restart.
fn waits_for_restart() -> Story {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Exited(812));
    story.see(changed(UnitState { sub_state: "auto-restart".into(), ..unit("activating", 0, SIGKILL, "signal") }));
    story.is(KILLED);
    story
}

#[test]
fn a_stop_while_systemd_ends_by_itself_it_is_a_stop() {
    let mut story = waits_for_restart();
    // The job is over before its kind can be read.
    let [queued, _] = job(JobKind::Stop);
    story.all([queued, job_removed("done"), changed(unit("inactive", 0, SIGKILL, "signal"))]);
    story.is(KILLED);
    story.wait(Duration::from_secs(1));
    story.is("stopped");
    assert_eq!(story.service.ends.loop_at(story.now), None);
    // The unit is read each minute, and is started one day.
    story.see(ServiceEvent::Bus(BusEvent::Reading));
    story.is("stopped");
    story.see(read("kubelet.service", unit("inactive", 0, SIGKILL, "signal"), None));
    let [queued, _] = job(JobKind::Start);
    story.see(queued);
    story.is("stopped");
    story.see(job_removed("done"));
    // A later start that fails before there is a process is not intended.
    let state = unit("failed", 0, SIGKILL, "exit-code");
    story.see(changed(UnitState { invocation: "another run".into(), ..state }));
    story.is(KILLED);

    let mut failed = waits_for_restart();
    failed.all(job(JobKind::Restart));
    failed.see(job_removed("dependency"));
    failed.see(changed(unit("inactive", 0, SIGKILL, "signal")));
    failed.wait(Duration::from_secs(2));
    failed.is(KILLED);
}

#[test]
fn a_planned_restart_is_one_until_the_next_process_answers_or_its_time_is_up() {
    for kind in [JobKind::Restart, JobKind::Start] {
        // Read late, a restart job is a start job already.
        let [queued, read] = job(kind);
        let mut story = Story::healthy();
        story.all([queued, ServiceEvent::Exited(812), read]);
        story.is("restarting");
        // Some programs end with an error on SIGTERM.
        story.see(changed(unit("failed", 0, exited(812, 1), "exit-code")));
        story.is("restarting");
        story.see(changed(running(900)));
        story.see(job_removed("done"));
        story.is("restarting");
        story.open(900, story.now);
        story.is("restarting");
        story.wait(GRACE);
        story.is("runs");
    }
}

#[test]
fn a_start_job_does_not_explain_the_end_of_the_process_that_it_started() {
    let mut story = Story::healthy();
    story.all(job(JobKind::Restart));
    story.see(ServiceEvent::Exited(812));
    // Type=notify: the job stays until the process is ready.
    story.see(changed(unit("activating", 900, LastProcess { pid: 900, code: 0, status: 0 }, "success")));
    story.open(900, story.now);
    story.see(ServiceEvent::Exited(900));
    story.see(changed(unit("activating", 0, exited(900, 1), "exit-code")));
    story.is("exited with code 1");
}

#[test]
fn an_end_is_judged_even_if_the_next_process_is_seen_before_it() {
    for (restart, wanted) in [("on-failure", "has ended"), ("always", "restarting")] {
        let mut story = Story::healthy();
        story.all(job(JobKind::Restart));
        story.see(changed(UnitState { restarts: 1, restart: restart.into(), ..running(900) }));
        story.open(900, story.now);
        story.is(wanted);
    }
}

#[test]
fn ends_of_processes_that_were_never_opened_count_by_their_result() {
    let mut story = Story::healthy();
    story.all(job(JobKind::Restart));
    story.see(ServiceEvent::Exited(812));
    story.see(job_removed("done"));
    for pid in 900..903 {
        assert_eq!(story.service.ends.loop_at(story.now), None);
        story.see(changed(unit("activating", 0, exited(pid, 1), "exit-code")));
        story.is("exited with code 1");
    }
    assert_eq!(story.service.ends.loop_at(story.now), Some((3, Duration::from_mins(5))));

    let at_start = |state: UnitState| Story::new(state, None);
    at_start(unit("failed", 0, SIGKILL, "signal")).is(KILLED);
    at_start(unit("inactive", 0, exited(812, 0), "success")).is("unexplained");
    at_start(unit("failed", 0, LastProcess::default(), "exit-code")).is("unit failed");
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    at_start(never).is("kubelet.service has not been started since boot");
    let none = UnitState { load_state: "not-found".into(), ..UnitState::default() };
    at_start(none).is("kubelet.service is not installed");
    let masked = UnitState { load_state: "masked".into(), ..UnitState::default() };
    at_start(masked).is("kubelet.service is masked, so systemd does not start it: systemctl unmask kubelet.service");

    let mut restarting = Story::new(unit("failed", 0, SIGKILL, "signal"), Some(7));
    restarting.is("undecided");
    restarting.all(job(JobKind::Start));
    restarting.is("restarting");
}

#[test]
fn a_process_that_is_started_before_the_kind_of_its_job_is_read_was_restarted() {
    for is_removed_first in [false, true] {
        let mut story = Story::new(unit("inactive", 0, exited(812, 0), "success"), Some(7));
        story.is("undecided");
        if is_removed_first {
            story.see(job_removed("done"));
        }
        story.see(changed(running(900)));
        story.open(900, story.now);
        story.is("restarting");
    }
    let mut crashed = Story::new(unit("activating", 0, SIGKILL, "signal"), Some(7));
    crashed.see(changed(UnitState { restarts: 1, ..running(900) }));
    crashed.open(900, crashed.now);
    crashed.is(KILLED);
}

/// As `life::planned_restart` shows in a virtual machine: a second restart ends a process before the agent has opened it.
#[test]
fn a_clean_end_of_unknown_cause_that_a_process_follows_keeps_what_is_shown() {
    for (last, result, wanted) in
        [(exited(900, 0), "success", "restarting"), (exited(900, 1), "exit-code", "exited with code 1")]
    {
        let mut story = Story::healthy();
        story.all(job(JobKind::Restart));
        story.see(ServiceEvent::Exited(812));
        story.see(job_removed("done"));
        story.see(changed(unit("active", 901, last, result)));
        story.open(901, story.now);
        story.is(wanted);
    }
}

#[test]
fn while_systemd_cannot_be_asked_an_end_is_unexplained_but_for_an_oom_kill() {
    let mut story = Story::healthy();
    story.see(ServiceEvent::Bus(BusEvent::Lost));
    story.see(ServiceEvent::Exited(812));
    story.is("unexplained");
    story.see(read("kubelet.service", unit("failed", 0, SIGKILL, "signal"), None));
    story.is(KILLED);

    let mut killed = Story::healthy();
    killed.see(ServiceEvent::Bus(BusEvent::Lost));
    killed.see(ServiceEvent::OomKill(oom_kill(OomScope::Host)));
    killed.see(ServiceEvent::Exited(812));
    killed.is("was OOM-killed (pid 812, the host was out of memory)");
}

fn oom_kill(memory: OomScope) -> OomKill {
    let cgroup = Some("/node/system.slice/kubelet.service".to_owned());
    OomKill { pid: 4711, name: "kubelet".into(), cgroup, memory }
}

#[test]
fn an_oom_kill_is_attributed_before_and_after_the_end_and_not_long_before() {
    let kill = || {
        let limit = OomScope::Limit(Some("/node/system.slice/kubelet.service".into()));
        ServiceEvent::OomKill(oom_kill(limit))
    };
    let killed = "was OOM-killed (pid 812, limit of kubelet.service)";
    let mut before = Story::healthy();
    before.see(kill());
    before.is("runs");
    before.see(ServiceEvent::Exited(812));
    before.wait(ms(1000));
    before.is(killed);

    let mut after = Story::healthy();
    after.see(ServiceEvent::Exited(812));
    after.wait(ms(1000));
    after.is("has ended");
    after.see(kill());
    after.is(killed);

    let mut late = Story::healthy();
    late.see(kill());
    late.wait(Duration::from_secs(11));
    late.see(ServiceEvent::Exited(812));
    late.wait(ms(1000));
    late.is("has ended");
}

/// <https://github.com/m-lab/k8s-support/issues/520>: an upgrade stopped the runtime, and its scripts did not start it again.
#[test]
fn a_service_that_an_upgrade_replaces_and_leaves_stopped_is_a_problem_after_ten_minutes() {
    let stopped = |file_state: &str| {
        let mut story = Story::healthy();
        story.all(job(JobKind::Stop));
        story.see(ServiceEvent::Exited(812));
        let last = LastProcess { pid: 812, code: 2, status: 15 };
        let inactive = unit("inactive", 0, last, "success");
        story.see(changed(UnitState { file_state: file_state.into(), ..inactive }));
        story.see(job_removed("done"));
        story
    };
    let read = |story: &mut Story, is_locked, is_replaced| {
        assert_eq!(story.service.wants_upgrade(story.now).map(|(pid, _)| pid), Some(812));
        story.see(ServiceEvent::Upgrade { pid: 812, is_locked, is_replaced });
        story.wait(Duration::from_secs(30));
    };
    let upgraded = |file_state, is_replaced| {
        let mut story = stopped(file_state);
        read(&mut story, true, false);
        read(&mut story, true, is_replaced);
        (0..20).for_each(|_| read(&mut story, false, is_replaced));
        story
    };
    let mut early = stopped("enabled");
    read(&mut early, true, true);
    (0..19).for_each(|_| read(&mut early, false, true));
    early.is("stopped");
    upgraded("enabled", true).is("left stopped");
    upgraded("disabled", true).is("stopped");
    upgraded("enabled", false).is("stopped"); // by a person, at the time of an upgrade of something else
    let mut person = stopped("enabled");
    read(&mut person, false, false);
    assert!(person.service.wants_upgrade(person.now).is_none(), "no package manager was at work");
    let mut later = upgraded("enabled", false);
    read(&mut later, true, true);
    later.is("stopped"); // what the next upgrade replaces is not what stopped it
}

#[test]
fn a_process_that_cannot_be_watched_is_named() {
    let mut story = Story::new(running(812), None);
    story.see(ServiceEvent::Unwatchable("Too many open files".into()));
    story.is("pid 812 of kubelet.service cannot be watched: Too many open files");
    story.open(812, Uptime::ZERO);
    story.is("runs");
}

#[test]
fn a_stop_with_a_failed_service_is_a_problem_when_that_is_back_for_two_minutes() {
    let containerd = |active_state: &str, result: &str| {
        let (unit, active_state, result) = ("containerd.service".into(), active_state.into(), result.into());
        vec![Dependency { unit, is_bound: true, active_state, result, ends_by_itself: false }]
    };
    let stopped = |dependencies: Vec<Dependency>| {
        let [queued, _] = job(JobKind::Stop);
        let mut story = Story::healthy();
        story.see(queued);
        story.see(ServiceEvent::Bus(BusEvent::Job { id: 7, kind: JobKind::Stop, dependencies }));
        story.all([ServiceEvent::Exited(812), job_removed("done")]);
        story
    };
    let why = "systemd stopped kubelet.service because containerd.service failed, and has not started it again";
    let mut story = stopped(containerd("activating", "signal"));
    let inactive = UnitState { restart: "always".into(), ..unit("inactive", 0, exited(812, 0), "success") };
    story.see(changed(inactive.clone()));
    for secs in [0, 60, 59] {
        story.wait(Duration::from_secs(secs));
        story.is(why);
        let (unit, dependencies) = ("kubelet.service".to_owned(), containerd("active", "success"));
        let (state, job) = (inactive.clone(), None);
        story.see(ServiceEvent::Bus(BusEvent::Read { unit, state, job, dependencies }));
    }
    story.wait(Duration::from_secs(1));
    story.is("stopped with a dependency");
    story.all(job(JobKind::Stop));
    story.is("stopped");

    stopped(containerd("deactivating", "success")).is("stopped");
    // With `Requires=` a failure stops nothing: somebody has.
    let required = containerd("failed", "exit-code").into_iter().map(|one| Dependency { is_bound: false, ..one });
    stopped(required.collect()).is("stopped");
}
