//! What the kernel has logged, and for how long it counts.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::patterns::{self, Class, PATTERNS};
use crate::condition::{Finding, Reason, Uptime};
use crate::host::clock::Now;
use crate::host::kernel::Counters;
use crate::host::kmsg::Line;

/// A problem is over when it was not logged for this long.
const TROUBLE_LASTS: Duration = Duration::from_mins(5);
/// A hard lockup within this time, or so many stalls, mean that a processor is locked up. A single stall is not enough: a virtual machine
/// that was paused logs one.
const LOCKUP_WINDOW: Duration = Duration::from_mins(10);
const LOCKUP_STALLS: usize = 5;
/// Stalls this close to each other are one: after a pause each processor logs its own.
const ONE_STALL: Duration = Duration::from_secs(10);
/// An uncorrected hardware error counts for this long.
const HARDWARE_LASTS: Duration = Duration::from_hours(24);
/// The longest text of a line that is shown. Three of them fit into a condition's message.
const MAX_LINE_BYTES: usize = 200;
/// `M` of `kernel.tainted`: a machine check.
const TAINT_MACHINE_CHECK: u64 = 1 << 4;
/// `L` of `kernel.tainted`: a soft lockup.
const TAINT_SOFT_LOCKUP: u64 = 1 << 14;

/// The time of day at an earlier time since boot, in whole seconds. What is shown has the time of day; what is compared, that since boot.
pub(super) fn wall_at(at: Uptime, now: Now) -> Timestamp {
    let ago = SignedDuration::try_from(now.uptime.saturating_sub(at)).unwrap_or_default();
    let then = now.wall.checked_sub(ago).unwrap_or(now.wall);
    Timestamp::from_second(then.as_second()).unwrap_or(then)
}

/// A line as it is kept.
#[derive(Debug, Clone)]
struct Evidence {
    at: Uptime,
    time: Timestamp,
    line: String,
    /// Whether the agent has started since.
    is_old: bool,
}

/// A problem that was logged since the agent started.
#[derive(Debug)]
struct Trouble {
    count: u64,
    first: Timestamp,
    last: Evidence,
}

/// What is remembered of the log, at most one problem a pattern.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// By the index of the pattern.
    troubles: BTreeMap<usize, Trouble>,
    /// The last ones, at most [`LOCKUP_STALLS`].
    stalls: Vec<Evidence>,
}

impl Logged {
    /// Takes in a line; returns what it is evidence of.
    pub(super) fn take(&mut self, line: &Line, now: Now) -> Option<Class> {
        let index = patterns::find(&line.text, line.level)?;
        let class = PATTERNS[index].class;
        let at = if line.is_old { line.at } else { now.uptime };
        let text = redact::escape_controls(&redact::bounded(&line.text, MAX_LINE_BYTES));
        let evidence = Evidence { at, time: wall_at(at, now), line: text, is_old: line.is_old };
        if !line.is_old {
            let before = self.troubles.remove(&index).filter(|trouble| !trouble.is_over(at));
            let (count, first) = before.map_or((1, evidence.time), |trouble| (trouble.count + 1, trouble.first));
            self.troubles.insert(index, Trouble { count, first, last: evidence.clone() });
        }
        if class == Class::Stall {
            self.stalled(evidence);
        }
        Some(class)
    }

    fn stalled(&mut self, evidence: Evidence) {
        if let Some(last) = self.stalls.last_mut().filter(|last| evidence.at < last.at + ONE_STALL) {
            last.is_old &= evidence.is_old;
            last.line = evidence.line;
            return;
        }
        if self.stalls.len() == LOCKUP_STALLS {
            self.stalls.remove(0);
        }
        self.stalls.push(evidence);
    }

    pub(super) fn last(&self) -> Option<Timestamp> {
        self.troubles.values().map(|trouble| trouble.last.time).max()
    }

    /// The last line of that class within this time that was logged since the agent started.
    fn last_of(&self, class: Class, within: Duration, now: Uptime) -> Option<&Evidence> {
        let of_class = self.troubles.iter().filter(|(index, _)| PATTERNS[**index].class == class);
        let recent = of_class.map(|(_, trouble)| &trouble.last).filter(|last| now < last.at + within);
        recent.max_by_key(|last| last.at)
    }

    /// The findings. `counters` confirm the log lines about processors and hardware.
    pub(super) fn findings(&self, counters: &Counters, now: Uptime) -> impl Iterator<Item = Finding> {
        [self.hardware(counters, now), self.lockup(counters, now), self.trouble(now)].into_iter().flatten()
    }

    fn hardware(&self, counters: &Counters, now: Uptime) -> Option<Finding> {
        let error = self.last_of(Class::Uncorrected, HARDWARE_LASTS, now)?;
        let witnesses = [
            (counters.corrupted_bytes > 0, "HardwareCorrupted in /proc/meminfo is not 0"),
            (counters.uncorrected_errors > 0, "ue_count of a memory controller (EDAC) is not 0"),
            (counters.tainted & TAINT_MACHINE_CHECK != 0, "kernel.tainted has the flag M (machine check)"),
        ];
        let (_, confirmed_by) = witnesses.into_iter().find(|(is_witness, _)| *is_witness)?;
        let message = format!("uncorrected hardware error at {}: {}; {confirmed_by}", error.time, error.line);
        Some(Finding::new(Reason::KernelHardwareFailing, message))
    }

    fn lockup(&self, counters: &Counters, now: Uptime) -> Option<Finding> {
        let witnesses = [
            (counters.lockups > 0, "the lockup counters in /sys/kernel are not 0"),
            (counters.tainted & TAINT_SOFT_LOCKUP != 0, "kernel.tainted has the flag L (soft lockup)"),
        ];
        let (_, confirmed_by) = witnesses.into_iter().find(|(is_witness, _)| *is_witness)?;
        let is_recent = |evidence: &&Evidence| now < evidence.at + LOCKUP_WINDOW;
        let message = if let Some(hard) = self.last_of(Class::HardLockup, LOCKUP_WINDOW, now) {
            format!("hard lockup at {}: {}; {confirmed_by}", hard.time, hard.line)
        } else {
            let count = self.stalls.iter().filter(is_recent).count();
            let last = self.stalls.last().filter(|last| count == LOCKUP_STALLS && !last.is_old)?;
            format!("{LOCKUP_STALLS} soft lockups or RCU stalls within 10 minutes, last: {}; {confirmed_by}", last.line)
        };
        Some(Finding::new(Reason::KernelLockedUp, message))
    }

    /// One finding for all problems: a condition shows one.
    fn trouble(&self, now: Uptime) -> Option<Finding> {
        let present = self.troubles.iter().filter(|(_, trouble)| !trouble.is_over(now));
        let messages: Vec<_> = present.map(|(index, trouble)| trouble.message(PATTERNS[*index].name)).collect();
        (!messages.is_empty()).then(|| Finding::new(Reason::KernelTroubleLogged, messages.join("; ")))
    }
}

impl Trouble {
    fn is_over(&self, now: Uptime) -> bool {
        now >= self.last.at + TROUBLE_LASTS
    }

    fn message(&self, name: &str) -> String {
        let Self { count, first, last: Evidence { time, line, .. } } = self;
        match count {
            1 => format!("{name} at {time}: {line}"),
            _ => format!("{name}, {count} times from {first} to {time}, last: {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Counters = Counters { tainted: 0, lockups: 0, corrupted_bytes: 0, uncorrected_errors: 0 };
    const TAINTED_L: Counters = Counters { tainted: 1 << 14, ..NOTHING };
    const COUNTED: Counters = Counters { lockups: 1, ..NOTHING };
    const HARD: &str = "watchdog: Watchdog detected hard LOCKUP on cpu 3";
    const SOFT: &str = "watchdog: BUG: soft lockup - CPU#94 stuck for 26s! [ksoftirqd/94:480]";
    const RCU: &str = "INFO: rcu_sched self-detected stall on CPU";
    const FAILURE: &str = "Memory failure: 0x4c97: recovery action for reserved kernel page: Failed";

    fn at(secs: u64) -> Now {
        let wall = Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_secs(secs.try_into().unwrap())).unwrap();
        Now { uptime: Duration::from_secs(secs), wall, server: wall }
    }

    fn log(logged: &mut Logged, secs: u64, text: &str) {
        logged.take(&Line { level: 3, text: text.into(), at: at(secs).uptime, is_old: false }, at(secs));
    }

    fn old(logged: &mut Logged, secs: u64, text: &str) {
        logged.take(&Line { level: 3, text: text.into(), at: at(secs).uptime, is_old: true }, at(1000));
    }

    fn reasons(logged: &Logged, counters: &Counters, secs: u64) -> Vec<Reason> {
        logged.findings(counters, at(secs).uptime).map(|finding| finding.reason).collect()
    }

    #[test]
    fn a_problem_is_a_warning_for_five_minutes_after_its_last_line() {
        let mut logged = Logged::default();
        log(&mut logged, 1000, "EXT4-fs error (device sda1): ext4_lookup:1789: inode #2: comm \u{1b}[31mls: x");
        log(&mut logged, 1060, &format!("EXT4-fs error (device sda1): {}", "y".repeat(8000)));
        log(&mut logged, 1070, "INFO: task insmod:8812 blocked for more than 122 seconds.");
        let finding = logged.findings(&NOTHING, at(1359).uptime).next().unwrap();
        let start = "hung task at 1970-01-01T00:17:50Z: INFO: task insmod:8812 blocked for more than 122 seconds.; \
                     ext4 error, 2 times from 1970-01-01T00:16:40Z to 1970-01-01T00:17:40Z, last: EXT4-fs error (device sda1): y";
        assert!(finding.message.starts_with(start), "{}", finding.message);
        assert!(finding.message.len() < start.len() + MAX_LINE_BYTES);
        assert_eq!(reasons(&logged, &NOTHING, 1365), [Reason::KernelTroubleLogged], "the hung task");
        assert_eq!(reasons(&logged, &NOTHING, 1370), []);
        log(&mut logged, 2000, "EXT4-fs error (device sda1): \u{1b}[31m");
        let message = logged.findings(&NOTHING, at(2000).uptime).next().unwrap().message;
        assert_eq!(message, "ext4 error at 1970-01-01T00:33:20Z: EXT4-fs error (device sda1): ␛[31m");
    }

    /// kubernetes/node-problem-detector#47: one line, and a node that works.
    #[test]
    fn a_network_device_in_use_is_a_warning_as_long_as_it_is_logged() {
        let mut logged = Logged::default();
        for secs in (1000..4000).step_by(10) {
            log(&mut logged, secs, "unregister_netdevice: waiting for br-1a2b to become free. Usage count = 3");
            assert_eq!(reasons(&logged, &TAINTED_L, secs), [Reason::KernelTroubleLogged]);
        }
        let message = logged.findings(&NOTHING, at(3990).uptime).next().unwrap().message;
        assert!(message.contains("300 times from 1970-01-01T00:16:40Z") && message.contains("br-1a2b"), "{message}");
        assert_eq!(reasons(&logged, &NOTHING, 4290), []);
    }

    #[test]
    fn a_hard_lockup_counts_at_once_if_a_counter_or_flag_confirms_it() {
        let mut logged = Logged::default();
        log(&mut logged, 1000, HARD);
        assert_eq!(reasons(&logged, &NOTHING, 1000), [Reason::KernelTroubleLogged]);
        for counters in [COUNTED, TAINTED_L] {
            assert_eq!(reasons(&logged, &counters, 1000), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
        }
        assert_eq!(reasons(&logged, &COUNTED, 1599), [Reason::KernelLockedUp]);
        assert_eq!(reasons(&logged, &COUNTED, 1600), []);
    }

    /// awslabs/amazon-eks-ami#454: Linux 4.14 has the flag and no counters, and logs a soft lockup once.
    #[test]
    fn five_stalls_within_ten_minutes_are_a_lockup_if_the_kernel_is_tainted() {
        let mut logged = Logged::default();
        log(&mut logged, 288, "watchdog: BUG: soft lockup - CPU#5 stuck for 23s! [kworker/u16:2:62]");
        for secs in [302, 482, 662] {
            log(&mut logged, secs, RCU);
            log(
                &mut logged,
                secs,
                "\t5-...: (14749 ticks this GP) idle=512/140000000000001/0 softirq=16775/16775 fqs=6347 ",
            );
            assert_eq!(reasons(&logged, &TAINTED_L, secs), [Reason::KernelTroubleLogged]);
        }
        log(&mut logged, 842, RCU);
        assert_eq!(reasons(&logged, &TAINTED_L, 842), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&logged, &NOTHING, 842), [Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&logged, &TAINTED_L, 889), [Reason::KernelTroubleLogged], "only four are left");
    }

    /// NVIDIA/NVSentinel#1508: Linux 5.15 repeats the lockup with its age.
    #[test]
    fn a_repeated_soft_lockup_is_a_lockup_and_a_pause_of_all_processors_is_not() {
        let mut logged = Logged::default();
        (1000..1010).for_each(|secs| log(&mut logged, secs, SOFT));
        assert_eq!(reasons(&logged, &TAINTED_L, 1010), [Reason::KernelTroubleLogged]);
        for secs in [1026, 1054, 1082, 1110] {
            log(
                &mut logged,
                secs,
                &format!("watchdog: BUG: soft lockup - CPU#94 stuck for {secs}s! [ksoftirqd/94:480]"),
            );
        }
        let finding = logged.findings(&TAINTED_L, at(1110).uptime).next().unwrap();
        assert_eq!(finding.reason, Reason::KernelLockedUp);
        assert!(finding.message.contains("stuck for 1110s!"), "{}", finding.message);
    }

    #[test]
    fn lines_from_before_the_start_complete_a_count_and_are_nothing_alone() {
        let mut logged = Logged::default();
        for secs in [900, 920, 940, 960, 980] {
            old(&mut logged, secs, SOFT);
        }
        old(&mut logged, 990, HARD);
        old(&mut logged, 990, "INFO: task kubelet:7 blocked for more than 122 seconds.");
        assert_eq!(reasons(&logged, &COUNTED, 1000), []);
        assert_eq!(logged.last(), None);
        log(&mut logged, 1010, SOFT);
        assert_eq!(reasons(&logged, &COUNTED, 1010), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
    }

    #[test]
    fn an_uncorrected_error_counts_for_a_day_if_a_counter_or_flag_confirms_it() {
        let confirmed = [
            Counters { tainted: 1 << 4, ..NOTHING },
            Counters { corrupted_bytes: 4096, ..NOTHING },
            Counters { uncorrected_errors: 1, ..NOTHING },
        ];
        let mut logged = Logged::default();
        log(&mut logged, 1000, FAILURE);
        assert_eq!(reasons(&logged, &TAINTED_L, 1000), [Reason::KernelTroubleLogged]);
        for counters in confirmed {
            assert_eq!(reasons(&logged, &counters, 87_399), [Reason::KernelHardwareFailing]);
            assert_eq!(reasons(&logged, &counters, 87_400), []);
        }
        let mut logged = Logged::default();
        old(&mut logged, 900, FAILURE);
        assert_eq!(reasons(&logged, &confirmed[0], 1000), [], "it is from before the start");
        log(&mut logged, 1000, "Memory failure: 0x4c97: recovery action for clean LRU page: Recovered");
        assert_eq!(reasons(&logged, &confirmed[1], 1000), [Reason::KernelTroubleLogged]);
        log(&mut logged, 1000, "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0)");
        assert_eq!(reasons(&Logged::default(), &confirmed[0], 1000), [], "a counter alone");
    }

    #[test]
    fn a_storm_takes_no_more_memory_than_a_few_lines() {
        let mut logged = Logged::default();
        for secs in 0..10_000 {
            log(&mut logged, secs, &format!("{SOFT}{}", "x".repeat(8000)));
        }
        let message = logged.findings(&NOTHING, at(10_000).uptime).next().unwrap().message;
        assert!(message.contains("10000 times") && message.len() < 400, "{message}");
        assert_eq!(logged.stalls.len(), LOCKUP_STALLS);
    }
}
