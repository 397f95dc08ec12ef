//! One process: its end by a pidfd, and a sample of /proc while it does not answer.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use procfs::FromRead as _;
use procfs::net::TcpState;
use procfs::process::{Process as ProcEntry, Stat, Status};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::kernel::is_connection_table_full;
use super::pressure::{self, Pressure};
use super::{blocking, watched};
use crate::condition::Uptime;
use crate::files;

/// SIGKILL in the masks of pending signals of /proc/PID/status.
const SIGKILL_BIT: u64 = 1 << 8;
/// Sampling a process takes milliseconds if a thread is free.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads that are sampled; a kubelet has a few dozen.
const MAX_THREADS: usize = 512;
const MAX_MEMBERS_BYTES: u64 = 1 << 20;

/// The identity of a process, which survives the reuse of its pid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// When it started, in clock ticks since boot (`proc_pid_stat(5)`, field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this pid now, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        read_stat(pid).ok().map(|stat| Self { pid, start_ticks: stat.starttime })
    }

    pub fn started(self) -> Uptime {
        Uptime::ZERO + Duration::from_millis(self.start_ticks * 1000 / procfs::ticks_per_second().max(1))
    }
}

/// A process whose end is awaited.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    /// Its name as the kernel has it, at most 15 bytes.
    pub name: String,
    pidfd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Opens the process that has this pid now.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is gone or a zombie; another one when it cannot be watched.
    pub fn open(pid: i32) -> io::Result<Self> {
        let raw = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => io::ErrorKind::NotFound.into(),
            error => io::Error::from(error),
        })?;
        let pidfd = watched(pidfd)?;
        // Read after the open: if the pid was reused before it, both are of the new process.
        let stat = read_stat(pid)?;
        if matches!(stat.state, 'Z' | 'X') {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { id: ProcessId { pid, start_ticks: stat.starttime }, name: stat.comm, pidfd })
    }

    /// Returns when the process has ended (`pidfd_open(2)`: the pidfd is readable then).
    pub async fn ended(&self) {
        // An error of epoll itself is not the end of the process, and waiting costs nothing.
        if self.pidfd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The cgroup in which systemd keeps a process: of cgroup v2, or of systemd's own hierarchy on v1. The kernel may make the reader wait for
/// a change of another cgroup.
pub fn cgroup(pid: i32) -> Option<Cgroup> {
    let path = cgroup_path(&ProcEntry::new(pid).ok()?)?;
    Some(Cgroup { path, is_relative: !is_in_hosts_cgroup_namespace() })
}

/// The path of the cgroup in which systemd, or the container runtime, has put a process.
pub fn cgroup_path(process: &ProcEntry) -> Option<String> {
    let cgroups: Vec<_> = process.cgroups().into_iter().flatten().collect();
    let of_systemd = cgroups.iter().find(|one| one.controllers.iter().any(|name| name == "name=systemd"));
    let unified = || cgroups.iter().find(|one| one.hierarchy == 0);
    of_systemd.or_else(unified).map(|cgroup| cgroup.pathname.clone())
}

/// The cgroup of a process, as this cgroup namespace shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    pub path: String,
    /// Whether the path begins at the root of a cgroup namespace other than the host's, as in a container.
    pub is_relative: bool,
}

impl Cgroup {
    /// Whether it is the cgroup that has this path on the host.
    pub fn is(&self, host_path: &str) -> bool {
        self.path == host_path || (self.is_relative && self.path != "/" && host_path.ends_with(&self.path))
    }

    /// The system service whose cgroup it is or is below: none in the slices of pods, users and virtual machines, where a cgroup may have
    /// the name of a service.
    pub fn service(&self) -> Option<&str> {
        let is_foreign = |part: &str| part.starts_with("kubepods") || ["user.slice", "machine.slice"].contains(&part);
        let mut parts = self.path.split('/').take_while(|part| !is_foreign(part));
        parts.find(|part| part.ends_with(".service"))
    }
}

/// The host's cgroup namespace has a fixed inode number (`PROC_CGROUP_INIT_INO` of `include/linux/proc_ns.h`).
fn is_in_hosts_cgroup_namespace() -> bool {
    fs::read_link("/proc/self/ns/cgroup").is_ok_and(|link| link.as_os_str() == "cgroup:[4026531835]")
}

fn read_stat(pid: i32) -> io::Result<Stat> {
    // One read has all of it, and costs half as much as a read of unknown length.
    let mut text = [0; 1024];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut text));
    let has_ended = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::SRCH);
    let length = read.map_err(|error| if has_ended(&error) { io::ErrorKind::NotFound.into() } else { error })?;
    Stat::from_read(&text[..length]).map_err(io::Error::other)
}

/// What is read of a process that does not answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The state of its main thread as in /proc/PID/stat: `R`, `S`, `D`, `T`, `Z` …
    pub state: char,
    /// The cgroup whose freezer holds it.
    pub frozen_by: Option<String>,
    /// Its threads that wait in the kernel and take no signal (state D).
    pub uninterruptible: Vec<ThreadWait>,
    /// How long its threads have waited for a processor, summed up since each began.
    pub run_delay: Duration,
    /// How often its main thread has waited or was taken off its processor.
    pub switches: u64,
    /// What listens on the address of its /healthz.
    pub listener: Listener,
    /// Whether SIGKILL is pending for it.
    pub is_killed: bool,
    pub throttled: Throttled,
    /// Whether probes may fail because the kernel can track no more connections.
    pub is_connection_table_full: bool,
    /// How busy the host is.
    pub pressure: Pressure,
}

impl Sample {
    /// What keeps the process from running: a signal or a freezer. Then nothing else matters.
    pub fn suspended_by(&self) -> Option<String> {
        match (&self.frozen_by, self.state) {
            (Some(cgroup), _) => Some(format!("its cgroup {cgroup} is frozen")),
            (None, 'T') => Some("it is stopped by a signal (state T)".into()),
            (None, 't') => Some("a debugger has stopped it (state t)".into()),
            _ => None,
        }
    }

    /// Whether only a debugger keeps it from running, as gdb, gcore and strace do: a person wants that.
    pub fn is_traced(&self) -> bool {
        self.frozen_by.is_none() && self.state == 't'
    }
}

/// How much limits of the process's own cgroup, as a rule those of its unit, have slowed it down since the cgroup was made
/// (Documentation/admin-guide/cgroup-v2.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// By `CPUQuota=`; the time of each processor counts.
    pub cpu: Duration,
    /// How often its tasks had to reclaim memory for `MemoryHigh=`.
    pub memory_events: u64,
}

/// A thread's wait, so named that two waits are not taken for one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadWait {
    pub tid: i32,
    /// Its context switches so far: the same number means the same wait.
    pub switches: u64,
    /// The kernel's function in which it waits, such as `nfs_wait_bit_killable`; empty if the kernel does not say. It tells only those who
    /// may trace the process (`ptrace_may_access` in fs/proc/base.c).
    pub function: String,
}

impl ThreadWait {
    /// Whether SIGKILL ends the wait (`TASK_KILLABLE`): the functions that wait so for a file server have it in their names.
    pub fn is_killable(&self) -> bool {
        self.function.contains("killable")
    }

    /// Its state in parentheses, and where it waits.
    pub fn state(&self) -> String {
        let function = &self.function;
        if function.is_empty() { "(state D)".into() } else { format!("(state D, {function})") }
    }
}

/// What the kernel has at a TCP address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Listener {
    /// It could not be read.
    #[default]
    Unknown,
    /// No process listens.
    Nobody,
    /// A process listens, and so many connections wait to be accepted.
    Waiting(u32),
}

/// Looks at a process; none if it is gone. `healthz` is where it should listen. Reads a few files for each thread, so it runs only
/// while the process does not answer, and off the loop.
pub fn sample(id: ProcessId, healthz: Option<SocketAddr>) -> Option<Sample> {
    let process = ProcEntry::new(id.pid).ok()?;
    let stat = process.stat().ok().filter(|stat| stat.starttime == id.start_ticks)?;
    let mut sample = Sample { state: stat.state, ..Sample::default() };
    for task in process.tasks().ok()?.flatten().take(MAX_THREADS) {
        if let Ok(schedstat) = task.schedstat() {
            sample.run_delay += Duration::from_nanos(schedstat.run_delay);
        }
        let (Ok(stat), Ok(status)) = (task.stat(), task.status()) else { continue };
        if stat.state == 'D' {
            let function = waits_in(format!("/proc/{}/task/{}/wchan", id.pid, task.tid));
            sample.uninterruptible.push(ThreadWait { tid: task.tid, switches: switches(&status), function });
        }
    }
    if let Ok(status) = process.status() {
        sample.is_killed = (status.shdpnd | status.sigpnd) & SIGKILL_BIT != 0;
        sample.switches = switches(&status);
    }
    sample.frozen_by = frozen_by(&process);
    sample.throttled = throttled(&process);
    sample.is_connection_table_full = is_connection_table_full();
    sample.pressure = pressure::read();
    sample.listener = healthz.map_or(Listener::Unknown, listener);
    Some(sample)
}

/// The same, off the loop. `what` the process is to the host.
pub async fn sample_off_loop(what: &str, id: ProcessId, healthz: Option<SocketAddr>) -> Option<Sample> {
    blocking::run(&format!("sampling the {what}"), SAMPLE_TIMEOUT, move || sample(id, healthz)).await.ok().flatten()
}

/// The children of a process. Reads a file of each process of the host.
fn children_of(parent: i32) -> impl Iterator<Item = Stat> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| process.stat().ok()).filter(move |stat| stat.ppid == parent)
}

/// Children of a process that have ended with all their threads and that it has not reaped, at most 64.
pub fn zombies_of(parent: i32) -> Vec<ProcessId> {
    let zombies = children_of(parent).filter(|stat| stat.state == 'Z' && stat.num_threads <= 1);
    zombies.take(64).map(|stat| ProcessId { pid: stat.pid, start_ticks: stat.starttime }).collect()
}

/// Children of a process that run and that the kernel knows by this name.
pub fn children_named(parent: i32, name: &str) -> Vec<ProcessId> {
    let children = children_of(parent).filter(|stat| stat.comm == name && !matches!(stat.state, 'Z' | 'X'));
    children.map(|stat| ProcessId { pid: stat.pid, start_ticks: stat.starttime }).collect()
}

/// Whether a signal has stopped the process. Unlike [`sample`] this waits for nothing.
pub fn is_stopped(id: ProcessId) -> bool {
    read_stat(id.pid).is_ok_and(|stat| stat.starttime == id.start_ticks && stat.state == 'T')
}

/// How often a process or thread has waited, or was taken off its processor.
pub fn switches(status: &Status) -> u64 {
    status.voluntary_ctxt_switches.unwrap_or_default() + status.nonvoluntary_ctxt_switches.unwrap_or_default()
}

/// The kernel's function in which a task waits, from its file `wchan`; empty if the kernel does not say.
pub fn waits_in(wchan: String) -> String {
    let function = fs::read_to_string(wchan).unwrap_or_default();
    // `0`: it does not wait any more, or the kernel keeps it to itself.
    redact::sanitize_line(function.trim_start_matches('0'), 60)
}

/// A process of a unit that does not end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    pub pid: i32,
    /// Its name as the kernel has it.
    pub name: String,
    pub wait: Option<ThreadWait>,
}

/// The processes of a cgroup: of cgroup v2, of systemd's own hierarchy on v1, or of both together.
pub fn members(path: &str) -> Vec<i32> {
    let read = |hierarchy: &str| {
        let path = format!("/sys/fs/cgroup{hierarchy}{path}/cgroup.procs");
        files::read(Path::new(&path), MAX_MEMBERS_BYTES).ok()
    };
    let text = ["", "/systemd", "/unified"].into_iter().find_map(read).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A process in the cgroup of a service, rather one that waits in the kernel; none if there is none.
pub fn holder(cgroup: &Cgroup) -> Option<Holder> {
    let holders = members(&cgroup.path).into_iter().filter_map(|pid| {
        let stat = read_stat(pid).ok()?;
        let wait = || ThreadWait { tid: pid, switches: 0, function: waits_in(format!("/proc/{pid}/wchan")) };
        Some(Holder { pid, name: redact::sanitize_line(&stat.comm, 15), wait: (stat.state == 'D').then(wait) })
    });
    holders.max_by_key(|holder| holder.wait.is_some())
}

/// The process's cgroup if its freezer is on: `cgroup.events` of cgroup v2, `freezer.state` of v1.
fn frozen_by(process: &ProcEntry) -> Option<String> {
    process.cgroups().ok()?.into_iter().find_map(|cgroup| {
        let path = &cgroup.pathname;
        let is_frozen = if cgroup.hierarchy == 0 {
            let events = fs::read_to_string(format!("/sys/fs/cgroup{path}/cgroup.events"));
            events.is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
        } else if cgroup.controllers.iter().any(|name| name == "freezer") {
            let state = fs::read_to_string(format!("/sys/fs/cgroup/freezer{path}/freezer.state"));
            state.is_ok_and(|text| text.trim() == "FROZEN")
        } else {
            false
        };
        is_frozen.then(|| path.clone())
    })
}

fn throttled(process: &ProcEntry) -> Throttled {
    let mut throttled = Throttled::default();
    let number = |file: String, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        line.unwrap_or_default()
    };
    for cgroup in process.cgroups().into_iter().flatten() {
        let path = &cgroup.pathname;
        if cgroup.hierarchy == 0 {
            let cpu = number(format!("/sys/fs/cgroup{path}/cpu.stat"), "throttled_usec ");
            throttled.cpu += Duration::from_micros(cpu);
            throttled.memory_events = number(format!("/sys/fs/cgroup{path}/memory.events"), "high ");
        } else if cgroup.controllers.iter().any(|name| name == "cpu") {
            let cpu = number(format!("/sys/fs/cgroup/cpu{path}/cpu.stat"), "throttled_time ");
            throttled.cpu += Duration::from_nanos(cpu);
        }
    }
    throttled
}

/// What listens on `address`, of all addresses too. A listener's `rx_queue` is the length of its accept queue.
fn listener(address: SocketAddr) -> Listener {
    let table = if address.is_ipv4() { procfs::net::tcp() } else { procfs::net::tcp6() };
    // A listener at [::] takes IPv4 connections as well.
    let dual = address.is_ipv4().then(|| procfs::net::tcp6().unwrap_or_default());
    let Ok(table) = table else { return Listener::Unknown };
    let queues = table.into_iter().chain(dual.into_iter().flatten()).filter(|entry| {
        let local = entry.local_address;
        entry.state == TcpState::Listen
            && local.port() == address.port()
            && (local.ip() == address.ip() || local.ip().is_unspecified())
    });
    queues.map(|entry| entry.rx_queue).max().map_or(Listener::Nobody, Listener::Waiting)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_seen_and_a_dead_one_is_refused() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process::open(pid).unwrap();
        assert!(process.id.started() > Uptime::ZERO);
        drop(child.stdin.take());
        process.ended().await;
        assert!(Process::open(pid).is_err(), "a zombie");
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(zombies_of(own).contains(&process.id));
        child.wait().unwrap();
        assert!(!zombies_of(own).contains(&process.id));
        assert_eq!(sample(process.id, None), None);
    }

    #[test]
    fn a_path_of_the_host_is_compared_as_a_whole_and_one_of_a_container_by_its_end() {
        let cgroup = |is_relative| Cgroup { path: "/system.slice/kubelet.service".into(), is_relative };
        let nested = "/kubepods/pod1/system.slice/kubelet.service";
        assert!(cgroup(false).is("/system.slice/kubelet.service") && !cgroup(false).is(nested));
        assert!(cgroup(true).is(nested) && !cgroup(true).is("/system.slice/containerd.service"));
        assert!(!Cgroup { path: "/".into(), is_relative: true }.is("/anything/"));
    }

    #[test]
    fn a_cgroup_belongs_to_a_system_service_or_to_none() {
        for (path, service) in [
            ("/system.slice/containerd.service", Some("containerd.service")),
            ("/system.slice/k3s.service/init", Some("k3s.service")),
            ("/kubepods.slice/kubepods-pod1.slice/containerd.service", None),
            ("/user.slice/user-0.slice/user@0.service/app.slice/containerd.service", None),
            ("/init.scope", None),
        ] {
            let cgroup = Cgroup { path: path.into(), is_relative: false };
            assert_eq!(cgroup.service(), service, "{path}");
        }
    }

    #[test]
    fn a_full_accept_queue_and_a_missing_listener_are_distinguished() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        assert_eq!(listener(address), Listener::Waiting(0));
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!(listener(address), Listener::Waiting(1));
        drop(server);
        assert_eq!(listener(address), Listener::Nobody);
    }
}
