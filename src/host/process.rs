//! Processes: which one is the kubelet, when it ends, what state it is in.
//!
//! Everything here reads kernel tables that do not block (`stat`, `status`, `cgroup.procs`); `/proc/PID/cmdline`,
//! which waits for the process's own lock, is the helper's.

mod find;

use std::{os::fd::OwnedFd, time::Duration};

use procfs::process::{Process as ProcProcess, Stat};
use tokio::io::{Interest, unix::AsyncFd};

use self::find::Candidate;
pub use self::find::{Where, find_kubelet, find_roots_kubelet};
use crate::{
    checks::kubelet::{Carrier, Process},
    host::{files::Root, kept},
};

/// The kernel's name of the process: what `comm` must say for a process of the unit to be the kubelet.
const COMM: &str = "kubelet";
/// Beginnings of the names of programs that start a kubelet as their child, and start it anew by themselves.
const PARENTS: &[&str] = &["rke2", "k0s"];
/// Bounds a pid file and a `cgroup.procs`: 16 pids a line of six digits would be 112 bytes; a unit with more than
/// some ten thousand processes is not the kubelet's.
const MAX_BYTES: usize = 128 * 1024;

fn since_boot(ticks: u64) -> Duration {
    let per_second = procfs::ticks_per_second();
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn stat(root: &Root, pid: i32) -> Option<Stat> {
    let process = ProcProcess::new_with_root(root.join(format!("/proc/{pid}"))).ok()?;
    process.stat().ok()
}

/// How a kubelet is run, by its name and its parent's.
pub fn carrier(root: &Root, process: &Process) -> Carrier {
    let Some(own) = stat(root, process.pid) else {
        return Carrier::Unit;
    };
    if own.comm != COMM {
        return Carrier::InProcess(own.comm);
    }
    match stat(root, own.ppid) {
        Some(parent) if PARENTS.iter().any(|name| parent.comm.starts_with(name)) => {
            Carrier::Child(parent.comm)
        }
        _ => Carrier::Unit,
    }
}

/// The process with that pid, so named that a reused pid is not taken for it.
pub fn identify(root: &Root, pid: i32) -> Option<Process> {
    stat(root, pid).map(|stat| Process {
        pid,
        started: since_boot(stat.starttime),
    })
}

/// The unit in whose cgroup a process is, on cgroup v2, v1 and both together.
pub fn unit_of(root: &Root, pid: i32) -> Option<String> {
    let text = root
        .read_text(format!("/proc/{pid}/cgroup"), MAX_BYTES)
        .ok()?;
    let mut paths = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        ["", "name=systemd"].contains(&controllers).then_some(path)
    });
    let unit = |path: &str| {
        let mut folders = path.rsplit('/');
        folders
            .find(|folder| folder.ends_with(".service"))
            .map(str::to_owned)
    };
    paths.find_map(unit)
}

/// Bounds a row: some fifty numbers of at most twenty digits, and a name of at most 64 bytes.
const MAX_ROW_BYTES: usize = 1024;

/// What the row of a process in `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its one-letter state.
    pub state: char,
    /// SIGKILL waits for it, or it has begun to exit.
    pub is_dying: bool,
}

/// The bits that the kernel sets in a task's flags as it exits, and once a signal has killed it (`linux/sched.h`).
const PF_EXITING: u64 = 0x4;
const PF_SIGNALED: u64 = 0x400;
/// SIGKILL in a mask of pending signals.
const PENDING_SIGKILL: u64 = 1 << 8;

impl Seen {
    /// `PID (COMM) STATE …`, and COMM may hold anything, parentheses too: proc(5) numbers the fields.
    fn of_row(row: &[u8]) -> Option<Self> {
        let comm_ends = row.iter().rposition(|byte| *byte == b')')?;
        let mut fields = kept::words(row.get(comm_ends + 1..)?);
        let state = char::from(*fields.next()?.first()?); // 3
        let flags = fields.nth(5).and_then(kept::number); // 9
        let pending = fields.nth(21).and_then(kept::number); // 31
        let has = |mask: Option<u64>, bits: u64| mask.is_some_and(|mask| mask & bits != 0);
        Some(Self {
            state,
            is_dying: matches!(state, 'Z' | 'X' | 'x')
                || has(flags, PF_EXITING | PF_SIGNALED)
                || has(pending, PENDING_SIGKILL),
        })
    }
}

/// The row of a process, if it is still that process.
pub fn seen(root: &Root, process: &Process) -> Option<Seen> {
    let pid = process.pid;
    let row = root.read(format!("/proc/{pid}/stat"), MAX_ROW_BYTES).ok()?;
    // Looked at afterwards: a pid that is still the same process's was so when its row was read.
    let is_still_it = identify(root, pid).is_some_and(|now| now == *process);
    is_still_it.then(|| Seen::of_row(&row)).flatten()
}

/// A process that is watched for its end.
#[derive(Debug)]
pub struct Watched {
    /// Whom.
    pub process: Process,
    pidfd: AsyncFd<OwnedFd>,
    /// Its row in `/proc`, kept open: it stays that process's, and one read a second is all that it costs.
    stat: OwnedFd,
}

impl Watched {
    /// Opens the process's pidfd. `None` if it has ended meanwhile, or its pid is another's by now.
    pub fn open(root: &Root, process: Process) -> std::io::Result<Option<Self>> {
        let Some(pid) = rustix::process::Pid::from_raw(process.pid) else {
            return Ok(None);
        };
        let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // Between the listing and the open the pid may have changed hands; now that it is held, look again.
        if Candidate::read(root, process.pid).map(|c| c.process) != Some(process.clone()) {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "its successor is unsafe and asks for what an OwnedFd promises by its type: one file, open while it lives"
        )]
        let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
        // Its first thread's: the whole process's adds up the times of all its threads, which nobody asks for.
        let pid = process.pid;
        let Ok(stat) = root.open(format!("/proc/{pid}/task/{pid}/stat")) else {
            return Ok(None);
        };
        Ok(Some(Self {
            process,
            pidfd,
            stat: stat.into(),
        }))
    }

    /// What its row says; `None` once it is gone.
    pub fn seen(&self) -> Option<Seen> {
        let mut row = [0; MAX_ROW_BYTES];
        let length = rustix::io::pread(&self.stat, &mut row, 0).ok()?;
        Seen::of_row(&row[..length])
    }

    /// Waits until the process has ended: the kernel makes its pidfd readable in the same moment.
    pub async fn gone(&self) {
        // An error can only mean that the runtime is going down; then nobody waits any more.
        if self.pidfd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::kubelet::Found;

    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
        fn root(&self) -> Root {
            Root::new(self.0.path())
        }
        fn put(&self, path: &str, text: &str) {
            let (dir, _) = path.rsplit_once('/').unwrap();
            self.root().create_dir_all(dir).unwrap();
            self.root().write_atomically(path, text.as_bytes()).unwrap();
        }
        fn process(&self, pid: i32, comm: &str, uid: u32, nspid: &str) {
            let zeros = "0 ".repeat(29);
            self.put(
                &format!("/proc/{pid}/stat"),
                &format!("{pid} ({comm}) S 1 1 1 0 -1 4194560 0 0 0 0 1 1 0 0 20 0 1 0 12345 1 1 1 {zeros}"),
            );
            self.put(
                &format!("/proc/{pid}/status"),
                &format!(
                    "Name:\t{comm}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t1\nTracerPid:\t0\n\
                     Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t \nNStgid:\t{nspid}\nNSpid:\t{nspid}\nThreads:\t1\n\
                     SigQ:\t0/1\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\n"
                ),
            );
        }
    }

    const GROUP: &str = "/system.slice/kubelet.service";

    fn find(host: &Host) -> Found {
        find_kubelet(&host.root(), &Where::ControlGroup(GROUP.to_owned()))
    }

    #[test]
    fn only_the_hosts_own_kubelet_is_taken() {
        for hierarchy in [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/systemd",
            "/sys/fs/cgroup/unified",
        ] {
            let host = Host::new();
            host.put(
                &format!("{hierarchy}{GROUP}/cgroup.procs"),
                "7\n8\n9\n10\n11\n",
            );
            host.process(7, "sh", 0, "7");
            host.process(8, "kubelet", 0, "8");
            host.process(9, "kubelet", 0, "9\t1");
            host.process(10, "kubelet", 1000, "10");
            let Found::One(process) = find(&host) else {
                panic!("{:?}", find(&host));
            };
            assert_eq!(process.pid, 8);
            let row = seen(&host.root(), &process).unwrap();
            assert_eq!((row.state, row.is_dying), ('S', false));
        }
    }

    #[test]
    fn how_it_is_run_is_told_by_names() {
        let host = Host::new();
        host.put(&format!("/sys/fs/cgroup{GROUP}/cgroup.procs"), "7\n8\n");
        host.process(7, "k3s-server", 0, "7");
        host.process(8, "containerd", 0, "8");
        let Found::One(process) = find(&host) else {
            panic!("{:?}", find(&host));
        };
        assert_eq!(process.pid, 7);
        let carried = |host: &Host| carrier(&host.root(), &process);
        assert_eq!(carried(&host), Carrier::InProcess("k3s-server".to_owned()));
        host.process(7, "kubelet", 0, "7");
        for (parent, expected) in [
            ("systemd", Carrier::Unit),
            ("kubelet-wrapper", Carrier::Unit),
            ("rke2", Carrier::Child("rke2".to_owned())),
            ("k0s", Carrier::Child("k0s".to_owned())),
        ] {
            host.process(1, parent, 0, "1");
            assert_eq!(carried(&host), expected);
        }
        // While the child of such a program is away, the program is not taken for it.
        host.process(7, "k0s", 0, "7");
        assert!(matches!(find(&host), Found::None(_)));
    }

    #[test]
    fn who_is_being_ended_is_seen_before_the_end() {
        // 6.1: fields 9 (flags) and 31 (the pending signals of its first thread).
        let row = |state: &str, flags: u64, pending: u64| {
            let zeros = "0 ".repeat(21);
            let row =
                format!("7 (a) b) {state} 1 7 7 0 -1 {flags} {zeros}{pending} 0 0 0 0 0 17\n");
            Seen::of_row(row.as_bytes()).unwrap()
        };
        for (state, flags, pending, is_dying) in [
            ("S", 4_194_560, 0, false),
            ("R", 4_194_560, 0x4000, false), // SIGTERM
            ("R", 4_194_560, 0x100, true),
            ("R", 4_194_564, 0, true),
            ("D", 4_195_584, 0, true),
            ("Z", 4_194_560, 0, true),
        ] {
            let seen = row(state, flags, pending);
            assert_eq!(seen.is_dying, is_dying, "{state} {flags} {pending}");
            assert_eq!(seen.state.to_string(), state);
        }
        assert_eq!(Seen::of_row(b"7 (sh"), None);
        assert_eq!(Seen::of_row(b"7 (sh)"), None);
    }

    #[test]
    fn two_candidates_are_both_named() {
        let host = Host::new();
        host.put(&format!("/sys/fs/cgroup{GROUP}/cgroup.procs"), "8\n9\n");
        host.process(8, "kubelet", 0, "8");
        host.process(9, "kubelet", 0, "9");
        assert_eq!(find(&host), Found::Many(vec![8, 9]));
    }

    #[test]
    fn a_stale_pid_file_names_the_stranger() {
        let host = Host::new();
        let place = Where::PidFile("/run/kubelet.pid".into());
        let find = |host: &Host| find_kubelet(&host.root(), &place);
        assert!(matches!(find(&host), Found::None(why) if why.contains("/run/kubelet.pid")));
        host.put("/run/kubelet.pid", "42\n");
        assert!(matches!(find(&host), Found::None(why) if why.contains("does not live")));
        host.process(42, "bash", 0, "42");
        assert!(matches!(find(&host), Found::None(why) if why.contains("`bash`")));
        host.process(42, "kubelet", 1000, "42");
        assert!(matches!(find(&host), Found::One(process) if process.pid == 42));
    }
}
