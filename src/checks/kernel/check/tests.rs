//! Histories of the check: what the log says, what the tables say, what is found and told.

use jiff::Timestamp;

use super::*;
use crate::checks::kernel::{event::PodRef, patterns::PATTERNS};

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

    /// It comes at second 1000, and this boot has said things before.
    fn after(said: &[(u64, &str)]) -> Self {
        let mut story = Self {
            check: Kernel::new(&Settings::default()),
            state: KernelState::default(),
        };
        for (secs, id) in said {
            story
                .check
                .take(&Reading::Kernel(line(*secs, id, None)), at(1000));
        }
        story.hear(1000, KernelEvent::Readable);
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
fn a_calm_wants_nothing() {
    let mut story = Story::new();
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    assert_eq!(story.check.due_at(), None);
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
    story.check.look_at = Some(at(1002).uptime);
    story.pass(1002);
    assert_eq!(
        story.reasons(),
        [Reason::KernelLogUnreadable, Reason::KernelOops]
    );
}

/// A restart of the agent during a trouble finds it again in what the log still holds; what is long over stays over.
#[test]
fn what_was_said_before_counts_by_its_stamp() {
    let story = Story::after(&[
        (960, "soft-lockup"),
        (980, "soft-lockup"),
        (995, "soft-lockup"),
    ]);
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    let story = Story::after(&[
        (10, "soft-lockup"),
        (30, "soft-lockup"),
        (50, "soft-lockup"),
        (20, "netdevice-stuck"),
    ]);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
}

#[test]
fn a_hung_task_is_over_when_it_waits_no_longer() {
    let mut story = Story::new();
    story.state.waiting = vec![5];
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
    assert_eq!(story.check.due_at(), None);
}

#[test]
fn what_no_pod_can_do_without_is_a_deadlock() {
    let mut story = Story::new();
    story.state.waiting = vec![7, 8];
    story.line(1100, "hung-task", Some("containerd-shim:8"));
    story.through(2000);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "one container's");
    story.line(2000, "hung-task", Some("containerd:7"));
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "not yet");
    story.through(2119);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung], "not yet");
    story.through(2150);
    assert_eq!(story.reasons(), [Reason::KernelDeadlocked]);
    story.state.waiting = vec![8];
    story.through(2180);
    assert_eq!(story.reasons(), [Reason::KernelTaskHung]);
    // Or many of whatever name.
    story.state.waiting = (8..30).collect();
    for tid in 9..30 {
        story.line(2200, "hung-task", Some(&format!("x:{tid}")));
    }
    assert_eq!(story.reasons(), [Reason::KernelDeadlocked]);
    assert!(story.check.troubles.tids().len() <= 16);
    // A name without a number is nobody.
    Story::new()
        .line(1100, "hung-task", Some("x:"))
        .line(1100, "hung-task", None);
}

#[test]
fn one_stall_is_a_hint_and_many_are_a_lockup() {
    let mut story = Story::new();
    story
        .line(1100, "soft-lockup", Some("x:1"))
        .line(1101, "rcu-stall", None);
    assert_eq!(story.reasons(), [Reason::KernelStalled]);
    story.through(1430);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    // It goes on: the watchdog says so again and again.
    for secs in [1500, 1526, 1552] {
        story.line(secs, "soft-lockup", Some("x:1"));
    }
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    story.through(1552 + 599);
    assert_eq!(
        story.reasons(),
        [Reason::KernelIsHealthy],
        "three within ten minutes no longer"
    );
    story.line(3000, "hard-lockup", None);
    assert_eq!(story.reasons(), [Reason::KernelLockedUp]);
    story.through(3330);
    assert_eq!(story.reasons(), [Reason::KernelIsHealthy]);
    story.through(10_000);
    assert_eq!(story.check.due_at(), None, "calm again");
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
    assert_eq!(
        story.check.due_at(),
        None,
        "nothing but a reboot ends it, and nothing is asked for it"
    );
    for secs in [100_000, 100_100, 100_200] {
        story.line(secs, "oops", None);
    }
    assert_eq!(story.reasons(), [Reason::KernelOopsRepeated]);
    story.through(104_000);
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
    let mut story = Story::new();
    story.line(1100, "cper-fatal", None);
    assert_eq!(story.reasons(), [Reason::KernelHardwareFailing]);
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
    assert_eq!(story.check.due_at(), None);
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
    story.state.waiting = vec![1];
    story.state.tainted = Some(1 << 7);
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
