//! What the agent and its helper cost while nothing happens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use procfs::process::{FDInfo, FDTarget, Process};
use serde_json::Value;

use crate::report::{Row, Statistic};
use crate::stage::{NODE, Progress, Stage};
use crate::support::audit::Request;
use crate::support::process::cpu;
use crate::support::say;
use crate::support::stats::Sample;

/// How often memory and the like are read.
const EVERY: Duration = Duration::from_secs(5);
/// Between the last fault and the first reading.
const SETTLE: Duration = Duration::from_secs(5);
/// What there was in the first minute is what the rest is measured by.
const FIRST: Duration = Duration::from_mins(1);
/// How much more memory of its own a process may have at the end.
const GROWTH_KIB: f64 = 64.0;
/// The agent's threads: the loop, the journal's writer, the blocking worker.
const THREADS: f64 = 3.0;
const MIB_IN_KIB: f64 = 1024.0;
const HOUR: f64 = 3600.0;

/// One of the two processes.
struct Observed {
    name: &'static str,
    unit: &'static str,
    pid: i32,
    readings: Vec<Reading>,
    cpu: Duration,
    threads: HashMap<i32, Thread>,
}

/// What a process holds at a moment.
#[derive(Clone, Copy)]
struct Reading {
    resident_mib: f64,
    locked_mib: f64,
    /// Pages of its own that are in memory. What is allocated and never freed comes to need new ones.
    anonymous_kib: f64,
    descriptors: f64,
    /// Of them: files of control groups, which are held open while the host's memory moves, whoever moves it.
    group_files: f64,
    threads: f64,
}

/// What the scheduler knows of a thread.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// Nanoseconds on a CPU, by /proc/PID/task/TID/schedstat.
    nanos: u64,
    /// How often it went to sleep, and so was woken: its voluntary context switches.
    wakes: u64,
}

/// What a process used in a time.
struct Used {
    /// By the process's own clock: all threads, also those that have ended.
    cpu: Duration,
    /// By schedstat: the threads that it has now.
    threads: Duration,
    wakes: u64,
}

impl Observed {
    fn new(stage: &Stage, name: &'static str, unit: &'static str) -> Result<Self> {
        let pid = stage.node.unit_pid(unit)?;
        Ok(Self {
            name,
            unit,
            pid,
            readings: Vec::new(),
            cpu: cpu(pid)?,
            threads: threads(pid)?,
        })
    }

    fn read(&mut self) -> Result<()> {
        let process = Process::new(self.pid)?;
        let status = process.status()?;
        let number = |value: u64| -> Result<f64> { Ok(f64::from(u32::try_from(value)?)) };
        let kib = |value: Option<u64>| number(value.context("no such line in /proc/PID/status")?);
        let is_groups = |open: &FDInfo| matches!(&open.target, FDTarget::Path(path) if path.starts_with("/sys/fs/cgroup"));
        let group_files = process.fd()?.flatten().filter(is_groups).count();
        self.readings.push(Reading {
            resident_mib: kib(status.vmrss)? / MIB_IN_KIB,
            locked_mib: kib(status.vmlck)? / MIB_IN_KIB,
            anonymous_kib: kib(status.rssanon)?,
            descriptors: f64::from(u32::try_from(process.fd_count()?)?),
            group_files: f64::from(u32::try_from(group_files)?),
            threads: number(status.threads)?,
        });
        Ok(())
    }

    fn used(&self) -> Result<Used> {
        let now = threads(self.pid)?;
        let since = |of: fn(&Thread) -> u64| -> u64 {
            let before = |id: &i32| self.threads.get(id).copied().unwrap_or_default();
            let each = now.iter();
            each.map(|(id, thread)| of(thread).saturating_sub(of(&before(id))))
                .sum()
        };
        Ok(Used {
            cpu: cpu(self.pid)?.saturating_sub(self.cpu),
            threads: Duration::from_nanos(since(|thread| thread.nanos)),
            wakes: since(|thread| thread.wakes),
        })
    }

    fn sample(&self, of: fn(&Reading) -> f64) -> Sample {
        self.readings.iter().map(of).collect()
    }

    /// How much the most of the last minute is above the most of the first; nothing if that is one minute.
    fn growth(&self, of: fn(&Reading) -> f64) -> Sample {
        let minute = usize::try_from(FIRST.as_secs() / EVERY.as_secs()).unwrap_or(usize::MAX);
        let all: Vec<f64> = self.readings.iter().map(of).collect();
        let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let (first, rest) = all.split_at(minute.min(all.len()));
        let last = &rest[rest.len().saturating_sub(minute)..];
        let growth = most(first)
            .zip(most(last))
            .map(|(first, last)| last - first);
        growth.into_iter().collect()
    }

    fn rows(&self, max_mib: f64) -> Vec<Row> {
        let name = |what: &str| format!("{} {what}", self.name);
        let resident = self.sample(|reading| reading.resident_mib);
        let descriptors = self.sample(|reading| reading.descriptors);
        let heap = self.growth(|reading| reading.anonymous_kib);
        let more_descriptors = self.growth(|reading| reading.descriptors - reading.group_files);
        let promised = |what: &str, unit, sample: &Sample, statistic, limit| {
            Row::promised(&name(what), unit, sample, statistic, limit)
        };
        let (max, only) = (Statistic::Max, Statistic::Only);
        let mut rows = vec![
            promised(
                "idle after all these faults: VmRSS",
                "MiB",
                &resident,
                max,
                max_mib,
            ),
            Row::told(
                &name("idle: VmLck"),
                "MiB",
                &self.sample(|reading| reading.locked_mib),
            ),
            promised(
                "idle: own memory, last minute over first",
                "KiB",
                &heap,
                only,
                GROWTH_KIB,
            ),
            Row::told(&name("idle: descriptors"), "", &descriptors),
            Row::told(
                &name("idle: descriptors of control groups"),
                "",
                &self.sample(|reading| reading.group_files),
            ),
            promised(
                "idle: descriptors but for control groups', last minute over first",
                "",
                &more_descriptors,
                only,
                0.0,
            ),
        ];
        let threads = self.sample(|reading| reading.threads);
        rows.push(match self.unit {
            "nodevigil.service" => promised("idle: threads", "", &threads, max, THREADS),
            _ => Row::told(&name("idle: threads"), "", &threads),
        });
        rows
    }
}

/// Lets the agent be for a while. It comes after the faults: what a process holds after work is the honest number.
pub(crate) fn idle(stage: &Stage, time: Duration) -> Result<Vec<Row>> {
    std::thread::sleep(SETTLE);
    let mut both = [
        Observed::new(stage, "agent", "nodevigil.service")?,
        Observed::new(stage, "helper", "nodevigil-helper.service")?,
    ];
    let (began, began_wall) = (Instant::now(), Timestamp::now());
    let readings = time.as_secs() / EVERY.as_secs();
    let progress = Progress::new("idle: reading", usize::try_from(readings)?);
    for done in 1..=readings {
        let at = began + EVERY * u32::try_from(done)?;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        for process in &mut both {
            process.read()?;
        }
        let [agent, helper] = &both;
        let last = |process: &Observed| process.readings.last().copied();
        if let (Some(agent), Some(helper)) = (last(agent), last(helper)) {
            let detail = format!(
                "agent {:.1} MiB, {} descriptors; helper {:.1} MiB, {}",
                agent.resident_mib, agent.descriptors, helper.resident_mib, helper.descriptors
            );
            progress.step(usize::try_from(done)?, &detail);
        }
    }
    let (mut rows, took) = (Vec::new(), began.elapsed());
    let used = both
        .iter()
        .map(Observed::used)
        .collect::<Result<Vec<_>>>()?;
    // How many pages of the binary are mapped along with those that are wanted is the page cache's whim: the same binary had 5.75
    // to 5.94 MiB within a day.
    let helper_mib = if is_short(took) { 6.25 } else { 6.0 };
    for (process, limit) in both.iter().zip([8.0, helper_mib]) {
        let pid = stage.node.unit_pid(process.unit)?;
        ensure!(
            pid == process.pid,
            "the {} was started anew while idle",
            process.name
        );
        rows.extend(process.rows(limit));
    }
    rows.extend(cpu_rows(&used, took));
    rows.push(writes(stage, began_wall)?);
    Ok(rows)
}

/// Whether it was the short form's two minutes.
fn is_short(took: Duration) -> bool {
    took < Duration::from_mins(5)
}

/// CPU is a rate, so that of a minute or ten is told for an hour.
fn cpu_rows(used: &[Used], took: Duration) -> Vec<Row> {
    let hourly = |time: Duration| time.as_secs_f64() / took.as_secs_f64() * HOUR;
    let one = |value: f64| Sample::from_iter([value]);
    let unit = "CPU-s/h";
    let over = took.as_secs();
    let all = used.iter().map(|used| used.cpu).sum();
    let threads = used.iter().map(|used| used.threads).sum();
    let mut rows = vec![
        Row::promised(
            &format!("agent and helper idle: CPU, extrapolated from {over} s"),
            unit,
            &one(hourly(all)),
            Statistic::Only,
            // Two minutes of a virtual machine say less than ten: the same binary took 1.5 to 2.3 within two hours, and where much
            // has just been written to the disk, one canary there takes the helper 90 ms.
            if is_short(took) { 3.0 } else { 1.2 },
        ),
        Row::told(
            "idle CPU of both by schedstat, without threads that have ended",
            unit,
            &one(hourly(threads)),
        ),
    ];
    for (name, used) in ["agent", "helper"].iter().zip(used) {
        let name = |what: &str| format!("idle {what} of the {name}");
        rows.push(Row::told(&name("CPU"), unit, &one(hourly(used.cpu))));
        let wakes = f64::from(u32::try_from(used.wakes).unwrap_or(u32::MAX));
        let wakes = wakes / took.as_secs_f64();
        rows.push(Row::told(&name("wake-ups"), "per s", &one(wakes)));
    }
    rows
}

/// The agent's writes by the audit log, as the rate between writes: from the last one before the idle time, which the
/// next heartbeat counts from, to the last one in it. A count over ten minutes would say 12 or 18 an hour by chance.
/// With no write in the idle time there is nothing to judge.
fn writes(stage: &Stage, began: Timestamp) -> Result<Row> {
    let user = format!("nodevigil:{NODE}");
    let requests = stage.plane.audit()?;
    let writes = requests.iter().filter(|request| {
        request.user == user && !matches!(request.verb.as_str(), "get" | "list" | "watch")
    });
    let (before, within): (Vec<_>, Vec<_>) = writes.partition(|request| request.at < began);
    tell_writes(before.last().copied(), &within);
    // Events of the faults before are written, and counted on, for up to twelve minutes after the last of them.
    let is_of_the_idle_time = |request: &&Request| happened(request).is_none_or(|at| at >= began);
    let before: Vec<_> = before
        .into_iter()
        .filter(|one| happened(one).is_none())
        .collect();
    let within: Vec<_> = within.into_iter().filter(is_of_the_idle_time).collect();
    let at = |writes: &[&Request]| writes.last().map(|request| request.at);
    let span = |from: &Timestamp, to: &Timestamp| to.duration_since(*from).as_secs_f64();
    let rate = at(&before).zip(at(&within)).map(|(from, to)| {
        f64::from(u32::try_from(within.len()).unwrap_or(u32::MAX)) * HOUR / span(&from, &to)
    });
    let name = format!(
        "API writes of the agent, healthy, the rate over {} intervals",
        within.len()
    );
    Ok(Row::promised(
        &name,
        "per hour",
        &rate.into_iter().collect(),
        Statistic::Only,
        14.0,
    ))
}

/// When what an Event tells of happened last; nothing for a write that is no Event.
fn happened(write: &Request) -> Option<Timestamp> {
    let last = write.body.pointer("/series/lastObservedTime");
    let at = last.or_else(|| write.body.get("eventTime"))?;
    at.as_str()?.parse().ok()
}

/// Says of each write what it changed: a heartbeat changes nothing, and whatever else is written has a cause to be looked for.
fn tell_writes(before: Option<&Request>, writes: &[&Request]) {
    let mut known = before.map(conditions).unwrap_or_default();
    for write in writes {
        let told = conditions(write);
        let news = told.iter().filter(|one| !known.contains(one));
        let news: Vec<&str> = news.map(String::as_str).collect();
        let Request { at, verb, uri, .. } = write;
        say(&format!("written at {at}: {verb} {uri}: {news:?}"));
        known = told;
    }
}

/// The conditions that a write tells, or the reason of an Event.
fn conditions(write: &Request) -> Vec<String> {
    let all = write.body.pointer("/status/conditions");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = all.map(|one| {
        ["type", "status", "reason"]
            .map(|name| word(&one[name]))
            .join(" ")
    });
    let event = write.body["reason"].as_str().map(str::to_owned);
    told.chain(event).collect()
}

/// Each thread that a process has now.
fn threads(pid: i32) -> Result<HashMap<i32, Thread>> {
    let mut all = HashMap::new();
    for task in Process::new(pid)?.tasks()?.flatten() {
        let thread = Thread {
            nanos: task.schedstat()?.sum_exec_runtime,
            wakes: task.status()?.voluntary_ctxt_switches.unwrap_or_default(),
        };
        all.insert(task.tid, thread);
    }
    Ok(all)
}
