//! The state of the kernel, and what to report. Does no I/O and reads no clock: the caller passes the time.

use std::time::Duration;

use super::clock::Clock;
use super::deadlock::{Deadlocks, INIT_PID, Suspect};
use super::init::{Init, Silence};
use super::limits::Limits;
use super::logged::Logged;
use crate::condition::{Finding, Reason, Status, Uptime, View};
use crate::host::clock::Now;
use crate::host::clock::ServerClock;
use crate::host::kernel::{Counters, Usages};
use crate::host::kmsg::LogState;

/// How long the log has to be unreadable before that is reported.
const UNREADABLE_AFTER: Duration = Duration::from_mins(1);

/// What the kernel does not log.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) counters: Counters,
    pub(super) released: Vec<u64>,
    pub(super) usages: Usages,
    pub(super) suspects: Vec<Suspect>,
    /// None if systemd answers.
    pub(super) silence: Option<Silence>,
    pub(super) has_gpu_driver: bool,
}

#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// Why the log cannot be read, and since when; none while it can be read or is being opened.
    unreadable: Option<(String, Uptime)>,
    /// Whether all lines from before the start have been read.
    has_been_read: bool,
    pub(super) logged: Logged,
    /// What the last readings have shown.
    read: Vec<Finding>,
    deadlocks: Deadlocks,
    init: Init,
    limits: Limits,
    clock: Clock,
    /// Whether a driver of NVIDIA was loaded since the start, or has logged something.
    has_gpus: bool,
}

impl Kernel {
    /// Takes in whether the log can be read.
    pub(super) fn log_is(&mut self, state: LogState, now: Uptime) {
        match state {
            LogState::Opening => {}
            LogState::Readable => (self.unreadable, self.has_been_read) = (None, true),
            LogState::Unreadable(error) => {
                let since = self.unreadable.as_ref().map_or(now, |(_, since)| *since);
                self.unreadable = Some((error, since));
            }
        }
    }

    /// Takes in readings, and the time by the API server's clock.
    pub(super) fn read(&mut self, readings: Readings, server: Option<ServerClock>, now: Now) {
        let hung = readings.suspects.iter().find(|suspect| suspect.process.pid != INIT_PID).map(|suspect| suspect.name);
        self.logged.witnesses.read(readings.counters, readings.released, hung, now.uptime);
        self.has_gpus |= readings.has_gpu_driver;
        let deadlock = self.deadlocks.observe(readings.suspects, now.uptime);
        let clock = self.clock.observe(server, now.wall, now.uptime);
        let crash = self.init.observe(readings.silence, now.uptime);
        self.read = [deadlock, crash, self.limits.observe(&readings.usages), clock].into_iter().flatten().collect();
    }

    /// What to report; none until the log has been read or could not be for a while.
    pub(super) fn view(&self, now: Uptime) -> Option<View> {
        let mut findings: Vec<_> = self.logged.findings(now).chain(self.read.clone()).collect();
        findings.sort_by_key(|finding| finding.reason);
        let has_problem = findings.iter().any(|finding| finding.status == Status::False);
        let is_long = |since: Uptime| now >= since + UNREADABLE_AFTER;
        if let Some((error, _)) = self.unreadable.as_ref().filter(|(_, since)| !has_problem && is_long(*since)) {
            return Some(View::Unknown(Finding::new(Reason::KernelLogUnreadable, error.clone())));
        }
        // The time of the agent's start would make another message of each restart, and so a request.
        let since = self.logged.last().map_or_else(String::new, |last| format!(" since {last}"));
        let healthy = format!("no problem has been logged{since}, and no limit is nearly reached");
        (self.has_been_read || has_problem).then_some(View::Seen { healthy, findings })
    }

    /// What to report of NVIDIA's GPUs; none before the log has been read, and on a host without one.
    pub(super) fn gpu_view(&mut self, now: Uptime) -> Option<View> {
        let findings: Vec<_> = self.logged.gpus(now).into_iter().collect();
        self.has_gpus |= !findings.is_empty();
        let healthy = "the NVIDIA driver has logged no error within the last five minutes".into();
        (self.has_gpus && self.has_been_read).then_some(View::Seen { healthy, findings })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::host::kernel::Usage;
    use crate::host::kmsg::Line;

    fn at(secs: u64) -> Now {
        Now::of(Uptime::from_secs(secs), Timestamp::UNIX_EPOCH)
    }

    fn unreadable() -> LogState {
        LogState::Unreadable("/dev/kmsg: Operation not permitted".into())
    }

    fn reasons(kernel: &Kernel, secs: u64) -> Vec<Reason> {
        match kernel.view(at(secs).uptime) {
            Some(View::Seen { findings, .. }) => findings.iter().map(|finding| finding.reason).collect(),
            Some(View::Unknown(finding)) => vec![finding.reason],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_reported_before_the_log_was_read() {
        let mut kernel = Kernel::default();
        kernel.log_is(LogState::Opening, at(1000).uptime);
        assert_eq!(kernel.view(at(1000).uptime), None);
        kernel.log_is(LogState::Readable, at(1000).uptime);
        let healthy = "no problem has been logged, and no limit is nearly reached".into();
        assert_eq!(kernel.view(at(1000).uptime), Some(View::Seen { healthy, findings: vec![] }));
    }

    #[test]
    fn a_log_that_cannot_be_read_for_a_minute_is_unknown_until_it_can() {
        let mut kernel = Kernel::default();
        kernel.log_is(unreadable(), at(1000).uptime);
        assert_eq!(kernel.view(at(1059).uptime), None);
        kernel.log_is(unreadable(), at(1059).uptime);
        assert_eq!(reasons(&kernel, 1060), [Reason::KernelLogUnreadable]);
        kernel.log_is(LogState::Readable, at(1100).uptime);
        assert_eq!(reasons(&kernel, 1100), []);
        kernel.log_is(unreadable(), at(1200).uptime);
        assert_eq!(reasons(&kernel, 1259), [], "it was read a minute ago");
        assert_eq!(reasons(&kernel, 1260), [Reason::KernelLogUnreadable]);
    }

    #[test]
    fn the_gpus_are_reported_where_their_driver_is_loaded_or_has_logged_something() {
        let mut kernel = Kernel::default();
        kernel.log_is(LogState::Readable, at(1000).uptime);
        assert_eq!(kernel.gpu_view(at(1000).uptime), None);
        kernel.read(Readings { has_gpu_driver: true, ..Readings::default() }, None, at(1000));
        let healthy = View::healthy("the NVIDIA driver has logged no error within the last five minutes");
        assert_eq!(kernel.gpu_view(at(1000).uptime), Some(healthy));
    }

    #[test]
    fn problems_come_before_an_unreadable_log_and_that_before_warnings() {
        let mut kernel = Kernel::default();
        let (text, counters) =
            ("watchdog: Watchdog detected hard LOCKUP on cpu 3", Counters { rcu_stalls: 1, ..Counters::default() });
        kernel.log_is(LogState::Readable, at(1000).uptime);
        let pids = Some(Usage { used: 99, limit: 100 });
        let usages = Usages { pids, ..Usages::default() };
        (0..3).for_each(|_| kernel.read(Readings { usages, ..Readings::default() }, None, at(1000)));
        kernel.log_is(unreadable(), at(1000).uptime);
        assert_eq!(reasons(&kernel, 1030), [Reason::KernelLimitNearlyReached]);
        assert_eq!(reasons(&kernel, 1060), [Reason::KernelLogUnreadable]);
        kernel.logged.take(&Line { level: 0, text: text.into(), at: Uptime::ZERO, is_old: false }, at(1060));
        kernel.read(Readings { counters, usages, ..Readings::default() }, None, at(1060));
        let wanted = [Reason::KernelLockedUp, Reason::KernelTroubleLogged, Reason::KernelLimitNearlyReached];
        assert_eq!(reasons(&kernel, 1060), wanted);
    }
}
