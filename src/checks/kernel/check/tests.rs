//! Histories of the check: what the log says, what the tables say, what is found and told.

use jiff::Timestamp;

use super::*;
use crate::{
    checks::kernel::{event::PodRef, patterns::PATTERNS, state::WaitingTask},
    health::Status,
};

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn line(secs: u64, id: &str, subject: Option<&str>) -> KernelEvent {
    let pattern = PATTERNS.iter().find(|pattern| pattern.id == id).unwrap();
    KernelEvent::Line(KernelLine {
        at: at(secs).uptime,
        pattern,
        subject: subject.map(str::to_owned),
        text: format!("line of {id}"),
    })
}

/// A thread that waits, in a pod if it is no kubelet's.
fn waits(tid: i32, comm: &str) -> WaitingTask {
    let cgroup = match comm {
        "kubelet" => "/system.slice/kubelet.service",
        "containerd" | "containerd-shim" => "/system.slice/containerd.service",
        _ => "/kubepods/burstable/podfe3f7a38-b3f7-48aa-8997-a697ae3d0741/x",
    };
    WaitingTask {
        tid,
        pid: tid,
        comm: comm.to_owned(),
        cgroup: Some(cgroup.to_owned()),
        ..WaitingTask::default()
    }
}

/// A kernel with that taint.
fn tainted(bit: u32) -> KernelState {
    KernelState {
        tainted: Some(1 << bit),
        ..KernelState::default()
    }
}

/// A check whose questions are answered at once by `state`.
struct Story {
    check: Kernel,
    state: KernelState,
}

impl Story {
    /// It came at second 1000; the log can be read and the kernel is well.
    fn new() -> Self {
        let mut story = Self {
            check: Kernel::new(&Settings::default()),
            state: KernelState::default(),
        };
        story.hear(1000, KernelEvent::Readable);
        story
    }

    /// It comes at second 1000, and this boot has said things before. The first question goes out, and is answered, before
    /// the log was read.
    fn after(said: &[(u64, &str, Option<&str>)], state: KernelState) -> Self {
        let mut story = Self {
            check: Kernel::new(&Settings::default()),
            state,
        };
        story.pass(1000);
        for (secs, id, subject) in said {
            let event = line(*secs, id, *subject);
            story.check.take(&Reading::Kernel(event), at(1000));
            assert_eq!(story.reasons(), [], "nothing is judged yet");
        }
        story
            .check
            .take(&Reading::Kernel(KernelEvent::Readable), at(1000));
        assert_eq!(story.reasons(), [], "nor by the look of before");
        story.pass(1000);
        story
    }

    fn hear(&mut self, secs: u64, event: KernelEvent) -> &mut Self {
        self.check.take(&Reading::Kernel(event), at(secs));
        self.pass(secs)
    }

    fn line(&mut self, secs: u64, id: &str, subject: Option<&str>) -> &mut Self {
        self.hear(secs, line(secs, id, subject))
    }

    /// It is that second: what is due is asked and answered.
    fn pass(&mut self, secs: u64) -> &mut Self {
        for _ in 0..100 {
            if self.check.due_at().is_none_or(|due| due > at(secs).uptime) {
                return self;
            }
            match self.check.turn(at(secs)).unwrap() {
                Question::KernelState(_) => {
                    let answer = Reading::KernelState(self.state.clone());
                    self.check.take(&answer, at(secs));
                }
                Question::Pod(uid) => {
                    let name = uid.starts_with('f').then(|| "shop/cart-0".to_owned());
                    self.check.take(&Reading::Pod(name), at(secs));
                }
                other => panic!("not the kernel's question: {other:?}"),
            }
        }
        panic!("it asks without an end");
    }

    /// As it passes through every deadline until that second.
    fn through(&mut self, secs: u64) -> &mut Self {
        while let Some(due) = self.check.due_at().filter(|due| *due <= at(secs).uptime) {
            self.pass(due.as_secs());
        }
        self
    }

    fn reasons(&self) -> Vec<Reason> {
        self.check.findings().iter().map(|f| f.reason).collect()
    }

    fn told(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.check.told())
            .map(|told| format!("{}: {}", told.news.spec().name, told.note))
            .collect()
    }
}

#[test]
fn a_calm_wants_next_to_nothing() {
    let mut story = Story::new();
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    let next = at(1000).uptime + LOOK_EVERY_IN_CALM;
    assert_eq!(story.check.due_at(), Some(next));
    assert_eq!(story.told(), [""; 0]);
    // The log alone is not enough, nor are the tables.
    let mut check = Kernel::new(&Settings::default());
    check.take(&Reading::Kernel(KernelEvent::Readable), at(1));
    assert_eq!(check.findings(), []);
    let mut check = Kernel::new(&Settings::default());
    check.turn(at(1));
    check.take(&Reading::KernelState(KernelState::default()), at(1));
    assert_eq!(check.findings(), []);
}

#[test]
fn a_log_that_cannot_be_read_is_unknown_and_comes_back() {
    let mut story = Story::new();
    story.hear(
        1001,
        KernelEvent::Unreadable("open /dev/kmsg: EPERM".to_owned()),
    );
    assert_eq!(story.reasons(), [Reason::KernelLogUnreadable]);
    story.hear(1301, KernelEvent::Readable);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // What the tables say is said without the log too.
    let mut story = Story::new();
    story.state.tainted = Some(1 << 7);
    story.hear(
        1001,
        KernelEvent::Unreadable("open /dev/kmsg: EPERM".to_owned()),
    );
    assert_eq!(
        story.reasons(),
        [Reason::KernelLogUnreadable, Reason::KernelOops]
    );
}

/// A restart of the agent during a trouble finds it again in what the log still holds, if the kernel's tables confirm it;
/// what is long over stays over.
#[test]
fn what_was_said_before_counts_by_its_stamp_and_by_a_witness() {
    let lately = [
        (960, "soft-lockup", None),
        (980, "soft-lockup", None),
        (995, "soft-lockup", None),
    ];
    let story = Story::after(&lately, tainted(14));
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    let long_ago = [10, 30, 50].map(|secs| (secs, "soft-lockup", None));
    let story = Story::after(&long_ago, tainted(14));
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // Lines that no counter of this boot knows of are nobody's trouble.
    let said = [
        (960, "soft-lockup", None),
        (970, "hard-lockup", None),
        (980, "rcu-stall", None),
        (985, "oops", None),
        (990, "cper-fatal", None),
        (995, "memory-failure", None),
        (999, "netdevice-stuck", Some("eth0")),
    ];
    let story = Story::after(&said, tainted(12));
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // Each by its own.
    let story = Story::after(&said, tainted(7));
    assert_eq!(story.reasons(), [Reason::KernelOops]);
    let story = Story::after(&said, tainted(4));
    assert_eq!(story.reasons(), [Reason::KernelHardwareFailing]);
}

/// After an upgrade of the agent: the line is an hour old, and the kubelet has long gone on.
#[test]
fn an_old_hung_task_is_looked_for_before_it_is_believed() {
    let said = [(10, "hung-task", Some("kubelet:7"))];
    let story = Story::after(&said, KernelState::default());
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // It waits at this very moment, as it does now and then.
    let state = KernelState {
        waiting: vec![waits(7, "kubelet")],
        ..KernelState::default()
    };
    let mut story = Story::after(&said, state.clone());
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    story.state.waiting[0].switches = 9;
    story.through(1100);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    story.state.waiting.clear();
    story.through(1140);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // It really hangs: found again once it has been seen to for as long as one that was heard of.
    let mut story = Story::after(&said, state);
    story.through(1119);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    story.through(1120);
    assert_eq!(story.reasons(), [Reason::KernelDeadlocked]);
}

#[test]
fn a_hung_task_is_over_when_it_waits_no_longer() {
    let mut story = Story::new();
    story.state.waiting = vec![waits(5, "tar")];
    story.line(1100, "hung-task", Some("tar:5"));
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    assert!(story.check.findings()[0].message.contains("tar (pid 5)"));
    story.through(5000);
    assert_eq!(
        story.reasons(),
        [Reason::KernelTaskHung],
        "as long as it waits"
    );
    story.state.waiting.clear();
    story.through(5030);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    let next = story.check.due_at().unwrap();
    assert!(next > at(5500).uptime, "calm again: {next:?}");
}

#[test]
fn what_no_pod_can_do_without_is_a_deadlock() {
    let mut story = Story::new();
    story.state.waiting = vec![waits(7, "containerd"), waits(8, "containerd-shim")];
    story.line(1100, "hung-task", Some("containerd-shim:8"));
    story.through(2000);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "one container's");
    story.line(2000, "hung-task", Some("containerd:7"));
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "not yet");
    story.through(2119);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "not yet");
    story.through(2150);
    assert_eq!(story.reasons(), [Reason::KernelDeadlocked]);
    let said = story.check.findings()[0].message.clone();
    assert!(said.starts_with("containerd (pid 7) has waited"), "{said}");
    story.through(9000);
    assert_eq!(story.check.findings()[0].message, said);
    story.state.waiting.remove(0);
    story.through(9030);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    // A name without a number is nobody.
    Story::new()
        .line(1100, "hung-task", Some("x:"))
        .line(1100, "hung-task", None);
}

/// A volume that does not answer: whatever waits for it, by whatever name, however many and however long.
#[test]
fn pods_that_hang_are_no_fault_of_the_node() {
    let mut story = Story::new();
    let names = [
        "systemd-x",
        "containerd",
        "kubelet",
        "systemd",
        "dockerd",
        "k3s",
    ];
    let all = (20..60).map(|tid: i32| waits(tid, names[tid.unsigned_abs() as usize % 6]));
    story.state.waiting = all.collect();
    for task in &mut story.state.waiting {
        task.cgroup = waits(0, "").cgroup;
    }
    for (tid, comm) in story.state.waiting.clone().iter().map(|t| (t.tid, &t.comm)) {
        story.line(1100, "hung-task", Some(&format!("{comm}:{tid}")));
    }
    story.through(20_000);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    assert!(story.check.troubles.tasks.tids().len() <= 16);
}

#[test]
fn who_is_on_the_cpu_between_two_looks_does_not_hang() {
    let mut story = Story::new();
    story.state.waiting = vec![waits(7, "kubelet")];
    story.line(1100, "hung-task", Some("kubelet:7"));
    for secs in (1100..5000).step_by(30) {
        story.state.waiting[0].switches += 1;
        story.through(secs);
        assert_eq!(story.reasons(), [Reason::KernelTaskHung], "{secs}");
    }
}

/// With `hung_task_timeout_secs=0`, or the warnings used up, the log is silent for ever.
#[test]
fn what_nobody_logs_is_told_and_looked_for() {
    for (timeout, warnings, word) in [(120, 0, "hung_task_warnings"), (0, 10, "hung_task_timeout")]
    {
        let mut story = Story::new();
        let kubelet = crate::checks::kubelet::Process {
            pid: 7,
            started: Duration::ZERO,
        };
        story.check.take(&Reading::Kubelet(Some(kubelet)), at(1001));
        (
            story.state.hung_task_timeout_secs,
            story.state.hung_task_warnings,
        ) = (Some(120), Some(10));
        story.through(1600);
        assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
        story.state.hung_task_timeout_secs = Some(timeout);
        story.state.hung_task_warnings = Some(warnings);
        story.through(2200);
        assert_eq!(story.reasons(), [Reason::KernelHungTaskDetectionOff]);
        let said = story.check.findings()[0].message.clone();
        assert!(said.contains(word), "{said}");
        assert_eq!(Reason::KernelHungTaskDetectionOff.status(), Status::True);
        assert_eq!(
            story.check.turn(at(2230)),
            Some(Question::KernelState(KernelAsk {
                tids: Vec::new(),
                processes: vec![7],
            }))
        );
        // A thread of the kubelet's own that waits, and one that waits now and then.
        let mut own = waits(9, "kubelet");
        own.pid = 7;
        let mut busy = own.clone();
        busy.tid = 10;
        story.state.waiting = vec![own, busy];
        story
            .check
            .take(&Reading::KernelState(story.state.clone()), at(2230));
        for secs in [2260, 2290, 2320] {
            story.state.waiting[1].switches += 1;
            story.pass(secs);
            assert_eq!(story.reasons(), [Reason::KernelHungTaskDetectionOff]);
        }
        story.pass(2350);
        let both = [Reason::KernelDeadlocked, Reason::KernelHungTaskDetectionOff];
        assert_eq!(story.reasons(), both);
        assert!(story.check.findings()[0].message.contains("(pid 9)"));
        story.state.waiting.clear();
        story.state.hung_task_timeout_secs = Some(120);
        story.state.hung_task_warnings = Some(-1);
        story.pass(2380);
        assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
        assert!(story.check.due_at() > Some(at(2900).uptime), "calm again");
    }
}

#[test]
fn one_stall_is_a_hint_and_many_with_a_witness_are_a_lockup() {
    let mut story = Story::new();
    story
        .line(1100, "soft-lockup", Some("x:1"))
        .line(1101, "rcu-stall", None);
    assert_eq!(story.reasons(), [Reason::KernelStalled]);
    story.through(1430);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // It goes on, says the log, and it alone.
    for secs in [1500, 1526, 1552] {
        story.line(secs, "soft-lockup", Some("x:1"));
        story.line(secs, "hard-lockup", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelStalled]);
    // A stall of another kind that was counted is no witness.
    story.state.rcu_stalls = Some(1);
    story.through(1590);
    assert_eq!(story.reasons(), [Reason::KernelStalled]);
    // The watchdog taints.
    story.state.tainted = Some(1 << 14);
    story.state.hard_lockups = Some(0);
    story.through(1620);
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    story.through(1552 + 630);
    assert_eq!(
        story.reasons(),
        [Reason::KernelIsHealthy],
        "three within ten minutes no longer"
    );
    story.line(3000, "hard-lockup", None);
    assert_eq!(story.reasons(), [Reason::KernelStalled]);
    story.state.hard_lockups = Some(1);
    story.through(3030);
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    story.through(3330);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    story.through(10_000);
    let next = story.check.due_at().unwrap();
    assert!(next > at(10_100).uptime, "calm again: {next:?}");
    // Stalls of RCU, by their own counter.
    for secs in [11_000, 11_026, 11_052] {
        story.line(secs, "rcu-stall", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
}

#[test]
fn an_oops_lasts_as_long_as_its_taint() {
    let mut story = Story::new();
    story.state.tainted = Some(1 << 7);
    // Three lines, one oops.
    for _ in 0..3 {
        story.line(1100, "oops", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelOops]);
    story.through(100_000);
    assert_eq!(story.reasons(), [Reason::KernelOops]);
    let next = story.check.due_at().unwrap();
    assert!(
        next > at(100_010).uptime,
        "nothing but a reboot ends it, and little is asked for it"
    );
    for secs in [100_000, 100_100, 100_200] {
        story.line(secs, "oops", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelOopsRepeated]);
    // A kernel that counts them has met two.
    story.state.oopses = Some(2);
    story.through(100_230);
    assert_eq!(story.reasons(), [Reason::KernelOops]);
    story.state.oopses = Some(3);
    story.through(100_260);
    assert_eq!(story.reasons(), [Reason::KernelOopsRepeated]);
    story.through(104_000);
    assert_eq!(story.reasons(), [Reason::KernelOops]);
    // The log alone.
    let mut story = Story::new();
    for secs in [1000, 1100, 1200] {
        story.line(secs, "oops", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelOops]);
}

#[test]
fn memory_that_failed_once_is_a_hint_and_again_and_again_is_the_hardware() {
    let mut story = Story::new();
    story.state.corrupted_kib = Some(4);
    story.line(1100, "cper-recoverable", None);
    assert_eq!(story.reasons(), [Reason::KernelMemoryLost]);
    story
        .line(1200, "memory-failure", None)
        .line(1300, "edac-uncorrected", None);
    assert_eq!(story.reasons(), [Reason::KernelHardwareFailing]);
    story.through(1300 + 86_430);
    assert_eq!(
        story.reasons(),
        [Reason::KernelMemoryLost],
        "the page is still given up"
    );
    // The log alone, and then the kernel's taint.
    let mut story = Story::new();
    story.line(1100, "cper-fatal", None);
    assert_eq!(story.reasons(), [Reason::KernelMemoryLost]);
    assert!(story.check.findings()[0].message.contains("no counter"));
    story.state.tainted = Some(1 << 4);
    story.through(1130);
    assert_eq!(story.reasons(), [Reason::KernelHardwareFailing]);
    story.state.tainted = None;
    story.through(1100 + 86_430);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
}

#[test]
fn a_stuck_device_is_over_when_nothing_is_said_of_it() {
    let mut story = Story::new();
    for secs in (1100..1400).step_by(10) {
        story.line(secs, "netdevice-stuck", Some("eth0"));
        assert_eq!(story.reasons(), [Reason::KernelNetdeviceStuck]);
    }
    story.through(1390 + 330);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
}

fn kill(secs: u64, pid: i32, pod: Option<&str>) -> KernelEvent {
    KernelEvent::OomKill(Box::new(OomKill {
        at: at(secs).uptime,
        pid,
        comm: "java".to_owned(),
        cgroup: Some("/kubepods/x".to_owned()),
        limit_cgroup: Some("/kubepods/limit".to_owned()),
        limit_bytes: Some(1 << 30),
        scope: Scope::Cgroup,
        pod: pod.map(|uid| PodRef {
            uid: uid.to_owned(),
            container: None,
        }),
        rss_bytes: Some(512 << 20),
    }))
}

#[test]
fn a_kill_is_told_with_the_victim_and_its_pod() {
    let mut story = Story::new();
    story.hear(1100, kill(1100, 5, Some("f1")));
    assert_eq!(
        story.told(),
        [
            "ProcessOOMKilled: the kernel killed `java` (pid 5) of the pod shop/cart-0 because /kubepods/limit reached its memory limit of 1024 MiB; it held 512 MiB"
        ]
    );
    story.hear(1101, kill(1101, 6, Some("a1")));
    assert!(story.told()[0].contains("(pid 6) of the pod with uid a1 because"));
    story.hear(1102, kill(1102, 7, None));
    assert!(story.told()[0].ends_with("; its cgroup is /kubepods/x"));
    assert_eq!(
        story.reasons(),
        [Reason::KernelIsHealthy],
        "a kill is no state of the kernel's"
    );
    assert!(story.check.due_at() > Some(at(1200).uptime));
}

/// Two pods of one workload are one series, unless it was the host that ran out of memory.
#[test]
fn kills_are_told_of_the_workload() {
    let about = |name: Option<&str>, scope| {
        let KernelEvent::OomKill(kill) = kill(1100, 5, Some("f1")) else {
            unreachable!()
        };
        told_of(&OomKill { scope, ..*kill }, name).about
    };
    let web = about(Some("shop/web-7d4b9c6f5-x2k9p"), Scope::Cgroup);
    let another = about(Some("shop/web-7d4b9c6f5-zzz24"), Scope::Cgroup);
    assert_eq!((&*web, &web), ("shop/web", &another));
    assert_ne!(web, about(Some("shop/web-7d4b9c6f5-x2k9p"), Scope::Host));
    assert_eq!(about(None, Scope::Cgroup), "f1");
}

#[test]
fn a_kill_before_we_came_and_the_kubelets_are_not_news() {
    let mut story = Story {
        check: Kernel::new(&Settings::default()),
        state: KernelState::default(),
    };
    story
        .hear(1000, kill(990, 5, None))
        .line(1000, "fork-refused", Some("/x"));
    story.hear(1000, KernelEvent::Readable);
    let kubelet = crate::checks::kubelet::Process {
        pid: 9,
        started: Duration::ZERO,
    };
    story.check.take(&Reading::Kubelet(Some(kubelet)), at(1001));
    story.hear(1002, kill(1002, 9, None));
    story.check.take(&Reading::Kubelet(None), at(1003));
    story.hear(1003, kill(1003, 9, None));
    assert_eq!(story.told(), [""; 0]);
}

#[test]
fn a_storm_of_kills_is_bounded() {
    let mut check = Kernel::new(&Settings::default());
    check.take(&Reading::Kernel(KernelEvent::Readable), at(1));
    for pid in 0..1000 {
        check.take(&Reading::Kernel(kill(2, pid, Some("f1"))), at(2));
        check.take(&Reading::Kernel(kill(2, pid, None)), at(2));
    }
    assert!(check.nameless.len() <= MAX_NAMELESS && check.news.len() <= MAX_NEWS);
}

#[test]
fn what_is_no_state_is_news() {
    let mut story = Story::new();
    story
        .line(1100, "edac-corrected", Some("DIMM0"))
        .line(1100, "fork-refused", Some("/system.slice/x"))
        .line(1100, "conntrack-full", None)
        .line(1100, "ext4-error", Some("sda1"))
        .hear(1100, KernelEvent::Lost { records: 7 });
    let told = story.told();
    let names: Vec<_> = told.iter().map(|t| t.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "HardwareErrorCorrected",
            "ForkRefused",
            "ConntrackTableFull",
            "KernelLogOverrun"
        ]
    );
    assert!(told[3].contains("7 records"));
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
}

/// Whatever comes, in whatever order: the messages have no counters, and everything stays bounded.
#[test]
fn the_same_state_is_the_same_sentence() {
    let mut story = Story::new();
    story.state.waiting = vec![WaitingTask {
        cgroup: Some("/init.scope".to_owned()),
        ..waits(1, "systemd")
    }];
    story.state.tainted = Some(1 << 4 | 1 << 7 | 1 << 14);
    for secs in [1100, 1200, 1300, 1400] {
        for id in ["soft-lockup", "oops", "cper-recoverable", "cper-fatal"] {
            story.line(secs, id, None);
        }
        story.line(secs, "hung-task", Some("systemd:1"));
        story.line(secs, "netdevice-stuck", Some("lo"));
    }
    let said = story.check.findings().to_vec();
    assert!(said.len() >= 5, "{said:?}");
    for secs in [1401, 1500] {
        for id in ["soft-lockup", "oops", "cper-recoverable", "cper-fatal"] {
            story.line(secs, id, None);
        }
        assert_eq!(story.check.findings(), said);
    }
}
