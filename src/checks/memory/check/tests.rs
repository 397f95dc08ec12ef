use jiff::Timestamp;

use super::*;
use crate::{
    checks::{
        kernel::{
            event::{PodRef, Scope},
            oom::OomLines,
        },
        kubelet::Process,
        memory::{
            Depth,
            sample::{Level, Reclaim, Stall},
        },
    },
    health::Status,
    helper::protocol::{Heard, Listener, RuntimeAnswer},
};

const GIB: u64 = 1 << 30;
const KUBELET: i32 = 77;

/// A host of 8 GiB, looked at as the loop does.
struct Story {
    check: Memory,
    at: Duration,
    /// MiB that are available, and by how many they fall in a second.
    available: f64,
    falls: f64,
    /// Whether the kernel reclaims, and tasks wait.
    is_tight: bool,
    /// Whether what is dropped is read anew.
    thrashes: bool,
    sample: Sample,
}

impl Story {
    fn new() -> Self {
        let level = Level {
            total: 8 * GIB,
            swap_total: Some(0),
            swap_free: Some(0),
            file: Some(GIB / 8),
            ..Level::default()
        };
        let mut story = Self {
            check: Memory::new(&Settings::default()),
            at: Duration::from_secs(1000),
            available: 6000.0,
            falls: 0.0,
            is_tight: false,
            thrashes: false,
            sample: Sample {
                level,
                stall: Some(Stall::default()),
                reclaim: Some(Reclaim::default()),
                ..Sample::default()
            },
        };
        story.take(&Reading::Kernel(KernelEvent::Readable));
        let started = Duration::from_secs(5);
        let kubelet = Process {
            pid: KUBELET,
            started,
        };
        story.take(&Reading::Kubelet(Some(kubelet)));
        story
    }

    fn now(&self) -> Now {
        Now {
            uptime: self.at,
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn take(&mut self, reading: &Reading) {
        self.check.take(reading, self.now());
    }

    fn pass(&mut self, secs: f64) {
        let end = self.at + Duration::from_secs_f64(secs);
        loop {
            let due = self
                .check
                .due_at()
                .unwrap()
                .max(self.at + Duration::from_millis(1));
            if due > end {
                self.at = end;
                return;
            }
            let passed = due.saturating_sub(self.at).as_secs_f64();
            self.at = due;
            self.available = (self.available - self.falls * passed).max(5.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a test's own numbers"
            )]
            let micros = (passed * 1e6) as u64;
            if let (true, Some(stall), Some(reclaim)) = (
                self.is_tight,
                &mut self.sample.stall,
                &mut self.sample.reclaim,
            ) {
                stall.some_us += micros / 4;
                reclaim.scanned += micros / 100;
            }
            if let (true, Some(reclaim)) = (self.thrashes, &mut self.sample.reclaim) {
                // The file pages of 128 MiB, each second.
                reclaim.refaulted += micros / 30;
            }
            self.sample.at = due;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a test's own numbers"
            )]
            let available = self.available as u64;
            self.sample.level.available = available << 20;
            let now = self.now();
            let Some(Question::Memory(depth)) = self.check.turn(now) else {
                panic!("it asks for nothing else");
            };
            let mut sample = self.sample;
            match depth {
                Depth::Whole => {}
                Depth::Level => sample.reclaim = None,
                Depth::Head => (sample.reclaim, sample.stall) = (None, None),
            }
            self.take(&Reading::Memory(Ok(sample)));
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        self.check
            .findings()
            .iter()
            .map(|finding| finding.reason)
            .collect()
    }

    fn hint(&self) -> &Finding {
        let (spec, hints) = self.check.hint().unwrap();
        assert_eq!(
            (spec.condition, hints.len()),
            (ConditionType::MemoryExhaustionImminent, 1)
        );
        &hints[0]
    }

    fn kill(&mut self, pid: i32, comm: &str, scope: Scope, limit: Option<&str>) {
        let kill = OomKill {
            at: self.at,
            pid,
            comm: comm.to_owned(),
            cgroup: limit.map(str::to_owned),
            limit_cgroup: limit.map(str::to_owned),
            limit_bytes: None,
            scope,
            pod: None::<PodRef>,
            rss_bytes: None,
        };
        self.take(&Reading::Kernel(KernelEvent::OomKill(Box::new(kill))));
    }
}

#[test]
fn a_calm_host_is_healthy_and_its_words_do_not_change() {
    let mut story = Story::new();
    story.pass(5.0);
    assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
    assert_eq!(story.hint().reason, Reason::MemoryIsEnough);
    let (said, hint) = (story.check.findings().to_vec(), story.hint().clone());
    for available in [5000.0, 3000.0, 5500.0] {
        story.available = available;
        story.pass(30.0);
        assert_eq!(
            (story.check.findings(), story.hint()),
            (said.as_slice(), &hint)
        );
    }
}

#[test]
fn exhaustion_is_a_hint_with_numbers_that_are_told_anew_each_ten_seconds() {
    let mut story = Story::new();
    story.pass(5.0);
    let grower = Grower {
        who: Who::Pod("default/hog".to_owned()),
        bytes_per_sec: 80 << 20,
        share_percent: Some(90),
    };
    story.take(&Reading::Grower(Some(grower)));
    (story.available, story.falls) = (3500.0, 80.0);
    story.pass(15.0);
    assert_eq!(story.hint().reason, Reason::MemoryIsEnough);
    story.is_tight = true;
    story.pass(5.0);
    let hint = story.hint().clone();
    assert_eq!(
        (hint.reason, hint.reason.shown()),
        (Reason::MemoryRunsOut, Status::True)
    );
    for word in [
        "s left",
        "MiB) available",
        "falling by 78.9 MiB/s",
        "the pod default/hog, by 80.0 MiB/s",
    ] {
        assert!(hint.message.contains(word), "{word}: {}", hint.message);
    }
    assert_eq!(
        story.reasons(),
        [Reason::MemoryIsHealthy],
        "a hint is all that it is"
    );
    story.pass(4.0);
    assert_eq!(*story.hint(), hint, "not yet");
    story.pass(7.0);
    assert_ne!(*story.hint(), hint);
    // Enough again, for a minute.
    (story.available, story.falls, story.is_tight) = (6000.0, 0.0, false);
    story.pass(55.0);
    assert_eq!(story.hint().reason, Reason::MemoryRunsOut);
    story.pass(20.0);
    assert_eq!(story.hint().reason, Reason::MemoryIsEnough);
}

#[test]
fn thrashing_becomes_a_problem_when_it_lasts() {
    let mut story = Story::new();
    story.pass(5.0);
    (story.available, story.is_tight, story.thrashes) = (150.0, true, true);
    story.pass(10.0);
    assert_eq!(story.reasons(), [Reason::MemoryExhausted]);
    assert_eq!(Reason::MemoryExhausted.status(), Status::True);
    // A kill in the midst of it is not its end.
    story.kill(5, "hog", Scope::Host, None);
    story.pass(60.0);
    assert_eq!(story.reasons(), [Reason::MemoryThrashing]);
    let said = story.check.findings().to_vec();
    story.pass(30.0);
    assert_eq!(story.check.findings(), said, "free of numbers");
    (story.available, story.is_tight, story.thrashes) = (5000.0, false, false);
    story.pass(60.0);
    assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
}

#[test]
fn the_kubelet_killed_for_memory_is_a_problem_whosever_memory_it_was() {
    for (scope, limit, word) in [
        (
            Scope::Cgroup,
            Some("/system.slice"),
            "/system.slice reached its memory limit",
        ),
        (Scope::Host, None, "the host had no memory left"),
    ] {
        let mut story = Story::new();
        story.pass(5.0);
        story.kill(KUBELET, "kubelet", scope, limit);
        let found = &story.check.findings()[0];
        assert_eq!(found.reason, Reason::MemoryKilledKubelet);
        assert!(
            found.message.contains(word) && found.message.contains("pid 77"),
            "{}",
            found.message
        );
        // A kill at a limit says nothing of the host's memory.
        let runs_out = story.hint().reason == Reason::MemoryRunsOut;
        assert_eq!(runs_out, scope == Scope::Host);
        story.pass(50.0);
        assert_eq!(story.reasons()[0], Reason::MemoryKilledKubelet);
        story.pass(80.0);
        assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
    }
}

#[test]
fn the_runtime_is_known_by_its_units_cgroup_and_another_process_is_nobody() {
    let mut story = Story::new();
    story.pass(5.0);
    story.kill(901, "hog", Scope::Cgroup, Some("/kubepods/podx"));
    assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
    story.kill(
        900,
        "containerd",
        Scope::Cgroup,
        Some("/system.slice/containerd.service"),
    );
    assert_eq!(story.reasons(), [Reason::MemoryKilledContainerRuntime]);
    story.kill(KUBELET, "kubelet", Scope::Host, None);
    let all = [
        Reason::MemoryKilledKubelet,
        Reason::MemoryKilledContainerRuntime,
        Reason::MemoryExhausted,
    ];
    assert_eq!(story.reasons(), all);
}

const RUNTIME: i32 = 88;

/// The runtime answers: this process of that unit's listens.
fn runtime_listens(story: &mut Story, pid: i32, unit: Option<&str>) {
    let listener = Listener {
        pid,
        started: Duration::from_secs(5),
        unit: unit.map(str::to_owned),
    };
    story.take(&Reading::Runtime(Ok(RuntimeAnswer {
        is_guess: false,
        socket: "/run/containerd/containerd.sock".into(),
        listener: Some(listener),
        took_micros: 900,
        io_full_percent: None,
        heard: Heard::Refused,
    })));
}

/// A process is killed at a limit of its own cgroup, in the words of a kernel since 5.0, or of one before.
fn is_killed(story: &mut Story, is_new: bool, (pid, comm, cgroup): (i32, &str, &str)) {
    let mut lines = OomLines::default();
    let text = if is_new {
        [
            format!(
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={cgroup},task_memcg={cgroup},task={comm},pid={pid},uid=0"
            ),
            format!(
                "Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:9000kB, anon-rss:8000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:0"
            ),
        ]
    } else {
        [
            format!("Task in {cgroup} killed as a result of limit of {cgroup}"),
            format!(
                "Killed process {pid} ({comm}) total-vm:9000kB, anon-rss:8000kB, file-rss:0kB, shmem-rss:0kB"
            ),
        ]
    };
    let mut kills = Vec::new();
    for line in &text {
        lines.take(story.at, line, &mut |kill| kills.push(kill));
    }
    assert_eq!(kills.len(), 1, "{text:?}");
    for kill in kills {
        story.take(&Reading::Kernel(KernelEvent::OomKill(Box::new(kill))));
    }
}

#[test]
fn a_runtimes_name_in_another_cgroup_is_nobodys() {
    // cgroup v1 with the kubelet's own driver, and with systemd's; v2.
    let pod = "/kubepods/burstable/pod0c5d5fc1-2c1c-4b1a-a5d0-7d1bd8ab8d2e/8b0a";
    let pod_v2 = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c5d5fc1_2c1c_4b1a_a5d0_7d1bd8ab8d2e.slice/cri-containerd-8b0a.scope";
    let nested = format!("{pod}/system.slice/containerd.service");
    let nested_v2 = format!("{pod_v2}/system.slice/containerd.service");
    for is_new in [true, false] {
        for (pid, comm, cgroup) in [
            (900, "containerd", pod),
            (900, "containerd", pod_v2),
            (900, "containerd", nested.as_str()),
            (900, "containerd", nested_v2.as_str()),
            (900, "crio", "/user.slice/user-1000.slice/session-1.scope"),
            (900, "dockerd", "/docker/8b0a"),
            (900, "containerd", "/system.slice/my-containerd.service"),
            (900, "containerd-shim", "/system.slice/containerd.service"),
            // Another host of this kernel's, such as a node in a container: its own runtime lives.
            (
                900,
                "containerd",
                "/machine/a/system.slice/containerd.service",
            ),
            // By chance the same numbers, as another PID namespace has them.
            (RUNTIME, "containerd", pod_v2),
            (RUNTIME, "java", "/system.slice/java.service"),
            (KUBELET, "kubelet", pod),
        ] {
            let mut story = Story::new();
            story.pass(5.0);
            runtime_listens(&mut story, RUNTIME, Some("containerd.service"));
            is_killed(&mut story, is_new, (pid, comm, cgroup));
            let case = format!("{is_new} {pid} {comm} {cgroup}");
            assert_eq!(story.reasons(), [Reason::MemoryIsHealthy], "{case}");
            // The end of another process is not its.
            story.take(&Reading::RuntimeGone(RUNTIME + 1));
            assert_eq!(story.reasons(), [Reason::MemoryIsHealthy], "{case}");
        }
    }
}

#[test]
fn the_runtime_is_the_very_process_or_of_its_name_in_its_units_cgroup() {
    let killed = [Reason::MemoryKilledContainerRuntime];
    for is_new in [true, false] {
        for (unit, pid, comm, cgroup) in [
            (
                Some("containerd.service"),
                RUNTIME,
                "containerd",
                "/system.slice/containerd.service",
            ),
            (
                Some("containerd.service"),
                RUNTIME,
                "containerd",
                "/m/a/system.slice/containerd.service",
            ),
            // It has not listened yet: it is killed each time that it starts.
            (
                Some("containerd.service"),
                900,
                "containerd",
                "/system.slice/containerd.service",
            ),
            (None, 900, "crio", "/system.slice/crio.service"),
            (None, 900, "dockerd", "/system.slice/docker.service"),
            // A runtime within another program, of any name.
            (
                Some("k3s.service"),
                RUNTIME,
                "k3s-server",
                "/system.slice/k3s.service",
            ),
            (
                Some("k3s.service"),
                900,
                "containerd",
                "/system.slice/k3s.service",
            ),
            (None, RUNTIME, "containerd", "/podruntime/runtime"),
        ] {
            let mut story = Story::new();
            story.pass(5.0);
            runtime_listens(&mut story, RUNTIME, unit);
            is_killed(&mut story, is_new, (pid, comm, cgroup));
            assert_eq!(story.reasons(), killed, "{is_new} {pid} {comm} {cgroup}");
        }
    }
}

#[test]
fn in_other_namespaces_the_runtime_is_known_by_its_end_before_the_line_or_after_it() {
    let killed = [Reason::MemoryKilledContainerRuntime];
    let line = (900, "containerd", "/m/a/system.slice/containerd.service");
    for is_first in [true, false] {
        for wait in [1.0, 30.0] {
            let mut story = Story::new();
            story.pass(5.0);
            runtime_listens(&mut story, RUNTIME, Some("containerd.service"));
            if is_first {
                is_killed(&mut story, true, line);
                assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
            } else {
                story.take(&Reading::RuntimeGone(RUNTIME));
            }
            story.pass(wait);
            if is_first {
                story.take(&Reading::RuntimeGone(RUNTIME));
            } else {
                is_killed(&mut story, true, line);
            }
            let is_told = story.reasons() == killed;
            assert_eq!(is_told, wait < 10.0, "{is_first} {wait}");
        }
    }
}

#[test]
fn what_the_log_tells_of_an_earlier_life_is_old() {
    let mut story = Story::new();
    story.pass(5.0);
    let now = story.at;
    story.at -= Duration::from_mins(2);
    let kill = |story: &mut Story| story.kill(KUBELET, "kubelet", Scope::Host, None);
    let at = story.at;
    story.at = now;
    let old = OomKill {
        at,
        pid: KUBELET,
        comm: "kubelet".to_owned(),
        cgroup: None,
        limit_cgroup: None,
        limit_bytes: None,
        scope: Scope::Host,
        pod: None,
        rss_bytes: None,
    };
    story.take(&Reading::Kernel(KernelEvent::OomKill(Box::new(old))));
    assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
    kill(&mut story);
    assert_eq!(story.reasons()[0], Reason::MemoryKilledKubelet);
}

#[test]
fn a_kill_is_counted_only_where_the_log_does_not_tell() {
    for (is_readable, reason) in [
        (true, Reason::MemoryIsHealthy),
        (false, Reason::MemoryExhausted),
    ] {
        let mut story = Story::new();
        story.pass(5.0);
        if !is_readable {
            let why = "not permitted".to_owned();
            story.take(&Reading::Kernel(KernelEvent::Unreadable(why)));
        }
        story.available = 100.0;
        story.pass(2.0);
        story.sample.reclaim.as_mut().unwrap().oom_kills += 1;
        story.available = 5000.0;
        story.pass(1.0);
        assert_eq!(story.reasons(), [reason]);
    }
}

#[test]
fn tables_that_cannot_be_read_are_unknown_after_a_minute() {
    let mut story = Story::new();
    story.pass(5.0);
    for _ in 0..6 {
        story.take(&Reading::Memory(Err("no such file".to_owned())));
        assert_eq!(
            story.reasons(),
            [Reason::MemoryIsHealthy],
            "what was said stands"
        );
        story.at += TRY_AGAIN;
        assert_eq!(story.check.due_at(), Some(story.at));
    }
    story.take(&Reading::Memory(Err("no such file".to_owned())));
    assert_eq!(story.reasons(), [Reason::MemoryUnreadable]);
    assert_eq!(story.hint().reason, Reason::MemoryOutlookUnknown);
    story.pass(15.0);
    assert_eq!(story.reasons(), [Reason::MemoryIsHealthy]);
    assert_eq!(story.hint().reason, Reason::MemoryIsEnough);
}
