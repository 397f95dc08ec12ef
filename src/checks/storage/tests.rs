//! The check without disk and helper.

use jiff::Timestamp;
use nix::errno::Errno;
use proptest::prelude::*;

use super::*;
use crate::{
    checks::kernel::event::{Concern, KernelLine, Meaning, Pattern},
    checks::kernel::patterns::PATTERNS,
    checks::kubelet::Process,
    health::Status,
    helper::storage::{Owner, Room, StuckAt},
};

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn ext4(path: &str) -> FileSystem {
    FileSystem {
        path: path.into(),
        owner: Owner::Kubelet,
        kind: "ext4".to_owned(),
        devices: vec!["sda1".to_owned(), "sda".to_owned()],
        read_only: None,
        room: Some(Room {
            total_bytes: 1000,
            free_bytes: 500,
            available_bytes: 450,
            inodes: 100,
            inodes_free: 50,
        }),
        canary: Canary::Written,
    }
}

fn well() -> FileSystem {
    ext4("/var/lib/kubelet")
}

fn fails(errno: Errno) -> FileSystem {
    FileSystem {
        canary: Canary::Failed {
            step: "write".to_owned(),
            errno: errno as i32,
        },
        ..well()
    }
}

fn read_only() -> FileSystem {
    FileSystem {
        read_only: Some("the file system is mounted read-only".to_owned()),
        ..well()
    }
}

fn stuck(for_secs: u64) -> StorageAnswer {
    StorageAnswer {
        file_systems: Vec::new(),
        stuck: Some(StuckAt {
            what: "write a page to /var/lib/kubelet".to_owned(),
            for_ms: for_secs * 1000,
        }),
    }
}

/// The check, asked as the loop asks it.
struct Asked {
    check: Storage,
    secs: u64,
}

impl Asked {
    fn new() -> Self {
        let check = Storage::new(&Settings::default());
        Self { check, secs: 100 }
    }

    fn hears(&mut self, reading: &Reading) -> Option<Reason> {
        self.check.take(reading, at(self.secs));
        self.reason()
    }

    /// The next look finds that; what is then said first, and how long until the next look.
    fn looks(&mut self, found: &[FileSystem]) -> (Option<Reason>, u64) {
        self.answered(StorageAnswer {
            file_systems: found.to_vec(),
            stuck: None,
        })
    }

    fn answered(&mut self, answer: StorageAnswer) -> (Option<Reason>, u64) {
        assert!(self.check.turn(at(self.secs)).is_some());
        self.hears(&Reading::Storage(Ok(answer)));
        let next = self.check.due_at().unwrap().as_secs();
        let wait = next - self.secs;
        self.secs = next;
        (self.reason(), wait)
    }

    fn reason(&self) -> Option<Reason> {
        self.check.findings().first().map(|finding| finding.reason)
    }

    fn message(&self) -> &str {
        &self.check.findings()[0].message
    }

    fn kubelet_runs(&mut self) {
        let process = Process {
            pid: 812,
            started: Duration::ZERO,
        };
        self.hears(&Reading::Kubelet(Some(process)));
    }
}

#[test]
fn all_is_well_and_looked_at_seldom() {
    let mut asked = Asked::new();
    assert_eq!(asked.check.due_at(), Some(Duration::ZERO));
    assert_eq!(asked.looks(&[well()]), (Some(Reason::StorageIsHealthy), 60));
    let said = asked.message().to_owned();
    asked.looks(&[well()]);
    assert_eq!(asked.message(), said, "the same state is the same sentence");
    assert!(said.contains("/var/lib/kubelet (ext4)"), "{said}");
    let flushed = FileSystem {
        canary: Canary::Flushed,
        ..ext4("/var/lib/containerd")
    };
    asked.looks(&[well(), flushed]);
    assert!(
        asked.message().contains(".nodevigil"),
        "{}",
        asked.message()
    );
}

#[test]
fn a_fact_is_told_by_one_look_and_followed_closely() {
    for (sick, reason) in [
        (read_only(), Reason::FilesystemReadOnly),
        (fails(Errno::EIO), Reason::StorageIOError),
        (fails(Errno::EUCLEAN), Reason::StorageIOError),
    ] {
        let mut asked = Asked::new();
        asked.looks(&[well()]);
        assert_eq!(asked.looks(&[sick]), (Some(reason), 10));
        assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
    }
}

#[test]
fn no_room_is_told_after_three_looks_back_to_back() {
    let no_inodes = FileSystem {
        room: Some(Room {
            inodes_free: 0,
            ..well().room.unwrap()
        }),
        ..fails(Errno::ENOSPC)
    };
    let by_its_own_word = FileSystem {
        canary: Canary::Flushed,
        room: Some(Room {
            free_bytes: 0,
            available_bytes: 0,
            ..well().room.unwrap()
        }),
        ..well()
    };
    for (sick, reason) in [
        (fails(Errno::ENOSPC), Reason::StorageFull),
        (fails(Errno::EDQUOT), Reason::StorageFull),
        (no_inodes, Reason::StorageInodesExhausted),
        (by_its_own_word, Reason::StorageFull),
    ] {
        let mut asked = Asked::new();
        asked.looks(&[well()]);
        for _ in 0..2 {
            let looked = asked.looks(std::slice::from_ref(&sick));
            assert_eq!(looked, (Some(Reason::StorageIsHealthy), 2));
        }
        assert_eq!(asked.looks(std::slice::from_ref(&sick)), (Some(reason), 10));
        assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
        // A moment without room is none.
        asked.looks(&[sick]);
        assert_eq!(asked.looks(&[well()]), (Some(Reason::StorageIsHealthy), 60));
    }
}

#[test]
fn what_hangs_beyond_the_deadline_is_told_and_nothing_else_is_known() {
    let mut asked = Asked::new();
    asked.looks(&[well()]);
    for secs in [3, 5, 9, 11, 13] {
        let looked = asked.answered(stuck(secs));
        assert_eq!(looked, (Some(Reason::StorageIsHealthy), 2), "{secs}");
    }
    assert_eq!(asked.answered(stuck(15)), (Some(Reason::StorageHung), 10));
    assert!(
        asked.message().contains("/var/lib/kubelet"),
        "{}",
        asked.message()
    );
    let said = asked.message().to_owned();
    asked.answered(stuck(99));
    assert_eq!(asked.message(), said, "no counter in it");
    assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
}

#[test]
fn a_slow_disk_is_none_that_hangs() {
    let mut asked = Asked::new();
    for _ in 0..20 {
        asked.answered(stuck(8));
        assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
    }
}

#[test]
fn what_was_never_writable_is_so_by_design_unless_a_kubelet_needs_it() {
    let mut asked = Asked::new();
    let image = read_only();
    assert_eq!(
        asked.looks(std::slice::from_ref(&image)).0,
        Some(Reason::StorageIsHealthy)
    );
    asked.kubelet_runs();
    assert_eq!(asked.looks(&[image]).0, Some(Reason::FilesystemReadOnly));
}

#[test]
fn hints_ahead_of_the_wall_have_a_hysteresis_and_change_no_status() {
    let mut asked = Asked::new();
    let free = |percent: u64| FileSystem {
        room: Some(Room {
            available_bytes: percent * 10,
            ..well().room.unwrap()
        }),
        ..well()
    };
    let steps = [
        (5, Reason::StorageIsHealthy),
        (4, Reason::StorageNearlyFull),
        (6, Reason::StorageNearlyFull),
        (7, Reason::StorageIsHealthy),
        (6, Reason::StorageIsHealthy),
    ];
    for (percent, reason) in steps {
        assert_eq!(asked.looks(&[free(percent)]), (Some(reason), 60));
        assert_eq!(reason.status(), Status::True);
    }
    let few_inodes = FileSystem {
        room: Some(Room {
            inodes: 1000,
            inodes_free: 9,
            ..well().room.unwrap()
        }),
        ..well()
    };
    let looked = asked.looks(&[few_inodes]);
    assert_eq!(looked.0, Some(Reason::StorageInodesNearlyExhausted));
    // A file system without such a bound.
    let btrfs = FileSystem {
        room: Some(Room {
            inodes: 0,
            inodes_free: 0,
            ..well().room.unwrap()
        }),
        ..well()
    };
    assert_eq!(asked.looks(&[btrfs]).0, Some(Reason::StorageIsHealthy));
}

fn said(subject: Option<&str>, meaning: Meaning, at: Duration) -> Reading {
    let is_it = |p: &&Pattern| p.concern == Concern::Storage && p.meaning == meaning;
    Reading::Kernel(KernelEvent::Line(KernelLine {
        at,
        pattern: PATTERNS.iter().find(is_it).unwrap(),
        subject: subject.map(str::to_owned),
        text: "I/O error, dev sda, sector 2048".to_owned(),
    }))
}

impl Asked {
    fn hears_of(&mut self, subject: Option<&str>) {
        let at = Duration::from_secs(self.secs);
        self.hears(&said(subject, Meaning::IoError, at));
    }
}

#[test]
fn a_word_of_the_kernels_has_us_look_at_once_and_is_a_hint_for_a_while() {
    let mut asked = Asked::new();
    asked.looks(&[well()]);
    asked.secs -= 20;
    asked.hears_of(Some("sda"));
    assert_eq!(asked.check.due_at(), Some(at(asked.secs).uptime), "at once");
    assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageErrorsLogged));
    assert!(
        asked.message().contains("sector 2048"),
        "{}",
        asked.message()
    );
    // A storm of them asks no more often than a suspicion.
    let before = asked.check.last_asked;
    for _ in 0..1000 {
        asked.hears_of(Some("sda1-8"));
    }
    assert!(asked.check.due_at().unwrap() >= before + SUSPECT_EVERY);
    asked.secs += 700;
    assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
    // Another disk's errors are nothing to these file systems, and a nameless one's only a reason to look.
    for subject in [Some("sdb"), Some("sda2"), None] {
        asked.hears_of(subject);
        assert_eq!(
            asked.looks(&[well()]).0,
            Some(Reason::StorageIsHealthy),
            "{subject:?}"
        );
    }
    // A warning, and what was said before our start, are neither.
    let before = asked.check.due_at();
    asked.hears(&said(Some("sda"), Meaning::IoError, Duration::ZERO));
    assert_eq!(asked.check.due_at(), before);
    let at = Duration::from_secs(asked.secs);
    asked.hears(&said(Some("sda"), Meaning::FilesystemWarning, at));
    assert_eq!(asked.looks(&[well()]).0, Some(Reason::StorageIsHealthy));
    for disk in 0..100 {
        asked.hears_of(Some(&format!("sd{disk}")));
    }
}

#[test]
fn failing_to_look_is_unknown_after_a_while_and_clears_nothing() {
    let away = || Reading::Storage(Err("no answer".to_owned()));
    let mut asked = Asked::new();
    assert_eq!(
        asked.hears(&away()),
        Some(Reason::StorageProbeFailed),
        "nothing was known"
    );
    asked.looks(&[well()]);
    assert_eq!(
        asked.looks(&[read_only()]).0,
        Some(Reason::FilesystemReadOnly)
    );
    assert_eq!(asked.hears(&away()), Some(Reason::FilesystemReadOnly));
    asked.secs += 61;
    assert_eq!(asked.hears(&away()), Some(Reason::StorageProbeFailed));
    // So it is with what may not be opened.
    let closed = FileSystem {
        canary: Canary::NotTried {
            why: "open: permission denied".to_owned(),
        },
        room: None,
        ..well()
    };
    let mut asked = Asked::new();
    asked.looks(&[well()]);
    assert_eq!(
        asked.looks(std::slice::from_ref(&closed)).0,
        Some(Reason::StorageIsHealthy)
    );
    asked.secs += 61;
    assert_eq!(asked.looks(&[closed]).0, Some(Reason::StorageProbeFailed));
}

#[test]
fn a_host_without_kubelet_and_runtime_has_no_such_condition() {
    let mut asked = Asked::new();
    assert!(asked.check.applies());
    asked.looks(&[]);
    assert!(!asked.check.applies());
    asked.looks(&[well()]);
    assert!(asked.check.applies());
}

fn any_look() -> impl Strategy<Value = StorageAnswer> {
    let file_systems = prop::collection::vec(
        prop_oneof![
            Just(well()),
            Just(read_only()),
            Just(ext4("/b")),
            any::<i32>().prop_map(|errno| FileSystem {
                canary: Canary::Failed {
                    step: "x".repeat(9),
                    errno
                },
                ..well()
            }),
        ],
        0..4,
    );
    (file_systems, prop::option::of(0..99_u64)).prop_map(|(file_systems, hangs)| StorageAnswer {
        file_systems,
        stuck: hangs.and_then(|secs| stuck(secs).stuck),
    })
}

proptest! {
    /// Whatever a helper says: it is asked again, not too often, and healthy is said only of what was seen to be.
    #[test]
    fn any_answers_keep_the_rules(answers in prop::collection::vec(any_look(), 1..20)) {
        let mut asked = Asked::new();
        asked.kubelet_runs();
        for answer in answers {
            let is_well = answer.stuck.is_none() && answer.file_systems.iter().all(|fs| fault::of(fs).is_none());
            let before = asked.check.findings().to_vec();
            let (_, wait) = asked.answered(answer);
            prop_assert!((2..=60).contains(&wait));
            let said = asked.check.findings();
            prop_assert!(said.iter().all(|f| f.message.len() < 1024));
            if said != before && said.iter().any(|f| f.reason == Reason::StorageIsHealthy) {
                prop_assert!(is_well);
            }
        }
    }
}
