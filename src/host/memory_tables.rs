//! How the host's memory stands, from the kernel's tables: each is kept open, and a look allocates nothing.
//!
//! None of these reads waits for a disk. What may take the kernel milliseconds (`memory.stat`, which it sums up over all
//! processors and groups below) is read every other second at most, however often is looked.

use std::time::Duration;

use super::{
    files::Root,
    kept::{Kept, number, words},
};
use crate::checks::{
    kubelet::Process,
    memory::{
        Depth, Sample,
        sample::{Group, Level, Reclaim, Stall, Zram},
    },
};

/// How often `memory.stat` of all pods' group is read.
const STAT_EVERY: Duration = Duration::from_secs(2);
/// zram devices that are looked at; a host has one, or one a processor.
const MAX_ZRAMS: usize = 64;
/// Two lines of at most some 75 bytes, or the numbers of a zram device.
const MAX_BYTES: usize = 256;
/// Bounds `/proc/PID/cgroup`.
const MAX_GROUP_BYTES: usize = 16 * 1024;
/// A limit as high as this is none: v1 shows the highest that it knows.
const NO_LIMIT: u64 = 1 << 60;

/// The tables.
#[derive(Debug)]
pub struct MemoryTables {
    root: Root,
    meminfo: Kept,
    stall: Kept,
    vmstat: Kept,
    reserve: Option<u64>,
    /// `Hugetlb`, when all was read last: it stands too far behind for a look at the head.
    huge: u64,
    kubelet: OfProcess,
    runtime: OfProcess,
    zrams: Zrams,
    pods: Pods,
}

impl MemoryTables {
    /// Reads once what does not change, and opens nothing else yet.
    pub fn new(root: &Root) -> Self {
        let table = |path: &str| Kept::new(root, &[path]);
        Self {
            meminfo: table("/proc/meminfo"),
            stall: table("/proc/pressure/memory"),
            vmstat: table("/proc/vmstat"),
            reserve: reserve(root),
            huge: 0,
            kubelet: OfProcess::default(),
            runtime: OfProcess::default(),
            zrams: Zrams::default(),
            pods: Pods::new(root),
            root: root.clone(),
        }
    }

    /// Whose control groups' pressure is looked at.
    pub fn follow(&mut self, kubelet: Option<&Process>, runtime: Option<&Process>) {
        self.kubelet.follow(&self.root, kubelet);
        self.runtime.follow(&self.root, runtime);
    }

    /// Looks, at that uptime.
    ///
    /// # Errors
    /// In a sentence, why it cannot be said how the memory stands.
    pub fn look(&mut self, depth: Depth, at: Duration) -> Result<Sample, String> {
        let mut level = self.level(depth).ok_or_else(|| {
            "/proc/meminfo cannot be read, or has neither MemTotal nor MemAvailable".to_owned()
        })?;
        level.reserve = self.reserve;
        let mut sample = Sample {
            at,
            level,
            ..Sample::default()
        };
        if depth != Depth::Head {
            sample.stall = stall(&mut self.stall);
        }
        if depth == Depth::Whole {
            sample.reclaim = reclaim(&mut self.vmstat);
            sample.kubelet_full_us = self.kubelet.full_us();
            sample.runtime_full_us = self.runtime.full_us();
            sample.zram = self.zrams.look(&self.root, level.swap_total);
            sample.pods = self.pods.look(at);
        }
        Ok(sample)
    }

    /// What `/proc/meminfo` says, or its head.
    fn level(&mut self, depth: Depth) -> Option<Level> {
        let mut level = Level::default();
        let (mut total, mut available) = (None, None);
        let huge = &mut self.huge;
        let add = |sum: &mut Option<u64>, value: &[u8]| {
            *sum =
                bytes_of(value).map_or(*sum, |bytes| Some(sum.unwrap_or(0).saturating_add(bytes)));
        };
        // Each second: of the fifty lines the few that count are read.
        self.meminfo.lines(&mut |line| {
            let Some((name, value)) = of_meminfo(line) else {
                return true;
            };
            match name {
                b"MemTotal" => total = bytes_of(value),
                b"MemAvailable" => available = bytes_of(value),
                b"MemFree" => level.free = bytes_of(value),
                b"AnonPages" => level.anon = bytes_of(value),
                b"Active(file)" | b"Inactive(file)" => add(&mut level.file, value),
                b"Shmem" => level.shmem = bytes_of(value),
                b"SUnreclaim" | b"KernelStack" | b"PageTables" => add(&mut level.kernel, value),
                b"SwapTotal" => level.swap_total = bytes_of(value),
                b"SwapFree" => {
                    level.swap_free = bytes_of(value);
                    return depth != Depth::Head;
                }
                b"Hugetlb" => {
                    *huge = bytes_of(value).unwrap_or(0);
                    return false; // stands behind all others
                }
                _ => {}
            }
            true
        })?;
        level.total = total?.saturating_sub(self.huge);
        level.available = available?;
        Some(level)
    }
}

/// `MemTotal:       24682416 kB`: the name, and what stands behind it.
fn of_meminfo(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], &line[colon + 1..]))
}

/// `       24682416 kB`, in bytes.
fn bytes_of(value: &[u8]) -> Option<u64> {
    let value = number(words(value).next()?)?;
    Some(value.saturating_mul(1024))
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=116509426` and the same of `full`: the totals.
pub(super) fn totals(text: &[u8]) -> Option<(u64, Option<u64>)> {
    let (mut some, mut full) = (None, None);
    for line in text.split(|byte| *byte == b'\n') {
        let mut words = words(line);
        let which = match words.next() {
            Some(b"some") => &mut some,
            Some(b"full") => &mut full,
            _ => continue, // of a kernel to come
        };
        *which = words
            .find_map(|word| word.strip_prefix(b"total="))
            .and_then(number);
    }
    Some((some?, full))
}

/// A kernel that was booted with `psi=0` has the table, and refuses to read it: then there is none.
fn stall(table: &mut Kept) -> Option<Stall> {
    let mut buffer = [0; MAX_BYTES];
    let length = table.read(&mut buffer)?;
    let (some_us, full_us) = totals(&buffer[..length])?;
    Some(Stall {
        some_us,
        full_us: full_us?,
    })
}

/// What `/proc/vmstat` says.
fn reclaim(table: &mut Kept) -> Option<Reclaim> {
    let mut reclaim = Reclaim {
        page: procfs::page_size(),
        ..Reclaim::default()
    };
    let (mut scanned, mut refaulted, mut refaulted_before_5_9) = (None, None, None);
    let add =
        |sum: &mut Option<u64>, count: u64| *sum = Some(sum.unwrap_or(0).saturating_add(count));
    table.lines(&mut |line| {
        let mut words = words(line);
        let (Some(name), Some(count)) = (words.next(), words.next().and_then(number)) else {
            return true;
        };
        match name {
            b"workingset_refault_file" => refaulted = Some(count),
            b"workingset_refault" => refaulted_before_5_9 = Some(count),
            b"oom_kill" => {
                reclaim.oom_kills = count;
                return false; // stands behind all others, and the rest is long
            }
            _ if name.starts_with(b"pgscan_kswapd") => add(&mut scanned, count),
            _ if name.starts_with(b"pgsteal_kswapd") => add(&mut reclaim.stolen, count),
            _ if name.starts_with(b"allocstall") => add(&mut reclaim.stalls, count),
            _ => {}
        }
        true
    })?;
    reclaim.scanned = scanned?;
    reclaim.refaulted = refaulted.or(refaulted_before_5_9)?;
    Some(reclaim)
}

/// The sum of all zones' high watermarks, in bytes: a line `high     49` each. (`high:  0` is a processor's list of pages.)
fn reserve(root: &Root) -> Option<u64> {
    let mut pages = None;
    let mut zoneinfo = Kept::new(root, &["/proc/zoneinfo"]);
    zoneinfo.lines(&mut |line| {
        let mut words = words(line);
        if words.next() == Some(b"high")
            && let Some(high) = words.next().and_then(number)
        {
            pages = Some(high.saturating_add(pages.unwrap_or(0)));
        }
        true
    })?;
    pages.map(|pages| pages.saturating_mul(procfs::page_size()))
}

/// The pressure of the control group in which a process is.
#[derive(Debug, Default)]
struct OfProcess {
    process: Option<Process>,
    pressure: Option<Kept>,
}

impl OfProcess {
    fn follow(&mut self, root: &Root, process: Option<&Process>) {
        if self.process.as_ref() != process {
            self.process = process.cloned();
            self.pressure = process.and_then(|process| pressure_of(root, process.pid));
        }
    }

    fn full_us(&mut self) -> Option<u64> {
        let mut buffer = [0; MAX_BYTES];
        let length = self.pressure.as_mut()?.read(&mut buffer)?;
        totals(&buffer[..length])?.1
    }
}

/// `memory.pressure` of a process's group: cgroup v2 has it, alone or beside v1.
fn pressure_of(root: &Root, pid: i32) -> Option<Kept> {
    let text = root.read_text(format!("/proc/{pid}/cgroup"), MAX_GROUP_BYTES);
    let text = text.ok()?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // The root's is the host's, and one of another namespace is not below our mount.
    let group = Some(group).filter(|group| !group.is_empty() && !group.starts_with(".."))?;
    let paths = [
        format!("/sys/fs/cgroup/{group}/memory.pressure"),
        format!("/sys/fs/cgroup/unified/{group}/memory.pressure"),
    ];
    Some(Kept::new(root, &paths.each_ref().map(String::as_str)))
}

/// The zram devices that are swap.
#[derive(Debug, Default)]
struct Zrams {
    /// `SwapTotal` when it was looked which those are: it changes when one comes or goes.
    swap_total: Option<u64>,
    devices: Vec<Kept>,
}

impl Zrams {
    fn look(&mut self, root: &Root, swap_total: Option<u64>) -> Option<Zram> {
        if self.swap_total != swap_total {
            self.swap_total = swap_total;
            self.find(root);
        }
        let mut sum: Option<Zram> = None;
        for device in &mut self.devices {
            let mut buffer = [0; MAX_BYTES];
            let Some(length) = device.read(&mut buffer) else {
                continue;
            };
            let mut numbers = words(&buffer[..length]).map(number);
            let (stored, used) = (numbers.next().flatten(), numbers.nth(1).flatten());
            if let (Some(stored), Some(used)) = (stored, used) {
                let sum = sum.get_or_insert_default();
                sum.stored = sum.stored.saturating_add(stored);
                sum.used = sum.used.saturating_add(used);
            }
        }
        sum
    }

    /// `/dev/zram0    partition    262140    0    100`.
    fn find(&mut self, root: &Root) {
        self.devices.clear();
        let devices = &mut self.devices;
        Kept::new(root, &["/proc/swaps"]).lines(&mut |line| {
            let device = words(line).next().and_then(|word| {
                let number = number(word.strip_prefix(b"/dev/zram")?)?;
                Some(format!("/sys/block/zram{number}/mm_stat"))
            });
            devices.extend(device.map(|path| Kept::new(root, &[&path])));
            devices.len() < MAX_ZRAMS
        });
    }
}

/// The control group of all pods, as the kubelet's two cgroup drivers call it, on cgroup v2 and v1.
#[derive(Debug)]
struct Pods {
    used: Kept,
    limit: Kept,
    stat: Kept,
    /// The file pages that it could drop, and when that was read (uptime).
    inactive_file: Option<(Duration, u64)>,
}

impl Pods {
    fn new(root: &Root) -> Self {
        let table = |v2: &str, v1: &str| {
            let paths = [
                format!("/sys/fs/cgroup/kubepods.slice/{v2}"),
                format!("/sys/fs/cgroup/kubepods/{v2}"),
                format!("/sys/fs/cgroup/memory/kubepods.slice/{v1}"),
                format!("/sys/fs/cgroup/memory/kubepods/{v1}"),
                format!("/sys/fs/cgroup/unified/kubepods.slice/{v2}"),
                format!("/sys/fs/cgroup/unified/kubepods/{v2}"),
            ];
            Kept::new(root, &paths.each_ref().map(String::as_str))
        };
        Self {
            used: table("memory.current", "memory.usage_in_bytes"),
            limit: table("memory.max", "memory.limit_in_bytes"),
            stat: table("memory.stat", "memory.stat"),
            inactive_file: None,
        }
    }

    /// `None` where it has no limit, or is not there.
    fn look(&mut self, at: Duration) -> Option<Group> {
        let limit = one(&mut self.limit).filter(|limit| *limit < NO_LIMIT)?;
        let used = one(&mut self.used)?;
        let is_old = |(read_at, _): (Duration, u64)| at >= read_at + STAT_EVERY;
        if self.inactive_file.is_none_or(is_old) {
            let bytes = inactive_file(&mut self.stat).unwrap_or(0);
            self.inactive_file = Some((at, bytes));
        }
        let droppable = self.inactive_file.map_or(0, |(_, bytes)| bytes);
        Some(Group {
            used: used.saturating_sub(droppable),
            limit,
        })
    }
}

/// A table that is one number. (`max` is none.)
fn one(table: &mut Kept) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = table.read(&mut buffer)?;
    words(&buffer[..length]).next().and_then(number)
}

/// Of `memory.stat`: v1 counts the groups below in `total_…`, v2 always.
fn inactive_file(table: &mut Kept) -> Option<u64> {
    let (mut own, mut total) = (None, None);
    table.lines(&mut |line| {
        let mut words = words(line);
        match words.next() {
            Some(b"inactive_file") => own = words.next().and_then(number),
            Some(b"total_inactive_file") => total = words.next().and_then(number),
            _ => {}
        }
        total.is_none()
    })?;
    total.or(own)
}

#[cfg(test)]
mod tests;
