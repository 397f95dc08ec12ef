//! Histories of a runtime, told as readings. Seconds count from an hour after boot.

use jiff::Timestamp;

use super::*;
use crate::{
    checks::{
        kernel::event::Scope,
        kubelet::{JobKind, Unit},
        lease::Sight,
    },
    health::{Reason, START_GRACE},
    helper::protocol::{KubeletFacts, RuntimeStatus},
    kubelet::healthz::Healthz,
};

const SOCKET: &str = "/run/containerd/containerd.sock";
const UNIT: &str = "containerd.service";
const PID: i32 = 100;

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::UNIX_EPOCH,
    }
}

struct Story {
    check: Runtime,
    /// Milliseconds.
    now: u64,
    pid: i32,
    /// When the process started.
    started: Duration,
}

impl Story {
    /// Nothing is known but that the kubelet's runtime is containerd.
    fn begun() -> Self {
        let mut story = Self {
            check: Runtime::new(&Settings::default()),
            now: 0,
            pid: PID,
            started: Duration::from_secs(20),
        };
        story.take(Reading::Facts(Box::new(KubeletFacts {
            pid: 7,
            healthz: Healthz::Disabled,
            hostname_override: None,
            kubeconfig: None,
            config: None,
            runtime_socket: Some(SOCKET.into()),
            root_dir: None,
        })));
        story
    }

    /// All is well.
    fn well() -> Self {
        let mut story = Self::begun();
        story.unit(|_| {});
        assert_eq!(story.ask(ready()), Some(Reason::ContainerRuntimeIsHealthy));
        story
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "a reading is made where it is told"
    )]
    fn take(&mut self, reading: Reading) {
        self.check.take(&reading, at(self.now));
    }

    fn after(&mut self, millis: u64) -> &mut Self {
        self.now += millis;
        self
    }

    /// Waits for its next question, and answers it.
    fn ask(&mut self, heard: Heard) -> Option<Reason> {
        self.ask_under(heard, None)
    }

    fn ask_under(&mut self, heard: Heard, io_full_percent: Option<u32>) -> Option<Reason> {
        self.question();
        let is_silent = matches!(heard, Heard::TimedOut { .. });
        let listens = matches!(
            heard,
            Heard::Status(_) | Heard::TimedOut { .. } | Heard::Error { .. }
        );
        self.after(if is_silent { 5000 } else { 1 });
        self.take(Reading::Runtime(Ok(RuntimeAnswer {
            is_guess: false,
            socket: SOCKET.into(),
            listener: listens.then(|| Listener {
                pid: self.pid,
                started: self.started,
                unit: Some(UNIT.to_owned()),
            }),
            took_micros: 1,
            io_full_percent,
            heard,
        })));
        self.reason()
    }

    /// Lets time pass until it asks; when that is.
    fn question(&mut self) -> u64 {
        for _ in 0..10 {
            let due = self.check.due_at().expect("it asks some time");
            let due = due.saturating_sub(at(0).uptime).as_millis();
            self.now = self.now.max(u64::try_from(due).unwrap());
            if self.check.turn(at(self.now)).is_some() {
                return self.now;
            }
        }
        panic!("it does not ask: {:?}", self.check);
    }

    fn unit(&mut self, change: impl FnOnce(&mut Unit)) {
        let pid = u32::try_from(self.pid).unwrap();
        let mut unit = Unit {
            load_state: "loaded".to_owned(),
            active_state: "active".to_owned(),
            sub_state: "running".to_owned(),
            main_pid: pid,
            exec_main_pid: pid,
            result: "success".to_owned(),
            ever_started: true,
            ..Unit::default()
        };
        change(&mut unit);
        self.sign(Sign::Unit(unit));
    }

    fn sign(&mut self, sign: Sign) {
        self.take(Reading::Unit(UNIT.to_owned(), sign));
    }

    fn killed(&mut self, result: &str) {
        self.take(Reading::RuntimeGone(self.pid));
        self.after(2);
        let result = result.to_owned();
        self.unit(|unit| {
            unit.active_state = "activating".to_owned();
            unit.sub_state = "auto-restart".to_owned();
            (unit.main_pid, unit.exec_main_code, unit.exec_main_status) = (0, 2, 9);
            unit.result = result;
        });
    }

    fn kubelet_blames(&mut self, blames_runtime: bool) {
        self.take(Reading::Sight(Sight {
            blames_runtime,
            ..Sight::default()
        }));
    }

    fn reason(&self) -> Option<Reason> {
        self.check.findings().first().map(|f| f.reason)
    }

    fn message(&self) -> &str {
        self.check.findings().first().map_or("", |f| &f.message)
    }
}

fn ready() -> Heard {
    Heard::Status(RuntimeStatus {
        name: "containerd".to_owned(),
        version: "2.1.4".to_owned(),
        ..RuntimeStatus::default()
    })
}

fn silent() -> Heard {
    Heard::TimedOut { connected: true }
}

fn unimplemented() -> Heard {
    Heard::Error {
        code: "Unimplemented".to_owned(),
        message: "unknown service".to_owned(),
    }
}

#[test]
fn one_that_answers_is_asked_four_times_a_minute() {
    let mut story = Story::well();
    assert_eq!(
        story.message(),
        "containerd 2.1.4 pid 100 answers at /run/containerd/containerd.sock"
    );
    let first = story.question();
    assert!((14_990..=15_010).contains(&first), "{first}");
    assert!(story.check.applies());
}

#[test]
fn a_missing_network_is_the_kubelets_to_tell() {
    let mut story = Story::well();
    let status = RuntimeStatus {
        network_not_ready: Some("cni plugin not initialized".to_owned()),
        ..RuntimeStatus::default()
    };
    let reason = story.ask(Heard::Status(status));
    assert_eq!(reason, Some(Reason::ContainerRuntimeIsHealthy));
    assert!(story.message().contains("NetworkReady=false: cni plugin"));
}

#[test]
fn a_hang_is_told_after_three_silences_back_to_back() {
    let mut story = Story::well();
    let healthy = Some(Reason::ContainerRuntimeIsHealthy);
    assert_eq!(story.ask(silent()), healthy);
    assert_eq!(story.ask(silent()), healthy);
    assert_eq!(story.ask(silent()), Some(Reason::ContainerRuntimeSilent));
    assert!((29_990..30_010).contains(&story.now), "{}", story.now);
    assert!(
        story.message().contains("3 questions"),
        "{}",
        story.message()
    );
    // Then it is asked less often again, and one answer says that it is well.
    story.ask(silent());
    story.ask(silent());
    let before = story.now;
    assert!(story.question() - before >= 9_990);
    assert_eq!(story.ask(ready()), healthy);
}

#[test]
fn a_stopped_process_is_asked_at_once() {
    let mut story = Story::well();
    story.after(3000).take(Reading::RuntimeState(PID, 'T'));
    assert!(
        story
            .check
            .due_at()
            .is_some_and(|due| due <= at(3001).uptime)
    );
    for _ in 0..3 {
        story.ask(silent());
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeHung));
    assert!(story.now < 18_020, "{}", story.now);
    assert!(story.message().contains("(state T: stopped)"));
    // Not more than once a second, whatever its state does; and another process's is no news.
    story.take(Reading::RuntimeState(PID + 1, 'T'));
    let mut story = Story::well();
    story.after(10).take(Reading::RuntimeState(PID, 'D'));
    assert!(story.question() >= 1000);
}

#[test]
fn while_the_host_waits_for_its_disks_it_is_slow_and_then_hung() {
    let mut story = Story::well();
    for _ in 0..2 {
        story.ask_under(silent(), Some(80));
    }
    let slow = Some(Reason::ContainerRuntimeSlow);
    assert_eq!(story.ask_under(silent(), Some(50)), slow);
    let text = story.message().to_owned();
    assert_eq!(story.ask_under(silent(), Some(91)), slow);
    assert_eq!(story.message(), text, "no number that changes");
    assert_eq!(
        story.ask_under(silent(), Some(49)),
        Some(Reason::ContainerRuntimeSilent)
    );
    story.take(Reading::RuntimeState(PID, 'D'));
    let begun = story.now;
    while story.ask_under(silent(), Some(99)) != Some(Reason::ContainerRuntimeHung) {
        assert!(story.now < begun + 200_000, "it ends");
    }
}

#[test]
fn a_kill_is_told_when_systemd_has_said_how() {
    let mut story = Story::well();
    story.after(5000).take(Reading::RuntimeGone(PID));
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeIsHealthy));
    story.killed("signal");
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
    assert_eq!(
        story.message(),
        "containerd.service: container runtime pid 100 was killed by SIGKILL (9) (systemd: Result=signal)"
    );
    // The next one is looked for each second, and found.
    let before = story.now;
    assert_eq!(
        story.ask(Heard::Refused),
        Some(Reason::ContainerRuntimeDown)
    );
    assert!(story.now - before <= 1010);
    story.pid = 101;
    story.started = at(story.now).uptime;
    assert_eq!(story.ask(silent()), Some(Reason::ContainerRuntimeStarting));
    assert_eq!(story.ask(ready()), Some(Reason::ContainerRuntimeIsHealthy));
}

#[test]
fn without_systemds_word_it_is_gone_all_the_same() {
    let mut story = Story::well();
    story.take(Reading::BusLost);
    story.after(500).take(Reading::RuntimeGone(PID));
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeIsHealthy));
    story.question();
    story.after(1000).check.turn(at(1600));
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
    assert!(story.message().contains("has not said"));
}

#[test]
fn an_answer_from_before_the_end_does_not_revive_it() {
    let mut story = Story::well();
    story.question();
    story.killed("signal");
    story.take(Reading::Runtime(Ok(RuntimeAnswer {
        is_guess: false,
        socket: SOCKET.into(),
        listener: Some(Listener {
            pid: PID,
            started: story.started,
            unit: Some(UNIT.to_owned()),
        }),
        took_micros: 1,
        io_full_percent: None,
        heard: ready(),
    })));
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
}

#[test]
fn somebodys_stop_is_no_fault() {
    let mut story = Story::well();
    story.sign(Sign::Job(7, JobKind::Stop));
    // While it goes it need not answer.
    assert_eq!(
        story.ask(Heard::Refused),
        Some(Reason::ContainerRuntimeIsHealthy)
    );
    story.take(Reading::RuntimeGone(PID));
    assert_eq!(
        story.reason(),
        Some(Reason::ContainerRuntimeStoppedByOperator)
    );
    story.sign(Sign::JobDone(7));
    for _ in 0..10 {
        assert_eq!(
            story.ask(Heard::Refused),
            Some(Reason::ContainerRuntimeStoppedByOperator)
        );
    }
}

#[test]
fn a_stop_job_may_be_heard_after_the_end_that_it_asked_for() {
    let mut story = Story::well();
    story.take(Reading::RuntimeGone(PID));
    story.after(20).sign(Sign::Job(7, JobKind::Unasked));
    story.sign(Sign::Job(7, JobKind::Stop));
    story.unit(|unit| {
        unit.active_state = "inactive".to_owned();
        (unit.main_pid, unit.exec_main_code) = (0, 1);
    });
    assert_eq!(
        story.reason(),
        Some(Reason::ContainerRuntimeStoppedByOperator)
    );
}

#[test]
fn a_planned_restart_is_no_news() {
    let mut story = Story::well();
    let healthy = Some(Reason::ContainerRuntimeIsHealthy);
    story.sign(Sign::Job(7, JobKind::Restart));
    story.take(Reading::RuntimeGone(PID));
    for _ in 0..5 {
        assert_eq!(story.ask(Heard::NoSocket), healthy);
    }
    story.pid = 101;
    story.started = at(story.now).uptime;
    for _ in 0..5 {
        assert_eq!(story.ask(silent()), healthy, "it may take its time");
    }
    assert_eq!(story.ask(ready()), healthy);
    assert!(story.message().contains("pid 101 "));
    // One that never comes back is down.
    let mut story = Story::well();
    story.sign(Sign::Job(7, JobKind::Restart));
    story.take(Reading::RuntimeGone(PID));
    story.sign(Sign::JobDone(7));
    let end = story.now + u64::try_from(START_GRACE.as_millis()).unwrap();
    while story.now < end + 20_000 {
        story.ask(Heard::Refused);
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
}

#[test]
fn the_kernel_says_that_it_was_killed_for_memory() {
    let kill = |pid, comm: &str, cgroup: &str| OomKill {
        at: at(0).uptime,
        pid,
        comm: comm.to_owned(),
        cgroup: Some(cgroup.to_owned()),
        limit_cgroup: Some(cgroup.to_owned()),
        limit_bytes: None,
        scope: Scope::Cgroup,
        pod: None,
        rss_bytes: None,
    };
    let told = |kill: OomKill| {
        let mut story = Story::well();
        let kill = KernelEvent::OomKill(Box::new(kill));
        story.take(Reading::Kernel(kill));
        story.killed("signal");
        (story.reason().unwrap(), story.message().to_owned())
    };
    let group = "/system.slice/containerd.service";
    let (reason, message) = told(kill(PID, "containerd", group));
    assert_eq!(reason, Reason::ContainerRuntimeOOMKilled);
    assert!(message.contains(group), "{message}");
    // The kernel may count pids otherwise.
    let (reason, _) = told(kill(4711, "containerd", &format!("/x{group}")));
    assert_eq!(reason, Reason::ContainerRuntimeOOMKilled);
    for (pid, comm, cgroup) in [
        (4711, "containerd-shim", group),
        (4711, "containerd", "/system.slice/other.service"),
        (4711, "containerd", "/system.slice/my-containerd.service"),
        (4711, "containerd", "/docker/1/containerd.service"),
        (
            4711,
            "containerd",
            "/kubepods/pod1/1/system.slice/containerd.service",
        ),
        (PID, "containerd", "/kubepods/burstable/pod1/1"),
    ] {
        let (reason, _) = told(kill(pid, comm, cgroup));
        assert_eq!(reason, Reason::ContainerRuntimeDown, "{comm} {cgroup}");
    }
    // What it said an hour ago, which is read when the agent starts, is of another death.
    let mut old = kill(PID, "containerd", group);
    old.at = Duration::from_secs(1);
    assert_eq!(told(old).0, Reason::ContainerRuntimeDown);
    // systemd says it too, and it may come after the end.
    let mut story = Story::well();
    story.killed("oom-kill");
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeOOMKilled));
    let mut story = Story::well();
    story.killed("signal");
    let late = KernelEvent::OomKill(Box::new(kill(PID, "containerd", group)));
    story.after(100).take(Reading::Kernel(late));
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeOOMKilled));
}

#[test]
fn one_that_dies_before_it_listens_is_told_by_its_unit() {
    let mut story = Story::begun();
    let died = |story: &mut Story| {
        story.pid += 1;
        story.unit(|unit| unit.active_state = "activating".to_owned());
        story.ask(Heard::NoSocket);
        story.unit(|unit| {
            unit.active_state = "activating".to_owned();
            unit.sub_state = "auto-restart".to_owned();
            (unit.main_pid, unit.exec_main_code, unit.exec_main_status) = (0, 2, 9);
            unit.result = "signal".to_owned();
        });
    };
    died(&mut story);
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
    let text = story.message().to_owned();
    // systemd forgets the last end when it starts the next: that is no news.
    story.unit(|unit| {
        unit.active_state = "activating".to_owned();
        unit.sub_state = "auto-restart".to_owned();
    });
    assert_eq!(story.message(), text);
    story.after(5000);
    let kill = OomKill {
        at: at(0).uptime,
        pid: 4711,
        comm: "containerd".to_owned(),
        cgroup: Some("/x/system.slice/containerd.service".to_owned()),
        limit_cgroup: Some("/x/system.slice/containerd.service".to_owned()),
        limit_bytes: None,
        scope: Scope::Cgroup,
        pod: None,
        rss_bytes: None,
    };
    story.take(Reading::Kernel(KernelEvent::OomKill(Box::new(kill))));
    died(&mut story);
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeOOMKilled));
}

#[test]
fn one_that_says_that_it_is_not_ready_is_believed_the_third_time() {
    let mut story = Story::well();
    let status = Heard::Status(RuntimeStatus {
        not_ready: Some("StorageNotReady: locked".to_owned()),
        ..RuntimeStatus::default()
    });
    story.ask(status.clone());
    story.ask(status.clone());
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeIsHealthy));
    assert_eq!(story.ask(status), Some(Reason::ContainerRuntimeUnconfirmed));
    story.kubelet_blames(true);
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeNotReady));
    assert!(story.message().contains("StorageNotReady: locked"));
    let mut story = Story::well();
    story.kubelet_blames(true);
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeIsHealthy));
    for _ in 0..3 {
        story.ask(unimplemented());
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeNotReady));
    assert!(story.message().contains("Unimplemented: unknown service"));
    // Not even a young one will speak CRI one day; it may be ready one day.
    for (heard, told) in [
        (unimplemented(), Some(Reason::ContainerRuntimeUnconfirmed)),
        (Heard::Refused, Some(Reason::ContainerRuntimeStarting)),
    ] {
        let mut story = Story::well();
        story.killed("signal");
        story.pid = 101;
        story.started = at(story.now).uptime;
        story.ask(silent());
        for _ in 0..3 {
            story.ask(heard.clone());
        }
        assert_eq!(story.reason(), told);
    }
}

#[test]
fn three_of_one_kind_are_wanted() {
    let mut story = Story::well();
    for heard in [silent(), unimplemented(), silent(), unimplemented()] {
        assert_eq!(story.ask(heard), Some(Reason::ContainerRuntimeIsHealthy));
    }
}

#[test]
fn what_could_not_be_asked_is_unknown_and_clears_nothing() {
    let denied = || Heard::Denied("Permission denied".to_owned());
    let mut story = Story::well();
    story.ask(denied());
    story.ask(denied());
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeIsHealthy));
    assert_eq!(
        story.ask(denied()),
        Some(Reason::ContainerRuntimeProbeFailed)
    );
    assert!(story.message().contains("Permission denied"));
    // The helper is away.
    let mut story = Story::well();
    for _ in 0..3 {
        story.question();
        story.after(7000).take(Reading::Runtime(Err(Unasked {
            is_away: true,
            why: "no answer within 7 s".to_owned(),
        })));
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeProbeFailed));
    // Its process is watched all the same.
    story.killed("signal");
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
}

#[test]
fn what_the_list_of_sockets_denies_says_nothing_of_a_process_that_lives() {
    let doubted = || Heard::Doubted("the kernel lists a listener".to_owned());
    let mut story = Story::well();
    for _ in 0..3 {
        story.ask(doubted());
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeProbeFailed));
    // Somebody else's socket of that name hides no end.
    story.killed("oom-kill");
    story.ask(doubted());
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeOOMKilled));
}

#[test]
fn a_host_without_one_has_nothing_to_tell_and_is_seldom_asked() {
    let mut story = Story::begun();
    story.ask(Heard::NoSocket);
    assert!(story.check.applies(), "systemd has not been heard");
    for unit in UNITS {
        let absent = Sign::Unit(Unit {
            load_state: "not-found".to_owned(),
            ..Unit::default()
        });
        story.take(Reading::Unit((*unit).to_owned(), absent));
    }
    assert!(!story.check.applies());
    let before = story.now;
    assert!(story.question() - before >= 50_000);
    // It is installed.
    story.unit(|_| {});
    assert!(story.question() - before <= 61_000);
    assert_eq!(story.ask(ready()), Some(Reason::ContainerRuntimeIsHealthy));
    assert!(story.check.applies());
}

#[test]
fn a_unit_without_a_process_says_why() {
    let told = |change: fn(&mut Unit)| {
        let mut story = Story::begun();
        story.unit(change);
        for _ in 0..3 {
            story.ask(Heard::NoSocket);
        }
        assert!(story.check.applies());
        (story.reason(), story.message().to_owned())
    };
    let (reason, _) = told(|unit| {
        (unit.active_state, unit.ever_started) = ("inactive".to_owned(), false);
        unit.main_pid = 0;
    });
    assert_eq!(reason, Some(Reason::ContainerRuntimeNotFound));
    let (reason, message) = told(|unit| {
        unit.active_state = "failed".to_owned();
        (unit.main_pid, unit.exec_main_code, unit.exec_main_status) = (0, 1, 3);
        unit.result = "exit-code".to_owned();
    });
    assert_eq!(reason, Some(Reason::ContainerRuntimeDown));
    assert!(message.contains("exited with code 3"), "{message}");
    // It is up, and does not listen: that may take a while, and not for ever.
    let mut story = Story::begun();
    story.unit(|_| {});
    for _ in 0..3 {
        assert_eq!(story.ask(Heard::NoSocket), None);
    }
    while story.now < 140_000 {
        story.ask(Heard::NoSocket);
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeDown));
}

#[test]
fn a_socket_that_nobody_named_accuses_nobody_of_not_speaking_cri() {
    let mut story = Story::well();
    story.check = Runtime::new(&Settings::default());
    for _ in 0..3 {
        story.ask(unimplemented());
    }
    assert_eq!(story.reason(), Some(Reason::ContainerRuntimeNotFound));
}

#[test]
fn the_unit_of_the_process_counts_whatever_its_name() {
    let mut story = Story::begun();
    story.question();
    let listener = Listener {
        pid: PID,
        started: story.started,
        unit: Some("k3s.service".to_owned()),
    };
    story.take(Reading::Runtime(Ok(RuntimeAnswer {
        is_guess: false,
        socket: "/run/k3s/containerd/containerd.sock".into(),
        listener: Some(listener),
        took_micros: 1,
        io_full_percent: None,
        heard: ready(),
    })));
    let job = Sign::Job(1, JobKind::Stop);
    story.take(Reading::Unit("k3s.service".to_owned(), job));
    story.take(Reading::RuntimeGone(PID));
    assert_eq!(
        story.reason(),
        Some(Reason::ContainerRuntimeStoppedByOperator)
    );
}

#[test]
fn one_that_is_not_to_be_watched_is_not() {
    let mut settings = Settings::default();
    settings.runtime.enabled = false;
    let check = Runtime::new(&settings);
    assert!(!check.applies());
    assert_eq!(check.due_at(), None);
}
