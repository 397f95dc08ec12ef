//! What the kernel has logged, and for how long it counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::gpu::{self, LostGpus};
use super::patterns::{self, Class};
use super::witness::{Detector, Witnesses};
use crate::condition::{Finding, Reason, Uptime};
use crate::host::clock::Now;
use crate::host::kernel::Counters;
use crate::host::kmsg::Line;
use crate::monitor::wall_at;

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
/// Work of the kernel that has waited for longer than this is as bad as a hard lockup.
const WORKQUEUE_STUCK_SECS: u64 = 120;
/// A line break in a record, as /dev/kmsg has it.
const LINE_BREAK: &str = "\\x0a";
/// The lines of an event of the hardware (APEI) begin with its number in braces, and this.
const HARDWARE_EVENT: &str = "[Hardware Error]: ";

/// A line as it is kept.
#[derive(Debug, Clone)]
struct Evidence {
    at: Uptime,
    time: Timestamp,
    line: String,
    /// Whether the agent has started since.
    is_old: bool,
    /// When the first of the lines that this one continues was logged, and the counters that were read before it.
    since: Uptime,
    before: Option<Counters>,
}

/// A problem that was logged since the agent started.
#[derive(Debug)]
struct Repeated {
    count: u64,
    first: Timestamp,
    last: Evidence,
}

/// At most one a pattern, by its index, and one a code of an Xid.
type RepeatedLines = BTreeMap<(usize, Option<u16>), Repeated>;

/// What is remembered of the log.
#[derive(Debug, Default)]
pub(super) struct Logged {
    troubles: RepeatedLines,
    gpu_errors: RepeatedLines,
    lost_gpus: LostGpus,
    /// The last ones, at most [`LOCKUP_STALLS`].
    stalls: Vec<Evidence>,
    /// The line with the severity of the last event of the hardware.
    event: String,
    pub(super) witnesses: Witnesses,
}

impl Logged {
    /// Takes in a line; returns what it is evidence of.
    pub(super) fn take(&mut self, line: &Line, now: Now) -> Option<Class> {
        self.lost_gpus.take(line);
        let text = self.whole(&line.text)?;
        let index = patterns::find(&text, line.level)?;
        let (class, key) = (patterns::pattern(index).class, (index, gpu::code(&text)));
        let at = if line.is_old { line.at } else { now.uptime };
        let text = redact::escape_controls(&redact::bounded(&text.replace(LINE_BREAK, " "), MAX_LINE_BYTES));
        if class == Class::LostGpu {
            self.lost_gpus.lost(line, text);
            return Some(class);
        }
        let before = self.witnesses.counters.filter(|_| !line.is_old);
        let mut evidence = Evidence { at, time: wall_at(at, now), line: text, is_old: line.is_old, since: at, before };
        if class == Class::Stall {
            self.stalled(evidence.clone());
        }
        if !line.is_old {
            let troubles = if class == Class::GpuError { &mut self.gpu_errors } else { &mut self.troubles };
            let known = troubles.remove(&key);
            if let Some(Repeated { last, .. }) = known.as_ref().filter(|known| at < known.last.at + class.lasts()) {
                (evidence.since, evidence.before) = (last.since, last.before);
            }
            let known = known.filter(|trouble| !trouble.is_over(at));
            let (count, first) = known.map_or((1, evidence.time), |trouble| (trouble.count + 1, trouble.first));
            troubles.insert(key, Repeated { count, first, last: evidence });
        }
        Some(class)
    }

    /// Joins the two lines of a hardware event, of which the first has the severity and a later one the part that failed. `PCIe` recovers
    /// from most of its errors.
    fn whole<'a>(&mut self, text: &'a str) -> Option<Cow<'a, str>> {
        let Some((number, line)) = text.split_once(HARDWARE_EVENT).filter(|(number, _)| number.starts_with('{')) else {
            return Some(text.into());
        };
        if line.starts_with("event severity: ") && !line.ends_with("fatal") {
            text.clone_into(&mut self.event);
            return None;
        }
        let line = line.trim_start();
        // The second of one that the kernel does not know.
        let section = line.strip_prefix("section_type: ").or(line.strip_prefix("section type: "));
        let Some(section) = section else { return Some(text.into()) };
        self.event.starts_with(number).then(|| format!("{}, section_type: {section}", self.event).into())
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

    /// The last line of that class that counts and was logged since the agent started.
    fn last_of(&self, class: Class, now: Uptime) -> Option<&Evidence> {
        let of_class = self.troubles.iter().filter(|((index, _), _)| patterns::pattern(*index).class == class);
        let recent = of_class.map(|(_, trouble)| &trouble.last).filter(|last| now < last.at + class.lasts());
        recent.max_by_key(|last| last.at)
    }

    /// The findings. [`Witnesses`] confirm the log lines about processors and hardware.
    pub(super) fn findings(&self, now: Uptime) -> impl Iterator<Item = Finding> {
        [self.hardware(now), self.lockup(now), self.trouble(now)].into_iter().flatten()
    }

    fn hardware(&self, now: Uptime) -> Option<Finding> {
        let error = self.last_of(Class::Uncorrected, now)?;
        let confirmed_by = self.witnesses.of_hardware(error.before?)?;
        let message = format!("uncorrected hardware error at {}: {}; {confirmed_by}", error.time, error.line);
        Some(Finding::new(Reason::KernelHardwareFailing, message))
    }

    fn lockup(&self, now: Uptime) -> Option<Finding> {
        let is_long =
            |last: &&Evidence| patterns::stuck_secs(&last.line).is_some_and(|secs| secs > WORKQUEUE_STUCK_SECS);
        let hard = self.last_of(Class::HardLockup, now).map(|last| ("hard lockup", Some(Detector::HardLockup), last));
        let workqueue = || Some(("workqueue lockup", None, self.last_of(Class::Workqueue, now).filter(is_long)?));
        let message = if let Some((what, by, last)) = hard.or_else(workqueue) {
            let confirmed_by = self.witnesses.of_lockup(by, last.since, last.before)?;
            format!("{what} at {}: {}; {confirmed_by}", last.time, last.line)
        } else {
            let recent: Vec<_> = self.stalls.iter().filter(|stall| now < stall.at + LOCKUP_WINDOW).collect();
            let last = recent.last().filter(|last| recent.len() == LOCKUP_STALLS && !last.is_old)?;
            let soft = recent.iter().filter(|stall| stall.line.contains("soft lockup")).count();
            let by = [(0, Detector::Rcu), (LOCKUP_STALLS, Detector::SoftLockup)];
            let by = by.into_iter().find(|(count, _)| *count == soft).map(|(_, detector)| detector);
            let before = recent.iter().find_map(|stall| stall.before);
            let confirmed_by = self.witnesses.of_lockup(by, recent[0].at, before)?;
            format!("{LOCKUP_STALLS} soft lockups or RCU stalls within 10 minutes, last: {}; {confirmed_by}", last.line)
        };
        Some(Finding::new(Reason::KernelLockedUp, message))
    }

    fn trouble(&self, now: Uptime) -> Option<Finding> {
        one_finding(Reason::KernelTroubleLogged, present(&self.troubles, now))
    }

    pub(super) fn gpus(&self, now: Uptime) -> Option<Finding> {
        let reason = if self.lost_gpus.is_empty() { Reason::NvidiaXidLogged } else { Reason::NvidiaGPULost };
        one_finding(reason, self.lost_gpus.messages().chain(present(&self.gpu_errors, now)))
    }
}

/// One finding for all problems: a condition shows one.
fn one_finding(reason: Reason, messages: impl Iterator<Item = String>) -> Option<Finding> {
    let messages: Vec<_> = messages.collect();
    (!messages.is_empty()).then(|| Finding::new(reason, messages.join("; ")))
}

fn present(troubles: &RepeatedLines, now: Uptime) -> impl Iterator<Item = String> {
    let present = troubles.iter().filter(move |(_, trouble)| !trouble.is_over(now));
    present.map(|((index, _), trouble)| trouble.message(&patterns::pattern(*index).name))
}

impl Class {
    fn lasts(self) -> Duration {
        match self {
            Self::Uncorrected => HARDWARE_LASTS,
            Self::Trouble | Self::LostGpu | Self::GpuError => TROUBLE_LASTS,
            Self::Stall | Self::HardLockup | Self::Workqueue => LOCKUP_WINDOW,
        }
    }
}

impl Repeated {
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
    use jiff::SignedDuration;

    use super::*;

    const NOTHING: Counters = Counters {
        tainted: 0,
        soft_lockups: 0,
        hard_lockups: 0,
        rcu_stalls: 0,
        corrupted_bytes: 0,
        uncorrected_errors: 0,
    };
    const TAINTED_L: Counters = Counters { tainted: 1 << 14, ..NOTHING };
    const RCU_COUNTED: Counters = Counters { rcu_stalls: 1, ..NOTHING };
    const HARD: &str = "watchdog: Watchdog detected hard LOCKUP on cpu 3";
    const SOFT: &str = "watchdog: BUG: soft lockup - CPU#94 stuck for 26s! [ksoftirqd/94:480]";
    const RCU: &str = "INFO: rcu_sched self-detected stall on CPU";
    const FAILURE: &str = "Memory failure: 0x4c97: recovery action for reserved kernel page: Failed";

    fn at(secs: u64) -> Now {
        let wall = Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_secs(secs.try_into().unwrap())).unwrap();
        Now::of(Uptime::from_secs(secs), wall)
    }

    fn log(logged: &mut Logged, secs: u64, text: &str) {
        logged.take(&Line { level: 3, text: text.into(), at: at(secs).uptime, is_old: false }, at(secs));
    }

    fn old(logged: &mut Logged, secs: u64, text: &str) {
        logged.take(&Line { level: 3, text: text.into(), at: at(secs).uptime, is_old: true }, at(1000));
    }

    /// What has been logged on a host whose counters were read before.
    fn logged_after(counters: Counters) -> Logged {
        let mut logged = Logged::default();
        logged.witnesses.read(counters, vec![], None, Uptime::ZERO);
        logged
    }

    /// The reasons once these counters have been read.
    fn reasons(logged: &mut Logged, counters: &Counters, secs: u64) -> Vec<Reason> {
        logged.witnesses.read(*counters, vec![], None, at(secs).uptime);
        logged.findings(at(secs).uptime).map(|finding| finding.reason).collect()
    }

    #[test]
    fn a_problem_is_a_warning_for_five_minutes_after_its_last_line() {
        let mut logged = Logged::default();
        log(&mut logged, 1000, "EXT4-fs error (device sda1): ext4_lookup:1789: inode #2: comm \u{1b}[31mls: x");
        log(&mut logged, 1060, &format!("EXT4-fs error (device sda1): {}", "y".repeat(8000)));
        log(&mut logged, 1070, "INFO: task insmod:8812 blocked for more than 122 seconds.");
        let finding = logged.findings(at(1359).uptime).next().unwrap();
        let start = "hung task at 1970-01-01T00:17:50Z: INFO: task insmod:8812 blocked for more than 122 seconds.; \
                     ext4 error, 2 times from 1970-01-01T00:16:40Z to 1970-01-01T00:17:40Z, last: EXT4-fs error (device sda1): y";
        assert!(finding.message.starts_with(start), "{}", finding.message);
        assert!(finding.message.len() < start.len() + MAX_LINE_BYTES);
        assert_eq!(reasons(&mut logged, &NOTHING, 1365), [Reason::KernelTroubleLogged], "the hung task");
        assert_eq!(reasons(&mut logged, &NOTHING, 1370), []);
        log(&mut logged, 2000, "EXT4-fs error (device sda1): \u{1b}[31m");
        let message = logged.findings(at(2000).uptime).next().unwrap().message;
        assert_eq!(message, "ext4 error at 1970-01-01T00:33:20Z: EXT4-fs error (device sda1): ␛[31m");
    }

    /// kubernetes/node-problem-detector#47: one line, and a node that works.
    #[test]
    fn a_network_device_in_use_is_a_warning_as_long_as_it_is_logged() {
        let mut logged = Logged::default();
        for secs in (1000..4000).step_by(10) {
            log(&mut logged, secs, "unregister_netdevice: waiting for br-1a2b to become free. Usage count = 3");
            assert_eq!(reasons(&mut logged, &TAINTED_L, secs), [Reason::KernelTroubleLogged]);
        }
        let message = logged.findings(at(3990).uptime).next().unwrap().message;
        assert!(message.contains("300 times from 1970-01-01T00:16:40Z") && message.contains("br-1a2b"), "{message}");
        assert_eq!(reasons(&mut logged, &NOTHING, 4290), []);
    }

    #[test]
    fn a_hard_lockup_counts_if_something_else_confirms_it() {
        for witness in [RCU_COUNTED, TAINTED_L, Counters { soft_lockups: 1, ..NOTHING }] {
            let mut logged = logged_after(NOTHING);
            log(&mut logged, 1000, HARD);
            let own = Counters { hard_lockups: 1, ..NOTHING };
            assert_eq!(reasons(&mut logged, &own, 1000), [Reason::KernelTroubleLogged], "its own counter");
            assert_eq!(reasons(&mut logged, &witness, 1002), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
            assert_eq!(reasons(&mut logged, &witness, 1599), [Reason::KernelLockedUp]);
            assert_eq!(reasons(&mut logged, &witness, 1600), []);
            let mut logged = logged_after(witness);
            log(&mut logged, 1000, HARD);
            assert_eq!(
                reasons(&mut logged, &witness, 1002),
                [Reason::KernelTroubleLogged],
                "it is older than the line"
            );
        }
    }

    #[test]
    fn a_processor_that_does_nothing_else_confirms_a_lockup_and_so_does_a_service_that_hangs() {
        let texts: [&[&str]; 3] =
            [&[HARD], &[SOFT; 5], &["BUG: workqueue lockup - pool cpus=2 node=0 flags=0x0 nice=0 stuck for 338s!"]];
        for texts in texts {
            let mut logged = Logged::default();
            let read = |logged: &mut Logged, secs, cpu, hung| {
                logged.witnesses.read(NOTHING, vec![secs, cpu], hung, at(secs).uptime);
                logged.findings(at(secs).uptime).any(|finding| finding.reason == Reason::KernelLockedUp)
            };
            assert!(!read(&mut logged, 990, 1, None));
            (0u64..).zip(texts).for_each(|(index, text)| log(&mut logged, 1000 + index * 22, text));
            assert!(!read(&mut logged, 1100, 2, None), "{texts:?}");
            assert!(read(&mut logged, 1101, 2, Some("kubelet")), "{texts:?}");
            assert!(!read(&mut logged, 1109, 2, None), "too soon to say of a processor");
            assert!(read(&mut logged, 1110, 2, None), "{texts:?}");
            assert!(read(&mut logged, 1140, 3, None), "{texts:?}");
        }
    }

    #[test]
    fn work_that_waits_for_two_minutes_is_a_lockup_and_less_is_not() {
        let lockup = |secs| format!("BUG: workqueue lockup - pool cpus=2 node=0 flags=0x0 nice=0 stuck for {secs}s!");
        for (secs, is_lockup) in [(31, false), (120, false), (121, true), (338, true)] {
            let mut logged = logged_after(NOTHING);
            log(&mut logged, 1000, &lockup(secs));
            assert_eq!(reasons(&mut logged, &TAINTED_L, 1002).contains(&Reason::KernelLockedUp), is_lockup, "{secs}");
            assert_eq!(reasons(&mut logged, &NOTHING, 1030), [Reason::KernelTroubleLogged]);
        }
    }

    #[test]
    fn what_an_event_of_the_hardware_is_about_decides() {
        let event = |severity: &str, section: &str| {
            let mut logged = logged_after(NOTHING);
            for line in [
                format!("event severity: {severity}"),
                format!(" Error 0, type: {severity}"),
                format!("  section_type: {section}"),
            ] {
                log(&mut logged, 1000, &format!("{{1}}[Hardware Error]: {line}"));
            }
            reasons(&mut logged, &Counters { corrupted_bytes: 4096, ..NOTHING }, 1002)
        };
        let failing = [Reason::KernelHardwareFailing, Reason::KernelTroubleLogged];
        assert_eq!(event("recoverable", "memory error"), failing);
        assert_eq!(event("recoverable", "ARM processor error"), failing);
        assert_eq!(event("fatal", "PCIe error"), failing);
        assert_eq!(event("recoverable", "PCIe error"), []);
        assert_eq!(event("corrected", "PCIe error"), []);
        assert_eq!(event("corrected", "memory error"), [Reason::KernelTroubleLogged]);
        // nodejs/build#2894.
        let mut logged = Logged::default();
        log(&mut logged, 1000, "{77}[Hardware Error]: event severity: corrected");
        log(&mut logged, 1000, "{77}[Hardware Error]:   section type: unknown, e8ed898d-df16-43cc-8ecc-54f060ef157f");
        assert_eq!(reasons(&mut logged, &NOTHING, 1000), [Reason::KernelTroubleLogged]);
    }

    /// awslabs/amazon-eks-ami#454: Linux 4.14 has the flag and no counters, and logs a soft lockup once.
    #[test]
    fn five_stalls_within_ten_minutes_are_a_lockup_if_the_kernel_is_tainted() {
        let mut logged = logged_after(NOTHING);
        log(&mut logged, 288, "watchdog: BUG: soft lockup - CPU#5 stuck for 23s! [kworker/u16:2:62]");
        for secs in [302, 482, 662] {
            log(&mut logged, secs, RCU);
            log(
                &mut logged,
                secs,
                "\t5-...: (14749 ticks this GP) idle=512/140000000000001/0 softirq=16775/16775 fqs=6347 ",
            );
            assert_eq!(reasons(&mut logged, &TAINTED_L, secs), [Reason::KernelTroubleLogged]);
        }
        log(&mut logged, 842, RCU);
        assert_eq!(reasons(&mut logged, &TAINTED_L, 842), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&mut logged, &RCU_COUNTED, 842), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&mut logged, &NOTHING, 842), [Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&mut logged, &TAINTED_L, 889), [Reason::KernelTroubleLogged], "only four are left");
    }

    /// NVIDIA/NVSentinel#1508: Linux 5.15 repeats the lockup with its age.
    #[test]
    fn repeated_soft_lockups_need_another_witness_than_their_own_flag_and_counter() {
        let mut logged = logged_after(NOTHING);
        (1000..1010).for_each(|secs| log(&mut logged, secs, SOFT));
        assert_eq!(
            reasons(&mut logged, &RCU_COUNTED, 1010),
            [Reason::KernelTroubleLogged],
            "a pause of all processors"
        );
        for secs in [1026, 1054, 1082, 1110] {
            let text = format!("watchdog: BUG: soft lockup - CPU#94 stuck for {secs}s! [ksoftirqd/94:480]");
            log(&mut logged, secs, &text);
        }
        let own = Counters { soft_lockups: 5, ..TAINTED_L };
        assert_eq!(reasons(&mut logged, &own, 1110), [Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&mut logged, &RCU_COUNTED, 1110), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
        let finding = logged.findings(at(1110).uptime).next().unwrap();
        assert!(finding.message.contains("stuck for 1110s!"), "{}", finding.message);
        let mut logged = logged_after(TAINTED_L);
        for secs in [1026, 1054, 1082, 1110, 1138] {
            log(&mut logged, secs, RCU);
        }
        assert_eq!(reasons(&mut logged, &TAINTED_L, 1138), [Reason::KernelTroubleLogged], "an old flag");
    }

    #[test]
    fn lines_from_before_the_start_complete_a_count_and_are_nothing_alone() {
        let mut logged = Logged::default();
        for secs in [900, 920, 940, 960, 980] {
            old(&mut logged, secs, SOFT);
        }
        old(&mut logged, 990, HARD);
        old(&mut logged, 990, "INFO: task kubelet:7 blocked for more than 122 seconds.");
        assert_eq!(reasons(&mut logged, &RCU_COUNTED, 1000), []);
        assert_eq!(logged.last(), None);
        log(&mut logged, 1010, SOFT);
        let risen = Counters { rcu_stalls: 2, ..NOTHING };
        assert_eq!(reasons(&mut logged, &risen, 1010), [Reason::KernelLockedUp, Reason::KernelTroubleLogged]);
    }

    #[test]
    fn an_uncorrected_error_counts_for_a_day_if_a_counter_or_flag_has_confirmed_it_since() {
        let confirmed = [
            Counters { tainted: 1 << 4, ..NOTHING },
            Counters { corrupted_bytes: 4096, ..NOTHING },
            Counters { uncorrected_errors: 1, ..NOTHING },
        ];
        for counters in confirmed {
            let mut logged = logged_after(NOTHING);
            log(&mut logged, 1000, FAILURE);
            assert_eq!(reasons(&mut logged, &TAINTED_L, 1000), [Reason::KernelTroubleLogged]);
            assert_eq!(
                reasons(&mut logged, &counters, 1010),
                [Reason::KernelHardwareFailing, Reason::KernelTroubleLogged]
            );
            log(&mut logged, 40_000, FAILURE);
            assert_eq!(
                reasons(&mut logged, &counters, 40_400),
                [Reason::KernelHardwareFailing],
                "the page is counted once"
            );
            assert_eq!(reasons(&mut logged, &counters, 126_399), [Reason::KernelHardwareFailing]);
            assert_eq!(reasons(&mut logged, &counters, 126_400), []);
            let mut logged = logged_after(counters);
            log(&mut logged, 1000, FAILURE);
            assert_eq!(
                reasons(&mut logged, &counters, 1010),
                [Reason::KernelTroubleLogged],
                "it is older than the line"
            );
        }
        let mut logged = logged_after(NOTHING);
        old(&mut logged, 900, FAILURE);
        assert_eq!(reasons(&mut logged, &confirmed[0], 1000), [], "it is from before the start");
        log(&mut logged, 1000, "Memory failure: 0x4c97: recovery action for clean LRU page: Recovered");
        assert_eq!(reasons(&mut logged, &confirmed[1], 1000), [Reason::KernelTroubleLogged]);
        assert_eq!(reasons(&mut logged_after(NOTHING), &confirmed[0], 1000), [], "a counter alone");
    }

    #[test]
    fn a_storm_takes_no_more_memory_than_a_few_lines() {
        let mut logged = Logged::default();
        for secs in 0..10_000 {
            log(&mut logged, secs, &format!("{SOFT}{}", "x".repeat(8000)));
        }
        let message = logged.findings(at(10_000).uptime).next().unwrap().message;
        assert!(message.contains("10000 times") && message.len() < 400, "{message}");
        assert_eq!(logged.stalls.len(), LOCKUP_STALLS);
    }
}
