//! What the agent and its helper cost while nothing happens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use procfs::process::Process;

use crate::report::{Row, Statistic};
use crate::stage::{NODE, Progress, Stage};
use crate::support::process::cpu;
use crate::support::stats::Sample;

/// How often memory is read.
const EVERY: Duration = Duration::from_secs(5);
/// Between the last fault and the first reading.
const SETTLE: Duration = Duration::from_secs(5);
const MIB_IN_KIB: f64 = 1024.0;
const HOUR: f64 = 3600.0;

/// One of the two processes.
struct Observed {
    name: &'static str,
    unit: &'static str,
    pid: i32,
    resident: Vec<f64>,
    locked: Vec<f64>,
    cpu: Duration,
    threads: HashMap<i32, u64>,
}

impl Observed {
    fn new(stage: &Stage, name: &'static str, unit: &'static str) -> Result<Self> {
        let pid = stage.node.unit_pid(unit)?;
        Ok(Self {
            name,
            unit,
            pid,
            resident: Vec::new(),
            locked: Vec::new(),
            cpu: cpu(pid)?,
            threads: threads(pid)?,
        })
    }

    fn read_memory(&mut self) -> Result<()> {
        let status = Process::new(self.pid)?.status()?;
        let mib = |kib: Option<u64>| -> Result<f64> {
            Ok(f64::from(u32::try_from(kib.context("no such line")?)?) / MIB_IN_KIB)
        };
        self.resident.push(mib(status.vmrss)?);
        self.locked.push(mib(status.vmlck)?);
        Ok(())
    }

    /// CPU since the beginning: the process's, and that of the threads that it has now.
    fn used(&self) -> Result<(Duration, Duration)> {
        let now = threads(self.pid)?.into_iter();
        let before = |id: i32| self.threads.get(&id).copied().unwrap_or_default();
        let nanos = now
            .map(|(id, nanos)| nanos.saturating_sub(before(id)))
            .sum();
        let all = cpu(self.pid)?.saturating_sub(self.cpu);
        Ok((all, Duration::from_nanos(nanos)))
    }

    fn memory_rows(&self, limit: f64) -> [Row; 2] {
        let sample = |values: &[f64]| values.iter().copied().collect();
        let resident = format!("{} idle after all these faults: VmRSS", self.name);
        let locked = format!("{} idle: VmLck", self.name);
        [
            Row::promised(
                &resident,
                "MiB",
                &sample(&self.resident),
                Statistic::Max,
                limit,
            ),
            Row::told(&locked, "MiB", &sample(&self.locked)),
        ]
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
            process.read_memory()?;
        }
        let [agent, helper] = &both;
        let memory = |process: &Observed| process.resident.last().copied().unwrap_or_default();
        let (agent, helper) = (memory(agent), memory(helper));
        let detail = format!("agent {agent:.1} MiB, helper {helper:.1} MiB");
        progress.step(usize::try_from(done)?, &detail);
    }
    let (mut rows, took) = (Vec::new(), began.elapsed());
    let used = both
        .iter()
        .map(Observed::used)
        .collect::<Result<Vec<_>>>()?;
    for (process, limit) in both.iter().zip([8.0, 6.0]) {
        let pid = stage.node.unit_pid(process.unit)?;
        ensure!(
            pid == process.pid,
            "the {} was started anew while idle",
            process.name
        );
        rows.extend(process.memory_rows(limit));
    }
    rows.extend(cpu_rows(&used, took));
    rows.push(writes(stage, began_wall)?);
    Ok(rows)
}

/// CPU is a rate, so that of a minute or ten is told for an hour.
fn cpu_rows(used: &[(Duration, Duration)], took: Duration) -> Vec<Row> {
    let hourly = |time: Duration| time.as_secs_f64() / took.as_secs_f64() * HOUR;
    let one = |value: f64| Sample::from_iter([value]);
    let unit = "CPU-s/h";
    let over = took.as_secs();
    let all = used.iter().map(|(cpu, _)| *cpu).sum();
    let threads = used.iter().map(|(_, threads)| *threads).sum();
    let mut rows = vec![
        Row::promised(
            &format!("agent and helper idle: CPU, extrapolated from {over} s"),
            unit,
            &one(hourly(all)),
            Statistic::Only,
            // A minute of a machine that does other things too says less than ten.
            if took < Duration::from_mins(5) {
                1.5
            } else {
                1.2
            },
        ),
        Row::told(
            "idle CPU of both by schedstat, without threads that have ended",
            unit,
            &one(hourly(threads)),
        ),
    ];
    for (name, (cpu, _)) in ["idle CPU of the agent", "idle CPU of the helper"]
        .iter()
        .zip(used)
    {
        rows.push(Row::told(name, unit, &one(hourly(*cpu))));
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
    let (before, within): (Vec<_>, Vec<_>) =
        writes.map(|request| request.at).partition(|at| *at < began);
    let span = |from: &Timestamp, to: &Timestamp| to.duration_since(*from).as_secs_f64();
    let rate = before.last().zip(within.last()).map(|(from, to)| {
        f64::from(u32::try_from(within.len()).unwrap_or(u32::MAX)) * HOUR / span(from, to)
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

/// The nanoseconds on a CPU of each thread that a process has now, by /proc/PID/task/TID/schedstat.
fn threads(pid: i32) -> Result<HashMap<i32, u64>> {
    let mut all = HashMap::new();
    for task in Process::new(pid)?.tasks()?.flatten() {
        all.insert(task.tid, task.schedstat()?.sum_exec_runtime);
    }
    Ok(all)
}
