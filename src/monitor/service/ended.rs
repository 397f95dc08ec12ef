//! How the process of a service ended, and how often that has happened.

use std::collections::VecDeque;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::upgrade::Upgrade;
use crate::condition::Uptime;
use crate::host::oom::{OomKill, OomScope};
use crate::host::process::{Cgroup, Holder};
use crate::host::systemd::{LastProcess, UnitState};

/// How long systemd's account of an end and the kind of a job are waited for. They usually come within three milliseconds; on a busy
/// host, or after forged signals of others, they come later. Without them nobody knows whether the end was planned.
pub const ACCOUNT_WAIT: Duration = Duration::from_secs(1);
/// How long after a clean end the rest of the unit may take to end, before systemd follows with the next process.
pub const FOLLOW_WAIT: Duration = Duration::from_secs(10);
/// Codes of SIGCHLD (sigaction(2)).
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_DUMPED: i32 = 3;
/// The exit code of a shell or of podman when SIGTERM has ended what it runs.
const SIGTERM_HANDLED: i32 = 143;
/// The main process of a unit whose name begins so exits with 1 after SIGTERM (rancher/rke2-docs#191).
const EXIT_WITH_1: [&str; 2] = ["k3s", "rke2-"];
/// `Result` of a unit that systemd has stopped for a failure of its own.
const STOPPED_BY_SYSTEMD: [&str; 3] = ["oom-kill", "watchdog", "timeout"];
/// A crash loop: so many ends within that time.
const LOOPS: [(usize, Duration); 2] = [(3, Duration::from_mins(5)), (5, Duration::from_mins(30))];

/// Why a process ended, as [`Ended::derive_cause`] derives it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cause {
    /// More may become known soon.
    #[default]
    Unconfirmed,
    /// A stop job, or somebody stopped it in another way.
    Stopped,
    /// A restart job: another one is about to start.
    Restarted,
    /// It ended by itself, cleanly or as after SIGTERM, and systemd follows with the next one (`Restart=`). Tools that upgrade a node
    /// restart services so.
    RestartedCleanly,
    /// It crashed, exited or was killed.
    Itself,
    /// The evidence does not show it.
    Unknown,
}

/// What systemd does by `Restart=` after an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Follows {
    #[default]
    Nothing,
    Restart,
    /// It could not start the next process.
    FailedRestart,
}

/// The kind of job that explains an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndingJob {
    Stop,
    Restart,
}

/// systemd's account of an end.
#[derive(Debug, Clone)]
pub struct Account {
    pub how: LastProcess,
    /// The unit's `WatchdogSec=`.
    pub watchdog: Duration,
    /// The unit's `Result`. It is `success` after a clean end too: exit code 0, SIGHUP, SIGINT, SIGTERM, SIGPIPE, or one of
    /// `SuccessExitStatus=` (systemd.service(5)).
    pub result: String,
}

impl Account {
    /// Whether the process may have ended by SIGTERM, which is a failure for systemd if the process then exits with an error.
    fn may_follow_sigterm(&self, unit: &str) -> bool {
        let is_by_signal = match (self.how.code, self.how.status) {
            (CLD_KILLED, 15) | (CLD_EXITED, SIGTERM_HANDLED) => true,
            (CLD_EXITED, 1) => EXIT_WITH_1.iter().any(|name| unit.starts_with(name)),
            _ => false,
        };
        is_by_signal && !STOPPED_BY_SYSTEMD.contains(&self.result.as_str())
    }
}

/// What is known of systemd at the moment in which a cause is derived.
#[derive(Debug, Clone, Copy)]
pub struct Systemd<'a> {
    pub is_connected: bool,
    pub name: &'a str,
    pub unit: &'a UnitState,
    pub is_left_failed: bool,
}

/// A process of the unit, and what is needed to find out how it ended.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub pid: i32,
    /// Its name as the kernel has it, at most 15 bytes, and its cgroup once that has been read; empty and none if it was never opened.
    pub name: String,
    pub cgroup: Option<Cgroup>,
    /// The unit's `InvocationID`; empty if it is not known.
    pub invocation: String,
    /// systemd's count of automatic restarts when it was opened.
    pub restarts: u32,
    /// Whether systemd is stopping the unit, or was when the process ended.
    pub was_being_stopped: bool,
}

/// An end, and the evidence of why it came.
#[derive(Debug, Default)]
pub struct Ended {
    pub run: Run,
    pub at: Uptime,
    /// Derived from the rest.
    pub cause: Cause,
    pub job: Option<EndingJob>,
    /// There was a job then, and its kind is still to be read.
    pub has_unread_job: bool,
    /// The job, if there was one, will never be known: it was over before its kind was read, systemd could not be asked, or the process
    /// was not seen.
    pub is_unobserved: bool,
    pub account: Option<Account>,
    /// The evidence that it was OOM-killed.
    pub oom: Option<OomEvidence>,
    /// Why it ended, as its last lines say it: a sentence without its beginning.
    pub last_words: Option<String>,
    pub after: After,
    /// The service whose end brought the stop job.
    pub dependency: Option<StoppedWith>,
}

/// What came after an end.
#[derive(Debug, Default)]
pub struct After {
    /// Whether systemd has followed with the next process by `Restart=`, or waits to do so.
    pub follows: Follows,
    /// Since when the unit has been inactive, although systemd would have followed.
    pub inactive_since: Option<Uptime>,
    /// What keeps systemd from starting it again: another process of the unit.
    pub held_by: Option<Holder>,
    /// Whether a package manager has stopped it.
    pub upgrade: Upgrade,
}

/// The evidence that a process was OOM-killed.
#[derive(Debug)]
pub enum OomEvidence {
    /// systemd's `Result=oom-kill`.
    Result,
    /// The kernel's record.
    Record(OomKill),
}

/// A service with which it was stopped.
#[derive(Debug)]
pub struct StoppedWith {
    pub unit: String,
    /// Since when it has been seen to be back, or to have failed for good.
    pub settled_since: Option<Uptime>,
}

impl Ended {
    /// Whether the end was a success for systemd.
    pub fn is_clean(&self) -> bool {
        self.account.as_ref().is_some_and(|account| account.result == "success")
    }

    /// It was stopped by a stop job, which the end of `dependency` brought if that had failed.
    pub fn set_stopped(&mut self, dependency: Option<String>) {
        self.job = Some(EndingJob::Stop);
        self.dependency = dependency.map(|unit| StoppedWith { unit, settled_since: None });
    }

    /// Why it ended, from the evidence so far.
    pub fn derive_cause(&self, systemd: Systemd<'_>, now: Uptime) -> Cause {
        let is_in_time = |wait: Duration| now < self.at + wait;
        let is_followed = self.after.follows == Follows::Restart;
        let is_left = !is_followed && systemd.is_left_failed;
        let has_failed = match &self.account {
            Some(account) => account.result != "success" && (is_left || !account.may_follow_sigterm(systemd.name)),
            // With `Restart=on-failure` and the like nothing follows a clean end.
            None => is_followed && systemd.unit.restarts_after_failure_alone(),
        };
        if self.job == Some(EndingJob::Stop) {
            return Cause::Stopped;
        }
        if self.job == Some(EndingJob::Restart) && !(is_followed && has_failed) {
            return Cause::Restarted;
        }
        if let Some(OomEvidence::Record(_)) = self.oom {
            return Cause::Itself;
        }
        let is_unread = self.has_unread_job;
        let is_awaited = is_unread || self.account.is_none();
        if is_awaited && systemd.is_connected && is_in_time(ACCOUNT_WAIT) && !is_followed {
            return Cause::Unconfirmed;
        }
        if has_failed {
            let is_doubtful = self.was_stopped() || is_unread || self.may_have_been_a_stop(systemd.name);
            return if is_doubtful { Cause::Unknown } else { Cause::Itself };
        }
        if is_followed {
            return Cause::RestartedCleanly;
        }
        // systemd signals the properties of the service before those of the unit, ends what is left in the cgroup before it follows, and
        // passes through `inactive` even then.
        let is_over = ["inactive", "failed"].contains(&systemd.unit.active_state.as_str());
        let is_clean = self.account.as_ref().is_none_or(|account| account.result == "success");
        let restarts = if is_clean { UnitState::restarts_after_success } else { UnitState::restarts_after_failure };
        let may_follow = self.after.follows == Follows::Nothing && restarts(systemd.unit);
        if self.account.is_some() && systemd.is_connected && (may_follow || !is_over) && is_in_time(FOLLOW_WAIT) {
            return Cause::Unconfirmed;
        }
        // What is left of the unit takes long to end, and then systemd follows.
        let will_follow = may_follow && !is_over;
        // systemd signals a job before the end that it causes: without one, the process ended by itself.
        let is_explained = self.was_stopped() || is_unread || self.is_unobserved || will_follow;
        if is_explained || !systemd.is_connected { Cause::Unknown } else { Cause::Itself }
    }

    /// Whether systemd had begun to stop the unit before it ended, and not for a failure.
    fn was_stopped(&self) -> bool {
        let result = self.account.as_ref().map_or("", |account| account.result.as_str());
        self.run.was_being_stopped && !STOPPED_BY_SYSTEMD.contains(&result)
    }

    /// Whether the kernel's record is about this process: by its pid, or by its cgroup and name where the record has the pid of
    /// another PID namespace.
    pub fn is_killed_by(&self, kill: &OomKill) -> bool {
        let is_own = |own: &Cgroup| kill.cgroup.as_ref().is_some_and(|killed| own.is(killed));
        // Until its exec systemd names a process by the last eight characters of its program: `(kubelet)`, `(ntainerd)`.
        let has_its_name = match self.run.name.strip_prefix('(') {
            Some(end) => kill.name.ends_with(end.trim_end_matches(')')),
            None => kill.name == self.run.name,
        };
        let is_by_name = has_its_name && self.run.cgroup.as_ref().is_some_and(is_own);
        // In a container our pids are not the kernel's.
        let has_hosts_pids = self.run.cgroup.as_ref().is_none_or(|own| !own.is_relative);
        is_by_name || (has_hosts_pids && kill.pid == self.run.pid)
    }

    /// If it was OOM-killed, that and whose memory was used up, with its pid: a sentence without its subject.
    pub fn oom_killed(&self, unit: &str) -> Option<String> {
        let was_not_killed = |account: &Account| (account.how.code, account.how.status) != (CLD_KILLED, 9);
        let memory = match self.oom.as_ref()? {
            OomEvidence::Result if self.account.as_ref().is_some_and(was_not_killed) => {
                let pid = self.run.pid;
                return Some(format!(
                    "was stopped by systemd (pid {pid}), because another process of {unit} was OOM-killed (OOMPolicy=)"
                ));
            }
            OomEvidence::Result => format!("Result=oom-kill of {unit}"),
            OomEvidence::Record(kill) => match &kill.memory {
                OomScope::Host => "the host was out of memory".to_owned(),
                OomScope::Limit(Some(path)) if path.ends_with(&format!("/{unit}")) => format!("limit of {unit}"),
                OomScope::Limit(Some(path)) => format!("limit of {path}"),
                OomScope::Limit(None) => "limit of its cgroup".to_owned(),
            },
        };
        Some(format!("was OOM-killed (pid {}, {memory})", self.run.pid))
    }

    /// Whether it ended by an error of its own. What a process logged last explains no signal that it was sent.
    pub fn has_failed(&self) -> bool {
        let is_error = |how: &LastProcess| match how.code {
            CLD_EXITED => how.status != 0,
            code => code == CLD_DUMPED,
        };
        let is_own = [Cause::Itself, Cause::RestartedCleanly].contains(&self.cause);
        is_own && self.account.as_ref().is_some_and(|account| is_error(&account.how))
    }

    /// Whether nobody saw an end that SIGTERM may have caused.
    pub fn may_have_been_a_stop(&self, unit: &str) -> bool {
        self.is_unobserved && self.account.as_ref().is_some_and(|account| account.may_follow_sigterm(unit))
    }

    /// By which exit code or signal it ended: a sentence without its subject.
    pub fn how(&self) -> String {
        let how = match &self.account {
            None => "has ended".to_owned(),
            Some(Account { result, watchdog, .. }) if result == "watchdog" => {
                format!("was ended by systemd's watchdog: no sign of life for {} s", watchdog.as_secs())
            }
            Some(Account { how: LastProcess { code, status, .. }, .. }) => match *code {
                CLD_EXITED => format!("exited with code {status}"),
                CLD_DUMPED => format!("dumped core on {}", signal_name(*status)),
                _ => format!("was killed by {}", signal_name(*status)),
            },
        };
        let Some(Holder { pid, name, wait }) = &self.after.held_by else { return how };
        let state = wait.as_ref().map_or_else(String::new, |wait| format!(" waits in the kernel {} and", wait.state()));
        format!("{how}; systemd cannot start it again, because pid {pid} ({name}) of its unit{state} does not end")
    }
}

/// `SIGTERM (15)`; a real-time signal has no name.
fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| format!("{signal} ({number})"))
}

/// The last ends without a job: the run of the unit, and when.
#[derive(Debug, Default)]
pub struct Ends(VecDeque<(String, Uptime)>);

impl Ends {
    /// Records an end; each run of the unit counts once.
    pub fn record(&mut self, invocation: &str, at: Uptime) {
        let is_known = |(known, then): &(String, Uptime)| *then == at || (!known.is_empty() && known == invocation);
        if self.0.iter().any(is_known) {
            return;
        }
        self.0.push_back((invocation.to_owned(), at));
        if self.0.len() > LOOPS[1].0 {
            self.0.pop_front();
        }
    }

    /// The end at that time was intended: removes it if it was recorded.
    pub fn forget(&mut self, at: Uptime) {
        self.0.retain(|(_, then)| *then != at);
    }

    /// The crash loop that the last ends are, if they are one: how many within which time.
    pub fn loop_at(&self, now: Uptime) -> Option<(usize, Duration)> {
        let within = |time: Duration| self.0.iter().filter(|(_, at)| now - *at < time).count();
        LOOPS.into_iter().find(|(count, time)| within(*time) >= *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::ThreadWait;

    #[test]
    fn three_runs_that_end_within_five_minutes_are_a_crash_loop() {
        let (mut ends, at, secs) = (Ends::default(), Uptime::from_secs, Duration::from_secs);
        for (run, second) in [("a", 0), ("b", 100), ("b", 101)] {
            ends.record(run, at(second));
        }
        assert_eq!(ends.loop_at(at(101)), None, "one run counts once");
        ends.record("c", at(200));
        assert_eq!(ends.loop_at(at(200)), Some((3, secs(300))));
        assert_eq!(ends.loop_at(at(301)), None);
        for (run, second) in [("d", 900), ("e", 1600)] {
            ends.record(run, at(second));
        }
        assert_eq!(ends.loop_at(at(1600)), Some((5, secs(1800))));
    }

    #[test]
    fn an_end_has_a_code_or_a_signal() {
        let mut ended = Ended::default();
        assert_eq!(ended.how(), "has ended");
        for (code, status, how) in [
            (1, 0, "exited with code 0"),
            (2, 9, "was killed by SIGKILL (9)"),
            (3, 11, "dumped core on SIGSEGV (11)"),
            (2, 35, "was killed by signal 35"),
        ] {
            let last = LastProcess { pid: 812, code, status };
            ended.account = Some(Account { how: last, result: String::new(), watchdog: Duration::ZERO });
            assert_eq!(ended.how(), how);
        }
        let last = LastProcess { pid: 812, code: 1, status: 2 }; // Go prints its stacks on SIGABRT and exits
        ended.account = Some(Account { how: last, result: "watchdog".into(), watchdog: Duration::from_mins(1) });
        assert_eq!(ended.how(), "was ended by systemd's watchdog: no sign of life for 60 s");
        let wait = ThreadWait { tid: 990, switches: 0, function: "rpc_wait_bit_killable".into() };
        ended.after.held_by = Some(Holder { pid: 990, name: "mount.nfs".into(), wait: Some(wait) });
        let held = "; systemd cannot start it again, because pid 990 (mount.nfs) of its unit waits in the kernel (state D, \
                    rpc_wait_bit_killable) and does not end";
        assert!(ended.how().ends_with(held), "{}", ended.how());
    }

    #[test]
    fn an_oom_kill_is_this_processs_by_pid_or_by_cgroup_and_name() {
        let cgroup = Cgroup { path: "/system.slice/kubelet.service".into(), is_relative: true };
        let (name, cgroup) = ("kubelet".into(), Some(cgroup));
        let mut ended = Ended { run: Run { pid: 812, name, cgroup, ..Run::default() }, ..Ended::default() };
        let kill = |pid, name: &str, cgroup: Option<&str>| OomKill {
            pid,
            name: name.into(),
            cgroup: cgroup.map(str::to_owned),
            memory: OomScope::Host,
        };
        let own = Some("/ns/system.slice/kubelet.service");
        assert!(!ended.is_killed_by(&kill(812, "kubelet", None)), "another process has this pid on the host");
        assert!(ended.is_killed_by(&kill(4711, "kubelet", own)));
        assert!(!ended.is_killed_by(&kill(4711, "helper", own)));
        assert!(!ended.is_killed_by(&kill(4711, "kubelet", Some("/kubepods/pod1"))));
        assert!(!ended.is_killed_by(&kill(4711, "kubelet", None)));
        ended.run.name = "(ubelet-x)".into();
        assert!(
            ended.is_killed_by(&kill(4711, "a-kubelet-x", own)) && !ended.is_killed_by(&kill(4711, "kubelet", own))
        );
        ended.run.cgroup = None;
        assert!(ended.is_killed_by(&kill(812, "kubelet", None)));
        let limit = OomScope::Limit(Some("/ns/system.slice/kubelet.service".into()));
        ended.oom = Some(OomEvidence::Record(OomKill { memory: limit, ..kill(4711, "kubelet", own) }));
        let killed = ended.oom_killed("kubelet.service");
        assert_eq!(killed.as_deref(), Some("was OOM-killed (pid 812, limit of kubelet.service)"));
    }
}
