//! Services of checks, on a made-up clock.

use super::*;
use crate::host::systemd::{JobKind, LastProcess, UnitState};
use crate::monitor::service::tests::{changed, exited, job, opened, read, running, unit};

const NAME: &str = "chrony.service";

struct Story {
    state: State,
    now: Uptime,
}

impl Story {
    /// A service that was read in this state, with these settings.
    fn new(settings: &str, state: UnitState) -> Self {
        let settings = toml::from_str(&format!("name = '{NAME}'\n{settings}")).unwrap();
        let mut story = Self { state: State::new(settings), now: Uptime::from_secs(1000) };
        assert!(matches!(story.state.found(story.now), Found::Pending(_)), "nothing has been read");
        story.see(read(NAME, state, None));
        story
    }

    fn active(settings: &str) -> Self {
        let mut story = Self::new(settings, running(812));
        story.see(opened(812, NAME, Uptime::ZERO));
        assert_eq!(story.found(), Found::Nothing("chrony.service is active".into()));
        story
    }

    fn see(&mut self, event: ServiceEvent) {
        self.now += Duration::from_millis(1);
        self.state.observe(event, self.now);
        self.state.service.settle(self.now);
    }

    fn wait(&mut self, secs: u64) {
        self.now += Duration::from_secs(secs);
        self.state.service.settle(self.now);
    }

    fn found(&self) -> Found {
        self.state.found(self.now)
    }

    #[track_caller]
    fn is_problem(&self, wanted: &str) {
        assert!(matches!(self.found(), Found::Problem(message) if message.contains(wanted)), "{:?}", self.found());
    }
}

/// As systemd leaves the unit.
fn ended(active_state: &str, status: i32, result: &str) -> UnitState {
    UnitState { file_state: "enabled".into(), ..unit(active_state, 0, exited(812, status), result) }
}

#[test]
fn a_unit_that_fails_is_a_problem_until_it_is_active_again() {
    let mut story = Story::active("");
    story.see(ServiceEvent::Exited(812));
    story.see(changed(ended("failed", 1, "exit-code")));
    story.wait(2);
    story.is_problem("chrony.service exited with code 1");
    story.see(changed(running(813)));
    assert!(matches!(story.found(), Found::Nothing(_)));
}

/// Before version 254 systemd passes through `failed` before each restart.
#[test]
fn a_unit_that_is_restarted_is_no_problem_while_it_is_failed_for_a_moment() {
    let mut story = Story::active("");
    let failed = UnitState { restart: "always".into(), ..ended("failed", 1, "exit-code") };
    let restarts = UnitState { active_state: "activating".into(), sub_state: "auto-restart".into(), ..failed.clone() };
    story.see(ServiceEvent::Exited(812));
    for state in [failed, restarts] {
        story.see(changed(state));
        assert!(!matches!(story.found(), Found::Problem(_)), "{:?}", story.found());
    }
    story.see(changed(running(813)));
    assert!(matches!(story.found(), Found::Nothing(_)));
}

#[test]
fn a_stop_that_somebody_asked_for_is_intended() {
    let mut story = Story::active("inactive_secs = 60");
    for event in job(JobKind::Stop) {
        story.see(event);
    }
    story.see(ServiceEvent::Exited(812));
    story.see(changed(ended("inactive", 0, "success")));
    story.wait(2);
    assert!(matches!(story.found(), Found::Intended(_)), "{:?}", story.found());
    story.wait(3600);
    assert!(matches!(story.found(), Found::Intended(_)), "{:?}", story.found());
}

#[test]
fn a_clean_end_is_a_problem_when_the_enabled_unit_stays_inactive() {
    let mut story = Story::active("inactive_secs = 60");
    story.see(ServiceEvent::Exited(812));
    story.see(changed(ended("inactive", 0, "success")));
    story.wait(30);
    assert!(matches!(story.found(), Found::Unknown(_)), "{:?}", story.found());
    assert_eq!(story.state.due_at(story.now).map(|at| (at - Uptime::ZERO).as_secs()), Some(1060));
    story.wait(31);
    story.is_problem("is enabled and has been inactive for 60 s");
}

#[test]
fn what_was_never_started_is_a_problem_only_if_it_is_enabled() {
    let never = |file_state: &str| UnitState {
        was_started: false,
        file_state: file_state.into(),
        ..unit("inactive", 0, exited(0, 0), "success")
    };
    let mut enabled = Story::new("inactive_secs = 60", never("enabled"));
    enabled.wait(61);
    enabled.is_problem("has been inactive");
    let mut disabled = Story::new("inactive_secs = 60", never("disabled"));
    disabled.wait(61);
    assert!(matches!(disabled.found(), Found::Unknown(_)));
    let mut unchecked = Story::new("", never("enabled"));
    unchecked.wait(9999);
    assert!(matches!(unchecked.found(), Found::Unknown(_)));
}

#[test]
fn a_stop_before_the_agents_start_is_not_known_to_be_a_problem() {
    let mut story = Story::new("inactive_secs = 60", ended("inactive", 0, "success"));
    story.wait(3600);
    assert!(matches!(story.found(), Found::Unknown(_)), "{:?}", story.found());
    let story = Story::new("", ended("failed", 1, "exit-code"));
    story.is_problem("exited with code 1");
}

/// As Java does: exit code 143 is no clean end for systemd, unless the unit has `SuccessExitStatus=143`.
#[test]
fn an_end_by_sigterm_before_the_agents_start_may_have_been_a_stop() {
    let mut story = Story::new("inactive_secs = 60", ended("failed", 143, "exit-code"));
    story.wait(3600);
    assert!(matches!(story.found(), Found::Unknown(_)), "{:?}", story.found());
    let killed = LastProcess { pid: 812, code: 2, status: 15 };
    let story = Story::new("", unit("failed", 0, killed, "signal"));
    assert!(matches!(story.found(), Found::Unknown(_)), "{:?}", story.found());
    let mut seen = Story::active("");
    seen.see(ServiceEvent::Exited(812));
    seen.see(changed(ended("failed", 143, "exit-code")));
    seen.wait(2);
    seen.is_problem("exited with code 143");
}

#[test]
fn restarts_are_a_problem_while_enough_of_them_are_recent() {
    let mut story = Story::active("restarts = 3\nrestarts_within_secs = 600");
    let restarted = |restarts| changed(UnitState { restarts, ..running(812) });
    for restarts in 1..=2 {
        story.see(restarted(restarts));
        story.wait(100);
    }
    assert!(matches!(story.found(), Found::Nothing(_)));
    story.see(restarted(0));
    story.see(restarted(1));
    story.is_problem("restarted chrony.service 3 times within 600 s");
    story.wait(401);
    assert!(matches!(story.found(), Found::Nothing(_)), "the first one was ten minutes ago");
    let long_ago = Story::new("restarts = 3", UnitState { restarts: 9, ..running(812) });
    assert!(matches!(long_ago.found(), Found::Nothing(_)), "those were before the agent's start");
}

#[test]
fn a_stop_that_somebody_asked_for_ends_a_series_of_restarts() {
    let mut story = Story::active("restarts = 3");
    for restarts in 1..=3 {
        story.see(changed(UnitState { restarts, ..running(812) }));
    }
    story.is_problem("systemd has restarted chrony.service 3 times");
    for event in job(JobKind::Stop) {
        story.see(event);
    }
    story.see(ServiceEvent::Exited(812));
    story.see(changed(UnitState { restarts: 3, ..ended("inactive", 0, "success") }));
    story.wait(2);
    assert!(matches!(story.found(), Found::Intended(_)), "{:?}", story.found());
    story.see(changed(UnitState { restarts: 0, ..running(813) }));
    assert!(!matches!(story.found(), Found::Problem(_)), "{:?}", story.found());
}
