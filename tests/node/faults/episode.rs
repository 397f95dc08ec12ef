//! One agent through one failure, and what it cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Failure, Row};
use crate::scene::{OURS, SOON, Told};
use crate::support::control_plane::ControlPlane;
use crate::support::lone_agent::{LoneAgent, Memory, WATCHDOG};
use crate::support::proxy::Traffic;
use crate::support::proxy::fault::Fault;

const MINUTE: Duration = Duration::from_mins(1);
/// What may be asked of an API that fails: in the first minute, and a minute after that.
const FIRST_MINUTE: u64 = 12;
const A_MINUTE: f64 = 5.0;
/// Lines in the log for all of it, those on the kubelet's death included.
const LINES: usize = 6;
/// What the allocator may keep of memory that was needed for a while.
const MEMORY_KIB: u64 = 512;
/// After the start, so that what starting costs is over.
const SETTLE: Duration = Duration::from_secs(5);
/// From the beginning of a failure to the kubelet's death.
const BEFORE_DEATH: Duration = Duration::from_secs(1);
/// After it was told, before the last look at everything: what comes late has come.
const LOOK_ON: Duration = Duration::from_secs(5);
/// So much longer than promised is waited, so that a broken promise has a number too.
const PATIENCE: Duration = Duration::from_mins(4);

/// An agent whose kubelet is healthy, and whose Node says so.
pub(crate) struct Stage {
    agent: LoneAgent,
}

/// What an episode came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Requests in the first minute of the failure, and connections that brought none.
    pub(crate) first_minute: u64,
    /// The same a minute after that; none if it did not last so long.
    pub(crate) per_minute_after: Option<f64>,
    /// What they were.
    pub(crate) kinds: String,
    /// Everything that was logged.
    pub(crate) lines: Vec<String>,
    /// How long after the end of the failure a watch at the API server saw it; zero if it was told before.
    pub(crate) told_after: Option<Duration>,
    /// How long after the kubelet's death.
    pub(crate) told_after_death: Option<Duration>,
    /// The longest time without a sign of life.
    pub(crate) silence: Duration,
    pub(crate) before: Memory,
    pub(crate) after: Memory,
}

/// What has been asked at a moment.
struct Count {
    opened: u64,
    traffic: Traffic,
}

impl Stage {
    pub(crate) fn set(plane: &Arc<ControlPlane>, row: &Row, number: u8) -> Result<Self> {
        let name = format!("fault-{}", row.name.replace('_', "-"));
        let from = Instant::now();
        let agent = LoneAgent::start(plane, &name, number)?;
        let well = agent
            .watch
            .wait_since(from, SOON, |event| says(event, "True"));
        well.with_context(|| agent.tail())?;
        Ok(Self { agent })
    }

    pub(crate) fn play(mut self, row: &Row, lasting: Duration) -> Result<Outcome> {
        let outcome = self.episode(row, lasting);
        outcome.with_context(|| format!("{}: {}", row.name, self.agent.tail()))
    }

    fn episode(&mut self, row: &Row, lasting: Duration) -> Result<Outcome> {
        std::thread::sleep(SETTLE);
        let (lines, before) = (self.agent.lines()?.len(), self.agent.memory()?);
        let at_first = self.count()?;
        let began = Instant::now();
        self.begin(row.fault)?;
        sleep_until(began + BEFORE_DEATH);
        let death = self.agent.kill_kubelet()?;
        sleep_until(began + lasting.min(MINUTE));
        let first_minute = self.count()?;
        sleep_until(began + lasting);
        let at_last = self.count()?;
        self.end(row.fault)?;
        let ended = Instant::now();
        let told = self.wait_told(death, ended, row.told_within + PATIENCE);
        std::thread::sleep(LOOK_ON);
        self.agent.ensure_alive()?;
        let last = self.agent.watch.all();
        let last = last.iter().rev().find_map(Told::read);
        if told.is_some() {
            let stays = last.as_ref().is_some_and(|last| last.status == "False");
            ensure!(stays, "told, and no longer on the Node: {last:?}");
        }
        let after = lasting.saturating_sub(MINUTE);
        Ok(Outcome {
            first_minute: first_minute.since(&at_first),
            per_minute_after: (!after.is_zero()).then(|| rate(at_last.since(&first_minute), after)),
            kinds: at_last.kinds(&at_first),
            lines: self.agent.lines()?.split_off(lines),
            told_after: told.map(|at| at.saturating_duration_since(ended)),
            told_after_death: told.map(|at| at.saturating_duration_since(death)),
            silence: self.agent.longest_silence(began),
            before,
            after: self.agent.memory()?,
        })
    }

    fn begin(&self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Of(fault) => self.agent.proxy.set(Some(fault)),
            Failure::Wire => return self.agent.wire.cut(),
        };
        Ok(())
    }

    fn end(&self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Of(_) => self.agent.proxy.set(None),
            Failure::Wire => return self.agent.wire.mend(),
        };
        Ok(())
    }

    fn wait_told(&self, death: Instant, ended: Instant, at_most: Duration) -> Option<Instant> {
        let left = (ended + at_most).saturating_duration_since(Instant::now());
        let told = self
            .agent
            .watch
            .wait_since(death, left, |event| says(event, "False"));
        told.ok().map(|(at, _)| at)
    }

    fn count(&self) -> Result<Count> {
        Ok(Count {
            opened: self.agent.wire.opened()?,
            traffic: self.agent.proxy.traffic(),
        })
    }
}

impl Count {
    /// Requests since `then`, and connections since then that brought none: also those that were refused, or whose
    /// first packet was lost, which only the agent's own kernel knows of.
    fn since(&self, then: &Self) -> u64 {
        let fresh = &self.traffic.requests[then.traffic.requests.len()..];
        let used = then.traffic.connections.len()..self.traffic.connections.len();
        let used = used.filter(|number| fresh.iter().any(|one| one.connection == *number));
        let bare = (self.opened - then.opened).saturating_sub(used.count() as u64);
        fresh.len() as u64 + bare
    }

    fn kinds(&self, then: &Self) -> String {
        let fresh = &self.traffic.requests[then.traffic.requests.len()..];
        let mut kinds: Vec<_> = fresh.iter().map(|one| one.kind).collect();
        kinds.sort_unstable();
        let groups = kinds.chunk_by(|a, b| a == b);
        let mut words: Vec<_> = groups
            .map(|group| format!("{} {}", group.len(), group[0]))
            .collect();
        words.push(format!("{} connections", self.opened - then.opened));
        words.join(", ")
    }
}

impl Outcome {
    /// What it did not keep, in words.
    pub(crate) fn broken(&self, row: &Row) -> Vec<String> {
        let mut broken = Vec::new();
        let mut judge = |holds: bool, what: String| {
            if !holds {
                broken.push(what);
            }
        };
        let first = self.first_minute;
        judge(
            first <= FIRST_MINUTE,
            format!("{first} requests in the first minute, {FIRST_MINUTE} are promised"),
        );
        let rate = self.per_minute_after.unwrap_or_default();
        judge(
            rate <= A_MINUTE,
            format!("{rate:.1} requests a minute after that, {A_MINUTE} are promised"),
        );
        let lines = self.lines.len();
        judge(
            lines <= LINES,
            format!("{lines} lines, {LINES} are promised"),
        );
        // Where new connections work all the time, there is no end to wait for.
        let (since, told) = match row.fault {
            Failure::Of(Fault::HalfOpen) => ("the kubelet's death", self.told_after_death),
            _ => ("the end", self.told_after),
        };
        judge(
            told.is_some_and(|told| told <= row.told_within),
            format!(
                "told {told:?} after {since}, {:?} are promised",
                row.told_within
            ),
        );
        judge(
            self.silence <= WATCHDOG,
            format!("no sign of life for {:?}", self.silence),
        );
        let grown = self.after.own.saturating_sub(self.before.own);
        judge(
            grown <= MEMORY_KIB,
            format!("its own memory grew by {grown} KiB, flat is at most {MEMORY_KIB}"),
        );
        broken
    }
}

fn says(event: &serde_json::Value, status: &str) -> bool {
    crate::support::api::condition_status(event, OURS) == Some(status)
}

#[expect(clippy::cast_precision_loss, reason = "a handful of requests")]
fn rate(requests: u64, over: Duration) -> f64 {
    requests as f64 * 60.0 / over.as_secs_f64()
}

fn sleep_until(then: Instant) {
    std::thread::sleep(then.saturating_duration_since(Instant::now()));
}
