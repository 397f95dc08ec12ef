//! A node that is well stays well, whatever happens to it (`make well`): disturbances drawn at random from a table, for an hour or
//! for eight, and not one `False` while the kubelet's Lease is fresh and the kubelet lives. Beside it nodes join, are left alone, and
//! show none in their first five minutes: Karpenter counts a repair as proven only then.
//!
//! `WELL_MINUTES` is how long (10 in `make test`), `WELL_SEED` what the draw begins with. Each disturbance comes once before one
//! comes again. At the end the kubelet is killed, and stopped for good: that is told, and the judge has something to judge.
//! It runs alone: what starves its node shows in the pressure of the whole machine, by which other tests would call theirs starved.

mod joins;
mod judge;
mod stage;
mod table;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use fastrand::Rng;
use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::Signal;

use self::judge::{Bad, Witness};
use self::stage::Stage;
use self::table::{Lane, ROWS, Row};
use crate::faults::is_selected;
use crate::scene::{KUBELET, SOON};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::{rows, say, wait_until};

const TEST: &str = "well::node";
const MINUTES: &str = "WELL_MINUTES";
const SEED: &str = "WELL_SEED";
/// Between two disturbances, in milliseconds.
const BETWEEN: std::ops::Range<u64> = 1000..5000;
/// How soon the end of the kubelet is told at the end of it all.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// For the agent to find back to an API that refused it last: what docs/promises.md allows after 401, and half a minute.
const CALM: Duration = Duration::from_secs(150);

/// The tests of this topic; the long one, if `arguments` select it, has begun when this returns.
pub(crate) fn tests(arguments: &Arguments) -> Vec<Trial> {
    let (tell, told) = channel::<Result<(), String>>();
    if is_selected(arguments, TEST) {
        std::thread::spawn(move || run(&tell));
    }
    let mut trials = judge::tests();
    trials.push(Trial::test(TEST, move || {
        Ok(told.recv().map_err(|_| "its run ended early")??)
    }));
    trials
}

fn run(tell: &Sender<Result<(), String>>) {
    let _ = tell.send(stay_well().map_err(|error| format!("{error:#}")));
}

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

fn stay_well() -> Result<()> {
    let (minutes, seed) = (number(MINUTES, 10)?, number(SEED, 17)?);
    say(&format!("WELL | {minutes} minutes, {SEED}={seed}"));
    let plane = ControlPlane::start(Options::default())?;
    let (scene, proxy) = stage::boot(&plane)?;
    let group = format!("{}/{}", scene.node.group(), stage::GROUP);
    let witness = Witness::start(&plane, stage::NAME, group)?;
    scene.play(|scene| {
        let stage = Stage::set(scene, proxy)?;
        let run = Run::new(Duration::from_mins(1) * u32::try_from(minutes)?);
        let joined = run.play(&stage, seed)?;
        calm(&stage)?;
        let over = Instant::now();
        let bad = witness.judge(&scene.watch.all());
        let report = run.report(&bad);
        let excused = bad.iter().filter(|bad| bad.is_excused()).count();
        let stale = witness.stale(run.began, over);
        let played = run.played();
        let kinds = ROWS.iter().filter(|row| played.iter().any(|one| one.name == row.name)).count();
        let did = format!(
            "{} disturbances of {kinds} kinds, {joined} nodes that joined; the Lease was old for {} s in all",
            played.len(),
            stale.as_secs()
        );
        let found = format!("{} with a fresh Lease, {excused} with an old one", bad.len() - excused);
        say(&format!("WELL | {minutes} minutes | {did} | {found}\n{report}"));
        rows::line("well", &[&minutes.to_string(), &did, &found]); // a bad run's too: it is what was measured
        ensure!(excused == bad.len(), "{did}: {found}\n{report}");
        ensure!(stale < run.lasting / 4, "the Lease was old for {stale:?}: nothing was shown");
        ensure!(stage.containers.load(Ordering::Relaxed) >= 4, "no pod ever ran");
        awake(&stage, &witness)?;
        Ok(())
    })
}

/// Waits until nothing is left of the last disturbance.
fn calm(stage: &Stage<'_>) -> Result<()> {
    let scene = stage.scene;
    let is_calm = || {
        let status = scene.node.status_json().unwrap_or_default();
        let quiet = status["quiet"].as_array().is_some_and(Vec::is_empty);
        let knows =
            status["api"]["state"] == "connected" && status["kubelet"]["state"] == "running";
        let said = scene.now()?;
        Ok((quiet && knows && said.status == "True").then_some(()))
    };
    wait_until("all to be well and quiet", CALM, is_calm)?;
    scene.ensure_still(&scene.now()?)
}

/// That nothing was told was not for want of looking: the kubelet's end is, and so is one that hangs, which the judge takes for what it
/// looks for: the Lease is fresh, and the process there.
fn awake(stage: &Stage<'_>, witness: &Witness) -> Result<()> {
    let scene = stage.scene;
    scene.keep_dead()?;
    let death = scene.kill_kubelet()?;
    let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
    let late = told.at.saturating_duration_since(death.gone);
    say(&format!(
        "WELL | at the end a crash was told after {late:?}"
    ));
    ensure!(late <= TOLD_WITHIN, "a crash was told after {late:?}");
    // The witness looks from time to time only: one that is back at once was never gone for it.
    wait_until("the witness to see the kubelet gone", SOON, || {
        Ok((!witness.lives.now()).then_some(()))
    })?;
    let from = Instant::now();
    stage.sh("systemctl start kubelet")?;
    wait_until("the kubelet to be well again", CALM, || {
        let told = scene.told_since(from);
        Ok(told.iter().any(|told| told.status == "True").then_some(()))
    })?;
    std::thread::sleep(2 * SOON / 3); // its first Lease of this life, and what just ended is long over
    let stopped = scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
    let hung = scene.wait_for(stopped, "False", "KubeletHung");
    scene.node.signal_unit(KUBELET, Signal::SIGCONT)?;
    let late = hung?.at - stopped;
    let bad = witness.judge(&scene.watch.since(death.killed));
    let text: Vec<_> = bad.iter().map(Bad::to_string).collect();
    let finds = |reason: &str, excused| {
        let mut all = bad.iter();
        all.any(|bad| bad.reason == reason && bad.is_excused() == excused)
    };
    ensure!(finds("KubeletCrashed", true), "{text:#?}");
    ensure!(
        finds("KubeletHung", false),
        "the judge sees nothing: {text:#?}"
    );
    say(&format!(
        "WELL | at the end a hang was told after {late:?}, and the judge found it"
    ));
    Ok(())
}

/// What was done to the node, and when.
#[derive(Clone, Debug)]
struct Played {
    name: &'static str,
    from: Instant,
    until: Instant,
}

/// One run of it.
struct Run {
    began: Instant,
    lasting: Duration,
    /// Something went wrong with a part of it.
    broken: AtomicBool,
    played: Mutex<Vec<Played>>,
}

impl Run {
    fn new(lasting: Duration) -> Self {
        Self {
            began: Instant::now(),
            lasting,
            broken: AtomicBool::new(false),
            played: Mutex::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.lasting
    }

    /// Plays both lanes, and has nodes join beside them; how many did.
    fn play(&self, stage: &Stage<'_>, seed: u64) -> Result<usize> {
        std::thread::scope(|scope| {
            let lanes = [Lane::Load, Lane::Fault].map(|lane| {
                let mut rng = Rng::with_seed(seed ^ u64::from(lane == Lane::Load) << 32);
                scope.spawn(move || self.kept(self.lane(stage, lane, &mut rng)))
            });
            let joined = scope.spawn(|| self.kept(joins::join(&stage.scene.plane, self)));
            for lane in lanes {
                lane.join().map_err(|_| anyhow!("a lane panicked"))??;
            }
            joined.join().map_err(|_| anyhow!("the joins panicked"))?
        })
    }

    /// The others end too if this failed.
    fn kept<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }

    /// One disturbance after the other, each once before any comes again, until the time is over.
    fn lane(&self, stage: &Stage<'_>, lane: Lane, rng: &mut Rng) -> Result<()> {
        let mut deck: Vec<&Row> = ROWS.iter().filter(|row| row.lane == lane).collect();
        for round in 0.. {
            rng.shuffle(&mut deck);
            for row in &deck {
                if self.broken.load(Ordering::Relaxed) || (round > 0 && self.is_over()) {
                    return Ok(());
                }
                self.disturb(stage, row, rng)
                    .with_context(|| row.name.to_owned())?;
                std::thread::sleep(Duration::from_millis(rng.u64(BETWEEN)));
            }
        }
        Ok(())
    }

    fn disturb(&self, stage: &Stage<'_>, row: &Row, rng: &mut Rng) -> Result<()> {
        let from = Instant::now();
        let (least, most) = row.secs;
        let lasting = Duration::from_secs(rng.u64(least..=most));
        row.begin.run(stage, rng)?;
        std::thread::sleep(lasting);
        row.end.run(stage, rng)?;
        let (name, until) = (row.name, Instant::now());
        say(&format!(
            "WELL | {:>5.0} s | {name} | {:.1} s",
            (from - self.began).as_secs_f64(),
            (until - from).as_secs_f64()
        ));
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.push(Played { name, from, until });
        Ok(())
    }

    fn played(&self) -> Vec<Played> {
        self.played
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Each `False`, and what was done to the node then and in the minute before.
    fn report(&self, bad: &[Bad]) -> String {
        let mut text = String::new();
        for bad in bad {
            let at = bad.at.saturating_duration_since(self.began);
            let excused = if bad.is_excused() {
                "excused"
            } else {
                "NOT EXCUSED"
            };
            let _ = writeln!(text, "{:.0} s, {excused}: {bad}", at.as_secs_f64());
            for one in self.played() {
                if one.from <= bad.at && bad.at <= one.until + Duration::from_mins(1) {
                    let since = (bad.at - one.from).as_secs_f64();
                    let _ = writeln!(
                        text,
                        "    {since:.1} s after the beginning of: {}",
                        one.name
                    );
                }
            }
        }
        text
    }
}
