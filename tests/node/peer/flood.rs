//! A storm in the kernel's log, with one real kill for memory in the middle of it.
//!
//! The lines are a user-space program's (facility 1): half of them look as the kernel's own do when it kills a process for
//! memory, and none is. Whoever counts them is wrong; whoever loses the real one among them, and does not say so, too.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::cost::{self, Side, Used};
use super::npd::{self, Running};
use crate::scene::Scene;
use crate::support::{kmsg, say, wait_until};

pub(crate) const LINES: u32 = 20_000;
/// Who is killed in the lines that nobody should believe.
const NOBODY: &str = "lookalike";
/// Who is killed: it asks for far more than its limit.
const VICTIM: &str = "tail";
/// It waits in its unit to be let loose, because the start of a unit is something that the agent's helper looks at too.
const HOG: &str = "mkfifo /run/hog
    systemd-run --quiet --unit=hog --property=MemoryAccounting=yes --property=MemoryLimit=16M \
      sh -c 'read go </run/hog; exec tail /dev/zero'";
const LET_LOOSE: &str = "echo go >/run/hog";
const ITS_END: &str = "systemctl show --value --property=ExecMainExitTimestampMonotonic hog";
const AWAY: &str = "systemctl reset-failed hog; rm /run/hog";
/// How long the helper may look at that.
const SETTLE: Duration = Duration::from_secs(3);
/// The agent's Events: a kill for memory, and records that it did not get to see.
const KILL: &str = "ProcessOOMKilled";
const LOSS: &str = "KernelLogOverrun";
/// How long a kill may take to be told, before it counts as lost.
const TOLD: Duration = Duration::from_secs(10);
/// How long somebody may take to read on after the storm, and how little he then uses in a second.
const READ_ON: Duration = Duration::from_mins(1);
const CALM: Duration = Duration::from_millis(30);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Storm {
    /// From the victim's end, as its parent saw it, to the Event at the API server, if there is one.
    pub(crate) told: Option<Duration>,
    /// The agent's own words on what it lost, if it has any.
    pub(crate) loss: Option<String>,
    /// Kills for memory that node-problem-detector counted, of one, and whether that one is in its log.
    pub(crate) counted: u64,
    pub(crate) has_victim: bool,
    /// What the two used from the storm's beginning until both had read all of it.
    pub(crate) used: [Used; 2],
}

/// What the agent may use for it.
const CPU: Duration = Duration::from_millis(200);
const LOG_BYTES: usize = 10_000;

impl Storm {
    /// Whether the agent kept its word.
    pub(crate) fn judge(&self) -> Result<()> {
        let [ours, _] = &self.used;
        ensure!(ours.cpu <= CPU, "CPU: {:?}", ours.cpu);
        ensure!(ours.log_bytes <= LOG_BYTES, "own log: {}", ours.log());
        ensure!(
            self.told.is_some() || self.loss.is_some(),
            "the kill was lost, and nobody says so"
        );
        Ok(())
    }
}

/// Fills the log at that rate, on a node with both.
pub(crate) fn storm(
    scene: &Scene,
    npd: &Running,
    sides: &[Side; 2],
    per_second: u32,
) -> Result<Storm> {
    let _alone = kmsg::alone();
    let lines: Vec<String> = (0..LINES).map(line).collect();
    scene.node.sh(HOG)?;
    std::thread::sleep(SETTLE);
    let before = cost::used(scene, sides)?;
    let counted = oom_kills(npd)?;
    let (kills, losses) = (told(scene, KILL)?.len(), told(scene, LOSS)?.len());
    let uptime = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    let (began, since) = (Instant::now(), Timestamp::now());
    let took = std::thread::scope(|scope| {
        let flood = scope.spawn(|| kmsg::flood(&lines, per_second));
        std::thread::sleep(Duration::from_secs(1) * LINES / per_second / 5); // it takes a moment to start
        scene.node.sh(LET_LOOSE)?;
        let took = flood.join().map_err(|_| anyhow!("the flood panicked"))??;
        anyhow::Ok(took)
    })?;
    let killed = wait_until("the hog's end", TOLD, || {
        let end: u64 = scene.node.sh(ITS_END)?.trim().parse()?;
        Ok((end > 0).then(|| Duration::from_micros(end).saturating_sub(uptime)))
    })?;
    ensure!(
        killed < took,
        "killed {killed:?} after the beginning of a storm of {took:?}"
    );
    say(&format!(
        "{LINES} lines took {took:.2?}; the real kill was {killed:.2?} after the first"
    ));
    let told_at = wait_until("an Event on the kill", TOLD, || {
        Ok((told(scene, KILL)?.len() > kills).then(Instant::now))
    });
    read_on(scene, sides)?;
    let after = cost::used(scene, sides)?;
    scene.node.sh(AWAY)?;
    let fresh = told(scene, KILL)?.split_off(kills);
    let wrong = fresh
        .iter()
        .find(|note| !note.contains(VICTIM) || note.contains(NOBODY));
    ensure!(wrong.is_none(), "nobody was killed: {wrong:?}");
    Ok(Storm {
        told: told_at.ok().map(|at| (at - began).saturating_sub(killed)),
        loss: told(scene, LOSS)?.split_off(losses).pop(),
        counted: oom_kills(npd)? - counted,
        has_victim: has_victim(scene, since)?,
        used: cost::between(&before, &after),
    })
}

fn line(number: u32) -> String {
    if number.is_multiple_of(2) {
        format!("storm: line {number} of a driver that has much to say and nothing to tell")
    } else {
        format!(
            "Out of memory: Killed process {number} ({NOBODY}) total-vm:1024kB, anon-rss:512kB, file-rss:0kB, \
             shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0"
        )
    }
}

/// Waits until neither has anything left to do.
fn read_on(scene: &Scene, sides: &[Side; 2]) -> Result<()> {
    let cpu = || Ok::<_, anyhow::Error>(sides[0].cpu(scene)? + sides[1].cpu(scene)?);
    wait_until("the end of the reading", READ_ON, || {
        let before = cpu()?;
        std::thread::sleep(Duration::from_secs(1));
        Ok((cpu()?.saturating_sub(before) < CALM).then_some(()))
    })
}

/// The notes of the agent's Events of a reason, in the order in which they were made.
fn told(scene: &Scene, reason: &str) -> Result<Vec<String>> {
    let (code, events) = scene
        .plane
        .get("/apis/events.k8s.io/v1/namespaces/default/events")?;
    ensure!(code == 200, "the events: {code} {events}");
    let events = events["items"].as_array().context("a list of events")?;
    let text = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let mut ours: Vec<_> = events
        .iter()
        .filter(|event| {
            event["regarding"]["name"] == scene.node.name() && event["reason"] == reason
        })
        .map(|event| (text(event, "eventTime"), text(event, "note")))
        .collect();
    ours.sort();
    Ok(ours.into_iter().map(|(_, note)| note).collect())
}

/// Whether node-problem-detector has logged the real kill.
fn has_victim(scene: &Scene, since: Timestamp) -> Result<bool> {
    let lines = format!(
        "journalctl --no-pager -q -o cat --since=@{} -u {}",
        since.as_second(),
        npd::UNIT
    );
    let count = format!("{lines} | grep -q '({VICTIM}) total-vm'");
    Ok(scene.node.run(&count)?.0 == 0)
}

/// How many kills for memory node-problem-detector has counted.
fn oom_kills(npd: &Running) -> Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", npd.metrics))?;
    stream.set_read_timeout(Some(TOLD))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("problem_counter{reason=\"OOMKilling\"} "))
        .context("node-problem-detector's metrics have no count of kills for memory")?;
    // Go writes large numbers as 1e+04.
    let count: f64 = count.parse()?;
    Ok(format!("{count:.0}").parse()?)
}
