//! Side by side with node-problem-detector: both on one node, at the same faults of the same real kubelet.
//!
//! `PEER_KILLS` is how many kills of each kind; `make bench` sets it to twelve, has both idle for ten minutes, and writes
//! the table of docs/promises.md. Without it a few are tried, and judged is what cannot be chance.

mod cost;
mod faults;
mod flood;
mod npd;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;

use crate::scene::{AGENT, HELPER, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::stats::Sample;
use crate::support::{rows, say, tools};
use crate::trial;
use cost::Side;
use faults::{Duel, Tried, probe_memory};
use flood::Storm;

const KILLS: &str = "PEER_KILLS";
const HOUR: f64 = 3600.0;
/// Between the last fault, or the start, and the first reading.
const SETTLE: Duration = Duration::from_secs(5);
/// How often memory is read.
const EVERY: Duration = Duration::from_secs(5);

struct Plan {
    full: bool,
    quick_kills: usize,
    deaths: usize,
    hangs: usize,
    idle: Duration,
    /// Storms of so many lines a second.
    storms: &'static [u32],
}

impl Plan {
    fn read() -> Result<Self> {
        let Ok(text) = std::env::var(KILLS) else {
            return Ok(Self {
                full: false,
                quick_kills: 4,
                deaths: 2,
                hangs: 1,
                idle: Duration::from_mins(1),
                storms: &[20_000],
            });
        };
        let kills: usize = text.parse().with_context(|| format!("{KILLS}={text}"))?;
        Ok(Self {
            full: true,
            quick_kills: kills,
            deaths: kills,
            hangs: kills.div_ceil(3),
            idle: Duration::from_mins(10),
            storms: &[20_000, 1_000],
        })
    }
}

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        // No `trial`: it fills the log that those look into.
        Trial::test("peer::storm", || {
            both_read_a_storm().map_err(|error| format!("{error:#}").into())
        }),
        trial("peer::side_by_side", both_watch_one_kubelet),
    ]
}

fn both_watch_one_kubelet() -> Result<()> {
    let plan = Plan::read()?;
    let plane = ControlPlane::shared()?;
    let package = npd::Package::new(&plane)?;
    let scene = Scene::booted(&plane, "peer", |node| {
        package.onto(node.restart_sec(Duration::from_secs(1)))
    })?;
    let mut table = Table::default();
    let sizes = [tools::agent()?.metadata()?.len(), package.size()?];
    table.row("size of the programs", sizes.map(megabytes));
    scene.start()?.play(|scene| {
        let duel = Duel {
            scene,
            started: npd::start(scene)?.started,
        };
        let sides = sides(scene);
        let (before, since) = (cost::used(scene, &sides)?, Timestamp::now());
        let quick = duel.quick_kills(plan.quick_kills)?;
        let deaths = duel.deaths(plan.deaths)?;
        let mut probe = 0.0_f64;
        let hangs = duel.hangs(plan.hangs, || probe = probe.max(probe_memory()))?;
        let faults = cost::between(&before, &cost::used(scene, &sides)?);
        table.told(&quick_kill(&quick), &quick);
        table.told("killed, and it stays dead", &deaths);
        table.told("stopped by SIGSTOP", &hangs);
        let [ours, theirs] = sides.each_ref().map(|side| side.writes(scene, since));
        table.row(
            "writes to the API meanwhile, conditions and events",
            [ours?, theirs?].map(|count| count.to_string()),
        );
        table.row("its own log meanwhile", faults.map(|used| used.log()));
        let idle = idle(scene, &sides, plan.idle)?;
        table.idle(&idle, probe);
        table.tell(plan.full);
        judge(&plan, [&quick, &deaths, &hangs], &idle)
    })
}

fn quick_kill(tried: &Tried) -> String {
    let away = tried.away.percentile(50).unwrap_or_default();
    format!("killed, and started anew after a second: its healthz is away for {away:.1} s")
}

/// Twenty thousand lines of nobody's business in the kernel's log, and one that matters.
fn both_read_a_storm() -> Result<()> {
    let plan = Plan::read()?;
    let plane = ControlPlane::shared()?;
    let package = npd::Package::new(&plane)?;
    let scene = Scene::booted(&plane, "storm", |node| package.onto(node))?;
    scene.start()?.play(|scene| {
        let npd = npd::start(scene)?;
        let sides = sides(scene);
        std::thread::sleep(SETTLE);
        let mut table = Table::default();
        for per_second in plan.storms {
            let storm = flood::storm(scene, &npd, &sides, *per_second)?;
            table.storm(*per_second, &storm);
            storm
                .judge()
                .with_context(|| format!("{per_second} lines a second: {storm:#?}"))?;
        }
        table.tell(plan.full);
        Ok(())
    })
}

/// The agent with its helper, and node-problem-detector.
fn sides(scene: &Scene) -> [Side; 2] {
    [
        Side {
            units: &[AGENT, HELPER],
            user: format!("nodevigil:{}", scene.node.name()),
        },
        Side {
            units: &[npd::UNIT],
            user: npd::USER.to_owned(),
        },
    ]
}

/// A side at rest.
struct Idle {
    /// CPU-seconds an hour, from as long as it took.
    hourly: f64,
    /// The most that was seen, in MiB.
    resident: f64,
}

fn idle(scene: &Scene, sides: &[Side; 2], time: Duration) -> Result<[Idle; 2]> {
    std::thread::sleep(SETTLE);
    let (before, began) = (cost::used(scene, sides)?, Instant::now());
    let mut resident = [0.0_f64; 2];
    while began.elapsed() < time {
        std::thread::sleep(EVERY);
        for (most, side) in resident.iter_mut().zip(sides) {
            *most = most.max(side.resident(scene)?);
        }
    }
    let used = cost::between(&before, &cost::used(scene, sides)?);
    let took = began.elapsed().as_secs_f64();
    Ok([0, 1].map(|side: usize| Idle {
        hourly: used[side].cpu.as_secs_f64() / took * HOUR,
        resident: resident[side],
    }))
}

/// We miss nothing, and are cheaper. What the other misses hangs on the moment, and is told.
fn judge(plan: &Plan, tried: [&Tried; 3], idle: &[Idle; 2]) -> Result<()> {
    for (what, tried) in ["killed", "dead", "hung"].iter().zip(tried) {
        ensure!(
            tried.ours.n() == tried.tries,
            "{what}: we missed some: {tried:?}"
        );
        let (ours, theirs) = (tried.ours.percentile(50), tried.theirs.percentile(50));
        ensure!(
            theirs.is_none() || ours <= theirs,
            "{what}: we are later: {tried:?}"
        );
    }
    let [ours, theirs] = idle;
    ensure!(ours.resident < theirs.resident / 2.0, "memory");
    // Of a minute, node-problem-detector's children are known to a fifth.
    let share = if plan.full { 0.5 } else { 0.7 };
    ensure!(
        ours.hourly <= theirs.hourly * share,
        "CPU-seconds an hour: {:.2}, and node-problem-detector {:.2}",
        ours.hourly,
        theirs.hourly
    );
    Ok(())
}

/// The table of docs/promises.md.
#[derive(Default)]
struct Table(Vec<[String; 3]>);

impl Table {
    fn row(&mut self, what: &str, [ours, theirs]: [String; 2]) {
        self.0.push([what.to_owned(), ours, theirs]);
    }

    fn told(&mut self, what: &str, tried: &Tried) {
        let cell = |sample: &Sample| {
            let times = sample.percentile(50).zip(sample.max());
            let times = times.map_or(String::new(), |(p50, max)| {
                format!(": p50 {}, max {}", seconds(p50), seconds(max))
            });
            format!("told {} of {}{times}", sample.n(), tried.tries)
        };
        self.row(what, [cell(&tried.ours), cell(&tried.theirs)]);
    }

    fn storm(&mut self, per_second: u32, storm: &Storm) {
        let name = |what: &str| {
            format!(
                "{} lines in the kernel's log, {per_second} a second: {what}",
                flood::LINES
            )
        };
        let cpu = storm
            .used
            .map(|used| format!("{:.2} s", used.cpu.as_secs_f64()));
        self.row(&name("CPU"), cpu);
        self.row(&name("its own log"), storm.used.map(|used| used.log()));
        let kill = match (storm.told, &storm.loss) {
            (Some(told), _) => format!("told after {}", seconds(told.as_secs_f64())),
            (None, Some(loss)) => format!("lost, and said so: {loss}"),
            (None, None) => "lost".to_owned(),
        };
        let among = if storm.has_victim {
            "with it"
        } else {
            "without it"
        };
        let counted = format!("{} kills counted, {among}", storm.counted);
        self.row(
            &name("one real kill for memory among them"),
            [kill, counted],
        );
        let resident = storm
            .used
            .map(|used| format!("{:.1} MiB", used.resident_mib));
        self.row(&name("resident after it"), resident);
    }

    fn idle(&mut self, idle: &[Idle; 2], probe: f64) {
        let cpu = idle
            .each_ref()
            .map(|one| format!("{:.2} CPU-s/h", one.hourly));
        self.row("CPU, idle, with children", cpu);
        let [ours, theirs] = idle.each_ref().map(|one| one.resident);
        let theirs = format!("{theirs:.1} MiB, and {probe:.1} MiB in each probe");
        self.row(
            "resident, idle after these faults, at most",
            [format!("{ours:.1} MiB"), theirs],
        );
    }

    /// Prints it; that of the full form goes into the document.
    fn tell(&self, full: bool) {
        for [what, ours, theirs] in &self.0 {
            say(&format!("PEER | {what} | {ours} | {theirs}"));
            if full {
                rows::line("peer", &[what, ours, theirs]);
            }
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!(
        "{:.1} MB",
        f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6
    )
}

fn seconds(secs: f64) -> String {
    if secs < 1.0 {
        format!("{:.0} ms", secs * 1000.0)
    } else {
        format!("{secs:.1} s")
    }
}
