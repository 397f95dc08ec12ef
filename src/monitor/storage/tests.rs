//! What is observed of file systems, and what is reported then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::directory::Wait;
use super::state::{Reading, Storage};
use crate::condition::{ConditionType, Reason, Status, Uptime, View};
use crate::host::disk::{Outcome, Probe, Requests, Step};
use crate::host::kmsg::Line;
use crate::monitor::service::tests::reports;

const KUBELET: &str = "/var/lib/kubelet";
const RUNTIME: &str = "/var/lib/containerd";
/// The kubelet's files on a disk of their own, and the runtime's on that of the host.
const TWO_DISKS: &str = "\
27 1 254:0 / / rw - ext4 /dev/vda rw
108 27 8:0 / /var/lib/kubelet rw - xfs /dev/sda rw
";
const ONE_DISK: &str = "27 1 254:0 / / rw - ext4 /dev/vda rw\n";

/// What was seen, on a clock of its own.
struct Story {
    storage: Storage,
    now: Uptime,
    table: String,
    kubelet_runs: bool,
}

fn probe(outcome: Outcome) -> Probe {
    Probe { real_path: None, is_full: false, is_without_inodes: false, outcome }
}

fn failed(error: Errno) -> Probe {
    probe(Outcome::Failed(Step::Write, error.raw_os_error()))
}

fn stuck(switches: u64, completed: Option<u64>, is_any_in_progress: bool) -> Wait {
    let requests = completed.map(|completed| Requests { completed, is_any_in_progress });
    Wait { step: Step::Fsync, switches, requests }
}

impl Story {
    fn new(table: &str) -> Self {
        let now = Uptime::from_secs(1000);
        let mut storage = Storage::new(now);
        storage.set_directories(None, &[RUNTIME.into()]);
        Self { storage, now, table: table.into(), kubelet_runs: true }
    }

    /// A kubelet and a containerd with healthy file systems; there is no other directory.
    fn healthy(table: &str) -> Self {
        let mut story = Self::new(table);
        story.round(&probe(Outcome::Written));
        story.reports(Status::True, Reason::StorageIsHealthy);
        story
    }

    /// Time passes until the mounts and the overdue probes are read again; returns the directories whose probe is then started.
    fn read(&mut self, wait: Option<Wait>) -> Vec<PathBuf> {
        self.now = self.now.max(self.storage.next_reading);
        let overdue = self.storage.overdue(self.now).into_iter().map(|(path, _)| (path, wait)).collect();
        let reading = Reading { table: Ok(self.table.clone()), kubelet_runs: self.kubelet_runs, overdue };
        self.storage.observe(reading, self.now);
        self.start()
    }

    fn start(&mut self) -> Vec<PathBuf> {
        std::iter::from_fn(|| self.storage.start(self.now)).collect()
    }

    /// The same; then all probes end, of the kubelet's directory so, and of others well. Returns the probed directories.
    fn round(&mut self, of_kubelet: &Probe) -> Vec<PathBuf> {
        self.round_with(&Ok(of_kubelet.clone()))
    }

    fn round_with(&mut self, of_kubelet: &Result<Probe, String>) -> Vec<PathBuf> {
        let (mut started, mut probed) = (self.read(None), Vec::new());
        while let Some(path) = started.pop() {
            let result = match path.to_str() {
                Some(KUBELET) => of_kubelet.clone(),
                Some(RUNTIME) => Ok(probe(Outcome::Synced)),
                _ => Ok(probe(Outcome::Absent)),
            };
            self.now += Duration::from_millis(1);
            self.storage.ended(&path, result, self.now);
            probed.push(path);
            started.extend(self.start());
        }
        probed
    }

    /// Looks until so many seconds have passed; the probe of the kubelet's directory does not end.
    fn hang(&mut self, secs: u64, mut wait: impl FnMut(u64) -> Option<Wait>) {
        let until = self.now + Duration::from_secs(secs);
        for index in 0.. {
            if self.now >= until {
                return;
            }
            let started = self.read(wait(index));
            assert!(!started.contains(&KUBELET.into()), "while a probe hangs");
            for path in started {
                self.storage.ended(&path, Ok(probe(Outcome::Synced)), self.now);
            }
        }
    }

    #[track_caller]
    fn reports(&self, status: Status, reason: Reason) -> String {
        reports(self.storage.view(self.now), ConditionType::NodeStorageHealthy, status, reason)
    }

    /// What was reported before holds.
    #[track_caller]
    fn is_unclear(&self) {
        let view = self.storage.view(self.now);
        assert!(matches!(view, Some(View::Unchanged(_))), "{view:?}");
    }
}

#[test]
fn each_file_system_is_probed_once_and_other_directories_are_searched_for_now_and_then() {
    let mut story = Story::new(ONE_DISK);
    assert_eq!(story.storage.view(story.now), None);
    assert_eq!(story.round(&probe(Outcome::Written)).len(), 6, "where each directory is must be found out");
    assert_eq!(story.round(&probe(Outcome::Written)), [Path::new(KUBELET)]);
    let message = story.reports(Status::True, Reason::StorageIsHealthy);
    assert_eq!(message, "a test write to /var/lib/kubelet (ext4, /dev/vda) succeeds");
    story.now += Duration::from_mins(10);
    assert_eq!(story.round(&probe(Outcome::Written)).len(), 6);

    let mut story = Story::healthy(TWO_DISKS);
    assert_eq!(story.round(&probe(Outcome::Written)).len(), 2);
    let message = story.reports(Status::True, Reason::StorageIsHealthy);
    assert!(message.ends_with("; fsync of /var/lib/containerd (ext4, /dev/vda) succeeds"), "{message}");
}

#[test]
fn an_io_error_counts_at_once_and_no_space_after_three_probes() {
    for error in [Errno::IO, Errno::UCLEAN] {
        let mut story = Story::healthy(TWO_DISKS);
        story.round(&failed(error));
        let message = story.reports(Status::False, Reason::StorageIOError);
        assert!(message.starts_with("/var/lib/kubelet (xfs, /dev/sda) fails: write: "), "{message}");
        story.round(&probe(Outcome::Written));
        story.reports(Status::True, Reason::StorageIsHealthy);
    }
    let without_inodes = Probe { is_without_inodes: true, ..probe(Outcome::Synced) };
    for (full, what) in [(failed(Errno::NOSPC), "space"), (failed(Errno::DQUOT), "space"), (without_inodes, "inodes")] {
        let mut story = Story::healthy(TWO_DISKS);
        for _ in 0..2 {
            story.round(&full);
            story.is_unclear();
        }
        story.round(&full);
        let message = story.reports(Status::False, Reason::StorageFull);
        assert_eq!(message, format!("/var/lib/kubelet (xfs, /dev/sda) has no {what} left: delete files or enlarge it"));
        story.round(&probe(Outcome::Written));
        story.round(&full);
        story.is_unclear();
    }
}

/// kubernetes/kubernetes#105928 and #73208, kata-containers/kata-containers#6622, cri-o/cri-o#7222, rancher/rke2#1220: the Node was Ready,
/// and no container started.
#[test]
fn a_file_system_that_only_containers_need_is_a_problem_when_it_is_full() {
    let others = "30 27 0:25 / /run rw - tmpfs tmpfs rw,size=404480k\n31 27 254:16 / /var/log rw - ext4 /dev/vdb rw\n";
    let (fine, no_space) = (probe(Outcome::Synced), Probe { is_full: true, ..probe(Outcome::Synced) });
    let no_inodes = Probe { is_without_inodes: true, ..fine.clone() };
    for (full, result, message) in [
        ("/run", &no_inodes, "/run (tmpfs) has no inodes left: delete files or enlarge it"),
        ("/var/log/pods", &no_space, "/var/log/pods (ext4, /dev/vdb) has no space left: delete files or enlarge it"),
    ] {
        let mut story = Story::new(&format!("{TWO_DISKS}{others}"));
        let mut round = |result: &Probe| {
            let mut started = story.read(None);
            while let Some(path) = started.pop() {
                let of_path = if path == Path::new(full) { result } else { &fine };
                story.storage.ended(&path, Ok(of_path.clone()), story.now);
                started.extend(story.start());
            }
            story.storage.view(story.now)
        };
        let seen = |view, status, reason| reports(view, ConditionType::NodeStorageHealthy, status, reason);
        let healthy = seen(round(&fine), Status::True, Reason::StorageIsHealthy);
        assert!(
            healthy.ends_with("; fsync of /run (tmpfs) succeeds; fsync of /var/log/pods (ext4, /dev/vdb) succeeds"),
            "{healthy}"
        );
        (0..2).for_each(|_| drop(round(result)));
        assert_eq!(seen(round(result), Status::False, Reason::StorageFull), message);
    }
}

#[test]
fn a_write_that_waits_in_the_kernel_is_a_hang_if_its_disk_completes_none_of_its_requests() {
    for (switches, completed, in_progress, status, reason) in [
        (0, Some(0), true, Status::False, Reason::StorageHung),
        (0, Some(1), true, Status::True, Reason::StorageSlow),
        // Such as on a host without free memory, which reads the program back from the disk again and again.
        (1, Some(0), true, Status::True, Reason::StorageSlow),
        // As while the file system is frozen.
        (0, Some(0), false, Status::Unknown, Reason::StorageProbeFailed),
        (0, None, false, Status::Unknown, Reason::StorageProbeFailed),
    ] {
        let mut story = Story::healthy(TWO_DISKS);
        assert_eq!(story.read(None).len(), 2);
        story.storage.ended(Path::new(RUNTIME), Ok(probe(Outcome::Synced)), story.now);
        let wait = |index| Some(stuck(switches * index, completed.map(|completed| completed * index), in_progress));
        story.hang(20, wait);
        story.is_unclear();
        story.hang(30, wait);
        let message = story.reports(status, reason);
        assert!(message.starts_with("/var/lib/kubelet (xfs, /dev/sda) does not finish a test write"), "{message}");
        story.storage.ended(Path::new(KUBELET), Ok(probe(Outcome::Written)), story.now);
        story.reports(Status::True, Reason::StorageIsHealthy);
    }
}

#[test]
fn a_first_probe_that_does_not_end_is_reported_before_it_counts() {
    let mut story = Story::new(TWO_DISKS);
    story.read(None);
    assert_eq!(story.storage.view(story.now), None);
    story.read(None);
    story.is_unclear();
    assert!(story.now < Uptime::from_secs(1008), "`nodevigil diagnose` waits for eight seconds");
}

#[test]
fn a_probe_that_hangs_does_not_apply_to_a_file_system_that_is_mounted_later() {
    let mut story = Story::healthy(TWO_DISKS);
    assert_eq!(story.read(None).len(), 2);
    story.storage.ended(Path::new(RUNTIME), Ok(probe(Outcome::Synced)), story.now);
    story.table = TWO_DISKS.replace("8:0", "8:16").replace("sda", "sdb");
    story.hang(90, |_| Some(stuck(0, Some(0), true)));
    let message = story.reports(Status::Unknown, Reason::StorageProbeFailed);
    assert!(message.contains("(xfs, /dev/sdb) cannot be probed: the probe of the file system that was"), "{message}");
    story.storage.ended(Path::new(KUBELET), Ok(failed(Errno::IO)), story.now);
    story.reports(Status::Unknown, Reason::StorageProbeFailed);
    story.round(&probe(Outcome::Written));
    story.reports(Status::True, Reason::StorageIsHealthy);
}

#[test]
fn a_probe_that_the_host_does_not_let_run_is_no_fault_of_the_disk() {
    let mut story = Story::healthy(ONE_DISK);
    story.read(None);
    story.hang(60, |_| None);
    story.is_unclear();
    story.hang(15, |_| None);
    let message = story.reports(Status::Unknown, Reason::StorageProbeFailed);
    assert!(message.contains("was started but does not run"), "{message}");
}

#[test]
fn what_cannot_be_probed_is_reported_after_a_minute_and_ends_no_problem() {
    for hindered in
        [Err("probe-disk cannot be started: EAGAIN".to_owned()), Ok(failed(Errno::ACCESS)), Ok(failed(Errno::ROFS))]
    {
        let mut story = Story::healthy(TWO_DISKS);
        story.round(&failed(Errno::IO));
        story.round_with(&hindered);
        story.is_unclear();
        story.now += Duration::from_mins(1);
        story.round_with(&hindered);
        story.reports(Status::Unknown, Reason::StorageProbeFailed);
    }
    let mut story = Story::healthy(ONE_DISK);
    for _ in 0..2 {
        story.now += Duration::from_mins(1);
        let table = Err("/proc/1/mountinfo: EACCES".into());
        story.storage.observe(Reading { table, kubelet_runs: false, overdue: Vec::new() }, story.now);
        assert_eq!(story.start(), [] as [PathBuf; 0], "on which file system a directory is, is not known");
    }
    story.reports(Status::Unknown, Reason::StorageProbeFailed);
}

#[test]
fn a_mount_that_becomes_read_only_is_a_problem_and_one_that_always_was_is_none() {
    let remounted = TWO_DISKS.replace("kubelet rw", "kubelet ro");
    let by_kernel = TWO_DISKS.replace("xfs /dev/sda rw", "ext4 /dev/sda ro");
    for (table, kubelet_runs, reason) in [
        (&remounted, true, Reason::FilesystemReadOnly),
        (&remounted, false, Reason::StorageIsHealthy),
        (&by_kernel, false, Reason::FilesystemReadOnly),
    ] {
        let mut story = Story::new(table);
        story.kubelet_runs = kubelet_runs;
        story.round(&probe(Outcome::Synced));
        story.reports(reason.spec().status, reason);

        let mut story = Story::healthy(TWO_DISKS);
        (story.table, story.kubelet_runs) = (table.clone(), kubelet_runs);
        story.round(&failed(Errno::ROFS));
        let message = story.reports(Status::False, Reason::FilesystemReadOnly);
        assert!(message.starts_with("/var/lib/kubelet (") && message.contains("/dev/sda) is "), "{message}");
        story.table = TWO_DISKS.into();
        story.round(&probe(Outcome::Written));
        story.reports(Status::True, Reason::StorageIsHealthy);
    }
}

#[test]
fn a_part_of_a_file_system_that_becomes_read_only_is_a_problem() {
    let mut story = Story::healthy(ONE_DISK);
    story.table += "28 27 254:0 /var/lib/containerd /var/lib/containerd ro - ext4 /dev/vda rw\n";
    story.round(&probe(Outcome::Written));
    let message = story.reports(Status::False, Reason::FilesystemReadOnly);
    assert_eq!(message, "/var/lib/containerd (ext4, /dev/vda) is mounted read-only");
}

#[test]
fn a_host_whose_root_is_read_only_by_design_is_no_problem() {
    let mut story = Story::new(&TWO_DISKS.replace("/ rw", "/ ro"));
    for path in story.read(None) {
        let is_there = path == Path::new(KUBELET);
        let result = if is_there { Ok(probe(Outcome::Written)) } else { Err("EAGAIN".into()) };
        story.storage.ended(&path, result, story.now);
    }
    story.is_unclear();
    story.round(&probe(Outcome::Written));
    story.reports(Status::True, Reason::StorageIsHealthy);
}

#[test]
fn a_warning_of_one_file_system_does_not_end_the_problem_of_another() {
    let mut story = Story::healthy(TWO_DISKS);
    story.read(None);
    // The runtime's file system is slow.
    story.storage.ended(Path::new(KUBELET), Ok(failed(Errno::IO)), story.now);
    story.reports(Status::False, Reason::StorageIOError);
    for index in 0..8 {
        let started = story.read(Some(stuck(0, Some(index), true)));
        if started.contains(&KUBELET.into()) {
            story.storage.ended(Path::new(KUBELET), Ok(failed(Errno::ACCESS)), story.now);
        }
    }
    let view = story.storage.view(story.now);
    assert!(matches!(view, Some(View::Unchanged(_))), "{view:?}");
}

#[test]
fn another_root_dir_is_probed_instead_of_the_default_ones() {
    let mut story = Story::healthy(ONE_DISK);
    story.storage.set_directories(Some(Path::new("/data/kubelet")), &[RUNTIME.into()]);
    assert_eq!(story.read(None), [Path::new("/data/kubelet")]);
    story.storage.ended(Path::new("/data/kubelet"), Ok(probe(Outcome::Written)), story.now);
    let message = story.reports(Status::True, Reason::StorageIsHealthy);
    assert_eq!(message, "a test write to /data/kubelet (ext4, /dev/vda) succeeds");
}

#[test]
fn a_container_runtime_whose_directory_is_not_known_is_mentioned() {
    let mut story = Story::new(ONE_DISK);
    // One that is the kubelet's too is not probed twice.
    story.storage.set_directories(None, &[KUBELET.into()]);
    assert_eq!(story.round(&probe(Outcome::Written)).len(), 5);
    let message = story.reports(Status::True, Reason::StorageIsHealthy);
    assert!(
        message.ends_with("; no directory of a container runtime was found ([storage] runtime_paths)"),
        "{message}"
    );
}

#[test]
fn a_host_without_directories_of_kubelet_and_runtime_is_not_healthy_because_it_has_a_run() {
    let mut story = Story::new("30 27 0:25 / /run rw - tmpfs tmpfs rw,size=404480k\n");
    let mut started = story.read(None);
    while let Some(path) = started.pop() {
        let outcome = if path == Path::new("/run") { Outcome::Synced } else { Outcome::Absent };
        story.storage.ended(&path, Ok(probe(outcome)), story.now);
        started.extend(story.start());
    }
    let message = story.reports(Status::Unknown, Reason::StorageProbeFailed);
    assert!(message.contains("no directory of a kubelet or a container runtime exists"), "{message}");
}

/// A host on which Docker builds images, next to the kubelet and its containerd.
#[test]
fn the_disk_of_another_runtime_is_not_probed() {
    let mut story = Story::healthy(TWO_DISKS);
    for _ in 0..3 {
        story.now += Duration::from_mins(10);
        assert!(!story.round(&probe(Outcome::Written)).iter().any(|path| path.ends_with("docker")));
    }
    let docker = Path::new("/var/lib/docker");
    story.storage.set_directories(None, &[docker.into()]);
    assert!(story.read(None).contains(&docker.into()), "it is the runtime that answers now, and is probed at once");
}

/// siderolabs/talos#14162
#[test]
fn a_line_about_a_disk_is_a_reason_to_probe_within_seconds() {
    let line = |text: &str, level, is_old| Line { level, text: text.into(), at: Uptime::ZERO, is_old };
    let shutdown = || {
        line(
            "XFS (sda6): Metadata I/O Error (0x1) detected at xfs_trans_read_buf_map.  Shutting down filesystem.",
            1,
            false,
        )
    };
    let mut story = Story::healthy(TWO_DISKS);
    let (read_at, planned) = (story.now, story.storage.next_reading);
    for none in [
        line("XFS (sda6): Mounting V5 Filesystem", 5, false),
        line("EXT4-fs error (device sda)", 2, true),
        line("eth0: link up", 4, false),
    ] {
        assert!(!story.storage.prompt(&none, story.now));
    }
    assert_eq!(story.storage.next_reading, planned);
    assert!(story.storage.prompt(&shutdown(), story.now));
    assert!(story.storage.next_reading <= read_at + Duration::from_secs(15), "{:?}", story.storage.next_reading);
    story.round(&failed(Errno::IO));
    story.reports(Status::False, Reason::StorageIOError);
    assert!(story.now <= read_at + Duration::from_secs(16));

    // A storm of lines about another disk.
    let mut story = Story::healthy(TWO_DISKS);
    let (from, mut readings) = (story.now, 0);
    while story.now < from + Duration::from_mins(2) {
        story.storage.prompt(&shutdown(), story.now);
        if story.now >= story.storage.next_reading {
            story.round(&probe(Outcome::Written));
            readings += 1;
        }
        story.now += Duration::from_millis(500);
    }
    assert!((7..=9).contains(&readings), "{readings}");
    // While a probe runs that began before the line.
    let mut story = Story::healthy(TWO_DISKS);
    let started = story.read(None);
    story.storage.prompt(&shutdown(), story.now);
    for path in started {
        story.storage.ended(&path, Ok(probe(Outcome::Written)), story.now);
    }
    assert!(story.storage.next_reading <= story.now + Duration::from_secs(15));
}
