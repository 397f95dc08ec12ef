//! What was sampled of a process that does not answer: what keeps it from running, and whether the host's load does.

use std::collections::VecDeque;
use std::time::Duration;

use crate::condition::Uptime;
use crate::host::pressure::Pressure;
use crate::host::process::{Sample, ThreadWait};

/// A process is judged from the third failed probe in a row on.
pub const FAILURES_IN_A_ROW: u32 = 3;
/// Samples that are kept.
const MAX_SAMPLES: usize = 32;
/// Above these shares of the time, in percent, a host is too busy for a process to answer in time. They were chosen on hosts that were
/// overloaded on purpose. Some task waits for a processor:
const STARVED_CPU_PERCENT: f32 = 60.0;
/// All tasks wait for memory:
const STARVED_MEMORY_PERCENT: f32 = 20.0;
/// The process's own threads, summed up, wait for a processor; one that is stuck waits for none, however busy the host is:
const STARVED_OWN_PERCENT: u128 = 10;
/// The same, whatever the rest of the host does, as with a CPU limit of the process's cgroup:
const STARVED_OWN_ALONE_PERCENT: u128 = 50;
/// A limit of its own cgroup slows the process down if it takes this much of the time:
const THROTTLED_PERCENT: u128 = 50;
/// Some task waits for a disk:
const BUSY_DISK_PERCENT: f32 = 60.0;
/// Busy disks excuse a process for this long: the disk of one limited Pod may be busy for hours.
const BUSY_DISK_EXCUSES_FOR: Duration = Duration::from_mins(5);
/// A busy host is remembered for this long: a sample can miss it.
const STARVED_LASTS: Duration = Duration::from_secs(30);

/// The same where the process is judged by what the kubelet says of it. Probes are up to half a minute apart.
const LOAD_REMEMBERED: Duration = Duration::from_mins(2);
/// Samples that show whether the host is busy; the first one alone does not.
const ENOUGH_SAMPLES: usize = 3;

fn over(percent: Option<f32>, limit: f32) -> bool {
    percent.is_some_and(|percent| percent > limit)
}

/// Whether the host as a whole is too busy for a process to answer in time.
pub fn is_busy(pressure: Pressure) -> bool {
    over(pressure.cpu_some_percent, STARVED_CPU_PERCENT) || over(pressure.memory_full_percent, STARVED_MEMORY_PERCENT)
}

/// The samples since the process last answered.
#[derive(Debug, Default)]
pub struct Samples {
    kept: VecDeque<(Uptime, Sample)>,
    /// Since when the host's load has been seen to keep the process from running, and when last.
    pub starved_since: Option<Uptime>,
    starved_at: Option<Uptime>,
    /// Since when the disks have been busy.
    disks_busy_since: Option<Uptime>,
    /// Whether the kernel reports how much its tasks wait for memory: without `CONFIG_PSI` and with `psi=0` it does not.
    pub knows_memory_pressure: bool,
}

impl Samples {
    pub fn take_in(&mut self, sample: Sample, now: Uptime) {
        let pressure = sample.pressure;
        self.knows_memory_pressure = pressure.memory_full_percent.is_some();
        if self.shows_starvation(&sample, now) {
            self.starved_since.get_or_insert(now);
            self.starved_at = Some(now);
        }
        let is_disk_busy = over(pressure.io_some_percent, BUSY_DISK_PERCENT);
        self.disks_busy_since = is_disk_busy.then(|| self.disks_busy_since.unwrap_or(now));
        self.kept.push_back((now, sample));
        if self.kept.len() > MAX_SAMPLES {
            self.kept.pop_front();
        }
    }

    fn shows_starvation(&self, sample: &Sample, now: Uptime) -> bool {
        let pressure = sample.pressure;
        let own = self.kept.back().map(|(at, before)| {
            let waited = sample.run_delay.saturating_sub(before.run_delay);
            waited.as_millis() * 100 / (now - *at).as_millis().max(1)
        });
        let own_over = |limit| own.is_some_and(|percent| percent > limit);
        own_over(STARVED_OWN_ALONE_PERCENT)
            || (over(pressure.cpu_some_percent, STARVED_CPU_PERCENT) && own_over(STARVED_OWN_PERCENT))
            || over(pressure.memory_full_percent, STARVED_MEMORY_PERCENT)
    }

    pub fn last(&self) -> Option<&Sample> {
        self.newest_first().next()
    }

    pub fn newest_first(&self) -> impl Iterator<Item = &Sample> {
        self.kept.iter().rev().map(|(_, sample)| sample)
    }

    /// Whether the host's load kept the process from running a short time ago.
    pub fn is_starved(&self, now: Uptime) -> bool {
        self.starved_at.is_some_and(|at| now < at + STARVED_LASTS)
    }

    /// Whether enough samples show that the host's load has not kept the process from running, now and a while ago: the kubelet, which
    /// suffers from the same load, is no witness against the process otherwise.
    pub fn rule_out_load(&self, now: Uptime) -> bool {
        let is_long_ago = self.starved_at.is_none_or(|at| now >= at + LOAD_REMEMBERED);
        is_long_ago && self.kept.len() >= ENOUGH_SAMPLES
    }

    /// Why the process could not answer in time, if that is the load of the host or a limit of its unit.
    pub fn busy(&self, now: Uptime) -> Option<&'static str> {
        let of_host = self.is_starved(now).then_some("the host is too busy to run it");
        self.limited_by().or(of_host)
    }

    /// Why a process that needs a disk for its answer could not answer in time.
    pub fn waits_for_disk(&self, now: Uptime) -> Option<&'static str> {
        let is_excused = self.disks_busy_since.is_some_and(|since| now < since + BUSY_DISK_EXCUSES_FOR);
        is_excused.then_some("the host's disks are busy (/proc/pressure/io)")
    }

    /// What keeps the process from running, by the last sample.
    pub fn suspended_by(&self) -> Option<String> {
        self.last()?.suspended_by()
    }

    /// The limit of its own unit that keeps the process from running.
    pub fn limited_by(&self) -> Option<&'static str> {
        let ((begin, first), (end, last)) = self.kept.front().zip(self.kept.back())?;
        let throttled = last.throttled.cpu.saturating_sub(first.throttled.cpu);
        if throttled.as_millis() * 100 > (*end - *begin).as_millis() * THROTTLED_PERCENT {
            return Some("CPUQuota= of its unit throttles it (cpu.stat)");
        }
        let events: Vec<_> = self.newest_first().take(3).map(|sample| sample.throttled.memory_events).collect();
        let is_rising = matches!(events[..], [now, before, first] if now > before && before > first);
        is_rising.then_some("MemoryHigh= of its unit throttles it (memory.events)")
    }

    /// A thread that has been in the same uninterruptible wait in at least three samples in a row, the first at least `time` ago.
    pub fn stuck_for(&self, time: Duration, now: Uptime) -> Option<&ThreadWait> {
        let last = &self.kept.back()?.1.uninterruptible;
        let is_stuck = |wait: &ThreadWait| {
            let same = self.kept.iter().rev().take_while(|(_, sample)| sample.uninterruptible.contains(wait));
            let (count, first) = same.fold((0, now), |(count, _), (at, _)| (count + 1, *at));
            count >= FAILURES_IN_A_ROW && now - first >= time
        };
        last.iter().find(|wait| is_stuck(wait))
    }
}
